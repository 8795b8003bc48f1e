#!/usr/bin/env python3
"""Draw what Prometheus has answered to the queries of the chart's dashboard, as an SVG.

    python scripts/draw_dashboard.py ANSWERS.json PICTURE.svg

ANSWERS.json: of each panel its title, unit and series, each with a name and pairs of seconds and values. Grafana draws
more; this is to see, without one, that the dashboard lives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

COLUMNS, WIDTH, HEIGHT, GAP = 3, 330, 150, 10
_TOP, _BOTTOM, _LEFT = 30, 34, 10
_COLOURS = (
    "#1f6fb4",
    "#e07b00",
    "#2e8b57",
    "#c0392b",
    "#7d5ba6",
    "#8c6d46",
    "#d4689f",
    "#5f6a6a",
    "#a8a100",
    "#16a2b8",
)
_NAMES = 3
"""Series that a panel names: the largest."""

_LETTERS = 48
"""Of their names together; what is longer leaves the panel."""


def main(words: list[str]) -> int:
    panels = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    Path(words[1]).write_text(draw(panels), encoding="utf-8")
    return 0


def draw(panels: list[dict[str, Any]]) -> str:
    """The picture of all panels, from left to right."""
    rows = -(-len(panels) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{width}" height="{height}" fill="#f4f5f7"/>',
    ]
    last = max((second for panel in panels for second, _ in _points(panel)), default=0.0) or 1.0
    for number, panel in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts += [
            f'<g transform="translate({GAP + column * (WIDTH + GAP)} {GAP + row * (HEIGHT + GAP)})">',
            *_panel(panel, last),
            "</g>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _points(panel: dict[str, Any]) -> list[tuple[float, float]]:
    return list(chain.from_iterable(each["values"] for each in panel["series"]))


def _panel(panel: dict[str, Any], last: float) -> list[str]:
    """`last`: the second at which all panels end."""
    most = max((value for _, value in _points(panel)), default=0.0)

    def place(second: float, value: float) -> str:
        x = _LEFT + second / last * (WIDTH - 2 * _LEFT)
        y = HEIGHT - _BOTTOM - value / (most or 1.0) * (HEIGHT - _TOP - _BOTTOM)
        return f"{x:.0f},{y:.0f}"

    return [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="4" fill="#fff" stroke="#d5d8dc"/>',
        f'<text x="{_LEFT}" y="16" font-size="12" font-weight="bold">{escape(panel["title"])}</text>',
        f'<text x="{WIDTH - _LEFT}" y="16" text-anchor="end" fill="#555">up to {_words(most, panel["unit"])}, '
        f"{last:.0f} s</text>",
        f'<path d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _LEFT}" stroke="#d5d8dc"/>',
        *_lines(panel["series"], place),
    ]


def _lines(series: list[dict[str, Any]], place: Callable[[float, float], str]) -> list[str]:
    lines, names, letters = [], [], 0
    largest_first = sorted(series, key=lambda each: -max((value for _, value in each["values"]), default=0.0))
    for number, each in enumerate(largest_first):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(place(second, value) for second, value in each["values"])
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        letters += len(each["name"])
        if number < _NAMES and letters <= _LETTERS:
            names.append(f'<tspan fill="{colour}" dx="{8 * bool(number)}">{escape(each["name"])}</tspan>')
    left = len(series) - len(names)
    more = f'<tspan dx="8">and {left} more</tspan>' if left else ""
    return [*lines, f'<text x="{_LEFT}" y="{HEIGHT - 12}">{"".join(names)}{more}</text>']


def _words(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value:.3g} s"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}{'B' if unit == 'bytes' else ''}"
    return f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
