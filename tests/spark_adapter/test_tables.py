"""Tables on Spark: what comes out equals every combination of rows, whatever is kept and asked, stopped, started again and read again."""

from __future__ import annotations

import itertools
import json
import re
import runpy
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_adapter
from app.commands.main import main
from models.bindings import Bindings
from models.plan import Plan
from models.request import Query
from spark_adapter.errors import BindingError, EngineError
from spark_adapter.export import export
from spark_adapter.kafka.failures import explained
from spark_adapter.pipeline import Pipeline
from spark_adapter.tables.versions import Versions
from tests.app.tools import NoDatabaseError
from tests.spark_adapter.cells import with_caches
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import Shape, bindings_of, make_plan
from tests.spark_adapter.postgres import Postgres, running_postgres
from tests.spark_adapter.runs import NO_LAST_BATCH, SCHEMA, Ids, Job, generated, run_all, write, write_batch, written
from tests.spark_adapter.tables import Content, fill

TABLES = {"c": ["x"], "p": ["y"]}
"""Tables, and what they can be asked by."""

QUERY = Query.model_validate(
    {
        "streams": [{"name": name, "rate": 10, "window": {"seconds": 5}} for name in "ab"],
        "tables": [
            {"name": name, "rows": 12, "access": [{"kind": "scan"}, {"kind": "index", "bound": bound, "cpu": 1e-5, "keys": 3}]}
            for name, bound in TABLES.items()
        ],
        "predicates": [
            {"left": "a.x", "right": "b.x", "selectivity": 0.1},
            {"left": "a.y", "right": "c.x", "selectivity": 0.1},
            {"left": "c.y", "right": "p.y", "selectivity": 0.1},
            {"left": "b.z", "right": "p.x", "op": "<=", "selectivity": 0.5},
        ],
    }
)


def content(start: int = 0) -> Content:
    """Keys that are there twice, that are missing, and that are null."""
    return {
        name: [{"id": start + 100 * t + k, "x": None if k == 3 else k % 5, "y": None if k == 4 else (k + t) % 4} for k in range(11)]
        for t, name in enumerate(TABLES)
    }


def scanned(folder: Path, rows: Content) -> None:
    for name, listed in rows.items():
        (folder / f"table-{name}").mkdir(exist_ok=True)
        (folder / f"table-{name}" / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in listed))


def bound(folder: Path, url: str, out: Path | None = None, **more: Any) -> Bindings:
    place = out or folder
    tables = {
        name: {
            "scan": {"format": "json", "options": {"path": str(folder / f"table-{name}")}, "schema": "id BIGINT, x BIGINT, y BIGINT"},
            "index": {"url": url, "table": name, "retry_for": "0 seconds"},
        }
        for name in TABLES
    }
    own = {"sink": {"format": "json", "options": {"path": str(place / "out")}}, "checkpoint": str(place / "checkpoint"), "spark": NO_LAST_BATCH}
    return bindings_of(folder, dict.fromkeys("ab", SCHEMA), tables=tables, **(own | more))


def expected(rows: Mapping[str, Sequence[Row]], tables: Content) -> Ids:
    alone = QUERY.model_copy(update={"tables": [], "predicates": QUERY.predicates[:1]})
    found: Ids = Counter()
    for a, b in nested_loop(alone, rows):
        for c, p in itertools.product(tables["c"], tables["p"]):
            known = None not in (c["x"], c["y"], p["y"], p["x"])
            if known and a["y"] == c["x"] and c["y"] == p["y"] and b["z"] <= p["x"]:
                found[a["id"], b["id"], c["id"], p["id"]] += 1
    return found


def found(folder: Path) -> Ids:
    return Counter(tuple(line[name]["id"] for name in "abcp") for line in written(folder))


PLANS: list[tuple[Shape, Mapping[str, Sequence[str]]]] = [
    (["a", "b", "c", "p"], {}),
    (["a", "b", "c", "p"], TABLES),
    ([["a", "c"], "b", "p"], {"c": ["x"]}),
    ([[["a", "b"], "c"], "p"], {"p": ["y"]}),
]


