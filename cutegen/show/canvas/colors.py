"""Colors of banks, warps and pipeline actions, all light enough for black text."""

from __future__ import annotations

BLACK, WHITE, GRAY, PALE = "#000000", "#ffffff", "#d5d8dc", "#eef0f2"
MARK = "#22313f"  # a marked cell: dark, with white text
CONFLICT = "#9b1c1c"  # waits for a bank: dark, with white text

HUES = ("#56a3d9", "#f2a154", "#6cc08b", "#ec8a92", "#b397dc", "#e6c74c", "#e79cce", "#5fc4c4")
BANKS_PER_HUE = 4


def hue(index: int, shade: int = 0, shades: int = 1) -> str:
    """Return one of eight hues, in the `shade`-th of `shades` steps towards white."""
    return _lighter(HUES[index % len(HUES)], 0.7 * shade / shades)


def bank_color(bank: int) -> str:
    """Return the color of one of the 32 banks: a hue for the four banks of 16 bytes, and a shade for each.

    >>> bank_color(0), len({bank_color(bank) for bank in range(32)})
    ('#56a3d9', 32)
    """
    return hue(bank // BANKS_PER_HUE, bank % BANKS_PER_HUE, BANKS_PER_HUE)


def ink(fill: str) -> str:
    """Return black or white, whichever reads better on `fill` (WCAG 2, relative luminance).

    >>> ink("#56a3d9"), ink(MARK)
    ('#000000', '#ffffff')
    """
    return BLACK if contrast(fill, BLACK) >= contrast(fill, WHITE) else WHITE


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio, 1 to 21 (WCAG 2).

    >>> contrast("#ffffff", "#000000")
    21.0
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def channels(color: str) -> tuple[int, int, int]:
    """Return red, green and blue, 0 to 255.

    >>> channels("#56a3d9")
    (86, 163, 217)
    """
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _lighter(color: str, share: float) -> str:
    """Mix a color with so much white."""
    return "#" + "".join(f"{round(x + (255 - x) * share):02x}" for x in channels(color))


def _luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in channels(color))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
