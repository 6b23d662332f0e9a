from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.tools import NoBrowserError, browser
from tests.browser.driving import Service, chromium, service

# Playwright keeps an event loop in the main thread as long as it runs, which no test outside this package would bear:
# hence "package", not "session".


@pytest.fixture(scope="package")
def page_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service and one browser for all tests of the page."""
    try:
        executable = browser()
    except NoBrowserError as none:
        pytest.skip(str(none))
    with service() as (client, pool), chromium(executable, tmp_path_factory.mktemp("chromium")) as context:
        yield Service(client, pool, context)
