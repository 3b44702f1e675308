"""One test a table of measured kernels: what the choice costs beside the best of them is what the page says.

Each of the corrections that are fitted to a table is worth having on it. What choices gain on problems that were drawn
afterwards is in the page's other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest

from tests.plan.pages import words_of
from tests.plan.regrets import BLOCK, PAGE, STUDIES, Patch, Study
from tests.plan.worth import forget, rows_of_choices

DRAWN = [study for study in STUDIES if study.choices]
CONSTANTS = [(study, name, patch) for study in STUDIES for name, patch in study.constants.items()]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def name_of(value: object) -> str:
    return value.name.replace("`", "") if isinstance(value, Study) else value if isinstance(value, str) else ""


def rows_of_page() -> list[str]:
    found = BLOCK.search(PAGE.read_text())
    assert found is not None
    return found[0].splitlines()[3:-1]


def test_the_page_has_every_table_once() -> None:
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows_of_page()] == [study.name for study in STUDIES]


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=name_of)
def test_the_choice_costs_what_the_page_says(study: Study) -> None:
    assert study.row() in rows_of_page(), "python -m tests.plan.regrets writes the table"


@cache
def known_cost(study: str) -> float:
    """What choices cost as they are: seconds of work, which the tests of several constants want."""
    return next(each for each in STUDIES if each.name == study).cost()


@pytest.mark.slow
@pytest.mark.parametrize(("study", "constant", "patch"), CONSTANTS, ids=name_of)
def test_each_constant_is_worth_having(
    study: Study, constant: str, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = known_cost(study.name)
    patch(monkeypatch)
    assert study.cost() > known, constant


@pytest.mark.parametrize("study", DRAWN, ids=name_of)
def test_the_page_says_what_the_choice_gains_on_problems_drawn_apart(study: Study) -> None:
    choices: Mapping[str, Sequence[float]] = study.table[study.choices]
    page = words_of("lab/tile_model.md")
    assert all(row in page for row in rows_of_choices(choices))
    assert not (study.are_others and {text.partition(": ")[2] for text in choices} & problems_of(study))
    if not study.part:
        shares = {text: since / before for text, (before, since, *_) in choices.items()}
        worst = max(shares, key=shares.__getitem__)
        kind, _, shape = worst.partition(": ")
        said = rf"{shares[worst]:.2f} (?:at worst )?\({shape.replace('x', ' x ')}"
        assert re.search(said, page), (kind, said)


def problems_of(study: Study) -> set[str]:
    us: Mapping[str, object] = study.table["us"]
    by_majors = [rows for rows in us.values() if isinstance(rows, dict)]
    return set().union(*by_majors) or set(us)
