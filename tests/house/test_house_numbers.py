"""scripts/house_numbers.py counts what it says it counts, and this checkout's counts stay where they are."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.house.documents import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "house_numbers.py"))
Module = SCRIPT["Module"]
KINDS_OF = {"VectorCopy": "copies.py", "LdmatrixAtom": "atoms.py", "Kernel": "kernel.py"}


@cache
def modules() -> list[Any]:
    found: list[Any] = SCRIPT["modules"](ROOT)
    return found


def signs(count: str, text: str, path: str = "elsewhere.py") -> int:
    module = Module(path, ast.parse(text), 1)
    return len(list(SCRIPT[count](module, KINDS_OF) if count == "kind_switches" else SCRIPT[count](module)))


@pytest.mark.parametrize(
    ("count", "text", "found"),
    [
        ("kind_switches", "isinstance(x, VectorCopy)", 1),
        ("kind_switches", "isinstance(x.s2r.atom, arch.LdmatrixAtom | VectorCopy)", 1),
        ("kind_switches", "isinstance(x, (int, VectorCopy)) and isinstance(y, LdmatrixAtom)", 2),
        ("kind_switches", "isinstance(x, Kernel) or issubclass(VectorCopy, Kernel)", 0),
        ("kind_switches", "match x:\n    case VectorCopy(bits=8) | LdmatrixAtom():\n        pass", 2),
        ("loop_signs", "plan.stages - 1", 1),
        ("loop_signs", 'plan["stages"] - 1 + Fraction(1, plan.mma.k_blocks)', 2),
        ("loop_signs", "EDGE_LOOPS = 2", 1),
        ("loop_signs", "(plan.stages + 1) * k, tiles - 1, Fraction(1, 2)", 0),
        ("operand_pairs", 'for x in "ab":\n    pass', 1),
        ("operand_pairs", '[x for x in "AB"], zip("ab", tile), "AB".index(x), x in ("a", "b")', 4),
        ("operand_pairs", 'plan.operand("a"), zip(OPERANDS, tile), ("a", "c"), "mnk".index(x)', 0),
        ("positional_tensors", "contract.tensors[2], contract.tensors[:3], call.tensors[-1]", 3),
        ("positional_tensors", "contract.call_tensors()[RESULT]", 1),
        ("family_names", 'x == "sm90" or f\'family = "{y}", sm80 or "simt"\'', 2),
        ("family_names", '"sm_90", "sm80_hgemm_tn", "hopper"', 0),
        ("family_names", 'def f():\n    """The family sm90."""', 0),
        ("positional_tensors", 'tensors["a"], tensors[each.name], tensors[name], layouts[2]', 0),
    ],
)
def test_each_sign_is_counted(count: str, text: str, found: int) -> None:
    assert signs(count, text) == found


def test_a_constant_that_is_a_name_is_no_position() -> None:
    contract = Module("contract.py", ast.parse('RESULT = "c"\nFIRST = 0\n'), 2)
    texts = SCRIPT["text_constants"]([contract])
    use = Module("use.py", ast.parse("tensors[RESULT], tensors[FIRST], tensors[LAST]"), 1)
    assert texts == {"RESULT"}
    assert len(list(SCRIPT["positional_tensors"](use, texts))) == 2


def test_families_are_named_in_their_files() -> None:
    assert signs("family_names", 'name = "sm90"', path="cutegen/plan/families.py") == 0
    assert signs("family_names", 'name = "sm90"', path="cutegen/plan/parts.py") == 1


def test_every_branch_of_a_template_is_counted() -> None:
    text = "{% if a %}{{ 1 if b else 2 }}{% elif c %}{% for x in y if x %}{% endfor %}{% else %}{% endif %}"
    assert SCRIPT["template_branches"](text) == 4
    assert SCRIPT["template_branches"]("{% for x in y %}{{ x }}{% endfor %}") == 0


def test_no_template_has_a_branch_not_even_a_condition_of_a_loop() -> None:
    assert SCRIPT["branches"](ROOT) == {}


def test_imports_are_counted_by_line() -> None:
    text = "import ast\nfrom x import (\n    y,\n    z,\n)\n\ny(z)\n"
    assert SCRIPT["import_lines"](Module("x.py", ast.parse(text), 7)) == 5


def test_a_module_may_ask_for_its_own_classes() -> None:
    assert signs("kind_switches", "isinstance(x, VectorCopy)", path="copies.py") == 0
    assert signs("kind_switches", "isinstance(x, VectorCopy)", path="other.py") == 1


def test_no_module_asks_which_kind_of_atom_or_copy_it_has() -> None:
    found = modules()
    defining = SCRIPT["classes"](found)
    assert {"VectorCopy", "BulkTensorCopy", "LdmatrixAtom", "LdmatrixLoads"} <= defining.keys()
    assert SCRIPT["by_module"](found, lambda module: SCRIPT["kind_switches"](module, defining)) == {}


def test_nothing_iterates_over_a_literal_pair_of_operands() -> None:
    """But for the two sides of a tile order's grid, and the roles of the tensors that a launch multiplies."""
    counts = SCRIPT["by_module"](modules(), SCRIPT["operand_pairs"])
    assert counts == {"cutegen/contract/launch.py": 1}


def test_families_are_named_only_where_they_are_composed() -> None:
    assert SCRIPT["by_module"](modules(), SCRIPT["family_names"]) == {}


def test_the_main_loop_is_described_once() -> None:
    """The models of time hide a fetch behind `stages - 1` k-tiles, which is physics, measured, and no instruction.

    Tuning tries a stage less.
    """
    counts = SCRIPT["by_module"](modules(), SCRIPT["loop_signs"])
    models_of_time = {f"cutegen/plan/search/{name}.py" for name in ("tile_model", "warpgroup_model")}
    assert counts.keys() == {
        "cutegen/plan/kernel/program.py",
        "cutegen/plan/mainloop/programs.py",
        "cutegen/tune/space.py",
        *models_of_time,
    }


DEFERRED = "from __future__ import annotations\n\n"
UNCHECKED = {"cutegen/bench/triton_gemm.py", "cutegen/operators/provider.py"}
"""Modules of libraries that the development environment does not have."""


def undefined_where_evaluated(texts: dict[str, str], folder: Path) -> set[str]:
    """Return the modules whose annotations, if they are evaluated, name what is defined later or only for types."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace(DEFERRED, "", 1))
    select = ("--isolated", "--target-version=py311", "--select=F821,TC004", "--output-format=json")
    command = (sys.executable, "-m", "ruff", "check", *select, ".")
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return {str(Path(each["filename"]).relative_to(folder.resolve())) for each in json.loads(found.stdout)}


def test_annotations_are_deferred_only_where_one_names_what_is_not_defined_yet(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "cutegen").rglob("*.py")}
    deferred = {path: text for path, text in texts.items() if DEFERRED in text and path not in UNCHECKED}
    planted = "/".join(("cutegen", "planted.py"))  # a path that is named must exist
    texts = {**deferred, planted: DEFERRED + "def one(x: int) -> int: ...\n"}
    assert texts.keys() - undefined_where_evaluated(texts, tmp_path) == {planted}
