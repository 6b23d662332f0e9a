"""Clients of the last release keep working: the committed document breaks nothing, and every kind of break is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.service.openapi_document import document
from tests.app.breaking import breaks, main
from tests.app.serving import ROOT

DOCUMENT = document()
RELEASED = ROOT / "openapi" / "released.json"


def test_the_document_breaks_no_client_of_the_last_release() -> None:
    assert breaks(json.loads(RELEASED.read_text("utf-8")), DOCUMENT) == []


def schema(of: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = of["components"]["schemas"][name]
    return found


Change = Callable[[dict[str, Any]], object]

BREAKING: list[tuple[str, Change, str]] = [
    ("path", lambda d: d["paths"].pop("/v1/diffs"), "/v1/diffs is gone"),
    ("method", lambda d: d["paths"]["/v1/diffs"].pop("post"), "POST /v1/diffs is gone"),
    ("status", lambda d: d["paths"]["/v1/diffs"]["post"]["responses"].pop("422"), "/v1/diffs: answer 422 is gone"),
    ("name", lambda d: d["paths"]["/v1/diffs"]["post"].update(operationId="compare"), "/v1/diffs: operationId diff is now compare"),
    ("request field", lambda d: schema(d, "Stream")["properties"].pop("freshness"), "Stream.freshness is gone"),
    ("answer field", lambda d: schema(d, "Plan")["properties"].pop("headroom"), "Plan.headroom is gone"),
    ("enum value", lambda d: schema(d, "Method")["enum"].remove("mjoin"), "Method: value mjoin is gone"),
    ("new value in answers", lambda d: schema(d, "Proof")["enum"].append("likely"), "Proof: may now be likely, which it never was"),
    ("required", lambda d: schema(d, "PlanRequest")["required"].append("objective"), "PlanRequest.objective is now required"),
    ("optional", lambda d: schema(d, "Plan")["required"].remove("cost"), "Plan.cost may now be missing"),
    ("type", lambda d: schema(d, "Options")["properties"]["seed"].update(type="string"), "Options.seed: integer is no longer taken, only string"),
    (
        "null",
        lambda d: schema(d, "Change")["properties"]["figure"].update(type=["string", "null"]),
        "Change.figure: may now be null, which it never was",
    ),
    (
        "limit",
        lambda d: schema(d, "Options")["properties"]["time_limit"].update(maximum=10),
        "Options.time_limit: maximum 300.0 is now 10",
    ),
    ("new limit", lambda d: schema(d, "Options")["properties"]["seed"].update(maximum=10), "Options.seed: maximum 10 is new"),
    ("format", lambda d: schema(d, "Cost")["properties"]["cpu"].update(format="float"), "Cost.cpu: format double is now float"),
]


@pytest.mark.parametrize(("change", "says"), [entry[1:] for entry in BREAKING], ids=[entry[0] for entry in BREAKING])
def test_every_kind_of_break_is_found_and_said(change: Change, says: str) -> None:
    new = copy.deepcopy(DOCUMENT)
    change(new)
    found = breaks(DOCUMENT, new)
    assert any(sentence.startswith(says) for sentence in found), found
    assert len(found) <= 2


COMPATIBLE: list[tuple[str, Change]] = [
    ("nothing", lambda d: None),
    ("new path", lambda d: d["paths"].update({"/v2/plans": d["paths"]["/v1/plans"]})),
    ("new optional field", lambda d: schema(d, "PlanRequest")["properties"].update(note={"type": "string"})),
    ("new method to ask for", lambda d: schema(d, "Method")["enum"].append("magic")),
    ("wider limit", lambda d: schema(d, "Options")["properties"]["time_limit"].update(maximum=1000)),
    ("another description", lambda d: schema(d, "Plan").update(description="A plan.")),
]


@pytest.mark.parametrize("change", [entry[1] for entry in COMPATIBLE], ids=[entry[0] for entry in COMPATIBLE])
def test_what_breaks_nobody_is_let_through(change: Change) -> None:
    new = copy.deepcopy(DOCUMENT)
    change(new)
    assert breaks(DOCUMENT, new) == []


def test_the_command_says_each_break_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = copy.deepcopy(DOCUMENT)
    del new["paths"]["/v1/diffs"]
    for name, content in (("old.json", DOCUMENT), ("new.json", new)):
        (tmp_path / name).write_text(json.dumps(content))
    old_file, new_file = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    assert main([old_file, old_file]) == 0
    assert main([old_file, new_file]) == 1
    assert "/v1/diffs is gone\n1 breaking change;" in capsys.readouterr().err
    assert main([old_file, str(tmp_path / "none.json")]) == 2
    assert main([old_file]) == 2


def test_a_new_value_in_answers_is_no_break_where_it_takes_a_new_request_field() -> None:
    released, new = copy.deepcopy(DOCUMENT), copy.deepcopy(DOCUMENT)
    schema(new, "Proof").update({"enum": [*schema(new, "Proof")["enum"], "likely"], "x-values-with": {"likely": "Query.hints"}})
    assert breaks(released, new) == []
    schema(released, "Query")["properties"]["hints"] = {"type": "string"}
    schema(new, "Query")["properties"]["hints"] = {"type": "string"}
    assert breaks(released, new) == ["Proof: may now be likely, which it never was"]
