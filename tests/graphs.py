"""One maker of join graphs for all tests: every shape, every feature of the cost model, from a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, pairwise

from hypothesis import strategies as st

from models.request import Comparison, Costs, Observed, PlanRequest, Predicate, Query, Stream, Window
from models.table import Access, AccessKind, Table
from solvers.common.errors import BindError
from solvers.model.binding import check_bound
from solvers.model.graph import join_graph

__all__ = ["SHAPES", "edges_of", "plan_requests", "queries", "random_costs", "random_graph", "with_a_measured_pair", "with_tables"]

SHAPES = ("chain", "star", "cycle", "snowflake", "clique", "random")


def edges_of(rng: random.Random, n: int, shape: str, degree: float = 2.5) -> list[tuple[int, int]]:
    """The edges of a connected graph; `random` is a random tree with edges added up to the mean degree."""
    if shape == "chain":
        return [(i, i + 1) for i in range(n - 1)]
    if shape == "star":
        return [(0, i) for i in range(1, n)]
    if shape == "cycle":
        return [(i, i + 1) for i in range(n - 1)] + ([(0, n - 1)] if n > 2 else [])
    if shape == "clique":
        return list(combinations(range(n), 2))
    if shape == "snowflake":
        # About √n streams around the hub, the others in turn behind them.
        arms = max(1, round((n - 1) ** 0.5))
        return [(0 if i <= arms else i - arms, i) for i in range(1, n)]
    assert shape == "random", f"unknown shape {shape}"
    edges = [(rng.randrange(i), i) for i in range(1, n)]
    others = [pair for pair in combinations(range(n), 2) if pair not in set(edges)]
    rng.shuffle(others)
    return sorted(edges + others[: max(0, round(degree * n / 2) - len(edges))])


def with_a_measured_pair(query: Query) -> Query:
    """The same query with one sub-join measured, as its predicate says: the quickest of the searches leaves it to those that take their time."""
    first = query.predicates[0]
    pair = sorted((first.left.split(".")[0], first.right.split(".")[0]))
    return query.model_copy(update={"observed": [Observed(streams=pair, selectivity=first.selectivity)]})


def random_graph(
    rng: random.Random,
    n: int,
    shape: str = "random",
    *,
    degree: float = 2.5,
    rates: tuple[float, float] = (1.0, 100.0),
    windows: Sequence[float] = (1.0,),
    tuple_bytes: Sequence[float] = (100.0,),
    log_selectivity: tuple[float, float] | None = (-4.0, -1.0),
    rows: float = 0.0,
    theta: float = 0.0,
    observed: float = 0.0,
    parts: int = 1,
    equalities: float = 0.0,
    across: float = 0.0,
    shuffled: bool = False,
) -> Query:
    """A query of n streams.

    Selectivities are log-uniform in 10^log_selectivity, or uniform in (0, 1) as in paper 3 §6.1 where it is None. `rows` is the share of
    row windows, `theta` of predicates without equality, `observed` of small sets with a measured selectivity, `equalities` of pairs with a
    second equality. With `parts` > 1 the graph falls into that many components, and `across` is the share of pairs of streams from
    different ones with a measured selectivity. `shuffled` streams stand in any order, so that the hub of a star is not always the first.
    """
    streams = []
    for i in range(n):
        rate, length = rng.uniform(*rates), rng.choice(list(windows))
        window = Window(rows=max(1, round(rate * length))) if rng.random() < rows else Window(seconds=length)
        streams.append(Stream(name=f"s{i}", rate=rate, window=window, tuple_bytes=rng.choice(list(tuple_bytes))))

    def selectivity() -> float:
        return 10.0 ** rng.uniform(*log_selectivity) if log_selectivity is not None else 1.0 - rng.random()

    cuts = [0, *sorted(rng.sample(range(1, n), parts - 1)), n]
    predicates = []
    members: list[list[str]] = []
    for low, high in pairwise(cuts):
        edges = [(low + a, low + b) for a, b in edges_of(rng, high - low, shape, degree)]
        for a, b in edges:
            op = Comparison.LT if rng.random() < theta else Comparison.EQ
            predicates.append(Predicate(left=f"s{a}.x{b}", right=f"s{b}.x{a}", op=op, selectivity=selectivity()))
            if rng.random() < 0.1:
                predicates.append(Predicate(left=f"s{a}.y{b}", right=f"s{b}.y{a}", op=Comparison.GE, selectivity=rng.uniform(0.3, 1.0)))
            if equalities and rng.random() < equalities:
                predicates.append(Predicate(left=f"s{a}.z{b}", right=f"s{b}.z{a}", selectivity=rng.uniform(0.1, 1.0)))
        if observed:
            for size in range(2, min(high - low, 5) + 1):
                members += [[f"s{i}" for i in chosen] for chosen in combinations(range(low, high), size) if rng.random() < observed]
    if across:
        part_of = {f"s{i}": part for part, (low, high) in enumerate(pairwise(cuts)) for i in range(low, high)}
        pairs = ([a.name, b.name] for a, b in combinations(streams, 2) if part_of[a.name] != part_of[b.name])
        members += [pair for pair in pairs if rng.random() < across]
    sets = [
        Observed(streams=names, selectivity=rng.choice((0.0, 1.0)) if rng.random() < 0.03 else selectivity() ** (len(names) - 1)) for names in members
    ]
    if shuffled:
        rng.shuffle(streams)
    return Query(streams=streams, predicates=predicates, observed=sets)


def with_tables(rng: random.Random, query: Query, count: int) -> Query:
    """The query with `count` of its streams as tables, of any size and with any accesses that some plan can bind."""
    chosen = {stream.name for stream in rng.sample(query.streams, count)}
    tables = []
    for stream in (stream for stream in query.streams if stream.name in chosen):
        equalities = [(p.left, p.right) for p in query.predicates if p.op is Comparison.EQ]
        attributes = sorted({side.split(".")[1] for pair in equalities for side in pair if side.split(".")[0] == stream.name})
        access = [Access(kind=AccessKind.SCAN)] if rng.random() < 0.6 or not attributes else []
        if attributes and (not access or rng.random() < 0.6):
            for bound in {tuple(sorted(rng.sample(attributes, min(len(attributes), rng.choice((1, 1, 2)))))) for _ in range(rng.choice((1, 2)))}:
                access.append(Access(kind=AccessKind.INDEX, bound=list(bound), cpu=rng.choice((1e-6, 2e-5, 1e-7)), seconds=0.002, keys=100))
        rng.shuffle(access)
        tables.append(Table(name=stream.name, rows=10.0 ** rng.uniform(0.5, 4.0), tuple_bytes=stream.tuple_bytes, access=access))
    made = query.model_copy(update={"streams": [s for s in query.streams if s.name not in chosen], "tables": tables})
    while True:
        try:
            check_bound(join_graph(made))
            return made
        except BindError as refused:
            _, _, _, number, _, place, _ = refused.pointer.split("/")
            table = made.tables[int(number)]
            access = [offer for k, offer in enumerate(table.access) if k != int(place)] or [Access(kind=AccessKind.SCAN)]
            others = [table.model_copy(update={"access": access}) if k == int(number) else other for k, other in enumerate(made.tables)]
            made = made.model_copy(update={"tables": others})


def random_costs(rng: random.Random) -> Costs:
    """The defaults, or constants under which probing, scanning or keeping weighs more."""
    if rng.random() < 0.5:
        return Costs()
    return Costs(
        join=rng.choice((2.2e-6, 1e-6, 0.0)),
        insert=rng.choice((2e-7, 2e-6)),
        delete=rng.choice((2e-7, 1e-6)),
        append=rng.choice((1e-7, 1e-6)),
        probe=rng.choice((0.0, 5e-7, 3e-6)),
        scan=rng.choice((1.7e-6, 1e-8)),
        step=rng.choice((0.0, 1e-6, 1e-5, 1e-4, 1e-3)),
    )


@st.composite
def queries(draw: st.DrawFn, min_streams: int = 2, max_streams: int = 7) -> Query:
    """Any query: all shapes, differing windows and bytes, row windows, theta predicates, observed sets, now and then unconnected."""
    n = draw(st.integers(min_streams, max_streams))
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    return random_graph(
        rng,
        n,
        draw(st.sampled_from(SHAPES)),
        windows=draw(st.sampled_from(((1.0,), (0.1, 1.0, 10.0)))),
        tuple_bytes=draw(st.sampled_from(((100.0,), (10.0, 100.0, 1000.0)))),
        log_selectivity=draw(st.sampled_from((None, (-4.0, -1.0), (-2.0, 0.0)))),
        rows=draw(st.sampled_from((0.0, 0.4))),
        theta=draw(st.sampled_from((0.0, 0.3))),
        observed=draw(st.sampled_from((0.0, 0.0, 0.3, 1.0))),
        parts=draw(st.sampled_from((1, 1, 1, 2, 3))) if n > 2 else 1,
    )


@st.composite
def plan_requests(draw: st.DrawFn, least: int = 1, most: int = 6, methods: tuple[str, ...] = ("auto",)) -> PlanRequest:
    """Requests with and without caps, for every objective, under several cost constants."""
    query = draw(queries(least, most))
    resources: dict[str, float] = {}
    if draw(st.booleans()):
        resources["cpu"] = draw(st.sampled_from([1e-4, 1e-2, 1.0, 100.0]))
    if draw(st.booleans()):
        resources["memory_bytes"] = draw(st.sampled_from([1e4, 1e5, 1e6, 1e8]))
    return PlanRequest.model_validate(
        {
            "query": query.model_dump(mode="json"),
            "resources": resources,
            "costs": random_costs(random.Random(draw(st.integers(0, 2**32 - 1)))).model_dump(),
            "objective": draw(st.sampled_from(["min_cpu", "min_memory", "max_headroom"])),
            "options": {"method": draw(st.sampled_from(methods)), "caches": "off", "time_limit": 10},
        }
    )