def plan_of(shape: Shape, asked: Mapping[str, Sequence[str]]) -> Plan:
    """Probes in an order that binds: c before p."""
    return make_plan(QUERY, shape, asked)


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, list[Row]]:
    made = generated(QUERY, 60, seed=3, seconds=12)
    write(tmp_path, made, files=3)
    scanned(tmp_path, content())
    fill(url_of(tmp_path), content())
    return made


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'tables.db'}"


@pytest.mark.spark
def test_every_mix_of_kept_and_asked_gives_the_rows_of_a_nested_loop(spark: SparkSession, tmp_path: Path, rows: dict[str, list[Row]]) -> None:
    jobs = []
    for k, (shape, asked) in enumerate(PLANS):
        (tmp_path / f"run-{k}").mkdir()
        jobs.append(
            Job(
                plan_of(shape, asked),
                tmp_path,
                1 + k % 2,
                place=tmp_path / f"run-{k}",
                bindings=bound(tmp_path, url_of(tmp_path), tmp_path / f"run-{k}"),
            )
        )
    run_all(spark, jobs)
    truth = expected(rows, content())
    assert len(truth) > 50
    for job in jobs:
        assert found(job.out) == truth, job.plan.tables


@pytest.mark.spark
def test_engine_native_and_scripts_join_kept_tables(spark: SparkSession, tmp_path: Path, rows: dict[str, list[Row]]) -> None:
    plan = plan_of([[["a", "b"], "c"], "p"], {})
    truth = expected(rows, content())
    for name in ("native", "script"):
        (tmp_path / name).mkdir()
    run_all(spark, [Job(plan, tmp_path, engine="native", bindings=bound(tmp_path, url_of(tmp_path), tmp_path / "native"))])
    assert found(tmp_path / "native") == truth
    script = tmp_path / "pipeline.py"
    script.write_text(export(plan, bound(tmp_path, url_of(tmp_path), tmp_path / "script")))
    runpy.run_path(str(script))
    assert found(tmp_path / "script") == truth
    with pytest.raises(EngineError, match="the plan asks c by key, which Spark's own joins cannot"):
        export(plan_of([[["a", "b"], "c"], "p"], {"c": ["x"]}), bound(tmp_path, url_of(tmp_path)))


def until(said: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not said():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "checkpoint" / "statistics.jsonl").read_text().splitlines()]


def works_through(pipeline: Pipeline, folder: Path, rows: Mapping[str, Sequence[Row]], part: int) -> None:
    write_batch(folder, rows, part, 3)
    pipeline.work_through()


