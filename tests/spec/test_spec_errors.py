"""Every way in which one key can be wrong, in a file and in Python: where, found, expected, the way out."""

from __future__ import annotations

import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from cutegen.errors import CompileError, CutegenError, OperandError, PtxFault, PtxSyntaxError, SpecError
from cutegen.spec import (
    Epilogue,
    G2s,
    G2sCopy,
    GemmSpec,
    Mma,
    Operand,
    Problem,
    Raster,
    S2r,
    S2rCopy,
    Schedule,
    Smem,
    SmemLayout,
    Tile,
    known_keys,
    load_spec,
)

HERE = Path(__file__).parent
MINIMAL = {
    "family": 'family = "sm80"',
    "problem.a": 'problem.a = { dtype = "f16", major = "k" }',
    "problem.b": 'problem.b = { dtype = "f16", major = "k" }',
    "problem.c": 'problem.c = { dtype = "f16", major = "n" }',
}


def cases() -> list[tuple[str, str]]:
    """The blocks of bad_specs.txt: lines that a minimal spec gets (or loses, with `-`), and the message."""
    blocks = (HERE / "bad_specs.txt").read_text().strip().split("\n\n")
    return [(toml(block.split("\n=> ")[0]), block.split("\n=> ")[1]) for block in blocks]


def toml(changes: str) -> str:
    lines = changes.split("\n")
    replaced = {line.removeprefix("- ").split(" = ")[0] for line in lines}
    kept = [line for key, line in MINIMAL.items() if key not in replaced]
    return "\n".join(kept + [line for line in lines if not line.startswith("- ")])


