"""A kernel's file read back: the plan of its constants, or a refusal with the constant that does not agree.

Whatever one constant becomes, the file is refused with its name, or its plan is one that was proved: never another
launch than the constants say.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from cutegen.errors import RequestError
from cutegen.plan import GemmPlan, plan
from cutegen.render import ReadKernel, read_kernel, render
from cutegen.render.edited import KernelText
from cutegen.spec import load_spec, shipped_specs
from cutegen.spec.file import parse_spec

OF_EACH_FAMILY = {
    "sm80_hgemm_tn": "sm_80",
    "sm90_hgemm_tn": "sm_90",
    "sm120_hgemm_tn": "sm_90",
    "simt_sgemm_tn": "sm_80",
}
MANY = {**OF_EACH_FAMILY, "cutlass_hopper_cooperative": "sm_90", "sm80_split_k_tn": "sm_80", "sm80_bf16_nn": "sm_80"}
FOLLOW = {"STAGES", "RASTER_GROUP", "MMA_PERMUTATION", "A_ALIGN_ELEMS", "B_ALIGN_ELEMS", "C_ALIGN_ELEMS", "SPLIT_K"}
"""Constants that may be changed alone: everything else in the file follows, or is right as it is."""


@cache
def emitted(name: str, arch: str) -> str:
    return render(plan(load_spec(name), arch)).text


def numbers(text: str) -> Iterator[tuple[tuple[str, ...], ast.Constant, int]]:
    """Every number that a constant of the head is written with, beside the names of its statement."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign):
            names = tuple(x.id for x in ast.walk(statement.targets[0]) if isinstance(x, ast.Name))
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant) and isinstance(node.value, int):
                    yield names, node, int(node.value)


def with_number(text: str, node: ast.Constant, value: int) -> str:
    lines = text.splitlines(keepends=True)
    line = lines[node.lineno - 1]
    lines[node.lineno - 1] = line[: node.col_offset] + str(value) + line[node.end_col_offset :]
    return "".join(lines)


@pytest.mark.parametrize("name", shipped_specs())
@pytest.mark.parametrize(
    "problem",
    [None, *(pytest.param(x, marks=pytest.mark.slow) for x in ((64, 4096, 4096), (256, 256, 65536)))],
    ids=str,
)
def test_what_emit_wrote_is_the_plans_kernel(name: str, problem: tuple[int, int, int] | None) -> None:
    """The spec at the end has nothing open that a problem settles, so that the plan is the same without the problem."""
    spec = load_spec(name)
    planned = plan(spec, None, None if spec.kind != "gemm" else problem)
    found = read_kernel(render(planned).text, "kernel.py", planned.target.name)
    assert found.notes == ()
    assert found.plan.launch == planned.launch
    assert found.plan.predictions.instructions == planned.predictions.instructions


@pytest.mark.parametrize("name", OF_EACH_FAMILY)
def test_any_constant_changed_is_refused_with_its_name_or_followed(name: str) -> None:
    text = emitted(name, OF_EACH_FAMILY[name])
    rows = [(names, node, new) for names, node, value in numbers(text) for new in changed(value)]
    for names, node, new in random.sample(rows, 6):
        check_changed(text, names, node, new, OF_EACH_FAMILY[name])


