"""The run, by cutegen's own benchmark: results checked first, contenders in turn, L2 cold, medians."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.performance import by_hand
from benchmarks.performance.choice import chosen
from benchmarks.performance.figures import OURS, Figures, Time
from benchmarks.performance.problems import LARGE, SMALL, sample
from cutegen.api import compile as compile_spec
from cutegen.bench.benchmark import bench, require_gpu
from cutegen.bench.ceilings import measure_ceilings
from cutegen.bench.contenders import TRITON, Against, Operands, Prepare, others
from cutegen.bench.cutlass_example import Configuration, cutlass_example
from cutegen.bench.entrants import Entrant
from cutegen.bench.measure import Call
from cutegen.bench.mma_types import MmaTypes
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Operand, Problem, load_spec

ROUNDS = 20
COMPILERS = 8
SHIPPED = ("sm80_hgemm_tn", "sm120_hgemm_tn")
PACKAGES = ("torch", "triton", "nvidia-cutlass-dsl", "cuda-python")
F16_SUMS_IN_F32 = MmaTypes("f16", "f32")
SWEEP = tuple(
    Configuration(cta, stages, warps)
    for cta, warps, depths in (
        ((128, 128, 32), (2, 2, 1), (3, 4, 5)),
        ((128, 128, 32), (2, 4, 1), (4,)),
        ((128, 128, 64), (2, 2, 1), (3, 4)),
        ((128, 128, 64), (2, 4, 1), (3,)),
        ((128, 256, 32), (2, 4, 1), (3, 4)),
        ((128, 256, 64), (2, 4, 1), (3, 4)),
        ((256, 128, 32), (4, 2, 1), (3, 4)),
        ((256, 128, 64), (4, 2, 1), (3, 4)),
    )
    for stages in depths
)
"""The configurations of CUTLASS's example that its copies allow and that fit shared memory."""


def measure(cutlass: Path | None) -> Figures:
    """Everything, in a few minutes.

    Raises DeviceError without a GPU, CheckError when a kernel of cutegen's is wrong, CompileError, OutsideError.
    """
    require_gpu()
    start, problems = time.monotonic(), (*LARGE, *SMALL, *sample())
    wmma = by_hand.compile_by_hand()
    with ThreadPoolExecutor(COMPILERS) as pool:  # the compiler is a process of its own
        shipped, kinds = pool.map(_shipped, SHIPPED), pool.map(_kind, KINDS)
        kernels = dict(zip(problems, pool.map(chosen, problems), strict=True))
        entrants, kind_entrants = list(shipped), list(kinds)
    say = partial(_say, start)
    say("kernels are compiled")
    ceilings = measure_ceilings([F16_SUMS_IN_F32])
    peers = _section((*LARGE, *SMALL), lambda x: [*entrants, Entrant(OURS, kernels[x])], cutlass, None, say)
    sweep = _sweep(LARGE, kernels, cutlass, say)
    kind_times = _section(LARGE[:1], lambda _: kind_entrants, None, _nobody, say)
    sampled = _sample(kernels, cutlass, wmma, say)
    return Figures(
        device=ceilings.device,
        sms=ceilings.sms,
        date=datetime.now(UTC).date().isoformat(),
        versions=dict(_versions()),
        seconds=round(time.monotonic() - start),
        rounds=ROUNDS,
        mma_tflops=round(ceilings.of(F16_SUMS_IN_F32).tflops, 1),
        copy_tb_per_s=round(ceilings.copy_bytes_per_s / 1e12, 3),
        chosen={problem: described(kernel) for problem, kernel in kernels.items()},
        peers=peers,
        sweep=sweep,
        kinds=kind_times,
        sample=sampled,
    )


def described(kernel: Kernel) -> str:
    """Family, tile and stages of a kernel, from its plan."""
    plan = json.loads(kernel.artifact.plan_json)
    return f"{plan['family']} {'x'.join(map(str, plan['tile']))}, {plan['stages']} stages"


def _shipped(name: str) -> Entrant:
    return Entrant(name, compile_spec(load_spec(name)))


KINDS = {
    "TN": ("f16", "k", "k", "f32"),
    "NT": ("f16", "m", "n", "f32"),
    "NN": ("f16", "m", "k", "f32"),
    "TT": ("f16", "k", "n", "f32"),
    "TN, bf16": ("bf16", "k", "k", "f32"),
    "TN, f16 sums": ("f16", "k", "k", "f16"),
}
"""Element type, majors of A and B, and the type of sums; BLAS's names: T is contiguous along K for A, N for B."""


def _kind(name: str) -> Entrant:
    element, a, b, sums = KINDS[name]
    operands = Problem(a=Operand(element, a), b=Operand(element, b), c=Operand(element, "n"), accumulator=sums)
    return Entrant(name, compile_spec(GemmSpec(family="sm120", problem=operands, name="kind")))


def _nobody(contract: LaunchContract, operands: Operands) -> Iterable[tuple[str, Prepare]]:
    return ()


def _section(
    problems: Iterable[ProblemShape],
    entrants: Callable[[ProblemShape], Sequence[Entrant]],
    cutlass: Path | None,
    against: Against | None,
    say: Callable[[str], None],
) -> tuple[Time, ...]:
    found: list[Time] = []
    for problem in problems:
        results = bench(entrants(problem), problem, rounds=ROUNDS, cutlass=cutlass, against=against)
        found += map(Time.of, results)
        say(f"{problem}: " + ", ".join(f"{x.contender} {x.tflops:.1f}" for x in results))
    return tuple(found)


def _sweep(
    problems: Iterable[ProblemShape],
    kernels: Mapping[ProblemShape, Kernel],
    cutlass: Path | None,
    say: Callable[[str], None],
) -> tuple[Time, ...]:
    """CUTLASS's example in every configuration, beside the chosen kernel."""
    if cutlass is None:
        return ()

    def against(_: LaunchContract, x: Operands) -> Iterator[tuple[str, Prepare]]:
        for one in SWEEP:
            yield str(one), partial(cutlass_example, cutlass, x.a, x.b, x.out, one)

    return _section(problems, lambda x: [Entrant(OURS, kernels[x])], None, against, say)


def _sample(
    kernels: Mapping[ProblemShape, Kernel],
    cutlass: Path | None,
    wmma: Callable[[Operands], Call] | None,
    say: Callable[[str], None],
) -> tuple[Time, ...]:
    """The random problems: beside torch, the example and the WMMA kernel; Triton would tune itself for each."""

    def against(contract: LaunchContract, operands: Operands) -> Iterator[tuple[str, Prepare]]:
        yield from (x for x in others(contract, operands, cutlass) if x[0] != TRITON)
        if wmma is not None:
            yield by_hand.NAME, partial(wmma, operands)

    return _section(sample(), lambda x: [Entrant(OURS, kernels[x])], None, against, say)


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _say(start: float, what: str) -> None:
    print(f"{time.monotonic() - start:4.0f} s  {what}", file=sys.stderr, flush=True)
