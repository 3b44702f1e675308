"""Missing synchronisation and wrong fragments are found in the kernels that cutegen itself generates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mutations import mutants

import cutegen
from cutegen.build import Cache
from cutegen.errors import PtxFault
from cutegen.ptx import Program
from cutegen.run import Kernel

SPEC = """
family = "sm80"
[problem]
a = {{ dtype = "f16", major = "{}" }}
b = {{ dtype = "f16", major = "{}" }}
c = {{ dtype = "f16", major = "n" }}
accumulator = "f32"
[tile]
cta = [64, 32, 32]
stages = 3
[mma]
atom = "SM80_16x8x16_F32F16F16F32_TN"
atom_layout = [2, 1, 1]
"""
SIZES = ((72, 40, 248), (64, 32, 104), (56, 24, 72), (64, 32, 320), (16, 16, 8), (72, 72, 128))
KINDS = {"barrier removed", "wait removed", "wait count raised", "commit removed", "trans swapped", "mma dropped"}
EQUIVALENT = {"cp.async.wait_group 0;": "at the end of the main loop only groups without copies are still to come"}
"""Survivors: the instruction, and why its mutant is the same program."""


class Problem:
    """Operands and result of one size, and how a text of `kernel` does on them."""

    def __init__(self, kernel: Kernel, majors: str, m: int, n: int, k: int) -> None:
        rng = np.random.default_rng(m * n + k)
        a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (n, k)))
        self.exact = a.astype(np.float64) @ b.astype(np.float64).T
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

    def verdict(self, text: str) -> str | None:
        """How the text is seen to be wrong, or None."""
        out = np.full(self.exact.shape, np.nan, np.float16)
        geometry = self.contract.geometry(*self.exact.shape)
        try:
            Program.parse(text).launch(
                self.contract.entry,
                grid=geometry.grid,
                block=geometry.block,
                args=[{**self.values, "c": out}[parameter.name] for parameter in self.contract.parameters],
                dynamic_smem_bytes=geometry.dynamic_smem_bytes,
                max_steps=100_000,
            )
        except PtxFault as fault:
            return str(fault)
        close = np.abs(out - self.exact) <= 0.01 + 1e-3 * np.abs(self.exact)
        return None if close.all() else "wrong result"


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("majors", ["kk", "mn"])
def test_every_mutant_of_a_generated_kernel_is_caught(majors: str, tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SPEC.format(*majors))
    kernel = cutegen.compile(cutegen.load_spec(path), "sm_80", cache=Cache(tmp_path / "cache"))
    text = kernel.artifact.ptx
    problems = [Problem(kernel, majors, *size) for size in SIZES]
    assert [problem.verdict(text) for problem in problems] == [None] * len(problems)
    chosen = [mutant for mutant in mutants(text, stage_literals=()) if mutant.kind in KINDS]
    assert {mutant.kind for mutant in chosen} == KINDS
    survivors = {m.before for m in chosen if all(problem.verdict(m.text) is None for problem in problems)}
    assert survivors == set(EQUIVALENT)
