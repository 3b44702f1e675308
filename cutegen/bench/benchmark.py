"""The benchmark: contenders run in turn on the same random operands, after every result has been checked."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutegen.bench import contenders
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.checked import Ready, prepared, prepared_call
from cutegen.bench.conditions import DeviceState, nvml
from cutegen.bench.contenders import Entrant, Setting, by_setting, others
from cutegen.bench.grouped import GroupSizes, others_of_groups
from cutegen.bench.measure import Measurement, Regime, graph_times, launch_times
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.contract.problem import ProblemShape
from cutegen.errors import DeviceError
from cutegen.hardware import dtype
from cutegen.hardware.targeting import present_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One contender on one problem; `ours` says that cutegen made it, `types` selects its ceiling.

    `sizes` are those of its groups. `state` is the GPU's right after the last round; None without NVML.
    """

    problem: ProblemShape
    setting: Setting
    contender: str
    ours: bool
    types: MmaTypes
    rel_error: float
    measurement: Measurement
    regime: Regime = Regime.LAUNCH
    state: DeviceState | None = None
    sizes: GroupSizes | None = None

    @property
    def products(self) -> tuple[ProblemShape, ...]:
        """The problem, or the product of each group that has elements."""
        return (self.problem,) if self.sizes is None else self.sizes.products(self.problem)

    @property
    def flops(self) -> int:
        """Floating-point operations; a multiply-add counts as two."""
        return sum(each.flops for each in self.products)

    @property
    def tflops(self) -> float:
        """10^12 operations per second, by the median."""
        return self.tflops_in(self.measurement.median_us)

    def tflops_in(self, time_us: float) -> float:
        """Return 10^12 operations per second for this time."""
        return self.flops / time_us / 1e6

    @property
    def compulsory_bytes(self) -> int:
        """The minimum bytes that device memory moves."""
        a, b, c = (dtype(name).bytes for name, _ in self.setting.tensors.values())
        return sum(each.compulsory_bytes(a, b, c) for each in self.products)

    @property
    def intensity(self) -> float:
        """Operations per compulsory byte."""
        return self.flops / self.compulsory_bytes

    def of_mma(self, ceilings: Ceilings) -> float:
        """Return the share of the ceiling of its instruction; for a library, of the fastest instruction."""
        return self.tflops / ceilings.of(self.types).tflops

    def of_read(self, ceilings: Ceilings) -> float:
        """Return compulsory bytes per second as a share of the read bandwidth."""
        return self.compulsory_bytes / (1e-6 * self.measurement.median_us) / ceilings.read_bytes_per_s

    def of_copy(self, ceilings: Ceilings) -> float:
        """Return compulsory bytes per second as a share of the copy bandwidth."""
        return self.compulsory_bytes / (1e-6 * self.measurement.median_us) / ceilings.copy_bytes_per_s


def require_gpu() -> None:
    """Raise DeviceError if there is nothing to measure on."""
    way_out = "; `cutegen report SPEC --problem M,N,K` predicts a kernel's costs without a GPU"
    if present_target() is None:
        raise DeviceError(f"no supported GPU found{way_out}")
    if find_spec("torch") is None:
        raise DeviceError(f"measuring needs torch, which is not installed: pip install torch{way_out}")
    import torch

    if not torch.cuda.is_available():
        raise DeviceError(f"torch {torch.__version__} sees no GPU; install one built for CUDA{way_out}")


def bench(
    entrants: Sequence[Entrant],
    problem: ProblemShape,
    *,
    rounds: int,
    regimes: Sequence[Regime] = (Regime.LAUNCH,),
    cutlass: Sequence[Path] = (),
    against: contenders.Against | None = None,
    sizes: GroupSizes | None = None,
    seed: int = 0,
    after_round: Callable[[], None] = lambda: None,
) -> tuple[Result, ...]:
    """Measure all contenders on one problem, regime by regime, in the order of the entrants' settings, others first.

    The others are those that `against` names, else all that are installed, and CUTLASS's example files; with the
    `sizes` of groups, torch's grouped product and a loop of products.

    Raises CheckError for a wrong result of cutegen's before any timing, and DeviceError if device memory is short. A
    wrong result of another contender is a warning; that contender is not timed.
    """
    against = against or (partial(others, cutlass=cutlass) if sizes is None else others_of_groups)
    ready = (
        (setting, one)
        for setting, members in by_setting(entrants).items()
        for one in prepared(members, problem, against, seed=seed, in_graphs=Regime.GRAPH in regimes, sizes=sizes)
    )
    found = _results(ready, problem, regimes, {"rounds": rounds, "seed": seed, "after_round": after_round})
    return tuple(replace(each, sizes=sizes) for each in found)


def bench_call(
    entrant: Entrant,
    problem: ProblemShape,
    theirs: Iterable[tuple[str, contenders.Prepare]],
    *,
    rounds: int,
    regimes: Sequence[Regime] = (Regime.LAUNCH,),
    seed: int = 0,
    after_round: Callable[[], None] = lambda: None,
) -> tuple[Result, ...]:
    """Measure one kernel with its epilogue, beside others that compute the same call. Raises as `bench` does."""
    made = prepared_call(entrant, problem, theirs, seed=seed, in_graphs=Regime.GRAPH in regimes)
    ready = ((entrant.setting, one) for one in made)
    return _results(ready, problem, regimes, {"rounds": rounds, "seed": seed, "after_round": after_round})


def _results(
    ready: Iterable[tuple[Setting, Ready]], problem: ProblemShape, regimes: Sequence[Regime], options: dict[str, Any]
) -> tuple[Result, ...]:
    """Prepare and time the contenders. Raises DeviceError if device memory is short."""
    import torch

    try:
        return tuple(_timed(ready, problem, regimes, options))
    except torch.OutOfMemoryError as error:
        first_line = str(error).partition(". ")[0]
        raise DeviceError(f"{problem}: {first_line}; use a smaller --problem") from error


def _timed(
    contenders: Iterable[tuple[Setting, Ready]],
    problem: ProblemShape,
    regimes: Sequence[Regime],
    options: dict[str, Any],
) -> Iterator[Result]:
    ready = {
        f"{setting}: {one.name}{', ours' * one.ours}": (setting, one)  # a spec may have a library's name
        for setting, one in contenders
    }
    for regime in regimes:
        if regime is Regime.LAUNCH:
            measured = launch_times({name: one.call for name, (_, one) in ready.items()}, **options)
        else:
            graphs = {name: one.graph for name, (_, one) in ready.items() if one.graph is not None}
            measured = graph_times(graphs, **options)
        state = device_state()
        for name, times in measured.items():
            setting, one = ready[name]
            yield Result(
                problem=problem,
                setting=setting,
                contender=one.name,
                ours=one.ours,
                types=one.types,
                rel_error=one.rel_errors[regime],
                measurement=times,
                regime=regime,
                state=state,
            )


def device_state() -> DeviceState | None:
    """Return the current clocks, power and temperature of torch's current GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    found = nvml(torch.cuda.current_device())
    return found.state() if found else None


def x_torch(result: Result, results: Iterable[Result]) -> float | None:
    """Return the speed relative to torch on the same operands in the same regime; None without that time.

    That is torch.matmul, for groups torch's grouped product, or the loop of products where that one cannot run.
    """
    same = (result.problem, result.setting, result.regime)
    times = [
        x.measurement.median_us
        for x in results
        if x.contender in (contenders.TORCH, contenders.TORCH_GROUPED, contenders.TORCH_LOOP)
        and not x.ours
        and (x.problem, x.setting, x.regime) == same
    ]
    return times[0] / result.measurement.median_us if times else None
