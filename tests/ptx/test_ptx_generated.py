"""Every small mistake is found in the PTX of the kernels that cutegen itself generates, or is none by PTX's rules."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from mutations import mutants

import cutegen
from cutegen.build import Cache
from cutegen.contract.problem import ProblemShape
from cutegen.errors import PtxFault
from cutegen.ptx import Program
from cutegen.run import Kernel
from cutegen.verify.reference import compare, float64_reference

SPEC = """
family = "sm80"
[problem]
a = {{ dtype = "f16", major = "{}" }}
b = {{ dtype = "f16", major = "{}" }}
c = {{ dtype = "f16", major = "n" }}
accumulator = "f32"
[tile]
cta = [32, 16, 32]
stages = 3
[mma]
atom = "SM80_16x8x16_F32F16F16F32_TN"
atom_layout = [2, 1, 1]
"""
SIZES = (
    (32, 16, 104),
    (24, 8, 72),
    (16, 16, 8),
    (40, 24, 248),
    (32, 16, 480),
    (40, 40, 128),
    (32, 136, 8),
    (40, 136, 8),
    (16, 16, 0),
)
ENDS = {
    "kk": ((45, 24, 136), (57, 8, 168), (61, 24, 136), (41, 8, 248), (21, 16, 40), (48, 16, 24)),
    "mn": (
        *((40, 24, k) for k in (3, 12, 20, 27, 36, 44, 52, 60, 68, 84, 92, 101)),
        *((24, 8, 37), (8, 8, 75), (64, 24, 15), (56, 16, 62), (48, 24, 127), (32, 16, 33)),
        *((32, 16, k) for k in (50, 117, 135, 142, 149, 172)),
    ),
}
"""Sizes that end in each part of a tile, as far as the 16-byte copies of A and B and stores of C allow."""
STAGE_LITERALS = (1024, 2048, 4096, 5120, 6144, 7168, 8192, 3, 2)
"""Bytes of a stage of A and of B, where B's stages begin, and what the text works out numbers of stages with."""

_SETP = r"setp\.{} %p\d+, %r\d+, {};"
EQUIVALENT = {
    r"cp\.async\.wait_group 0;": "at the end of the main loop only groups without copies are still to come",
    _SETP.format("gt.s32", "-1"): "a size is asked whether it is negative, and none is",
    _SETP.format("lt.s32", "0"): "the same of K, together with whether K ends inside a k-tile, which 0 does not",
    _SETP.format("ne.b32", r"%r\d+"): "that other question, asked for negative K only",
    _SETP.format("le.s32", r"%r\d+"): (
        "a CTA whose tile just fits goes the way that checks every copy or element; one k-tile more is filled with "
        "zeros (source size 0), and no iteration reads it"
    ),
    _SETP.format("ge.s32", r"%r\d+"): (
        "what is stored element by element at C's edge is past it, N a multiple of 8; a quotient of small numbers by a "
        "reciprocal needs no correction"
    ),
    r"add\.s32 %r\d+, %r\d+, [23];": "two of those elements",
    _SETP.format("gt.s32", "8"): "a single band of tiles, as wide as a band is, may be told by divisions too",
    r"setp\.gt\.[su]32 %p\d+, %r\d+, 2097151;": "both ways divide: by a reciprocal, and by more than one",
    _SETP.format("ne.b32", "0"): "C's edge may leave in whole vectors or element by element",
}
"""Survivors: a pattern of the instruction, and why its mutant is the same program."""
SURVIVORS = {
    "kk": dict(zip(EQUIVALENT, (1, 3, 1, 1, 3, 12, 2, 1, 3, 1), strict=True)),
    "mn": dict(zip(EQUIVALENT, (1, 3, 1, 1, 4, 11, 2, 1, 3, 1), strict=True)),
}
"""How many instructions of each pattern have a mutant that survives, of all mutants."""
SHARE = 0.25


class Problem:
    """Operands and result of one size, and how a program with the entry of `kernel` does on them."""

    def __init__(self, kernel: Kernel, majors: str, m: int, n: int, k: int) -> None:
        rng = np.random.default_rng(m * n + k)
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
        self.exact, self.shape = float64_reference(a, b.T), (m, n)
        values = {"a": a if majors[0] == "k" else a.T.copy(), "b": b if majors[1] == "k" else b.T.copy()}
        values |= {
            "m": m,
            "n": n,
            "k": k,
            "ldc": n,
            "lda": k if majors[0] == "k" else m,
            "ldb": k if majors[1] == "k" else n,
        }
        self.values = {**values, **{f"batch_stride_{name}": 0 for name in "abc"}}
        self.contract = kernel.contract

    def verdict(self, program: Program) -> str | None:
        """How the program is seen to be wrong, or None."""
        out = np.full(self.shape, np.nan, np.float16)
        geometry = self.contract.geometry(ProblemShape(*self.shape, 1))
        try:
            program.launch(
                self.contract.entry,
                grid=geometry.grid,
                block=geometry.block,
                args=[{**self.values, "c": out}[parameter.name] for parameter in self.contract.parameters],
                dynamic_smem_bytes=geometry.dynamic_smem_bytes,
                max_steps=100_000,
            )
        except PtxFault as fault:
            return str(fault)
        return None if compare(out, self.exact, dtype="f16").ok else "wrong result"


@pytest.mark.dsl
@pytest.mark.slow
def test_every_mutant_of_a_generated_kernel_is_caught(tmp_path: Path, kernels: Cache) -> None:
    """A quarter of those of one combination of majors, both drawn anew: all of one take more than a minute.

    A mutant that survives is a known one, and of each kind no more survive than have when all were tried.
    """
    majors = random.choice(["kk", "mn"])
    path = tmp_path / "small.toml"
    path.write_text(SPEC.format(*majors))
    kernel = cutegen.compile(cutegen.load_spec(path), "sm_80", cache=kernels)
    text = kernel.artifact.ptx
    problems = [Problem(kernel, majors, *size) for size in (*SIZES, *ENDS[majors])]

    def survives(text: str) -> bool:
        program = Program.parse(text)
        return all(problem.verdict(program) is None for problem in problems)

    assert survives(text)
    drawn = [x for x in mutants(text, stage_literals=STAGE_LITERALS) if random.random() < SHARE]
    survivors = {(mutant.line, mutant.before) for mutant in drawn if survives(mutant.text)}
    found = {pattern: sum(bool(re.fullmatch(pattern, before)) for _, before in survivors) for pattern in EQUIVALENT}
    assert sum(found.values()) == len(survivors), survivors
    assert all(found[pattern] <= most for pattern, most in SURVIVORS[majors].items()), found
