"""A finished plan: nothing is undecided, and it tells people and programs what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cutegen.plan import explain as texts
from cutegen.plan.values.decision import KeyCost
from cutegen.plan.values.gemm_plan import PlannedGemm


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan(PlannedGemm):
    """A finished plan of any family: its fields, and how it is shown."""

    def explain(self, *, everything: bool = False, costs: Sequence[KeyCost] = ()) -> str:
        """Every decision, its reason, what was rejected, ranked layouts and predictions, wrapped to `text_width()`.

        The `costs` of given keys (`cutegen.plan.costs.key_costs`) precede them.
        """
        return texts.explain(self, everything=everything, costs=costs)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain tables: the content of an artifact's `plan.json`."""
        return texts.plan_table(self)
