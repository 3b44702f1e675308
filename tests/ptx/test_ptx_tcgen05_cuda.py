"""GEMMs with `tcgen05` in CUDA C++ (`cuda/umma_gemm.cu`): what nvcc makes of them runs, and each part is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
from kernels import CUDA_DIR
from tcgen05_operands import Array, codes_of, values_of

from cutegen.errors import CutegenError
from cutegen.ptx import ALL_KINDS, Program, TensorMap

POLICIES = ("in-order", "reversed", "random:1", "random:2", "random:3")
TEXT = (CUDA_DIR / "umma_gemm.ptx").read_text()
TILES, K_BYTES = 3, 384


@dataclass(frozen=True, slots=True)
class Gemm:
    """A kernel: the type of A and B, the CTAs that multiply together, the columns."""

    name: str
    kind: str
    ctas: int
    n: int

    def launch(self, policy: str, text: str = TEXT, groups: int = 2) -> tuple[Array, Array]:
        """(C, the product in float64) of `groups` CTAs, or pairs, that take three tiles in turn; strictly."""
        rng = np.random.default_rng(4)
        rows, size = 128 * self.ctas * TILES, {"f16": 2, "bf16": 2, "tf32": 4}.get(self.kind, 1)
        values = [values_of(self.kind, (each, K_BYTES // size), rng) for each in (rows, self.n)]
        c = np.full((rows, self.n), 0xABABABAB, np.uint32)
        maps = [
            TensorMap(
                array=codes_of(self.kind, each),
                extents=each.shape[::-1],
                strides_bytes=(K_BYTES,),
                box=(128 // size, box_rows),
                swizzle_bytes=128,
            )
            for each, box_rows in zip(values, (128, self.n // self.ctas), strict=True)
        ]
        _parsed(text).launch(
            self.name,
            grid=groups * self.ctas,
            block=192,
            args=[*maps, c, TILES, K_BYTES],
            dynamic_smem_bytes=2 * (128 + self.n // self.ctas) * 128,
            policy=policy,
            raise_on=ALL_KINDS,
            max_steps=200_000,
        )
        return c.view(np.int32 if self.kind == "s8" else np.float32), values[0] @ values[1].T


@lru_cache(maxsize=4)
def _parsed(text: str) -> Program:
    return Program.parse(text)


GEMMS = (
    Gemm("umma_f16", "f16", 1, 64),
    Gemm("umma_bf16_narrow", "bf16", 1, 16),
    Gemm("umma_tf32", "tf32", 1, 32),
    Gemm("umma_e4m3", "e4m3", 1, 128),
    Gemm("umma_s8", "s8", 1, 32),
    Gemm("umma_f16_pair", "f16", 2, 128),
    Gemm("umma_tf32_pair", "tf32", 2, 32),
    Gemm("umma_e4m3_pair", "e4m3", 2, 64),
    Gemm("umma_s8_pair", "s8", 2, 64),
)


@pytest.mark.parametrize("gemm", GEMMS, ids=lambda gemm: gemm.name)
@pytest.mark.parametrize("policy", [POLICIES[0], *(pytest.param(x, marks=pytest.mark.slow) for x in POLICIES[1:])])
def test_the_product_is_right_in_every_order_without_a_convention(gemm: Gemm, policy: str) -> None:
    c, product = gemm.launch(policy)
    assert (c == product).all()


SYNCHRONIZES = re.compile(
    r"tcgen05\.(commit|wait|fence|alloc|dealloc)|mbarrier\.|cp\.async\.bulk|\bbar\.|barrier\.|fence\."
)
HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n.extern .shared .align 1024 .b8 memory[];\n"
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
SURVIVORS = {
    # The first barrier: the next one, behind the allocation, is enough. Fences of the allocation and of the end. The
    # fence behind the wait for sums, or the one behind the wait for operands: either is enough.
    "umma_f16": ["bar.sync 0;", BEFORE, AFTER, AFTER, AFTER, "bar.warp.sync -1;", BEFORE, AFTER],
    # The last wait, after which nothing comes.
    "umma_f16_pair": [BEFORE, AFTER, AFTER, AFTER, "bar.warp.sync -1;", BEFORE, AFTER, "barrier.cluster.wait.aligned;"],
}
"""What nothing in this launch needs by itself."""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SURVIVORS))
def test_each_instruction_that_synchronizes_is_needed(name: str) -> None:
    """Without it there is a fault, a convention, or another product, in one of three orders."""
    gemm = next(each for each in GEMMS if each.name == name)
    body = next(part for part in re.split(r"(?=\.visible \.entry)", TEXT) if f".entry {name}(" in part)
    lines, survivors = body.split("\n"), []
    for i, line in enumerate(lines):
        if SYNCHRONIZES.search(line) and _survives(gemm, HEAD + "\n".join(lines[:i] + lines[i + 1 :])):
            survivors.append(" ".join(line.split()))
    assert survivors == SURVIVORS[name]


def _survives(gemm: Gemm, text: str) -> bool:
    """True if one CTA, or one pair, that takes all tiles is right without the line."""
    for policy in POLICIES[:3]:
        try:
            c, product = gemm.launch(policy, text, groups=1)
        except CutegenError:
            return False
        if (c != product).any():
            return False
    return True
