"""One test a table of measured kernels: what a choice costs beside the best of them is what the page says.

Each of the corrections that are fitted to a table is worth having on it. What choices gain on problems that were drawn
afterwards is in the page's other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.plan.pages import DOCS, words_of
from tests.plan.regrets import MAJORS, STUDIES
from tests.plan.study import PAGES, Patch, Study, rows_of
from tests.plan.worth import forget, rows_of_choices

DRAWN = [study for study in STUDIES if study.choices]
CONSTANTS = [(study, name, patch) for study in STUDIES for name, patch in study.constants.items()]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


def name_of(value: object) -> str:
    return value.name.replace("`", "") if isinstance(value, Study) else value if isinstance(value, str) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_has_its_tables_once(page: Path) -> None:
    assert list(rows_of(page)) == [study.name for study in STUDIES if study.page == page]


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=name_of)
def test_the_choice_costs_what_the_page_says(study: Study) -> None:
    assert study.row() == rows_of(study.page)[study.name], f"python -m tests.plan.regrets {study.file} writes the row"


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
    page = words_of(str(study.page.relative_to(DOCS)))
    assert all(row in page for row in rows_of_choices(choices))
    assert not (study.are_others and {text.partition(": ")[2] for text in choices} & problems_of(study))
    if not study.part:
        shares = {text: since / before for text, (before, since, *_) in choices.items()}
        worst = max(shares, key=shares.__getitem__)
        kind, _, shape = worst.partition(": ")
        said = rf"{shares[worst]:.2f} (?:at worst )?\({shape.replace('x', ' x ')}"
        assert re.search(said, page), (kind, said)


def problems_of(study: Study) -> set[str]:
    us: Mapping[str, object] = study.table.get("us") or study.table["orders"]
    by_majors = [rows for name, rows in us.items() if isinstance(rows, dict) and name in MAJORS]
    return set().union(*by_majors) or set(us)
