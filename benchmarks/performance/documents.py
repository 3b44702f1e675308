"""The destinations of the figures: blocks between markers in the documents, and the JSON file of each device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.performance.figures import Figures, dumped, loaded
from benchmarks.performance.tables import BLOCKS

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "performance.json"
DOCUMENTS = (ROOT / "docs" / "performance.md", ROOT / "README.md")
OF_DEVICE: Mapping[str, tuple[Path, tuple[Path, ...]]] = {
    "H100": (ROOT / "docs" / "performance_h100.json", (ROOT / "docs" / "performance_h100.md",)),
}
"""Devices with their own file and page, keyed by a part of the device name. All others share the default."""

_BLOCK = re.compile(r"(<!-- performance: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, figures: Figures) -> str:
    """Return the document with the text between each pair of markers replaced."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](figures)}\n\n{match[3]}", text)


def asked_for(text: str) -> list[str]:
    """Return the names of the blocks that a document has markers for."""
    return [match[2] for match in _BLOCK.finditer(text)]


def place(device: str) -> tuple[Path, tuple[Path, ...]]:
    """Return the file that stores a device's figures, and the documents that show them."""
    return next((found for name, found in OF_DEVICE.items() if name in device), (FIGURES, DOCUMENTS))


def write(figures: Figures) -> None:
    """Store the figures, and write every table of the device's documents."""
    path, documents = place(figures.device)
    text = dumped(figures)
    path.write_text(text, encoding="utf-8")
    # The file rounds; the tables show the rounded values.
    kept = loaded(text)
    for document in documents:
        document.write_text(filled(document.read_text(encoding="utf-8"), kept), encoding="utf-8")
