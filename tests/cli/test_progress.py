"""The progress of long jobs: a bar on a terminal, lines now and then in a pipe, nothing of short ones."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from rich.console import Console

from cutegen.cli import progress as room
from cutegen.cli.main import main


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


def test_check_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(room, "SILENT_S", 0.0)
    (tmp_path / "a.ptx").write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{ ret; }\n"
    )
    assert main(["check", str(tmp_path / "a.ptx"), "--grid", "2", "--policies", "3"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in said] == [f"cutegen: {done} of 6 CTAs" for done in range(1, 7)]
    assert all("s left" in line for line in said)


def test_a_warning_is_told_once_in_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        main(["list"])
        for text in ("a: damaged", "b: damaged", "a: damaged"):
            logging.getLogger("cutegen.tune").warning("%s", text)
        assert capsys.readouterr().err.splitlines() == ["cutegen: warning: a: damaged", "cutegen: warning: b: damaged"]


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
