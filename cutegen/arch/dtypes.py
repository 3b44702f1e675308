"""Element types of operands and accumulators, and what each neighbour calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutegen.arch.lookup import find


@dataclass(frozen=True, slots=True)
class DType:
    """One element type: `name` in specs and PTX, `dsl_name` in module `cutlass`, `torch_name` in module `torch`."""

    name: str
    bits: int
    dsl_name: str
    torch_name: str

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.bits // 8


DTYPES: Mapping[str, DType] = {
    row.name: row
    for row in (
        DType("f16", 16, "Float16", "float16"),
        DType("bf16", 16, "BFloat16", "bfloat16"),
        DType("f32", 32, "Float32", "float32"),
    )
}


def dtype(name: str) -> DType:
    """The element type called `name`. Raises RequestError for an unknown one.

    >>> dtype("bf16").bits
    16
    """
    return find(DTYPES, name, "dtype")
