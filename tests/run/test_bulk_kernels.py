"""Kernels fed by bulk tensor copies, from the spec to the CPU: results, and what was counted beside the plan."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cutegen.contract import LaunchContract
from cutegen.plan import plan
from cutegen.run import Kernel
from cutegen.spec import Epilogue, GemmSpec, Mma, Operand, Problem, Tile
from cutegen.verify import compare, expected_outcome, float64_reference, random_extras, random_operands
from cutegen.verify.counts import EDGES, LaunchCounts, count_launch
from tests.run.bulk import CASES
from tests.run.ptx_mutants import with_ptx

pytestmark = pytest.mark.dsl
CTA = (64, 64, 64)
STAGES = 2


def spec_of(majors: str = "kkn", ops: tuple[str, ...] = ()) -> GemmSpec:
    """Four warps that multiply and a tile of three boxes of 8 KiB."""
    a, b, c = (Operand("f16", major) for major in majors)
    return GemmSpec(
        family="sm120",
        problem=Problem(a=a, b=b, c=c),
        tile=Tile(cta=CTA, stages=STAGES),
        mma=Mma(atom_layout=(2, 2, 1)),
        epilogue=Epilogue(ops=ops),
    )


def run(kernel: Kernel, spec: GemmSpec, m: int, n: int, k: int, **options: Any) -> LaunchCounts:
    a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
    report = kernel.execute(a, b, out=out, **options)
    assert compare(out, float64_reference(a, b), dtype="f16").ok
    return count_launch(plan(spec, "sm_90"), kernel.call_size(a, b, out), report)


def test_the_artifact_says_what_is_mapped(compiled: Any) -> None:
    contract = compiled(spec_of()).contract
    table = json.loads(compiled(spec_of()).artifact.plan_json)["launch"]
    assert [(each["name"], each["box"], each["swizzle_bytes"]) for each in table["maps"]] == [
        (name, [64, 64], 128) for name in "abc"
    ]
    assert LaunchContract.from_json(table) == contract
    assert contract.ctas_per_multiprocessor == 1


def test_nothing_contradicts_the_plan(compiled: Any) -> None:
    """Six tiles shared by two CTAs, five k-tiles in two stages."""
    counts = run(compiled(spec_of()), spec_of(), 192, 128, 320)
    assert counts.differing() == {}
    tiles, k_tiles = 6, 5
    assert {name: count.measured for name, count in counts.boxes.items()} == {
        "g2s.a": tiles * k_tiles,
        "g2s.b": tiles * k_tiles,
        "epilogue": tiles,
    }
    bytes_of_box = 64 * 64 * 2
    assert counts.sectors["g2s.a"].measured == tiles * k_tiles * bytes_of_box // 32
    assert counts.sectors["epilogue"].measured == tiles * bytes_of_box // 32
    # 2 x 2 warps read each byte of a tile twice, 128 bytes a wavefront.
    assert counts.wavefronts["s2r.a"].measured == tiles * k_tiles * 2 * bytes_of_box // 128
    assert sum(x.measured for name, x in counts.executed.items() if name.startswith("mma")) == 192 * 128 * 320 // 2048
    assert set(counts.wavefronts) == {"s2r.a", "s2r.b", "epilogue.write"}


@pytest.mark.parametrize("majors", ["mnm", pytest.param("mkn", marks=pytest.mark.slow)])
def test_edges_are_not_predicted_and_the_rest_is(compiled: Any, majors: str) -> None:
    spec = spec_of(majors)
    counts = run(compiled(spec), spec, 72, 136, 40, policy="reversed")
    assert counts.differing() == {}
    assert (counts.sectors["g2s.a"].predicted, counts.sectors["g2s.a"].why) == (None, EDGES)
    assert counts.boxes["epilogue"].measured == 2 * 3


@pytest.mark.parametrize("shared", ["a", "b", None])
def test_a_batch_and_an_operand_that_it_shares(compiled: Any, shared: str | None) -> None:
    kernel = compiled(spec_of())
    a, b, out = random_operands(kernel.contract, 72, 64, 72, seed=4, batch=3)
    a, b = (a[0] if shared == "a" else a), (b[0] if shared == "b" else b)
    report = kernel.execute(a, b, out=out, policy="random:5")
    assert report.grid == (2, 1, 3)
    assert compare(out, float64_reference(a, b), dtype="f16").ok


def test_without_a_k_the_result_is_zeros(compiled: Any) -> None:
    kernel = compiled(spec_of())
    storage = np.ones((5, 16), np.float16)
    kernel(np.zeros((5, 0), np.float16), np.zeros((0, 8), np.float16), out=storage[:, :8])
    assert not storage[:, :8].any()
    assert storage[:, 8:].all()


def test_operands_of_the_epilogue_keep_their_addresses(compiled: Any) -> None:
    spec = spec_of(ops=("alpha", "beta", "bias_n", "relu"))
    kernel = compiled(spec)
    a, b, out = random_operands(kernel.contract, 72, 64, 72, seed=7, batch=2)
    extras = random_extras(kernel.contract, 72, 64, seed=7, batch=2)
    kernel(a, b, out=out, **extras)
    assert compare(out, expected_outcome(kernel.contract, a, b, extras).result, dtype="f16").ok


def test_whole_tiles_of_the_epilogues_operands_are_loaded_as_planned(compiled: Any) -> None:
    spec = spec_of(ops=("alpha", "beta", "relu"))
    kernel = compiled(spec)
    a, b, out = random_operands(kernel.contract, 128, 64, 64, seed=8)
    extras = random_extras(kernel.contract, 128, 64, seed=8)
    report = kernel.execute(a, b, out=out, **extras)
    counts = count_launch(plan(spec, "sm_90"), kernel.call_size(a, b, out, **extras), report)
    assert counts.differing() == {}
    assert counts.sectors["epilogue.read"].predicted


def test_one_stage_is_filled_when_it_is_empty(compiled: Any) -> None:
    """The copying warp waits for the warps that multiply before each k-tile; two tiles a CTA."""
    spec = replace(spec_of(), tile=Tile(cta=CTA, stages=1))
    counts = run(compiled(spec), spec, 192, 128, 320, policy="random:3")
    assert counts.differing() == {}
    assert counts.boxes["g2s.a"].measured == 6 * 5


FENCE = re.compile(r"fence\.proxy\.async\.shared::cta;")


@pytest.mark.parametrize(
    "policy",
    [pytest.param("in-order", marks=pytest.mark.slow), pytest.param("reversed", marks=pytest.mark.slow), "random:1"],
)
@pytest.mark.parametrize(
    "name", ["tn", "one_stage", "c_from_registers", pytest.param("skinny", marks=pytest.mark.slow)]
)
def test_copies_into_a_stage_come_after_its_loads(compiled: Any, name: str, policy: str) -> None:
    """By a fence of the warp that copies: without it nothing orders the async proxy's writes after `ldmatrix`."""
    kernel = compiled(CASES[name])
    unfenced = FENCE.sub("", kernel.artifact.ptx, count=1)
    assert [conventions_of(kernel, text, policy) for text in (kernel.artifact.ptx, unfenced)] == [0, 2]


def conventions_of(kernel: Kernel, text: str, policy: str) -> int:
    """Accesses, of A and of B, that nothing in PTX orders, while five k-tiles go through the stages."""
    k = 5 * json.loads(kernel.artifact.plan_json)["tile"][2]
    a, b, out = random_operands(kernel.contract, 65, 129, k, seed=k)
    return len(with_ptx(kernel, text).execute(a, b, out=out, policy=policy).conventions)


@pytest.mark.parametrize(("m", "n", "k"), [(65, 63, 33), (5, 9, 0)])
def test_b_transposed_once_comes_from_any_address(compiled: Any, m: int, n: int, k: int) -> None:
    """N-major 8-bit elements, which no ldmatrix loads, at addresses that no tensor map has: the kernel reads a copy."""
    spec = CASES["b_transposed_once"]
    kernel = compiled(spec)
    a, b, out = random_operands(kernel.contract, m, n, k, seed=k)
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="s32").ok
