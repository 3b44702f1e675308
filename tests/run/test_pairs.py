"""Pairs of columns against float64, for every order of the weight's columns. Needs no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cutegen import api
from cutegen.build import Cache, build
from cutegen.errors import OperandError, SpecError
from cutegen.hardware.targeting import choose_target
from cutegen.render import pairs as rendered_pairs
from cutegen.render import warpgroup
from cutegen.run import Kernel
from cutegen.spec import (
    Bias,
    Epilogue,
    Extra,
    GemmSpec,
    Operand,
    Paired,
    Problem,
    Scale,
    Schedule,
    Tile,
)
from cutegen.verify import compare, random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.error_bounds import Bounded
from cutegen.verify.reference import float64
from tests.run.against_float64 import check, expected, made
from tests.seeding import new_generator

pytestmark = pytest.mark.dsl
Compile = Callable[[GemmSpec], Kernel]
SWIGLU = "x, y -> silu(x) * y"
OF_GPT_OSS = "x, y -> (max(min(y, 7), -7) + 1) * min(x, 7) * sigmoid(1.702 * min(x, 7))"


def spec_of(
    layout: str | int,
    first: str,
    *,
    b: str = "k",
    c: str = "n",
    cta: tuple[int, int, int] = (128, 128, 64),
    element: str = "bf16",
    result: str = "bf16",
    align: int | None = None,
    ops: tuple[str, ...] | None = ("bias_n",),
    expression: str = SWIGLU,
    schedule: Schedule | None = None,
    family: str = "sm90",
) -> GemmSpec:
    problem = Problem(
        a=Operand(element, "k"),
        b=Operand(element, b),
        c=Operand(result, c, align),
        bias=Bias("f32") if "bias_n" in (ops or ()) else None,
        scale=Scale() if "scale_n" in (ops or ()) else None,
        residual=Extra() if "residual" in expression else None,
    )
    epilogue = Epilogue(ops=ops, expression=expression, pairs=Paired(layout, first))  # type: ignore[arg-type]
    return GemmSpec(
        family=family, problem=problem, tile=Tile(cta=cta), epilogue=epilogue, schedule=schedule or Schedule(), name="p"
    )


CASES = {
    "halves": spec_of("halves", "gate"),
    "interleaved_up_first": spec_of("interleaved", "up", expression=OF_GPT_OSS),
    "n_major_halves": spec_of("halves", "up", b="n", cta=(64, 128, 64)),
    "in_turn_up_first": spec_of(8, "up", cta=(64, 96, 64), result="f32"),
    "n_major_in_turn": spec_of(32, "gate", b="n", cta=(64, 128, 64)),
    "n_major_wide": spec_of("halves", "gate", b="n", cta=(128, 256, 64), result="f32"),
    "m_major_result": spec_of("halves", "up", c="m"),
    "unaligned_result": spec_of(16, "gate", align=2),
    "cluster": spec_of("interleaved", "gate", schedule=Schedule(cluster=(2, 1))),
    "cluster_of_four": spec_of("halves", "up", schedule=Schedule(cluster=(2, 2))),
    "pingpong": spec_of("halves", "gate", cta=(64, 128, 64), schedule=Schedule(consumers="pingpong")),
    "three_warpgroups": spec_of(16, "up", cta=(192, 64, 64)),
    "two_blocks_of_rows": spec_of("halves", "gate", cta=(256, 64, 64), result="f16", element="f16"),
    "scaled": spec_of(
        16,
        "up",
        ops=("alpha", "scale_m", "scale_n", "bias_n"),
        expression="x, y -> gelu_tanh(x) * y + residual",
        result="f16",
        element="f16",
    ),
    "e4m3": spec_of("interleaved", "up", element="e4m3", cta=(64, 128, 128), ops=("scale_m", "scale_n")),
    "swap": spec_of("halves", "gate", cta=(128, 16, 64), schedule=Schedule(swap=True)),
    "swap_interleaved": spec_of(
        "interleaved", "up", c="m", cta=(256, 32, 64), expression=OF_GPT_OSS, schedule=Schedule(swap=True)
    ),
    "swap_n_major_in_turn": spec_of(16, "up", b="n", cta=(128, 8, 64), result="f32", schedule=Schedule(swap=True)),
    "swap_n_major_halves": spec_of("halves", "up", b="n", cta=(256, 64, 64), schedule=Schedule(swap=True)),
    "swap_pingpong": spec_of(
        8, "gate", cta=(128, 64, 64), schedule=Schedule(swap=True, consumers="pingpong"), ops=("scale_m", "scale_n")
    ),
    "swap_cluster": spec_of("interleaved", "gate", cta=(128, 32, 64), schedule=Schedule(swap=True, cluster=(2, 2))),
    "swap_two_blocks": spec_of(
        "halves",
        "up",
        cta=(256, 24, 64),
        expression="x, y -> gelu_tanh(x) * y + residual",
        schedule=Schedule(swap=True),
    ),
    "swap_e4m3": spec_of(
        "halves", "gate", element="e4m3", cta=(128, 16, 128), ops=("scale_m", "scale_n"), schedule=Schedule(swap=True)
    ),
    "swap_unaligned_result": spec_of(32, "up", cta=(128, 16, 64), align=2, schedule=Schedule(swap=True)),
    "sm80_halves": spec_of("halves", "gate", cta=(64, 64, 32), family="sm80"),
    "sm80_interleaved": spec_of(
        "interleaved", "up", cta=(64, 128, 32), expression=OF_GPT_OSS, result="f32", family="sm80"
    ),
    "sm80_in_turn": spec_of(16, "up", cta=(128, 128, 32), c="m", family="sm80"),
    "sm80_unaligned_result": spec_of(
        8,
        "gate",
        cta=(64, 64, 32),
        align=2,
        ops=("alpha", "scale_m", "scale_n", "bias_n"),
        expression="x, y -> gelu_tanh(x) * y + residual",
        family="sm80",
    ),
    "sm80_e4m3": spec_of(
        "interleaved", "up", element="e4m3", cta=(64, 64, 64), ops=("scale_m", "scale_n"), family="sm80"
    ),
    "s8": spec_of(
        "halves", "gate", element="s8", cta=(64, 64, 128), ops=("scale_n",), expression="x, y -> relu(x) * y"
    ),
}
FAST = ("halves", "interleaved_up_first", "swap", "sm80_halves")


def members(columns: np.ndarray[Any, Any], pairs: Paired) -> tuple[Any, Any]:
    """The gates and the ups of columns in the weight's order, by slices."""
    if pairs.layout == "halves":
        first, second = np.split(columns, 2, axis=-1)
    elif pairs.layout == "interleaved":
        first, second = columns[..., 0::2], columns[..., 1::2]
    else:
        blocks = columns.reshape(*columns.shape[:-1], -1, 2, pairs.layout)
        first, second = (blocks[..., i, :].reshape(*columns.shape[:-1], -1) for i in (0, 1))
    return (first, second) if pairs.first == "gate" else (second, first)


