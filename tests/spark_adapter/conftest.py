"""One JVM for all Spark tests, and one broker: starting them costs more than most tests do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_adapter.errors import ConnectorError
from spark_adapter.kafka.connector import AVRO, CONNECTOR, fetched
from spark_adapter.kafka.local import running_broker
from spark_adapter.session import open_session
from tests.spark_adapter.kafka import Topics

POSTGRES_DRIVER = ("org.postgresql:postgresql:42.7.7",)  # what Spark's JDBC source needs to read a PostgreSQL


@pytest.fixture(scope="session")
def connector() -> str:
    """The jars of Spark's connector for Kafka and of PostgreSQL's driver, as far as they can be had, as a setting of Spark's."""
    found: list[Path] = []
    for jars in (CONNECTOR, AVRO, POSTGRES_DRIVER):
        with suppress(ConnectorError):
            found += sorted(fetched(jars).glob("*.jar"))
    return ",".join(map(str, found))


@pytest.fixture(scope="session")
def spark(connector: str) -> Iterator[SparkSession]:
    jars = {"spark.jars": connector} if connector else {}
    session = open_session({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", **jars})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    """The topics of a broker that runs as long as the tests do."""
    try:
        for jars in (CONNECTOR, AVRO):
            fetched(jars)
        with running_broker(tmp_path_factory.mktemp("broker")) as broker:
            yield Topics(broker.address, broker)
    except ConnectorError as error:
        pytest.skip(f"no Kafka to test with: {error}")
