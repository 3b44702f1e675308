"""What a choice costs beside the best of what a stored table has measured: the values that regrets are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gpu.measured import STORED, geometric_mean
from tests.plan.pages import DOCS
from tests.plan.worth import forget

BEGIN, END = "<!-- regrets: table -->\n", "<!-- end -->"
BLOCK = re.compile(f"{BEGIN}(.*?){END}", re.DOTALL)
HEAD = "| table | choices | times | selected | at most | {} | at most | x torch | {} |\n" + "|---" * 9 + "|\n"
OF_KERNELS, OF_ORDERS = DOCS / "lab" / "tile_model.md", DOCS / "lab" / "tile_orders.md"
PAGES = {OF_KERNELS: "uncorrected", OF_ORDERS: "without"}
"""Pages with a table of regrets, and what each calls the choice without the rule or the fit."""

Patch = Callable[[pytest.MonkeyPatch], None]


class Case(NamedTuple):
    """A choice among what was measured: microseconds in a graph of each option and of torch, and the selected."""

    us: Mapping[str, float]
    torch_us: float | None
    selected: str

    @classmethod
    def fastest(cls, us: Mapping[str, float], torch_us: float | None, predicted: Mapping[str, float]) -> Case:
        """Return the choice of the measured option that is predicted to be fastest."""
        return cls(us, torch_us, min(us.keys() & predicted.keys(), key=lambda name: (predicted[name], name)))

    @property
    def cost(self) -> float:
        """How many times the best time the selected option takes."""
        return self.us[self.selected] / min(self.us.values())

    @property
    def by_torch(self) -> float | None:
        """How many times as fast as torch.matmul it is, if that was measured."""
        return None if self.torch_us is None else self.torch_us / self.us[self.selected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A table under `tests/gpu`, or a part of it.

    `uncorrected` takes away the rule or the fit that comes from the table; `constants` are parts of that, each of which
    the mean cost is lower with. Problems of `choices` were drawn afterwards; the page has what the kernel takes before
    and since. With `are_others` none of them is in the table.
    """

    file: str
    cases: Callable[[Mapping[str, Any]], Iterator[Case]]
    uncorrected: Patch
    part: str = ""
    constants: Mapping[str, Patch]
    choices: str = ""
    are_others: bool = True
    page: Path = OF_KERNELS

    @property
    def table(self) -> Mapping[str, Any]:
        """The stored table."""
        return _loaded(self.file)

    @property
    def name(self) -> str:
        """The table's name on the page."""
        return f"`{self.file}`{f', {self.part}' if self.part else ''}"

    def found(self) -> list[Case]:
        """Return the choices, by the rules and corrections that plans have now."""
        forget()
        return list(self.cases(self.table))

    def cost(self) -> float:
        """Return how many times the best time choices take on average."""
        return geometric_mean([each.cost for each in self.found()])

    def row(self) -> str:
        """Return the table's row on the page."""
        with_all = self.found()
        with pytest.MonkeyPatch.context() as patch:
            self.uncorrected(patch)
            before = self.found()
        forget()
        cells = [self.name, f"{len(with_all)}", f"{sum(len(each.us) for each in with_all):,}"]
        for found in (with_all, before):
            cells += [f"{geometric_mean([each.cost for each in found]):.3f}", f"{max(each.cost for each in found):.2f}"]
        for found in (with_all, before):
            by_torch = [each.by_torch for each in found if each.by_torch is not None]
            cells.append(f"{geometric_mean(by_torch):.3f}" if by_torch else "")
        return f"| {' | '.join(cells)} |".replace("  ", " ")


@cache
def _loaded(file: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(STORED.with_name(file).read_text())
    return found


def rows_of(page: Path) -> Mapping[str, str]:
    """Return the rows that a page has, by the name of their table."""
    found = BLOCK.search(page.read_text())
    assert found is not None
    return {row.split(" | ")[0].removeprefix("| "): row for row in found[1].splitlines()[2:]}
