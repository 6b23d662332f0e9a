"""What a section of the report is made of: plain data, kept as JSON, from which the page is written.

A section is a file beside this one, `evidence_*.py`, with a `SECTION`; its parts are run one by one, and what each found is kept as soon as it has
ended. A part says what the paper or peer says, what comes out here, and its verdict; nothing on the page comes from anywhere else.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = [
    "AGREES",
    "DIFFERS",
    "IN_KIND",
    "Claim",
    "Figure",
    "Findings",
    "Kept",
    "NotAtHandError",
    "Part",
    "Section",
    "Table",
    "judged",
    "kept_of",
    "line",
    "retold",
    "this_commit",
    "told",
]

AGREES, IN_KIND, DIFFERS = "agrees", "agrees in kind", "differs"
NUMBERS = re.compile(r"\[\n\s+([-+.,\d\seE]+?)\n\s+\]")
DIGITS = 6  # of a point in a figure: more cannot be seen


class NotAtHandError(Exception):
    """What a part needs is not on this machine; the page says so."""


@dataclass(frozen=True)
class Claim:
    """What the paper, the peer or the aim says, what comes out here, and the verdict."""

    says: str
    found: str
    verdict: str


@dataclass(frozen=True)
class Table:
    """Few and narrow columns: the page is read on phones too."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A picture: lines, points alone, or bars. `diagonal`: with the line on which both axes are the same."""

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Sequence[float]]]
    points: bool = False
    log: bool = False
    diagonal: bool = False
    bars: bool = False
    """A bar for each series, as long as its first y."""


@dataclass(frozen=True)
class Findings:
    """What one part found."""

    claims: Sequence[Claim] = ()
    settings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    quoted: Mapping[str, str] = field(default_factory=dict)
    """Figures that other documents may quote, as they are written there."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers that all of this was told from, by parts that can be told again from them (`Part.tell`)."""


@dataclass(frozen=True)
class Part:
    """One experiment. `run(quick)` does it. Of a part with `tell` that has kept its numbers, text, tables and pictures are made from them anew when
    the page is drawn again, so that they say what today's code says of them."""

    name: str
    title: str
    run: Callable[[bool], Findings]
    tell: Callable[[Mapping[str, Any]], Findings] | None = None


@dataclass(frozen=True)
class Section:
    """A file's parts."""

    name: str
    title: str
    about: str
    parts: Sequence[Part]
    rules: str = ""
    """From where on its verdicts are *agrees* and *agrees in kind*."""


@dataclass(frozen=True)
class Kept:
    """A part as it lies in the JSON: what was found, or why nothing was, and where and how it ran."""

    findings: Findings | None
    missing: str
    size: str
    command: str
    machine: str
    load: float
    """Of the machine when the part began: processes that wanted a core."""
    cpu_seconds: float
    commit: str
    seconds: float | None = None
    """By the clock; none of parts that were run before it was kept."""


def judged(says: str, found: str, holds: bool, otherwise: str = DIFFERS) -> Claim:
    return Claim(says, found, AGREES if holds else otherwise)


def line(points: Iterable[tuple[float, float]]) -> list[list[float]]:
    """Points of a figure, without those that do not exist."""
    return [[float(f"{x:.{DIGITS}g}"), float(f"{y:.{DIGITS}g}")] for x, y in points if math.isfinite(x) and math.isfinite(y)]


def told(tell: Callable[[Mapping[str, Any]], Findings], data: Mapping[str, Any]) -> Findings:
    """What is told from these numbers, with the numbers, as they will be read again. `restored` among them says that they are not the run's own but
    were found in what it wrote, and how; the page says so, too."""
    plain = json.loads(json.dumps(data, allow_nan=False))
    found = tell(plain)
    restored = [plain["restored"]] if "restored" in plain else []
    return replace(found, notes=[*found.notes, *restored], data=plain)


def retold(part: Part, kept: Kept) -> Kept:
    """The same numbers in today's words, where they are kept and can be told again."""
    if part.tell is None or kept.findings is None or not kept.findings.data:
        return kept
    return replace(kept, findings=told(part.tell, kept.findings.data))


def kept_of(document: Mapping[str, Any]) -> Kept:
    found = document["findings"]
    if found is None:
        return Kept(**document)
    findings = Findings(
        [Claim(**claim) for claim in found["claims"]],
        found["settings"],
        [Table(**table) for table in found["tables"]],
        [Figure(**figure) for figure in found["figures"]],
        found["notes"],
        found["quoted"],
        found.get("data", {}),
    )
    return Kept(**{**document, "findings": findings})


def load(folder: Path, section: str) -> dict[str, Kept]:
    """The parts of a section that have been kept."""
    path = folder / f"{section}.json"
    return {name: kept_of(part) for name, part in json.loads(path.read_text(encoding="utf-8")).items()} if path.exists() else {}


def save(folder: Path, section: str, parts: Mapping[str, Kept]) -> None:
    """All parts of a section, over what was there, or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{section}.json.draft"
    text = json.dumps({name: asdict(part) for name, part in parts.items()}, ensure_ascii=False, indent=1, allow_nan=False)
    text = NUMBERS.sub(lambda match: "[" + " ".join(match[1].split()) + "]", text)  # a list of numbers alone takes one line
    draft.write_text(text + "\n", encoding="utf-8")
    draft.rename(folder / f"{section}.json")


def this_machine() -> str:
    """Processor, cores, memory and versions; nothing that names the machine."""
    model = platform.machine()
    for entry in _lines(Path("/proc/cpuinfo")):
        if entry.startswith("model name"):
            model = entry.split(":", 1)[1].strip()
            break
    kilobytes = next((float(entry.split()[1]) for entry in _lines(Path("/proc/meminfo")) if entry.startswith("MemTotal")), 0.0)
    packages = ", ".join(f"{name} {version(name)}" for name in ("numba", "polars", "duckdb", "pyspark"))
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {kilobytes / 2**20:.0f} GiB, {platform.system()}, Python {platform.python_version()}, {packages}{_java()}"


def _java() -> str:
    """Of the Java that Spark and Flink run on."""
    home = os.environ.get("JAVA_HOME")
    try:
        run = subprocess.run([f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    found = re.search(r'version "([^"]+)"', run.stderr + run.stdout)
    return f", Java {found[1]}" if found else ""


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def this_commit() -> str:
    """Of the code that is run, and whether that was changed since; empty outside a clone. What the report writes itself does not count."""
    root = Path(__file__).parent.parent.parent
    try:
        head, changed = (
            subprocess.run(["git", *command], capture_output=True, text=True, check=True, cwd=root).stdout.strip()
            for command in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "--untracked-files=no", "--", "*.py", "*.toml"))
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{head} with uncommitted changes" if changed else head
