"""The calls that a program made, torch beside cutegen: each is measured, and weighted by how often it was made."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from cutegen.api import compile_gemm
from cutegen.bench.benchmark import Result, bench_call
from cutegen.bench.contenders import Entrant, Operands, Prepare
from cutegen.bench.measure import WARM_UP_ROUNDS, Call, Regime
from cutegen.dispatch.providers import providers
from cutegen.errors import CutegenError
from cutegen.hardware.targeting import present_gpu_name, present_target
from cutegen.pack.kernel_list import RecordedCall
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


# A call of `cutegen.matmul` as a program in PyTorch writes it: a product, and a kernel for each term that is left.
#
# Torch's product computes a bias, C with its factors, and scales of 8-bit floats where it takes them. The last kernel
# writes the result, so that nothing is copied. What `aux` stores, torch keeps anyway.


Step = Callable[[Any, Any], Any]
"""A function of a value, None for the first; it writes to memory if that is given."""


def in_torch(ops: Sequence[str], *, tf32: bool = False) -> Prepare | None:
    """Return what computes a product with these ops of an epilogue in eager torch; None for an op of another kind."""
    known = all(op in _STEPS for op in ops)
    return partial(_call, tuple(op for op in ops if op != "aux"), tf32) if known else None


def _call(ops: tuple[str, ...], tf32: bool, x: Operands) -> Call:
    import torch

    if x.a.dtype == torch.float32:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
    product = _product(ops, x)
    steps: list[Step] = [product.step, *(partial(_STEPS[op], x.extras) for op in ops[product.ops :])]

    def call() -> None:
        value, dtype = None, product.dtype
        for step in steps:
            value = step(value, x.out if step is steps[-1] and dtype == x.out.dtype else None)
            dtype = value.dtype
        if value is not x.out:  # of another type than the result
            x.out.copy_(value)

    return call


class _Product(NamedTuple):
    """Torch's product, how many of the first ops it computes as well, and its type."""

    step: Step
    ops: int
    dtype: Any


def _product(ops: tuple[str, ...], x: Operands) -> _Product:
    import torch

    dtype, extras, batched = x.a.dtype, x.extras, x.a.dim() == 3
    if dtype == torch.int8:
        return _Product(lambda _, out: _into(out, torch._int_mm, x.a, x.b), 0, torch.int32)
    if dtype.itemsize == 1:
        by_rows = ops[:2] == ("scale_m", "scale_n") and extras["scale_m"].dtype == torch.float32
        one = torch.ones((), dtype=torch.float32, device=x.a.device)
        scales = (extras["scale_m"][:, None], extras["scale_n"][None, :]) if by_rows else (one, one)
        scaled = partial(torch._scaled_mm, scale_a=scales[0], scale_b=scales[1], out_dtype=x.out.dtype)
        return _Product(lambda _, out: _into(out, scaled, x.a, x.b), 2 if by_rows else 0, x.out.dtype)
    with_c = ("alpha", "beta") if ops[:2] == ("alpha", "beta") else ("beta",)
    if ops[: len(with_c)] == with_c and extras["c"].dtype == dtype:
        add = torch.baddbmm if batched else torch.addmm
        added = partial(add, extras["c"], beta=extras["beta"], alpha=extras.get("alpha", 1.0))
        return _Product(lambda _, out: _into(out, added, x.a, x.b), len(with_c), dtype)
    if ops[:1] == ("bias_n",) and not batched and extras["bias"].dtype == dtype:
        return _Product(lambda _, out: _into(out, torch.addmm, extras["bias"], x.a, x.b), 1, dtype)
    return _Product(lambda _, out: _into(out, torch.bmm if batched else torch.mm, x.a, x.b), 0, dtype)


def _into(out: Any, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    return function(*given, **named) if out is None else function(*given, **named, out=out)


def _add(name: str, extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    return _into(out, torch.add, y, extras[name])


def _add_c(extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    return _into(out, torch.add, y, extras["c"], alpha=extras["beta"])


def _add_bias(extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    bias = extras["bias"] if "bias" in extras else extras["bias_n"]
    return _into(out, torch.add, y, bias[..., None, :])


def _scale(name: str, extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    factor = extras[name]
    if name == "scale_m":
        factor = factor[..., :, None]
    elif name == "scale_n":
        factor = factor[..., None, :]
    return _into(out, torch.mul, y, factor)


def _activation(name: str, extras: Mapping[str, Any], y: Any, out: Any) -> Any:
    import torch

    aten = torch.ops.aten
    if name == "relu":
        return _into(out, torch.clamp_min, y, 0)
    if name == "silu":
        return aten.silu(y) if out is None else aten.silu.out(y, out=out)
    approximate = "tanh" if name == "gelu_tanh" else "none"
    return aten.gelu(y, approximate=approximate) if out is None else aten.gelu.out(y, approximate=approximate, out=out)


_STEPS: Mapping[str, Callable[[Mapping[str, Any], Any, Any], Any]] = {
    "alpha": partial(_scale, "alpha"),
    "beta": _add_c,
    "scale_m": partial(_scale, "scale_m"),
    "scale_n": partial(_scale, "scale_n"),
    "bias_n": _add_bias,
    "aux": lambda extras, y, out: y,
    "residual": partial(_add, "residual"),
    **{name: partial(_activation, name) for name in ("relu", "gelu_erf", "gelu_tanh", "silu")},
}
