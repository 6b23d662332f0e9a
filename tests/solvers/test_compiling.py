"""Where compiled code is kept: in a place that is ours, or nowhere, without an error. It is compiled again when what it is made of has changed."""

from __future__ import annotations

import ast
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
from room.compiling import njit
from room.steps import step
from solvers.common.tolerances import NOTHING

@njit
def doubled(number):
    return step(number, number) + NOTHING
"""
STEPS = """
from room.compiling import njit
from room.sums import added

@njit
def step(left, right):
    return added(left, right)
"""
SUMS = """
from room.compiling import njit

@njit
def added(left, right):
    return left + right
"""
RUN = """
import numba
from room import toy
assert not numba.config.CACHE_LOCATOR_CLASSES, "numba is left as it was found"
print(toy.doubled(21), numba.config.CACHE_DIR, len(toy.doubled.stats.cache_hits))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Sources and a home that may only be read, and an empty folder for temporary files."""
    folder = Path(tempfile.mkdtemp())
    room = folder / "source" / "room"
    room.mkdir(parents=True)
    shutil.copy(compiling.__file__, room)
    for name, text in (("toy", TOY), ("steps", STEPS), ("sums", SUMS), ("beside", "")):
        (room / f"{name}.py").write_text(text)
    common = folder / "source" / "solvers" / "common"
    common.mkdir(parents=True)
    (common / "tolerances.py").write_text("NOTHING = 0\n")
    room.chmod(0o555)
    (folder / "home").mkdir(mode=0o555)
    (folder / "tmp").mkdir(mode=0o700)
    yield folder
    room.chmod(0o755)
    shutil.rmtree(folder)


def printed(place: Path) -> tuple[int, str, int]:
    """Twice 21, the folder that numba was given for its cache, and how often it found something there."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(place / "source"), "HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    done = subprocess.run([*AS_OTHERS_DO, sys.executable, "-c", RUN], cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result, folder, hits = done.stdout.strip().split(" ")
    return int(result), folder, int(hits)


def run(place: Path) -> tuple[str, int]:
    result, folder, hits = printed(place)
    assert result == 42
    return folder, hits


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


@pytest.mark.parametrize(("file", "old", "new"), [("room/sums.py", "left + right", "left + right + 1"), ("solvers/common/tolerances.py", "0", "1")])
def test_what_calls_a_function_that_changed_is_compiled_again(place: Path, file: str, old: str, new: str) -> None:
    """Also where others stand between the two, and where a tolerance changed, which is a constant of the compiled code."""
    assert [printed(place)[::2], printed(place)[::2]] == [(42, 0), (42, 1)]
    changed = place / "source" / file
    text = changed.read_text()
    assert old in text
    changed.write_text(text.replace(old, new))
    assert [printed(place)[::2], printed(place)[::2]] == [(43, 0), (43, 1)]


def test_a_file_that_nothing_of_it_came_from_may_change(place: Path) -> None:
    assert [printed(place)[::2], printed(place)[::2]] == [(42, 0), (42, 1)]
    (place / "source" / "room" / "beside.py").write_text("another = 1")
    assert printed(place)[::2] == (42, 1)


def test_compiled_functions_use_nothing_from_outside_their_room_but_tolerances() -> None:
    """What else they used could change without their being compiled again."""
    room = Path(compiling.__file__).parent
    decorators = {"compiled", "inlined", "making", "released"}
    seen = 0
    for path in room.glob("*.py"):
        statements = ast.parse(path.read_text()).body
        homes = {name.asname or name.name: node.module or "" for node in statements if isinstance(node, ast.ImportFrom) for name in node.names}
        for function in statements:
            if isinstance(function, ast.FunctionDef) and decorators & {ast.unparse(decorator) for decorator in function.decorator_list}:
                parts = [part for statement in function.body for part in ast.walk(statement)]
                own = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
                used = {part.id for part in parts if isinstance(part, ast.Name)} - own
                modules = {homes[name] for name in used & set(homes)} - {compiling.TOLERANCES}
                assert all(module.rpartition(".")[0] == "solvers.jtree.compiled" for module in modules), (path.name, function.name, modules)
                seen += bool(modules)
    assert seen > 40
