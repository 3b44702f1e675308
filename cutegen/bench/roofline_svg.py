"""The roofline as plain SVG: operations per second over operations per byte, both logarithmic, ceilings as lines.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52 (2009).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Self

WIDTH, HEIGHT = 900, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 50, 60
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe and Ito's
DECADE = 10
LABEL_PITCH = 13


@dataclass(frozen=True, slots=True)
class Point:
    """One run: `intensity` in operations per byte."""

    series: str
    label: str
    intensity: float
    tflops: float


@dataclass(frozen=True, slots=True)
class Roof:
    """A horizontal ceiling."""

    label: str
    tflops: float


def attainable_tflops(intensity: float, roof_tflops: float, bytes_per_s: float) -> float:
    """Return the roofline's limit for so many operations per byte.

    >>> attainable_tflops(100, 600, 4e12), attainable_tflops(1000, 600, 4e12)
    (400.0, 600)
    """
    return min(roof_tflops, intensity * bytes_per_s / 1e12)


def roofline_svg(title: str, roofs: Sequence[Roof], bytes_per_s: float, points: Sequence[Point]) -> str:
    """Return the picture as a complete file; every point has its label as a tooltip."""
    axes = _Axes.around(roofs, bytes_per_s, points)
    series = list(dict.fromkeys(point.series for point in points))
    body = [
        f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>',
        *_grid(axes),
        *_roofs(axes, roofs, bytes_per_s),
        *(_dot(axes, point, _color(series.index(point.series))) for point in points),
        *_legend(series),
    ]
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Axes:
    """Whole decades: powers of ten from `low` to `high` of x (operations per byte) and y (TFLOP/s)."""

    x_low: int
    x_high: int
    y_low: int
    y_high: int

    @classmethod
    def around(cls, roofs: Sequence[Roof], bytes_per_s: float, points: Sequence[Point]) -> Self:
        """Return every point, and for each roof the point where the slope meets it."""
        xs = [point.intensity for point in points] + [_ridge(roof, bytes_per_s) for roof in roofs]
        ys = [point.tflops for point in points] + [roof.tflops for roof in roofs]
        return cls(*_decades(xs), *_decades(ys))

    def x(self, intensity: float) -> float:
        return LEFT + (math.log10(intensity) - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, tflops: float) -> float:
        share = (math.log10(tflops) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _ridge(roof: Roof, bytes_per_s: float) -> float:
    """Return the operations per byte from which the roof is the limit."""
    return roof.tflops * 1e12 / bytes_per_s


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _grid(axes: _Axes) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for power in range(axes.x_low, axes.x_high + 1):
        x = axes.x(DECADE**power)
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{DECADE**power:g}</text>'
    for power in range(axes.y_low, axes.y_high + 1):
        y = axes.y(DECADE**power)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{DECADE**power:g}</text>'
    yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 16}" text-anchor="middle">operations per compulsory byte</text>'
    middle = (TOP + bottom) / 2
    yield f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">TFLOP/s</text>'


def _roofs(axes: _Axes, roofs: Sequence[Roof], bytes_per_s: float) -> Iterator[str]:
    """Draw the slope up to the highest roof, clipped at the picture's edge, and each roof from the slope on."""
    highest = max(roofs, key=lambda roof: roof.tflops)
    lowest_x = max(10.0**axes.x_low, 10.0**axes.y_low / (bytes_per_s / 1e12))
    start = lowest_x, attainable_tflops(lowest_x, highest.tflops, bytes_per_s)
    yield _line(axes, start, (_ridge(highest, bytes_per_s), highest.tflops))
    yield _text(axes.x(start[0]) + 6, axes.y(start[1]) + 4, f"reading, {bytes_per_s / 1e12:.2f} TB/s")
    label_y = 0.0
    for roof in sorted(roofs, key=lambda roof: -roof.tflops):
        end = 10.0**axes.x_high, roof.tflops
        yield _line(axes, (_ridge(roof, bytes_per_s), roof.tflops), end)
        label_y = max(axes.y(roof.tflops) + 4, label_y + LABEL_PITCH)
        yield _text(axes.x(end[0]) + 6, label_y, f"{roof.label}, {roof.tflops:.0f}")


def _line(axes: _Axes, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = ((axes.x(x), axes.y(y)) for x, y in (start, end))
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="black" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11">{escape(text)}</text>'


def _dot(axes: _Axes, point: Point, color: str) -> str:
    said = escape(f"{point.series}, {point.label}: {point.tflops:.1f} TFLOP/s")
    x, y = axes.x(point.intensity), axes.y(point.tflops)
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}" fill-opacity="0.8"><title>{said}</title></circle>'


def _legend(series: Sequence[str]) -> Iterator[str]:
    for i, name in enumerate(series):
        y = HEIGHT - BOTTOM - 18 * (len(series) - i) + 9
        yield f'<circle cx="{WIDTH - RIGHT + 20}" cy="{y - 4}" r="5" fill="{_color(i)}"/>'
        yield f'<text x="{WIDTH - RIGHT + 32}" y="{y}">{escape(name)}</text>'


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]
