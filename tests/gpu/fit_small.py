"""Fits the corrections of the rows for small products, and prints them as they stand in `warpgroup_rows.py`.

    python -m tests.gpu.fit_small

The constants of the model stay. Each row has two corrections, which follow the slope of a loss: how far the predictions
of a problem's kernels are off beside each other, and a little how far all of them are; kernels near the fastest count
most. Corrections are drawn to 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS
from cutegen.plan.search.warpgroup_model import Quantities, WarpgroupWork, microseconds, quantities
from cutegen.plan.search.warpgroup_rows import H200, SMALL, KernelConfig
from tests.gpu.estimates import setting_of, work_of
from tests.gpu.fit_kernels import descend
from tests.gpu.measured import TORCH
from tests.gpu.settings import TARGET
from tests.gpu.sweep_kernels import shape_of

STORED = Path(__file__).parent / "h100_small.json"
NEAR = 4.0
"""How fast the weight of a kernel falls with the log of how many times the best it takes."""
ROBUST = 0.08
"""Errors in logs beyond which they count by themselves, not by their squares."""
BESIDE, LEVEL, DRAWN = 30.0, 8.0, 0.001
"""Weights of errors beside each other, of all, and of corrections squared."""
STEPS, RATE = 400, 0.03


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of the rows' kernels as tensors: problem, row, log of microseconds, weight, and the model's quantities."""

    problem: Any
    row: Any
    log_us: Any
    weight: Any
    counted: Mapping[str, Any]


def samples_of(table: Mapping[str, Any]) -> Samples:
    """Read what was measured of the rows; the best of a problem is that of all its kernels."""
    torch.set_default_dtype(torch.float64)
    rows = {setting_of(row).name: number for number, row in enumerate(SMALL)}
    found = list(_times(table, rows))
    problem, row, us, best_us, counted = zip(*found, strict=True)
    log_us = torch.tensor(us).log()
    each = {x.name: torch.tensor([float(getattr(one, x.name)) for one in counted]) for x in fields(Quantities)}
    weight = torch.exp(-NEAR * (log_us - torch.tensor(best_us).log()))
    return Samples(torch.tensor(problem), torch.tensor(row), log_us, weight / weight.sum(), each)


def _times(table: Mapping[str, Any], rows: Mapping[str, int]) -> Iterator[tuple[int, int, float, float, Quantities]]:
    for number, (text, measured) in enumerate(table["us"].items()):
        times = {table["names"][index]: graph for index, graph, _ in measured}
        best = min(us for name, us in times.items() if name != TORCH)
        m, n, k = shape_of(text)
        for name, us in times.items():
            if name in rows:
                setting = setting_of(SMALL[rows[name]])
                work = work_of(setting)
                assert isinstance(work, WarpgroupWork)
                plain = replace(work, correction=1.0, overall=1.0)
                shape = ProblemShape(n, m, k) if setting.swap else ProblemShape(m, n, k)
                yield number, rows[name], us, best, quantities(plain, shape, GPUS[TARGET])


def fitted(samples: Samples, steps: int = STEPS) -> tuple[KernelConfig, ...]:
    """Return the rows with their corrections, by Adam along the slope of the loss."""
    k_tile, whole = (torch.zeros(len(SMALL), requires_grad=True) for _ in range(2))
    problems = int(samples.problem.max()) + 1
    weights = torch.zeros(problems).scatter_add(0, samples.problem, samples.weight).clamp(min=1e-12)

    def loss() -> Any:
        corrected = {"correction": k_tile[samples.row].exp(), "overall": whole[samples.row].exp()}
        error = microseconds(Quantities(**{**samples.counted, **corrected}), H200).log() - samples.log_us
        common = torch.zeros(problems).scatter_add(0, samples.problem, samples.weight * error) / weights
        beside = (samples.weight * _robust(error - common[samples.problem])).sum()
        drawn = (k_tile**2).sum() + (whole**2).sum()
        return BESIDE * beside + LEVEL * (samples.weight * _robust(error)).sum() + DRAWN * drawn

    descend([k_tile, whole], loss, RATE, steps)
    logs = zip(SMALL, k_tile.exp().tolist(), whole.exp().tolist(), strict=True)
    return tuple(replace(row, correction=float(f"{a:.3g}"), overall=float(f"{b:.3g}")) for row, a, b in logs)


def _robust(error: Any) -> Any:
    return 2 * ROBUST**2 * (torch.sqrt(1 + (error / ROBUST) ** 2) - 1)


def main() -> int:
    """0."""
    for row in fitted(samples_of(json.loads(STORED.read_text()))):
        cluster = "ALONE" if row.cluster == (1, 1, 1) else str(row.cluster)
        corrections = f"{row.correction:.3g}, {row.overall:.3g}"
        print(f"    KernelConfig({row.cta}, (1, 1), COOPERATIVE, {cluster}, {row.swap}, {row.slices}, {corrections}),")
    return 0


if __name__ == "__main__":
    sys.exit(main())
