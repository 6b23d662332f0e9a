"""Options of the whole test suite, and how it is spread over two processes."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples on every run, so that a build fails for what changed in it; `--hypothesis-profile explore` looks for new ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile("fixed")

# The scheduler knows tests by their ids alone. The first process that has collected the tests writes here which of them have the mark `spark`.
SPARK_TESTS = Path(tempfile.gettempdir()) / f"watersmeet-spark-tests-{os.getpid()}.json"

CLUSTERS = "tests/spark_adapter/test_stem_processes.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="approve what golden tests print now")


@pytest.fixture(autouse=True)
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do the same on a person's machine and in CI: what a command does where CI is set, its test sets."""
    monkeypatch.delenv("CI", raising=False)


def pytest_unconfigure() -> None:
    SPARK_TESTS.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Every test has an id of its own; those that use the session of Spark have the mark `spark`, and the scheduler is told which they are."""
    for item in items:
        if hasattr(item, "operation_label"):  # schemathesis names its tests after their endpoints, and gives all of them one id
            item._id = item.parent.id.child(item.name)  # type: ignore[union-attr]
    twice = sorted(name for name, count in Counter(item.nodeid for item in items).items() if count > 1)
    if twice:
        raise pytest.UsageError(f"the scheduler would run only one of the tests that share an id: {', '.join(twice)}")
    marked = [item.nodeid for item in items if item.get_closest_marker("spark") is not None]
    unmarked = [item.nodeid for item in items if "spark" in getattr(item, "fixturenames", ()) and item.nodeid not in marked]
    if unmarked:
        raise pytest.UsageError(f"these use the session of Spark and lack the mark spark: {', '.join(unmarked)}")
    worker = getattr(config, "workerinput", {})
    if worker.get("workerid") == "gw0":
        Path(worker["spark_tests"]).write_text(json.dumps(marked), encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["spark_tests"] = str(SPARK_TESTS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whatever shares the session of Spark goes to one process, so that there is one JVM; the same for browsers; of the rest each file goes to
    the process that is free, so that what its tests share is made once. What has most tests comes first: with the browsers, early, go
    the clusters that take minutes, or one process would wait for them in the end.

    A scheduler of our own, because xdist 3.8 does not see its groups under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped, unused-ignore]

    class Together(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid in _spark_tests():
                return "spark"
            file = nodeid.partition("::")[0]
            return "browsers and clusters" if file.startswith("tests/browser/") or file == CLUSTERS else file

    return Together(config, log)


@cache
def _spark_tests() -> frozenset[str]:
    """Asked for only when all processes have collected."""
    return frozenset(json.loads(SPARK_TESTS.read_text(encoding="utf-8")))
