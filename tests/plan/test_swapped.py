"""`schedule.swap`: the kernel multiplies B by A, and calls notice nothing of it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from cutegen.api import build_request
from cutegen.build import Cache, build
from cutegen.contract.launch import LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.render import render
from cutegen.run import Kernel
from cutegen.spec import Epilogue, Extra, GemmSpec, Schedule, Tile
from cutegen.verify import compare, expected_outcome, float64_reference, random_extras, random_operands
from cutegen.verify.counts import count_launch
from tests.plan.specs import gemm

OPEN = replace(gemm(), family=None)


def swapped(majors: str = "kkn", ops: tuple[str, ...] | None = None) -> GemmSpec:
    return replace(
        gemm(majors, epilogue=Epilogue(ops=ops)),
        family="sm90",
        schedule=Schedule(swap=True),
        tile=Tile(cta=(64, 16, 64)),
        name="swapped",
    )


def launch(spec: GemmSpec) -> LaunchContract:
    found = plan(spec, "sm_90")
    assert isinstance(found, GemmPlan)
    return found.launch


def test_a_call_passes_what_it_would_pass_otherwise() -> None:
    for majors in ("kkn", "mnn", "kkm"):
        asked = swapped(majors, ("bias_n", "residual"))
        as_it_is = launch(replace(asked, schedule=Schedule(), tile=Tile(cta=(64, 64, 64))))
        found = launch(asked)
        assert found.tensors == as_it_is.tensors
        assert found.epilogue == as_it_is.epilogue
        assert found.cta_tile == (16, 64)


def test_the_plan_names_the_epilogue_as_the_spec_does_and_the_kernel_as_it_computes() -> None:
    found = plan(swapped(ops=("bias_n", "scale_m", "residual")), "sm_90")
    assert isinstance(found, GemmPlan)
    said = {each.key: each.chosen for each in found.decisions}
    assert said["epilogue.ops"] == "bias_n, scale_m, residual"
    assert (said["problem.bias"], said["problem.scale"]) == ("f16, along n", "f32, along m")
    assert said["problem.residual"] == "f16, n-major"
    kernel = render(found).text
    assert "# epilogue.ops: bias_m, scale_n, residual" in kernel
    assert "# problem.residual: f16, m-major" in kernel


@pytest.mark.parametrize("major", ["m", "n"])
@pytest.mark.parametrize("name", ["residual", "aux"])
def test_a_given_major_is_that_of_the_call(name: str, major: str) -> None:
    asked = swapped(ops=(name,))
    asked = replace(asked, problem=replace(asked.problem, **{name: Extra(major=major)}))
    assert launch(asked).tensor(name).major == major


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_refusal_names_the_operand_of_the_call(name: str) -> None:
    asked = swapped()
    narrow = replace(getattr(asked.problem, name), align=8)
    with pytest.raises(SpecError, match=rf"problem.{name}.align: found 8; .*without schedule.swap") as refused:
        plan(replace(asked, problem=replace(asked.problem, **{name: narrow})), "sm_90")
    followed = replace(asked, family="sm80", schedule=Schedule(), problem=replace(asked.problem, **{name: narrow}))
    assert "without schedule.swap" in refused.value.fix
    plan(followed, "sm_90")


def test_the_kernel_takes_them_where_it_multiplies_b_by_a() -> None:
    names = [parameter.name for parameter in launch(swapped(ops=("bias_n",))).parameters]
    assert names[:3] == ["map_b", "map_a", "map_c"]
    assert names[names.index("n") :][:3] == ["n", "m", "k"]


def test_exchanging_twice_changes_nothing() -> None:
    found = launch(swapped("mkn", ("bias_m", "residual", "aux")))
    assert found.exchanged() != found
    assert found.exchanged().exchanged() == found
    assert LaunchContract.from_json(found.to_json()) == found


@pytest.mark.parametrize(("cluster", "clusters"), [((2, 1), 6), ((1, 2), 6), ((2, 2), 4)])
def test_a_cluster_covers_tiles_of_the_product_that_is_multiplied(cluster: tuple[int, int], clusters: int) -> None:
    """Of 40x150 there are 3 tiles along N, the kernel's M, and 3 along M."""
    found = launch(replace(swapped(), schedule=Schedule(swap=True, cluster=cluster)))
    problem, (x, y) = ProblemShape(40, 150, 64), cluster
    assert found.tiles(problem) == clusters * x * y
    assert found.tiles(ProblemShape(16, 64 * 6, 64)) == 6 * y
    assert found.geometry(problem, multiprocessors=132).grid == (clusters * x, y, 1)


