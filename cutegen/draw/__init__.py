"""Pictures of layouts and plans: one value of boxes and texts, written as SVG, LaTeX or PNG."""

from __future__ import annotations

from cutegen.draw.copies import g2s, s2r
from cutegen.draw.epilogue import epilogue
from cutegen.draw.latex import to_latex
from cutegen.draw.layout import layout
from cutegen.draw.mma import mma
from cutegen.draw.picture import Box, Outline, Picture, Text, framed
from cutegen.draw.png import to_png
from cutegen.draw.smem import smem
from cutegen.draw.svg import to_svg
from cutegen.draw.timeline import pipeline

__all__ = [
    "Box",
    "Outline",
    "Picture",
    "Text",
    "epilogue",
    "framed",
    "g2s",
    "layout",
    "mma",
    "pipeline",
    "s2r",
    "smem",
    "to_latex",
    "to_png",
    "to_svg",
]
