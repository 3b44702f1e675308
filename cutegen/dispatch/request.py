"""The kernel cache's key of one call: calls that one kernel can serve make equal requests."""

from dataclasses import asdict, dataclass
from typing import Any, Self

from cutegen.contract.problem import FactorsOfC, Groups, Pairs, ProblemShape
from cutegen.support.typed_json import read


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix in memory: its element type, its contiguous mode, and the alignment of address and strides.

    An element of factors stands for a `block` of rows and elements of K.
    """

    dtype: str
    major: str
    align_bytes: int
    block: tuple[int, int] | None = None

    def __str__(self) -> str:
        blocks = "" if self.block is None else f" for blocks of {self.block[0]} x {self.block[1]}"
        return f"{self.dtype}{blocks} {self.major}-major, {self.align_bytes}-byte aligned"


TRIED = "tried"
"""Family of requests that any may serve whose kernels have run on hardware."""
_WHERE_THERE = frozenset({"groups", "scale_a", "scale_b", "expression", "pairs", "quantized", "family"})
"""Fields that tables leave out if they are None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`c = epilogue(a b)` on a target: A is (M,K), B (N,K) and C (M,N), as in a spec.

    `ops` are the epilogue's, in order; `bias` is the element type of the vector that they add, `scale` of those that
    they multiply by, `residual` and `aux` are the matrices that they read and write. `problem` is the bucket of the
    call's, `target` as in `cutegen.hardware.TARGETS`, `device` the driver's name of the GPU, None off a GPU.
    With `batch_invariant` an element of C must not depend on how many rows C has. With `groups` the device has the
    sizes of the products. `scale_a` and `scale_b` are factors of blocks of A and of B. `expression` is the epilogue's
    last step; it may make one column of C of `pairs`. A `quantized` C has factors, which are rounded so. Only a kernel
    of `family` may serve it, or one of those that are `TRIED`.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    ops: tuple[str, ...] = ()
    bias: str | None = None
    scale: str | None = None
    residual: Matrix | None = None
    aux: Matrix | None = None
    problem: ProblemShape
    target: str
    device: str | None = None
    batch_invariant: bool = False
    groups: Groups | None = None
    scale_a: Matrix | None = None
    scale_b: Matrix | None = None
    expression: str | None = None
    pairs: Pairs | None = None
    quantized: FactorsOfC | None = None
    family: str | None = None

    @property
    def name(self) -> str:
        """The name of kernels made for it: `matmul_f16_tn`, with the letters of BLAS."""
        letters = ("t" if self.a.major == "k" else "n") + ("n" if self.b.major == "k" else "t")
        types = self.a.dtype if self.a.dtype == self.b.dtype else f"{self.a.dtype}_{self.b.dtype}"
        product = "matmul" if self.groups is None else f"grouped_{self.groups.of}_{self.groups.layout}"
        blocks = [f"{x.block[0]}x{x.block[1]}" for x in (self.scale_a, self.scale_b) if x is not None and x.block]
        pairs = ("pairs",) if self.pairs is not None else ()
        quantized = () if self.quantized is None else ("quantized",)
        return "_".join((product, types, letters, *blocks, *self.ops, *pairs, *quantized))

    def __str__(self) -> str:
        parts = [f"{self.problem} on {self.device or self.target}"]
        parts += [f"{name}: {getattr(self, name)}" for name in ("a", "b", "c")]
        if steps := (*self.ops, *([] if self.expression is None else [self.expression])):
            parts.append(f"epilogue: {', '.join(steps)}")
        if self.pairs is not None:
            parts.append(f"pairs: {self.pairs}")
        beside = ("scale_a", "scale_b", "bias", "scale", "residual", "aux")
        parts += [f"{name}: {value}" for name in beside if (value := getattr(self, name))]
        if self.quantized is not None:
            parts.append(f"quantized: factors in {self.quantized}")
        if self.groups is not None:
            parts.append(str(self.groups))
        if self.batch_invariant:
            parts.append("batch-invariant")
        if self.family is not None:
            parts.append(f"family: {self.family}")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON table, which `from_json` reads."""
        table = {**asdict(self), "problem": self.problem.table()}
        for each in table.values():
            if isinstance(each, dict) and each.get("block", "") is None:
                del each["block"]
        return {name: each for name, each in table.items() if each is not None or name not in _WHERE_THERE}

    @classmethod
    def from_json(cls, table: Any, file: str) -> Self:
        """Read the output of `as_json`. Raises ArtifactError that names `file`, RequestError for impossible extents."""
        return read(cls, table, file, "request")
