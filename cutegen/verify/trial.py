"""One run of a kernel on random data, checked against float64, and on the CPU also against the plan's counts."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutegen.contract import LaunchContract, ProblemShape
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES
from cutegen.errors import RequestError
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import place_of_value
from cutegen.ptx import LaunchReport
from cutegen.run import Kernel
from cutegen.run.call.storage import ENDS_NAMES, call_tensors
from cutegen.verify.counts import Count, LaunchCounts, count_launch
from cutegen.verify.grouped import LEFT, GroupedCall, given_by
from cutegen.verify.reference import Comparison, FirstWrong, compare, expected_outcome, random_extras, random_operands

# Finds the thread and the register that computed an element of C, as a starting point if that element is wrong.


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """`cta` is the tile (along M, along N), `block` its blockIdx.x, `value` the coordinate in the thread's tCrC.

    tCrC is (MMA, MMA_M, MMA_N): the value within the atom, and which of the thread's atoms along M and N; if A and B
    are swapped, M and N of the kernel, and not of `cta`. `block` is None for persistent CTAs: the CTA that computes a
    tile depends on how many the GPU holds.
    """

    cta: tuple[int, int]
    block: int | None
    thread: int
    value: tuple[int, int, int]

    @property
    def register(self) -> str:
        """The accumulator by its name in the kernel, as `tCrC(1,2,3)`."""
        return "tCrC({},{},{})".format(*self.value)

    def __str__(self) -> str:
        """Format as `thread 37, tCrC(1,2,3), of CTA (0,1), blockIdx.x 1`."""
        block = "" if self.block is None else f", blockIdx.x {self.block}"
        return f"thread {self.thread}, {self.register}, of CTA ({self.cta[0]},{self.cta[1]}){block}"


def producer(plan: GemmPlan, row: int, column: int, *, m: int, n: int) -> Producer:
    """Return the thread and register that accumulate C[row, column] of an M x N result.

    (A staged epilogue may store it by another thread.)
    """
    tile = plan.launch.cta_tile
    cta, within = (row // tile[0], column // tile[1]), (row % tile[0], column % tile[1])
    if plan.swapped:
        within = within[1], within[0]
    sums = plan.mma.accumulator
    thread, value = (int(i) for i in np.argwhere(sums.table == within[0] + within[1] * plan.cta_tile[0])[0])
    block = None if plan.scheduler.source.loops else block_of(plan, cta, m=m, n=n)
    return Producer(cta=cta, block=block, thread=thread, value=place_of_value(sums.extents, value))


def block_of(plan: GemmPlan, cta: tuple[int, int], *, m: int, n: int) -> int:
    """Return blockIdx.x of the CTA for tile `cta` (along M, along N): the inverse of the kernel's tile_coordinate."""
    if plan.swapped:
        cta, m, n = cta[::-1], n, m
    return plan.scheduler.order.number(cta, plan.scheduler.grid(plan.mma, m, n))


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
        _check_begins(kernel.contract, given)
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


def _check_begins(contract: LaunchContract, given: tuple[int, ...]) -> None:
    """Raise RequestError for a group of K whose product would be NaN, since blocks of factors count from its begin."""
    multiple = contract.begin_multiple
    if begins := [end for end in given[:-1] if end % multiple]:
        sizes = ",".join(str(end // multiple * multiple) for end in np.diff(given, prepend=0).tolist())
        raise RequestError(
            f"--sizes: found a group that begins at {begins[0]} along K; expected multiples of {multiple}, "
            f"{BOX_MULTIPLE_BYTES} bytes, with factors of blocks: they count from there; --sizes {sizes}"
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
