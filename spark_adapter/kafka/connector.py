"""The jars of Spark's connector for Kafka, which PySpark comes without.

A session has them where its settings or `spark-submit` name them, or where they lie in Spark's own folder. Otherwise they are taken from the
user's cache, into which `python -m spark_adapter.kafka.connector` copies them with Maven; and where they are not there either, Spark is told to
fetch those of its own version (`spark.jars.packages`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from models.bindings import KAFKA, Bindings, ValueFormat
from spark_adapter.errors import ConnectorError
from spark_adapter.session import SUBMITTED

__all__ = ["AVRO", "BROKER", "CONNECTOR", "PACKAGES", "connected", "fetched", "missing", "unfetched"]

PACKAGES = "spark.jars.packages"

SCALA = "2.13"  # of every Spark 4
PATIENCE = 600.0  # seconds for Maven to fetch some forty megabytes

# What was tested together with Spark 4.3, whose own connector Maven Central did not have then. Without what they depend on in turn: Spark has that.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
# A broker of its own, for tests and the demo, with all that it depends on.
BROKER = ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36")

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>watersmeet</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def connected(bindings: Bindings) -> dict[str, str]:
    """The bindings' settings, and with them the jars that their topics need and that are not there yet."""
    settings = dict(bindings.spark)
    if SUBMITTED in os.environ:
        return settings
    there = " ".join([*_names(Path(_find_spark_home()) / "jars"), os.environ.get("PYSPARK_SUBMIT_ARGS", "")])
    for key in ("spark.jars", PACKAGES, "spark.driver.extraClassPath"):
        there += " " + settings.get(key, "")
    for jars in _wanted(bindings):
        if _artifact(jars[0]) in there:
            continue
        kept = _cache(jars)
        if kept.is_dir():
            _add(settings, "spark.jars", [str(kept / name) for name in _names(kept)])
        else:
            _add(settings, PACKAGES, [_own_version(jars[0])])
    return settings


def missing(artifact: str) -> str:
    """What to do where a session has not the jars of `artifact`: a sentence."""
    package = f"org.apache.spark:{artifact}_{SCALA}:{pyspark.__version__}"
    return (
        f'its package is not there: add spark.jars.packages: "{package}" under spark in the bindings, '
        "or let `python -m spark_adapter.kafka.connector` copy it with Maven"
    )


def unfetched(packages: str) -> str:
    """What to do where Spark could not fetch what `connected` told it to: a sentence."""
    return (
        f"Spark did not start with {packages}, which topics of Kafka need and which it could not fetch: name their jars as spark.jars under spark "
        "in the bindings, or let `python -m spark_adapter.kafka.connector` copy them with Maven"
    )


def fetched(jars: Sequence[str], alone: bool = True) -> Path:
    """The folder of the user's cache that has these jars, copied there with Maven unless it has; `alone`: without what they depend on.

    Raises ConnectorError, in one sentence, where there is no Maven or where it cannot fetch them.
    """
    folder = _cache(jars)
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise ConnectorError(f"Maven (mvn) is missing, which copies {', '.join(jars)}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="draft-") as name:
        draft = Path(name)
        dependencies = "".join(_dependency(jar, alone) for jar in jars)
        (draft / "pom.xml").write_text(POM.format(dependencies=dependencies), encoding="utf-8")
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft / 'jars'}"]
        try:
            done = subprocess.run(command, cwd=draft, capture_output=True, text=True, check=False, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise ConnectorError(f"Maven could not copy {', '.join(jars)} within {PATIENCE:.0f} seconds") from None
        if done.returncode:
            raise ConnectorError(f"Maven could not copy {', '.join(jars)}: {_reason(done.stdout)}")
        try:
            (draft / "jars").rename(folder)
        except OSError:
            # Another process was faster.
            if not folder.is_dir():
                raise
    return folder


def _wanted(bindings: Bindings) -> list[tuple[str, ...]]:
    sources = [binding.source for binding in bindings.streams.values()]
    formats = {source.format.lower() for source in sources} | {bindings.sink.format.lower()}
    values = {source.value.format for source in sources if source.value is not None} | {bindings.sink.value}
    return [CONNECTOR] * (KAFKA in formats) + [AVRO] * (ValueFormat.AVRO in values)


def _artifact(jar: str) -> str:
    return jar.split(":")[1]


def _own_version(jar: str) -> str:
    return f"{jar.rsplit(':', 1)[0]}:{pyspark.__version__}"


def _add(settings: dict[str, str], key: str, more: Iterable[str]) -> None:
    settings[key] = ",".join([*filter(None, [settings.get(key)]), *more])


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.jar"))


def _cache(jars: Sequence[str]) -> Path:
    """Named after what is in it, so that another version is another folder."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "watersmeet" / "jars" / "+".join("-".join(jar.split(":")[1:]) for jar in jars)


def _dependency(jar: str, alone: bool) -> str:
    group, artifact, version = jar.split(":")
    inside = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"<dependency>{inside}{ALONE if alone else ''}</dependency>"


def _reason(output: str) -> str:
    lines = [line.split("] ", 1)[-1] for line in output.splitlines() if "ERROR" in line]
    return lines[0].split(" -> [Help", 1)[0] if lines else "it gives no reason"


def main() -> int:
    """Copy the connector into the cache, and say where it is."""
    try:
        for jars in (CONNECTOR, AVRO):
            sys.stdout.write(f"{fetched(jars)}\n")
    except ConnectorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
