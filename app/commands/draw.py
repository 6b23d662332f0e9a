"""A plan as text: the join tree with rates, state sizes and costs, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator

from models.plan import Algorithm, Operator, Plan
from models.request import Stream, Window
from models.table import AccessKind, Table
from solvers.common import words

__all__ = ["WIDTH", "draw_both", "draw_diff_table", "draw_frontier", "draw_plan"]

WIDTH = 100  # characters of a line, beyond which it is cut off or wrapped
_BY = {Algorithm.NESTED_LOOP: " scan", Algorithm.LOOKUP: " asked"}
PLOT_ROWS, PLOT_COLUMNS = 16, 60


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def draw_plan(plan: Plan) -> str:
    """The tree, the probe orders of its multi-way joins, and the totals."""
    lines = [*_tree(plan), "", *_orders(plan), *_totals(plan)]
    return "\n".join(_cut(line) for line in lines)


def _window(window: Window) -> str:
    return f"{words.amount(window.seconds)} s" if window.seconds is not None else f"{words.amount(window.rows or 0)} rows"


def _state_note(user: Operator | None, name: str) -> str:
    """Whether the user of an input scans it although most states are indexed."""
    if user is None:
        return ""
    state = next((state for state in user.states if state.input == name), None)
    return "" if state is None or state.indexed else ", scanned"


def _table_line(plan: Plan, table: Table, user: Operator | None) -> str:
    reached = next(entry for entry in plan.tables if entry.name == table.name)
    if reached.access is AccessKind.SCAN:
        return f"▤ {table.name}  {words.amount(table.rows)} rows kept, {words.bytes_(reached.state_bytes)}{_state_note(user, table.name)}"
    calls = f"{words.amount(reached.probes_per_second)} keys/s in {words.amount(reached.calls_per_second)} calls/s"
    return f"▤ {table.name}  {words.amount(table.rows)} rows asked by {', '.join(reached.bound)}, {calls}"


def _stream_line(stream: Stream, user: Operator | None) -> str:
    tuples = stream.window.rows if stream.window.rows is not None else stream.rate * (stream.window.seconds or 0.0)
    unprobed = user is not None and all(state.input != stream.name for state in user.states)
    held = "not kept" if unprobed else words.bytes_(tuples * stream.tuple_bytes)
    return f"{stream.name}  {words.amount(stream.rate)}/s × {_window(stream.window)}, {held}{_state_note(user, stream.name)}"


def _operator_line(operator: Operator, user: Operator | None) -> str:
    kind = "⋈" if len(operator.inputs) == 2 else f"⋈{len(operator.inputs)}"
    kept = f", kept {words.bytes_(operator.state_bytes)}{_state_note(user, operator.id)}" if operator.materialized else ""
    return f"{kind} {operator.id}  {words.cpu(operator.cpu)} CPU → {words.amount(operator.rate)}/s{kept}"


def draw_both(before: Plan, after: Plan) -> list[str]:
    """Both trees, one below the other; what is only in one of them is marked, - before and + after."""
    lines = []
    for title, mark, plan, other in (("approved", "-", before, after), ("now", "+", after, before)):
        known = _places(other)
        moved = {name for name, place in _places(plan).items() if place not in known.values()}
        lines.append(f"{title}:")
        lines += [_cut(f"{mark if name in moved else ' '} {line}") for name, line in _named_tree(plan)]
    return lines


def _places(plan: Plan) -> dict[str, object]:
    """What each stream and each join is, whatever its id and its figures: where it stands, and in which order it is probed."""
    below = {operator.id: "⋈".join(operator.streams) for operator in plan.operators}
    places: dict[str, object] = {}
    for operator in plan.operators:
        places[operator.id] = (
            below[operator.id],
            sorted(below.get(name, name) for name in operator.inputs),
            sorted((below.get(p.input, p.input), [(below.get(q.target, q.target), q.algorithm) for q in p.probes]) for p in operator.pipelines),
        )
        places.update({name: (name, below[operator.id]) for name in operator.inputs if name not in below})
    return places


def _tree(plan: Plan) -> Iterator[str]:
    yield from (line for _, line in _named_tree(plan))


def _named_tree(plan: Plan) -> Iterator[tuple[str, str]]:
    """(name of the stream or operator, its line)."""
    streams = {stream.name: stream for stream in plan.query.streams}
    tables = {table.name: table for table in plan.query.tables}
    operators = {operator.id: operator for operator in plan.operators}
    if not operators:
        yield from ((stream.name, _stream_line(stream, None)) for stream in plan.query.streams)
        return
    # (what is drawn before the line, what is drawn before the lines below it, name, user)
    waiting: list[tuple[str, str, str, Operator | None]] = [("", "", plan.operators[-1].id, None)]
    while waiting:
        before, below, name, user = waiting.pop()
        if name in streams:
            yield name, before + _stream_line(streams[name], user)
            continue
        if name in tables:
            yield name, before + _table_line(plan, tables[name], user)
            continue
        operator = operators[name]
        yield name, before + _operator_line(operator, user)
        children = [
            (below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), child, operator)
            for child, last in ((child, child == operator.inputs[-1]) for child in operator.inputs)
        ]
        waiting.extend(reversed(children))


def _orders(plan: Plan) -> Iterator[str]:
    wide = [operator for operator in plan.operators if len(operator.inputs) > 2]
    for operator in wide:
        yield f"probe orders of {operator.id} (tuples/s after each step)"
        for pipeline in operator.pipelines:
            steps = [f"{probe.target}{_BY.get(probe.algorithm, '')} {words.amount(probe.rate_out)}" for probe in pipeline.probes]
            yield f"  {pipeline.input} → {' → '.join(steps)}"
        yield ""
    for cache in plan.caches:
        yield (
            f"cache {cache.id}: {cache.input} in {cache.operator}, steps {cache.first}–{cache.last} by {', '.join(cache.key)}, "
            f"{1 - cache.miss_probability:.0%} hits, saves {words.cpu(cache.saves)}, costs {words.cpu(cache.costs)} CPU"
        )
    if plan.caches:
        yield ""


def _totals(plan: Plan) -> Iterator[str]:
    caps = plan.resources
    cpu = words.cpu(plan.cost.cpu) + (f" of {words.cpu(caps.cpu)}" if caps.cpu is not None else "")
    memory = words.bytes_(plan.cost.memory_bytes) + (f" of {words.bytes_(caps.memory_bytes)}" if caps.memory_bytes is not None else "")
    verdict = "qualified" if plan.qualified else "NOT qualified"
    room = f", headroom ×{plan.headroom:.3g}" if plan.headroom is not None else ""
    gap = f", gap {plan.gap:.2%}" if plan.gap else ""
    yield f"{verdict}: {cpu} CPU, {memory}, {words.amount(plan.cost.output_rate)} results/s{room}"
    alone = f"; without caches: {plan.tree_proof.value}" if plan.tree_proof is not plan.proof else ""
    yield f"proof: {plan.proof.value}{gap}{alone}"


def draw_diff_table(rows: list[tuple[str, float | None, float | None, float | None]]) -> list[str]:
    """Figures of two plans side by side: name, before, after, ratio."""
    width = max((len(name) for name, *_ in rows), default=0)
    lines = []
    for name, before, after, ratio in rows:
        values = [("-" if value is None else words.amount(value)).rjust(10) for value in (before, after)]
        lines.append(_cut(f"  {name.ljust(width)} {values[0]} → {values[1]}" + (f"  ×{ratio:.3g}" if ratio is not None else "")))
    return lines


def draw_frontier(points: list[tuple[float, float]], cpu_cap: float | None, memory_cap: float | None) -> list[str]:
    """CPU (across) against memory (up), a point per plan, on linear axes from the least to the most."""
    cpus, memories = [cpu for cpu, _ in points], [memory for _, memory in points]
    low_cpu, high_cpu, low_memory, high_memory = min(cpus), max(cpus), min(memories), max(memories)
    grid = [[" "] * PLOT_COLUMNS for _ in range(PLOT_ROWS)]
    for cpu, memory in points:
        column = round((cpu - low_cpu) / ((high_cpu - low_cpu) or 1.0) * (PLOT_COLUMNS - 1))
        row = round((memory - low_memory) / ((high_memory - low_memory) or 1.0) * (PLOT_ROWS - 1))
        grid[PLOT_ROWS - 1 - row][column] = "●"
    labels = {0: words.bytes_(high_memory), PLOT_ROWS - 1: words.bytes_(low_memory)}
    lines = [f"{labels.get(number, ''):>10} │{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    lines.append(" " * 11 + "└" + "─" * PLOT_COLUMNS)
    lines.append(" " * 12 + f"{words.cpu(low_cpu)}{words.cpu(high_cpu).rjust(PLOT_COLUMNS - len(words.cpu(low_cpu)))} CPU")
    caps = [f"CPU {words.cpu(cpu_cap)}"] if cpu_cap is not None else []
    caps += [f"memory {words.bytes_(memory_cap)}"] if memory_cap is not None else []
    return [*lines, f"caps: {', '.join(caps) or 'none'}"]
