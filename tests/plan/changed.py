"""Plans with one thing changed, to see a proof notice it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cutegen.plan import GemmPlan


def with_path(found: GemmPlan, name: str, **fields: Any) -> GemmPlan:
    """The plan with these fields of the path of an operand."""
    paths = (replace(path, **fields) if path.name == name else path for path in found.operands)
    return replace(found, operands=tuple(paths))
