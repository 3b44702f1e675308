"""The only Jinja2 environment, and the points of a skeleton, which the parts of a kernel fill.

A template says `{% at point %}` on a line of its own. There stands the text that the kernel's parts have for this
point: every file of `parts`, in order, may have a `{% block point %}`. A part's text is written from column 0 and
takes the indentation of its point. A part may have points itself. The part "file#name" is the block `name` of a file
with many functions, for the point `functions`. A hole without a value is an error, and blocks leave no blank lines.

    skeleton                          a part                       another
    for tile in ...:                  {% block tile %}             {% block tile %}
        {% at tile %}                 due = cute.arch.clock()      begin = first_k_tile
                                      {% endblock %}               {% endblock %}
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, pass_context
from jinja2.ext import Extension
from jinja2.runtime import Context

from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.render.python_text import within_width
from cutegen.support.resources import templates_dir

POINT = re.compile(r"^( *)\{% at ([a-z_]+) %\}\n", re.MULTILINE)
"""A point: its indentation and its name."""
LINE_WITH_TEXT = re.compile(r"^(?=[^\S\n]*\S)", re.MULTILINE)
"""The beginning of a line that is not empty."""
FUNCTIONS, FUNCTION = "functions", "#"
"""The point of a kernel's functions, and what separates a file from the name of one of them."""


class Points(Extension):
    """Replaces a line with a point by the text of the parts, or by nothing."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source with a call in place of each point."""
        return POINT.sub(lambda found: f'{{{{ at("{found[2]}", {len(found[1])}) }}}}', source)


Block = Callable[[Context], Iterator[str]]


@pass_context
def at(context: Context, point: str, indent: int) -> str:
    """Return the text of all `parts` at a point, each line so far indented, empty ones excepted."""
    found = _blocks(context["parts"]).get(point, ())
    texts = ("".join(block(part.new_context(context.get_all(), shared=True))) for part, block in found)
    return LINE_WITH_TEXT.sub(" " * indent, "".join(texts)) if indent else "".join(texts)


@lru_cache(maxsize=64)
def _blocks(parts: tuple[str, ...]) -> Mapping[str, Sequence[tuple[Template, Block]]]:
    """Return the blocks of all parts by the points that they are for, in the order of the parts."""
    found: dict[str, list[tuple[Template, Block]]] = {}
    for part in parts:
        name, _, function = part.partition(FUNCTION) if "\n" not in part else (part, "", "")
        template = template_of(name)
        blocks = {FUNCTIONS: template.blocks[function]} if function else template.blocks
        for point, block in blocks.items():
            found.setdefault(point, []).append((template, block))
    return found


@cache
def environment() -> Environment:
    """Return the environment of the shipped `templates/` directory."""
    made = Environment(
        loader=FileSystemLoader(templates_dir()),
        extensions=[Points],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Python, not HTML
    )
    made.globals["smem_align_bytes"] = BANK_ROW_BYTES  # where stages begin
    made.globals["at"] = at
    return made


@cache
def template_of(name_or_text: str) -> Template:
    """Return a file of `templates/`, or a text of more than one line."""
    return environment().from_string(name_or_text) if "\n" in name_or_text else environment().get_template(name_or_text)


def rendered(skeleton: str, holes: Mapping[str, Any]) -> str:
    """Return a skeleton with its holes filled; `holes["parts"]` are the files that have text for its points."""
    return within_width(template_of(skeleton).render(holes))
