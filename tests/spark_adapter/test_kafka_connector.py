"""The connector's jars are found, or asked for in the right version, or said to be missing in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest

from models.bindings import Bindings
from spark_adapter.errors import ConnectorError
from spark_adapter.kafka.connector import CONNECTOR, connected, fetched, missing, unfetched
from tests.spark_adapter.plans import make_plan, make_query

TOPIC = {"format": "kafka", "topic": "bids", "servers": "localhost:9092", "value": {"format": "json", "schema": "x BIGINT"}}
OWN = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing from spark-submit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "watersmeet" / "jars"


def settings(source: Mapping[str, Any] = TOPIC, spark: Mapping[str, str] | None = None) -> dict[str, str]:
    bound = {"bids": {"source": source, "event_time": "ts"}}
    return connected(Bindings.model_validate({"streams": bound, "checkpoint": "c", "spark": dict(spark or {})}))


def test_only_who_reads_or_writes_topics_gets_the_connector() -> None:
    assert settings({"format": "json"}) == {}
    assert settings() == {"spark.jars.packages": OWN}
    avro = settings(TOPIC | {"value": {"format": "avro", "schema": "x BIGINT"}})
    assert avro == {"spark.jars.packages": f"{OWN},org.apache.spark:spark-avro_2.13:{pyspark.__version__}"}


def test_what_the_bindings_or_spark_submit_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"spark.jars": "/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar"}
    assert settings(spark=named) == named
    assert settings(spark={"spark.jars.packages": "org.example:other:1"}) == {"spark.jars.packages": f"org.example:other:1,{OWN}"}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert settings() == {}


def test_what_the_cache_has_is_used(cache: Path) -> None:
    folder = cache / "+".join("-".join(jar.split(":")[1:]) for jar in CONNECTOR)
    folder.mkdir(parents=True)
    for name in ("b.jar", "a.jar"):
        (folder / name).touch()
    assert settings() == {"spark.jars": f"{folder}/a.jar,{folder}/b.jar"}
    assert fetched(CONNECTOR) == folder


def test_without_maven_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConnectorError, match=r"^Maven \(mvn\) is missing, which copies org.apache.spark:spark-sql-kafka-0-10_2.13:[\d.]+, "):
        fetched(CONNECTOR)


def test_a_missing_package_is_named() -> None:
    assert f'add spark.jars.packages: "{OWN}" under spark in the bindings' in missing("spark-sql-kafka-0-10")


@pytest.mark.spark
def test_a_connector_that_spark_cannot_fetch_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    """In a process and a JVM of its own: that it has no connector ends a JVM before it has begun."""
    plan = make_plan(make_query({"a": 60, "b": 60}, ["a.x = b.x"]), ["a", "b"])
    bound = {"streams": {name: {"source": TOPIC} for name in ("a", "b")}, "checkpoint": str(tmp_path / "checkpoint")}
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    (tmp_path / "bindings.json").write_text(json.dumps(bound))
    # No jars that were fetched before, and no way to Maven Central.
    nowhere = f"-Duser.home={tmp_path} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
    command = [sys.executable, "-m", "app", "run", str(tmp_path / "plan.json"), str(tmp_path / "bindings.json")]
    ran = subprocess.run(command, env=os.environ | {"JAVA_TOOL_OPTIONS": nowhere}, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [unfetched(OWN)]
    assert not (tmp_path / "checkpoint").exists()
