"""The page of a thread-value layout: every element has its holders, and one thread is followed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.commands import Cli

LAYOUT = "((4,8),(2,2)):((32,1),(16,8))"
"""Sums of an m16n8 MMA: thread t has rows t/4 and t/4 + 8, columns 2(t mod 4) and the next."""


def test_each_element_names_its_thread_and_value(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "tv.html"
    assert cli("show", "--layout", LAYOUT, "--tv", "16,8", "--thread", "5", "--out", str(out)).code == 0
    text = out.read_text()
    rows = re.findall(r"<tr><th scope=row>(\d+)</th>(.*?)</tr>", text)
    assert [int(row) for row, _ in rows] == [*range(16)]
    for row, cells in rows:
        held = [tuple(map(int, pair)) for pair in re.findall(r'data-of="(\d+):(\d+)"', cells)]
        expected = [(4 * (int(row) % 8) + n // 2, n % 2 + 2 * (int(row) // 8)) for n in range(8)]
        assert held == expected
    assert 'max="31" value="5"' in text
    assert "http" not in re.sub(r"Content-Security-Policy|http-equiv", "", text), "the page asks for nothing"


def test_elements_of_several_threads_name_all_and_of_none_stay_empty(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "tv.html"
    assert cli("show", "--layout", "(4,2):(0,1)", "--tv", "1,3", "--out", str(out)).code == 0
    text = out.read_text()
    assert 'data-of="0:0 1:0 2:0 3:0"' in text
    assert "T0 V0 +3" in text
    assert text.count("<td></td>") == 1


@pytest.mark.parametrize(("thread", "code"), [("31", 0), ("32", 2)])
def test_a_thread_of_the_layout_is_asked_for(thread: str, code: int, cli: Cli, tmp_path: Path) -> None:
    outcome = cli("show", "--layout", LAYOUT, "--tv", "16,8", "--thread", thread, "--out", str(tmp_path / "x.html"))
    assert outcome.code == code
