"""`cutegen.quantize`: a matrix as 8-bit floats with a factor for each block, in layouts that kernels read in place."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from cutegen.dispatch.block_scales import BLOCK, ROWS_OF_BLOCKS
from cutegen.errors import OperandError, RequestError
from cutegen.torch_ops.micro_scales import powers_of_two, quantized
from cutegen.torch_ops.packed_rows import PackedRows

FLOAT8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
Matrices = TypeVar("Matrices", Tensor, "np.ndarray[Any, Any]")
_VECTOR = 4
"""Elements of f32 in the 16 bytes of which leading strides of factors are multiples."""


def quantize(
    x: Matrices,
    block: tuple[int, int] = (1, BLOCK),
    *,
    dtype: Literal["e4m3", "e5m2", "e2m1"] = "e4m3",
    floor: float = 1e-4,
    scale: Literal["f32", "ue8m0", "ue4m3"] = "f32",
    offs: Any = None,
) -> tuple[Matrices, Any]:
    """Return `x` (..., R, C) as 8-bit floats, and the factors of its blocks: `values * factors` approximates it.

    For blocks of (1, 128) or (128, 128), with the largest finite value L of `dtype` (448 for e4m3):

        s = max(largest magnitude of the block, floor) / L        values = round(x * round(1 / s))

    in f32, to nearest. Factors are (R, C/128) with rows contiguous, or (R/128, C/128) with columns contiguous, extents
    rounded up; leading strides are multiples of 4, so that kernels read them in place. With `scale="ue8m0"` factors are
    rounded up to powers of two. A NaN makes all of its block NaN. No gradients pass.

    Factors of 8 bits for Blackwell are in torch's SWIZZLE_32_4_4 layout, and values x / s:

        (1, 32), scale="ue8m0"                  mxf8, or with dtype="e2m1" mxf4: s as above, a power of two
        (1, 16), scale="ue4m3", dtype="e2m1"    nvf4: s = t u; t = largest magnitude of all / (6 448), an f32 of the
                                                tensor, and u = the block's / 6 / t in e4m3; factors are (u, t)

    Values of e2m1 are `float4_e2m1fn_x2` (..., R, C/2): two in a byte, ties to even.

    With `offs`, the ends of groups of rows, (G,) of int32, factors of 8 bits are those of `scaled_grouped_mm`: each
    group's in whole atoms of 128 rows, one group after another, in ((R + 127 G) / 128 x 128, factors of a row). t is
    (G,) then. Rows past the last end have no factors.

    Of a NumPy array both are NumPy's; values, whose types it lacks, are in bytes, uint8.

    Raises OperandError for a tensor without rows and columns, RequestError for other arguments.
    """
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        ends = offs if offs is None else torch.from_numpy(np.ascontiguousarray(offs))
        values, factors = quantize(tensor, block, dtype=dtype, floor=floor, scale=scale, offs=ends)
        return _array(values), tuple(map(_array, factors)) if isinstance(factors, tuple) else _array(factors)
    if tuple(block) in _OF_8_BITS or dtype == "e2m1" or scale == "ue4m3":
        return _of_8_bits(x, tuple(block), dtype, scale, floor, offs)
    if offs is not None:
        raise RequestError(
            f"quantize: offs: found ends of groups with blocks of {block}; expected (1, 32) or (1, 16): "
            "factors in f32 are those of each row, wherever a group begins"
        )
    if dtype not in FLOAT8:
        raise RequestError(f"quantize: dtype: found {dtype!r}; expected one of {', '.join(FLOAT8)}")
    if scale not in ("f32", "ue8m0"):
        raise RequestError(f"quantize: scale: found {scale!r}; expected 'f32' or 'ue8m0'")
    if len(block) != 2 or block[0] not in ROWS_OF_BLOCKS or block[1] != BLOCK:
        raise RequestError(f"quantize: block: found {block!r}; expected (1, {BLOCK}) or ({BLOCK}, {BLOCK})")
    _check(x)
    assert isinstance(x, Tensor)
    with torch.no_grad():
        wide, most = x.to(torch.float32), torch.finfo(FLOAT8[dtype]).max
        factors = _largest(wide, block).clamp(min=floor) / most
        if scale == "ue8m0":
            factors = powers_of_two(factors)
        of_elements = 1.0 / factors
        for dim, each in zip((-2, -1), block, strict=True):
            of_elements = of_elements.repeat_interleave(each, dim)
        scaled = wide * of_elements[..., : x.shape[-2], : x.shape[-1]]
        return scaled.clamp(-most, most).to(FLOAT8[dtype]), _placed(factors, along_rows=block[0] == 1)


_OF_8_BITS = {(1, 32): ("ue8m0", ("e4m3", "e5m2", "e2m1")), (1, 16): ("ue4m3", ("e2m1",))}
"""Types of the factors and of values, by block."""


def _array(x: Tensor) -> np.ndarray[Any, Any]:
    """Return the tensor as NumPy's, in bytes if that lacks its type."""
    found: np.ndarray[Any, Any] = (x if x.dtype is torch.float32 else x.view(torch.uint8)).numpy()
    return found


