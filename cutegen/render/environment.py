"""The only Jinja2 environment: a hole without a value is an error, and blocks leave no blank lines."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.support.resources import templates_dir


@cache
def environment() -> Environment:
    """Return the environment of the shipped `templates/` directory."""
    made = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Python, not HTML
    )
    made.globals["smem_align_bytes"] = BANK_ROW_BYTES  # where stages begin
    return made