def by_part(rows: Mapping[str, Sequence[Row]], contents: Sequence[Content]) -> Ids:
    """With the tables as they were when the last row of a result came, for plans that probe tables last."""
    part = {(name, row["id"]): 3 * k // len(listed) for name, listed in rows.items() for k, row in enumerate(listed)}
    truths = [expected(rows, tables) for tables in contents]
    return Counter({ids: count for k, truth in enumerate(truths) for ids, count in truth.items() if max(part["a", ids[0]], part["b", ids[1]]) == k})


@pytest.mark.spark
def test_a_table_read_again_takes_over_between_two_batches_and_a_restart_sees_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = generated(QUERY, 60, seed=4, seconds=12)
    first, second = content(), content(1000)
    scanned(tmp_path, first)
    plan = plan_of(["a", "b", "c", "p"], {})
    fill(url_of(tmp_path), first)

    document = bound(tmp_path, url_of(tmp_path), trigger={}).model_dump(by_alias=True)
    for table in document["tables"].values():
        table["refresh"] = "1 hour"
    bindings = Bindings.model_validate(document)
    for name in "ab":
        (tmp_path / name).mkdir()
    pipeline = spark_adapter.compile(plan, bindings, spark, cells=2).start()
    works_through(pipeline, tmp_path, rows, 0)
    pipeline.stop()
    scanned(tmp_path, second)
    # Not an hour has passed: the restart goes on with what was read before.
    pipeline = spark_adapter.compile(plan, bindings, spark, cells=2).start()
    works_through(pipeline, tmp_path, rows, 1)
    mark = time.time_ns() // 1_000_000
    monkeypatch.setattr(Versions, "_age", lambda self, since, now, name: since < mark)  # as if an hour had passed
    until(lambda: len(list((tmp_path / "checkpoint" / "control").glob("table-*.json"))) == 4)
    pipeline.work_through()
    works_through(pipeline, tmp_path, rows, 2)
    pipeline.stop()
    truth = by_part(rows, [first, first, second])
    assert any(ids[2] < 1000 for ids in truth) and any(ids[2] >= 1000 for ids in truth)
    assert found(tmp_path) == truth


@pytest.mark.spark
def test_a_large_table_is_asked_until_it_has_been_read(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = generated(QUERY, 60, seed=5, seconds=12)
    scanned(tmp_path, content())
    fill(url_of(tmp_path), content())
    monkeypatch.setattr("spark_adapter.tables.versions.LARGE", 1)
    for name in "ab":
        (tmp_path / name).mkdir()
    pipeline = spark_adapter.compile(plan_of(["a", "b", "c", "p"], {}), bound(tmp_path, url_of(tmp_path), trigger={}), spark, cells=2)
    may_read = threading.Event()
    reading = Versions._load
    monkeypatch.setattr(Versions, "_load", lambda self, name, running: may_read.wait() and reading(self, name, running))
    pipeline.start()
    works_through(pipeline, tmp_path, rows, 0)
    may_read.set()
    until(lambda: len(list((tmp_path / "checkpoint" / "control").glob("table-*.json"))) == 2)
    pipeline.work_through()
    works_through(pipeline, tmp_path, rows, 1)
    works_through(pipeline, tmp_path, rows, 2)
    pipeline.stop()
    assert found(tmp_path) == expected(rows, content())
    said = lines(tmp_path)
    assert {asked["table"] for asked in said[0]["asked"]} == {"c", "p"}
    assert not said[-1]["asked"] and said[-1]["results"]
    assert {state["state"]: state["rows"] for state in said[-1]["states"]}["c"] == 9


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        with running_postgres() as server:
            yield server
    except NoDatabaseError as none:
        pytest.skip(str(none))


@pytest.mark.spark
def test_a_table_is_kept_from_a_database_that_spark_reads_by_jdbc(spark: SparkSession, tmp_path: Path, server: Postgres, connector: str) -> None:
    if "postgresql" not in connector:
        pytest.skip("no driver for PostgreSQL: Maven, which copies it, is missing or reached nothing")
    rows = generated(QUERY, 60, seed=3, seconds=12)
    write(tmp_path, rows, files=3)
    fill(server.url(), content())
    document = bound(tmp_path, server.url()).model_dump(by_alias=True)
    for name in TABLES:
        document["tables"][name]["scan"] = {"format": "jdbc", "options": server.jdbc(name)}
    plan = plan_of([[["a", "b"], "c"], "p"], {"p": ["y"]})  # c is read by Spark, p asked by SQLAlchemy, in one database
    pipeline = spark_adapter.compile(plan, Bindings.model_validate(document), spark, cells=2).start()
    pipeline.await_termination(120)
    assert found(tmp_path) == expected(rows, content())


@pytest.mark.spark
def test_a_database_that_is_away_for_a_while_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path, server: Postgres) -> None:
    rows = generated(QUERY, 60, seed=6, seconds=12)
    fill(server.url(), content())
    scanned(tmp_path, content())
    for name in "ab":
        (tmp_path / name).mkdir()
    document = bound(tmp_path, server.url(), trigger={}).model_dump(by_alias=True)
    document["tables"]["c"]["index"]["retry_for"] = document["tables"]["p"]["index"]["retry_for"] = "1 minute"
    plan = with_caches(plan_of(["a", "b", "c", "p"], TABLES), [("join-1", "a", 1, 1, "prefix", 1e6)])
    pipeline = spark_adapter.compile(plan, Bindings.model_validate(document), spark, cells=2).start()
    works_through(pipeline, tmp_path, rows, 0)
    server.stop()
    write_batch(tmp_path, rows, 1, 3)
    time.sleep(2)  # the batch is at work by now, and finds nobody
    server.start()
    pipeline.work_through()
    # Away for longer than calls are tried for: the batch fails in a sentence, and is there for the next start.
    pipeline.stop()
    document["tables"]["c"]["index"]["retry_for"] = document["tables"]["p"]["index"]["retry_for"] = "0 seconds"
    pipeline = spark_adapter.compile(plan, Bindings.model_validate(document), spark, cells=2).start()
    server.stop()
    write_batch(tmp_path, rows, 2, 3)
    with pytest.raises(StreamingQueryException) as failed:
        pipeline.await_termination(120)
    assert re.match(r"table [cp] cannot be asked, tried for 0 seconds: .*; when that is mended, start the pipeline", explained(failed.value))
    server.start()
    pipeline = spark_adapter.compile(plan, Bindings.model_validate(document), spark, cells=2).start()
    pipeline.work_through()
    pipeline.stop()
    assert found(tmp_path) == expected(rows, content())


def test_a_wrong_password_is_one_sentence_before_anything_starts(tmp_path: Path, server: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    fill(server.url(), content())
    scanned(tmp_path, content())
    (tmp_path / "plan.json").write_text(plan_of(["a", "b", "c", "p"], {"c": ["x"]}).model_dump_json(by_alias=True))
    (tmp_path / "bindings.json").write_text(bound(tmp_path, server.url("wrong horse")).model_dump_json(by_alias=True))
    assert main(["run", str(tmp_path / "plan.json"), str(tmp_path / "bindings.json")]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 2, said  # a sentence for each of the two tables
    assert "/tables/c/index/url: the database of c, postgresql+psycopg://reader:***@127.0.0.1" in said[0]
    assert "password authentication failed" in said[0] and "wrong" not in "".join(said)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.spark
def test_bindings_that_do_not_fit_are_said_in_a_sentence_each(spark: SparkSession, tmp_path: Path, rows: dict[str, list[Row]]) -> None:
    def refused(plan: Plan, change: Callable[[dict[str, Any]], None]) -> dict[str, str]:
        document = bound(tmp_path, url_of(tmp_path)).model_dump(by_alias=True)
        change(document["tables"])
        with pytest.raises(BindingError) as raised:
            spark_adapter.compile(plan, document, spark)
        return dict(raised.value.faults)

    kept, asked = plan_of(["a", "b", "c", "p"], {}), plan_of(["a", "b", "c", "p"], TABLES)
    assert refused(kept, lambda tables: tables.pop("c")) == {"/tables": "there is no binding for c; every table of the plan needs one"}
    assert refused(kept, lambda tables: tables["c"].pop("scan")) == {"/tables/c/scan": "the plan keeps c, so its binding needs a scan"}
    assert refused(asked, lambda tables: tables["p"].pop("index")) == {"/tables/p/index": "the plan asks p by y, so its binding needs an index"}
    assert refused(asked, lambda tables: tables.update(q=tables["p"])) == {"/tables/q": "'q' is no table of the plan; its tables are c, p"}
    assert refused(asked, lambda tables: tables["p"]["index"].update(table="q"))["/tables/p/index/table"].endswith("has no table 'q'")
    assert "of SQLAlchemy's" in refused(asked, lambda tables: tables["p"]["index"].update(url="nowhere"))["/tables/p/index/url"]
    assert "a table needs scan" in refused(kept, lambda tables: tables.update(c={}))["/tables/c"]
    assert "make a view" in refused(kept, lambda tables: tables["c"].update(where="x > 1"))["/tables/c/where"]
    assert "must be a column of 'p'" in refused(asked, lambda tables: tables["p"].update(columns={"y": "y + 1"}))["/tables/p/columns/y"]
    assert "interval like '1 hour'" in refused(kept, lambda tables: tables["c"].update(refresh="often"))["/tables/c/refresh"]
