"""layouts/README.md says what the loader does: every key, every value, every snippet, every name."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from cutegen.errors import SpecError
from cutegen.hardware import MMA_ATOMS, WGMMA_ATOMS, OperandSource
from cutegen.spec import OPS, STORE, GemmSpec, known_keys, load_spec, parse_spec, shipped_specs
from cutegen.spec.steps import FUNCTIONS, OPERANDS
from cutegen.support.resources import layouts_dir

README = (layouts_dir() / "README.md").read_text()
KEYS = dict(known_keys(GemmSpec))
MINIMAL = """
family = "sm80"
[problem]
a = { dtype = "f16", major = "k" }
b = { dtype = "f16", major = "k" }
c = { dtype = "f16", major = "n" }
"""


def documented() -> dict[str, list[str]]:
    """The rows of "Every key" by dotted key: value, meaning, left out."""
    section = README.split("## Every key")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {key: row[1:] for row in rows for key in unfolded(row[0].strip("`"))}


def unfolded(name: str) -> list[str]:
    """`smem.{a,b}.pad` stands for `smem.a.pad` and `smem.b.pad`."""
    pieces = [piece.split(",") for piece in re.split(r"[{}]", name)]
    return ["".join(choice) for choice in itertools.product(*pieces)]


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_every_known_key_is_documented_and_nothing_else() -> None:
    assert set(documented()) == set(KEYS)


@pytest.mark.parametrize("dotted", KEYS)
def test_a_key_is_documented_with_the_values_that_it_takes(dotted: str) -> None:
    value = documented()[dotted][0]
    names = re.findall(r'"([^"]+)"', KEYS[dotted].expected)
    if "list below" in value:
        assert all(f"`{name}`" in README or f'"{name}"' in value for name in names)
    else:
        assert value == KEYS[dotted].expected


@pytest.mark.parametrize("dotted", KEYS)
def test_a_key_is_documented_with_what_happens_without_it(dotted: str) -> None:
    _, meaning, left_out = documented()[dotted]
    assert meaning
    assert (left_out == "required") == KEYS[dotted].required


@pytest.mark.parametrize("key", ["tile.cta", *(f"schedule.{x}" for x in ("split_k", "consumers", "cluster", "swap"))])
def test_what_a_problem_settles_is_said(key: str) -> None:
    """The search for a problem fills these in (`cutegen/plan/search/problem.py`)."""
    assert "by `--problem`" in documented()[key][2]


@pytest.mark.parametrize("toml", snippets("toml")[:-1])
def test_an_example_loads(toml: str) -> None:
    parse_spec(toml if toml.startswith("family") else MINIMAL + toml)


def test_every_atom_of_a_warp_is_documented() -> None:
    assert all(f"`{name}`" in README for name in MMA_ATOMS)


def test_a_wgmma_of_every_ending_is_documented() -> None:
    """Each by an atom that there is; those with A in registers no spec may name."""
    named = set(re.findall(r"`(SM90_\w+_SS\w*)`", README))
    assert named <= WGMMA_ATOMS.keys()
    read = {name for name, atom in WGMMA_ATOMS.items() if atom.a_source is OperandSource.SMEM}
    assert {name.partition("_SS")[2] for name in named} == {name.partition("_SS")[2] for name in read}


def test_the_epilogues_ops_and_functions_are_documented() -> None:
    section = README.split("## What an epilogue can do")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (?:`([^`]+)`)?", section, flags=re.MULTILINE))
    assert {op: f"x -> {text}" if text else STORE for op, text in rows.items()} == dict(OPS)
    listed = section.split("- the functions ")[1].split(";")[0]
    assert re.findall(r"`(\w+)\(([x, y]+)\)`", listed) == [
        (name, "x" if function.arity == 1 else "x, y") for name, function in FUNCTIONS.items()
    ]
    assert all(f"`{name}`" in section for name in OPERANDS)


def test_every_table_has_an_example() -> None:
    shown = "\n".join(snippets("toml"))
    assert all(f"[{dotted}]" in shown for dotted, key in KEYS.items() if key.part and "." not in dotted)


def test_the_wrong_example_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(snippets("toml")[-1])
    (message,) = snippets("text")
    with pytest.raises(SpecError) as caught:
        load_spec("mine.toml")
    assert str(caught.value) == message.strip()


def test_the_shipped_specs_are_listed() -> None:
    section = README.split("Specs in this folder")[1].split("\n## ")[0]
    assert tuple(sorted(re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE))) == shipped_specs()


def test_the_table_of_majors_holds_for_the_specs_named_after_it() -> None:
    majors = {
        name: pair for name, *pair in re.findall(r'^\| `(\w\w)` \| `major = "(\w)"` \| `major = "(\w)"`', README, re.M)
    }
    assert majors == {"tn": ["k", "k"], "tt": ["k", "n"], "nn": ["m", "k"], "nt": ["m", "n"]}
    named = {name: suffix for name in shipped_specs() if (suffix := name.rpartition("_")[2]) in majors}
    assert "sm80_hgemm_tn" in named
    for name, suffix in named.items():
        problem = load_spec(name).problem
        assert majors[suffix] == [problem.a.major, problem.b.major]
