"""The numbers that a test draws follow from the run's seed and the test's name: no test draws any other."""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.house.documents import ROOT
from tests.seeding import new_generator, seed_all, states_kept

SEEDED_BY_ARGUMENTS = {"default_rng", "Generator", "PCG64", "Random", "RandomState", "SeedSequence", "SystemRandom"}
"""Classes and functions that take fresh entropy of the system where they are given nothing."""
FROM_NOTHING = re.compile(rf"\b({'|'.join(SEEDED_BY_ARGUMENTS)})\(\)")
WITH_ENTROPY = {"tests/conftest.py": ["SystemRandom"]}
"""The seed of a run is drawn there."""
DRAWING = """
import json
import random
import numpy as np
import pytest
from hypothesis import given, settings, strategies
from tests.seeding import new_generator

def draw(name):
    drawn = [random.random(), np.random.random(), new_generator().random()]
    print(json.dumps({name: drawn}))

@pytest.fixture(scope="module")
def shared():
    draw("fixture")

@pytest.mark.parametrize("case", "ab")
def test_with_what_is_shared(case, shared):
    draw(f"test {case}")

def test_alone():
    draw("alone")

examples = []

@settings(database=None, max_examples=30)
@given(strategies.integers())
def test_property(number):
    examples.append(number)

def test_examples():
    print(json.dumps({"property": examples}))
"""
"""Hypothesis favours small numbers and edges: one example may be the same with two seeds, thirty are not."""


def drawn(path: Path, *words: str) -> dict[str, object]:
    """What the tests of the file print in a run of their own."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-s", "-q", *words]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: dict[str, object] = {}
    for line in said.splitlines():
        if (at := line.find("{")) >= 0:
            found |= json.loads(line[at : line.rindex("}") + 1])
    assert path.exists()
    return found


@pytest.mark.slow
def test_a_test_draws_the_same_in_any_order_and_other_numbers_with_another_seed(tmp_path: Path) -> None:
    path = tmp_path / "test_drawing.py"
    path.write_text(DRAWING)
    whole = drawn(path, "--seed", "7", str(path))
    assert whole.keys() == {"fixture", "test a", "test b", "alone", "property"}
    assert len({repr(value) for value in whole.values()}) == len(whole)
    part = drawn(path, "--seed", "7", f"{path}::test_alone", f"{path}::test_with_what_is_shared[b]")
    assert part == {name: whole[name] for name in ("fixture", "test b", "alone")}
    other = drawn(path, "--seed", "8", str(path))
    assert all(other[name] != whole[name] for name in whole)
    again = [drawn(path, str(path)) for _ in range(2)]  # the seed of the commit
    assert again[0] == again[1]


def test_every_generator_is_seeded_and_may_be_kept_as_it_is() -> None:
    torch = pytest.importorskip("torch")

    def draws() -> list[float]:
        return [random.random(), np.random.random(), new_generator().random(), torch.rand(()).item()]  # noqa: NPY002

    seed_all(3)
    first, second = draws(), draws()
    seed_all(3)
    assert draws() == first
    with states_kept():
        assert draws() == second
    assert draws() == second
    seed_all(4)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def unseeded(text: str) -> Iterator[str]:
    """The generators that a module makes from nothing."""
    if not FROM_NOTHING.search(text):  # spares most modules the parser
        return
    tree = ast.parse(text)
    seeded_later = {
        node.func.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "manual_seed"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node not in seeded_later and not (node.args or node.keywords):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in SEEDED_BY_ARGUMENTS:
                yield name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("np.random.default_rng(), Random(), torch.Generator()", ["default_rng", "Random", "Generator"]),
        ("np.random.default_rng(5), Random(name), torch.Generator().manual_seed(1), new_generator()", []),
    ],
)
def test_generators_made_from_nothing_are_found(text: str, found: list[str]) -> None:
    assert list(unseeded(text)) == found


def test_no_test_makes_a_generator_from_nothing() -> None:
    modules = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    assert {path: found for path, text in modules.items() if (found := list(unseeded(text)))} == WITH_ENTROPY