def swiglu(gate: Any, up: Any) -> Any:
    return gate / (1 + np.exp(-gate)) * up


def of_gpt_oss(gate: Any, up: Any) -> Any:
    gate = np.minimum(gate, 7)
    return (np.clip(up, -7, 7) + 1) * gate / (1 + np.exp(-1.702 * gate))


@pytest.mark.parametrize("name", [pytest.param(x, marks=() if x in FAST else pytest.mark.slow) for x in CASES])
def test_right_against_float64_with_tails_of_m_and_n(compiled: Compile, name: str) -> None:
    """Whole tiles, several, and tails of both; the result is poisoned, and its rows are apart."""
    spec, generator = CASES[name], new_generator()
    kernel, multiple = compiled(spec), 64 if isinstance(spec.epilogue.pairs.layout, int) else 16  # type: ignore[union-attr]
    for tiles in (0, 1):
        m, k = int(generator.integers(1, 150)) + 64 * tiles, int(generator.integers(1, 20)) * 16
        n = multiple * int(generator.integers(1, 5)) + 256 * tiles
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m)
        assert out.shape == (m, n // 2)
        check(kernel, a, b, out, random_extras(kernel.contract, m, n, seed=n))


@pytest.mark.parametrize("name", ["halves", "interleaved_up_first"])
def test_against_numpy_alone(compiled: Compile, name: str) -> None:
    """Neither the order of columns nor the formula comes from cutegen here; inputs reach beyond gpt-oss's limit."""
    spec = CASES[name]
    kernel, pairs = compiled(spec), spec.epilogue.pairs
    assert pairs is not None
    a, b, out = random_operands(kernel.contract, 70, 336, 96, seed=5)
    extras = random_extras(kernel.contract, 70, 336, seed=5)
    gate, up = members(float64(a) @ float64(b) + float64(extras["bias"]), pairs)
    formula = of_gpt_oss if spec.epilogue.expression == OF_GPT_OSS else swiglu
    assert (gate > 7).any()
    assert (abs(up) > 7).any()
    bounds = expected(kernel, a, b, extras).result
    kernel(a, b, out=out, **extras)
    assert compare(out, Bounded(formula(gate, up), bounds.error), dtype="bf16").ok
    wrong = [formula(up, gate), swiglu(gate, up) if formula is of_gpt_oss else of_gpt_oss(gate, up)]
    assert not any(compare(out, Bounded(each, bounds.error), dtype="bf16").ok for each in wrong)


def test_a_batch_has_pairs_in_each_matrix(compiled: Compile) -> None:
    kernel = compiled(CASES["halves"])
    a, b, out = random_operands(kernel.contract, 40, 96, 72, seed=2, batch=3)
    check(kernel, a, b, out, random_extras(kernel.contract, 40, 96, seed=2, batch=3))


@pytest.mark.parametrize(
    "name", ["halves", "swap", "sm80_halves", pytest.param("n_major_in_turn", marks=pytest.mark.slow)]
)
def test_the_plan_predicts_what_the_executor_counts(compiled: Compile, name: str) -> None:
    spec = CASES[name]
    kernel, plan = compiled(spec), api.plan(spec, spec.needs)
    m, n, k = (2 * extent for extent in (*plan.launch.cta_tile, plan.cta_tile[2]))
    a, b, out = random_operands(kernel.contract, m, n, k, seed=1)
    extras = random_extras(kernel.contract, m, n, seed=1)
    report = kernel.execute(a, b, out=out, **extras)
    counts = count_launch(plan, kernel.call_size(a, b, out, **extras), report)
    assert not counts.differing()
    assert counts.sectors["epilogue"].predicted == m * n // 2 * out.itemsize // 32
    assert report.violations == ()


def made_anew(spec: GemmSpec, tmp_path: Any) -> Kernel:
    """The kernel of a spec, rendered again: the library remembers texts by their specs."""
    return Kernel(build(api.request_of(api.plan(spec, spec.needs)), Cache(tmp_path)))


def is_right(kernel: Kernel, right: Kernel) -> bool:
    """Whether a kernel computes what `right` should."""
    a, b, out = random_operands(right.contract, 70, 160, 96, seed=3)
    extras = random_extras(right.contract, 70, 160, seed=3)
    kernel(a, b, out=out, **extras)
    return compare(out, expected(right, a, b, extras).result, dtype="bf16").ok


def test_halves_read_as_interleaved_are_wrong(compiled: Compile) -> None:
    right = compiled(CASES["halves"])
    artifact = SimpleNamespace(
        **{x: getattr(right.artifact, x) for x in ("path", "plan_json", "cubin", "ptx", "manifest")}
    )
    artifact.plan_json = artifact.plan_json.replace('"width": null', '"width": 1')
    assert artifact.plan_json != right.artifact.plan_json
    assert is_right(right, right)
    assert not is_right(Kernel(artifact), right)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["gate and up swapped", "bias in the order of halves", "limit forgotten"])
