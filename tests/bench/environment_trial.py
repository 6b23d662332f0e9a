"""Executors that have none of our packages: an archive of an environment brings them, as docs/operations.md says.

    python -m tests.bench.environment_trial [--archive environment.tar.gz]

A cluster of Spark's own kind on this machine, a master and two workers, whose Python is the one that this environment was made from: it has
neither polars nor pandas nor the others, nor our own packages. First a pipeline is submitted as it is, and must fail for want of them. Then an
environment is made and packed, unless one is given, and the same pipeline is submitted with it, once in two cells and once in three, which lays its
states out anew on the executors; its rows are held against a nested loop. Needs a package index.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyspark

from spark_adapter.java import java_home
from tests.bench.executor_kills import causes, cluster
from tests.bench.kill_trials import PLANS, QUERY, ROOT, SCHEMA, rows, written
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, write_stream

__all__ = ["main"]

NEEDED = ["numpy", "pandas", "polars", "protobuf", "pyarrow"]
MODULES = {"protobuf": "google.protobuf.descriptor"}  # where a package is not called like its module
BATCHES = 4
JOB = """
import json
import sys

import spark_adapter
from spark_adapter.session import open_session

plan, bindings, cells = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), int(sys.argv[3])
spark = open_session({})
pipeline = spark_adapter.compile(plan, bindings, spark, cells=cells).start()
pipeline.await_termination()


def where(_):
    import polars
    import spark_adapter.stem.operator

    return sys.executable, polars.__file__, spark_adapter.stem.operator.__file__


print(json.dumps({"results": pipeline.progress.results, "where": sorted(set(spark.sparkContext.parallelize(range(4), 4).map(where).collect()))}))
spark.stop()
"""


def packed(folder: Path) -> Path:
    """An environment with what executors need and nothing else, as an archive."""
    made = folder / "made"
    subprocess.run([sys.executable, "-m", "venv", made], check=True)
    pip: list[str | Path] = [made / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    install = [*pip, *NEEDED, "venv-pack", "setuptools<81"]  # venv-pack asks for pkg_resources
    subprocess.run(install, check=True)
    archive = folder / "environment.tar.gz"
    subprocess.run([made / "bin" / "venv-pack", "--prefix", made, "--output", archive, "--compress-level", "1", "--quiet"], check=True)
    return archive


def submitted(folder: Path, master: str, cells: int, archive: Path | None) -> subprocess.CompletedProcess[str]:
    brought = ["--archives", f"{archive}#environment", "--conf", "spark.pyspark.python=./environment/bin/python"] if archive else []
    settings = {
        # In client mode the driver runs here, where there is no ./environment.
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
    }
    told = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"}
    # The driver has our packages; what it has on its path does not reach executors.
    environment |= {"PYTHONPATH": str(ROOT), "JAVA_HOME": str(java_home()), "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    command: list[str | Path] = [Path(sys.executable).with_name("spark-submit"), "--master", master, *brought, *told, folder / "job.py"]
    command += [folder / "plan.json", folder / "bindings.json", str(cells)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--archive", type=Path, help="an environment that was packed before")
    given = parser.parse_args()
    python = Path(sys.executable).resolve()
    lacking = [name for name in (*NEEDED, "spark_adapter") if _lacks(python, MODULES.get(name, name))]
    print(f"{python} lacks {', '.join(lacking)}", flush=True)
    data = rows(2 * BATCHES, seed=3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.py").write_text(JOB)
        (folder / "plan.json").write_text(PLANS[1].model_dump_json(by_alias=True))
        bindings = bindings_of(folder, {stream.name: SCHEMA for stream in QUERY.streams}, watermark="1 second")
        (folder / "bindings.json").write_text(bindings.model_dump_json(by_alias=True))
        half = len(data["a"]) // 2
        for stream, listed in data.items():
            write_stream(folder / stream, listed[:half], BATCHES)
        archive = given.archive.resolve() if given.archive else packed(folder)
        # Spark has the operator say what state it keeps in a worker of the driver's, which runs the same ./environment/bin/python.
        (folder / "environment").mkdir()
        subprocess.run(["tar", "--extract", "--gzip", "--file", archive, "--directory", folder / "environment"], check=True)
        print(f"the environment is {archive.stat().st_size / 1e6:.0f} MB", flush=True)
        with cluster(folder, str(python)) as (master, _):
            without = submitted(folder, master, 2, None)
            print("\n".join([f"without it: exit code {without.returncode}", *causes(without.stderr)]), flush=True)
            right = bool(without.returncode) and any("ImportError" in line or "ModuleNotFoundError" in line for line in causes(without.stderr))
            for cells in (2, 3):
                began = time.monotonic()
                done = submitted(folder, master, cells, archive)
                if done.returncode:
                    sys.exit("\n".join([f"in {cells} cells: exit code {done.returncode}", *causes(done.stderr)]))
                arrived = {stream: all_rows[: half if cells == 2 else None] for stream, all_rows in data.items()}
                expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, arrived))
                found = written(folder)
                wrong = (expected - found) + (found - expected)
                seconds = time.monotonic() - began
                print(f"in {cells} cells: {expected.total()} results, {wrong.total()} missing or doubled, {seconds:.0f} s; executors ran", flush=True)
                for place in json.loads(done.stdout.splitlines()[-1])["where"]:
                    print("  " + ", ".join(place), flush=True)
                right &= not wrong
                for stream, all_rows in data.items():
                    _add(folder / stream, all_rows[half:])
    sys.exit(0 if right and lacking == [*NEEDED, "spark_adapter"] else 1)


def _lacks(python: Path, module: str) -> bool:
    return subprocess.run([python, "-I", "-c", f"import {module}"], capture_output=True, check=False).returncode != 0


def _add(folder: Path, rows: Sequence[Row]) -> None:
    """One more file, which is newer than all others."""
    more = folder.parent / f"more {folder.name}"
    if not more.exists():
        write_stream(more, rows, 1)
        (more / "00000.json").rename(folder / "more.json")


if __name__ == "__main__":
    main()
