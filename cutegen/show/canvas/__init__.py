"""Pictures as one value of boxes and texts, written as SVG, LaTeX or PNG."""

from cutegen.show.canvas.drawing import Box, Outline, Picture, Text, framed
from cutegen.show.canvas.latex import to_latex
from cutegen.show.canvas.png import to_png
from cutegen.show.canvas.svg import to_svg

__all__ = ["Box", "Outline", "Picture", "Text", "framed", "to_latex", "to_png", "to_svg"]
