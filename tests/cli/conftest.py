"""The command line as tests call it, and expected texts in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutegen.cli import progress
from cutegen.cli.main import main
from tests.cli.commands import Cli, Golden, Outcome

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Call the command line with words; a quoted sentence is split at its blanks.

    It says nothing of its progress, as on a machine that has nothing else to do.
    """
    monkeypatch.setattr(progress, "SILENT_S", 3600.0)

    def call(sentence: str, *more: str) -> Outcome:
        capsys.readouterr()
        code = main([*sentence.split(), *more])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of the test's own."""
    monkeypatch.setenv("CUTEGEN_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the file of that name; with --update-golden write the file instead."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.exists(), f"{path} is missing; look at the output and run pytest --update-golden"
        assert text == path.read_text()

    return compare
