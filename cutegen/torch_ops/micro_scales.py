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
    """Return factors in the order of (rows, K) from those of `blocked`, in any shape."""
    blocks, atoms = -(-rows // ATOM_ROWS), -(-along_k // PER_WORD)
    codes = factors.contiguous().view(torch.uint8).reshape(blocks, atoms, COLUMN_ROWS, ATOM_COLUMNS, PER_WORD)
    placed = codes.transpose(1, 3).reshape(blocks * ATOM_ROWS, atoms * PER_WORD)
    return placed[:rows, :along_k].contiguous().view(factors.dtype)


def dequantized(name: str, values: Tensor, factors: Any, recipe: str, swizzle: str) -> Tensor:
    """Return an operand (X, K) of torch's `scaled_mm` in f32. `name` is "a" or "b".

    `factors` are those of blocks, and for nvf4 also the tensor's. Raises OperandError for others than the recipe's.
    """
    of, given = RECIPES[recipe], factors if isinstance(factors, list | tuple) else [factors]
    of_blocks, *of_tensor = given
    wide = elements(values)
    rows, k = wide.shape
    along_k = -(-k // of.block_k)
    shape = (rows, along_k)
    if swizzle == SWIZZLED:
        shape = (-(-rows // ATOM_ROWS) * ATOM_ROWS, -(-along_k // PER_WORD) * PER_WORD)
    right_size = of_blocks.numel() == shape[0] * shape[1] if swizzle == SWIZZLED else tuple(of_blocks.shape) == shape
    if of_blocks.dtype != of.factors or not right_size or len(of_tensor) > 1:
        raise OperandError(
            operand=f"scale_{name}",
            found=f"{of_blocks.dtype} of shape {tuple(of_blocks.shape)}",
            expected=f"{of.factors}, {shape[0]} x {shape[1]} in {swizzle} for {recipe} of {rows} x {k} values",
            fix="cutegen.quantize makes such factors",
        )
    placed = unblocked(of_blocks, rows, along_k) if swizzle == SWIZZLED else of_blocks
    scaled = wide * placed.float().repeat_interleave(of.block_k, 1)[:, :k]
    return scaled * of_tensor[0].float() if of_tensor else scaled


def operands(
    mat_a: Any, mat_b: Any, scale_a: Any, scale_b: Any, recipes: tuple[str, str], swizzles: tuple[str, str]
) -> tuple[Tensor, Tensor]:
    """Return both operands of torch's `scaled_mm`, (M, K) and (K, N), in f32.

    Raises RequestError for recipes of two kinds, OperandError for tensors that are not on the CPU.
    """
    check_recipes("scaled_mm", recipes)
    for name, each in (("mat_a", mat_a), ("mat_b", mat_b)):
        check_on_cpu("scaled_mm", name, each, recipes[0], (2,), "a matrix of torch, (M, K) or (K, N)")
    a = dequantized("a", mat_a, scale_a, recipes[0], swizzles[0])
    return a, dequantized("b", mat_b.mT, scale_b, recipes[1], swizzles[1]).mT


def check_recipes(function: str, recipes: tuple[str, str]) -> None:
    """Raise RequestError for recipes of two kinds."""
    of_a, of_b = recipes
    if of_a != of_b:
        found, expected = f"{of_b} with {of_a}", f"{of_a} for both operands: an instruction scales by both"
        raise RequestError(f"{function}: scale_recipe_b: found {found}; expected {expected}")


def check_on_cpu(function: str, name: str, x: Any, recipe: str, dims: tuple[int, ...], expected: str) -> None:
    """Raise OperandError for an operand that has not one of these numbers of dimensions, and for one elsewhere."""
    if not isinstance(x, Tensor) or x.dim() not in dims:
        found = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__qualname__}"
        raise OperandError(operand=name, found=found, expected=expected)
    if x.device.type != "cpu":
        raise OperandError(
            operand=name,
            found=f"a tensor on {x.device} with {recipe}",
            expected="the CPU: only tcgen05.mma scales such blocks, and no kernel with it has run on hardware",
            fix=f"torch.nn.functional.{function} has kernels for sm_100",
        )