@pytest.mark.parametrize("major", ["k", "n"])
def test_what_a_transposed_copy_of_b_is_read_as(major: str) -> None:
    """The kernel's A is B."""
    asked = replace(swapped(f"k{major}n"), tile=Tile(cta=(64, 16, 64)))
    b = replace(asked.problem.b, transposed="once")
    found = plan(replace(asked, problem=replace(asked.problem, b=b)), "sm_90")
    (decided,) = (decision for decision in found.decisions if decision.key == "problem.b.transposed")
    assert decided.chosen.endswith(f"reads a {'K' if major == 'n' else 'N'}-major copy")
    assert found.launch.tensor("b").major != major
    assert found.launch.of_a_call().tensor("b").major == major


@pytest.mark.parametrize(("problem", "exchanged"), [((16, 4096, 4096), True), ((4096, 16, 4096), False)])
def test_few_rows_are_columns_of_an_instruction(problem: tuple[int, int, int], exchanged: bool) -> None:
    found = plan(OPEN, "sm_90", problem)
    assert isinstance(found, GemmPlan)
    assert (found.family, found.swapped) == ("sm90", exchanged)
    decided = [decision for decision in found.decisions if decision.key == "schedule.swap"]
    assert [decision.given for decision in decided] == [False] * exchanged
    assert found.problem is not None
    assert (found.problem.m, found.problem.n, found.problem.k) == problem


@pytest.mark.dsl
@pytest.mark.parametrize(
    ("majors", "ops"), [("kkn", ("bias_n", "gelu_erf", "residual")), ("mnn", None), ("kkm", ("bias_m", "aux", "relu"))]
)
def test_it_is_right_at_odd_sizes(majors: str, ops: tuple[str, ...] | None, kernels: Cache) -> None:
    spec = swapped(majors, ops)
    planned, kernel = plan(spec, "sm_90"), Kernel(build(build_request(spec, "sm_90"), kernels))
    assert isinstance(planned, GemmPlan)
    assert kernel.artifact.manifest.warnings == ()
    for m, n, k in ((16, 64, 64), (24, 136, 72), (8, 8, 8)):
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k)
        extras = random_extras(kernel.contract, m, n, seed=m)
        out[...] = np.nan
        report = kernel.execute(a, b, out=out, **extras)
        assert report.violations == ()
        expected = expected_outcome(kernel.contract, a, b, extras, accumulator="f32")
        assert compare(out, expected.result, dtype="f16").ok, (m, n, k)
        if ops is None:
            assert count_launch(planned, kernel.call_size(a, b, out), report).differing() == {}


@pytest.mark.parametrize("op", ["scale_m", "scale_n"])
def test_a_scale_of_rows_is_one_of_columns_there(op: str) -> None:
    """Its name, its mode and its stride change places with the other's, and twice gives them back."""
    found, other = launch(swapped(ops=(op, "bias_m", "bias_n"))), {"scale_m": "scale_n", "scale_n": "scale_m"}[op]
    assert found.tensor(op).modes == (op[-1],)
    names = [parameter.name for parameter in found.parameters]
    assert {f"inc_{op}", f"batch_stride_{op}"} <= set(names)
    assert [x.name for x in found.exchanged().tensors[3:]] == ["bias_n", "bias_m", other]
    assert found.exchanged().tensor(other).modes == (other[-1],)
    assert found.exchanged().exchanged() == found


@pytest.mark.slow
@pytest.mark.parametrize("columns", [24, 40, 56])
def test_parts_of_an_odd_number_of_eights_are_stored(columns: int, kernels: Cache) -> None:
    """`stmatrix` stores two matrices at a time there, not four."""
    spec = replace(swapped(), tile=Tile(cta=(64, columns, 64)))
    kernel = Kernel(build(build_request(spec, "sm_90"), kernels))
    assert "stmatrix.sync.aligned.m8n8.x2.trans" in kernel.artifact.ptx
    seed = random.getrandbits(31)
    a, b, out = random_operands(kernel.contract, 2 * columns + 8, 136, 72, seed=seed)
    kernel(a, b, out=out)
    assert compare(out, float64_reference(a, b), dtype="f16").ok
