"""Every small mistake in a right kernel's PTX is found: a wrong result, or a fault.

The kernel is the 3-stage cp.async + ldmatrix + mma.sync GEMM that nvcc compiled. A mutant that no problem size and no
order shows to be wrong must be listed here, with the reason why PTX's rules make it the same program.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from kernels import CUDA_DIR
from mutations import Mutant, mutants

from cutegen.errors import PtxFault
from cutegen.ptx import Program
from cutegen.verify.reference import compare, float64_reference

TEXT = (CUDA_DIR / "pipelined_gemm.ptx").read_text()
STAGE_LITERALS = (8192, 4096, 3, 2)
"""Bytes of a stage and of a tile in it, and the counts that the text works out stage numbers with."""

SIZES = (
    (72, 72, 136), (101, 99, 24), (120, 58, 104), (50, 113, 40), (112, 80, 80),
    (40, 66, 16), (16, 36, 8), (81, 25, 104), (33, 73, 8), (17, 9, 0),
)  # fmt: skip
"""M and N end in each part of a tile and K in each stage, so that one more or less decides every comparison once."""

EQUIVALENT = {
    "setp.lt.s32 %p13, %r86, 1;": "K < 1 became K <= 1, and K = 1 is not a multiple of 8",
    "setp.lt.s32 %p26, %r86, 33;": "K < 33 became K <= 33, and K = 33 is not a multiple of 8",
    "setp.ge.s32 %p40, %r399, %r8;": "one more stage is filled with zeros (source size 0), and no iteration reads it",
}
"""Survivors: the instruction, and why its mutant is the same program."""


class Problem:
    """Operands and result of one size."""

    def __init__(self, m: int, n: int, k: int) -> None:
        rng = np.random.default_rng(m * n + k)
        self.size = m, n, k
        self.a, self.b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
        self.exact = float64_reference(self.a, self.b.T)

    def verdict(self, program: Program, policy: str) -> str | None:
        """How the program is seen to be wrong, or None."""
        m, n, k = self.size
        out = np.full((m, n), np.nan, np.float32)
        try:
            program.launch(
                "pipelined_gemm",
                grid=(-(-n // 64), -(-m // 64)),
                block=128,
                args=[self.a, self.b, out, m, n, k],
                dynamic_smem_bytes=24576,
                policy=policy,
                max_steps=100_000,
            )
        except PtxFault as fault:
            return str(fault)
        return None if compare(out, self.exact, dtype="f32").ok else "wrong result"


PROBLEMS = [Problem(*size) for size in SIZES]


def verdict(mutant: Mutant) -> str | None:
    """The first sign that a mutant is wrong."""
    program = Program.parse(mutant.text)
    for policy in ("in-order", "reversed", "random:1"):
        for problem in PROBLEMS:
            found = problem.verdict(program, policy)
            if found is not None:
                return found
    return None


def test_the_kernel_itself_is_right() -> None:
    program = Program.parse(TEXT)
    for policy in ("in-order", "reversed", "random:1"):
        assert [problem.verdict(program, policy) for problem in PROBLEMS] == [None] * len(PROBLEMS)


def test_every_kind_of_mutant_is_made() -> None:
    kinds = Counter(mutant.kind for mutant in mutants(TEXT, stage_literals=STAGE_LITERALS))
    assert kinds["mma dropped"] == TEXT.count("mma.sync")
    assert kinds["trans swapped"] == TEXT.count("ldmatrix.sync")
    assert kinds["barrier removed"] == TEXT.count("bar.sync")
    assert kinds["wait removed"] == kinds["wait count raised"] == TEXT.count("cp.async.wait_group")
    assert kinds["commit removed"] == TEXT.count("cp.async.commit_group")
    assert kinds["predicate off by one"] > 20
    assert kinds["stage changed"] > 20


@pytest.mark.slow
def test_every_wrong_mutant_is_caught() -> None:
    """A quarter of them, drawn anew: all take a minute. And all of the instructions that have one which survives."""
    made = list(mutants(TEXT, stage_literals=STAGE_LITERALS))
    drawn = {mutant.name for mutant in random.sample(made, len(made) // 4)}
    tried = [mutant for mutant in made if mutant.name in drawn or mutant.before in EQUIVALENT]
    assert {mutant.before for mutant in tried if verdict(mutant) is None} == set(EQUIVALENT)


@pytest.mark.parametrize("kind", ["barrier removed", "wait removed", "wait count raised", "commit removed"])
def test_missing_synchronization_is_a_fault_whatever_the_result(kind: str) -> None:
    for mutant in mutants(TEXT, stage_literals=()):
        if mutant.kind == kind:
            program = Program.parse(mutant.text)
            for policy in ("in-order", "reversed", "random:1"):
                found = PROBLEMS[0].verdict(program, policy)
                assert found is not None, mutant.name
                assert found != "wrong result", mutant.name