@pytest.mark.parametrize(("text", "message"), cases(), ids=[message.split(": ")[0] for _, message in cases()])
def test_bad_input_is_told_where_what_and_how(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    error = caught.value
    assert str(error) == f"{path}: {message}"
    assert (error.file, error.key) == (str(path), message.split(": ")[0])
    assert error.found
    assert error.expected


def test_every_known_key_has_a_bad_case() -> None:
    """A, B and C share their rules, so one of them stands for all."""
    tried = {operandless(message.split(": ")[0]) for _, message in cases()}
    assert {operandless(dotted) for dotted, key in known_keys(GemmSpec) if key.check} <= tried


def operandless(dotted: str) -> str:
    return re.sub(r"\.[abc](\.|$)", r".*\1", dotted)


@pytest.mark.parametrize(
    ("line", "key", "found"),
    [
        (f"stages = 0x{'f' * 5000}", "tile.stages", "an integer of more than 64 bits"),
        (f"stages = {'9' * 5000}", "", "a syntax error"),
        (f"cta = {'[' * 5000}{']' * 5000}", "", "nested too deeply"),
        (f"cta = [{'1, ' * 5000}1]", "tile.cta", "which has 5,001 values"),
        (f"{'k' * 5000} = 1", f'tile."{"k" * 57}..."', "an unknown key"),
        (f"stages = '{'x' * 5000}'", "tile.stages", "(a string)"),
    ],
)
def test_excess_stays_one_short_line(line: str, key: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(toml(f"[tile]\n{line}"))
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert caught.value.key == key
    assert found in caught.value.found
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("text", ["(" * 201, "(" * 200, "9" * 200, "Sw<3,3,3> o " * 16, "(8,8):(1," + "9" * 180 + ")"])
def test_layout_text_of_any_size_is_judged(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        GemmSpec(family="sm80", problem=TN, smem=Smem(a=SmemLayout(layout=text)))
    assert caught.value.key == "smem.a.layout"


F16_K = Operand("f16", "k")
TN = Problem(a=F16_K, b=F16_K, c=Operand("f16", "n"))

# The same mistake made in Python and in TOML.
TWINS = [
    ({"tile": Tile(stages=17)}, "[tile]\nstages = 17"),
    ({"tile": Tile(cta=(128, 0, 64))}, "[tile]\ncta = [128, 0, 64]"),
    ({"mma": Mma(atom="SM80_16x8x16")}, "[mma]\natom = 'SM80_16x8x16'"),
    ({"mma": Mma(atom_layout=(8, 8, 1))}, "[mma]\natom_layout = [8, 8, 1]"),
    ({"smem": Smem(a=SmemLayout(pad=8, layout="(8,8)"))}, "[smem]\na = { pad = 8, layout = '(8,8)' }"),
    ({"smem": Smem(b=SmemLayout(swizzle=(3, 3, 2)))}, "[smem]\nb = { swizzle = [3, 3, 2] }"),
    ({"g2s": G2s(a=G2sCopy(op="cp.async.cg", bits=32))}, "[g2s]\na = { op = 'cp.async.cg', bits = 32 }"),
    ({"g2s": G2s(b=G2sCopy(threads="(3,"))}, "[g2s]\nb = { threads = '(3,' }"),
    ({"s2r": S2r(a=S2rCopy(atom="LDSM"))}, "[s2r]\na = { atom = 'LDSM' }"),
    ({"epilogue": Epilogue(smem=SmemLayout(pad=-1))}, "[epilogue]\nsmem = { pad = -1 }"),
    ({"schedule": Schedule(raster=Raster(group=0))}, "[schedule]\nraster = { group = 0 }"),
]


@pytest.mark.parametrize(("parts", "table"), TWINS)
def test_python_and_toml_fail_alike(parts: dict[str, object], table: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(toml(table))
    with pytest.raises(SpecError) as from_toml:
        load_spec(path)
    with pytest.raises(SpecError) as from_python:
        GemmSpec(family="sm80", problem=TN, file=str(path), **parts)  # type: ignore[arg-type]
    assert str(from_python.value) == str(from_toml.value)


def test_what_only_python_can_get_wrong() -> None:
    cases: list[tuple[dict[str, object], str, str, str]] = [
        ({"tile": Tile(cta=[128, 128, 64])}, "tile.cta", "a Python list", "write a tuple"),  # type: ignore[arg-type]
        ({"tile": None}, "tile", "nothing", ""),
        ({"tile": Mma()}, "tile", "a Python Mma", ""),
        ({"problem": None}, "problem", "nothing", ""),
        ({"epilogue": Epilogue(smem=True)}, "epilogue.smem", "true (a boolean)", "SmemLayout(), False or None"),  # type: ignore[arg-type]
    ]
    for parts, key, found, way_out in cases:
        with pytest.raises(SpecError) as caught:
            GemmSpec(**{"family": "sm80", "problem": TN, "name": "mine", **parts})  # type: ignore[arg-type]
        error = caught.value
        assert (error.file, error.key) == ("mine", key)
        assert found in error.found
        assert way_out in f"{error.expected}; {error.fix}"


def test_the_spec_makes_errors_for_the_plan() -> None:
    spec = GemmSpec(family="sm80", problem=TN, file="x.toml", name="x")
    error = spec.error("mma.permutation", found="30 along N", expected="a divisor of 128", fix="32 is the nearest")
    assert str(error) == "x.toml: mma.permutation: found 30 along N; expected a divisor of 128; 32 is the nearest"


@pytest.mark.parametrize(
    "error",
    [
        SpecError(file="mine.toml", key="tile.cta", found="3", expected="4", fix="write 4"),
        OperandError(operand="a", found="f32", expected="f16"),
        PtxSyntaxError("no such opcode", line=3, instruction="mad"),
        PtxFault("a barrier that nobody reaches", line=7),
        CompileError("the compiler refused"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_whole_out_of_another_process(error: CutegenError) -> None:
    """One that cannot be unpickled ends a pool of processes, and nothing says why."""
    with ProcessPoolExecutor(1) as pool:
        there = pool.submit(_returned, error).result()
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))


def _returned(error: CutegenError) -> CutegenError:
    return error


def test_a_number_too_long_to_print_is_a_mistake_in_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(toml(f"epilogue.ops = [0x{'f' * 5000}]"))
    with pytest.raises(SpecError, match=r"epilogue.ops: found .*; expected a list of"):
        load_spec(path)


def test_a_named_bulk_copy_needs_a_target_that_has_it() -> None:
    half = Operand("f16", "k")
    spec = GemmSpec(problem=Problem(a=half, b=half, c=Operand("f16", "n")))
    assert spec.needs == "sm_80"
    copied = GemmSpec(problem=spec.problem, g2s=G2s(a=G2sCopy(op="cp.async.bulk.tensor")))
    assert copied.needs == "sm_90"
