"""One plan on Spark in a process of its own, for `watched`: warms up on fewer rows, then says that it begins, runs, and says that it has ended.

python -m tests.bench.peer_spark TASK.json      # {plan, engine, flows, warm, rows, place}: folders of rows, and where results go
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from models.plan import Plan
from spark_adapter.session import open_session
from tests.bench.bench_stem import Flow, one_run
from tests.bench.watched import BEGIN, END


def main(task: Path) -> None:
    given = json.loads(task.read_text(encoding="utf-8"))
    plan, place = Plan.model_validate(given["plan"]), Path(given["place"])
    flows = {name: Flow(**flow) for name, flow in given["flows"].items()}
    session = open_session({"spark.local.dir": given["work"]})
    one_run(session, Path(given["warm"]), place.with_name("warm-up"), plan, given["engine"], flows)
    print(BEGIN, flush=True)
    one_run(session, Path(given["rows"]), place, plan, given["engine"], flows)
    print(END, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
