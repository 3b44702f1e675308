"""What can be read off a picture: where things lie, whether they overlap, and which row and column a box is in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from cutegen.show.canvas import Box, Picture, Text
from cutegen.show.canvas.drawing import label_lines, text_width

Rectangle = tuple[float, float, float, float]
EPSILON = 1e-6


def boxes(picture: Picture) -> list[Box]:
    return [item for item in picture.items if isinstance(item, Box)]


def labeled(picture: Picture) -> list[Box]:
    return [box for box in boxes(picture) if box.lines]


def texts(picture: Picture) -> Iterator[Text]:
    """Every line of text, those in boxes included."""
    for item in picture.items:
        if isinstance(item, Text):
            yield item
        elif isinstance(item, Box):
            yield from label_lines(item)


def text_rectangle(text: Text) -> Rectangle:
    """(left, top, right, bottom), a monospaced font assumed whose letters fill 0.8 em of a line."""
    width = text_width(text.text, text.size_px)
    left = text.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.align] * width
    half = 0.4 * text.size_px
    return left, text.y - half, left + width, text.y + half


def rectangle(box: Box) -> Rectangle:
    return box.x, box.y, box.x + box.width, box.y + box.height


def overlapping(rectangles: Iterable[Rectangle]) -> list[tuple[int, int]]:
    """Pairs of rectangles that share more than an edge."""
    corners = np.array(list(rectangles)).reshape(-1, 4)
    order = np.argsort(corners[:, 1])
    left, top, right, bottom = corners[order].T
    pairs = []
    for i, end in enumerate(np.searchsorted(top, bottom - EPSILON)):
        later = slice(i + 1, max(i + 1, end))  # those that begin above the lower edge of this one
        together = (left[later] < right[i] - EPSILON) & (right[later] > left[i] + EPSILON)
        pairs += [(int(order[i]), int(order[i + 1 + found])) for found in np.flatnonzero(together)]
    return [(min(pair), max(pair)) for pair in pairs]


def inside(inner: Rectangle, outer: Rectangle) -> bool:
    return (
        inner[0] >= outer[0] - EPSILON
        and inner[1] >= outer[1] - EPSILON
        and inner[2] <= outer[2] + EPSILON
        and inner[3] <= outer[3] + EPSILON
    )


def by_place(picture: Picture, keep: Callable[[Box], bool] = lambda _: True) -> dict[tuple[int, int], Box]:
    """The labeled boxes of a picture with one grid, by row and column counted from what is drawn."""
    found = [box for box in labeled(picture) if keep(box)]
    rows = sorted({round(box.y, 3) for box in found})
    columns = sorted({round(box.x, 3) for box in found})
    places = {(rows.index(round(box.y, 3)), columns.index(round(box.x, 3))): box for box in found}
    assert len(places) == len(found), "two boxes at one place"
    return places
