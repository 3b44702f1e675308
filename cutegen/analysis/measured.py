"""The same kernel on a GPU: its times and the ceilings, and the hardware counters of its launch; or why not."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from cutegen.analysis import counters
from cutegen.analysis.counters import CounterRow
from cutegen.analysis.report import Report
from cutegen.bench.benchmark import Result, bench, require_gpu
from cutegen.bench.ceilings import Ceilings, measure_ceilings, rounds_of_all
from cutegen.bench.contenders import Entrant
from cutegen.bench.measure import WARM_UP_ROUNDS
from cutegen.errors import DeviceError, OutsideError
from cutegen.hardware.targeting import present_target
from cutegen.plan import plan


@dataclass(frozen=True, slots=True)
class Timing:
    """Times on the GPU, or why there are none."""

    ceilings: Ceilings | None
    results: tuple[Result, ...]
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Counters of ncu, or why there are none."""

    rows: tuple[CounterRow, ...]
    why_not: str = ""


def why_not_measured(made: Report) -> str:
    """Return what is missing here for `measure`; empty if nothing is."""
    try:
        require_gpu()
    except DeviceError as error:
        return str(error).partition(";")[0]
    if present_target() != made.plan.target:
        return f"the kernel is for {made.plan.target.name} and the GPU here is not"
    return ""


def rounds_in_all(rounds: int) -> int:
    """Return how often `measure` calls `after_round`."""
    return rounds_of_all() + WARM_UP_ROUNDS + rounds


def measure(
    made: Report, entrant: Entrant, rounds: int, *, after_round: Callable[[], None], begin: Callable[[str], None]
) -> Timing:
    """Measure the ceilings, then `rounds` of the kernel; `begin` announces what the next rounds measure."""
    ceilings = measure_ceilings(dict.fromkeys(entrant.ceiling_types), after_round=after_round)
    begin(str(made.problem))
    return Timing(ceilings, bench([entrant], made.problem, rounds=rounds, after_round=after_round))


def profile(made: Report, spec: str) -> Profile:
    """Count the kernel of `spec` with ncu: two runs, the second with a longer K."""
    ncu, table, problem = shutil.which("ncu"), made.plan.to_json(), made.problem
    if why_not := counters.unpredictable(table, problem):
        return Profile((), why_not)
    if ncu is None:
        return Profile((), "no ncu on PATH")
    if present_target() != made.plan.target:
        return Profile((), "no GPU here that the kernel targets")
    longer_k = counters.longer_k(table, problem.k)
    longer_problem = replace(problem, k=longer_k)
    longer = plan(made.plan.spec, made.plan.target, longer_problem)
    if made.plan.problem is not None and longer.launch != made.plan.launch:
        return Profile((), f"the second launch, with K = {longer_k}, selects another kernel")
    entry = made.artifact.manifest.entry

    def count(k: int) -> counters.Counters:
        sizes = ("--problem", f"{problem.m},{problem.n},{k}", *(("--batch", f"{problem.batch}") * (problem.batch > 1)))
        options = ("--device", "cuda", *sizes, "--arch", made.plan.target.name)
        return counters.profile(ncu, f"^{entry}$", [sys.executable, "-m", "cutegen", "run", spec, *options])[entry]

    try:
        measured = counters.by_difference(count(problem.k), count(longer_k), problem.k, longer_k)
    except OutsideError as error:
        return Profile((), " ".join(str(error).split()))
    return Profile(counters.compare(counters.predict(table, problem), measured))
