"""A bar on the terminal while a search runs, on standard error; Ctrl-C stops the search.

The bar is drawn by a thread of its own, so that it moves while native code runs, and only once a search has taken long enough to wonder about.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from models.progress import Incumbent
from solvers.common import words

__all__ = ["interruptible", "line", "shown"]

DELAY = 0.3  # seconds before a bar is drawn: most searches have ended by then
EVERY = 0.1  # seconds between two drawings
WIDTH = 10  # characters of the bar itself
DIM, PLAIN = "\x1b[2m", "\x1b[0m"

Hear = Callable[[Incumbent], None]


def line(best: Incumbent | None, seconds: float, limit: float, width: int, full: str = "#", empty: str = "-") -> tuple[str, str]:
    """What is drawn, in two parts, at most `width` characters: elapsed and limit, gap and best cost; and what is being done.

    >>> line(None, 1.0, 4.0, 40)
    ('[##--------] 1.0/4 s', '')
    """
    done = min(WIDTH, int(WIDTH * seconds / limit))
    parts = [f"[{full * done}{empty * (WIDTH - done)}] {seconds:.1f}/{limit:g} s"]
    if best is not None:
        parts.append("gap unknown" if best.gap is None else f"gap {best.gap:.1%}")
        parts.append(f"best {words.cpu(best.cpu)} CPU, {words.bytes_(best.memory_bytes)}" + ("" if best.qualified else ", over the caps"))
    first = "  ".join(parts)[:width]
    return first, f"  {best.step}"[: width - len(first)] if best is not None and best.step else ""


@contextmanager
def shown(limit: float, quiet: bool) -> Iterator[Hear | None]:
    """A bar on standard error that shows the newest incumbent; nothing (None) where that is no terminal or none is wanted."""
    terminal = sys.stderr
    if quiet or not terminal.isatty():
        yield None
        return
    newest: list[Incumbent] = []

    def hear(incumbent: Incumbent) -> None:
        newest[:] = [incumbent]

    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(terminal, newest, limit, ended), daemon=True)
    drawing.start()
    try:
        yield hear
    finally:
        ended.set()
        drawing.join()


def _draw(terminal: TextIO, newest: list[Incumbent], limit: float, ended: threading.Event) -> None:
    began, drawn = time.monotonic(), 0
    signs = ("█", "░") if (terminal.encoding or "").lower().replace("-", "") == "utf8" else ("#", "-")
    colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "dumb")
    pause = DELAY
    while not ended.wait(pause):
        pause = EVERY
        width = shutil.get_terminal_size().columns - 1  # a full last column would wrap
        first, second = line(newest[0] if newest else None, time.monotonic() - began, limit, width, *signs)
        left_over = " " * (drawn - len(first) - len(second))
        terminal.write(f"\r{first}{DIM + second + PLAIN if colours and second else second}{left_over}")
        terminal.flush()
        drawn = len(first) + len(second)
    if drawn:
        terminal.write("\r" + " " * drawn + "\r")
        terminal.flush()


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Says whether Ctrl-C was pressed; pressed again, it raises KeyboardInterrupt as ever.

    Python runs a signal's handler between two instructions of its main thread, which native code may keep away for long; the byte that it
    writes to a pipe is there at once, for any thread to see.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    pressed = select.poll()
    pressed.register(read, select.POLLIN)
    before = signal.getsignal(signal.SIGINT)

    def once(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, once)
    woken = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield lambda: bool(pressed.poll(0))
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGINT, before)
        os.close(read)
        os.close(write)
