"""What choices cost on every stored table of measured kernels, beside the best that the table has.

A study is one table: which choices it has, what plans select, and the rule or the corrections that come from it.
`python -m tests.plan.regrets [FILE ...]` writes the rows of some tables on the pages, or those of all, which takes
minutes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan import swapped
from cutegen.plan.search import cp_async, warpgroup_rows, warpgroups
from cutegen.plan.search.tile_model import K_MAJOR
from cutegen.plan.search.warpgroup_model import estimate
from cutegen.plan.search.warpgroup_rows import MEASURED, is_small
from cutegen.spec import GemmSpec, Operand, Problem
from tests.gpu.estimates import compared_us, row_of, setting_of
from tests.gpu.measured import STORED_H100, TORCH, Measured, held_out, load
from tests.gpu.settings import parsed
from tests.gpu.sweep_kernels import Shape, shape_of
from tests.plan import regrets_of_orders
from tests.plan.study import BEGIN, BLOCK, END, HEAD, PAGES, Case, Patch, Study, rows_of
from tests.plan.worth import DEVICE, OPEN, _compared, predicted_of_families, times_of, without

PROMOTING = GemmSpec(
    family="sm90",
    problem=Problem(a=Operand("e4m3", "k"), b=Operand("e4m3", "k"), c=Operand("f16", "n"), accumulator="f32"),
)
MAJORS = {"TT": ("k", "n"), "NN": ("m", "k"), "NT": ("m", "n")}


def _case(measured: Mapping[str, float], predicted: Mapping[str, float]) -> Case:
    us = dict(measured)
    return Case.fastest(us, us.pop(TORCH), predicted)


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


def of_promoted_sums(drawn: slice, table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield products of e4m3 with promoted sums, in the order in which they were drawn."""
    for text, measured in [*table["us"].items()][drawn]:
        problem = ProblemShape(*shape_of(text))
        predicted: dict[str, float] = {}
        for row, candidate in warpgroups._candidates(PROMOTING, DEVICE, problem, MEASURED):
            multiplied = swapped.shape_multiplied(problem) if row.swap else problem
            work = warpgroups.work_of(PROMOTING, DEVICE, candidate, row)
            predicted[setting_of(row).name] = estimate(work, multiplied, GPUS["sm_90"], warpgroup_rows.H200).us
        yield _case(measured, predicted)


def of_k_tiles(table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield kernels with k-tiles of a line and of two, without slices in a cluster, which keep those of a line."""
    for text, measured in table["us"].items():
        for name, (line_us, joined_us) in measured.items():
            row = row_of(parsed(name))
            if row.cluster[2] == 1:
                problem, candidate = ProblemShape(*shape_of(text)), warpgroups.candidate_of(OPEN, DEVICE, row)
                is_joined = warpgroups._joined(OPEN, DEVICE, problem, row, candidate) != candidate
                yield Case({"line": line_us, "two lines": joined_us}, None, "two lines" if is_joined else "line")


def of_middle_size() -> tuple[Measured, ...]:
    """Return the products of the sweep that are of middle size, as docs/lab/tile_model.md has it."""
    held = held_out(STORED_H100)
    return tuple(each for each in load() if is_middle(*each.problem) and each.problem not in held)


def is_middle(m: int, n: int, k: int) -> bool:
    """Return whether a product is of middle size, with sides that most kernels were measured on."""
    has_sides = min(m, n) >= 64 and k >= 512 and m * n <= 2**21.5 and max(m, n) <= 8192
    return has_sides and 2**27.5 <= m * n * k < 2**33.5


def of_sized(_table: Mapping[str, Any]) -> Iterator[Case]:
    """Yield products of middle size that a GPU measured; of a kernel that was not measured the next one counts."""
    for each in of_middle_size():
        us = {setting.name: graph for setting, (graph, _) in each.us.items()}
        predicted = {setting.name: compared_us(setting, each.problem) for setting in each.us}
        yield Case.fastest(us, each.torch_us[0], predicted)


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


PROMOTED = _set(warpgroups, "PROMOTED_CORRECTIONS", dict.fromkeys(warpgroups.PROMOTED_CORRECTIONS, 1.0))
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
    ),
    Study(
        file="h100_streams.json",
        cases=partial(of_warpgroups, "us"),
        uncorrected=STREAMED,
        constants=_each(warpgroups, OF_STREAMS, 1.0),
        are_others=False,
        choices="choices",
    ),
    Study(
        file="h100_streams.json",
        part="graphs of 30 launches",
        cases=partial(of_warpgroups, "us_long"),
        uncorrected=STREAMED,
        constants={},
    ),
    Study(
        file="h100_middle.json",
        cases=partial(of_warpgroups, "us"),
        uncorrected=_without("is_of_middle_size"),
        constants=_each(warpgroups, ("ASKED", "COVERED", "UNALIGNED_READERS", "UNALIGNED_TOGETHER"), 1.0),
        choices="choices",
    ),
    Study(
        file="h100_apart.json",
        cases=partial(of_warpgroups, "us"),
        uncorrected=_set(warpgroups, "coincidence_factor", lambda *_: 1.0),
        constants=_each(warpgroups, ("ALONG_SHORTER", "ALONG_LONGER", "ON_OTHER_GPCS"), 0.0),
        choices="choices",
    ),
    Study(
        file="h100_small.json",
        cases=partial(of_small, "us"),
        uncorrected=_no_small_ones,
        constants=_each(cp_async, ("OF_MMA_SYNC",), 1.0),
        choices="choices",
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
        choices="choices",
    ),
    Study(
        file="h100_k_tiles.json",
        cases=of_k_tiles,
        uncorrected=_set(warpgroups, "JOINED_STAGES", math.inf),
        constants={"JOINED_STAGES": _set(warpgroups, "JOINED_STAGES", 3)},
    ),
    Study(
        file="h100_promoted.json",
        part="the first 15",
        cases=partial(of_promoted_sums, slice(15)),
        uncorrected=PROMOTED,
        constants={},
    ),
    Study(
        file="h100_promoted.json",
        part="those drawn afterwards",
        cases=partial(of_promoted_sums, slice(15, None)),
        uncorrected=PROMOTED,
        constants={},
    ),
    Study(
        file="h200_kernels.json",
        part="middle size",
        cases=of_sized,
        uncorrected=_set(warpgroup_rows, "OF_ROWS", {}),
        constants={},
    ),
    *regrets_of_orders.STUDIES,
)


def block(page: Path, files: Sequence[str]) -> str:
    """Return a page's table with the rows of some files made anew, of all files without a name."""
    kept = {name: row for name, row in rows_of(page).items() if files and name.split("`")[1] not in files}
    rows = [kept.get(each.name) or each.row() for each in STUDIES if each.page == page]
    return HEAD.format(PAGES[page], PAGES[page]) + "".join(f"{row}\n" for row in rows)


def main(files: Sequence[str]) -> None:
    """Write the tables of the pages."""
    for page in PAGES:
        before, after = BLOCK.split(page.read_text())[:: BLOCK.groups + 1]
        page.write_text(f"{before}{BEGIN}{block(page, files)}{END}{after}")


if __name__ == "__main__":
    main(sys.argv[1:])
