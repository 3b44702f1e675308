"""Where the figures go: blocks between markers in the documents, and the file that they are kept in."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.performance.figures import Figures
from benchmarks.performance.tables import BLOCKS

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "performance.json"
DOCUMENTS = (ROOT / "docs" / "performance.md", ROOT / "README.md")

_BLOCK = re.compile(r"(<!-- performance: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, figures: Figures) -> str:
    """The document with what stands between each pair of markers written anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]](figures)}\n\n{match[3]}", text)


def asked_for(text: str) -> list[str]:
    """The blocks that a document has markers for."""
    return [match[2] for match in _BLOCK.finditer(text)]


def write(figures: Figures) -> None:
    """Every document's tables."""
    for path in DOCUMENTS:
        path.write_text(filled(path.read_text(encoding="utf-8"), figures), encoding="utf-8")
