"""Bad input gets one clear sentence and a pointer per fault, all at once."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from pydantic import ValidationError

from models.faults import errors_of
from models.plan import EstimateRequest
from models.request import PlanRequest

GOOD: dict[str, Any] = {
    "query": {
        "streams": [
            {"name": "bids", "rate": 1000, "window": {"seconds": 60}, "distinct": {"auction": 5000}},
            {"name": "auctions", "rate": 10, "window": {"rows": 5000}, "distinct": {"id": 5000}},
            {"name": "sellers", "rate": 1, "window": {"seconds": 600}},
        ],
        "predicates": [
            {"left": "bids.auction", "right": "auctions.id"},
            {"left": "auctions.seller", "right": "sellers.id", "selectivity": 0.01},
        ],
    }
}


def with_(path: str, value: Any) -> dict[str, Any]:
    """GOOD with one part replaced."""
    body = copy.deepcopy(GOOD)
    target: Any = body
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        target = target[part]
    if isinstance(target, list) and last == len(target):
        target.append(value)
    else:
        target[last] = value
    return body


def faults(body: Any, model: type[PlanRequest] = PlanRequest) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as failure:
        model.model_validate(body)
    return errors_of(failure.value, model)


def test_a_good_request_is_taken_with_its_defaults() -> None:
    request = PlanRequest.model_validate(GOOD)
    assert request.query.streams[0].tuple_bytes == 100
    assert request.options.time_limit == 1.0
    assert request.costs.scan == 1.7e-6
    assert request.query.streams[0].model_dump(mode="json")["window"] == {"seconds": 60.0}


@pytest.mark.parametrize(
    ("path", "value", "pointer", "words"),
    [
        ("query/streams/0/rate", 0, "/query/streams/0/rate", "rate must be greater than 0, got 0"),
        ("query/streams/0/rate", True, "/query/streams/0/rate", "rate must be a number, got true"),
        ("query/streams/0/rate", "1000", "/query/streams/0/rate", "rate must be a number, got '1000'"),
        ("query/streams/0/rate", math.nan, "/query/streams/0/rate", "rate must be a finite number, got nan"),
        ("query/streams/0/rate", math.inf, "/query/streams/0/rate", "rate must be a finite number, got inf"),
        ("query/streams/0/rate", 10**400, "/query/streams/0/rate", "rate must be a number"),
        pytest.param("query/streams/0/rate", 10**5000, "/query/streams/0/rate", "got a number beyond 1e308", id="5000 digits"),
        ("query/streams/0/rate", None, "/query/streams/0/rate", "rate must be a number, got null"),
        ("query/streams/0/name", "1st", "/query/streams/0/name", "must be a name"),
        ("query/streams/0/name", "a" * 64, "/query/streams/0/name", "name"),
        ("query/streams/1/name", "bids", "/query/streams/1/name", "names must be unique"),
        ("query/streams/0/window", {}, "/query/streams/0/window", "exactly one of seconds and rows, got neither"),
        ("query/streams/0/window", {"seconds": None}, "/query/streams/0/window", "exactly one of seconds and rows, got neither"),
        ("query/streams/0/window", {"seconds": 1, "rows": 1}, "/query/streams/0/window", "exactly one of seconds and rows"),
        ("query/streams/1/window", {"rows": 2.5}, "/query/streams/1/window/rows", "rows must be a whole number, got 2.5"),
        ("query/streams/0/freshness", {"seconds": 59}, "/query/streams/0/freshness/seconds", "at least the window, 60 seconds, got 59"),
        ("query/streams/0/freshness", {"rows": 99}, "/query/streams/0/freshness", "freshness must be in seconds, like the window"),
        ("query/streams/0/distinct", {"auction": 0}, "/query/streams/0/distinct/auction", "auction must be greater than 0"),
        ("query/streams/0/speed", 4, "/query/streams/0/speed", "speed is not a known field"),
        ("query/streams/0/tuple_byte", 4, "/query/streams/0/tuple_byte", "did you mean tuple_bytes?"),
        ("query/predicates/0/left", "bids", "/query/predicates/0/left", "left must be stream.attribute"),
        ("query/predicates/0/right", "lots.id", "/query/predicates/0/right", "stream 'lots', which is not in the query"),
        ("query/predicates/0/right", "bids.id", "/query/predicates/0", "both sides are on 'bids'"),
        ("query/predicates/1/selectivity", 0, "/query/predicates/1/selectivity", "greater than 0"),
        ("query/predicates/1/selectivity", 1.5, "/query/predicates/1/selectivity", "at most 1"),
        ("query/predicates/1/op", "~", "/query/predicates/1/op", "op must be one of"),
        ("query/predicates/0/op", "<", "/query/predicates/0/selectivity", "selectivity is required for '<'"),
        ("query/predicates/2", {"left": "bids.x", "right": "sellers.y"}, "/query/predicates/2/selectivity", "distinct for bids.x"),
        ("query/observed", [{"streams": ["bids", "lots"], "selectivity": 0.1}], "/query/observed/0/streams/1", "'lots', which is not"),
        ("query/observed", [{"streams": ["bids", "bids"], "selectivity": 0.1}], "/query/observed/0/streams/1", "twice"),
        ("query/observed", [{"streams": ["bids"], "selectivity": 0.1}], "/query/observed/0/streams", "at least 2"),
        ("query/observed", [{"streams": ["bids", "auctions"], "selectivity": 1.1}], "/query/observed/0/selectivity", "at most 1"),
        ("query/streams", [], "/query/streams", "at least 1"),
        ("query", 3, "/query", "query must be an object, got 3"),
        ("resources", {"cpu": 0}, "/resources/cpu", "greater than 0"),
        ("costs", {"join": -1}, "/costs/join", "at least 0"),
        ("objective", "fast", "/objective", "must be one of 'min_cpu'"),
        ("options", {"method": "magic"}, "/options/method", "must be one of 'auto'"),
        ("options", {"time_limit": 0}, "/options/time_limit", "greater than 0"),
        ("options", {"seed": -1}, "/options/seed", "at least 0"),
    ],
)
def test_each_fault_is_one_sentence_with_a_pointer(path: str, value: Any, pointer: str, words: str) -> None:
    found = faults(with_(path, value))
    here = [sentence for where, sentence in found if where == pointer]
    assert len(here) == 1
    assert words in here[0]
    # A stream that is renamed or gone leaves predicates without it; nothing else may be reported.
    assert all(where == pointer or "not in the query" in sentence for where, sentence in found)


def test_the_same_observed_set_twice_is_refused_whatever_its_order() -> None:
    sets = [{"streams": ["bids", "auctions"], "selectivity": 0.1}, {"streams": ["auctions", "bids"], "selectivity": 0.2}]
    assert faults(with_("query/observed", sets)) == [
        ("/query/observed/1/streams", "this set is observed already by /query/observed/0; give each set once")
    ]


def test_all_faults_are_reported_at_once_across_fields_and_references() -> None:
    body = with_("query/streams/0/rate", -1)
    body["query"]["predicates"][0]["right"] = "lots.id"
    body["query"]["streams"][2]["freshness"] = {"seconds": 1}
    body["objective"] = "x"
    body["extra"] = 1
    assert {where for where, _ in faults(body)} == {
        "/query/streams/0/rate",
        "/query/predicates/0/right",
        "/query/streams/2/freshness/seconds",
        "/objective",
        "/extra",
    }


def test_whole_numbers_may_be_written_with_a_point() -> None:
    assert PlanRequest.model_validate(with_("query/streams/1/window", {"rows": 5000.0})).query.streams[1].window.rows == 5000


@pytest.mark.parametrize(
    ("operators", "pointer", "words"),
    [
        ([], "/operators", "operators must join all streams"),
        ([{"id": "j", "inputs": ["bids", "auctions"]}], "/operators", "joined by none: j, sellers"),
        ([{"id": "j", "inputs": ["bids", "lots", "auctions", "sellers"]}], "/operators/0/inputs/1", "neither a stream nor an operator"),
        ([{"id": "bids", "inputs": ["bids", "auctions", "sellers"]}], "/operators/0/id", "ids must be unique"),
        ([{"id": "j", "inputs": ["bids", "auctions", "auctions", "sellers"]}], "/operators/0/inputs/2", "joined already"),
        (
            [{"id": "j", "inputs": ["bids", "auctions", "sellers"], "pipelines": [{"input": "bids", "probes": [{"target": "auctions"}]}]}],
            "/operators/0/pipelines/0/probes",
            "must visit every other input once: auctions, sellers",
        ),
        (
            [{"id": "j", "inputs": ["bids", "auctions", "sellers"], "pipelines": [{"input": "lots", "probes": []}]}],
            "/operators/0/pipelines/0/input",
            "one of the operator's inputs",
        ),
    ],
)
def test_operators_that_are_no_join_tree_are_refused(operators: list[Any], pointer: str, words: str) -> None:
    found = faults({**GOOD, "operators": operators}, EstimateRequest)
    assert [where for where, _ in found] == [pointer]
    assert words in found[0][1]


INDEX = {"kind": "index", "bound": ["id"], "cpu": 2e-5, "seconds": 0.002, "keys": 500}


def with_table(**fields: Any) -> dict[str, Any]:
    """GOOD with a table of items beside its streams."""
    body = with_("query/tables", [{"name": "items", "rows": 1000, "distinct": {"id": 1000}, **fields}])
    body["query"]["predicates"].append({"left": "auctions.item", "right": "items.id", "selectivity": 0.001})
    return body


def test_a_table_is_kept_unless_it_says_more() -> None:
    query = PlanRequest.model_validate(with_table()).query
    assert query.tables[0].model_dump(mode="json") == {
        "name": "items",
        "rows": 1000.0,
        "tuple_bytes": 100.0,
        "distinct": {"id": 1000.0},
        "access": [{"kind": "scan"}],
    }
    assert "tables" not in PlanRequest.model_validate(GOOD).query.model_dump(mode="json")


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"name": "bids"}, "/query/tables/0/name", "table name 'bids' is taken by /query/streams/0; names must be unique"),
        ({"rows": 0}, "/query/tables/0/rows", "rows must be greater than 0, got 0"),
        ({"access": []}, "/query/tables/0/access", "access needs at least 1 of them"),
        ({"access": [{"kind": "guess"}]}, "/query/tables/0/access/0/kind", "kind must be one of 'scan' or 'index', got 'guess'"),
        ({"access": [{"kind": "scan", "bound": ["id"]}]}, "/query/tables/0/access/0", "a scan has no bound: those are an index's"),
        ({"access": [{"kind": "index", "cpu": 1e-5}]}, "/query/tables/0/access/0/bound", "an index needs bound: the attributes that it is asked by"),
        (
            {"access": [{"kind": "index", "bound": ["id"]}]},
            "/query/tables/0/access/0/cpu",
            "an index needs cpu: the CPU-seconds of asking for one key",
        ),
        ({"access": [INDEX, INDEX]}, "/query/tables/0/access/1", "this access is offered already by /query/tables/0/access/0; give each once"),
        ({"access": [{**INDEX, "bound": ["id", "id"]}]}, "/query/tables/0/access/0/bound", "bound names each attribute once, got id, id"),
        ({"window": {"seconds": 1}}, "/query/tables/0/window", "window is not a known field; known: name, rows, tuple_bytes, distinct, access"),
    ],
)
def test_faults_of_tables_are_said_with_their_place(fields: dict[str, Any], pointer: str, words: str) -> None:
    assert (pointer, words) in faults(with_table(**fields))


def test_streams_and_tables_are_at_most_200_together() -> None:
    tables = [{"name": f"t{i}", "rows": 1} for i in range(198)]
    assert faults(with_("query/tables", tables)) == [("/query/tables", "streams and tables are at most 200 together, got 201")]


def test_an_estimate_reaches_tables_as_they_offer_it() -> None:
    flat = {"id": "j", "inputs": ["bids", "auctions", "sellers", "items"]}
    body = {**with_table(), "operators": [flat]}
    assert EstimateRequest.model_validate(body).tables == []
    reached = {"name": "items", "access": "index", "bound": ["id"]}
    assert faults({**body, "tables": [reached]}, EstimateRequest) == [("/tables/0/access", "'items' offers no index by id")]
    assert faults({**body, "tables": [{"name": "bids", "access": "scan"}]}, EstimateRequest) == [
        ("/tables/0/name", "'bids' must be a table of the query, each once; its tables are items")
    ]
    piped = {**flat, "pipelines": [{"input": "items", "probes": []}]}
    assert faults({**body, "operators": [piped]}, EstimateRequest) == [
        ("/operators/0/pipelines/0/input", "'items' is a table: it is probed, and has no pipeline")
    ]
