"""The demo checks itself by the definition, and would notice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from app import demo
from models.request import PlanRequest
from spark_adapter.nexmark import SCHEMAS, Site, rows, write
from tests.spark_adapter.nested_loop import nested_loop
from tests.spark_adapter.plans import make_plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_the_demos_nested_loop_is_the_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    document = PlanRequest.model_validate_json(demo.EXAMPLE.read_text()).query.model_dump(mode="json")
    for stream, seconds in zip(document["streams"], (20, 10, 4), strict=True):
        stream["window"] = {"seconds": seconds}
    query = PlanRequest.model_validate({"query": document}).query
    site = Site({"persons": 1.0, "auctions": 3.0, "bids": 10.0}, accounts=10, listings=15, seconds=40)
    write(site, tmp_path / "data", 2)
    expected = nested_loop(query, {name: list(rows(site, name)) for name in SCHEMAS})
    moments = [[(row["ts"] - EPOCH) // timedelta(microseconds=1) for row in result] for result in expected]
    found = demo.nested_loop(make_plan(query, [["persons", "auctions"], "bids"]))
    assert len(found) == len(expected) > 100
    assert (demo.ordered(found) == demo.ordered(np.array(moments, dtype=np.int64))).all()
