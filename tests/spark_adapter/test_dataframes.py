"""Streaming DataFrames joined by a plan: the rows of the definition, over restarts, and one sentence for each thing that does not fit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

import spark_adapter
from models.request import PlanRequest
from solvers.planner import plan
from spark_adapter.errors import AdapterError, BindingError, PlanError
from tests.spark_adapter.plans import make_plan, make_query
from tests.spark_adapter.runs import ATTEMPTS, NO_LAST_BATCH, SCHEMA, TOO_SLOW, generated, true_ids, write_batch

pytestmark = pytest.mark.spark

ON = ["a.x = b.x", "b.y = c.y"]
WITHIN: dict[str, str | float] = {"a": "6 seconds", "b": 4, "c": "8 seconds"}
QUERY = make_query({"a": 6, "b": 4, "c": 8}, ON)
RATES = {"streams": {name: {"rate": 5.0} for name in "abc"}, "predicates": [{"left": "b.x", "right": "a.x", "selectivity": 0.2}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in "abc":
        (tmp_path / name).mkdir()
    return tmp_path


def frames(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """As a user has them: with watermarks, and transformations that are none of the join's business."""
    found = {}
    for name in "abc":
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / name)).withWatermark("ts", "1 second")
        found[name] = frame.withColumn("twice", F.col("id") * 2).where("id >= 0") if name == "b" else frame
    return found


def patiently(run: Callable[[], object]) -> None:
    """Again where a worker was too slow to start, as on a busy machine: a query goes on from its checkpoint."""
    for attempt in range(ATTEMPTS):
        try:
            run()
            return
        except StreamingQueryException as error:
            if not any(slow in str(error) for slow in TOO_SLOW) or attempt == ATTEMPTS - 1:
                raise


