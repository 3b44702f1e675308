"""What the choice of kernels costs on every stored table of measured kernels, beside the best kernel of the table.

A study is one table: which products it has, what plans predict of its kernels, and the corrections that are fitted to
it. `python -m tests.plan.regrets` writes the page's table, which takes minutes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import swapped
from cutegen.plan.search import corrections, cp_async, warpgroup_rows, warpgroups
from cutegen.plan.search.row_alignment import K_MAJOR
from cutegen.plan.search.warpgroup_model import estimate
from cutegen.plan.search.warpgroup_rows import MEASURED, is_small
from cutegen.spec import GemmSpec
from tests.gpu.measured import STORED, TORCH, geometric_mean
from tests.gpu.settings import parsed
from tests.gpu.sweep_kernels import Shape, shape_of
from tests.plan.pages import DOCS
from tests.plan.worth import DEVICE, OPEN, _compared, forget, predicted_of_families, times_of, without

MAJORS = {"TT": ("k", "n"), "NN": ("m", "k"), "NT": ("m", "n")}
PAGE = DOCS / "lab" / "tile_model.md"
BLOCK = re.compile(r"(<!-- regrets: table -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = (
    "| table | products | times | selected | at most | uncorrected | at most | x torch | uncorrected |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)

Patch = Callable[[pytest.MonkeyPatch], None]


class Case(NamedTuple):
    """A product: microseconds in a graph of each kernel and of torch.matmul, and what plans predict of kernels."""

    us: Mapping[str, float]
    torch_us: float
    predicted: Mapping[str, float]


class Worth(NamedTuple):
    """Of a choice: how many times the best time it takes, and how many times as fast as torch.matmul it is."""

    cost: float
    by_torch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A table under `tests/gpu`, or a part of it.

    `uncorrected` takes away what is fitted to the table; `constants` are parts of that, each of which the mean cost is
    lower with. Problems of `choices` were drawn afterwards; the page has what the kernel takes before and since. With
    `are_others` none of them is in the table.
    """

    file: str
    cases: Callable[[Mapping[str, Any]], Iterator[Case]]
    uncorrected: Patch
    part: str = ""
    constants: Mapping[str, Patch]
    choices: str = "choices"
    are_others: bool = True

    @property
    def table(self) -> Mapping[str, Any]:
        """The stored table."""
        return _loaded(self.file)

    @property
    def name(self) -> str:
        """The table's name on the page."""
        return f"`{self.file}`{f', {self.part}' if self.part else ''}"

    def worth(self) -> list[Worth]:
        """Return what the choice is worth on each product, by the corrections that plans have now."""
        forget()
        found = []
        for us, torch_us, predicted in self.cases(self.table):
            chosen = us[min(us.keys() & predicted.keys(), key=lambda name: (predicted[name], name))]
            found.append(Worth(chosen / min(us.values()), torch_us / chosen))
        return found

    def cost(self) -> float:
        """Return how many times the best time choices take on average."""
        return geometric_mean([each.cost for each in self.worth()])

    def times(self) -> int:
        """Return the number of times that the table has of kernels."""
        return sum(len(each.us) for each in self.cases(self.table))

    def row(self) -> str:
        """Return the table's row on the page."""
        with_all = self.worth()
        with pytest.MonkeyPatch.context() as patch:
            self.uncorrected(patch)
            before = self.worth()
        forget()
        cells = [self.name, f"{len(with_all)}", f"{self.times():,}"]
        for worth in (with_all, before):
            cells += [f"{geometric_mean([each.cost for each in worth]):.3f}", f"{max(each.cost for each in worth):.2f}"]
        cells += [f"{geometric_mean([each.by_torch for each in worth]):.3f}" for worth in (with_all, before)]
        return f"| {' | '.join(cells)} |"


