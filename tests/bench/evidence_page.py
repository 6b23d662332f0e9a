"""The page of evidence and its pictures, written from the kept JSON alone: the same JSON gives the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Figure, Findings, Kept, Part, Section, Table, load
from tests.bench.svg import Chart, bars_of, svg_of

__all__ = ["written"]

HEAD = """# Evidence

What the five papers, the peers and our own aims say, and what comes out here. This page and its pictures are written by `make report` from what it
measured, which is kept beside them in `docs/evidence/`; what was found is told from there, settings and aims from the code that runs. What was not
run is named as such.
*Agrees*: what the paper or peer says holds here. *Agrees in kind*: the direction is the same, the size is not. *Differs*: it does not hold, and the
text says what would have to. From where on a verdict is which:

"""
FULL, QUICK = "whole", "quick"


def written(sections: Sequence[Section], folder: Path) -> dict[str, str]:
    """By file name below `folder`: the page, and its pictures in `evidence/`. `folder` holds the JSON there, too."""
    kept = {section.name: load(folder / "evidence", section.name) for section in sections}
    machines = list(dict.fromkeys(part.machine for parts in kept.values() for part in parts.values() if part.findings))
    files: dict[str, str] = {}
    rules = [f"- {section.title}: {section.rules}" for section in sections if section.rules]
    lines = [HEAD + "\n".join(rules), "", *_summary(sections, kept)]
    for section in sections:
        lines += [f"## {section.title}", "", section.about, ""]
        for part in section.parts:
            lines += [f"### {part.title}", "", *_part(section, part, kept[section.name].get(part.name), machines)]
            found = kept[section.name].get(part.name)
            for figure in found.findings.figures if found and found.findings else ():
                files[f"evidence/{_file(section, figure)}"] = _picture(figure)
    lines += _taken(kept)
    lines += ["## Machines", "", *(f"{k}. {machine}" for k, machine in enumerate(machines, 1))] if machines else []
    return {"evidence.md": "\n".join(lines).rstrip() + "\n", **files}


def _summary(sections: Sequence[Section], kept: Mapping[str, Mapping[str, Kept]]) -> list[str]:
    lines = ["| | agrees | in kind | differs | not run |", "|---|---|---|---|---|"]
    for section in sections:
        found = [kept[section.name].get(part.name) for part in section.parts]
        verdicts = Counter(claim.verdict for part in found if part and part.findings for claim in part.findings.claims)
        missing = sum(1 for part in found if part is None or part.findings is None)
        counts = (verdicts[AGREES], verdicts[IN_KIND], verdicts[DIFFERS], missing)
        lines.append(f"| [{section.title}](#{_anchor(section.title)}) | " + " | ".join(str(n) if n else "" for n in counts) + " |")
    return [*lines, ""]


def _taken(kept: Mapping[str, Mapping[str, Kept]]) -> list[str]:
    """How long the parts took, whole and quick ones apart; a part that was not timed is counted as such."""
    lines = []
    for size in (FULL, QUICK):
        parts = [part for listed in kept.values() for part in listed.values() if part.size == size and part.findings]
        times = [part.seconds for part in parts if part.seconds is not None]
        if parts:
            untimed = f"; {len(parts) - len(times)} were not timed" if len(times) < len(parts) else ""
            lines.append(f"- {size} runs: {len(parts)} parts, {sum(times) / 60:.0f} minutes by the clock{untimed}")
    return ["## How long it takes", "", *lines, ""] if lines else []


def _anchor(title: str) -> str:
    """As GitHub makes them."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def _part(section: Section, part: Part, kept: Kept | None, machines: Sequence[str]) -> list[str]:
    if kept is None or kept.findings is None:
        return [f"**Not run**: {kept.missing if kept else 'nothing is kept of it'}.", ""]
    found = kept.findings
    lines = [f"- **{claim.verdict.capitalize()}.** Said: {claim.says} Here: {claim.found}" for claim in found.claims]
    lines += [""] if lines else []
    for figure in found.figures:
        lines += [f"![{figure.title}](evidence/{_file(section, figure)})", ""]
    for table in found.tables:
        lines += _table(table)
    for note in found.notes:
        lines += [note, ""]
    return [*lines, *_circumstances(found, kept, machines)]


def _circumstances(found: Findings, kept: Kept, machines: Sequence[str]) -> list[str]:
    lasted = "" if kept.seconds is None else f"{kept.seconds:.0f} s, "
    used = f"load {kept.load:.1f} at its start, {lasted}{kept.cpu_seconds:.0f} s of CPU"
    place = f"machine {machines.index(kept.machine) + 1}, {used}, commit {kept.commit}"
    settings = " ".join(found.settings)
    return [f"*Settings ({kept.size} run):* {settings} *Command:* `{kept.command}`. *Where:* {place}.", ""]


def _table(table: Table) -> list[str]:
    head = [f"**{table.title}**", ""] if table.title else []
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    return [*head, "| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns), *rows, ""]


def _file(section: Section, figure: Figure) -> str:
    return f"{section.name}-{figure.name}.svg"


def _picture(figure: Figure) -> str:
    if figure.bars:
        return bars_of(figure.title, {name: points[0][1] for name, points in figure.series.items() if points})
    chart = Chart(figure.title, figure.x, figure.y, figure.series, markers=True, lines=not figure.points, log=figure.log, diagonal=figure.diagonal)
    return svg_of(chart)
