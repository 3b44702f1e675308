"""`cutegen.quantize`: a matrix as 8-bit floats with a factor for each block, as kernels read them in place."""

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from cutegen.dispatch.block_scales import BLOCK, ROWS_OF_BLOCKS
from cutegen.errors import OperandError, RequestError
from cutegen.hardware.factor_atoms import ATOM_COLUMNS, ATOM_ROWS, COLUMN_ROWS, PER_WORD
from cutegen.support.words import round_up
from cutegen.torch_ops.packed_rows import PackedRows

# Factors of 8 bits for 16 or 32 values of K: quantization to them, torch's blocked layout, and what they stand for.
#
# mxf8 and mxf4 have a power of two, ue8m0, for 32 values (OCP Microscaling Formats 1.0). nvf4 has an e4m3 for 16
# values, and an f32 for each tensor. 4-bit floats are two in a byte, the first in the low bits.


_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_TIES_DOWN, _TIES_UP = (0.25, 1.25, 2.5, 5.0), (0.75, 1.75, 3.5)
"""Midpoints of values of e2m1, where the one with an even code is below, or above."""
_LARGEST_E4M3 = 448.0
SWIZZLED, AS_THEY_ARE = "SWIZZLE_32_4_4", "NO_SWIZZLE"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Blocks of `block_k` values, each with a factor of the torch type `factors`."""

    block_k: int
    factors: torch.dtype


RECIPES = {
    "BlockWise1x32": Recipe(32, torch.float8_e8m0fnu),
    "BlockWise1x16": Recipe(16, torch.float8_e4m3fn),
}
"""Recipes by torch's name in ScalingType."""
TYPES = {each.factors: each.block_k for each in RECIPES.values()}
"""Values along K that share a factor, by its type."""


def powers_of_two(x: Tensor) -> Tensor:
    """Round positive numbers up to powers of two."""
    mantissa, exponent = torch.frexp(x)
    rounded: Tensor = torch.ldexp(torch.ones_like(x), exponent - (mantissa == 0.5).to(exponent.dtype))
    return torch.where(x.isfinite(), rounded, x)


