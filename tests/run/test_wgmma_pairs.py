"""Any two settings of family sm90 together: every allowed pair of values in some kernel, executed against float64."""

from __future__ import annotations

import random
from itertools import combinations, product
from typing import Any

import pytest

from cutegen.build import Cache
from cutegen.errors import SpecError
from cutegen.plan import plan
from tests.run.covering import Row, Rule, connected, covering_rows, is_allowed, row_at, sliced
from tests.run.wgmma_settings import RULES, SETTINGS, case_of, spec_of
from tests.run.wgmma_trial import ARCH, try_case

ROWS = covering_rows(SETTINGS, RULES, seed=12)
QUICK = 2
MANY = 24
FEW = {"x": (1, 2, 3), "y": "ab", "z": (False, True), "w": (7, 8, 9)}
FEW_RULES = (
    Rule(("x", "z"), lambda x, z: x != 2 or z, ""),
    Rule(("y", "z"), lambda y, z: y == "a" or not z, ""),
    Rule(("w",), lambda w: w != 9, ""),
)
"""Together they refuse x = 2 beside y = "b", which no rule says alone."""


def named(row: Row) -> str:
    """What is not most usual of a row, in the name of its test."""
    usual = row_at(SETTINGS, 0)
    return "-".join(str(value).replace(" ", "") for name, value in row.items() if value != usual[name])


@pytest.mark.dsl
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{number}-{row['dtype']}", marks=[] if number < QUICK else pytest.mark.slow)
        for number, row in enumerate(ROWS)
    ],
)
def test_right_and_as_predicted(row: Row, kernels: Cache) -> None:
    """Planned, built, executed on a small problem: the result is right, and so is every count that is predicted."""
    print(named(row))
    try_case(case_of(row), kernels)


def test_every_allowed_pair_is_covered() -> None:
    """Which are allowed is found by trying all values of settings that rules connect: others go with anything."""
    possible: set[frozenset[tuple[str, Any]]] = set()
    groups = connected(RULES)
    for names in groups:
        for values in product(*(SETTINGS[name] for name in names)):
            row = dict(zip(names, values, strict=True))
            if is_allowed(row, RULES):
                possible |= {frozenset(pair) for pair in combinations(row.items(), 2)}
    together = {frozenset(pair) for names in groups for pair in combinations(names, 2)}
    values_of_all = [(name, value) for name, values in SETTINGS.items() for value in values]
    covered = {frozenset(pair) for row in ROWS for pair in combinations(row.items(), 2)}
    for one, other in combinations(values_of_all, 2):
        if one[0] != other[0]:
            allowed = frozenset((one, other)) in possible or frozenset((one[0], other[0])) not in together
            assert (frozenset((one, other)) in covered) == allowed, (one, other)


def all_allowed() -> list[Row]:
    """Of FEW, one by one."""
    rows = (dict(zip(FEW, values, strict=True)) for values in product(*FEW.values()))
    return [row for row in rows if is_allowed(row, FEW_RULES)]


@pytest.mark.parametrize("strength", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_rows_cover_what_rules_allow_and_nothing_else(strength: int, seed: int) -> None:
    rows = covering_rows(FEW, FEW_RULES, seed=seed, strength=strength)
    allowed = all_allowed()
    wanted, found = ({c for row in some for c in combinations(row.items(), strength)} for some in (allowed, rows))
    assert found == wanted
    assert len(rows) <= len(allowed)
    assert rows == covering_rows(FEW, FEW_RULES, seed=seed, strength=strength)


def test_slices_are_the_product_each_row_once() -> None:
    allowed = all_allowed()
    in_slices = [row for part in (1, 2, 3, 4, 5) for row in sliced(FEW, FEW_RULES, part, 5)]
    assert sorted(map(str, in_slices)) == sorted(map(str, allowed))
    assert all(len(list(sliced(FEW, FEW_RULES, part, 5))) < len(allowed) for part in (1, 2, 3, 4, 5))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(rule.of))
def test_what_a_rule_forbids_is_refused(rule: Rule) -> None:
    """Values that break this rule and no other, in an otherwise usual kernel."""
    usual, every = row_at(SETTINGS, 0), product(*(SETTINGS[name] for name in rule.of))
    rows = [{**usual, **dict(zip(rule.of, values, strict=True))} for values in every]
    broken = [row for row in rows if [each for each in RULES if each.broken_by(row)] == [rule]]
    assert broken
    for row in random.Random(0).sample(broken, min(len(broken), MANY)):
        with pytest.raises(SpecError):
            plan(spec_of(row), ARCH)
