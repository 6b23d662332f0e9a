"""A real Chromium over the real service: what the tests, the screenshots and the benchmark of the page share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from app.service.pool import Pool
from app.service.settings import Settings
from tests.app.serving import post, running

PATIENCE = 20_000  # ms for something that must happen; it never takes that long

# No services of its own, nothing fetched in the background; the sandbox needs rights that containers lack.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(executable: str, profile: Path) -> Iterator[Browser]:
    """A headless browser with a fresh profile below `profile`."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=list(FLAGS), headless=True, downloads_path=profile)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def service() -> Iterator[tuple[httpx.Client, Pool]]:
    """A service with two workers, as a small machine runs it."""
    with running(Settings(workers=2)) as (client, pool):
        yield client, pool


@dataclass
class Opened:
    """A page, and what it said in the console."""

    page: Page
    client: httpx.Client
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def settled(self) -> None:
        """Wait until the answer to the newest edit is on screen, or the reason why there is none."""
        self.page.wait_for_function("() => !document.body.hasAttribute('data-pending')", timeout=PATIENCE)

    def pick(self, example: str) -> None:
        self.page.select_option("#example", example)
        self.settled()

    def paste(self, request: str | dict[str, Any]) -> None:
        self.page.click("#paste")
        self.page.fill("#json", request if isinstance(request, str) else json.dumps(request))
        self.settled()

    def edit(self, pointer: str, text: str) -> None:
        self.page.fill(f'[data-pointer="{pointer}"]', text)
        self.settled()

    def frontier(self) -> None:
        """Wait until the frontier of the newest request is drawn, with what is marked on it."""
        self.page.wait_for_selector("#frontier[aria-busy=false]", timeout=PATIENCE)

    def request(self) -> dict[str, Any]:
        """The request as the page has it."""
        loaded: dict[str, Any] = json.loads(self.page.input_value("#json"))
        return loaded

    def fingerprint(self) -> str:
        """Of the plan on screen."""
        return self.page.get_attribute("body", "data-fingerprint") or ""

    def asked(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the service says, asked without the page."""
        answer = post(self.client, path, body)
        assert answer.status_code == 200, answer.text
        loaded: dict[str, Any] = answer.json()
        return loaded


@dataclass
class Service:
    """A running service and a browser to look at it with."""

    client: httpx.Client
    pool: Pool
    browser: Browser

    @contextmanager
    def opened(self, width: int = 1280, height: int = 900, scheme: str = "light", fragment: str = "") -> Iterator[Opened]:
        """The page, with its first plan on screen; afterwards, that it complained of nothing and asked nobody else."""
        dark = scheme == "dark"
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        opened = Opened(page, self.client)

        def heard(message: ConsoleMessage) -> None:
            refused = "status of 422" in message.text  # the browser's own line on a refused request
            if message.type in ("error", "warning") and not refused:
                opened.complaints.append(message.text)

        page.on("console", heard)
        page.on("pageerror", lambda failure: opened.complaints.append(str(failure)))
        page.on("request", lambda request: opened.hosts.add(request.url.split("/")[2] if "//" in request.url else ""))
        try:
            page.goto(f"{self.client.base_url}/{fragment}")
            page.wait_for_selector("body[data-fingerprint]", timeout=PATIENCE)
            opened.settled()
            yield opened
            assert not opened.complaints
            assert opened.hosts <= {f"{self.client.base_url.host}:{self.client.base_url.port}", ""}
        finally:
            context.close()