def _check(x: Any, columns: int = 1) -> None:
    """Raise OperandError for what is not a matrix of floats, with a multiple of so many columns."""
    if not isinstance(x, Tensor) or x.dim() < 2 or not x.is_floating_point() or x.shape[-1] % columns:
        found = f"dtype {x.dtype}, shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__qualname__}"
        of_columns = "" if columns == 1 else f", C a multiple of {columns}"
        raise OperandError(operand="x", found=found, expected=f"floats of shape (..., R, C){of_columns}")


def _of_8_bits(x: Any, block: tuple[int, ...], dtype: str, scale: str, floor: float, ends: Any) -> tuple[Tensor, Any]:
    """Return values and factors of 8 bits. Raises as `quantize`."""
    of, types = _OF_8_BITS.get((block[0], block[-1]), ("", ()))
    if scale != of or dtype not in types:
        known = (
            f"{each} with scale={of!r} and dtype {' or '.join(map(repr, types))}"
            for each, (of, types) in _OF_8_BITS.items()
        )
        raise RequestError(
            f"quantize: block: found {block} with scale={scale!r}, dtype={dtype!r}; expected {', or '.join(known)}"
        )
    _check(x, 2 if dtype == "e2m1" else 1)
    at = None if ends is None else _packed(x, ends)
    with torch.no_grad():
        kind = torch.float4_e2m1fn_x2 if dtype == "e2m1" else FLOAT8[dtype]
        return quantized(x.to(torch.float32), block[-1], kind, floor, at)


def _packed(x: Tensor, ends: Any) -> PackedRows:
    """Return the rows of groups with these ends. Raises OperandError for no vector of int32, and for no matrix."""
    if not isinstance(ends, Tensor) or ends.dim() != 1 or ends.dtype != torch.int32 or ends.device != x.device:
        found = (
            f"{ends.dtype} of shape {tuple(ends.shape)}" if isinstance(ends, Tensor) else f"a {type(ends).__qualname__}"
        )
        raise OperandError(operand="offs", found=found, expected=f"(G,) of int32 on {x.device}")
    if x.dim() != 2:
        expected = "(R, C) with offs: groups with a matrix each need none"
        raise OperandError(operand="x", found=f"shape {tuple(x.shape)}", expected=expected)
    return PackedRows.of(ends, x.shape[0])


def _largest(x: Tensor, block: tuple[int, int]) -> Tensor:
    """Return the largest magnitude of each block; the last of a mode may be a part of one."""
    rows, columns = x.shape[-2:]
    whole = [-(-extent // each) for extent, each in zip((rows, columns), block, strict=True)]
    padding = whole[1] * block[1] - columns, whole[0] * block[0] - rows
    padded = torch.nn.functional.pad(x.abs(), (0, padding[0], 0, padding[1]))
    found: Tensor = padded.unflatten(-1, (whole[1], block[1])).unflatten(-3, (whole[0], block[0])).amax((-3, -1))
    return found


def _placed(factors: Tensor, *, along_rows: bool) -> Tensor:
    """Return factors with a leading stride of whole vectors, and rows or columns contiguous."""
    mine = factors.mT if along_rows else factors
    stride = -(-mine.shape[-1] // _VECTOR) * _VECTOR
    made = mine.new_zeros((*mine.shape[:-1], stride))[..., : mine.shape[-1]]
    made.copy_(mine)
    return made.mT if along_rows else made
