"""Writes a spec as the table of its file: only given keys."""

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
    """Return the given keys of a spec, or of one of its tables; `spec_of_table` reads them back.

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
    """Return the name of an equal shipped spec, else its table, so that a list of kernels is readable anywhere."""
    if spec.name in shipped_specs() and load_spec(spec.name) == spec:
        return spec.name
    return spec_table(spec)


def recorded_name(spec: GemmSpec) -> str:
    """Return a unique name for a recorded spec: its own name with a digest of its request.

    Two specs of a program may have the same name, and so may a spec before and after an edit.

    >>> from cutegen.spec import load_spec
    >>> recorded_name(load_spec("sm80_hgemm_tn"))[:-8]
    'sm80_hgemm_tn-'
    """
    asked = spec_table(spec)
    asked.pop("description", None)  # specs that differ only in it are equal
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    name = "".join(letter if is_line(letter) else "_" for letter in spec.name or "kernel")
    return f"{name}-{digest[:8]}"
