"""Calls whose results can be computed without rounding, by NumPy and torch alone: small integers, and their sums.

Nothing here asks cutegen what a kernel should compute. Where a result is not exact in float32 there is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]

_TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "tf32": torch.float32, "s8": torch.int8,
    "u8": torch.uint8, "s32": torch.int32, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip
_BITS = {"bf16": torch.uint16, "e4m3": torch.uint8, "e5m2": torch.uint8}
_ENDS = {"s8": (-128, 127), "u8": (0, 255), "s32": (-(2**31), 2**31 - 1), "e4m3": (-448, 448), "e5m2": (-57344, 57344)}
_OPS = {
    "scale_m": "scale_m * x", "scale_n": "scale_n * x",
    "alpha": "alpha * x", "beta": "x + beta * c", "bias_n": "x + bias_n", "bias_m": "x + bias_m", "relu": "relu(x)",
    "residual": "x + residual", "gelu_tanh": "gelu_tanh(x)", "gelu_erf": "gelu_erf(x)", "silu": "silu(x)",
}  # fmt: skip
_EXACT_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs, "max": np.maximum, "min": np.minimum, "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip


def encoded(values: Array, dtype: str) -> Array:
    """The values in memory as `dtype`, rounded to nearest and held within its range.

    >>> encoded(np.array([1.0, 3.0, 1e6]), "e4m3").tolist()
    [56, 68, 126]
    """
    if dtype in _ENDS:
        values = np.clip(values, *_ENDS[dtype])
    if dtype in ("s8", "u8", "s32"):
        values = np.rint(values)
    tensor = torch.from_numpy(np.array(values, order="C")).to(_TORCH[dtype])
    made: Array = (tensor.view(_BITS[dtype]) if dtype in _BITS else tensor).numpy()
    return made


def decoded(array: Array, dtype: str) -> Array:
    """What an array of `dtype` holds, in float64."""
    tensor = torch.from_numpy(np.array(array, order="C"))
    made: Array = (tensor.view(_TORCH[dtype]) if dtype in _BITS else tensor).double().numpy()
    return made


def small_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """-2 to 2, or as u8 0 to 3 and 252 to 255, in memory as `dtype`."""
    if dtype == "u8":
        return rng.integers(-4, 3, shape, np.int8, endpoint=True).view(np.uint8)
    return encoded(rng.integers(-2, 2, shape, endpoint=True).astype(np.float64), dtype)


def chain_results(
    sums: Array, ops: tuple[str, ...], expression: str | None, operands: Mapping[str, Any]
) -> tuple[Array, Array | None] | None:
    """The result of an epilogue's chain and what it stored on the way; None where float32 would round.

    `sums` (M,N) are integers; `operands` are by the names that they have in expressions.
    """
    narrow = _follow(sums, ops, expression, operands, np.float32)
    wide = _follow(sums, ops, expression, operands, np.float64)
    if narrow is None or wide is None:
        return None
    pairs = [(a, b) for a, b in zip(narrow, wide, strict=True) if a is not None]
    exact = all(np.isfinite(b).all() and (a.astype(np.float64) == b).all() for a, b in pairs)
    return (wide[0], wide[1]) if exact else None


def _follow(
    x: Array, ops: tuple[str, ...], expression: str | None, operands: Mapping[str, Any], kind: type[Any]
) -> tuple[Array, Array | None] | None:
    aux: Array | None = None
    known = {name: np.asarray(value, kind) for name, value in operands.items()}
    x = x.astype(kind)
    body = [] if expression is None else [expression.partition("->")[2]]
    for step in (*(_OPS.get(op, op) for op in ops), *body):
        if step == "aux":
            aux = x
            continue
        if set(re.findall(r"[a-z_]\w*", step)) - set(known) - set(_EXACT_FUNCTIONS) - {"x"} or "/" in step:
            return None
        numbers_in_kind = re.sub(r"(?<![\w.])\d+(\.\d+)?(e-?\d+)?", r"kind(\g<0>)", step)
        with np.errstate(all="ignore"):
            made = eval(numbers_in_kind, {"__builtins__": {}}, {**_EXACT_FUNCTIONS, **known, "x": x, "kind": kind})
        x = np.broadcast_to(made, x.shape)
    return x, aux


def beside_untouched(before: Mapping[str, bytes], array: Array, name: str) -> bool:
    """Return whether the memory that `array` lies in is as it was, but for its own elements."""
    whole = owner(array)
    mine = np.zeros(whole.shape, bool)
    offset = (array.ctypes.data - whole.ctypes.data) // whole.itemsize
    strides = tuple(stride // array.itemsize * mine.itemsize for stride in array.strides)
    np.lib.stride_tricks.as_strided(mine[offset:], array.shape, strides)[...] = True
    old = np.frombuffer(before[name], np.uint8).reshape(-1, whole.itemsize)
    now = np.frombuffer(whole.tobytes(), np.uint8).reshape(-1, whole.itemsize)
    return bool((old[~mine] == now[~mine]).all())


def owner(array: Array) -> Array:
    """The flat array whose memory a view borrows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    assert array.ndim == 1
    return array