def quantized_to_micro_scales(
    x: Tensor, block_k: int, kind: torch.dtype, floor: float, at: PackedRows | None = None
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """Return `x` (..., R, C), f32, as values and the factors of its blocks of `block_k`, 32 or 16, in torch's layout.

    Values are those of `kind`, or bytes of two e2m1. With blocks of 16 the factors are a pair: of blocks, and the f32
    of the tensor, or of each group of packed rows.
    """
    columns = x.shape[-1]
    padded = torch.nn.functional.pad(x, (0, -columns % block_k)).unflatten(-1, (-1, block_k))
    four_bits = kind == torch.float4_e2m1fn_x2
    most = _E2M1[-1] if four_bits else torch.finfo(kind).max
    largest = padded.abs().amax(-1)
    if block_k == RECIPES["BlockWise1x32"].block_k:
        of_blocks = powers_of_two(largest.clamp(min=floor) / most)
        stored, of_tensor = of_blocks.to(torch.float8_e8m0fnu), None
    else:
        of_all = largest.amax() if at is None else at.largest(largest)
        of_tensor = of_all.clamp(min=floor) / (most * _LARGEST_E4M3)
        of_rows = of_tensor if at is None else at.of_rows(of_tensor)
        least = torch.finfo(torch.float8_e4m3fn).tiny
        stored = (largest / most / of_rows).clamp(least, _LARGEST_E4M3).to(torch.float8_e4m3fn)
        of_blocks = stored.float() * of_rows
    values = (padded / of_blocks[..., None]).flatten(-2)[..., :columns]
    found = _packed(values) if four_bits else values.clamp(-most, most).to(kind)
    if at is None:
        factors = blocked(stored)
    else:
        factors = blocked(at.placed(stored)).reshape(at.room, round_up(stored.shape[1], PER_WORD))
    return found, factors if of_tensor is None else (factors, of_tensor)


def _packed(values: Tensor) -> Tensor:
    """Return values of e2m1, two in a byte, nearest to `values` (..., C), ties to even; the largest is 6."""
    size = values.abs()
    codes = sum(((size > each).to(torch.uint8) for each in _TIES_DOWN), torch.zeros_like(size, dtype=torch.uint8))
    codes = codes + sum((size >= each).to(torch.uint8) for each in _TIES_UP) + (values.signbit().to(torch.uint8) << 3)
    return (codes[..., ::2] | codes[..., 1::2] << 4).contiguous().view(torch.float4_e2m1fn_x2)


def elements(values: Tensor) -> Tensor:
    """Return 8-bit floats, or bytes of two e2m1 along the contiguous mode, as f32."""
    if values.dtype != torch.float4_e2m1fn_x2:
        return values.float()
    turned = values.stride(-1) != 1
    codes = (values.mT if turned else values).view(torch.uint8)
    table = torch.tensor((*_E2M1, *(-each for each in _E2M1)), device=values.device)
    found = table[torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()]
    return found.mT if turned else found


def blocked(factors: Tensor) -> Tensor:
    """Return factors (..., R, F) of 8 bits in atoms of 128 rows by 4, filled up with zeros: (..., all of them).

    This is torch's SWIZZLE_32_4_4, cuBLAS's layout. `Kernel`s take it as int32 of (..., R/128, 128 F/4).
    """
    rows, along_k = factors.shape[-2:]
    codes = torch.nn.functional.pad(factors.view(torch.uint8), (0, -along_k % PER_WORD, 0, -rows % ATOM_ROWS))
    atoms = codes.unflatten(-1, (-1, PER_WORD)).unflatten(-3, (-1, ATOM_COLUMNS, COLUMN_ROWS))
    # [block of rows, column, lane, atom, factor] -> [block of rows, atom, lane, column, factor]
    return atoms.transpose(-4, -2).flatten(-5).contiguous().view(factors.dtype)


def unblocked(factors: Tensor, rows: int, along_k: int) -> Tensor:
    """Return factors (..., rows, K) in order from those of `blocked`, (..., all of a matrix)."""
    blocks, atoms = -(-rows // ATOM_ROWS), -(-along_k // PER_WORD)
    batch = factors.shape[:-1]
    codes = factors.contiguous().view(torch.uint8).reshape(*batch, blocks, atoms, COLUMN_ROWS, ATOM_COLUMNS, PER_WORD)
    placed = codes.transpose(-4, -2).reshape(*batch, blocks * ATOM_ROWS, atoms * PER_WORD)
    return placed[..., :rows, :along_k].contiguous().view(factors.dtype)


def scaled(values: Tensor, factors: Tensor) -> Tensor:
    """Return 8-bit floats or pairs of e2m1 (..., X, K) in f32, each times its factor, of those of `blocked`."""
    wide, block_k = elements(values), TYPES[factors.dtype]
    *batch, rows, k = wide.shape
    along_k = -(-k // block_k)
    codes = factors.reshape(*batch, round_up(rows, ATOM_ROWS) * round_up(along_k, PER_WORD))
    placed = unblocked(codes, rows, along_k)
    return wide * placed.float().repeat_interleave(block_k, -1)[..., :k]


def as_atoms(
    name: str, values: Tensor, factors: Tensor, recipe: str, swizzle: str, at: PackedRows | None = None
) -> Tensor:
    """Return the factors of an operand (..., X, K) of torch's `scaled_mm` as those of `blocked`, called `name`.

    Those of packed rows are put where their groups have them.

    Raises OperandError for others than the recipe's.
    """
    of = RECIPES[recipe]
    *batch, rows, k = values.shape
    k *= 2 if values.dtype == torch.float4_e2m1fn_x2 else 1
    shape = (*batch, rows, -(-k // of.block_k))
    if factors.dtype != of.factors or (swizzle == AS_THEY_ARE and tuple(factors.shape) != shape):
        count = f" {' x '.join(map(str, shape))} in {swizzle}" if swizzle == AS_THEY_ARE else ""
        raise OperandError(
            operand=name,
            found=f"{factors.dtype} of shape {tuple(factors.shape)}",
            expected=f"{of.factors},{count} for {recipe} of {' x '.join(map(str, (*batch, rows, k)))} values",
            fix=f'swizzle_{name[-1]}="{SWIZZLED}" for those of cutegen.quantize' if count else "",
        )
    if swizzle == SWIZZLED:
        return factors
    return blocked(factors if at is None else at.placed(factors))


def check_swizzles(function: str, swizzles: tuple[str, str]) -> None:
    """Raise RequestError for an unknown layout of factors."""
    for name, swizzle in zip(("swizzle_a", "swizzle_b"), swizzles, strict=True):
        if swizzle not in (SWIZZLED, AS_THEY_ARE):
            raise RequestError(f"{function}: {name}: found {swizzle!r}; expected {SWIZZLED} or {AS_THEY_ARE}")


def check_recipes(function: str, recipes: tuple[str, str]) -> None:
    """Raise RequestError for recipes of two kinds."""
    of_a, of_b = recipes
    if of_a != of_b:
        found, expected = f"{of_b} with {of_a}", f"{of_a} for both operands: an instruction scales by both"
        raise RequestError(f"{function}: scale_recipe_b: found {found}; expected {expected}")


def check_tensor(name: str, x: Any, dims: tuple[int, ...], expected: str) -> None:
    """Raise OperandError for an operand that is no tensor with one of these numbers of dimensions."""
    if not isinstance(x, Tensor) or x.dim() not in dims:
        found = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__qualname__}"
        raise OperandError(operand=name, found=found, expected=expected)


# `cutegen.quantize`: a matrix as 8-bit floats with a factor for each block, in layouts that kernels read in place.


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
    at = None if ends is None else _packed_factors(x, ends)
    with torch.no_grad():
        kind = torch.float4_e2m1fn_x2 if dtype == "e2m1" else FLOAT8[dtype]
        return quantized_to_micro_scales(x.to(torch.float32), block[-1], kind, floor, at)


def _packed_factors(x: Tensor, ends: Any) -> PackedRows:
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
