"""A product of a graph that `cutegen.matmul` could compute, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor without values; of dynamic extents, those of the first call."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: Tensor) -> Form | None:
        """Return the form of a tensor in a graph; None if an extent is known only when the program runs."""
        extents, strides = hints(x.shape), hints(x.stride())
        return None if extents is None or strides is None else cls(extents, strides, x.dtype, x.device)

    def random(self) -> Tensor:
        """Return a tensor of this form with normal random numbers."""
        elems = 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))
        memory = torch.randn(max(elems, 1), device=self.device).to(self.dtype)
        return memory.as_strided(self.shape, self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`activation(alpha * (a @ b) + beta * c + bias)`, of matrices or of batches of them.

    `c` has the result's shape, `bias` one element for each column.
    """

    a: Form
    b: Form
    bias: Form | None = None
    c: Form | None = None
    alpha: float = 1.0
    beta: float = 1.0
    activation: str | None = None

    def __str__(self) -> str:
        rows, columns, k = self.a.shape[-2], self.b.shape[-1], self.a.shape[-1]
        batch = f"{self.a.shape[0]} x " if len(self.a.shape) > 2 else ""
        terms = [name for name in ("bias", "c") if getattr(self, name) is not None]
        said = [str(self.a.dtype).removeprefix("torch."), *terms, *([self.activation] if self.activation else [])]
        return f"{batch}{rows}x{columns}x{k}, {', '.join(said)}"


def hints(extents: Sequence[Any]) -> tuple[int, ...] | None:
    """Return extents as integers: of symbols, the values that they were traced with; None if one has none."""
    found = []
    for each in extents:
        if isinstance(each, int):
            found.append(each)
            continue
        hint = getattr(each.node, "hint", None)
        if hint is None:
            return None
        found.append(int(hint))
    return tuple(found)
