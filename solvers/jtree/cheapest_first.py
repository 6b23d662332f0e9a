"""The join tree of least CPU of graphs of dozens of streams, or a bound of it that is close, from a plan that is known.

Problem: the least CPU of all join trees, without a look at memory. Method: kept sets by rising cost (`compiled.cheapest`), within a limit. The
better the plan that is known, the less there is to look at. Where it turns out too dear to be the limit, lower limits close in on what can be
searched: one within which no plan is found is a bound itself, and one just above the least CPU finds the plan. Where work ends among the last and
cheapest joins, the largest sets so far are completed stream by stream, which is often a better plan than the one that was known.

Guarantee: the bound is never above the least excess (`compiled.ledger`) of all join trees: nothing is left out but what costs more than the
limit, and what is not looked at any more counts with the least that it may cost. Where the graph is not connected, sub-joins are observed, so that
sizes are no products, or there are tables, nothing is said. Complexity: exponential, cut off at a number of steps that the seconds granted pay for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from solvers.common.deadline import Deadline
from solvers.common.tolerances import SUMMED_DOWN
from solvers.jtree.compiled.cheapest import cheapest_first
from solvers.jtree.compiled.families import DONE, family_room
from solvers.jtree.compiled.kept import COUNT, TAKEN, WORD, WORK, Kept, Streams, room_of
from solvers.jtree.compiled.key_classes import KeyClasses, no_key_classes
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.search import Shape, sorted_inputs
from solvers.model.graph import bits

__all__ = ["MOST_SECONDS", "STEPS_PER_SECOND", "Cheapest", "Effort", "cheapest", "streams_of"]

BETTER = 1.0 - 1e-10  # of the excess of the plan that is known: what is not better by so much is not looked for
STEPS_PER_SECOND = 20_000_000  # of work, by the seconds granted: about as many
FIRST_STEPS = 0.3  # of the work, for the limit that the known plan sets: with less, chains of 12 with caches end just before their proof
LOWEST, HIGHER = 0.25, 1.3  # the first lower limit, of the known plan's excess, and the next, of the bound: work grows much faster than limits do
HALF = 0.5  # of the way from the bound to a limit that was too much, while no search has ended; and of the work that is left, for one limit
MEANT = 0.3  # of the work that is left, what a limit is meant to take: twice that it may come to
MOST_OF_WAY = 0.8  # from a limit whose search ended to one whose search did not
LEAST_GROWTH = 2.0  # of the work, as a power of the limit: less was seen of small searches alone
NEAR = 0.7  # of the known plan's excess: a bound from which its limit may be searched, though one before was too much
CLOSE = 0.02  # of the known plan's excess between a bound and the next limit, from which another limit is not worth it
MOST_SECONDS = 20.0
SETS_PER_SECOND = 200_000
FEWEST_SETS, MOST_SETS = 1_000, 1_000_000
ROOM = 64  # times as many sets as a small graph has: room for the many ways to make one comes with it
COMPLETED = 6  # of the largest sets that are made into plans
HUGE = 1e100  # an excess from which sizes may leave the range of a double
LEAST_STREAMS = 3


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may take."""

    share: float = 1.0
    """Of the time that is left."""
    most_steps: float = math.inf
    """Of work, where the seconds granted would pay for more."""


ALL_OF_IT = Effort()


@dataclass(frozen=True, slots=True)
class Cheapest:
    """What is known of the least excess."""

    bound: float
    """No join tree has less; 0 where nothing is known."""
    shapes: tuple[Shape, ...]
    """Plans that were met on the way. Where the bound is reached, the first has it, if it is not the one that was known."""
    cut: bool = False
    """Whether the clock ended it, not its work."""


