"""The calls that a program made, torch beside cutegen: each is measured, and weighted by how often it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cutegen.api import compile_gemm
from cutegen.bench.benchmark import Result, bench_call
from cutegen.bench.contenders import Prepare
from cutegen.bench.entrants import Entrant
from cutegen.bench.in_torch import in_torch
from cutegen.bench.measure import WARM_UP_ROUNDS, Regime
from cutegen.dispatch.providers import providers
from cutegen.errors import CutegenError
from cutegen.hardware.targeting import present_gpu_name, present_target
from cutegen.pack.calls import RecordedCall
from cutegen.spec import GemmSpec

OF_GROUPS = "sizes of groups are not in a list"
TORCH = "torch"
"""Contender: the call as a program in PyTorch writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimes:
    """One call in one regime. `torch` is None if it has no such call, or a wrong result; `provider` chose the kernel.

    Without `ours` it was not measured, and `why` says so; `exit_code` is not 0 if there is no kernel.
    """

    call: RecordedCall
    regime: Regime
    ours: Result | None = None
    torch: Result | None = None
    provider: str = ""
    why: str = ""
    exit_code: int = 0

    @property
    def x_torch(self) -> float | None:
        """The speed relative to torch."""
        if self.ours is None or self.torch is None:
            return None
        return self.torch.measurement.median_us / self.ours.measurement.median_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Times of all calls of one regime that both have computed, each as often as it was made.

    `left_out` calls have no time of cutegen or of torch.
    """

    regime: Regime
    calls: int
    ours_us: float
    torch_us: float
    left_out: int

    @property
    def x_torch(self) -> float | None:
        """The speed relative to torch; None without calls."""
        return self.torch_us / self.ours_us if self.ours_us else None


def totals(times: Sequence[CallTimes]) -> tuple[Totals, ...]:
    """Return the totals of each regime, in the order of the times."""
    return tuple(_totals(regime, [x for x in times if x.regime is regime]) for regime in _regimes(times))


def _regimes(times: Iterable[CallTimes]) -> tuple[Regime, ...]:
    return tuple(dict.fromkeys(each.regime for each in times))


def _totals(regime: Regime, times: Sequence[CallTimes]) -> Totals:
    both = [(x.call.times, x.ours.measurement, x.torch.measurement) for x in times if x.ours and x.torch]
    return Totals(
        regime=regime,
        calls=sum(each for each, _, _ in both),
        ours_us=sum(each * ours.median_us for each, ours, _ in both),
        torch_us=sum(each * theirs.median_us for each, _, theirs in both),
        left_out=sum(x.call.times for x in times if x.x_torch is None),
    )


def rounds_of(calls: Sequence[RecordedCall], rounds: int, regimes: Sequence[Regime]) -> int:
    """Return how often `after_round` is called."""
    return len(calls) * len(regimes) * (WARM_UP_ROUNDS + rounds)


def bench_calls(
    calls: Sequence[RecordedCall],
    *,
    rounds: int,
    regimes: Sequence[Regime] = tuple(Regime),
    seed: int = 0,
    before: Callable[[RecordedCall], None] = lambda _: None,
    after_round: Callable[[], None] = lambda: None,
) -> Iterator[CallTimes]:
    """Measure each call on the present GPU, by the kernel that would serve it here, beside torch.

    A call without a kernel is one of the results, and the others go on. Raises CheckError for a wrong result of
    cutegen's, DeviceError if device memory is short.
    """
    for call in calls:
        before(call)
        if call.problem.groups is not None:
            yield from (CallTimes(call=call, regime=x, why=OF_GROUPS) for x in regimes)
            continue
        try:
            entrant, provider = entrant_of(call)
        except CutegenError as error:
            why = " ".join(str(error).split())
            yield from (CallTimes(call=call, regime=x, why=why, exit_code=error.exit_code) for x in regimes)
            continue
        results = bench_call(
            entrant,
            call.problem,
            _theirs(call.wanted.spec),
            rounds=rounds,
            regimes=regimes,
            seed=seed,
            after_round=after_round,
        )
        for regime in regimes:
            found = {each.ours: each for each in results if each.regime is regime}
            yield CallTimes(call=call, regime=regime, ours=found.get(True), torch=found.get(False), provider=provider)


def _theirs(spec: GemmSpec) -> list[tuple[str, Prepare]]:
    """Return torch's way to compute a spec, if there is one."""
    scaled = spec.problem.scale_a is not None or spec.problem.scale_b is not None  # by blocks: torch's recipes differ
    if spec.epilogue.expression is not None or scaled:
        return []
    found = in_torch(spec.epilogue.ops or (), tf32=spec.problem.a.dtype == "tf32")
    return [] if found is None else [(TORCH, found)]


def entrant_of(call: RecordedCall) -> tuple[Entrant, str]:
    """Return the kernel that would serve a call on the present GPU, and who chose it. Raises as `matmul` does."""
    target = present_target()
    arch = call.wanted.target if target is None else target.name
    if call.request is None:
        return Entrant(call.wanted.name, compile_gemm(call.wanted.spec, arch, problem=call.problem)), "the spec"
    served = providers.kernel_for(replace(call.request, target=arch, device=present_gpu_name()))
    return Entrant(call.request.name, served.kernel), served.provider
