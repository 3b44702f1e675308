"""A finished plan: nothing is undecided, and it tells people and programs what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutegen.plan import explain as texts
from cutegen.plan.values.gemm_plan import PlannedGemm


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan(PlannedGemm):
    """A finished plan of any family: its fields, and how it is shown."""

    def explain(self, *, everything: bool = False) -> str:
        """Every decision, its reason, what was rejected, ranked layouts and predictions, wrapped to `text_width()`."""
        return texts.explain(self, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain tables: the content of an artifact's `plan.json`."""
        return texts.plan_table(self)
