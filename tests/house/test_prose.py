"""Docstrings say what a thing does or returns: none opens with a question word or with "Of". No word stands twice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.documents import DOCUMENTS, ROOT

QUESTIONS = frozenset(
    ["What", "Whether", "Which", "Who", "How", "Why", "Where", "When", "Of", "By", "In", "For", "With"]
)
"""Words that leave the reader without a subject: "What a launch needs" names neither a value nor an action."""

PHRASES = ("In words", "In place", "In order")
ASKED = re.compile(r"[^.:]*\?")
TWICE = re.compile(r"\b([a-z]{2,}) \1\b")


def docstrings(text: str) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def questions(text: str) -> list[str]:
    """List the docstrings that open with a question word, or ask."""
    said = [one for one in docstrings(text) if one and not one.startswith(PHRASES)]
    return [one.splitlines()[0] for one in said if re.split(r"\W", one)[0] in QUESTIONS or ASKED.match(one)]


def test_no_docstring_opens_with_a_question() -> None:
    found = {str(path.relative_to(ROOT)): questions(path.read_text()) for path in (ROOT / "cutegen").rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("opening", ["What it does.", "Whether it holds.", "Of a tile.", "Does it hold? Every one."])
def test_a_question_is_noticed(opening: str) -> None:
    assert questions(f'def f():\n    """{opening}"""\n') == [opening]


def test_no_word_stands_twice() -> None:
    prose = {path: re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.M) for path in DOCUMENTS}
    prose |= {path: "\n".join(docstrings(path.read_text())) for path in (ROOT / "cutegen").rglob("*.py")}
    twice = {str(path.relative_to(ROOT)): TWICE.findall(text) for path, text in prose.items()}
    assert {path: words for path, words in twice.items() if words} == {}
    assert TWICE.search("the the")
