"""The run, in one process: results are checked first, contenders are interleaved, and medians are kept."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import host_cost
from benchmarks.performance import choice
from benchmarks.performance.energy import Energy, energies
from benchmarks.performance.figures import OURS, Ceiling, Clock, Figures, Time
from benchmarks.performance.kinds import KINDS
from benchmarks.performance.problems import ENERGY, LADDER, SQUARES, SUITE, sample
from cutegen.api import compile_gemm
from cutegen.bench.benchmark import Result, bench, require_gpu
from cutegen.bench.ceilings import Ceilings, MmaCeiling, measure_ceilings
from cutegen.bench.conditions import conditions
from cutegen.bench.contenders import (
    CUTLASS,
    TORCH,
    TORCH_INT,
    TORCH_SCALED,
    Against,
    Entrant,
    Operands,
    Prepare,
    of_cutlass,
    only,
    others,
)
from cutegen.bench.measure import Call, Regime
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import Instruction
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, as_spec, load_spec
from cutegen.support.words import extents
from cutegen.verify import random_operands
from examples.hopper_ladder import ladder

ROUNDS = 15
KIND_ROUNDS = 45
"""For kinds, because the claims about them are differences of 1 to 3 %."""
HOST_ROUNDS = 15
COMPILERS = 12
SHIPPED = ("sm80_hgemm_tn", "sm120_hgemm_tn")
CEILINGS = (
    MmaTypes("f16", "f32"),
    MmaTypes("f16", "f32", Instruction.WGMMA),
    MmaTypes("e4m3", "f32", Instruction.WGMMA),
    MmaTypes("s8", "s32", Instruction.WGMMA),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of a run: CUTLASS's files, a time limit, and whether to measure fewer problems."""

    cutlass: tuple[Path, ...] = ()
    quick: bool = False
    seconds: float | None = None

    @property
    def suite(self) -> tuple[ProblemShape, ...]:
        """Problems of the suite."""
        return (SUITE[0], LADDER, SUITE[6]) if self.quick else SUITE

    @property
    def sample(self) -> tuple[ProblemShape, ...]:
        """Random problems."""
        return sample()[:8] if self.quick else sample()

    @property
    def squares(self) -> tuple[ProblemShape, ...]:
        """Problems on which the kinds are compared."""
        return SQUARES[:2] if self.quick else SQUARES


@dataclass(frozen=True, slots=True)
class Kernels:
    """Every compiled kernel of a run."""

    chosen: Mapping[ProblemShape, Kernel]
    shipped: tuple[Entrant, ...]
    kinds: Mapping[ProblemShape, tuple[Entrant, ...]]
    ladder: tuple[Entrant, ...]
    energy: Kernel
    host: Mapping[str, Kernel]


def compiled(asked: Asked, say: Callable[[str], None], arch: str | None = None) -> Kernels:
    """Compile all kernels, several at a time, since each compilation is its own process. Raises CompileError."""
    problems = tuple(dict.fromkeys((*asked.suite, *asked.sample)))
    shipped = {name: (load_spec(name), None) for name in SHIPPED}
    kinds = {(name, problem): (spec, problem) for problem in asked.squares for name, spec in KINDS.items()}
    rungs = {rung.name: (rung.spec, LADDER) for rung in ladder()}
    host = {name: (as_spec(spec), None) for name, spec in host_cost.FAMILIES.items()}
    with ThreadPoolExecutor(COMPILERS) as pool:
        one = partial(_compiled, arch)
        of_problems = pool.map(one, ((choice.SPEC, problem) for problem in problems))
        of_shipped, of_kinds = pool.map(one, shipped.values()), pool.map(one, kinds.values())
        of_rungs, of_host = pool.map(one, rungs.values()), pool.map(one, host.values())
        entrants = dict(zip(kinds, of_kinds, strict=True))
        found = Kernels(
            chosen=dict(zip(problems, of_problems, strict=True)),
            shipped=tuple(map(Entrant, shipped, of_shipped)),
            kinds={
                problem: tuple(Entrant(name, entrants[name, problem]) for name in KINDS) for problem in asked.squares
            },
            ladder=tuple(map(Entrant, rungs, of_rungs)),
            energy=one((choice.SPEC, ENERGY)),
            host=dict(zip(host, of_host, strict=True)),
        )
    say("kernels compiled")
    return found


def _compiled(arch: str | None, job: tuple[GemmSpec, ProblemShape | None]) -> Kernel:
    spec, problem = job
    extents = None if problem is None else (problem.m, problem.n, problem.k)
    return compile_gemm(spec, arch, problem=extents)


def measure(asked: Asked, save: Callable[[Figures], object] = lambda _: None) -> Figures:
    """Measure all sections; call `save` with the figures so far after each problem.

    Raises DeviceError without a GPU, CheckError if one of cutegen's kernels is wrong, CompileError, OutsideError.
    """
    require_gpu()
    start = time.monotonic()
    say = partial(_say, start)
    kernels = compiled(asked, say)
    ceilings = measure_ceilings(CEILINGS)
    say(f"ceilings: {[round(x.tflops) for x in ceilings.mma]}, {ceilings.read_bytes_per_s / 1e12:.2f} TB/s read")
    chosen = {problem: described(kernel) for problem, kernel in kernels.chosen.items()}
    run = _Run(_nothing_yet(ceilings, chosen), start, asked.seconds, say, save)
    ours = {problem: Entrant(OURS, kernel) for problem, kernel in kernels.chosen.items()}
    run.add(host=tuple(host_cost.host_costs(kernels.host, rounds=HOST_ROUNDS)))
    say("host costs")
    run.times("suite", asked.suite, lambda x: (*kernels.shipped, ours[x]), partial(others, cutlass=asked.cutlass))
    of_kinds = only(TORCH_SCALED, TORCH_INT)
    run.times("kinds", asked.squares, lambda x: kernels.kinds[x], of_kinds, (Regime.GRAPH,), KIND_ROUNDS)
    run.times("ladder", (LADDER,), lambda _: kernels.ladder, only(TORCH), (Regime.LAUNCH,))
    run.add(energy=tuple(_energy(kernels.energy, say)))
    run.times("sample", asked.sample, lambda x: (ours[x],), _of_sample(asked.cutlass))
    return run.figures


