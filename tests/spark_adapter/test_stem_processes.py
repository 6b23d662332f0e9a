"""What takes processes of its own: a cluster of workers, and pipelines that are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.kill_trials import trials

pytestmark = pytest.mark.spark_processes

CLUSTER = """
import json, sys
from pathlib import Path
import spark_adapter
from spark_adapter.session import open_session
from tests.spark_adapter.plans import bindings_of, make_plan, make_query

folder = Path(sys.argv[1])
query = make_query({"a": 5, "b": 5}, ["a.x = b.x"])
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = open_session({"spark.driver.extraJavaOptions": quick, "spark.executor.extraJavaOptions": quick}, "local-cluster[2,1,1024]")
schemas = {name: "id BIGINT, ts TIMESTAMP, x BIGINT" for name in ("a", "b")}
bindings = bindings_of(folder, schemas, spark={"spark.sql.streaming.noDataMicroBatches.enabled": "false"})
pipeline = spark_adapter.compile(make_plan(query, ["a", "b"]), bindings, spark).start()
pipeline.await_termination()

def where(_):
    import spark_adapter.stem.operator
    return spark_adapter.stem.operator.__file__

places = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
print(json.dumps({"results": pipeline.progress.results, "shipped": all("watersmeet.zip" in place for place in places)}))
spark.stop()
"""


def test_a_cluster_of_two_workers_runs_the_code_that_was_sent_to_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rows = [{"id": k, "ts": f"2026-01-01T00:00:{k:02}Z", "x": k} for k in range(30)]
        (tmp_path / name / "0.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", CLUSTER, str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"results": 30, "shipped": True}


def test_three_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    hits, expected, wrong = trials(tmp_path, kills=3, seed=1)
    assert (hits, wrong) == (3, 0)
    assert expected > 100
