"""A picture as LaTeX: a standalone document of TikZ commands, like those of CuTe's print_latex."""

from collections.abc import Iterator

from cutegen.show.canvas.drawing import BLACK, Align, Box, Item, Outline, Picture, Text, channels, ink, label_lines

_BP_PER_PX = 0.75
_SPECIAL = "\\{}$&#%_~^"
_ANCHORS: dict[Align, str] = {"start": "west", "middle": "center", "end": "east"}


def to_latex(picture: Picture, title: str) -> str:
    """Return one document; `pdflatex` makes a page of the picture's size from it."""
    fills = sorted({item.fill for item in picture.items if isinstance(item, Box)})
    lines = [
        f"% {title}",
        r"\RequirePackage{fix-cm}  % fonts of any size",
        r"\documentclass[tikz]{standalone}",
        *(rf"\definecolor{{{_name(fill)}}}{{RGB}}{{{','.join(map(str, channels(fill)))}}}" for fill in fills),
        r"\begin{document}\frenchspacing",
        rf"\begin{{tikzpicture}}[x={_BP_PER_PX}bp, y=-{_BP_PER_PX}bp, every node/.style={{inner sep=0pt}}]",
        rf"\path[use as bounding box] (0,0) rectangle ({picture.width:.2f},{picture.height:.2f});",
        *(line for item in picture.items for line in _commands(item)),
        r"\end{tikzpicture}",
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def _commands(item: Item) -> Iterator[str]:
    match item:
        case Box():
            yield rf"\filldraw[draw=white, fill={_name(item.fill)}] {_rectangle(item)};"
            yield from (_node(line, color=ink(item.fill)) for line in label_lines(item))
        case Outline():
            yield rf"\draw[line width=1bp] {_rectangle(item)};"
        case Text():
            yield _node(item)


def _node(text: Text, *, color: str = BLACK) -> str:
    # Computer Modern Typewriter is 0.525 em wide, narrower than the boxes assume.
    size = f"{text.size_px * _BP_PER_PX:.1f}bp"
    weight = r"\bfseries" if text.bold else ""
    font = rf"\ttfamily{weight}\fontsize{{{size}}}{{{size}}}\selectfont"
    options = f"anchor={_ANCHORS[text.align]}, text={'black' if color == BLACK else 'white'}, font={font}"
    return rf"\node[{options}] at ({text.x:.2f},{text.y:.2f}) {{{_escaped(text.text)}}};"


def _escaped(text: str) -> str:
    r"""Escape `text` for LaTeX; Computer Modern Typewriter has ASCII at the ASCII codes.

    >>> print(_escaped("50% of A_1"))
    50{\char37} of A{\char95}1
    """
    return "".join(rf"{{\char{ord(character)}}}" if character in _SPECIAL else character for character in text)


def _rectangle(item: Box | Outline) -> str:
    return f"({item.x:.2f},{item.y:.2f}) rectangle ({item.x + item.width:.2f},{item.y + item.height:.2f})"


def _name(fill: str) -> str:
    return "c" + fill.removeprefix("#")
