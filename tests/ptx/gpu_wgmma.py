"""Runs one `wgmma` of each type on a GPU and on the CPU executor, and counts the results that have the same bits.

python tests/ptx/gpu_wgmma.py # from the repository's root, on a Hopper GPU; needs cuda-bindings and a driver

Operands and accumulators are normal numbers in one half of the launches and random bits, infinities and NaNs among
them, in the other. What differs is written to $OUT/gpu_wgmma.npz if OUT is set. Exit code 1 if anything does.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from warpgroup_kernels import COMMIT, FENCE, SMEM_BYTES, Tile, image_of, kernel, mma, wait  # noqa: E402
from warpgroup_kernels import dump as dump_accumulators  # noqa: E402

from cutegen.ptx import Program  # noqa: E402

COLUMNS, LAUNCHES = 64, 8
B_AT, C_AT = 8192, 16384
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
FORMS = (
    *(("f32", name, name) for name in ("f16", "bf16", "tf32", "e4m3", "e5m2")),
    *(("f16", name, name) for name in ("f16", "e4m3", "e5m2")),
    *(("f32", "e4m3", "e5m2"), ("f16", "e5m2", "e4m3"), ("s32", "s8", "s8"), ("s32", "u8", "s8")),
)
Array = np.ndarray[Any, Any]


class Launcher(Protocol):
    """A GPU as `gpu_compare` has it."""

    def launch(self, ptx: str, entry: str, grid: Any, block: Any, arguments: Any) -> None:
        """Runs a kernel on copies of its arrays."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many results of a form are equal, of how many, and the largest difference of those that are finite."""

    name: str
    equal: int
    count: int
    largest: float


def elements(rng: np.random.Generator, bits: int, name: str, shape: tuple[int, int], *, any_bits: bool) -> Array:
    """An operand's elements."""
    dtype = np.dtype(f"u{bits // 8}")
    if any_bits or bits == 8:
        values = rng.integers(0, 1 << bits, shape, dtype=np.uint64).astype(dtype)
        # Of 8-bit floats those of a middling size: no infinities, no NaNs.
        return (
            values
            if any_bits or name in ("s8", "u8")
            else values & 0x80 | rng.integers(0x20, 0x60, shape).astype(dtype)
        )
    normal = rng.standard_normal(shape).astype(np.float32)
    if name == "f16":
        return normal.astype(np.float16).view(dtype)
    return normal.view(np.uint32) if name == "tf32" else (normal.view(np.uint32) >> 16).astype(dtype)


def case(form: tuple[str, str, str], seed: int) -> tuple[str, Array, int]:
    """(PTX, the image of its shared memory, accumulators of a thread)."""
    d, a_name, b_name = form
    rng, bits, any_bits = np.random.default_rng([seed, *map(ord, d + a_name + b_name)]), BITS[a_name], seed % 2 == 1
    depth, registers = 256 // bits, COLUMNS // (4 if d == "f16" else 2)
    a, b = (
        Tile(matrix=elements(rng, bits, name, (rows, depth), any_bits=any_bits), swizzle_bytes=32, at=at)
        for name, rows, at in ((a_name, 64, 0), (b_name, COLUMNS, B_AT))
    )
    image = image_of(a, b)
    words = rng.integers(0, 1 << 32, registers * 128, dtype=np.uint64).astype(np.uint32)
    if not any_bits and d != "s32":
        normal = 8 * rng.standard_normal(registers * 256)
        words = (normal[::2].astype(np.float32) if d == "f32" else normal.astype(np.float16)).view(np.uint32)
    image[C_AT : C_AT + words.nbytes] = words.view(np.uint8)
    loads = " ".join(f"ld.shared.b32 %d{i}, [%r12+{4 * i}];" for i in range(registers))
    place = f"mul.lo.u32 %r12, %r0, {4 * registers}; add.u32 %r12, %r12, %r63; add.u32 %r12, %r12, {C_AT};"
    rest = "" if d == "s32" else ", 1, 1, 0, 0" if bits == 16 else ", 1, 1"
    types = ".".join(form)
    body = mma(f"m64n{COLUMNS}k{depth}", types, registers, a.descriptor(), b.descriptor(), rest)
    text = kernel(place + loads + FENCE + body + COMMIT + wait() + dump_accumulators(registers))
    return text, image, registers


def compare(gpu: Launcher, form: tuple[str, str, str], kept: dict[str, Array]) -> Outcome:
    """Runs a form on both."""
    equal, count, largest = 0, 0, 0.0
    dtype = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[form[0]]
    for seed in range(LAUNCHES):
        text, image, registers = case(form, seed)
        assert len(image) == SMEM_BYTES
        there, here = (np.zeros((128, registers), np.uint32) for _ in range(2))
        gpu.launch(text, "k", (1, 1, 1), (128, 1, 1), [image, there])
        Program.parse(text).launch("k", grid=1, block=128, args=[image, here])
        found, expected = here.view(dtype), there.view(dtype)
        same = here.view(f"u{found.itemsize}") == there.view(f"u{found.itemsize}")
        equal, count = equal + int(same.sum()), count + same.size
        both = np.isfinite(found) & np.isfinite(expected)
        with np.errstate(all="ignore"):
            apart = np.abs(found.astype(np.float64) - expected) / np.maximum(np.abs(expected.astype(np.float64)), 1e-30)
        largest = max(largest, float(apart[both].max(initial=0)))
        if not same.all():
            name = f"{'.'.join(form)}/{seed}"
            kept |= {f"{name}/image": image, f"{name}/gpu": there, f"{name}/cpu": here}
    return Outcome(".".join(form), equal, count, largest)


def main() -> int:
    """Compares every form."""
    from gpu_compare import Gpu

    gpu, kept = Gpu(), dict[str, Array]()
    outcomes = [compare(gpu, form, kept) for form in FORMS]
    for outcome in outcomes:
        print(f"{outcome.name:16} {outcome.equal} of {outcome.count} equal, the others within {outcome.largest:.3g}")
    if kept and "OUT" in os.environ:
        np.savez_compressed(Path(os.environ["OUT"]) / "gpu_wgmma.npz", **kept)
    return int(any(outcome.equal != outcome.count for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