def streams_of(ledger: Ledger, keys: KeyClasses | None = None) -> Streams:
    """The graph for compiled code; with what caches are looked up by for a search that allows them."""
    graph = ledger.model.graph
    n = len(graph)
    words = -(-n // WORD)
    near, equal = np.zeros((n + 1, words), np.int64), np.zeros((n + 1, words), np.int64)
    partners: list[dict[int, float]] = [{} for _ in range(n)]
    for edge in graph.edges:
        for a, b in ((edge.left, edge.right), (edge.right, edge.left)):
            partners[a][b] = partners[a].get(b, 1.0) * edge.selectivity
            near[a, b // WORD] |= 1 << b % WORD
            equal[a, b // WORD] |= int(edge.equality) << b % WORD
    for i in range(n):
        near[n, i // WORD] |= 1 << i % WORD
    return Streams(
        near=near,
        equal_near=equal,
        first=np.cumsum([0, *map(len, partners)], dtype=np.int64),
        ends=np.array([b for row in partners for b in row], np.int64),
        selectivity=np.array([value for row in partners for value in row.values()], np.float64),
        tuples=np.array(graph.window_tuples, np.float64),
        pace=1.0 / np.array(graph.window_seconds, np.float64),
        weights=ledger.weights,
        base=ledger.base,
        keys=keys or no_key_classes(n),
    )


def cheapest(
    ledger: Ledger, known: float, deadline: Deadline, effort: Effort = ALL_OF_IT, bound: float = 0.0, keys: KeyClasses | None = None
) -> Cheapest:
    """A bound of the least excess, and plans that may be better than the known one, which has this excess.

    `bound` is what was proven before, 0 where nothing was. With `keys`, joins of three or more cost what they do at least with any caches
    (`compiled.cached_families`), so that no plan with caches has less than the bound either; plans are still plans without.
    """
    graph, costs = ledger.model.graph, ledger.model.costs
    plain = not (graph.observed or graph.tables or ledger.model.choices is not None or len(graph.components) > 1)
    if not plain or len(graph) < LEAST_STREAMS or not 0.0 < known < HUGE or costs.join <= 0.0:
        return Cheapest(0.0, ())
    seconds = min(deadline.granted * effort.share, MOST_SECONDS)
    searching = deadline.share(effort.share)
    work = int(min(STEPS_PER_SECOND * seconds, effort.most_steps))
    # Every set that is met takes a step at least.
    most = min(MOST_SETS, int(SETS_PER_SECOND * max(seconds, 0.1)), ROOM << min(len(graph), WORD // 2), len(graph) + max(work, FEWEST_SETS))
    search = _Search(ledger, streams_of(ledger, keys), most, searching)
    search.bound, proven = bound, False
    if bound == 0.0 or bound > NEAR * known:
        proven = search.run(known * BETTER, int(work * FIRST_STEPS))
        work -= search.work
    guess = _Guess(known)
    while not (proven or search.found) and work > 0 and not searching.expired():
        limit = guess.limit(search.bound, work)
        if limit - search.bound <= CLOSE * known:
            break
        ended = search.run(limit * BETTER, int(work * HALF))
        guess.saw(limit, search.work, ended)
        work -= search.work
        # Where joins that are too wide to look at cost less than the limit, a higher one says no more.
        proven = ended and (limit == known or search.bound < limit * BETTER)
    cut = searching.expired()
    return Cheapest(search.bound * SUMMED_DOWN, tuple(search.shapes(deadline)), cut)


class _Guess:
    """Which limit to try next, by how the work of others grew: about as a power of the limit."""

    def __init__(self, known: float) -> None:
        self.known = known
        self.below: list[tuple[float, int]] = []
        """Limits whose searches ended, rising, and their work."""
        self.above = (math.inf, 0)
        """The lowest limit whose search did not end, and the work it had."""

    def saw(self, limit: float, work: int, ended: bool) -> None:
        if ended:
            self.below.append((limit, max(work, 1)))
        else:
            self.above = limit, work

    def limit(self, bound: float, work: int) -> float:
        """A limit that is likely to take MEANT of the work; the known plan's own, which says the most, if that is lower."""
        if not self.below:
            return min(self.known, max(LOWEST * self.known, HIGHER * bound), bound + HALF * (self.above[0] - bound))
        at, took = self.below[-1]
        growth = LEAST_GROWTH
        for limit, more in (*self.below[-2:-1], self.above):
            if more:
                growth = max(growth, math.log(took / more) / math.log(at / limit))
        farthest = min(self.known, HIGHER * at, at + (self.above[0] - at) * (MOST_OF_WAY if self.above[1] else 1.0))
        return min(farthest, at * math.pow(MEANT * work / took, 1.0 / growth))


class _Search:
    """Searches with one limit after another, and what they found."""

    def __init__(self, ledger: Ledger, streams: Streams, most: int, deadline: Deadline) -> None:
        self.ledger, self.streams, self.most, self.deadline = ledger, streams, most, deadline
        self.bound = 0.0
        self.work = 0
        """Of the last run."""
        self.found = False
        """Whether the last run found the best plan."""
        self._kept: Kept | None = None

    def run(self, limit: float, work: int) -> bool:
        """Search within a limit, and whether the search ended by itself: the bound is the limit then, or the cost of the best plan."""
        words = self.streams.near.shape[1]
        kept = self._kept = room_of(self.most, words)
        family = family_room(self.most, words, self.streams.keys.allowed)
        stop = np.array([0, work], np.int64)
        with self.deadline.watched(lambda: stop.put(0, 1)):
            status, value = cheapest_first(kept, self.streams, family, limit, stop)
        self.bound = max(self.bound, float(value))
        self.work = int(kept.counts[WORK])
        last = int(kept.order[kept.counts[TAKEN] - 1])
        self.found = status == DONE and self._mask(last) == self.ledger.model.graph.all
        return bool(status == DONE)

    def _mask(self, place: int) -> int:
        assert self._kept is not None
        return sum(int(word) << WORD * k for k, word in enumerate(self._kept.mask[place]))

    def shapes(self, deadline: Deadline) -> list[Shape]:
        """The best plan where it was found; else the largest sets of the last run, completed."""
        kept = self._kept
        if kept is None:
            return []
        if self.found:
            return [self._shape(int(kept.order[kept.counts[TAKEN] - 1]))]
        count = int(kept.counts[COUNT])
        width = np.bitwise_count(kept.mask[:count]).sum(axis=1).astype(np.int64)
        largest = np.lexsort((np.arange(count), kept.least[:count], -width))[:COMPLETED].tolist()
        return [self._completed(place) for place in largest if width[place] > 1 and not deadline.expired()]

    def _shape(self, place: int) -> Shape:
        kept = self._kept
        assert kept is not None
        shape: Shape = {}
        waiting = [place]
        while waiting:
            here = waiting.pop()
            at = int(kept.made_of[here])
            if at >= 0:
                inputs = kept.lists[at + 1 : at + 1 + kept.lists[at]].tolist()
                shape[self._mask(here)] = sorted_inputs(map(self._mask, inputs))
                waiting += inputs
        return shape

    def _completed(self, place: int) -> Shape:
        """A plan from a set: the stream next to it with which it grows least is joined next."""
        graph, streams = self.ledger.model.graph, self.streams
        shape, here = self._shape(place), self._mask(place)
        growth: dict[int, float] = {}

        def meet(x: int, inside: int) -> None:
            for e in range(streams.first[x], streams.first[x + 1]):
                y = int(streams.ends[e])
                if not inside >> y & 1:
                    growth[y] = growth.get(y, 1.0) * float(streams.selectivity[e])

        for x in bits(here):
            meet(x, here)
        while here != graph.all:
            x = min(growth, key=lambda y: (growth[y] * graph.window_tuples[y], y))
            del growth[x]
            union = here | 1 << x
            shape[union] = sorted_inputs((here, 1 << x))
            here = union
            meet(x, here)
        return shape
