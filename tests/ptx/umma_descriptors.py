"""Instruction descriptors as the CuTe DSL encodes them: `python umma_descriptors.py FOLDER` prints a JSON array.

Each entry has what was asked of the DSL, and the opcode, the descriptor and the addresses of factors that its compiler
wrote. One kernel has all multiplications; nobody runs it. The DSL leaves its files in FOLDER.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from typing import Any

os.environ.update(CUTE_DSL_ARCH="sm_100a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DISABLE_FILE_CACHING="1")
os.environ["CUTE_DSL_DUMP_DIR"] = sys.argv[1]

import cutlass
from cutlass import Float16, Float32, cute, utils
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05

TYPES = {
    "e4m3": cutlass.Float8E4M3FN,
    "e5m2": cutlass.Float8E5M2,
    "e2m3": cutlass.Float6E2M3FN,
    "e3m2": cutlass.Float6E3M2FN,
    "e2m1": cutlass.Float4E2M1FN,
}
FACTORS = {"ue8m0": cutlass.Float8E8M0FNU, "ue4m3": cutlass.Float8E4M3FN}
SHARED = tcgen05.OperandSource.SMEM
K_MAJOR = OperandMajorMode.K


@dataclass(frozen=True)
class Case:
    """A multiplication; `ids` are the bytes of words at which its factors begin."""

    kind: str
    a: str
    b: str
    d: str
    m: int
    n: int
    ctas: int
    factors: str | None = None
    ids: tuple[int, int] = (0, 0)

    def op(self) -> Any:
        """The DSL's operation."""
        group = tcgen05.CtaGroup.TWO if self.ctas == 2 else tcgen05.CtaGroup.ONE
        if self.kind == "f8f6f4":
            sums = Float16 if self.d == "f16" else Float32
            shape = (self.m, self.n, 32)
            return tcgen05.MmaF8F6F4Op(TYPES[self.a], TYPES[self.b], sums, shape, group, SHARED, K_MAJOR, K_MAJOR)
        if self.kind == "mxf8f6f4":
            shape = (self.m, self.n, 32)
            return tcgen05.MmaMXF8F6F4Op(TYPES[self.a], TYPES[self.b], shape, group, SHARED, K_MAJOR, K_MAJOR)
        if self.kind == "mxf4":
            return tcgen05.MmaMXF4Op((self.m, self.n, 64), group, SHARED)
        return tcgen05.MmaMXF4NVF4Op(FACTORS[str(self.factors)], (self.m, self.n, 64), group, SHARED)

    def stored(self) -> tuple[Any, int]:
        """(the type as which operands are stored, K of the tile): narrow values of f8f6f4 kinds take a byte each."""
        return (TYPES["e2m1"], 256) if self.kind in ("mxf4", "mxf4nvf4") else (TYPES["e4m3"], 128)

    def sums(self) -> Any:
        """The type of the sums."""
        return Float16 if self.d == "f16" else Float32


def cases() -> list[Case]:
    """All pairs of types, with shapes, groups and bytes of factors in turn."""
    shapes = itertools.cycle([(128, 64, 1), (64, 32, 1), (256, 96, 2), (128, 256, 1), (128, 128, 2)])
    scaled = itertools.cycle([(128, 64, 1), (256, 96, 2), (128, 256, 1), (128, 8, 1), (256, 256, 2)])
    ids = itertools.cycle(itertools.product(range(4), repeat=2))
    pairs, found = list(itertools.product(TYPES, repeat=2)), []
    for d in ("f32", "f16"):
        found += [Case("f8f6f4", a, b, d, *next(shapes)) for a, b in pairs]
        found += [Case("mxf8f6f4", a, b, "f32", *next(scaled), "ue8m0", next(ids)) for a, b in pairs]
    even = itertools.product((0, 2), repeat=2)
    found += [Case("mxf4", "e2m1", "e2m1", "f32", *next(scaled), "ue8m0", pair) for pair in even]
    for factors in FACTORS:
        found += [Case("mxf4nvf4", "e2m1", "e2m1", "f32", *next(scaled), factors) for _ in range(5)]
    return found


CASES = cases()


@cute.kernel
def kernel() -> None:
    """Multiplies what is where nothing was put; the address of D tells the cases apart."""
    base = cutlass.memory.SmemAllocator().allocate(1 << 16, 1024)
    for i in cutlass.range_constexpr(len(CASES)):
        case = CASES[i]
        tiled = cute.make_tiled_mma(case.op())
        element, depth = case.stored()
        fragments = []
        for make, fragment in (
            (utils.sm100.make_smem_layout_a, tiled.make_fragment_A),
            (utils.sm100.make_smem_layout_b, tiled.make_fragment_B),
        ):
            layout = make(tiled, (case.m, case.n, depth), element, 1)
            place = cute.recast_ptr(base, layout.inner, element)
            fragments.append(fragment(cute.make_tensor(place, layout.outer)))
        d = cute.make_ptr(case.sums(), i, cute.AddressSpace.tmem, assumed_align=16)
        sums = cute.make_tensor(d, tiled.make_fragment_C(tiled.partition_shape_C((case.m, case.n))).layout)
        if cutlass.const_expr(case.factors is not None):
            of_a, of_b = (case.ids[j] << 30 | 256 + 64 * j for j in range(2))
            type_ = FACTORS[case.factors]
            tiled.set(tcgen05.Field.SFA, cute.make_ptr(type_, of_a, cute.AddressSpace.tmem, assumed_align=1))
            tiled.set(tcgen05.Field.SFB, cute.make_ptr(type_, of_b, cute.AddressSpace.tmem, assumed_align=1))
        at = (None, None, 0, 0)
        cute.gemm(tiled, sums, fragments[0][at], fragments[1][at], sums)


@cute.jit
def launch() -> None:
    """The launch that the DSL compiles."""
    kernel().launch(grid=(1, 1, 1), block=(32, 1, 1))


def main() -> None:
    """Compiles, and prints what the text has."""
    text = cute.compile(launch, options="--gpu-arch sm_100a").artifacts.PTX
    numbers = {name: int(value) & 0xFFFFFFFF for name, value in re.findall(r"mov\.b32 \t(%r\d+), (-?\d+);", text)}
    found = re.findall(r"(tcgen05\.mma\S+) \[(%r\d+)\], %rd\d+, %rd\d+, (%r\d+),(.*);", text)
    print(
        json.dumps(
            [
                asdict(CASES[numbers[d]])
                | {
                    "opcode": opcode,
                    "bits": numbers[idesc],
                    "addresses": [numbers[name] for name in re.findall(r"\[(%r\d+)\]", rest)],
                }
                for opcode, d, idesc, rest in found
            ]
        ),
        file=sys.__stdout__,
    )


if __name__ == "__main__":
    main()
