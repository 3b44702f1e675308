"""A spec as the table that its file would be: what was given, and nothing that was left open."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

from cutegen.spec.load import load_spec, shipped_specs
from cutegen.spec.model import GemmSpec
from cutegen.spec.schema import Part, keys_of
from cutegen.support.typed_json import is_line


def spec_table(part: Part) -> dict[str, Any]:
    """The keys of a spec, or of one of its tables, that are not left out; `spec_of_table` reads them back.

    >>> from cutegen.spec import load_spec
    >>> spec_table(load_spec("sm80_hgemm_tn"))["tile"]
    {'cta': (128, 128, 64), 'stages': 3}
    """
    defaults = {field.name: field.default for field in fields(part)}  # type: ignore[arg-type]  # every Part is one
    table: dict[str, Any] = {}
    for key in keys_of(type(part)):
        value = getattr(part, key.name)
        if key.required or value != defaults[key.name]:
            table[key.name] = spec_table(value) if isinstance(value, Part) else value
    return table


def spec_reference(spec: GemmSpec) -> str | dict[str, Any]:
    """The name of a shipped spec that is this one, else its table: what a list of kernels can be read by anywhere."""
    if spec.name in shipped_specs() and load_spec(spec.name) == spec:
        return spec.name
    return spec_table(spec)


def recorded_name(spec: GemmSpec) -> str:
    """Name a spec that is recorded by its keys as no other spec is: its own name with a digest of what it asks for.

    Two specs of a program may be called alike, and so may a spec before and after it was edited.

    >>> from cutegen.spec import load_spec
    >>> recorded_name(load_spec("sm80_hgemm_tn"))[:-8]
    'sm80_hgemm_tn-'
    """
    asked = spec_table(spec)
    asked.pop("description", None)  # specs that differ in it alone are equal
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    name = "".join(letter if is_line(letter) else "_" for letter in spec.name or "kernel")
    return f"{name}-{digest[:8]}"
