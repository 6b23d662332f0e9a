"""Plans and bindings as they come from files: read, and every fault said in one go, before any Spark is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from models.bindings import Bindings
from models.faults import errors_of
from models.plan import PLAN_FORMAT, Plan
from spark_adapter.errors import AdapterError, BindingError, Fault, PlanError

__all__ = ["check_tree", "read_bindings", "read_plan"]

M = TypeVar("M", bound=BaseModel)


def read_plan(document: object) -> Plan:
    """The plan in a parsed JSON or YAML document. Raises PlanError for another format or version, bad fields, or no join tree."""
    if not isinstance(document, Mapping):
        raise PlanError(f"a plan is an object with format {PLAN_FORMAT!r}, got {_kind(document)}")
    given = document.get("format")
    if given != PLAN_FORMAT:
        family = PLAN_FORMAT.split("/")[0]
        if isinstance(given, str) and given.startswith(family + "/"):
            raise PlanError([("/format", f"this plan is {given!r}, of another version; this program reads {PLAN_FORMAT!r}")])
        got = "there is none" if given is None else f"got {given!r}"
        raise PlanError([("/format", f"a plan has format {PLAN_FORMAT!r}, {got}: is this file a plan?")])
    plan = _validated(document, Plan, PlanError)
    check_tree(plan)
    return plan


def read_bindings(document: object) -> Bindings:
    """The bindings in a parsed JSON or YAML document."""
    if not isinstance(document, Mapping):
        raise BindingError(f"bindings are an object with streams and checkpoint, got {_kind(document)}")
    return _validated(document, Bindings, BindingError)


def check_tree(plan: Plan) -> None:
    """That the operators form a join tree over all streams and tables, inputs before users; raises PlanError otherwise."""
    streams = [stream.name for stream in plan.query.streams]
    tables = [table.name for table in plan.query.tables]
    below: dict[str, list[str]] = {name: [name] for name in (*streams, *tables)}
    users: dict[str, str] = {}
    faults: list[Fault] = []
    for i, operator in enumerate(plan.operators):
        at = f"/operators/{i}"
        leaves: list[str] = []
        for j, name in enumerate(operator.inputs):
            if name not in below:
                faults.append((f"{at}/inputs/{j}", f"{operator.id} joins {name!r}, which is neither a stream, a table nor an operator before it"))
            elif name in users:
                faults.append((f"{at}/inputs/{j}", f"{operator.id} joins {name!r}, which {users[name]} joins already; each is joined once"))
            else:
                users[name] = operator.id
                leaves += below[name]
        if operator.id in below:
            faults.append((f"{at}/id", f"{operator.id!r} is taken by a stream, a table or an operator before it"))
        if leaves and set(leaves) <= set(tables):
            faults.append((f"{at}/inputs", f"{operator.id} joins tables alone: {', '.join(leaves)}"))
        below.setdefault(operator.id, leaves)
        if not faults and sorted(leaves) != sorted(operator.streams):
            faults.append((f"{at}/streams", f"{operator.id} joins {', '.join(sorted(leaves))}, but says {', '.join(operator.streams)}"))
    root = plan.operators[-1].id if plan.operators else streams[0]
    loose = [name for name in below if name not in users and name != root]
    if loose and not faults:
        faults.append(("/operators", f"nothing joins {', '.join(loose)}: the last operator must join all streams and tables"))
    if not faults and tables:
        faults += _check_accesses(plan, below)
    if faults:
        raise PlanError(faults)


def _check_accesses(plan: Plan, below: Mapping[str, list[str]]) -> Iterator[Fault]:
    """That the plan says of each table how it is reached, and that every probe which asks one has all its keys by then."""
    reached = {table.name: table for table in plan.tables}
    for t, table in enumerate(plan.query.tables):
        if table.name not in reached:
            yield "/tables", f"the plan does not say whether {table.name} is kept or asked"
            continue
        access = reached[table.name]
        if not any(offer.kind == access.access and sorted(offer.bound) == sorted(access.bound) for offer in table.access):
            asked = f" by {', '.join(access.bound)}" if access.bound else ""
            yield f"/query/tables/{t}/access", f"{table.name} offers no {access.access.value}{asked}"
    for i, operator in enumerate(plan.operators):
        for j, pipeline in enumerate(operator.pipelines):
            visited = set(below.get(pipeline.input, ()))
            for k, probe in enumerate(pipeline.probes):
                bound = reached[probe.target].bound if probe.target in reached else []
                missing = [attribute for attribute in bound if not _binds(plan, visited, f"{probe.target}.{attribute}")]
                if missing:
                    at = f"/operators/{i}/pipelines/{j}/probes/{k}"
                    yield at, f"{operator.id} asks {probe.target} before anything has a value for its {', '.join(missing)}"
                visited |= set(below.get(probe.target, ()))


def _binds(plan: Plan, visited: set[str], side: str) -> bool:
    """Whether an equality gives this attribute a value of something visited."""
    ends = [(predicate.left, predicate.right) for predicate in plan.query.predicates if predicate.op.value == "="]
    return any(own == side and other.split(".", 1)[0] in visited for pair in ends for own, other in (pair, pair[::-1]))


def _validated(document: object, model: type[M], error: type[AdapterError]) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as failure:
        raise error(errors_of(failure, model)) from None


def _kind(document: object) -> str:
    return "nothing" if document is None else "an array" if isinstance(document, list) else f"a {type(document).__name__}"
