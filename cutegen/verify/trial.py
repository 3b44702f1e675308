"""One run of a kernel on random data, checked against float64, and on the CPU also against the plan's counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.contract import LaunchContract, ProblemShape
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.plan import GemmPlan
from cutegen.ptx import LaunchReport
from cutegen.run import Kernel
from cutegen.run.call.storage import ENDS_NAMES, call_tensors
from cutegen.verify.counts import Count, LaunchCounts, count_launch
from cutegen.verify.grouped import LEFT, GroupedCall, given_by
from cutegen.verify.producer import Producer, producer
from cutegen.verify.reference import Comparison, FirstWrong, compare, expected_outcome, random_extras, random_operands

CPU, CUDA = "cpu", "cuda"
Progress = Callable[[], AbstractContextManager[Callable[[int, int], None]]]
"""Opens a callback that receives how many CTAs of how many are done."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Observations of the CPU executor; `counts` compares them with the plan."""

    report: LaunchReport
    jobs: int
    counts: LaunchCounts

    @property
    def differing(self) -> dict[str, Count]:
        """The counts that contradict the plan, by full name."""
        return self.counts.differing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run and its result: `producer` computed the first wrong element, `execution` is None on a GPU.

    `aux` is what the epilogue stored in addition to the result, `factors` are those of a quantized one: None without.
    """

    device: str
    problem: ProblemShape
    seed: int
    comparison: Comparison
    aux: Comparison | None
    producer: Producer | None
    execution: Execution | None
    factors: Comparison | None = None

    @property
    def ok(self) -> bool:
        """True if every element is within its bound, in the result, in aux and among the factors."""
        return all(each is None or each.ok for each in (self.comparison, self.aux, self.factors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requested trial: `device` is "cuda" or "cpu"; `batch` is None if the operands have no batch mode.

    `sizes` are those of a kernel's groups.
    """

    device: str
    problem: ProblemShape
    batch: int | None
    seed: int
    sizes: tuple[int, ...] = ()


def try_kernel(
    kernel: Kernel, plan: GemmPlan, asked: Asked, *, options: Mapping[str, Any], progress: Progress
) -> Trial:
    """Run the plan's kernel on random operands and check it; `options` and `progress` are the CPU executor's."""
    m, n, on_cpu, groups = asked.problem.m, asked.problem.n, asked.device == CPU, kernel.contract.groups
    data: dict[str, Any] = {
        "seed": asked.seed,
        "batch": asked.batch,
        "groups": None if groups is None else len(asked.sizes),
        "framework": "numpy" if on_cpu else "torch",
        "device": asked.device,
    }
    a, b, out = random_operands(kernel.contract, m, n, asked.problem.k, **data)
    extras = random_extras(kernel.contract, m, n, k=asked.problem.k, **data)
    given = () if groups is None else tuple(given_by(groups, asked.sizes).tolist())
    if groups is not None:
        extras |= grouped_extras(kernel.contract, given, a, b, {**extras, "out": out})
    execution = None
    if on_cpu:
        with progress() as tell:
            report = kernel.execute(a, b, out=out, **extras, progress=tell, **options)
        counts = count_launch(plan, kernel.call_size(a, b, out, **extras), report, given)
        execution = Execution(report, options.get("jobs", 1), counts)
    else:
        kernel(a, b, out=out, **extras)
    expected = expected_outcome(kernel.contract, a, b, extras, accumulator=plan.atom.c_dtype.name, left=LEFT)
    comparison = compare(out, expected.result, dtype=plan.epilogue.dtype.name)
    wrong, aux, factors = comparison.first_wrong, None, None
    if expected.aux is not None:
        aux = compare(extras["aux"], expected.aux, dtype=kernel.contract.tensor("aux").dtype)
    if expected.factors is not None:
        found = extras[RESULT_FACTORS]
        factors = compare(found, expected.factors, dtype=kernel.contract.tensor(RESULT_FACTORS).dtype)
    return Trial(
        device=asked.device,
        problem=asked.problem,
        seed=asked.seed,
        comparison=comparison,
        aux=aux,
        factors=factors,
        producer=None if wrong is None else _producer(plan, wrong, asked, given),
        execution=execution,
    )


def _producer(plan: GemmPlan, wrong: FirstWrong, asked: Asked, given: tuple[int, ...]) -> Producer | None:
    """Return what computed an element; None for one that no group has."""
    m, n, groups = asked.problem.m, asked.problem.n, plan.launch.groups
    if groups is None:
        return producer(plan, wrong.row, wrong.column, m=m, n=n)
    for group, product in enumerate(groups.products(given, asked.problem)):
        if wrong.row in product.m and wrong.column in product.n and wrong.batch in (None, group):
            row, column = wrong.row - product.m.start, wrong.column - product.n.start
            return producer(plan, row, column, m=len(product.m), n=len(product.n))
    return None


def grouped_extras(
    contract: LaunchContract, given: tuple[int, ...], a: Any, b: Any, written: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the argument of ends or sizes, by its name.

    What no group has becomes NaN in A and B, and LEFT in what is written.
    """
    assert contract.groups is not None
    name = ENDS_NAMES[contract.groups.layout]
    ends: Any = np.array(given, np.int32)
    if not isinstance(a, np.ndarray):
        import torch

        ends = torch.from_numpy(ends).to(a.device)
    call = GroupedCall.of(contract, a, b, {**written, name: ends})
    for tensor in call_tensors(contract).values():
        if tensor.written:
            call.fill_rest(tensor.name, LEFT)
    return {name: ends}


def small_problem(plan: GemmPlan) -> ProblemShape:
    """Return a problem of two by two CTAs, and one k-tile more than there are stages, so that the pipeline wraps."""
    (m, n), k = plan.launch.cta_tile, plan.cta_tile[2]
    # Persistent CTAs compute two tiles each: the CPU executor models a GPU with two SMs.
    rows = 2 * (plan.launch.ctas_per_multiprocessor or 1)
    return ProblemShape(rows * m, 2 * n, (plan.stages + 1) * k)