def changed(value: int) -> set[int]:
    return {value + 1, value - 1, value * 2} - {value}


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_every_constant_changed_is_refused_with_its_name_or_followed(name: str) -> None:
    """Two thirds of them, and each in one of the ways, drawn anew."""
    text = emitted(name, MANY[name])
    found = [*numbers(text)]
    for names, node, value in random.sample(found, -(-2 * len(found) // 3)):
        check_changed(text, names, node, random.choice([*changed(value)]), MANY[name])


def read_gemm(text: str, arch: str) -> tuple[ReadKernel, GemmPlan]:
    found = read_kernel(text, "kernel.py", arch)
    assert isinstance(found.plan, GemmPlan)
    return found, found.plan


def check_changed(text: str, names: tuple[str, ...], node: ast.Constant, new: int, arch: str) -> None:
    edited = with_number(text, node, new)
    refusal = None
    try:
        found = read_kernel(edited, "kernel.py", arch)
    except RequestError as error:
        refusal = str(error)
    if refusal is not None:
        assert any(name in refusal for name in names), refusal
        assert re.match(r"kernel\.py:\d+: ", refusal), refusal
        return
    assert FOLLOW & set(names), f"{names} = {new} was accepted"
    assert len(found.differences) == 1
    # The launch is that of the constants as they are now: those of the plan's own text are the same.
    mine, plans = (KernelText.of(each, "") for each in (edited, render(found.plan).text))
    assert {name: repr(x.value) for name, x in plans.constants.items()} == {
        name: repr(x.value) for name, x in mine.constants.items()
    }
    if "THREADS" in mine.constants:
        assert found.plan.launch.threads == mine.constants["THREADS"].value
        assert found.plan.launch.dynamic_smem_bytes == mine.constants["SMEM_BYTES"].value


@pytest.mark.parametrize(
    ("name", "before", "after"), [("sm80_hgemm_tn", 3, 4), ("sm90_hgemm_tn", 4, 3), ("sm120_hgemm_tn", 3, 2)]
)
def test_everything_follows_the_count_of_stages(name: str, before: int, after: int) -> None:
    text = emitted(name, OF_EACH_FAMILY[name])
    edited, count = re.subn(rf"^(STAGES\b.* = ){before}\b", rf"\g<1>{after}", text, flags=re.MULTILINE)
    assert count == 1
    found, planned = read_gemm(edited, OF_EACH_FAMILY[name])
    assert found.differences == (f"stages: {after}, the plan has {before}",)
    assert planned.stages == after
    was = read_gemm(text, OF_EACH_FAMILY[name])[1].smem_bytes
    stage_bytes = abs(was - planned.smem_bytes) // abs(before - after)
    assert stage_bytes >= (planned.a.smem.bytes + planned.b.smem.bytes) // after
    assert found.edited_code == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("THREADS = 128", "THREADS = 256", "kernel.py:27: THREADS: found 256; expected 128"),
        ("CTA_N, CTA_K = 128, 128,", "CTA_N, CTA_K = 128, 64,", "B_SMEM_SHAPE"),
        ("\nSMEM_BYTES = SMEM_B", "\nSMEM_BYTES = 4096 + SMEM_B", "SMEM_BYTES: found 102400; expected 98304"),
        ("STAGES = 3", "STAGES = 1", "STAGES: found 1, which needs other code"),
        ("STAGES = 3", "STAGES = 99", "STAGES = 99: tile.stages: found 99; expected an integer, 1 to 16"),
        ("STAGES = 3", "STAGES = three()", "STAGES: found more than a constant"),
        ("STAGES = 3", "STAGES = 3.0", "STAGES: found 3.0; expected int, as 3 is"),
        ("STAGES = 3", "STAGES = 3\nSTAGES = 2", "STAGES: found a second assignment"),
        ("STAGES = 3\n", "", "STAGES"),
        (
            "A_SMEM_SWIZZLE = (3, 3, 3)",
            "A_SMEM_SWIZZLE = (2, 3, 3)",
            "A_SMEM_SWIZZLE: found (2, 3, 3); expected (3, 3, 3)",
        ),
        (
            "A_DTYPE = cutlass.Float16",
            "A_DTYPE = cutlass.BFloat16",
            "A_DTYPE: found cutlass.BFloat16; expected cutlass.Float16",
        ),
        (
            "A_TRANSPOSE, A_MATRICES = False",
            "A_TRANSPOSE, A_MATRICES = 0",
            "A_TRANSPOSE: found 0; expected bool, as False is",
        ),
        ("    k: Int32,\n    lda", "    lda", "gemm: found the parameter lda: Int64; expected k: Int32"),
        ("block=(THREADS", "block=(128", "launch: found edited"),
        (
            "    tile_m, tile_n = tile_coordinate(",
            "    STAGES = 2\n    tile_m, tile_n = tile_coordinate(",
            "STAGES: found a second assignment",
        ),
        ("import cutlass\n", "import (\n", "kernel.py:9: invalid syntax"),
        ('KERNEL_NAME = "sm80_hgemm_tn"', "", "found no KERNEL_NAME"),
        ('KERNEL_NAME = "sm80_hgemm_tn"', 'KERNEL_NAME = "../x"', "KERNEL_NAME = '../x'"),
        ("# The spec, by", "# A spec, by", "found no spec in its last lines"),
        ('#    family = "sm80"', "#    family = sm80", "a syntax error"),
        ("import cutlass\n", f"x = {'(' * 9000}1{')' * 9000}\n", "kernel.py"),
        ("import cutlass\n", "import cutlass\n\0", "kernel.py"),
    ],
)
def test_what_breaks_the_contract_is_refused_in_a_line(old: str, new: str, said: str) -> None:
    text = emitted("sm80_hgemm_tn", "sm_80")
    assert old in text
    with pytest.raises(RequestError) as caught:
        read_kernel(text.replace(old, new, 1), "kernel.py", "sm_80")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_code_and_comments_may_be_edited() -> None:
    text = emitted("sm80_hgemm_tn", "sm_80")
    commented = re.sub(r"^# tile\.cta.*$", "# mine", text, flags=re.MULTILINE).replace(
        '"""The host side', '"""My host side'
    )
    assert read_kernel(commented, "kernel.py", "sm_80").notes == ()
    column_major = text.replace("    return tile_m, tile_n\n", "    return index % tiles_m, index // tiles_m\n")
    assert column_major != text
    found = read_kernel(column_major, "kernel.py", "sm_80")
    assert (found.differences, found.edited_code) == ((), ("tile_coordinate",))
    assert found.source.text == column_major
    helped = read_kernel(text.replace("\n@cute.jit", "\nMINE = print(1)\n\n\n@cute.jit", 1), "kernel.py", "sm_80")
    assert helped.edited_code == ("MINE",)


