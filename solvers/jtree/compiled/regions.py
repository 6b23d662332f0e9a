"""A region of a join tree, solved exactly: the best way to join a handful of blocks.

Problem: given blocks B_1..B_m (disjoint sets of streams, each joined below already), every trade-off between CPU and
memory of the join trees that have them as leaves. Method: sizes and rates do not depend on shape, so for each connected
union of blocks it is enough to keep the staircase of (CPU, bytes) that no other sub-tree beats (dynamic programming over
unions; all partitions of a union into connected parts, depth first, with the parts' least costs as a bound). Guarantee:
exact; a staircase longer than MAX_STEPS is cut, and said so, but keeps its cheapest step.
Complexity: O(Bell(m + 1) · 2^m · m) at worst, far less on sparse graphs.

Costs are *excess*: what a plan pays beyond what every plan pays. With base = min(insert + delete, append), every plan pays
base · rate for each stream and join · rate for the output. A plan's excess, none of whose parts is negative, is

    Σ joins  ( all probes but for what makes the join's own output, + keeping each input's state beyond base · rate )
  + Σ inner joins other than the root  ( join + base ) · rate

so that plans whose totals agree in most digits are still told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.jtree.compiled.sets import compiled
from solvers.jtree.orders import best_orders
from solvers.model.cost import CostModel
from solvers.model.graph import bits

__all__ = ["MAX_BLOCKS", "Ledger", "Orders", "Solution", "solve_region"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Orders: TypeAlias = tuple[tuple[int, ...], ...]

MAX_BLOCKS = 12  # 4096 unions; the partitions of a sparse region of 12 blocks still take milliseconds
MAX_EXACT_INPUTS = 12  # a backward pass over 4096 unions; wider joins are ordered greedily
MAX_STEPS = 48  # steps of one staircase; a region's are rarely longer


@compiled
def _between(owner: Ints, left: Ints, right: Ints, selectivity: Floats, equality: Ints, m: int) -> tuple[Floats, Ints, Ints]:
    """Between every two blocks: the product of the selectivities, whether there is a predicate, and an equality."""
    product = np.ones((m, m))
    joined = np.zeros((m, m), np.int64)
    equal = np.zeros((m, m), np.int64)
    for e in range(left.shape[0]):
        a, b = owner[left[e]], owner[right[e]]
        if a >= 0 and b >= 0 and a != b:
            product[a, b] *= selectivity[e]
            product[b, a] = product[a, b]
            joined[a, b] = joined[b, a] = 1
            equal[a, b] |= equality[e]
            equal[b, a] = equal[a, b]
    return product, joined, equal


@compiled
def _size(streams: Ints, inside: NDArray[np.bool_], windows: Floats, left: Ints, right: Ints, selectivity: Floats) -> float:
    """Π w · Π σ over the streams marked inside, on mantissas and exponents apart."""
    mantissa, exponent = 1.0, 0
    for i in streams:
        mantissa, e = math.frexp(mantissa * windows[i])
        exponent += e
    for p in range(left.shape[0]):
        if inside[left[p]] and inside[right[p]]:
            mantissa, e = math.frexp(mantissa * selectivity[p])
            exponent += e
    if exponent > 1023:
        return np.inf
    return math.ldexp(mantissa, exponent) if exponent > -1100 else 0.0


@compiled
def _tables(size: Floats, per_second: Floats, product: Floats, joined: Ints, equal: Ints) -> tuple[Floats, Floats, Ints, Ints, NDArray[np.bool_]]:
    """For every union of blocks: size, Σ 1/T, the blocks it reaches by a predicate, by an equality, and whether it is connected."""
    m = size.shape[0]
    count = 1 << m
    sizes = np.ones(count)
    seconds = np.zeros(count)
    reach = np.zeros(count, np.int64)
    hashes = np.zeros(count, np.int64)
    connected = np.zeros(count, np.bool_)
    for union in range(1, count):
        low = 0
        while not union >> low & 1:
            low += 1
        rest = union & (union - 1)
        factor = size[low]
        near = 0
        near_equal = 0
        for k in range(m):
            if joined[low, k]:
                near |= 1 << k
                if rest >> k & 1:
                    factor *= product[low, k]
            if equal[low, k]:
                near_equal |= 1 << k
        made = factor if rest == 0 else sizes[rest] * factor
        sizes[union] = made if made == made else np.inf
        seconds[union] = seconds[rest] + per_second[low]
        reach[union] = reach[rest] | near
        hashes[union] = hashes[rest] | near_equal
        seen = 1 << low
        while True:
            grown = seen
            for k in range(m):
                if seen >> k & 1:
                    for other in range(m):
                        if joined[k, other] and union >> other & 1:
                            grown |= 1 << other
            if grown == seen:
                break
            seen = grown
        connected[union] = seen == union
    return sizes, seconds, reach, hashes, connected


@compiled
def _weighted(weight: float, value: float) -> float:
    return weight * value if weight != 0.0 else 0.0


@compiled
def _one_side(kept: float, arriving: float, size: float, can_hash: bool, costs: Floats) -> float:
    """Keeping one state of a binary join beyond base, and probing it."""
    keep, append, probe, scan = costs[1], costs[2], costs[3], costs[4]
    cheapest = _weighted(append, kept) + _weighted(scan, arriving * size)
    if can_hash:
        cheapest = min(cheapest, _weighted(keep, kept))
    return cheapest + _weighted(probe, arriving)


@compiled
def _join_excess(
    parts: Ints,
    count: int,
    sizes: Floats,
    seconds: Floats,
    reach: Ints,
    hashes: Ints,
    costs: Floats,
    union: Ints,
    to_go: Floats,
    following: Ints,
) -> float:
    """The excess of one join over these unions of blocks, and its best orders in `following` (by set of visited positions)."""
    join, keep, append, probe, scan = costs[0], costs[1], costs[2], costs[3], costs[4]
    if count == 2:
        a, b = parts[0], parts[1]
        rate_a, rate_b = sizes[a] * seconds[a], sizes[b] * seconds[b]
        can_hash = hashes[a] & b != 0
        following[1], following[2] = 1, 0
        return _one_side(rate_b, rate_a, sizes[b], can_hash, costs) + _one_side(rate_a, rate_b, sizes[a], can_hash, costs)
    every = (1 << count) - 1
    union[0] = 0
    for visited in range(1, every + 1):
        low = 0
        while not visited >> low & 1:
            low += 1
        union[visited] = union[visited & (visited - 1)] | parts[low]
    to_go[every] = 0.0
    for visited in range(every - 1, 0, -1):
        here = union[visited]
        best, choice = np.inf, -1
        for k in range(count):
            if visited >> k & 1 or not reach[here] & parts[k]:
                continue
            after = visited | 1 << k
            cost = _weighted(probe, sizes[here]) + to_go[after]
            if after != every:
                cost += _weighted(join, sizes[union[after]])
            if not hashes[here] & parts[k]:
                cost += _weighted(scan, sizes[here] * sizes[parts[k]])
            if cost < best:
                best, choice = cost, k
        to_go[visited], following[visited] = best, choice
    total = 0.0
    for k in range(count):
        total += seconds[parts[k]] * to_go[1 << k]
        # Whoever shares an equality with this input probes it by hash when its own turn comes.
        indexed = hashes[parts[k]] & union[every] & ~parts[k] != 0
        total += _weighted(keep if indexed else append, sizes[parts[k]] * seconds[parts[k]])
    return total if total == total else np.inf


@compiled
def _solve(
    m: int,
    sizes: Floats,
    seconds: Floats,
    reach: Ints,
    hashes: Ints,
    connected: NDArray[np.bool_],
    tuple_bytes: Floats,
    costs: Floats,
    cpu_limit: float,
    memory_limit: float,
    max_steps: int,
) -> tuple[Floats, Floats, Ints, Ints, int, int, bool]:
    """Every union's staircase, as entries; 0..m−1 are the blocks.

    Returns CPU, bytes, parts and number of parts by entry, the root's first entry and the one past its last, and whether none was cut.
    """
    count = 1 << m
    full = count - 1
    join, base = costs[0], costs[5]
    room = m + 64
    cpu, memory = np.zeros(room), np.zeros(room)
    parts_of = np.zeros((room, m), np.int64)
    parts_in = np.zeros(room, np.int64)
    first, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for k in range(m):
        first[1 << k], end[1 << k] = k, k + 1
    used = m
    whole = True
    union, to_go, following = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64)
    chosen, left, least, held = np.zeros(m + 1, np.int64), np.zeros(m + 1, np.int64), np.zeros(m + 1), np.zeros(m + 1)
    pick = np.zeros(m, np.int64)
    step_cpu, step_memory = np.zeros(max_steps), np.zeros(max_steps)
    step_parts = np.zeros((max_steps, m), np.int64)
    step_count = np.zeros(max_steps, np.int64)
    for target in range(3, count):
        if target & (target - 1) == 0 or not connected[target] or sizes[target] == np.inf:
            continue
        kept = 0.0
        kept_bytes = 0.0
        if target != full:
            weight = 0.0
            for k in range(m):
                if target >> k & 1:
                    weight += tuple_bytes[k]
            kept = _weighted(join + base, sizes[target] * seconds[target])
            kept_bytes = _weighted(weight, sizes[target])
            if kept > cpu_limit or kept_bytes > memory_limit:
                continue
        steps = 0
        depth = 0
        left[0], least[0], held[0] = target, 0.0, 0.0
        fresh = True
        while depth >= 0:
            # The part with the lowest block left: its other blocks run through all subsets, largest first.
            low = left[depth] & -left[depth]
            if fresh:
                chosen[depth] = left[depth]
                fresh = False
            else:
                rest = chosen[depth] ^ low
                if rest == 0:
                    depth -= 1
                    continue
                chosen[depth] = ((rest - 1) & (left[depth] ^ low)) | low
            part = chosen[depth]
            if part == target or first[part] == end[part]:
                continue
            # A staircase rises in CPU: its first entry is the cheapest, its last the smallest.
            now = least[depth] + cpu[first[part]]
            now_held = held[depth] + memory[end[part] - 1]
            if now + kept > cpu_limit or now_held + kept_bytes > memory_limit:
                continue
            if steps and step_cpu[0] <= now + kept and step_memory[0] <= now_held + kept_bytes:
                continue
            remaining = left[depth] ^ part
            if remaining:
                depth += 1
                left[depth], least[depth], held[depth] = remaining, now, now_held
                fresh = True
                continue
            number = depth + 1
            own = _join_excess(chosen, number, sizes, seconds, reach, hashes, costs, union, to_go, following) + kept
            if own == np.inf:
                continue
            for k in range(number):
                pick[k] = first[chosen[k]]
            while True:
                total, total_held = own, kept_bytes
                for k in range(number):
                    total += cpu[pick[k]]
                    total_held += memory[pick[k]]
                if total <= cpu_limit and total_held <= memory_limit:
                    place = 0
                    while place < steps and step_cpu[place] < total:
                        place += 1
                    beaten = (place > 0 and step_memory[place - 1] <= total_held) or (
                        place < steps and step_cpu[place] == total and step_memory[place] <= total_held
                    )
                    if not beaten:
                        stop = place
                        while stop < steps and step_memory[stop] >= total_held:
                            stop += 1
                        if stop == place:
                            if steps == max_steps:
                                whole = False
                                if place < steps:
                                    stop = place + 1
                                else:
                                    place = steps - 1
                                    stop = steps
                            else:
                                for j in range(steps, place, -1):
                                    step_cpu[j], step_memory[j], step_count[j] = step_cpu[j - 1], step_memory[j - 1], step_count[j - 1]
                                    step_parts[j] = step_parts[j - 1]
                                steps += 1
                                stop = place + 1
                        removed = stop - place - 1
                        if removed > 0:
                            for j in range(place + 1, steps - removed):
                                step_cpu[j], step_memory[j] = step_cpu[j + removed], step_memory[j + removed]
                                step_count[j] = step_count[j + removed]
                                step_parts[j] = step_parts[j + removed]
                            steps -= removed
                        step_cpu[place], step_memory[place], step_count[place] = total, total_held, number
                        for k in range(number):
                            step_parts[place, k] = pick[k]
                turn = 0
                while turn < number:
                    pick[turn] += 1
                    if pick[turn] < end[chosen[turn]]:
                        break
                    pick[turn] = first[chosen[turn]]
                    turn += 1
                if turn == number:
                    break
        while used + steps > room:
            bigger = room * 2
            cpu, memory = np.append(cpu, np.zeros(room)), np.append(memory, np.zeros(room))
            parts_in = np.append(parts_in, np.zeros(room, np.int64))
            wider = np.zeros((bigger, m), np.int64)
            wider[:room] = parts_of
            parts_of = wider
            room = bigger
        first[target] = used
        for j in range(steps):
            cpu[used], memory[used], parts_in[used] = step_cpu[j], step_memory[j], step_count[j]
            parts_of[used] = step_parts[j]
            used += 1
        end[target] = used
    return cpu, memory, parts_of, parts_in, first[full], end[full], whole


@compiled
def _greedy(size: Floats, seconds: Floats, product: Floats, joined: Ints, equal: Ints, costs: Floats) -> tuple[float, Ints]:
    """A wide join's excess and orders: next is always the input whose step is cheapest, its results included."""
    m = size.shape[0]
    join, keep, append, probe, scan = costs[0], costs[1], costs[2], costs[3], costs[4]
    orders = np.zeros((m, m - 1), np.int64)
    total = 0.0
    growth = np.empty(m)
    near, near_equal, visited = np.empty(m, np.bool_), np.empty(m, np.bool_), np.empty(m, np.bool_)
    for start in range(m):
        growth[:] = size
        near[:] = False
        near_equal[:] = False
        visited[:] = False
        here, now, cost = start, size[start], 0.0
        for step in range(m):
            visited[here] = True
            if step == m - 1:
                break
            for k in range(m):
                if joined[here, k]:
                    near[k] = True
                    growth[k] *= product[here, k]
                    if equal[here, k]:
                        near_equal[k] = True
            anything = False
            for k in range(m):
                if near[k] and not visited[k]:
                    anything = True
            best, best_made, choice = np.inf, np.inf, -1
            for k in range(m):
                if visited[k] or (anything and not near[k]):
                    continue
                made = now * growth[k]
                if made != made:
                    made = np.inf
                price = _weighted(join, made) + (0.0 if near_equal[k] else _weighted(scan, now * size[k]))
                if choice < 0 or price < best or (price == best and made < best_made):
                    best, best_made, choice = price, made, k
            cost += _weighted(probe, now) + (best if step < m - 2 else best - _weighted(join, best_made))
            orders[start, step] = choice
            here, now = choice, best_made
        total += seconds[start] * cost
    for k in range(m):
        total += _weighted(keep if equal[k].any() else append, size[k] * seconds[k])
    return (total if total == total else np.inf), orders


