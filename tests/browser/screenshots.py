"""`make screenshots`: the page with every example and with a recorded run, in light and dark, on a desk and on a phone, and the README's picture.

They are there to be looked at: nothing compares them, because fonts differ from machine to machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.app.serving import EXAMPLES, ROOT
from tests.app.tools import NoBrowserError, browser
from tests.browser.driving import Service, chromium, service
from tests.browser.recorded import record

FOLDER = ROOT / ".screenshots"
PICTURE = ROOT / "docs" / "page.png"
SIZES = ((1280, 900), (360, 740))
SCHEMES = ("light", "dark")


def take(page_service: Service, folder: Path) -> None:
    """Every example, and a recorded run, whole pages."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        record(run)
        for width, height in SIZES:
            for scheme in SCHEMES:
                with page_service.opened(width, height, scheme) as it:
                    it.page.set_input_files("#run-files", sorted(run.iterdir()))
                    it.page.wait_for_selector("#run-difference li")
                    it.page.locator("#run").screenshot(path=folder / f"run-{width}-{scheme}.png")
    for width, height in SIZES:
        for scheme in SCHEMES:
            with page_service.opened(width, height, scheme) as it:
                for file in EXAMPLES:
                    it.pick(file.stem)
                    it.frontier()
                    it.page.screenshot(path=folder / f"{file.stem}-{width}-{scheme}.png", full_page=True)


def picture(page_service: Service, file: Path) -> None:
    """The README's: a plan, and the probe order of one of its inputs."""
    file.parent.mkdir(exist_ok=True)
    with page_service.opened(1280, 676) as it:
        it.pick("star")
        it.frontier()
        it.page.hover('#tree-pane [data-key="shipments"] .name')
        it.page.wait_for_timeout(300)  # bands change their colour gently
        it.page.screenshot(path=file, clip={"x": 0, "y": 0, "width": 1280, "height": 566})


def main() -> None:
    try:
        executable = browser()
    except NoBrowserError as none:
        sys.stderr.write(f"{none}\n")
        raise SystemExit(1) from None
    with tempfile.TemporaryDirectory() as profile, service() as (client, pool), chromium(executable, Path(profile)) as started:
        page_service = Service(client, pool, started)
        take(page_service, FOLDER)
        picture(page_service, PICTURE)
    sys.stderr.write(f"{FOLDER.relative_to(ROOT)}/, {PICTURE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
