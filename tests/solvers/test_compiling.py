"""Where compiled code is kept: in a place that is ours, or nowhere; never an error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from solvers.jtree.compiled import compiling

# Root may write everywhere, whatever a folder's mode says, and would see nothing of this: it gives that up.
AS_OTHERS_DO = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override"] if os.getuid() == 0 else []

TOY = """
from compiling import njit

@njit
def doubled(number):
    return 2 * number
"""
RUN = "import numba, toy; assert toy.doubled(21) == 42; print(numba.config.CACHE_DIR, len(toy.doubled.stats.cache_hits))"


@pytest.fixture
def place() -> Iterator[Path]:
    """Sources and a home that may only be read, and an empty folder for temporary files."""
    folder = Path(tempfile.mkdtemp())
    (folder / "source").mkdir()
    shutil.copy(compiling.__file__, folder / "source")
    (folder / "source" / "toy.py").write_text(TOY)
    (folder / "source").chmod(0o555)
    (folder / "home").mkdir(mode=0o555)
    (folder / "tmp").mkdir(mode=0o700)
    yield folder
    (folder / "source").chmod(0o755)
    shutil.rmtree(folder)


def run(place: Path) -> tuple[str, int]:
    """The folder that numba was given for its cache, and how often it found something there."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place / "source"), "HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    done = subprocess.run([*AS_OTHERS_DO, sys.executable, "-c", RUN], cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder, _, hits = done.stdout.strip().rpartition(" ")
    return folder, int(hits)


def own(place: Path) -> Path:
    return place / "tmp" / f"watersmeet-{os.getuid()}"


def test_what_nobody_may_write_beside_the_source_is_kept_in_a_folder_of_its_own(place: Path) -> None:
    assert run(place) == (str(own(place)), 0)
    assert own(place).stat().st_mode & 0o777 == 0o700
    assert run(place) == (str(own(place)), 1), "compiled once"


def test_a_folder_that_others_may_write_to_is_not_trusted(place: Path) -> None:
    own(place).mkdir()
    own(place).chmod(0o777)
    assert run(place) == ("", 0)
    assert not list(own(place).iterdir())


def test_without_any_folder_it_is_compiled_each_time(place: Path) -> None:
    own(place).touch()  # a file is where the folder would be
    assert run(place) == ("", 0)
