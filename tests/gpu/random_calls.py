"""Random calls of `cutegen.matmul` on the GPU at hand, as a model makes them, against float64; each call twice.

    python -m tests.gpu.random_calls --seed 0 --count 400 --jobs 14 [--seconds 150]

Extents of every order of magnitude, whole chunks and odd ones; operands that lie along either mode, padded or begun in
the middle of a row; batches that broadcast; biases, activations, residuals, scales and results of other types. A line
for each call that is refused or wrong; exit status 1 when there is one. Kernels are compiled on the way.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from tests.fuzz.case import random_of

DTYPES = ("float16", "bfloat16", "bfloat16", "float16", "bfloat16", "float32", "float8_e4m3fn", "int8")
HALVES = ("float16", "bfloat16")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
MOST = (3000, 3000, 6000)
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-18, "int32": 0.0}
"""The largest error of a result, of itself: two roundings of its type, or what sums of few products are off."""
OF_SUMS = {"float32": 1.2e-2, "float8_e4m3fn": 8e-3, "int8": 0.0}
"""The same of |A row| |B column| / sqrt(K): tf32 cuts operands off, tensor cores cut sums of 8-bit floats."""
SUMS = 8e-4


@dataclass(frozen=True, slots=True)
class Call:
    """Operands and keywords, and what they are in words."""

    a: Any
    b: Any
    terms: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        of = {"a": self.a, "b": self.b} | self.terms
        return ", ".join(f"{name} {_said(value)}" for name, value in of.items())


def main() -> int:
    """Make the calls in processes of their own: a kernel that ends one CUDA context leaves the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further call after so many")
    options = parser.parse_args()
    end_s, right, found = time.time() + options.seconds, 0, 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        seeds = range(options.seed, options.seed + options.count)
        for future in as_completed([pool.submit(_judged, seed, end_s) for seed in seeds]):
            said = future.result()
            right, found = right + (said == ""), found + bool(said)
            if said:
                print(said, flush=True)
    print(f"{right} of {right + found} calls right, {options.count - right - found} not reached")
    return int(found > 0)


def made(seed: int, device: str = "cuda") -> Call:
    """A seed's call, with random data where `device` is not "meta"."""
    import torch

    rng, numbers = random_of("calls", seed), None if device == "meta" else torch.Generator(device).manual_seed(seed)
    name = rng.choice(DTYPES)
    m, n, k = (_extent(rng, most) for most in MOST)
    batch = rng.choice(((), (), (), (3,), (2, 2)))

    def filled(*shape: int, dtype: str = name) -> Any:
        kind = getattr(torch, dtype)
        if numbers is None:
            return torch.empty(shape, device=device, dtype=kind)
        if dtype == "int8":
            return torch.randint(-8, 9, shape, device=device, dtype=kind, generator=numbers)
        return torch.randn(shape, device=device, generator=numbers).to(kind)

    a, b = _laid_out(rng, filled, batch, m, k), _laid_out(rng, filled, rng.choice(((), batch)), k, n)
    terms: dict[str, Any] = {}
    if name != "int8" and rng.random() < 0.4:
        terms["bias"] = filled(n, dtype=name if name in HALVES and rng.random() < 0.7 else "float32")
    if name != "int8" and rng.random() < 0.35:
        terms["activation"] = rng.choice(ACTIVATIONS)
    if name in HALVES and rng.random() < 0.2:
        terms["residual"] = filled(*batch, m, n)
    if name in HALVES and rng.random() < 0.3:
        wide = filled(*batch, m, n + 3)[..., :n]
        terms |= {"out": wide} if rng.random() < 0.4 else {"out_dtype": torch.float32}
    if name == "float8_e4m3fn" and rng.random() < 0.5:
        terms |= {"scale_a": filled(m, dtype="float32"), "scale_b": filled(n, dtype="float32")}
    return Call(a, b, terms)


def _extent(rng: random.Random, most: int) -> int:
    extent = max(1, round(math.exp(rng.uniform(0, math.log(most)))))
    return 8 * math.ceil(extent / 8) if rng.random() < 0.6 else extent


def _laid_out(rng: random.Random, filled: Any, batch: tuple[int, ...], rows: int, columns: int) -> Any:
    """A matrix, or a batch of them: along its rows or columns, padded, or a part of a larger one."""
    match rng.choice(("rows", "rows", "columns", "columns", "padded", "part", "odd")):
        case "rows":
            return filled(*batch, rows, columns)
        case "columns":
            return filled(*batch, columns, rows).transpose(-1, -2)
        case "padded":
            return filled(*batch, rows, columns + rng.choice((1, 3, 8, 16)))[..., :columns]
        case "part":
            return filled(*batch, rows + 2, columns + 8)[..., 1 : rows + 1, 8:]
        case _:
            return filled(*batch, rows, columns + 5)[..., 1 : columns + 1]


def _judged(seed: int, end_s: float) -> str | None:
    """What is wrong with a seed's call; "" where nothing is, None where its time had not come."""
    import torch

    import cutegen

    if time.time() > end_s:
        return None
    call = made(seed)
    try:
        found = cutegen.matmul(call.a, call.b, **call.terms).clone()
        again = cutegen.matmul(call.a, call.b, **call.terms)
    except Exception as error:  # a CUDA error is torch's RuntimeError
        return f"seed {seed}: {call}: {type(error).__name__}: {str(error)[:300]}"
    if not torch.equal(found, again):
        return f"seed {seed}: {call}: the second call's bits are others"
    expected, allowed = _expected(call, str(found.dtype).removeprefix("torch."))
    wrong = ~((found.double() - expected).abs() <= allowed)
    return f"seed {seed}: {call}: {int(wrong.sum())} of {wrong.numel()} elements wrong" if bool(wrong.any()) else ""


def _expected(call: Call, result: str) -> tuple[Any, Any]:
    """The result in float64, and how far off a right one may be."""
    from torch.nn import functional

    a, b, terms = call.a.double(), call.b.double(), call.terms
    x = a @ b
    sums = a.norm(dim=-1)[..., :, None] * b.norm(dim=-2)[..., None, :] / math.sqrt(a.shape[-1])
    if "scale_a" in terms:
        scales = terms["scale_a"].double()[:, None] * terms["scale_b"].double()
        x, sums = scales * x, scales.abs() * sums
    if "bias" in terms:
        x = x + terms["bias"].double()
    match terms.get("activation"):
        case "gelu_tanh":
            x = functional.gelu(x, approximate="tanh")
        case str(name):
            x = getattr(functional, name)(x)
    if "residual" in terms:
        x = x + terms["residual"].double()
    name = str(call.a.dtype).removeprefix("torch.")
    return x, STEP[result] * (x.abs() + 0.05) + OF_SUMS.get(name, SUMS) * sums


def _said(value: Any) -> str:
    if not hasattr(value, "stride"):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} by {list(value.stride())}"


if __name__ == "__main__":
    sys.exit(main())
