"""A measured figure says where it comes from: the GPU or host, the date, and the command or the file of its data.

A section says so itself or leaves it to the opening of its page. Blocks that a script writes have their data in a file,
and code blocks are replayed or listed. In the code, a figure's page or data file is named in its module.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.house.documents import DOCUMENTS, ROOT

MEASURED = re.compile(
    r"(?<![\w.x])\d[\d.,]*\s(?:us|ns|ms|s|TFLOP/s|TB/s|GB/s|W|J)\b(?! *x)"  # `64 x 16 s` is no time
    r"|\d[\d.]*\s?%(?!\w)|\d+\.\d+ times|\b\d+\.\d+x\b"
)
WRITTEN = re.compile(r"<!-- \w+: [\w ./-]+ -->.*?<!-- end -->|^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
SOURCES = {
    "machine": re.compile(r"\b(?:[AHB][12]00s?|RTX|CPU|cores?|host)\b"),
    "date": re.compile(r"\b20\d\d-\d\d-\d\d\b"),
    "command or data": re.compile(
        r"`[^`]*(?:python |cutegen |make |ncu|\.sh|\.py|\.json)[^`]*`|\]\([^)]*\.(?:json|py)\)|^\$ |not kept",
        re.MULTILINE,
    ),
}
GIVEN = {"docs/testing.md", "docs/tuning.md", "layouts/README.md"}
"""Pages on rules, with limits and thresholds beside what was measured: sections with a machine are looked at."""

CODE = re.compile(r"docs/[\w/]+\.md|tests/gpu/[\w.]+|tests\.gpu\.\w+|white paper|data sheet|\b20\d\d-\d\d-\d\d\b")


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the heading of every section, and its text behind the opening of the page."""
    marks = [
        found.start() for found in re.finditer(r"^#+ ", WRITTEN.sub(lambda m: " " * len(m[0]), text), re.MULTILINE)
    ]
    if not marks:
        yield "", text
        return
    ends = [*marks[1:], len(text)]
    opening = text[: ends[0]]
    for begin, end in zip(marks, ends, strict=True):
        yield text[begin:end].splitlines()[0], opening + text[begin:end]


def lacking(text: str, *, with_machine: bool = False) -> list[tuple[str, str]]:
    """List headings of sections with measured figures, each with a source that is missing."""
    found = []
    for heading, section in sections(text):
        own = section[section.index(heading) :] if heading else section
        if not MEASURED.search(WRITTEN.sub("", own)) or (with_machine and not SOURCES["machine"].search(own)):
            continue
        found += [(heading, name) for name, pattern in SOURCES.items() if not pattern.search(section)]
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_measured_figures_name_machine_date_and_command(path: Path) -> None:
    assert lacking(path.read_text(), with_machine=str(path.relative_to(ROOT)) in GIVEN) == []


PAGE = "# A page\n\nOn an H200, 2026-11-20, by `cutegen bench`.\n\n## Speed\n\n{}\n"


@pytest.mark.parametrize("name", SOURCES)
def test_a_figure_without_a_source_is_noticed(name: str) -> None:
    removed = {"machine": "On an H200, ", "date": "2026-11-20, ", "command or data": "by `cutegen bench`"}
    text = PAGE.format("It takes 3.1 us.")
    assert lacking(text) == []
    assert ("## Speed", name) in lacking(text.replace(removed[name], ""))
    assert lacking(PAGE.format("A tile of 64 x 16 values.").replace(removed[name], "")) == []


def prose(text: str) -> str:
    """Join the comments and docstrings of a module; examples are left out."""
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type != tokenize.NL]
    begins = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING)
    said = [one.string for one in tokens if one.type == tokenize.COMMENT]
    pairs = pairwise([tokens[-1], *tokens])  # the last token ends the module: a string after it begins one
    said += [
        one.string
        for before, one in pairs
        if one.type == tokenize.STRING and before.type in (*begins, tokenize.ENDMARKER)
    ]
    return re.sub(r"^ *>>> .*\n(?: +\S.*\n)?", "", "\n".join(said), flags=re.MULTILINE)


SPEED = re.compile(r"(?<![\w.])\d[\d.,]*\s(?:us|TFLOP/s|TB/s|GB/s)\b|\d[\d.]* %(?!\w)|\d+\.\d+ times as")


def unsourced(text: str) -> list[str]:
    """List the measured speeds in the prose of a module that names no page, data file or date for them."""
    if not SPEED.search(text):
        return []
    said = prose(text)
    return [] if CODE.search(said) else SPEED.findall(said)


def test_figures_in_the_code_have_a_page_or_a_file() -> None:
    found = {str(path.relative_to(ROOT)): unsourced(path.read_text()) for path in (ROOT / "cutegen").rglob("*.py")}
    assert {path: figures for path, figures in found.items() if figures} == {}


def test_a_figure_in_the_code_without_a_source_is_noticed() -> None:
    assert unsourced("# It takes 2 us.\n") == ["2 us"]
    assert unsourced('"""It takes 2 us (docs/performance.md)."""\n') == []
    assert unsourced('def f():\n    """Time.\n\n    >>> f()\n    2 us\n    """\n') == []
