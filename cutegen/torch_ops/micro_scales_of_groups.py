"""Factors of 8 bits of groups: of packed rows, or of a matrix for each group; and what such operands stand for.

```text
packed rows (R, K)      the factors of a group as `blocked` has them, its rows filled up to 128, then those of the next
matrices (G, X, K)      the factors of each matrix as `blocked` has them
```
"""

from typing import Any

from torch import Tensor

from cutegen.dispatch.block_scales import SCALES, SECOND
from cutegen.errors import OperandError, RequestError
from cutegen.hardware.factor_atoms import ATOM_ROWS, PER_WORD
from cutegen.support.words import round_up
from cutegen.torch_ops import quantize
from cutegen.torch_ops.packed_rows import PackedRows

_OF_GROUPS = 3
"""Dimensions of an operand with a matrix for each group."""


def in_atoms(
    mat_a: Any, mat_b: Any, scales: tuple[Any, Any], recipes: tuple[str, str], swizzles: tuple[str, str], ends: Any
) -> dict[str, Any]:
    """Return the factors of torch's `scaled_grouped_mm` as the keywords of `grouped_mm`: those of blocks in atoms.

    `ends` are those of packed groups. Raises RequestError for recipes of two kinds and unknown layouts, OperandError
    for operands that have no groups, for parts of K, and for factors of another type.
    """
    quantize.check_recipes("scaled_grouped_mm", recipes)
    quantize.check_swizzles("scaled_grouped_mm", swizzles)
    for name, each in (("mat_a", mat_a), ("mat_b", mat_b)):
        quantize.check_tensor(name, each, (2, _OF_GROUPS), "a matrix of torch, or one for each group")
    if mat_a.dim() == mat_b.dim() == 2:
        expected = "groups of rows or of columns: parts of K would begin within a block"
        raise OperandError(operand="mat_a", found=f"parts of K with {recipes[0]}", expected=expected)
    if mat_a.dim() + mat_b.dim() < 2 * _OF_GROUPS and not isinstance(ends, Tensor):
        found = f"{ends!r} with packed groups"
        raise RequestError(f"scaled_grouped_mm: offs: found {found}; expected the ends of the groups, (G,) of int32")
    factors: dict[str, Any] = {}
    for name, values, given, recipe, swizzle in zip(SCALES, (mat_a, mat_b.mT), scales, recipes, swizzles, strict=True):
        of_blocks, *others = given if isinstance(given, list | tuple) else [given]
        at = None if values.dim() == _OF_GROUPS else PackedRows.of(ends, values.shape[0])
        of_blocks = quantize.as_atoms(name, values, of_blocks, recipe, swizzle, at)
        factors[name] = (of_blocks, *others) if others else of_blocks
    return factors


def vectors(seconds: dict[str, Tensor], a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """Return nvf4's second factors, of one element or (G,), as kernels multiply by them: one, or vectors of groups.

    Raises OperandError for others.
    """
    groups = a.shape[0] if a.dim() == _OF_GROUPS else b.shape[0]
    for name, second in SECOND.items():
        if (given := seconds.get(second)) is not None and given.numel() not in (1, groups):
            found = f"second factors of shape {tuple(given.shape)}"
            raise OperandError(operand=name, found=found, expected=f"f32 of shape (1,) or ({groups},)")
    given = [x.reshape(-1) for x in seconds.values()]
    if all(len(x) == 1 for x in given):
        return dict(zip(seconds, given, strict=True))
    of_groups = given[0] if len(given) == 1 else given[0] * given[1]
    # One of the factors may be of packed rows, which have no vector for each group: their product is of the others.
    name, extent = ("scale_n", b.shape[-1]) if b.dim() == _OF_GROUPS else ("scale_m", a.shape[-2])
    return {name: of_groups[:, None].expand(-1, extent)}


def scaled_by_groups(name: str, values: Tensor, factors: Tensor, ends: Tensor | None) -> Tensor:
    """Return an operand (R, K) of packed groups with these `ends`, or (G, X, K), in f32, each value times its factor.

    Raises OperandError for factors of fewer atoms than the groups have; the host waits to know.
    """
    if values.dim() == _OF_GROUPS:
        return quantize.scaled(values, factors)
    assert ends is not None
    wide, block_k = quantize.elements(values), quantize.TYPES[factors.dtype]
    rows, k = wide.shape
    at, along_k = PackedRows.of(ends, rows), -(-k // block_k)
    width = round_up(along_k, PER_WORD)
    room, places = factors.numel() // width if width else 0, at.place[at.inside]
    needed = round_up(int(places.amax()) + 1, ATOM_ROWS) if len(places) else 0
    if room < needed and width:
        raise OperandError(
            operand=name,
            found=f"{factors.dtype} of shape {tuple(factors.shape)}",
            expected=f"at least {needed} x {width}, {ATOM_ROWS} rows in an atom, for groups of {rows} rows",
            fix="cutegen.quantize makes such factors, with offs= those of packed groups",
        )
    ordered = at.taken(quantize.unblocked(factors.reshape(-1), room, along_k))
    return wide * ordered.float().repeat_interleave(block_k, -1)[..., :k]