def test_reading_runs_nothing(tmp_path: object) -> None:
    text = emitted("sm80_hgemm_tn", "sm_80")
    assert read_kernel("raise SystemExit(1)\n" + text, "kernel.py", "sm_80").edited_code == (
        "the statements outside functions",
    )


BULK = 'problem.a = {{ dtype = "{0}", major = "k" }}\nproblem.b = {{ dtype = "{0}", major = "k" }}\n'
CHOSEN_STAGES = {
    "C from registers, or three stages": (
        'family = "sm120"\nproblem.c = { dtype = "u8", major = "n" }\ntile.cta = [16, 128, 256]\n'
        + BULK.format("e4m3"),
        "sm_120",
    ),
    "C from registers, or parts of it": (
        'family = "sm90"\nproblem.c = { dtype = "s8", major = "m" }\ntile.cta = [128, 80, 512]\n' + BULK.format("s8"),
        "sm_90",
    ),
    "parts of C, or all of it": (
        'family = "sm90"\nproblem.c = { dtype = "bf16", major = "m" }\ntile.cta = [128, 160, 256]\n'
        "epilogue.smem = true\n" + BULK.format("e4m3"),
        "sm_90",
    ),
}


@pytest.mark.parametrize("name", CHOSEN_STAGES)
def test_stages_that_were_chosen_store_c_as_the_plan_does(name: str) -> None:
    """If a spec gives the same number, the rest of shared memory is for C, which changes the store."""
    text, arch = CHOSEN_STAGES[name]
    planned = plan(parse_spec(text, file="mine.toml", name="mine"), arch)
    assert isinstance(planned, GemmPlan)
    given = replace(planned.spec, tile=replace(planned.spec.tile, stages=planned.stages))
    other = plan(given, arch)
    assert isinstance(other, GemmPlan)
    assert other.epilogue != planned.epilogue
    found = read_kernel(render(planned).text, "kernel.py", arch)
    assert found.notes == ()
    assert found.plan.launch == planned.launch
