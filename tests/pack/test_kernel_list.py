"""Which kernels are to be built: products of a command line, and lists in TOML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cutegen.contract import ProblemShape
from cutegen.dispatch.request import Matrix, Request
from cutegen.errors import ArtifactError, CutegenError, RequestError, SpecError
from cutegen.pack.kernel_list import RequestedKernel, combinations, read_list
from cutegen.spec import load_spec, shipped_specs
from cutegen.spec.file import spec_of_table, spec_table
from cutegen.support.toml_text import toml_value

REQUEST = Request(
    a=Matrix("f16", "k", 16),
    b=Matrix("f16", "k", 8),
    c=Matrix("f16", "n", 16),
    ops=("bias_n", "relu"),
    bias="f32",
    problem=ProblemShape(64, 128, 256),
    target="sm_90",
    device="NVIDIA H200",
)


def listed(tmp_path: Path, text: str, *archs: str) -> tuple[RequestedKernel, ...]:
    path = tmp_path / "list.toml"
    path.write_text(text)
    return read_list(path, archs)


def test_a_product_has_each_once() -> None:
    found = combinations(
        ["sm80_hgemm_tn", "sm80_bf16_nn"], [(1, 2, 3), (1, 2, 3, 1), (4, 5, 6, 7)], ["80", "sm_90a", "h100"]
    )
    assert len(found) == 2 * 2 * 2
    assert [str(each) for each in found[:3]] == [
        "sm80_hgemm_tn for sm_80, 1x2x3",
        "sm80_hgemm_tn for sm_80, 7 x 4x5x6",
        "sm80_hgemm_tn for sm_90, 1x2x3",
    ]


def test_a_list_names_specs_by_name_path_and_keys(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    spec = load_spec("sm80_hgemm_tn")
    (tmp_path / "specs" / "mine.toml").write_text(
        "\n".join(f"{k} = {toml_value(v)}" for k, v in spec_table(spec).items())
    )
    found = listed(
        tmp_path,
        f"""
        [[kernel]]
        spec = "sm80_bf16_nn"
        problems = [[64, 64, 64], [64, 64, 64, 8]]
        targets = ["sm_80", "sm_86"]

        [[kernel]]
        spec = "specs/mine.toml"

        [[kernel]]
        name = "third"
        spec = {toml_value(spec_table(spec))}
        targets = ["a100"]
        """,
        "sm_89",
    )
    assert [(x.name, x.target, x.problem) for x in found] == [
        ("sm80_bf16_nn", "sm_80", ProblemShape(64, 64, 64)),
        ("sm80_bf16_nn", "sm_80", ProblemShape(64, 64, 64, 8)),
        ("sm80_bf16_nn", "sm_86", ProblemShape(64, 64, 64)),
        ("sm80_bf16_nn", "sm_86", ProblemShape(64, 64, 64, 8)),
        ("mine", "sm_89", None),
        ("third", "sm_80", None),
    ]
    assert found[4].spec == found[5].spec == spec


def test_a_request_is_a_kernel_of_its_own_name(tmp_path: Path) -> None:
    rows = [REQUEST, replace(REQUEST, problem=ProblemShape(1, 2, 3)), replace(REQUEST, bias="f16")]
    text = "\n".join(f"[[kernel]]\nrequest = {toml_value(each.as_json())}" for each in rows)
    first, same, other = listed(tmp_path, text)
    assert (first.target, first.problem) == ("sm_90", REQUEST.problem)
    assert first.spec.epilogue.ops == ("bias_n", "relu")
    assert first.name == same.name != other.name
    assert {each.target for each in listed(tmp_path, text, "sm_80")} == {"sm_80"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "found the keys none; expected [[kernel]] tables"),
        ("[kernel]\nspec = 'sm80_hgemm_tn'", "expected [[kernel]] tables"),
        ("[[kernel]\n", "a syntax error"),
        ("[[kernel]]\nspecs = 'x'", 'kernel[0]."specs": found an unknown key; expected spec, name'),
        ("[[kernel]]\n", "neither spec nor request"),
        ("[[kernel]]\nspec = 'x'\nrequest = {}", "both spec and request"),
        ("[[kernel]]\nspec = 3", "kernel[0].spec: found 3; expected a string"),
        ("[[kernel]]\nspec = 'sm80_hgem_tn'", "sm80_hgemm_tn, the nearest"),
        ("[[kernel]]\nspec = 'no/such.toml'", "no such file"),
        (
            '[[kernel]]\nspec = "sm80_hgemm_tn"\nname = "my\\u00a0kernel"',
            'kernel[0].name: found "my\\u00a0kernel"; expected a line of printable text; docs/deploying.md',
        ),
        ('[[kernel]]\nspec = "sm80_hgemm_tn"\nname = "\\u001b[31m"', 'kernel[0].name: found "\\u001b[31m"; expected'),
        ('[[kernel]]\nspec = "sm80_hgemm_tn"\nname = """a\nb"""', 'kernel[0].name: found "a\\nb"; expected a line'),
        ("[[kernel]]\nspec = { tile = 3 }", "kernel[0].spec: problem: found nothing"),
        ("[[kernel]]\nspec = 'sm80_hgemm_tn'\nproblems = 3", "kernel[0].problems: found 3; expected a list"),
        ("[[kernel]]\nspec = 'sm80_hgemm_tn'\nproblems = [3]", "kernel[0].problems[0]: found 3; expected [M, N, K]"),
        ("[[kernel]]\nspec = 'sm80_hgemm_tn'\nproblems = [[1, 2]]", "kernel[0].problems[0]: problem: found (1, 2)"),
        ("[[kernel]]\nspec = 'sm80_hgemm_tn'\nproblems = [[0, 2, 3]]", "kernel[0].problems[0]: problem: found M, N, K"),
        ("[[kernel]]\nspec = 'sm80_hgemm_tn'\ntargets = ['sm_7']", "unknown target 'sm_7'"),
        ("[[kernel]]\nspec = 'sm80_hgemm_tn'\ntargets = [1]", "kernel[0].targets: found 1; expected a string"),
        ("[[kernel]]\nrequest = { a = 1 }", "kernel[0]: request"),
        ("[[kernel]]\nrequest = {}\nproblems = []", "kernel[0].problems: found a key together with request"),
        ("kernel = [1]", "kernel[0]: found 1; expected a table"),
        ("x = " + "[" * 300 + "]" * 300, "nested"),
    ],
)
def test_what_a_list_cannot_say_is_refused_with_its_address(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CutegenError) as refused:
        listed(tmp_path, text)
    assert isinstance(refused.value, RequestError | ArtifactError)
    assert said in str(refused.value)


def test_a_list_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no\.toml"):
        read_list(tmp_path / "no.toml")


@pytest.mark.parametrize("name", shipped_specs())
def test_a_spec_written_as_a_table_is_the_same_spec(name: str) -> None:
    spec = load_spec(name)
    again = spec_of_table(spec_table(spec), name=name)
    assert (again, again.description) == (spec, spec.description)


def test_a_wrong_table_is_refused_as_a_file_is() -> None:
    with pytest.raises(SpecError, match=r"here: problem\.a\.dtype: found \"f15\""):
        spec_of_table({"problem": {x: {"dtype": "f15", "major": "m"} for x in "abc"}}, file="here")
