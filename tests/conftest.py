"""Options of the whole test suite, and how it is spread over two processes."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="approve what golden tests print now")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever runs Spark goes to one process, so that there is one JVM; the rest fills the other."""
    for item in items:
        if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