def _nothing_yet(ceilings: Ceilings, chosen: Mapping[ProblemShape, str]) -> Figures:
    """Return figures with the machine, the versions and the ceilings, but no times."""
    made_with = conditions()
    return Figures(
        device=ceilings.device,
        sms=ceilings.sms,
        driver=made_with.driver,
        cuda=made_with.cuda,
        date=datetime.now(UTC).date().isoformat(),
        versions=made_with.versions,
        seconds=0,
        rounds=ROUNDS,
        ceilings=tuple(map(_ceiling, ceilings.mma)),
        read_tb_per_s=round(ceilings.read_bytes_per_s / 1e12, 3),
        copy_tb_per_s=round(ceilings.copy_bytes_per_s / 1e12, 3),
        chosen=chosen,
    )


def described(kernel: Kernel) -> str:
    """Return a kernel's family, tile, stages and any less common settings, from its plan."""
    plan = json.loads(kernel.artifact.plan_json)
    decided = {decision["key"]: decision["chosen"] for decision in plan["decisions"]}
    cluster = decided.get("schedule.cluster", "1x1")
    more = (
        f", clusters of {cluster}" if cluster != "1x1" else "",
        ", ping-pong" if decided.get("schedule.consumers") == "pingpong" else "",
        f", split-K {plan['split_k']['slices']}" if plan.get("split_k") else "",
        ", swapped" if decided.get("schedule.swap", "").startswith("true") else "",
    )
    return f"{plan['family']} {extents(plan['tile'])}, {plan['stages']} stages{''.join(more)}"


@dataclass(slots=True)
class _Run:
    """The figures of a run so far. No further problem starts once `seconds` have passed since `start`."""

    figures: Figures
    start: float
    seconds: float | None
    say: Callable[[str], None]
    save: Callable[[Figures], object]

    def add(self, **sections: Any) -> None:
        """Add sections to the figures, and save them."""
        self.figures = replace(self.figures, seconds=round(time.monotonic() - self.start), **sections)
        self.save(self.figures)

    def times(
        self,
        section: str,
        problems: Iterable[ProblemShape],
        entrants: Callable[[ProblemShape], Sequence[Entrant]],
        against: Against,
        regimes: Sequence[Regime] = tuple(Regime),
        rounds: int = ROUNDS,
    ) -> None:
        """Measure every contender on each problem of a section, then record the GPU's clocks."""
        for problem in problems:
            if self.seconds is not None and time.monotonic() > self.start + self.seconds:
                self.say(f"{section}: out of time, skipped {problem}")
                continue
            results = bench(entrants(problem), problem, rounds=rounds, regimes=regimes, against=against)
            times = *getattr(self.figures, section), *map(Time.of, results)
            self.add(**{section: times, "clocks": (*self.figures.clocks, *_clocks(results))})
            self.say(f"{problem}: " + ", ".join(f"{x.contender} {x.measurement.median_us:.1f}" for x in results))


def _clocks(results: Iterable[Result]) -> Iterator[Clock]:
    """Yield the state after each regime's last contender."""
    states = {(x.problem, x.regime): x.state for x in results if x.state is not None}
    for (problem, regime), state in states.items():
        yield Clock(problem=problem, regime=regime, **asdict(state))


def _ceiling(row: MmaCeiling) -> Ceiling:
    types = row.types
    return Ceiling(
        instruction=types.instruction,
        operands=types.operands,
        accumulator=types.accumulator,
        tflops=round(row.tflops, 1),
    )


def _of_sample(cutlass: Sequence[Path]) -> Against:
    """Select torch and CUTLASS's Ampere example, which accept every problem."""

    def against(contract: LaunchContract) -> Iterator[tuple[str, Prepare]]:
        yield from only(TORCH)(contract)
        yield from (x for x in of_cutlass(cutlass) if x[0] == CUTLASS)

    return against


def _energy(kernel: Kernel, say: Callable[[str], None]) -> Iterator[Energy]:
    """Yield the energy of torch and of cutegen; other sections check their results."""
    x = Operands(
        *random_operands(kernel.contract, ENERGY.m, ENERGY.n, ENERGY.k, seed=2, framework="torch", device="cuda")
    )
    (_, torch_prepare), *_ = only(TORCH)(kernel.contract)
    calls: dict[str, Call] = {TORCH: torch_prepare(x), OURS: partial(kernel, x.a, x.b, out=x.out)}
    for found in energies(calls, ENERGY):
        say(f"{found.contender}: {found.joules:.2f} J, {found.watts:.0f} W, {found.tflops:.0f} TFLOP/s")
        yield found


def _say(start: float, what: str) -> None:
    print(f"{time.monotonic() - start:4.0f} s  {what}", file=sys.stderr, flush=True)
