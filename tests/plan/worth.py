"""What the choice among kernels of warpgroups is worth on products of which many kernels were measured.

A table is `{"names", "us"}`: of each problem rows of `[kernel, microseconds in a graph, microseconds of one launch]`,
torch.matmul's among them; each kernel was planned for its problem, and is named with the k-tile that it was built with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import target
from cutegen.plan.search import cp_async, warpgroups
from cutegen.spec import GemmSpec
from tests.gpu import estimates
from tests.gpu.estimates import setting_of
from tests.gpu.measured import geometric_mean
from tests.gpu.settings import Setting
from tests.gpu.sweep_kernels import Shape, shape_of
from tests.plan.specs import gemm

DEVICE = target("sm_90")
OPEN = replace(gemm(), family="sm90")
Times = Mapping[Shape, Mapping[str, tuple[float, float]]]
"""Of each kernel by its name: in a graph, and of one launch."""


def times_of(table: Mapping[str, Any], us: str = "us") -> Times:
    return {
        shape_of(text): {table["names"][index]: (graph, launch) for index, graph, launch in rows}
        for text, rows in table[us].items()
    }


def predicted_of_families(problem: Shape, spec: GemmSpec = OPEN, *, joined: bool = True) -> Mapping[str, float]:
    """Microseconds of all kernels of `sm80` and `sm90` that plans compare, by the names they were measured under.

    Without `joined` these are the names of rows, whose k-tiles are not yet two in one: the prediction is the same.
    """
    shape = ProblemShape(*problem)
    of_80 = {
        Setting(family="sm80", cta=option.candidate.cta, slices=option.slices).name: option.estimate.us
        for option in cp_async._options(replace(spec, family="sm80"), DEVICE, shape)
    }
    of_90 = {
        name if joined else setting_of(asked[3]).name: warpgroups.estimate_of(*asked).us
        for name, asked in _compared(problem, spec)
    }
    return of_80 | of_90


@cache
def _compared(problem: Shape, spec: GemmSpec) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """What plans compare for a problem, each by the name it was measured under, and what the model is asked about."""
    shape = ProblemShape(*problem)
    rows = warpgroups.compared_rows(spec, DEVICE, shape)
    found = []
    for row, candidate in warpgroups._candidates(spec, DEVICE, shape, rows):
        built = warpgroups._joined(spec, DEVICE, shape, row, candidate)
        name = setting_of(replace(row, cta=built.cta)).name
        found.append((name, (spec, DEVICE, shape, row, candidate, built)))
    return tuple(found)


def without(monkeypatch: pytest.MonkeyPatch, *known: str) -> None:
    """From here on no product is of those that corrections are fitted to, by each of these functions."""
    for name in known:
        monkeypatch.setattr(warpgroups, name, lambda *_: False)
    forget()


def forget() -> None:
    """Kernels of a problem are compared anew, by the corrections that it has now."""
    _compared.cache_clear()
    estimates._compared.cache_clear()


def rows_of_choices(choices: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Rows of the page's table, by operands: of each problem what was chosen before and since, in a graph and in one
    launch, and torch.matmul.
    """
    for kind in dict.fromkeys(text.partition(": ")[0] for text in choices):
        pairs = [us for text, us in choices.items() if text.startswith(f"{kind}: ")]
        graph = geometric_mean([since / before for before, since, *_ in pairs])
        launch = geometric_mean([since / before for _, _, before, since, *_ in pairs])
        row = f"| {kind} | {len(pairs)} | {graph:.3f} | {launch:.3f} |"
        if len(pairs[0]) > 4:
            by_torch = [geometric_mean([us[4] / us[which] for us in pairs]) for which in (0, 1)]
            row += f" {by_torch[0]:.2f} | {by_torch[1]:.2f} |"
        yield row
