"""Runs a command and watches it from outside: how long, how much CPU, memory and disk it and all it has started take.

The same watch for every engine, whatever it is made of. The command prints the line BEGIN when it has warmed up and what is to be measured
begins, and END when that has ended. CPU seconds are those between the two, of all processes below the command, with those they have ended and
waited for. Memory is the largest sum of their proportional set sizes, so that pages which forked workers share count once. After its time limit the
command and all it has started are ended, and the figures are what they had come to by then.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["BEGIN", "END", "FailedError", "Watched", "watched"]

BEGIN, END = "== begin", "== end"
EVERY = 0.5  # seconds between two looks at memory and disk
PREPARING = 300.0  # seconds that a command may take to start and warm up


class FailedError(Exception):
    """The command ended without having done its work; has the end of what it printed."""


@dataclass(frozen=True)
class Watched:
    """What was measured between BEGIN and END. `ended`: False where the time limit came first."""

    ended: bool
    seconds: float
    cpu: float
    memory: float
    """Bytes, the most there was."""
    disk: float
    """Bytes of the files below the folder that is watched, the most there were."""


def watched(command: Sequence[str], limit: float, folder: Path, log: Path, environment: Mapping[str, str]) -> Watched:
    """Run the command; what it writes to standard error goes to `log`. `folder` is the one whose files count."""
    with log.open("wb") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **environment}, bufsize=0)
    assert child.stdout is not None
    try:
        return _watch(child.pid, child.stdout, limit, folder, log)
    finally:
        _end(child)


def _watch(pid: int, output: IO[bytes], limit: float, folder: Path, log: Path) -> Watched:
    began, before, memory, disk, rest = time.monotonic(), None, 0.0, 0.0, b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(output, selectors.EVENT_READ)
        while True:
            ready = waiting.select(EVERY)
            found = os.read(output.fileno(), 65536) if ready else b""
            if ready and not found:
                raise FailedError(log.read_text(encoding="utf-8", errors="replace")[-2000:])
            *lines, rest = (rest + found).split(b"\n")
            now, below = time.monotonic(), _tree(pid)
            if before is None:
                if BEGIN.encode() in lines:
                    began, before = now, _cpu(below)
                elif now - began > PREPARING:
                    raise FailedError(f"not warm after {PREPARING:g} s")
                continue
            ended = END.encode() in lines
            if ended or not lines:
                memory, disk = max(memory, _memory(below)), max(disk, _disk(folder))
            if ended or now - began > limit:
                return Watched(ended, now - began, _cpu(below) - before, memory, disk)


def _tree(root: int) -> dict[int, float]:
    """CPU seconds of a process and of every one below it, by number; with those that they have ended and waited for."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)], used[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / tick
    ours = {root}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: used[pid] for pid in ours if pid in used}


def _cpu(below: Mapping[int, float]) -> float:
    return sum(below.values())


def _memory(below: Mapping[int, float]) -> float:
    """Bytes; a page that n processes share counts 1/n for each."""
    found = 0.0
    for pid in below:
        with suppress(OSError):
            for entry in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if entry.startswith("Pss:"):
                    found += 1024.0 * int(entry.split()[1])
    return found


def _disk(folder: Path) -> float:
    found = 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found += (Path(place) / name).stat().st_size
    return found


def _end(child: subprocess.Popen[bytes]) -> None:
    """The command and all below it, which may be in other process groups."""
    for pid in _tree(child.pid) if child.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
