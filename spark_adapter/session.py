"""A Spark session for a pipeline: a Java that is there, settings that suit streaming joins, our code on every executor."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

import models.bindings
from spark_adapter.errors import BindingError
from spark_adapter.expressions import SPARK_ERRORS, said
from spark_adapter.java import java_home

__all__ = ["DEFAULT_MASTER", "JOINS", "PARTITIONS", "SUBMITTED", "in_one_process", "open_session", "send_code", "settings"]

DEFAULT_MASTER = "local[2]"
ARCHIVE = "watersmeet.zip"
PARTITIONS = "spark.sql.shuffle.partitions"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # in the environment of what spark-submit starts

# What Spark's own joins of streams run best with.
JOINS = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch then writes what changed instead of a snapshot of everything.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Twice as fast as version 2 with RocksDB.
    "spark.sql.streaming.join.stateFormatVersion": "3",
    # Event times and bindings mean the same on every machine.
    "spark.sql.session.timeZone": "UTC",
}
# What every session of ours gets as well. The bindings' own settings win over all of these.
STREAMING = JOINS | {
    # One Arrow batch per cell and micro-batch where possible; the default of 10,000 rows cuts a batch to pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
# What a master on this machine gets as well.
LOCAL = {
    # Every partition of every stateful operator is a store of its own: with two cores, two are enough.
    PARTITIONS: "2",
    "spark.ui.enabled": "false",
    # Executors live in the driver's process here, and its default of one gigabyte has the collector at work all the time.
    "spark.driver.memory": "2g",
    # On a local disk Spark's default way to put a checkpoint's file in its place starts eight processes (`readlink`, where Hadoop's
    # native library is missing, as it is in PySpark), some eighty a batch. This way makes the same check and the same rename itself.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    # Packets are numbers and hashes, which hardly shrink, and go no further than this machine's own disk.
    "spark.shuffle.compress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def settings(spark: Mapping[str, str], master: str = DEFAULT_MASTER) -> dict[str, str]:
    """The settings of a session on `master`: the defaults, overridden by those of the bindings."""
    return STREAMING | (LOCAL if master.startswith("local") else {}) | dict(spark)


def open_session(spark: Mapping[str, str], master: str | None = None, log: Path | None = None) -> SparkSession:
    """A session with the settings `spark` on `master`: the settings' own `spark.master` where none is given, else that of
    `spark-submit` where it started us, else two local cores. What `spark-submit` was told wins over our defaults, and the settings over both.

    What Spark and its workers write to standard error goes to `log`, where one is given: it would garble a terminal.

    One JVM runs one Spark application: a session that is open already is used again, with those of the settings
    that can still be changed.
    """
    submitted = _submitted()
    chosen = master or spark.get("spark.master") or submitted.get("spark.master") or DEFAULT_MASTER
    fresh = SparkSession.getActiveSession() is None
    if fresh and not submitted:
        os.environ["JAVA_HOME"] = str(java_home())
        # Executors on this machine run the Python that runs us; elsewhere it is for the settings to say.
        if chosen.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(chosen).appName("watersmeet")
    for key, value in settings(spark, chosen).items():
        if key != "spark.master" and (key in spark or key not in submitted):
            builder = builder.config(key, value)
    try:
        with _standard_error_to(log if fresh else None):
            session = builder.getOrCreate()
    except (*SPARK_ERRORS, OSError, ValueError) as error:
        raise BindingError([("/spark", f"Spark does not start on {chosen}: {said(error)}")]) from error
    if fresh and chosen.startswith("local"):
        _without_checksums(session)
    send_code(session)
    return session


def _submitted() -> dict[str, str]:
    """What `spark-submit` was told, where it started this process: Spark's JVM then runs already."""
    if SUBMITTED not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _without_checksums(session: SparkSession) -> None:
    """No file of checksums beside every file on local disks: Hadoop starts a process (`chmod`) for each of the two, some twenty a batch.

    Executors of a local master live in the driver's process and share its file system.
    """
    context = session.sparkContext
    jvm = context._jvm
    assert jvm is not None
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("file:///"), context._jsc.hadoopConfiguration()).setWriteChecksum(False)


def in_one_process(spark: SparkSession) -> bool:
    """Whether the executors are the driver's own process."""
    master = str(spark.sparkContext.master)
    return master.startswith("local[") or master == "local"


def send_code(spark: SparkSession) -> None:
    """Send our packages to the executors of a session, once. Where they are the driver's own process they have them."""
    context = spark.sparkContext
    if in_one_process(spark) or any(name.endswith(ARCHIVE) for name in context.listFiles):
        return
    context.addPyFile(str(_packed()))


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """Inside the block, standard error goes to `log`, if there is one. Processes that are started inside keep writing there after it."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _packed() -> Path:
    """A zip file of the packages that executors import; gone when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / ARCHIVE
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for root in (Path(models.bindings.__file__).parent, Path(__file__).parent):
            for file in sorted(root.rglob("*.py")):
                archive.write(file, file.relative_to(root.parent))
    return target
