"""Random calls of `grouped_mm` and `scaled_grouped_mm` against a loop in float64: by torch, by the executor, on a GPU.

Forms, element types, strides, biases, activations, pairs, factors, tails, empty groups and any bits in place of ends.
In half of the calls, what no group has is NaN.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from tests.torch_ops.test_gated import by_torch, taken_apart  # noqa: E402

E4M3, BLOCK, LEFT = torch.float8_e4m3fn, 128, 7.0
TYPES = (torch.float16, torch.bfloat16, E4M3)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
}
SLOPE = 1.2
"""Most that an activation, or the gate of a pair, changes by of its argument's change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call: its operands and keywords, and for each group its place in the result and its exact operands."""

    a: Tensor
    b: Tensor
    terms: dict[str, Any] = field(default_factory=dict)
    parts: list[tuple[Any, Tensor, Tensor]]
    bias: Tensor | None
    shape: tuple[int, ...]


def made(seed: int, *, executed: bool) -> Case:
    """A seed's call; for one that is `executed`, extents are small."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    form, kind = rng.choice(("m", "m", "padded", "k", "n")), rng.choice(TYPES)
    groups, room = rng.choice((1, 2, 3, 8, 33 if executed else 300)), rng.choice((1, 31, 64, 90))
    n, k = 8 * rng.choice((1, 3, 8, 11)), rng.choice((0, 7, 24, 128, 200))
    given = _ends(rng, groups, room, form)
    values = {
        "m": ((room, k), (groups, k, n)),
        "padded": ((groups, room, k), (groups, k, n)),
        "k": ((n, room), (room, 40)),
        "n": ((groups, n, k), (k, room)),
    }[form]
    a, b = (_laid_out(rng, torch.randn(shape).to(kind)) for shape in values)
    terms: dict[str, Any] = {("sizes" if form == "padded" else "offs"): torch.tensor(given, dtype=torch.int32)}
    wide_a, wide_b = a.double(), b.double()
    if kind is E4M3 and rng.random() < 0.7:
        terms["scale_a"], terms["scale_b"], wide_a, wide_b = _scaled(rng, form, a, b, groups)
    bias = None
    if rng.random() < 0.5:
        columns = b.shape[-1]
        bias = torch.randn(columns) if form == "n" or rng.random() < 0.3 else torch.randn(groups, columns)
        terms["bias"] = bias
    kinds = [None, *ACTIVATIONS] if form == "n" else [None, *ACTIVATIONS, "swiglu", "swiglu"]
    terms["activation"] = rng.choice(kinds)
    if terms["activation"] == "swiglu":
        terms |= {"pairs": rng.choice(("halves", "interleaved")), "first": rng.choice(("gate", "up"))}
        if b.shape[-1] % 16 == 0 and rng.random() < 0.4:
            terms["pairs"] = 8
    if rng.random() < 0.5:
        terms["out_dtype"] = torch.float32
    parts = _parts(form, wide_a, wide_b, given, room)
    members = 2 if terms["activation"] == "swiglu" else 1
    modes = {"m": (room, n), "padded": (groups, room, n), "k": (groups, n, b.shape[-1]), "n": (n, room)}[form]
    shape = (*modes[:-1], modes[-1] // members)
    if rng.random() < 0.5 and form != "k":
        with torch.no_grad():
            _spoil(form, a, b, given, room)
    if rng.random() < 0.3:
        element = terms.pop("out_dtype", torch.bfloat16 if kind is E4M3 else kind)
        terms["out"] = torch.full(shape, LEFT, dtype=element)
    return Case(a=a, b=b, terms=terms, parts=parts, bias=bias, shape=shape)


def _ends(rng: random.Random, groups: int, room: int, form: str) -> list[int]:
    if rng.random() < 0.3:
        return [rng.choice((-(2**31), -1, 0, 1, room, room + 1, 2**31 - 1)) for _ in range(groups)]
    found = [rng.choice((0, 0, rng.randint(0, room), room)) for _ in range(groups)]
    return found if form == "padded" else sorted(found)


def _laid_out(rng: random.Random, x: Tensor) -> Tensor:
    """A matrix, or several: along rows or columns, or part of a larger one."""
    match rng.choice(("rows", "rows", "columns", "padded", "odd")):
        case "rows":
            return x
        case "columns":
            return x.mT.contiguous().mT
        case "padded":
            wider = torch.zeros(*x.shape[:-1], x.shape[-1] + 16, dtype=x.dtype)
        case _:
            wider = torch.zeros(*x.shape[:-1], x.shape[-1] + 3, dtype=x.dtype)
    wider[..., : x.shape[-1]] = x
    return wider[..., : x.shape[-1]]


def _scaled(rng: random.Random, form: str, a: Tensor, b: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Factors of rows and columns, or of blocks, as `grouped_mm` has them, and the scaled operands in float64.

    Those of parts of K are for all groups.
    """
    if form in ("m", "padded") and rng.random() < 0.6 and a.shape[-1]:
        along_k, rows = -(-a.shape[-1] // BLOCK), -(-b.shape[-1] // BLOCK)
        of_a, of_b = torch.rand(*a.shape[:-1], along_k) + 0.5, torch.rand(groups, along_k, rows) + 0.5
        spread_a = of_a.double().repeat_interleave(BLOCK, -1)[..., : a.shape[-1]]
        spread_b = of_b.double().repeat_interleave(BLOCK, -1).repeat_interleave(BLOCK, -2)
        return of_a, of_b, a.double() * spread_a, b.double() * spread_b[:, : b.shape[-2], : b.shape[-1]]
    of_a = torch.rand(a.shape[:-1]) + 0.5
    of_b = torch.rand(*b.shape[:-2], b.shape[-1]) + 0.5
    return of_a, of_b, a.double() * of_a.double()[..., None], b.double() * of_b.double()[..., None, :]


def _parts(form: str, a: Tensor, b: Tensor, given: list[int], room: int) -> list[tuple[Any, Tensor, Tensor]]:
    found: list[tuple[Any, Tensor, Tensor]] = []
    begin = 0
    for group, number in enumerate(given):
        part = slice(begin, min(max(number, begin), room))
        match form:
            case "m":
                found.append((part, a[part], b[group]))
            case "padded":
                found.append(((group, part), a[group, part], b[group]))
            case "k":
                found.append((group, a[:, part], b[part]))
            case _:
                found.append(((slice(None), part), a[group], b[:, part]))
        begin = 0 if form == "padded" else part.stop
    return found


def _spoil(form: str, a: Tensor, b: Tensor, given: list[int], room: int) -> None:
    """Set what no group has of the operands to NaN."""
    clamped = [min(max(each, 0), room) for each in given]
    if form == "padded":
        for group, size in enumerate(clamped):
            a[group, size:] = torch.nan
    elif form == "m":
        a[max(clamped) :] = torch.nan
    else:
        b[:, max(clamped) :] = torch.nan


def wrong(case: Case, found: Tensor) -> str:
    """Return what is wrong with a result, or nothing.

    A sum errs by what tensor cores cut of it, 13 bits of each instruction's sum for 8-bit floats, which an activation
    changes little; torch and the kernel round the result once, or twice where torch joins pairs of rounded sums.
    """
    inside = torch.zeros(case.shape, dtype=torch.bool)
    for group, (at, a, b) in enumerate(case.parts):
        sums = a @ b
        cut = 2.0**-11 * a.norm(dim=-1)[:, None] * b.norm(dim=0) + 2.0**-20
        if case.bias is not None:
            mine = case.bias[group] if case.bias.dim() == 2 else case.bias
            columns = at[1] if isinstance(at, tuple) and isinstance(at[0], slice) else slice(None)
            sums = sums + mine.double()[columns]
        name = case.terms["activation"]
        if name == "swiglu":
            order = case.terms["pairs"], case.terms["first"]
            exact, error = by_torch("swiglu", sums, *order), _error_of_pairs(sums, cut, order)
        else:
            exact, error = (sums if name is None else ACTIVATIONS[name](sums)), SLOPE * cut
        off = (found[at].double() - exact).abs()
        if not (off <= error + torch.finfo(found.dtype).eps * exact.abs()).all():
            return f"group {group}: off by {off.max()}, at most {error.max()} expected"
        inside[at] = True
    rest = found[~inside]
    return "" if (rest == (LEFT if "out" in case.terms else 0)).all() else "what no group has was written"


def _error_of_pairs(sums: Tensor, cut: Tensor, order: tuple[Any, str]) -> Tensor:
    (gate, up), (of_gate, of_up) = taken_apart(sums, *order), taken_apart(cut, *order)
    return SLOPE * of_gate * (up.abs() + of_up) + of_up * gate.abs()


def failure(seed: int, *, executed: bool) -> str:
    case = made(seed, executed=executed)
    found = cutegen.grouped_mm(case.a, case.b, **case.terms)
    assert tuple(found.shape) == case.shape
    return wrong(case, found)


@pytest.mark.parametrize(
    "first", [pytest.param(seed, marks=[pytest.mark.slow] if seed > 20 else []) for seed in range(0, 120, 10)]
)
def test_calls_by_torch_are_right(first: int) -> None:
    assert [(seed, said) for seed in range(first, first + 10) if (said := failure(seed, executed=False))] == []


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_calls_by_the_executor_are_right(seed: int, kernels: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(kernels.directory))
    with cutegen.matmul_settings(cpu_tensors="executor"):
        assert failure(seed, executed=True) == ""


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(150))
def test_calls_on_a_gpu_are_right(seed: int) -> None:
    case = made(seed, executed=False)
    terms = {name: x.cuda() if isinstance(x, Tensor) else x for name, x in case.terms.items()}
    found = cutegen.grouped_mm(case.a.cuda(), case.b.cuda(), **terms)
    assert wrong(case, found.cpu()) == ""
