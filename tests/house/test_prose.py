"""Docstrings say what a function does or returns, and what a value is. No word stands twice.

None opens with a question word or with "Of". "Return ..." is said of functions that return a value: not of constants,
fields, classes and properties, which are values themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import pytest

from tests.house.documents import DOCUMENTS, ROOT

QUESTIONS = frozenset(
    ["What", "Whether", "Which", "Who", "How", "Why", "Where", "When", "Of", "By", "In", "For", "With"]
)
"""Words that leave the reader without a subject: "What a launch needs" names neither a value nor an action."""

SOURCES = sorted((ROOT / "cutegen").rglob("*.py"))
PHRASES = ("In words", "In place", "In order")
ASKED = re.compile(r"[^.:]*\?")
TWICE = re.compile(r"\b([a-z]{2,}) \1\b")


parsed = lru_cache(maxsize=None)(ast.parse)  # every file is read by several tests


def docstrings(text: str) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def values(text: str) -> Iterator[str]:
    """Yield what is said of values: constants, fields, classes and properties."""
    for node in ast.walk(parsed(text)):
        body = getattr(node, "body", None)
        for before, after in pairwise(body if isinstance(body, list) else []):
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                said = after.value
                if isinstance(said, ast.Constant) and isinstance(said.value, str):
                    yield said.value
        is_property = isinstance(node, ast.FunctionDef) and any(
            ast.unparse(decorator).endswith("property") for decorator in node.decorator_list
        )
        if is_property or isinstance(node, ast.ClassDef):
            yield ast.get_docstring(node) or ""


def returns(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True if a function returns or yields a value, or leaves that to those that replace its body."""
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    left = list(body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom) or (isinstance(node, ast.Return) and node.value is not None):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(node)
    return not body or isinstance(body[0], ast.Raise)


def misplaced_returns(text: str) -> list[str]:
    """List what promises a value in the wrong place: docstrings of values, and of functions without one."""
    functions = [one for one in ast.walk(parsed(text)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    without = [ast.get_docstring(one) or "" for one in functions if not returns(one)]
    return [one.splitlines()[0] for one in (*values(text), *without) if re.match(r"Returns?\b", one)]


def questions(text: str) -> list[str]:
    """List the docstrings that open with a question word, or ask."""
    said = [one for one in (*docstrings(text), *values(text)) if one and not one.startswith(PHRASES)]
    return [one.splitlines()[0] for one in said if re.split(r"\W", one)[0] in QUESTIONS or ASKED.match(one)]


def test_no_docstring_opens_with_a_question() -> None:
    found = {str(path.relative_to(ROOT)): questions(path.read_text()) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("opening", ["What it does.", "Whether it holds.", "Of a tile.", "Does it hold? Every one."])
def test_a_question_is_noticed(opening: str) -> None:
    assert questions(f'def f():\n    """{opening}"""\n') == [opening]


def test_only_functions_that_return_are_said_to() -> None:
    found = {str(path.relative_to(ROOT)): misplaced_returns(path.read_text()) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text",
    [
        'LIMIT = 3\n"""{}"""\n',
        'class Tile:\n    """{}"""\n',
        'class Tile:\n    rows: int\n    """{}"""\n',
        'class Tile:\n    @property\n    def rows(self):\n        """{}"""\n        return 1\n',
        'def write():\n    """{}"""\n    print(lambda: 1)\n',
        'def write():\n    """{}"""\n    def inner():\n        return 1\n    inner()\n    return\n',
    ],
)
def test_a_misplaced_return_is_noticed(text: str) -> None:
    assert misplaced_returns(text.format("Return the rows.")) == ["Return the rows."]
    assert misplaced_returns(text.format("The rows.")) == []


@pytest.mark.parametrize("body", ["return 1", "yield 1", "...", "raise NotImplementedError"])
def test_a_function_that_returns_may_say_so(body: str) -> None:
    assert misplaced_returns(f'def rows():\n    """Return the rows."""\n    {body}\n') == []


def test_no_word_stands_twice() -> None:
    prose = {path: re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.M) for path in DOCUMENTS}
    prose |= {path: "\n".join(docstrings(path.read_text())) for path in SOURCES}
    twice = {str(path.relative_to(ROOT)): TWICE.findall(text) for path, text in prose.items()}
    assert {path: words for path, words in twice.items() if words} == {}
    assert TWICE.search("the the")
