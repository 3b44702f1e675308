"""Factors of 8 bits for 16 or 32 values of K: quantization to them, torch's blocked layout, and what they stand for.

mxf8 and mxf4 have a power of two, ue8m0, for 32 values (OCP Microscaling Formats 1.0). nvf4 has an e4m3 for 16 values,
and an f32 for each tensor. 4-bit floats are two in a byte, the first in the low bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cutegen.errors import OperandError, RequestError
from cutegen.hardware.factor_atoms import ATOM_COLUMNS, ATOM_ROWS, COLUMN_ROWS, PER_WORD
from cutegen.support.words import round_up
from cutegen.torch_ops.packed_rows import PackedRows

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


def quantized(
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