@cache
def _loaded(file: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(STORED.with_name(file).read_text())
    return found


def _case(measured: Mapping[str, float], predicted: Mapping[str, float]) -> Case:
    us = dict(measured)
    return Case(us, us.pop(TORCH), predicted)


def of_warpgroups(key: str, table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield products whose kernels are of `sm90`, under the k-tiles that they were built with."""
    for problem, measured in times_of(table, key).items():
        predicted: dict[str, float] = {}
        for name, asked in _compared(problem, OPEN):
            predicted[name] = min(predicted.get(name, float("inf")), warpgroups.estimate_of(*asked).us)
        yield _case({name: graph for name, (graph, _) in measured.items()}, predicted)


def of_small(key: str, table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield small products with times of both families."""
    for problem, measured in times_of(table, key).items():
        us = {name: graph for name, (graph, _) in measured.items()}
        is_few = key != "us"
        if is_few or (is_small(OPEN, ProblemShape(*problem)) and any(name.startswith("sm80") for name in us)):
            yield _case(us, predicted_of_families(problem))


def spec_of(majors: str, c: str = "n") -> GemmSpec:
    """Return a spec with A and B stored as the BLAS name says; T of A and N of B are K-major."""
    a, b = (replace(OPEN.problem.a, major=major) for major in MAJORS[majors])
    return replace(OPEN, problem=replace(OPEN.problem, a=a, b=b, c=replace(OPEN.problem.c, major=c)))


def of_majors(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield products with other majors, whose kernels are named as rows."""
    for majors, problems in table["us"].items():
        for text, rows in problems.items():
            us = {table["names"][index]: us for index, us in rows}
            yield _case(us, predicted_of_families(shape_of(text), spec_of(majors), joined=False))


def of_slices(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield products with few tiles and a deep K; of each kernel the k-tile is joined where a plan joins it."""
    for text, measured in table["us"].items():
        names = {kernel_of(name): name for name in measured if name != TORCH}
        predicted = {names[kernel]: us for kernel, us in predicted_by_kernel(shape_of(text)).items() if kernel in names}
        yield _case(measured, predicted)


Kernel = tuple[tuple[int, ...], str, tuple[int, ...], bool, int]
"""Tile, consumers, CTAs of a cluster along M, N and K, exchanged or not, slices."""


def kernel_of(name: str) -> Kernel:
    """Return the kernel that a table has under a name."""
    setting = parsed(name)
    along_k = (setting.clustered or setting.slices) if setting.reduction == "cluster" else 1
    return setting.cta, setting.consumers, (*setting.cluster, along_k), setting.swap, setting.slices


def predicted_by_kernel(shape: Shape) -> dict[Kernel, float]:
    """Return microseconds of what a plan compares, k-tiles joined where it joins them."""
    problem, found = ProblemShape(*shape), dict[Kernel, float]()
    compared = (*MEASURED, *warpgroups._fitted(OPEN, DEVICE, problem))
    for row, candidate in warpgroups._candidates(OPEN, DEVICE, problem, compared):
        joined = warpgroups._joined(OPEN, DEVICE, problem, row, candidate)
        if warpgroups._fits(OPEN, DEVICE, joined):
            multiplied = swapped.shape_multiplied(problem) if row.swap else problem
            work = warpgroups.work_of(OPEN, DEVICE, candidate, row)
            us = estimate(work, multiplied, GPUS["sm_90"], warpgroup_rows.H200).us
            found.setdefault((joined.cta, row.consumers, row.cluster, row.swap, row.slices), us)
    return found


def _set(module: object, name: str, value: object) -> Patch:
    return lambda patch: patch.setattr(module, name, value)


def _each(module: object, names: Sequence[str], value: float) -> Mapping[str, Patch]:
    return {name: _set(module, name, value) for name in names}


def _no_small_ones(patch: pytest.MonkeyPatch) -> None:
    for module in (warpgroups, cp_async):
        patch.setattr(module, "is_small", lambda *_: False)


def _k_major(patch: pytest.MonkeyPatch) -> None:
    for module in (warpgroups, cp_async):
        patch.setattr(module, "majors_of", lambda _: K_MAJOR)


def _without(*known: str) -> Patch:
    return lambda patch: without(patch, *known)


STREAMED = _without("is_streamed", "is_of_middle_size", "is_small")
OF_STREAMS = (
    "GIVEN_UP_FIRST",
    "LONGER_K_TILE",
    "STREAM_UNEVEN",
    "STREAM_APART",
    "STREAM_CLUSTERED",
    "THROUGH_WORKSPACE",
    "ALMOST_IDLE",
    "TALL",
)
STUDIES = (
    Study(
        file="h100_slices.json",
        cases=of_slices,
        uncorrected=_set(warpgroups, "fitted_slices", lambda *_: ()),
        constants={"sum_us": _set(warpgroup_rows, "H200", replace(warpgroup_rows.H200, sum_us=0.0))},
        choices="",
    ),
    Study(
        file="h100_streams.json",
        cases=partial(of_warpgroups, "us"),
        uncorrected=STREAMED,
        constants=_each(corrections, OF_STREAMS, 1.0),
        are_others=False,
    ),
    Study(
        file="h100_streams.json",
        part="graphs of 30 launches",
        cases=partial(of_warpgroups, "us_long"),
        uncorrected=STREAMED,
        constants={},
        choices="",
    ),
    Study(
        file="h100_middle.json",
        cases=partial(of_warpgroups, "us"),
        uncorrected=_without("is_of_middle_size"),
        constants=_each(corrections, ("ASKED", "COVERED", "UNALIGNED_READERS", "UNALIGNED_TOGETHER"), 1.0),
    ),
    Study(
        file="h100_apart.json",
        cases=partial(of_warpgroups, "us"),
        uncorrected=_set(warpgroups, "coincidence_factor", lambda *_: 1.0),
        constants=_each(corrections, ("ALONG_SHORTER", "ALONG_LONGER", "ON_OTHER_GPCS"), 0.0),
    ),
    Study(
        file="h100_small.json",
        cases=partial(of_small, "us"),
        uncorrected=_no_small_ones,
        constants=_each(cp_async, ("OF_MMA_SYNC",), 1.0),
    ),
    Study(
        file="h100_small.json",
        part="few rows or columns",
        cases=partial(of_small, "few_us"),
        uncorrected=_no_small_ones,
        constants={},
        choices="few_choices",
    ),
    Study(
        file="h100_majors.json",
        cases=of_majors,
        uncorrected=_k_major,
        constants=_each(warpgroups, ("NARROW_SPAN", "CLUSTERED_SLICES"), 1.0),
    ),
)


def block() -> str:
    """Return the page's table."""
    return HEAD + "".join(f"{study.row()}\n" for study in STUDIES)


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda found: f"{found[1]}{block()}{found[2]}", PAGE.read_text()))
