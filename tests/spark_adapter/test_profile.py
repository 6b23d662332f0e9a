"""From sources to a request: a site with known rates and selectivities, profiled as its query says, planned without a figure by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pyspark.sql import SparkSession

from app.commands.main import build_parser, main
from app.commands.profile import _asked, profiled
from models.bindings import Bindings
from models.request import PlanRequest
from spark_adapter.errors import BindingError, StatisticsError
from spark_adapter.nexmark import SCHEMAS, Site, rows, write
from spark_adapter.profile import read_stretch
from tests.spark_adapter.plans import moment, write_stream
from tests.spark_adapter.runs import NO_LAST_BATCH

pytestmark = pytest.mark.spark

SITE = Site({"persons": 10.0, "auctions": 20.0, "bids": 60.0}, accounts=100, listings=200, seconds=240)
SQL = """
SELECT b.price, p.name FROM bids b
JOIN auctions a ON b.auction = a.id AND b.ts BETWEEN a.ts - INTERVAL 30 SECONDS AND a.ts + INTERVAL 60 SECONDS
JOIN persons p ON a.seller = p.id AND a.ts BETWEEN p.ts - INTERVAL 30 SECONDS AND p.ts + INTERVAL 30 SECONDS
WHERE b.price > 500
"""


def source(path: Path, schema: str) -> dict[str, Any]:
    return {"source": {"format": "json", "options": {"path": str(path), "maxFilesPerTrigger": "1"}, "schema": schema}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write(SITE, folder, 2)
    sources = {
        "streams": {name: source(folder / name, schema) for name, schema in SCHEMAS.items()},
        "sink": {"format": "parquet", "options": {"path": str(folder / "out")}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
        "spark": NO_LAST_BATCH,
    }
    (folder / "sources.yaml").write_text(yaml.safe_dump(sources))
    (folder / "query.sql").write_text(SQL)
    (folder / "stats.yaml").write_text("resources: {cpu: 1.0}\n")
    return folder


def test_from_a_query_and_its_sources_to_a_plan_and_its_rows(spark: SparkSession, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(site / "sources.yaml"), str(site / "query.sql"), "--stats", str(site / "stats.yaml"), "--seconds", str(SITE.seconds)]
    assert main(["profile", *arguments]) == 0
    said = capsys.readouterr()
    request = yaml.safe_load(said.out)
    rates = {stream["name"]: stream["rate"] for stream in request["query"]["streams"]}
    dear = sum(row["price"] > 500 for row in rows(SITE, "bids")) / SITE.seconds
    assert rates == {"b": pytest.approx(dear, rel=0.02), "a": pytest.approx(20, rel=0.02), "p": pytest.approx(10, rel=0.02)}
    shares = {(p["left"], p["right"]): p["selectivity"] for p in request["query"]["predicates"]}
    assert shares["b.auction", "a.id"] == pytest.approx(1 / SITE.listings, rel=0.1)
    assert shares["a.seller", "p.id"] == pytest.approx(1 / SITE.accounts, rel=0.1)
    bound = next(share for (left, _), share in shares.items() if left.startswith(("a.ts", "b.ts")))
    assert 0 < bound < 1, "bounds that a pair has of its own are measured like any predicate"
    distinct = {stream["name"]: stream["distinct"] for stream in request["query"]["streams"]}
    assert distinct["p"]["id"] == pytest.approx(100 * (1 - 0.99 ** (10 * 90)), rel=0.1)
    assert request["resources"] == {"cpu": 1.0} and said.out.count(" to ") >= 5
    assert "Traceback" not in said.err
    (site / "profiled.yaml").write_text(said.out)
    assert main(["plan", str(site / "profiled.yaml")]) == 0
    planned = capsys.readouterr().out
    assert json.loads(planned)["qualified"] is True
    (site / "plan.json").write_text(planned)
    assert main(["request", str(site / "query.sql"), "--bindings", str(site / "sources.yaml")]) == 0
    (site / "bindings.json").write_text(capsys.readouterr().out)
    assert main(["run", str(site / "plan.json"), str(site / "bindings.json")]) == 0
    assert_answer(site)


def assert_answer(site: Path) -> None:
    """The files that the pipeline wrote hold what DuckDB answers to the same SQL."""
    with duckdb.connect() as connection:
        for name in SCHEMAS:
            connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE (ts::TIMESTAMP AS ts) FROM read_json('{site}/{name}/*.json')")
        wanted = connection.execute(SQL).fetchall()
        found = connection.execute(f"SELECT price, name FROM read_parquet('{site}/out/*.parquet')").fetchall()
    assert len(wanted) > 1_000 and sorted(found) == sorted(wanted)


def asked(site: Path) -> tuple[PlanRequest, Bindings]:
    streams = [{"name": name, "rate": 1, "window": {"seconds": 30}} for name in SCHEMAS]
    predicates = [
        {"left": "bids.auction", "right": "auctions.id", "selectivity": 1},
        {"left": "auctions.seller", "right": "persons.id", "selectivity": 1},
    ]
    bindings = {"streams": {name: {"event_time": "ts", **source(site / name, schema)} for name, schema in SCHEMAS.items()}, "checkpoint": "-"}
    return PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}}), Bindings.model_validate(bindings)


def test_a_share_of_the_keys_is_read_where_there_are_too_many_rows(spark: SparkSession, site: Path) -> None:
    request, bindings = asked(site)
    told: list[tuple[str, float]] = []
    stretch = read_stretch(request, bindings, spark, 150, lambda step, share: told.append((step, share)), most_rows=8_000)
    assert sum(len(columns["ts"]) for columns in stretch.columns.values()) == pytest.approx(8_000, rel=0.2)
    assert stretch.sampled == {"auctions": "id", "bids": "auction"} and 0 < stretch.share < 1
    assert [share for _, share in told] == sorted(share for _, share in told) and len(told) == 6
    found = profiled(request, stretch)
    assert found.query.predicates[0].selectivity == pytest.approx(1 / SITE.listings, rel=0.1)
    assert found.query.predicates[1].selectivity == pytest.approx(1 / SITE.accounts, rel=0.1)
    assert {stream.name: stream.rate for stream in found.query.streams} == pytest.approx(dict(SITE.rates), rel=0.02)


def test_sources_that_show_nothing_are_said(spark: SparkSession, site: Path, tmp_path: Path) -> None:
    request, bindings = asked(site)
    write_stream(tmp_path / "later", [{"id": 1, "name": "x", "city": "y", "ts": moment(10_000 + k)} for k in range(3)], 1)
    later = bindings.streams["persons"].model_copy(
        update={"source": bindings.streams["persons"].source.model_copy(update={"options": {"path": str(tmp_path / "later")}})}
    )
    with pytest.raises(StatisticsError, match=r"no event times in common: .*persons from 2026-01-01 02:46:40"):
        read_stretch(request, bindings.model_copy(update={"streams": {**bindings.streams, "persons": later}}), spark, 60, lambda step, share: None)
    endless = later.model_copy(update={"source": later.source.model_copy(update={"format": "rate", "options": {}, "schema_": ""})})
    with pytest.raises(BindingError, match="cannot open the source of persons"):
        read_stretch(request, bindings.model_copy(update={"streams": {**bindings.streams, "persons": endless}}), spark, 60, lambda step, share: None)


def test_a_request_needs_no_rates_and_no_selectivities(site: Path, tmp_path: Path) -> None:
    request, bindings = asked(site)
    document = request.model_dump(mode="json", exclude_none=True)
    for stream in document["query"]["streams"]:
        del stream["rate"]
    for predicate in document["query"]["predicates"]:
        del predicate["selectivity"]
    sources = bindings.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"checkpoint"})
    for name, content in (("request.yaml", document), ("sources.yaml", sources)):
        (tmp_path / name).write_text(yaml.safe_dump(content))
    arguments = build_parser().parse_args(["profile", str(tmp_path / "sources.yaml"), str(tmp_path / "request.yaml")])
    read, bound = _asked(arguments)
    assert [stream.window for stream in read.query.streams] == [stream.window for stream in request.query.streams]
    assert bound.streams == bindings.streams
