"""Records launches of CUTLASS operators for sm_100a: `python record_operators.py FOLDER`, one file per operator.

Needs the packages nvidia-cutlass-operators, apache-tvm-ffi and torch, a C compiler and no GPU. Nothing that it writes
is kept.
"""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recording import Recording, on_a_gpu

M, K, GROUPS = 512, 256, 4


@dataclass(frozen=True, slots=True)
class Operator:
    """The end of an operator's name, and the columns of its B."""

    name: str
    n: int


PLAIN = (
    Operator("1cta_cluster1x1x1_tile128x128x64_schedulerCLC_tma_store", 256),
    Operator("1cta_cluster1x1x1_tile64x64x64_schedulerCLC_tma_store", 128),
    Operator("1cta_cluster2x1x1_tile128x64x64_schedulerCLC_tma_store", 128),
    Operator("2cta_cluster2x1x1_tile256x128x64_schedulerCLC_tma_store", 256),
    Operator("2cta_cluster2x1x1_tile128x64x64_schedulerCLC_tma_store", 128),
)
"""f16: one CTA, multicast, and pairs, which take tiles by cluster launch control."""
SCALED = (
    Operator("2cta_cluster2x1x1_tile256x128x128_tma_store", 256),
    Operator("2cta_cluster2x1x1_tile128x64x128_tma_store", 128),  # its name says 2cta; each CTA multiplies
    Operator("2cta_cluster2x1x1_tile256x192x128_tma_store", 384),
    Operator("2cta_cluster2x1x1_tile128x192x128_tma_store", 256),
)
"""e4m3 with factors of 32 values; tiles of 192 columns begin in the middle of an atom of factors."""
GROUPED = (
    Operator("1cta_cluster2x1x1_tile128x128x64_tma_store", 128),
    Operator("2cta_cluster2x1x1_tile128x128x64_tma_store", 128),
    Operator("2cta_cluster2x1x1_tile256x128x64_tma_store", 256),
)
"""f16, with a B of its own for each group of rows; the ends of the groups are on the GPU."""
UNREAD = Operator("1cta_cluster1x1x1_tile64x128x64_tma_store", 128)
"""The same; a warp all of whose rows are behind the end of a group loads its sums, and then uses none of them."""


class Maker:
    """Makes the arguments of operators: fake ones of torch, and those that are recorded."""

    def __init__(self, recording: Recording, operators: Any) -> None:
        self._recording, self._operators = recording, operators

    def plain(self, n: int) -> tuple[Any, list[Any]]:
        """A (M,K) and B (K,n), both K-major, and D (M,n)."""
        import torch

        a, b = (torch.empty(1, rows, K, dtype=torch.float16, device="cuda") for rows in (M, n))
        d = torch.empty(1, M, n, dtype=torch.float32, device="cuda")
        tensor = self._recording.tensor
        recorded = [tensor("a", "f16", 1, M, K), tensor("b", "f16", 1, K, n, strides=(n * K, 1, K))]
        fakes = self._operators.GemmArguments(a, b.transpose(1, 2), d, accumulator_type=torch.float32)
        return fakes, [*recorded, tensor("d", "f32", 1, M, n)]

    def scaled(self, n: int) -> tuple[Any, list[Any]]:
        """The same with factors, in atoms of 128 rows and 4 factors; the operator takes pointers."""
        import cutlass
        import torch
        from cutlass import cute

        of = self._operators
        mode, swizzle = of.ScaleMode.Blockwise1x32, of.ScaleSwizzleMode.Swizzle32x4x4
        operands, values, factors = [], [], []
        for name, rows in (("a", M), ("b", n)):
            elements = torch.empty(1, rows, K, dtype=torch.float8_e4m3fn, device="cuda")
            size = -(-rows // 128) * 128 * K // 32
            codes = torch.empty(1, size, dtype=torch.float8_e8m0fnu, device="cuda")
            elements = elements if name == "a" else elements.transpose(1, 2)
            operands.append(of.ScaledOperand(elements, codes, mode, swizzle))
            values.append((cutlass.Float8E4M3FN, self._recording.tensor(name, "e4m3", rows, K)))
            factors.append((cutlass.Float8E8M0FNU, self._recording.tensor(f"{name}_factors", "ue8m0", size)))
        d = torch.empty(1, M, n, dtype=torch.float32, device="cuda")
        places = [*values, *factors, (cutlass.Float32, self._recording.tensor("d", "f32", M, n))]
        space = cute.AddressSpace.gmem
        pointers = [cute.runtime.make_ptr(kind, each.address, space, assumed_align=32) for kind, each in places]
        return of.GemmArguments(*operands, d, accumulator_type=torch.float32), [*pointers, (M, n, K, 1)]

    def grouped(self, n: int) -> tuple[Any, list[Any]]:
        """A (M,K) in groups of rows, B (groups,K,n), D (M,n), and the end of each group."""
        import torch

        a, b = (torch.empty(*shape, dtype=torch.float16, device="cuda") for shape in ((M, K), (GROUPS, n, K)))
        d = torch.empty(M, n, dtype=torch.float32, device="cuda")
        ends = torch.empty(GROUPS, dtype=torch.int32, device="cuda")
        tensor = self._recording.tensor
        recorded = [tensor("a", "f16", M, K), tensor("b", "f16", GROUPS, K, n, strides=(n * K, 1, K))]
        fakes = self._operators.IndexPtrGroupedGemmArguments(
            a, b.transpose(1, 2), d, accumulator_type=torch.float32, offsets=ends, offsets_along="m"
        )
        return fakes, [*recorded, tensor("d", "f32", M, n), tensor("ends", "i32", GROUPS)]


def main() -> None:
    """Compile and record each operator."""
    recording = Recording(Path(sys.argv[1]))
    import cutlass
    from torch._subclasses.fake_tensor import FakeTensorMode

    package = importlib.metadata.distribution("nvidia-cutlass-operators")
    cutlass.__path__.append(str(Path(str(package.locate_file("cutlass")))))
    import cutlass.operators as operators

    on_a_gpu(cutlass)
    maker = Maker(recording, operators)
    for rows, make in ((PLAIN, maker.plain), (SCALED, maker.scaled), ((*GROUPED, UNREAD), maker.grouped)):
        for row in rows:
            with FakeTensorMode():
                fakes, recorded = make(row.n)
                found = operators.get_operators(fakes, target_sm="100a")
                (operator,) = (each for each in found if each.metadata.operator_name.endswith(row.name))
                compiled = operator.compile(fakes, target_sm="100a").compiled_obj
            recording.save(row.name, compiled, *recorded, 0)  # on stream 0


if __name__ == "__main__":
    main()
