"""Figures that documents quote from the report: a figure is followed by an invisible comment that names it, `0.97<!-- truth.spearman -->`.

`make report` writes the figures of its JSON over those in the documents; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.bench.evidence import load

__all__ = ["quotable", "quotes_in", "renewed", "section_of", "untagged"]

QUOTE = re.compile(r"([^\s(]+)<!-- (\w+\.\w+) -->")


def quotable(folder: Path) -> dict[str, str]:
    """By name (section.figure) all figures that the JSON below `folder` offers."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        for part in load(folder, path.stem).values():
            found |= {f"{path.stem}.{name}": text for name, text in (part.findings.quoted if part.findings else {}).items()}
    return found


def quotes_in(text: str) -> list[tuple[str, str]]:
    """(name, figure) of every quotation."""
    return [(name, figure) for figure, name in QUOTE.findall(text)]


def section_of(text: str, title: str) -> str:
    """What stands below a heading of the second level."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def untagged(text: str) -> list[str]:
    """Numbers that no figure of the report stands for."""
    return re.findall(r"\d+(?:[.,]\d+)*", QUOTE.sub("", text))


def renewed(text: str, known: Mapping[str, str]) -> str:
    """The text with today's figures; those that are not known stay as they are."""
    return QUOTE.sub(lambda match: f"{known.get(match[2], match[1])}<!-- {match[2]} -->", text)
