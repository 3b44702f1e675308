"""Predicted and measured times of one problem's candidates as plain SVG, both logarithmic, with the diagonal."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Self

from cutegen.tuned.record import Record

SIDE, LEFT, TOP, RIGHT, BOTTOM = 560, 80, 56, 30, 60
OTHERS, FAVORITE, WINNER = "#56b4e9", "#0072b2", "#d55e00"  # Okabe and Ito's
ROOM = 1.08
"""Factor by which axes extend beyond the smallest and largest value."""
TICKS = 5


@dataclass(frozen=True, slots=True)
class _Point:
    name: str
    predicted_us: float
    low_us: float
    measured_us: float
    high_us: float
    color: str


def plot_svg(record: Record) -> str:
    """Return the picture as a complete file; a point's tooltip names its candidate, bars are quartiles."""
    points = _points(record)
    found = record.evidence
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIDE}" height="{SIDE}" viewBox="0 0 {SIDE} {SIDE}" '
        'font-family="sans-serif" font-size="12">'
    )
    title = f"{found.name} for {found.problem} on {found.device.name}"
    body = [
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        *_legend(),
    ]
    if points:
        axes = _Axes.around(points)
        body += [*axes.grid(found.decide_by), *(line for point in points for line in _marks(axes, point))]
    return "\n".join([head, *body, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Axes:
    """One range of microseconds for both axes, so that the diagonal marks exact predictions."""

    low_us: float
    high_us: float

    @classmethod
    def around(cls, points: list[_Point]) -> Self:
        values = [us for point in points for us in (point.predicted_us, point.low_us, point.high_us)]
        return cls(min(values) / ROOM, max(values) * ROOM)

    def share(self, us: float) -> float:
        return math.log(us / self.low_us) / math.log(self.high_us / self.low_us)

    def x(self, us: float) -> float:
        return LEFT + self.share(us) * (SIDE - LEFT - RIGHT)

    def y(self, us: float) -> float:
        return SIDE - BOTTOM - self.share(us) * (SIDE - TOP - BOTTOM)

    def grid(self, regime: str) -> Iterator[str]:
        bottom, right = SIDE - BOTTOM, SIDE - RIGHT
        for i in range(TICKS):
            us = self.low_us * (self.high_us / self.low_us) ** (i / (TICKS - 1))
            x, y = self.x(us), self.y(us)
            yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
            yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{us:.4g}</text>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{us:.4g}</text>'
        yield f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{TOP}" stroke="#999" stroke-dasharray="5 4"/>'
        yield f'<text x="{(LEFT + right) / 2}" y="{SIDE - 16}" text-anchor="middle">predicted, us</text>'
        middle = (TOP + bottom) / 2
        label = f"measured, us ({regime})"
        yield f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{label}</text>'


def _points(record: Record) -> list[_Point]:
    found, points = record.evidence, []
    for one in found.candidates:
        times = one.times(found.decide_by)
        if times is None or one.predicted_us is None:
            continue
        color = WINNER if one.name == found.winner else FAVORITE if one.name == found.favorite else OTHERS
        points.append(_Point(one.name, one.predicted_us, times.low_us, times.median_us, times.high_us, color))
    return sorted(points, key=lambda point: point.color != OTHERS)


def _marks(axes: _Axes, point: _Point) -> Iterator[str]:
    x, y = axes.x(point.predicted_us), axes.y(point.measured_us)
    low, high = axes.y(point.low_us), axes.y(point.high_us)
    said = f"{point.name}: {point.predicted_us:.4g} us predicted, {point.measured_us:.4g} us measured"
    yield f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{point.color}"/>'
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{point.color}"><title>{escape(said)}</title></circle>'


def _legend() -> Iterator[str]:
    rows = ((WINNER, "tuned"), (FAVORITE, "the model's selection"), (OTHERS, "other candidates"))
    for i, (color, text) in enumerate(rows):
        x = LEFT + 150 * i
        yield f'<circle cx="{x + 5}" cy="40" r="5" fill="{color}"/>'
        yield f'<text x="{x + 16}" y="44">{escape(text)}</text>'
