"""Each kind of method has one list on the wire and one registry that runs it; what a method can do is said by its entry alone."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module

import pytest
from pydantic import ValidationError

from models.allocation import AllocationMethod, AllocationRequest, ExecutionModel
from models.caches import CacheMethod
from models.cover import CoverMethod
from models.method import Method
from solvers.allocation.heuristics import HEURISTICS
from solvers.allocation.solve import METHODS as ALLOCATING
from solvers.allocation.solve import solve_allocation
from solvers.caches.solve import METHODS as CACHING
from solvers.cover.solve import METHODS as COVERING
from solvers.jtree.registry import module_of

STEPS = [{"productivity": 2.0, "operator": "join-1", "selectivity": 0.1}, {"productivity": 0.5, "operator": "join-2", "selectivity": 0.2}]


@pytest.mark.parametrize(("listed", "registry"), [(AllocationMethod, ALLOCATING), (CacheMethod, CACHING), (CoverMethod, COVERING)])
def test_every_method_on_the_wire_has_what_runs_it_and_no_other_has(listed: type[StrEnum], registry: dict[StrEnum, object]) -> None:
    assert set(registry) == set(listed)


@pytest.mark.parametrize("method", Method)
def test_every_search_is_a_function_in_a_file_of_its_name(method: Method) -> None:
    assert callable(getattr(import_module(module_of(method)), method.value))
    assert method.can.says.endswith(".")


def an_allocation(method: AllocationMethod, model: ExecutionModel, states: bool) -> dict[str, object]:
    """A request with all that the method's entry says it needs, and nothing that it does not know."""
    stepped = method.can.half_ways
    path = {"name": "A", "rate": 10.0, "steps": STEPS} if stepped else {"name": "A", "resources": 2.0, "output": 3.0, "max_units": 4.0}
    covers = {"covers": {"AB": 1.0}} if states else {}
    return {
        "capacity": 20.0,
        "method": method.value,
        "model": model.value,
        "paths": [{**path, **covers}],
        "states": [{"name": "AB", "required": 1.0}] if states else [],
    }


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("model", ExecutionModel)
@pytest.mark.parametrize("method", AllocationMethod)
def test_a_method_of_allocation_solves_what_its_entry_says_and_no_more(method: AllocationMethod, model: ExecutionModel, states: bool) -> None:
    document = an_allocation(method, model, states)
    able = model in method.can.models and (not states or (method.can.refreshes and model is ExecutionModel.CONTINUOUS))
    if not able:
        with pytest.raises(ValidationError) as refused:
            AllocationRequest.model_validate(document)
        assert {fault["loc"] for fault in refused.value.errors()} <= {("model",), ("states",)}
        return
    answer = solve_allocation(AllocationRequest.model_validate(document))
    assert 0.0 < answer.used <= 20.0 and answer.feasible


def test_the_heuristics_are_the_methods_that_share_out_over_half_way_joins() -> None:
    assert set(HEURISTICS) == {method for method in AllocationMethod if method.can.half_ways}


@pytest.mark.parametrize("method", [method for method in AllocationMethod if method.can.selectivities])
def test_a_method_that_needs_selectivities_says_which_is_missing(method: AllocationMethod) -> None:
    document = an_allocation(method, ExecutionModel.CONTINUOUS, False)
    document["paths"] = [{"name": "A", "rate": 10.0, "steps": [{"productivity": 2.0, "operator": "join-1"}]}]
    with pytest.raises(ValidationError, match="selectivity is required for selectivity_best"):
        AllocationRequest.model_validate(document)
