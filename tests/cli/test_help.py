"""The first things that a user types: --version and --help answer at once, and each verb's help says how to begin."""

from __future__ import annotations

import io
import re
import shlex
from importlib import import_module, metadata
from pathlib import Path

import pytest

import cutegen
from cutegen.cli.verbs import VERBS
from tests.cli.commands import Cli
from tests.cli.test_doors import loaded_after
from tests.house.documents import ROOT

BESIDE = ("numpy", "typer", "tensor_layouts", "rich.markdown", "rich.traceback", "pygments", "markdown_it")


def own_modules(*words: str) -> set[str]:
    found = loaded_after(f"import sys; sys.argv = ['cutegen', *{words}]; from cutegen.__main__ import main; main()")
    return {name for name in found if name.startswith("cutegen.") or name in BESIDE}


def test_the_version_needs_no_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert own_modules("--version") == {"cutegen.__main__"}
    assert cutegen.__version__ == metadata.version("cutegen")


def test_the_help_of_all_verbs_imports_none() -> None:
    parser = {"cutegen.cli", "cutegen.cli.main", "cutegen.cli.output", "cutegen.cli.parsing", "cutegen.cli.verbs"}
    width = {"cutegen.support", "cutegen.support.words", "cutegen.support.environment"}
    assert own_modules("--help") == {"cutegen.__main__", "cutegen.errors", "typer", *parser, *width}
    assert own_modules("nope") == own_modules("--help")


def test_verbs_come_in_the_order_of_the_readme(cli: Cli) -> None:
    rows = re.findall(r"^\| `cutegen (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    listed = re.findall(r"^  (\w+) {2,}\w", cli("--help").out.partition("Commands")[2], re.MULTILINE)
    assert list(VERBS) == rows == listed


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_an_example_and_its_page(verb: str, cli: Cli) -> None:
    about, said = VERBS[verb], " ".join(cli(f"{verb} --help").out.split())
    assert about.epilog in said
    assert shlex.split(about.example)[:2] == ["cutegen", verb]
    assert (ROOT / about.page).is_file()
    module = import_module(f"cutegen.cli.{verb}")
    if not hasattr(module, "verbs"):
        docstring = getattr(module, verb).__doc__ or ""
        assert about.summary == " ".join(docstring.split("\n\n")[0].split())


@pytest.mark.parametrize("verb", ["plan", "show", "emit", "list", "doctor", "cache", "tune", "compare"])
def test_an_example_that_compiles_nothing_runs_or_says_what_the_machine_lacks(verb: str, cli: Cli) -> None:
    outcome = cli(*shlex.split(VERBS[verb].example)[1:])
    assert outcome.code in (0, 3)
    assert outcome.code == 0 or "GPU" in outcome.error


@pytest.mark.parametrize("verb", ["build", "run", "report", "probe", "pack"])
def test_an_example_that_compiles_is_refused_for_nothing_but_its_spec(verb: str, cli: Cli) -> None:
    words = shlex.split(VERBS[verb].example)[1:]
    refused = cli(words[0], "nope", *words[2:])
    assert refused.code == 2
    assert refused.error.startswith('found "nope", which is not a shipped spec')


def test_a_spec_comes_from_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "layouts" / "sm80_hgemm_tn.toml"
    of_file = cli(f"plan {path} --arch sm_80").out
    monkeypatch.setattr("sys.stdin", io.StringIO(path.read_text()))
    of_stdin = cli("plan - --arch sm_80").out
    assert of_stdin == of_file.replace("sm80_hgemm_tn for", "stdin for", 1)
    assert cli("plan -").error.startswith("-: found nothing on stdin")


def test_json_is_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('{"problem": {}}')
    assert cli(f"plan {path}").error.startswith(f"{path}: found JSON; expected TOML")
