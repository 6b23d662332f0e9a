"""From bounds on event times to windows.

The problem: a query bounds how much later one stream's rows may be than another's, for some pairs; a request has one window T_i per stream
and means ts_j − ts_i ≤ T_i for all j. The method: what is bounded for some pairs is bounded for others by way of them, as tightly as the
shortest path says (networkx's Floyd–Warshall over arrays, O(n³)). T_i is the largest of these bounds on ts_j − ts_i over all j, so every row of the
query's answer is within the windows; a pair that the query bounds more tightly than its window keeps that as a predicate, so no
other row is. Guarantee: windows and predicates together mean exactly what the query's comparisons mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from solvers.sql.text import FaultError, Text

__all__ = ["Bound", "Pair", "kept_bounds", "share", "shortest", "tightest", "windows"]

EXACT = 1 << 53
"""Microseconds, some 285 years: up to here sums of whole numbers are exact in the doubles that the paths are computed in."""

SHORTEST = 1
"""Microseconds: the window of a stream that is never before another. A window has to have a length, and event times are no finer."""

LONE = 1_000_000
"""Microseconds: the window of a stream that joins with tables alone. Its rows wait for nothing."""

Pair = tuple[str, str]
Distances = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Bound:
    """ts_later − ts_earlier is at most so much; below it, where the bound is strict. `later` need not be later: a bound may be negative."""

    earlier: str
    later: str
    length: int
    """Microseconds."""
    strict: bool
    stated: bool
    """Whether a predicate says it already, as an equality of event times does."""
    node: exp.Expr


def tightest(bounds: Sequence[Bound]) -> dict[Pair, Bound]:
    """Of each pair, in each direction, the one that implies the others."""
    found: dict[Pair, Bound] = {}
    for bound in bounds:
        known = found.setdefault((bound.earlier, bound.later), bound)
        if (bound.length, not bound.strict, not bound.stated) < (known.length, not known.strict, not known.stated):
            found[bound.earlier, bound.later] = bound
    return found


def windows(text: Text, streams: Mapping[str, exp.Expr], bounds: Mapping[Pair, Bound], event_times: Mapping[str, exp.Expr]) -> dict[str, int]:
    """T_i of every stream, in microseconds; `streams` has where each stands in the text.

    Raises FaultError where a pair is not bounded, or where no rows can satisfy the bounds.
    """
    names = list(streams)
    if len(names) == 1:
        name = names[0]
        if name not in event_times:
            raise text.fault(streams[name], f"nothing says what the event time of {name} is; say it in the statistics: streams.{name}.event_time")
        return {name: LONE}
    longest: dict[str, int] = dict.fromkeys(names, 0)
    for (i, _), bound in bounds.items():
        longest[i] = max(longest[i], abs(bound.length))
    if sum(longest.values()) >= EXACT:
        far = max(bounds.values(), key=lambda bound: abs(bound.length))
        raise text.fault(far.node, "the bounds on time add up to more than 285 years; shorten the longest")
    distance = shortest(names, ((i, j, bound.length) for (i, j), bound in bounds.items()))
    for itself in (names[at] for at in np.flatnonzero(np.diagonal(distance) < 0)):
        bound = next(bound for (earlier, _), bound in bounds.items() if earlier == itself)
        raise text.fault(bound.node, f"no rows satisfy these bounds on time: {itself} would have to be earlier than itself")
    for one, other in np.argwhere(np.isinf(distance)):
        raise _unbounded(text, names[one], names[other], streams, event_times)
    return {name: max(SHORTEST, int(distance[place].max())) for place, name in enumerate(names)}


def shortest(names: Sequence[str], edges: Iterable[tuple[str, str, int]]) -> Distances:
    """The length of the shortest path from each to each, infinite where there is none. Below 0 from a stream to itself: the
    bounds contradict each other."""
    import networkx as nx  # here because it takes most of a second, and only SQL needs it

    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_weighted_edges_from(edges)
    return np.asarray(nx.floyd_warshall_numpy(graph, nodelist=list(names)), dtype=np.float64)


def _unbounded(text: Text, i: str, j: str, streams: Mapping[str, exp.Expr], event_times: Mapping[str, exp.Expr]) -> FaultError:
    """Nothing says how long a row of i has to wait for one of j."""
    times = [f"{name}.{event_times[name].sql('spark') if name in event_times else 'ts'}" for name in (i, j)]
    missing = [name for name in (i, j) if name not in event_times]
    unknown = f" (nothing says what the event time of {' and '.join(missing)} is)" if missing else ""
    return text.fault(
        streams[j],
        f"no bound on time: {j} may be later than {i} by any time{unknown}, so rows of {i} would be kept for ever; "
        f"add a condition like {times[1]} <= {times[0]} + INTERVAL '60' SECOND",
    )


def kept_bounds(bounds: Mapping[Pair, Bound], lengths: Mapping[str, int]) -> list[Bound]:
    """Those that the windows alone do not imply."""
    return [bound for (i, _), bound in bounds.items() if not bound.stated and (bound.strict or bound.length < lengths[i])]


def share(bound: Bound, bounds: Mapping[Pair, Bound], lengths: Mapping[str, int], counted: set[Pair]) -> float:
    """The share of pairs within their windows that satisfy the bound, among those that satisfy the ones counted before.

    A pair within its windows differs by −T_j to T_i, and all differences are as frequent; a bound cuts this band.
    """
    i, j = bound.earlier, bound.later
    back = bounds[j, i].length if (j, i) in counted else lengths[j]
    return min(1.0, max(SHORTEST, bound.length + back) / max(SHORTEST, lengths[i] + back))