@dataclass(frozen=True, slots=True)
class Solution:
    """One way to join a region: its excess, the bytes it keeps, and for each join, inputs first, the masks of its inputs."""

    excess: float
    state_bytes: float
    joins: tuple[tuple[int, ...], ...]


class Ledger:
    """Sizes, rates and join costs of one model, kept as arrays for the kernels and remembered by set."""

    def __init__(self, model: CostModel) -> None:
        graph, costs = model.graph, model.costs
        self.model = model
        self.base = min(costs.insert + costs.delete, costs.append)
        self.costs = np.array(
            [costs.join, costs.insert + costs.delete - self.base, costs.append - self.base, costs.probe, costs.scan, self.base], np.float64
        )
        self.common = math.fsum([*(self.base * rate for rate in graph.rates), costs.join * model.rate(graph.all) if costs.join else 0.0])
        self._windows = np.array(graph.window_tuples, np.float64)
        self._left = np.array([edge.left for edge in graph.edges], np.int64)
        self._right = np.array([edge.right for edge in graph.edges], np.int64)
        self._selectivity = np.array([edge.selectivity for edge in graph.edges], np.float64)
        self._equality = np.array([edge.equality for edge in graph.edges], np.int64)
        self._streams: dict[int, Ints] = {}
        self._sizes: dict[int, float] = {}
        self._kept: dict[int, float] = {}
        self._bytes: dict[int, float] = {}
        self._joins: dict[tuple[int, ...], tuple[float, Orders]] = {}

    def size(self, mask: int) -> float:
        size = self._sizes.get(mask)
        if size is None:
            size = self._sizes[mask] = self._size(mask)
        return size

    def _size(self, mask: int) -> float:
        graph = self.model.graph
        if any(subset & ~mask == 0 for subset, _ in graph.observed):
            return graph.size(mask)
        streams = self._streams_of(mask)
        inside = np.zeros(len(graph), np.bool_)
        inside[streams] = True
        return float(_size(streams, inside, self._windows, self._left, self._right, self._selectivity))

    def _streams_of(self, mask: int) -> Ints:
        streams = self._streams.get(mask)
        if streams is None:
            streams = self._streams[mask] = np.fromiter(bits(mask), np.int64)
        return streams

    def kept(self, mask: int) -> float:
        """What keeping the subresult of an inner join adds to the excess: making it and the least of keeping it."""
        kept = self._kept.get(mask)
        if kept is None:
            weight = self.model.costs.join + self.base
            kept = self._kept[mask] = weight * self.size(mask) * self.model.per_second(mask) if weight else 0.0
        return kept

    def state_bytes(self, mask: int) -> float:
        held = self._bytes.get(mask)
        if held is None:
            held = self._bytes[mask] = self.size(mask) * self.model.tuple_bytes(mask)
        return held

    def _between(self, masks: Sequence[int]) -> tuple[Floats, Ints, Ints]:
        owner = np.full(len(self.model.graph), -1, np.int64)
        for k, mask in enumerate(masks):
            owner[self._streams_of(mask)] = k
        product, joined, equal = _between(owner, self._left, self._right, self._selectivity, self._equality, len(masks))
        return product, joined, equal

    def _arrays(self, masks: Sequence[int]) -> tuple[Floats, Floats]:
        return np.array([self.size(mask) for mask in masks]), np.array([self.model.per_second(mask) for mask in masks])

    def _independent(self, masks: Sequence[int]) -> bool:
        """Whether sizes of unions are products: no observed set spans two of the blocks."""
        every = 0
        for mask in masks:
            every |= mask
        return all(subset & ~every or any(subset & ~mask == 0 for mask in masks) for subset, _ in self.model.graph.observed)

    def tables(self, masks: Sequence[int]) -> tuple[Floats, Floats, Ints, Ints, NDArray[np.bool_]]:
        """Size, Σ 1/T, reach by predicate and by equality, and connectedness of every union of the blocks."""
        product, joined, equal = self._between(masks)
        sizes, seconds, reach, hashes, connected = _tables(*self._arrays(masks), product, joined, equal)
        if not self._independent(masks):
            for union in range(1, len(sizes)):
                if connected[union]:
                    sizes[union] = self.model.size(_mask_of(masks, union))
        return sizes, seconds, reach, hashes, connected

    def join(self, masks: Sequence[int]) -> tuple[float, Orders]:
        """The excess of one join over these blocks, and its probe orders: the best where it has few inputs, else greedy ones.

        Greedy ones take sizes to be products of the blocks' own: where a wide join's observed sets span blocks, its excess is an estimate.
        """
        key = tuple(masks)
        known = self._joins.get(key)
        if known is None:
            known = self._joins[key] = self._join(key)
        return known

    def _join(self, masks: tuple[int, ...]) -> tuple[float, Orders]:
        m = len(masks)
        if m <= MAX_EXACT_INPUTS:
            sizes, seconds, reach, hashes, connected = self.tables(masks)
            if connected[-1]:
                parts = np.array([1 << k for k in range(m)], np.int64)
                scratch = np.zeros(1 << m, np.int64), np.zeros(1 << m), np.zeros(1 << m, np.int64)
                excess = float(_join_excess(parts, m, sizes, seconds, reach, hashes, self.costs, *scratch))
                return excess, _orders(scratch[2], m)
            if not self._independent(masks):
                return self._by_price(masks)  # components, with measured joins across them
        return self._greedily(masks)

    def greedy_orders(self, masks: Sequence[int]) -> Orders:
        """Orders in which the cheapest step is always next: milliseconds for 200 inputs."""
        return self._greedily(masks)[1]

    def _greedily(self, masks: Sequence[int]) -> tuple[float, Orders]:
        product, joined, equal = self._between(masks)
        excess, orders = _greedy(*self._arrays(masks), product, joined, equal, self.costs)
        return float(excess), tuple(tuple(order) for order in orders.tolist())

    def exact_join(self, masks: Sequence[int]) -> tuple[float, bool]:
        """As the excess of `join`, from now on with the best orders for however many inputs, and whether those are proven to be the best."""
        key, proven = tuple(masks), True
        if len(key) > MAX_EXACT_INPUTS:
            orders, proven = best_orders(self.model, key)
            self._joins[key] = self._along(key, orders), orders
        return self.join(key)[0], proven

    def _by_price(self, masks: tuple[int, ...]) -> tuple[float, Orders]:
        orders, _ = best_orders(self.model, masks)
        return self._along(masks, orders), orders

    def _along(self, masks: tuple[int, ...], orders: Orders) -> float:
        """The excess of a join with these orders: its price, but for making its output and for the least of keeping its inputs."""
        model, whole = self.model, sum(masks)
        parts = [term.value for term in model.price_join(masks, orders).terms if term.made != whole]
        parts += [-self.base * model.rate(mask) for mask in masks if self.base]
        return max(0.0, math.fsum(parts)) if all(map(math.isfinite, parts)) else math.inf


