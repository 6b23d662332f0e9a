"""The connector's jars are found, or asked for in the right version, or said to be missing in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest

from models.bindings import Bindings
from spark_adapter.errors import ConnectorError
from spark_adapter.kafka.connector import CONNECTOR, connected, fetched, missing

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
