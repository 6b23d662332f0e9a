"""Options of the whole test suite, and how it is spread over two processes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples on every run, so that a build fails for what changed in it; `--hypothesis-profile explore` looks for new ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("explore", derandomize=False, print_blob=True)
settings.load_profile("fixed")

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="approve what golden tests print now")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whatever shares the session of Spark goes to one process, so that there is one JVM; the same for browsers; the rest fills the other.

    A scheduler of our own, because xdist 3.8 does not see its groups under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped, unused-ignore]

    class Together(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            return _shared(nodeid.partition("::")[0]) or nodeid

    return Together(config, log)


@cache
def _shared(path: str) -> str:
    """What the tests of a file share: a JVM, a browser, or nothing."""
    text = (ROOT / path).read_text()
    if path.startswith("tests/browser/"):
        return "browser"
    return "spark" if "spark: SparkSession" in text else ""
