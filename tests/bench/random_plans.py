"""Random plans over random data on Spark, many of them: do any give other rows than the definition?

    python -m tests.bench.random_plans [--examples 200] [--seed 0]

What `make test` draws a few of: queries of two to four streams with windows of time and of rows, any join tree, any probe orders,
caches of both kinds with room and without, 1, 2 or 4 cells, up to five batches, watermarks that trail by up to two seconds, so that
rows come late and states let go of theirs while it runs. Late rows are counted against the definition too.
Ends with 1 at the first difference, and prints the case.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from spark_adapter.session import open_session
from tests.spark_adapter.cells import Case, cases
from tests.spark_adapter.runs import TOGETHER, tried

__all__ = ["main"]


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(list(arguments))
    spark = open_session({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    started, done, late, gone = time.monotonic(), 0, 0, 0

    @seed(chosen.seed)
    @settings(
        max_examples=-(-chosen.examples // TOGETHER),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.booleans().flatmap(lambda counted: cases(counted)), min_size=TOGETHER, max_size=TOGETHER))
    def compared(several: list[Case]) -> None:
        nonlocal done, late, gone
        with tempfile.TemporaryDirectory() as folder:
            trials = tried(spark, Path(folder), several)
        wrong = [trial for trial in trials if not trial.right]
        done += len(several)
        late += sum(trial.late for trial in trials)
        gone += sum(trial.arrived - trial.late - trial.held for trial in trials)
        print(f"{done} plans, {len(wrong)} differ, {time.monotonic() - started:.0f} s; {late} rows late, {gone} let go of", flush=True)
        for trial in wrong:
            print(trial, flush=True)
        if wrong:
            sys.exit(1)

    compared()
    spark.stop()
    print(f"{done} random plans over random data, no difference; {late} rows came late and were dropped, {gone} were let go of")


if __name__ == "__main__":
    main(sys.argv[1:])
