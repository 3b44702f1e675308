"""Kernels whose K is split among CTAs, on the CPU executor."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cutegen.contract.launch import Workspace
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.plan import plan
from cutegen.ptx import Program
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Schedule
from cutegen.verify import compare, float64_reference, random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.run import epilogues
from tests.run.against_float64 import check, made
from tests.run.split_k import CASES, FAST, split
from tests.seeding import new_generator

Compile = Callable[[GemmSpec], Kernel]
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
# Fewer k-tiles than slices, none at all, a share more for some, and every edge cut; tiles of 32x32x32 or 16x32x32.
PROBLEMS = [(33, 40, 200), (32, 32, 64), (1, 1, 1), (5, 9, 0), (40, 24, 35), (64, 32, 417)]


@pytest.mark.dsl
@pytest.mark.parametrize("name", NAMES)
def test_right_at_every_edge(name: str, compiled: Compile) -> None:
    """Bias, residual and beta C come once, not once for each slice: the reference would notice."""
    kernel = compiled(CASES[name])
    for problem in PROBLEMS:
        check(kernel, *made(kernel, *problem), kernel.execute)


def test_sums_in_the_workspace_are_of_the_accumulators_type() -> None:
    for name, case in CASES.items():
        split_k = plan(case, "sm_80").split_k
        assert split_k is not None
        assert split_k.dtype.name == ("s32" if name.startswith("s8") else "f32"), name


@pytest.mark.dsl
def test_sums_of_integers_are_exact_beyond_what_float32_holds(compiled: Compile) -> None:
    """1200 products of about 126 x 127: more than 2^24, where float32 has even numbers alone."""
    kernel = compiled(CASES["s8_split_3"])
    m, n, k = 32, 32, 1200
    a, b = (new_generator().integers(126, 127, shape, np.int8, endpoint=True) for shape in ((m, k), (n, k)))
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    assert exact.min() > 1 << 24
    assert (exact % 2).any()
    out = np.full((m, n), -1, np.int32)
    kernel.execute(a, b.T, out=out)
    assert np.array_equal(out, exact)


@pytest.mark.dsl
@pytest.mark.parametrize("policy", ["in-order", "random:1"])
def test_batches_have_counters_of_their_own(policy: str, compiled: Compile) -> None:
    """Also where CTAs of all of them are at work at a time, which they are not in order."""
    kernel = compiled(CASES["plain_split_3"])
    check(kernel, *made(kernel, 40, 33, 100, 3), partial(kernel.execute, policy=policy))


@pytest.mark.dsl
@pytest.mark.parametrize("name", ["plain_split_3", pytest.param("many_split_24", marks=pytest.mark.slow)])
def test_whoever_comes_last_the_bits_are_the_same(name: str, compiled: Compile) -> None:
    kernel = compiled(CASES[name])
    a, b, out = random_operands(kernel.contract, 40, 33, 700, seed=1)
    results = []
    for policy in ("in-order", "reversed", "random:1", "random:2", "random:3"):
        report = kernel.execute(a, b, out=out, policy=policy)
        assert report.violations == ()
        results.append(out.tobytes())
    assert set(results) == {results[0]}


@pytest.mark.dsl
def test_counters_are_left_as_they_were_found(compiled: Compile) -> None:
    """Two launches on one workspace; the second finds the first one's sums there."""
    kernel = compiled(CASES["plain_split_3"])
    a, b, first = random_operands(kernel.contract, 64, 32, 160, seed=2)
    second = first.copy()
    size = kernel.call_size(a, b, first)
    wanted = kernel.contract.workspace(size.problem)
    assert wanted == Workspace(sums_bytes=2 * 3 * 32 * 32 * 4, counters=2)
    sums, counters = np.full(wanted.sums_bytes // 4, np.nan, np.float32), np.zeros(wanted.counters, np.uint32)
    program, geometry = Program.parse(kernel.artifact.ptx), kernel.contract.geometry(size.problem)
    for out, policy in ((first, "in-order"), (second, "reversed")):
        program.launch(
            kernel.contract.entry,
            grid=geometry.grid,
            block=geometry.block,
            args=kernel.contract.arguments((a, b.T, out, sums, counters), (), size),
            dynamic_smem_bytes=geometry.dynamic_smem_bytes,
            policy=policy,
        )
        assert not counters.any()
    assert not np.isnan(sums).any()
    assert first.tobytes() == second.tobytes()


@pytest.mark.dsl
@pytest.mark.parametrize("problem", [(64, 64, 192), (64, 64, 32), (40, 24, 333)], ids=str)
@pytest.mark.parametrize("name", ["plain_split_3", "bias_aux_split_4"])
def test_what_is_executed_is_what_was_planned(name: str, problem: tuple[int, int, int], compiled: Compile) -> None:
    """The multiplications of all slices are those of one K: their shares leave out nothing and repeat nothing."""
    kernel, (m, n, k) = compiled(CASES[name]), problem
    a, b, out = random_operands(kernel.contract, m, n, k, seed=3)
    extras = random_extras(kernel.contract, m, n, seed=3)
    report = kernel.execute(a, b, out=out, **extras)
    counts = count_launch(plan(CASES[name], "sm_80"), kernel.call_size(a, b, out, **extras), report)
    assert counts.differing() == {}
    assert {"split_k.write", "split_k.read"} <= counts.sectors.keys()
    assert all(counts.sectors[key].predicted for key in ("split_k.write", "split_k.read"))


@pytest.mark.dsl
def test_atomics_add_to_c_and_to_nothing_beside_it(compiled: Compile) -> None:
    """What C and the columns behind it held before does not matter, and stays behind it."""
    kernel = compiled(CASES["added_split_3"])
    a, b, _ = random_operands(kernel.contract, 40, 33, 200, seed=5, batch=2)
    buffer = np.full((2, 43, 40), np.nan, np.float32)
    out = buffer[:, :40, :33]
    for policy in ("in-order", "random:1"):
        assert kernel.execute(a, b, out=out, policy=policy).violations == ()
        assert compare(out, float64_reference(a, b), dtype="f32").ok
        assert np.isnan(buffer[:, 40:]).all()
        assert np.isnan(buffer[:, :, 33:]).all()
    assert kernel.contract.workspace(ProblemShape(40, 33, 64, 2)) is None


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (epilogues.spec("f16", smem=False), '"atomics" with C in f16; expected C in f32'),
        (
            epilogues.spec("relu", "relu", c="f32", smem=False),
            '"atomics" and an epilogue, x -> relu(x); expected no epilogue',
        ),
        (epilogues.spec("staged", c="f32"), '"atomics" with C through shared memory; expected epilogue.smem = false'),
    ],
)
def test_atomics_are_refused_where_they_would_be_wrong(asked: GemmSpec, found: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan(split(asked, 2, "atomics"), "sm_80")
    with pytest.raises(SpecError, match=re.escape(str(caught.value))):
        plan(replace(split(asked, 2), schedule=Schedule(reduction="atomics")), "sm_80", (64, 64, 64))
    assert caught.value.key == "schedule.reduction"
    assert f"found {found}" in str(caught.value)


@pytest.mark.dsl
def test_one_slice_is_the_kernel_without_slices(compiled: Compile) -> None:
    whole = replace(CASES["plain_split_3"], schedule=Schedule())
    one = replace(whole, schedule=Schedule(split_k=1))
    assert compiled(whole).artifact.key == compiled(one).artifact.key
    assert compiled(whole).contract.split is None