def _orders(following: Ints, m: int) -> Orders:
    orders = []
    for start in range(m):
        visited = 1 << start
        order: list[int] = []
        while len(order) < m - 1:
            # Where every way overflows no step is best; any order will do, since no such plan is chosen.
            target = int(following[visited]) if following[visited] >= 0 else next(k for k in range(m) if not visited >> k & 1)
            order.append(target)
            visited |= 1 << target
        orders.append(tuple(order))
    return tuple(orders)


def _mask_of(masks: Sequence[int], union: int) -> int:
    mask = 0
    for k in bits(union):
        mask |= masks[k]
    return mask


def solve_region(
    ledger: Ledger,
    masks: Sequence[int],
    cpu_limit: float = math.inf,
    memory_limit: float = math.inf,
    in_memory: bool = True,
    max_steps: int = MAX_STEPS,
) -> tuple[tuple[Solution, ...], bool]:
    """The staircase of the trees over these blocks within the limits of excess and bytes, by rising excess, and whether it is complete.

    Without `in_memory` bytes count for nothing, and the staircase is its cheapest step alone.
    """
    m, model = len(masks), ledger.model
    sizes, seconds, reach, hashes, connected = ledger.tables(masks)
    weights = np.array([model.tuple_bytes(mask) if in_memory else 0.0 for mask in masks])
    cpu, memory, parts_of, parts_in, first, end, whole = _solve(
        m, sizes, seconds, reach, hashes, connected, weights, ledger.costs, cpu_limit, memory_limit, max_steps
    )
    solutions = []
    for entry in range(first, end):
        found: list[tuple[int, ...]] = []
        waiting = [entry]
        masks_of: dict[int, int] = dict(enumerate(masks))
        order: list[int] = []
        while waiting:
            node = waiting.pop()
            if node >= m:
                order.append(node)
                waiting.extend(parts_of[node, : parts_in[node]].tolist())
        for node in reversed(order):
            inputs = sorted((masks_of[part] for part in parts_of[node, : parts_in[node]].tolist()), key=lambda mask: mask & -mask)
            masks_of[node] = sum(inputs)
            found.append(tuple(inputs))
        solutions.append(Solution(float(cpu[entry]), float(memory[entry]), tuple(found)))
    return tuple(solutions), bool(whole)
