"""Plans and bindings as they come from files: read, and every fault said in one go, before any Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
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
    """That the operators form a join tree over all streams, inputs before users; raises PlanError otherwise."""
    if plan.query.tables:
        names = ", ".join(table.name for table in plan.query.tables)
        raise PlanError([("/query/tables", f"this plan joins tables ({names}), and pipelines on Spark join streams alone")])
    streams = [stream.name for stream in plan.query.streams]
    below: dict[str, list[str]] = {name: [name] for name in streams}
    users: dict[str, str] = {}
    faults: list[Fault] = []
    for i, operator in enumerate(plan.operators):
        at = f"/operators/{i}"
        leaves: list[str] = []
        for j, name in enumerate(operator.inputs):
            if name not in below:
                faults.append((f"{at}/inputs/{j}", f"{operator.id} joins {name!r}, which is neither a stream nor an operator before it"))
            elif name in users:
                faults.append((f"{at}/inputs/{j}", f"{operator.id} joins {name!r}, which {users[name]} joins already; each is joined once"))
            else:
                users[name] = operator.id
                leaves += below[name]
        if operator.id in below:
            faults.append((f"{at}/id", f"{operator.id!r} is taken by a stream or by an operator before it"))
        below.setdefault(operator.id, leaves)
        if not faults and sorted(leaves) != sorted(operator.streams):
            faults.append((f"{at}/streams", f"{operator.id} joins {', '.join(sorted(leaves))}, but says {', '.join(operator.streams)}"))
    root = plan.operators[-1].id if plan.operators else streams[0]
    loose = [name for name in below if name not in users and name != root]
    if loose and not faults:
        faults.append(("/operators", f"nothing joins {', '.join(loose)}: the last operator must join all streams"))
    if faults:
        raise PlanError(faults)


def _validated(document: object, model: type[M], error: type[AdapterError]) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as failure:
        raise error(errors_of(failure, model)) from None


def _kind(document: object) -> str:
    return "nothing" if document is None else "an array" if isinstance(document, list) else f"a {type(document).__name__}"
