"""What takes processes of its own: a cluster whose executors are struck, and pipelines that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_adapter.java import java_home
from tests.bench.executor_kills import struck
from tests.bench.kill_trials import trials

pytestmark = pytest.mark.spark_processes


def test_a_cluster_whose_executors_are_halted_and_killed_gives_every_row_once(tmp_path: Path) -> None:
    """Five batches, so that state is read back after both blows, by executors that run the code that was sent to them; tasks are run again, and
    twice at a time. `python -m tests.bench.executor_kills` has more of both."""
    outcome = struck(tmp_path, batches=5, blows=2, seed=1)
    assert outcome.blows == {"halt": 1, "kill": 1}
    assert outcome.batches >= 5
    assert outcome.executors_lost >= 1
    assert outcome.speculated >= 1
    assert outcome.expected > 300
    assert outcome.right, outcome


def test_a_kill_in_mid_batch_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The one that takes over has another plan. `python -m tests.bench.kill_trials` kills twenty times, with five plans in turn."""
    hits, expected, wrong = trials(tmp_path, kills=1, seed=1)
    assert (hits, wrong) == (1, 0)
    assert expected > 100


SUBMITTED = """
import json
from spark_adapter.session import open_session

spark = open_session({"spark.sql.session.timeZone": "Asia/Tokyo"})
conf = spark.sparkContext.getConf()
told = {key: spark.conf.get(key) for key in ("spark.sql.shuffle.partitions", "spark.sql.session.timeZone")}
print(json.dumps({"master": spark.sparkContext.master, **told}))
spark.stop()
"""


def test_what_spark_submit_is_told_wins_over_our_defaults_and_bindings_win_over_both(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SUBMITTED)
    root = Path(__file__).parents[2]
    told = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=3", "--conf", "spark.sql.session.timeZone=Europe/Paris"]
    environment = os.environ | {"PYTHONPATH": str(root), "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    submit = Path(sys.executable).with_name("spark-submit")
    done = subprocess.run([submit, *told, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = {"master": "local[1]", "spark.sql.shuffle.partitions": "3", "spark.sql.session.timeZone": "Asia/Tokyo"}
    assert json.loads(done.stdout.splitlines()[-1]) == expected
