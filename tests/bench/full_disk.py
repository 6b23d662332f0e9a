"""A disk that fills up under a pipeline: the batch fails, nothing is lost, and with room again it goes on.

    python -m tests.bench.full_disk [--megabytes 64]

The disk is a file system in memory, mounted for this trial, so it needs root. Copies of states, and whatever else Spark puts below
`spark.local.dir`, lie there. The first half of the rows is worked off; then a file takes all the room that is left, and the next batch must fail,
wherever it first needs room: in Spark's store, in a shuffle or on a shelf. The file goes, the pipeline is started again, and its results are held
against a nested loop.
"""

from __future__ import annotations

import argparse
import errno
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import StreamingQueryException

import spark_adapter
from spark_adapter.session import open_session
from tests.bench.kill_trials import PLANS, QUERY, SCHEMA, rows, written
from tests.spark_adapter.nested_loop import nested_loop
from tests.spark_adapter.plans import bindings_of
from tests.spark_adapter.runs import TOO_SLOW, write_batch

__all__ = ["main"]

BATCHES = 8


@contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path) -> Path:
    """A file that leaves no room for another byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
    return ballast


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64)
    given = parser.parse_args()
    data = rows(BATCHES, seed=4)
    failed = ""
    with tempfile.TemporaryDirectory() as name, mounted(Path(name) / "disk", given.megabytes) as disk:
        folder = Path(name)
        spark = open_session({"spark.local.dir": str(disk)})
        bindings = bindings_of(folder, {stream.name: SCHEMA for stream in QUERY.streams}, watermark="1 second")

        def run() -> None:
            spark_adapter.compile(PLANS[1], bindings, spark, cells=2).start().await_termination()

        for k in range(BATCHES // 2):
            write_batch(folder, data, k, BATCHES)
        run()
        before = written(folder).total()
        ballast = fill(disk)
        for k in range(BATCHES // 2, BATCHES):
            write_batch(folder, data, k, BATCHES)
        try:
            run()
        except StreamingQueryException as error:
            failed = str(error)
        because_full = bool(failed) and not any(reason in failed for reason in TOO_SLOW)
        print(f"{before} results, then the disk is full: {next(iter(failed.splitlines()), 'NOTHING FAILS')[:200]}", flush=True)
        ballast.unlink()
        run()
        spark.stop()
        expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, data))
        found = written(folder)
        wrong = ((expected - found) + (found - expected)).total()
    print(f"with room again: {expected.total()} results, {wrong} missing or doubled", flush=True)
    sys.exit(0 if because_full and not wrong and 0 < before < expected.total() else 1)


if __name__ == "__main__":
    main()