@pytest.mark.parametrize("name", ["interleaved_up_first", "swap_interleaved", "sm80_interleaved"])
def test_a_planted_mistake_is_found(
    mistake: str, name: str, compiled: Compile, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = CASES[name]
    right = compiled(spec)
    if mistake == "gate and up swapped":
        monkeypatch.setattr(rendered_pairs, "members_in_order", lambda pairs: ("x", "y"))
    elif mistake == "limit forgotten":
        without = OF_GPT_OSS.replace("min(x, 7)", "x")
        spec = replace(spec, epilogue=replace(spec.epilogue, expression=without))
    else:
        of_members = warpgroup.vectors_of_members
        for module in (warpgroup, rendered_pairs):
            halves = lambda x, pairs: of_members(x, replace(pairs, width=None))  # noqa: E731
            monkeypatch.setattr(module, "vectors_of_members", halves)
    assert not is_right(made_anew(spec, tmp_path), right)


@pytest.mark.parametrize(
    ("name", "n", "wanted"),
    [
        ("halves", 97, 2),
        pytest.param("n_major_halves", 72, 16, marks=pytest.mark.slow),
        pytest.param("in_turn_up_first", 72, 16, marks=pytest.mark.slow),
    ],
)
def test_half_a_pair_is_refused(compiled: Compile, name: str, n: int, wanted: int) -> None:
    kernel = compiled(CASES[name])
    a, b, _ = random_operands(kernel.contract, 8, n, 16, seed=0)
    with pytest.raises(OperandError, match=rf"^operand b: found N = {n}; expected a multiple of {wanted}: "):
        kernel(a, b, bias=np.zeros(n, np.float32))


@pytest.mark.parametrize(
    ("spec", "key", "fix"),
    [
        (spec_of("halves", "gate", cta=(64, 8, 64), schedule=Schedule(swap=True)), "tile.cta", "M = 128"),
        (spec_of(128, "gate", cta=(256, 8, 64), schedule=Schedule(swap=True)), "tile.cta", "M = 512"),
        (spec_of("halves", "gate", schedule=Schedule(split_k=2)), "epilogue.pairs", "leave schedule.split_k out"),
        (spec_of("interleaved", "gate", b="n"), "epilogue.pairs", 'transposed = "once"'),
        (spec_of(64, "gate"), "tile.cta", "N = 256"),
        (spec_of("halves", "gate", cta=(64, 48, 32), family="sm80"), "tile.cta", "N = 64"),
        (spec_of("halves", "gate", b="n", family="sm80"), "epilogue.pairs", 'problem.b.major = "k"'),
        (spec_of(24, "gate"), "tile.cta", "N = 96"),
    ],
)
def test_a_kernel_that_there_is_not_is_refused_with_the_way_out(spec: GemmSpec, key: str, fix: str) -> None:
    with pytest.raises(SpecError) as caught:
        api.plan(spec, spec.needs)
    assert str(caught.value).startswith(f"p: {key}: found ")
    assert fix in str(caught.value)


@pytest.mark.parametrize(("m", "swapped"), [(4, True), (4096, False)])
def test_few_rows_are_swapped_and_many_are_not(m: int, swapped: bool) -> None:
    spec = replace(CASES["halves"], tile=Tile())
    plan = api.plan(spec, "sm_90a", problem=(m, 28672, 4096))
    assert plan.swapped == swapped


@pytest.mark.parametrize("family", ["sm120", "simt"])
def test_other_families_refuse_pairs_by_name(family: str) -> None:
    with pytest.raises(SpecError, match=rf'epilogue\.pairs: .* in family "{family}"; expected no such key'):
        replace(CASES["halves"], family=family)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_right_on_a_gpu(compiled: Compile, name: str) -> None:
    """Random extents with tails, poisoned results, and a batch."""
    generator, spec = new_generator(), CASES[name]
    kernel, multiple = compiled(spec, choose_target().name), 64 if isinstance(spec.epilogue.pairs.layout, int) else 16  # type: ignore[union-attr]
    for batch in (None, None, 3):
        m, k = int(generator.integers(1, 700)), int(generator.integers(1, 60)) * 16
        n = multiple * int(generator.integers(1, 20))
        check(kernel, *made(kernel, m, n, k, batch, framework="torch", device="cuda"))
