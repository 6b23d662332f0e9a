"""Charts as SVG: axes, ticks, a legend, nothing else. One file serves light and dark pages, and is read at a phone's width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

__all__ = ["Chart", "bars_of", "line_chart", "svg_of"]

# Small enough that text is still read where the picture is shrunk to the width of a phone.
WIDTH, PLOT = 460, 260
LEFT, RIGHT, TOP, BELOW = 62, 14, 34, 46
LEGEND, LEGEND_COLUMNS = 20, 2
FEW = 20.0  # times the least value: below, the axis along is linear even where the other is logarithmic
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f", "#e377c2", "#bcbd22")
# The same hues, lighter: on a dark page the others are hard to tell apart.
DARK = ("#6cb4ee", "#ff7b72", "#7ee787", "#d2a8ff", "#ffa657", "#56d4dd", "#d4a58a", "#b1bac4", "#ff9bce", "#e3e37a")
DASHES = ("", "6 3", "2 2", "8 3 2 3")


@dataclass(frozen=True)
class Chart:
    """What is drawn. Every series is a list of (x, y) in the order to be drawn."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Sequence[float]]]
    note: str = ""
    markers: bool = False
    lines: bool = True
    log: bool = False
    diagonal: bool = False


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from low to high."""
    raw = (high - low) / 5 or 1.0
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= raw)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Axis:
    """From data to the picture; `log` takes powers of ten as its ticks."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float, log: bool, from_zero: bool) -> Axis:
        if log:
            low, high = float(math.floor(math.log10(min(values)))), float(math.ceil(math.log10(max(values))))
        else:
            low, high = (min(0.0, *values) if from_zero else min(values)), max(values)
        return cls(low, high if high > low else low + 1.0, start, end, log)

    def at(self, value: float) -> float:
        place = math.log10(value) if self.log else value
        return self.start + (place - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        return [10.0**k for k in range(round(self.low), round(self.high) + 1)] if self.log else _ticks(self.low, self.high)


def _style() -> str:
    def colours(listed: Sequence[str]) -> str:
        return "".join(f".s{k}{{stroke:{colour}}}.d{k}{{fill:{colour}}}" for k, colour in enumerate(listed))

    light = "text{fill:#1f2328}.page{fill:#fff}.grid{stroke:#e5e7ea}.axis{stroke:#1f2328}" + colours(COLOURS)
    dark = "text{fill:#e6edf3}.page{fill:#0d1117}.grid{stroke:#2d333b}.axis{stroke:#e6edf3}" + colours(DARK)
    return f"<style>{light}@media (prefers-color-scheme: dark){{{dark}}}</style>"


def _number(value: float) -> str:
    """At a tick, short enough to stand left of the axis.

    >>> [_number(value) for value in (0.2, 800.0, 1000.0, 30_000.0, 2_500_000.0, 4e9)]
    ['0.2', '800', '1,000', '30k', '2.5M', '4G']
    """
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 10_000 <= abs(value) < 1e12 and abs(value) >= unit:
            return f"{value / unit:g}{sign}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 10_000 and value == round(value) else f"{value:g}"


def svg_of(chart: Chart) -> str:
    """The picture's text; the same chart gives the same bytes."""
    points = [point for line in chart.series.values() for point in line if math.isfinite(point[1]) and (not chart.log or min(point) > 0.0)]
    if not points:
        points = [(1.0, 1.0)]
    rows = -(-len(chart.series) // LEGEND_COLUMNS)
    height = TOP + PLOT + BELOW + LEGEND * rows + (16 if chart.note else 4)
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    if chart.diagonal:
        xs = ys = [*xs, *ys]
    # Powers of ten say little of an axis that spans few of them.
    across = Axis.of(xs, LEFT, WIDTH - RIGHT, chart.log and (chart.diagonal or max(xs) > FEW * min(xs)), False)
    up = Axis.of(ys, TOP + PLOT, TOP, chart.log, True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(chart.title)}</title>",
        _style(),
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text x="8" y="21" font-size="14" font-weight="bold">{escape(chart.title)}</text>',
    ]
    for x in across.ticks:
        parts.append(f'<path class="grid" d="M{across.at(x):.1f} {TOP}V{TOP + PLOT}"/>')
        parts.append(f'<text x="{across.at(x):.1f}" y="{TOP + PLOT + 17}" text-anchor="middle">{_number(x)}</text>')
    for y in up.ticks:
        parts.append(f'<path class="grid" d="M{LEFT} {up.at(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up.at(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{TOP + PLOT}H{WIDTH - RIGHT}" fill="none"/>')
    if chart.diagonal:
        parts.append(f'<path class="axis" d="M{LEFT} {TOP + PLOT}L{WIDTH - RIGHT} {TOP}" fill="none" stroke-dasharray="3 3"/>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{TOP + PLOT + 37}" text-anchor="middle">{escape(chart.x)}</text>')
    middle = TOP + PLOT / 2
    parts.append(f'<text x="13" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 13 {middle:.0f})">{escape(chart.y)}</text>')
    for number, (name, line) in enumerate(chart.series.items()):
        parts += _series(chart, number, name, [(across.at(x), up.at(y)) for x, y in line if math.isfinite(y) and (not chart.log or min(x, y) > 0.0)])
    if chart.note:
        parts.append(f'<text x="8" y="{height - 6}" font-size="11">{escape(chart.note)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def bars_of(title: str, values: Mapping[str, float]) -> str:
    """A bar for each value, its name and the value above it; the same values give the same bytes."""
    each, most = 36, max([*values.values(), 0.0]) or 1.0
    height = TOP + each * len(values) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        _style(),
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text x="8" y="21" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(values.items()):
        top = TOP + each * number
        said = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        parts.append(f'<text x="8" y="{top + 13}">{escape(name)}: {said}</text>')
        parts.append(f'<rect class="d{number % len(COLOURS)}" x="8" y="{top + 18}" width="{(WIDTH - 22) * value / most:.1f}" height="11"/>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _series(chart: Chart, number: int, name: str, drawn: Sequence[tuple[float, float]]) -> list[str]:
    """A line or its points, and its place in the legend below the plot."""
    colour, dash = number % len(COLOURS), DASHES[number // len(COLOURS) % len(DASHES)]
    parts = []
    if chart.lines:
        route = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        parts.append(f'<polyline class="s{colour}" points="{route}" fill="none" stroke-width="2" stroke-dasharray="{dash}"/>')
    if chart.markers or not chart.lines:
        parts += [f'<circle class="d{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in drawn]
    left = 14 + (number % LEGEND_COLUMNS) * (WIDTH - 14) // LEGEND_COLUMNS
    height = TOP + PLOT + BELOW + LEGEND * (number // LEGEND_COLUMNS) + 8
    parts.append(f'<path class="s{colour}" d="M{left} {height}h22" stroke-width="3" stroke-dasharray="{dash}"/>')
    parts.append(f'<text x="{left + 28}" y="{height + 4}">{escape(name)}</text>')
    return parts


def line_chart(
    path: Path, title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]], note: str = "", markers: bool = False
) -> Path:
    """Write a chart of lines and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(svg_of(Chart(title, x_label, y_label, series, note, markers)), encoding="utf-8")
    return path
