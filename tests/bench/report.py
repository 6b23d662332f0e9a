"""The papers' experiments, the peers and the truth of the cost model, as one page: docs/evidence.md.

    python -m tests.bench.report [--quick] [--only SECTION[.PART] …] [--redraw] [--into FOLDER] [--list]

What each part found is kept as JSON as soon as it has ended, and the page is written anew. Broken off, the next call goes on with the parts that
are left; once all have run, the next call begins again. `--quick` runs smaller settings and writes to build/report, so that the page in
docs stays as it is; `--into docs` puts it there after all. `--redraw` runs nothing: page and pictures from the JSON that is there, what its numbers
say being told anew. `--only` runs the parts named, whether they ran before or not; a part that failed is run again by the next call. CPU time is
measured wherever it can be, since others may use the machine.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is read: one thread, as in Spark's workers

import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from tests.bench.evidence import Kept, NotAtHandError, Part, Section, load, retold, save, this_commit, this_machine
from tests.bench.evidence_page import FULL, QUICK, written
from tests.bench.quoted import quotable, renewed

__all__ = ["SECTIONS", "main", "sections", "write"]

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "report"
SECTIONS: tuple[str, ...] = (
    "evidence_paper1",
    "evidence_paper2",
    "evidence_paper3",
    "evidence_paper4",
    "evidence_truth",
    "evidence_operator",
    "evidence_planning",
    "evidence_peers",
    "evidence_scale",
)
"""The files of the sections, in the order of the page."""


def sections() -> list[Section]:
    return [import_module(f"tests.bench.{name}").SECTION for name in SECTIONS]


def write(listed: Sequence[Section], folder: Path) -> None:
    """The page and its pictures; pictures that no part has any more go. In docs, documents that quote figures are given the new ones."""
    files = written(listed, folder)
    (folder / "evidence").mkdir(parents=True, exist_ok=True)
    for old in (folder / "evidence").glob("*.svg"):
        if f"evidence/{old.name}" not in files:
            old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if folder == ROOT / "docs":
        known = quotable(folder / "evidence")
        for document in (ROOT / "README.md", *folder.glob("*.md")):
            text = document.read_text(encoding="utf-8")
            if (new := renewed(text, known)) != text:
                document.write_text(new, encoding="utf-8")


def run(section: Section, part: Part, quick: bool, folder: Path) -> bool:
    """Run it and keep what it found; whether it ended well. One that fails is kept as not run, with what it failed with."""
    size = QUICK if quick else FULL
    command = f"python -m tests.bench.report{' --quick' if quick else ''} --only {section.name}.{part.name}"
    load_before, began, at = os.getloadavg()[0], _cpu(), time.monotonic()
    findings, missing, well = None, "", True
    try:
        findings = part.run(quick)
    except NotAtHandError as error:
        missing = str(error)
    except Exception as error:
        traceback.print_exc()
        missing, well = f"it failed ({type(error).__name__})", False
    seconds = round(time.monotonic() - at, 1)
    kept = Kept(findings, missing, size, command, this_machine(), load_before, round(_cpu() - began, 1), this_commit(), seconds)
    save(folder / "evidence", section.name, load(folder / "evidence", section.name) | {part.name: kept})
    return well


def _cpu() -> float:
    """CPU seconds of this process and of those that it has ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _progress(quick: bool) -> Path:
    """The parts that this run, which may have been broken off, has ended: one a line."""
    return BUILD / f"{QUICK if quick else FULL}.done"


def _wanted(listed: Sequence[Section], only: Iterable[str]) -> list[tuple[Section, Part]]:
    every = [(section, part) for section in listed for part in section.parts]
    names = set(only)
    unknown = names - {section.name for section, _ in every} - {f"{section.name}.{part.name}" for section, part in every}
    if unknown:
        raise SystemExit(f"no such section or part: {', '.join(sorted(unknown))}; --list names them")
    return [(s, p) for s, p in every if not names or s.name in names or f"{s.name}.{p.name}" in names]


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.report")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="SECTION[.PART]")
    parser.add_argument("--redraw", action="store_true")
    parser.add_argument("--into", type=Path)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(list(arguments))
    listed = sections()
    folder = (given.into or (BUILD if given.quick else ROOT / "docs")).resolve()
    wanted = _wanted(listed, given.only)
    if given.list:
        print("\n".join(f"{section.name}.{part.name}: {part.title}" for section, part in wanted))
        return
    failed = 0
    if not given.redraw:
        done = _progress(given.quick)
        ended = done.read_text(encoding="utf-8").split() if done.exists() and not given.only else []
        BUILD.mkdir(parents=True, exist_ok=True)
        for section, part in wanted:
            name = f"{section.name}.{part.name}"
            if name in ended:
                print(f"== {name}: ran before", flush=True)
                continue
            print(f"== {name}: {part.title}", flush=True)
            began = time.monotonic()
            well = run(section, part, given.quick, folder)
            failed += not well
            print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
            write(listed, folder)
            if well and not given.only:
                with done.open("a", encoding="utf-8") as file:
                    file.write(f"{name}\n")
        if not given.only and not failed:
            done.unlink(missing_ok=True)
    else:
        for section in listed:
            kept = load(folder / "evidence", section.name)
            by_name = {part.name: part for part in section.parts}
            if kept:
                save(folder / "evidence", section.name, {name: retold(by_name[name], one) for name, one in kept.items() if name in by_name})
    write(listed, folder)
    print(f"written: {folder / 'evidence.md'}")
    if failed:
        raise SystemExit(f"{failed} parts failed")


if __name__ == "__main__":
    main(sys.argv[1:])
