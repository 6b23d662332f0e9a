"""The command line at a terminal: a bar while a search takes long, gone at its end, and Ctrl-C for the best so far."""

from __future__ import annotations

import json
import os
import pty
import random
import select
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from app.commands.progress_bar import line
from models.progress import Incumbent
from models.request import Options, PlanRequest
from tests.app.serving import EXAMPLES, PATIENCE, ROOT
from tests.graphs import random_graph, with_a_measured_pair


class Ran(NamedTuple):
    code: int
    out: bytes
    terminal: str
    """All that was written to the terminal, which is standard error alone."""


def at_a_terminal(*arguments: str, interrupt: bytes = b"", **environment: str) -> Ran:
    """The command with a terminal for its input and standard error; Ctrl-C is pressed once `interrupt` is in what it shows."""
    out, write = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        os.dup2(write, 1)
        os.chdir(ROOT)
        os.execve(sys.executable, [sys.executable, "-m", "app", *arguments], {**os.environ, "TERM": "xterm", "COLUMNS": "120", **environment})
    os.close(write)
    said, printed, end = b"", b"", time.monotonic() + 3 * PATIENCE
    while True:
        assert time.monotonic() < end, said
        ready, _, _ = select.select([terminal, out], [], [], 1.0)
        if terminal in ready:
            said += _read(terminal)
            if interrupt and interrupt in said:
                interrupt = b""
                os.write(terminal, b"\x03")
        if out in ready:
            part = os.read(out, 65536)
            if not part:
                break
            printed += part
    while select.select([terminal], [], [], 0.1)[0] and (part := _read(terminal)):
        said += part
    _, status = os.waitpid(child, 0)
    os.close(out)
    os.close(terminal)
    return Ran(os.waitstatus_to_exitcode(status), printed, said.decode())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody has the other end any more
        return b""


def seen(terminal: str) -> str:
    """What is left on the screen."""
    lines = [""]
    for part in terminal.replace("\x1b[2m", "").replace("\x1b[0m", "").replace("\r\n", "\n").split("\n"):
        shown = ""
        for over in part.split("\r"):
            shown = over + shown[len(over) :]
        lines.append(shown.rstrip())
    return "\n".join(lines).strip()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A request that fills its three seconds."""
    return write(tmp_path_factory.mktemp("long") / "long.json", 17, "clique", 3.0)


def write(file: Path, n: int, shape: str, time_limit: float) -> Path:
    query = with_a_measured_pair(random_graph(random.Random(1), n, shape))
    asked = PlanRequest(query=query, options=Options(time_limit=time_limit))
    file.write_text(asked.model_dump_json(exclude_none=True))
    return file


@pytest.mark.parametrize("command", ["plan", "frontier"])
def test_a_long_search_shows_a_bar_that_is_gone_at_its_end(long: Path, command: str) -> None:
    ran = at_a_terminal(command, str(long), *(["--format", "json"] if command == "frontier" else []))
    assert ran.code == 0 and json.loads(ran.out)["proof"] in ("optimal", "bounded")
    assert "/3 s  gap " in ran.terminal and "best " in ran.terminal and "█" in ran.terminal and "\x1b[2m" in ran.terminal
    assert seen(ran.terminal) == "" or seen(ran.terminal).startswith("warning: ")


def test_a_short_search_shows_none(tmp_path: Path) -> None:
    ran = at_a_terminal("plan", str(EXAMPLES[0]))
    assert ran.code == 0 and ran.terminal == ""


def test_no_colour_where_none_is_wanted_and_no_sign_that_the_terminal_lacks(long: Path) -> None:
    ran = at_a_terminal("plan", str(long), NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert "/3 s  gap " in ran.terminal and "\x1b" not in ran.terminal and "#" in ran.terminal


def test_an_answer_is_written_in_any_encoding(tmp_path: Path) -> None:
    """The reasons of this plan name a join with a sign that ASCII lacks."""
    plain, utf8 = (at_a_terminal("plan", str(EXAMPLES[0]), PYTHONIOENCODING=encoding) for encoding in ("ascii", "utf-8"))
    assert plain.code == 0 and b"\\u22c8" in plain.out and "⋈".encode() in utf8.out
    assert json.loads(plain.out) == json.loads(utf8.out)


def test_quiet_is_quiet(long: Path) -> None:
    assert "gap" not in at_a_terminal("plan", str(long), "--quiet").terminal


def test_ctrl_c_prints_the_best_so_far_and_claims_no_more_than_is_known(tmp_path: Path) -> None:
    ran = at_a_terminal("plan", str(write(tmp_path / "endless.json", 18, "clique", 300.0)), interrupt=b"best ")
    made: dict[str, Any] = json.loads(ran.out)
    assert ran.code == 0 and made["proof"] == "bounded" and 0.0 < made["gap"] < 1.0
    assert any("ended early, as it was asked to" in sentence for sentence in made["explanation"])
    assert "stopped: this is the best so far" in seen(ran.terminal)


def test_a_server_s_incumbents_are_shown_too(service: httpx.Client, long: Path) -> None:
    ran = at_a_terminal("plan", str(long), "--url", str(service.base_url))
    assert ran.code == 0 and json.loads(ran.out)["format"] == "watersmeet.plan/1"
    assert "/3 s  gap " in ran.terminal


def test_ctrl_c_while_a_server_plans_ends_without_an_answer(service: httpx.Client, tmp_path: Path) -> None:
    ran = at_a_terminal("plan", str(write(tmp_path / "endless.json", 18, "clique", 300.0)), "--url", str(service.base_url), interrupt=b"/300 s")
    assert (ran.code, ran.out) == (130, b"") and "Traceback" not in ran.terminal


def test_the_line_never_wraps() -> None:
    best = Incumbent(cpu=0.412, memory_bytes=1.2e8, qualified=False, bound=None, gap=None, points=1, seconds=1.0, step="x" * 500)
    for width in range(1, 200):
        first, second = line(best, 5.0, 10.0, width)
        assert len(first) + len(second) <= width
    assert first == "[#####-----] 5.0/10 s  gap unknown  best 0.412 CPU, 120 MB, over the caps"
    assert line(best, 50.0, 10.0, 40)[0].startswith("[##########] 50.0/10 s")
