"""The progress of long jobs: a bar on a terminal, lines now and then in a pipe, nothing of short ones."""

from __future__ import annotations

import pytest
from rich.console import Console

from cutegen.cli import progress as room


def test_on_a_terminal_progress_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(room, "Console", lambda **options: Console(force_terminal=True, width=100, **options))
    with room.progress() as told:
        told(3, 12)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3/12" in captured.err
    with room.rounds("ceilings", 7) as bar:
        bar.begin("64x64x64")
        bar.advance()
        bar.bar.refresh()
    shown = capsys.readouterr().err
    assert "64x64x64" in shown
    assert "1/7" in shown


def test_progress_in_a_pipe_is_a_line_with_the_total_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """A CTA a second: the first five seconds are silent, then a line each five."""
    now = [100.0]
    lines = room.Lines("CTAs", clock=lambda: now[0])
    for done in range(1, 13):
        now[0] += 1
        lines.tell(done, 1200)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "cutegen: 5 of 1,200 CTAs, 5 s, about 1,195 s left",
        "cutegen: 10 of 1,200 CTAs, 10 s, about 1,190 s left",
    ]


def test_a_short_job_says_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with room.progress() as told:
        told(3, 12)
    with room.rounds("ceilings", 3) as bar:
        bar.advance()
    assert capsys.readouterr() == ("", "")


def test_rounds_in_a_pipe_say_what_they_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "SILENT_S", 0.0)
    with room.rounds("ceilings", 3) as bar:
        bar.advance()
        bar.begin("64x64x64")
        bar.advance()
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" s")[0].rpartition(",")[0] for line in said] == [
        "cutegen: 1 of 3 rounds, at ceilings",
        "cutegen: 2 of 3 rounds, at 64x64x64",
    ]
