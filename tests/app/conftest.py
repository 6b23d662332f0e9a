from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from app.service.settings import Settings
from tests.app.serving import running


@pytest.fixture(scope="session")
def service() -> Iterator[httpx.Client]:
    """One service with the real solvers for all tests that do not harm it; every answer is solved for."""
    with running(Settings(workers=1, cache_bytes=0)) as (client, _):
        yield client
