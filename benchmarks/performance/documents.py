"""Where the figures go: blocks between markers in the documents, and the file that they are kept in."""

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
"""Devices that have a file and a page of their own, by what is in their names; all others share the first."""

_BLOCK = re.compile(r"(<!-- performance: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, figures: Figures) -> str:
    """The document with what stands between each pair of markers written anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](figures)}\n\n{match[3]}", text)


def asked_for(text: str) -> list[str]:
    """The blocks that a document has markers for."""
    return [match[2] for match in _BLOCK.finditer(text)]


def place(device: str) -> tuple[Path, tuple[Path, ...]]:
    """Where the figures of a device are kept, and the documents that have its tables."""
    return next((found for name, found in OF_DEVICE.items() if name in device), (FIGURES, DOCUMENTS))


def write(figures: Figures) -> None:
    """Keep the figures, and write every table of their device's documents."""
    path, documents = place(figures.device)
    text = dumped(figures)
    path.write_text(text, encoding="utf-8")
    # The file rounds: tables are of what it keeps.
    kept = loaded(text)
    for document in documents:
        document.write_text(filled(document.read_text(encoding="utf-8"), kept), encoding="utf-8")
