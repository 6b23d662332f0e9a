"""Options of the whole test suite, and how it is spread over two processes."""

from __future__ import annotations

from pathlib import Path

import pytest

SPARK = Path(__file__).parent / "spark_adapter"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="approve what golden tests print now")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever runs Spark goes to one process, so that there is one JVM; the rest fills the other."""
    for item in items:
        if item.path.is_relative_to(SPARK):
            item.add_marker(pytest.mark.xdist_group("spark"))