def written(spark: SparkSession, results: DataFrame, folder: Path) -> Counter[tuple[int, ...]]:
    """Run to the end of what there is; the ids of all results so far."""
    for name, value in NO_LAST_BATCH.items():
        spark.conf.set(name, value)
    chosen = results.select("a.id", F.col("b.id").alias("b_id"), F.col("c.id").alias("c_id"), "b.twice")
    writer = chosen.writeStream.format("json").option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    try:
        patiently(lambda: writer.trigger(availableNow=True).start().awaitTermination())
    finally:
        for name in NO_LAST_BATCH:
            spark.conf.unset(name)
    rows = [json.loads(line) for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert all(row["twice"] == 2 * row["b_id"] for row in rows)
    return Counter((row["id"], row["b_id"], row["c_id"]) for row in rows)


def test_rows_are_those_of_the_definition_over_restarts_under_another_plan_too(spark: SparkSession, folder: Path) -> None:
    rows = generated(QUERY, 60, seed=3)
    expected = true_ids(QUERY, rows)
    assert len(expected) > 20
    write_batch(folder, rows, 0, 3)
    written(spark, spark_adapter.join(frames(spark, folder), ON, WITHIN, plan=make_plan(QUERY, [["a", "b"], "c"])), folder)
    write_batch(folder, rows, 1, 3)
    asked = spark_adapter.join(frames(spark, folder), ON, WITHIN, statistics=RATES)
    written(spark, asked, folder)
    write_batch(folder, rows, 2, 3)
    assert written(spark, asked, folder) == expected, "the same DataFrame, started again"

    with pytest.raises(StreamingQueryException, match=r"states of another query: the window of a was 6\.0 seconds, now 7\.0 seconds"):
        write_batch(folder / "more", {"a": [{**row, "id": row["id"] + 1000} for row in rows["a"]]}, 2, 3)
        for file in (folder / "more" / "a").iterdir():
            file.rename(folder / "a" / f"more-{file.name}")
        written(spark, spark_adapter.join(frames(spark, folder), ON, WITHIN | {"a": 7}, statistics=RATES), folder)


def test_a_plan_is_made_from_what_batches_show(spark: SparkSession, folder: Path) -> None:
    write_batch(folder, generated(QUERY, 60, seed=3), 0, 1)
    batches = {name: spark.read.schema(SCHEMA).json(str(folder / name)) for name in "abc"}
    batches["b"] = batches["b"].withColumn("twice", F.col("id") * 2)
    results = spark_adapter.join(frames(spark, folder), ON, WITHIN, batches=batches, cells=1)
    assert results.isStreaming and results.columns == ["a", "b", "c"]


def test_a_server_is_asked_for_the_plan(spark: SparkSession, folder: Path) -> None:
    """With what is known, as a request that any server takes; its plan is the one that is run, and where it is none, that is said."""
    asked: list[dict[str, Any]] = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            made = plan(PlanRequest.model_validate(asked[-1])).model_dump_json().encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(made)))
            self.end_headers()
            self.wfile.write(made)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Tests say what went wrong."""

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.handle_request)
        thread.start()
        results = spark_adapter.join(frames(spark, folder), ON, WITHIN, statistics=RATES, url=url)
        thread.join()
    (request,) = asked
    assert {stream["name"]: (stream["rate"], stream["window"]["seconds"]) for stream in request["query"]["streams"]} == {
        "a": (5.0, 6.0),
        "b": (5.0, 4.0),
        "c": (5.0, 8.0),
    }
    assert results.isStreaming and results.columns == ["a", "b", "c"]
    assert sentence(frames(spark, folder), url=url).startswith(f"{url}: "), "the server is gone"


def sentence(frames: dict[str, DataFrame], on: list[str] | None = None, within: dict[str, str | float] | None = None, **more: Any) -> str:
    with pytest.raises(AdapterError) as refused:
        spark_adapter.join(frames, ON if on is None else on, WITHIN if within is None else within, **{"statistics": RATES, **more})
    assert isinstance(refused.value, (BindingError, PlanError))
    (fault,) = refused.value.faults
    return fault[1]


def test_whatever_does_not_fit_is_one_sentence(spark: SparkSession, folder: Path) -> None:
    good = frames(spark, folder)
    bare = spark.readStream.schema(SCHEMA).json(str(folder / "a"))
    assert sentence({**good, "a": bare}) == "a has no watermark on ts: give it one, like a.withWatermark('ts', '10 seconds')"
    assert sentence({**good, "a": spark.read.schema(SCHEMA).json(str(folder / "a"))}).startswith("a is a batch DataFrame")
    assert "a.missing" in sentence(good, on=["a.missing = b.x", "b.y = c.y"])
    texts = good["a"].withColumn("x", F.col("x").cast("string"))
    assert "STRING" in (said := sentence({**good, "a": texts})) and "BIGINT" in said
    assert sentence(good, on=["a.x ~ b.x", "b.y = c.y"]) == "'a.x ~ b.x' is no comparison of two columns; write it like 'bids.auction = auctions.id'"
    assert sentence(good, on=["a.x = d.x"]).endswith("'d' is no frame of the join; its frames are a, b, c")
    assert sentence(good, within={"a": 1, "b": 2}).startswith("within does not say how long rows of c wait")
    assert sentence(good, within=WITHIN | {"a": "soon"}).startswith("the window of a must be an interval")
    assert sentence(good, plan=make_plan(make_query({"a": 6, "b": 4, "c": 9}, ON), [["a", "b"], "c"])).startswith("the plan is for another join")
    assert sentence(good, statistics={}).startswith("how fast are the frames?")


def test_the_notebook_runs(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((Path(__file__).parents[2] / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    assert len(cells) == 10
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            patiently(partial(exec, "".join(cell["source"]), names))
    expected = names["held"]["bids"].count()
    assert names["results"].isStreaming and spark.table("wins").count() > expected, "a bid finds several persons and auctions"
    said = capsys.readouterr().out
    assert "seller" not in said.split("root")[0] and "fees" in said and "⋈" in said
