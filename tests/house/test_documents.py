"""Prose names only what exists: commands, make targets, paths, modules, versions."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from cutegen.cli.main import with_verbs
from cutegen.cli.verbs import VERBS
from tests.house.documents import DOCUMENTS, ROOT, commands, fences, inline_code

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = ("benchmarks", "cutegen", "docs", "examples", "layouts", "scripts", "templates", "tests", ".ci")

INCOMPLETE = re.compile("Missing argument|requires an argument")  # prose may name a verb without its arguments

by_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@cache
def command_line() -> Any:
    return typer.main.get_command(with_verbs(VERBS))


def complaint(command: str) -> str:
    """What the command line says against `command`, which is parsed and not run; empty when it is fine."""
    words = [word for word in shlex.split(command)[1:] if word != "--verbose"]
    parser = command_line()
    while words and (verbs := getattr(parser, "commands", {})) and not words[0].startswith("-"):
        if words[0] not in verbs and "measure" in verbs:  # of `cutegen tune SPEC`
            words.insert(0, "measure")
        if words[0] not in verbs:
            return f"no verb {words[0]}"
        parser = verbs[words.pop(0)]
    try:
        parser.make_context("cutegen", words)
    except typer.Exit:  # --help
        return ""
    except typer.TyperException as error:
        said = str(error.format_message())
        return "" if INCOMPLETE.search(said) else said
    return ""


@by_document
def test_every_command_parses(document: Path) -> None:
    complaints = {command: complaint(command) for command in commands(document, "cutegen")}
    assert {command: said for command, said in complaints.items() if said} == {}


@by_document
def test_every_module_that_is_run_has_its_options(document: Path) -> None:
    for name, words in re.findall(r"python -m ([\w.]+)([^`\n#;]*)", document.read_text()):
        module = ROOT / name.replace(".", "/")
        source = module.with_suffix(".py") if module.with_suffix(".py").exists() else module / "__main__.py"
        taken = set(re.findall(r'"(--[\w-]+)"', source.read_text()))
        assert set(re.findall(r"--[\w-]+", words)) <= taken, name


@pytest.mark.parametrize("command", ["cutegen plan x --nope", "cutegen show x nope", "cutegen nope"])
def test_a_command_that_does_not_exist_is_noticed(command: str) -> None:
    assert "nope" in complaint(command)


def test_every_verb_is_in_the_readme() -> None:
    shown = {shlex.split(command)[1] for command in commands(ROOT / "README.md", "cutegen") if " " in command}
    assert set(VERBS) <= shown


@by_document
def test_every_make_target_exists(document: Path) -> None:
    named = {shlex.split(command)[1] for command in commands(document, "make")}
    assert named <= TARGETS


def test_ci_calls_targets_that_exist() -> None:
    called = set(re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert called
    assert called <= TARGETS


def test_the_targets_explain_themselves() -> None:
    explained = set(re.findall(r"^([a-z][a-z-]*):.* ## ", MAKEFILE, re.MULTILINE))
    assert explained == TARGETS
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert {line.split()[1] for line in shown.splitlines()} == TARGETS


@by_document
def test_every_path_and_link_exists(document: Path) -> None:
    links = [
        (document.parent, link.split("#")[0])
        for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text())
        if "://" not in link
    ]
    paths = [
        (ROOT, text)
        for text in inline_code(document)
        if re.fullmatch(r"[\w./-]+", text) and text.split("/")[0] in FOLDERS
    ]
    assert [name for base, name in (*links, *paths) if name and not (base / name).exists()] == []


def anchors(document: Path) -> set[str]:
    """Return what links to the headings of `document` end in, by GitHub's rule."""
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@by_document
def test_every_anchor_exists(document: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", document.read_text())
    inside = [(document.parent / file if file else document, anchor) for file, anchor in links if "://" not in file]
    assert [f"{file}#{anchor}" for file, anchor in inside if anchor not in anchors(file)] == []


def test_a_heading_has_its_anchor(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Family `sm90`: wgmma\n\n```console\n# no heading\n```\n\n## Why not?\n")
    assert anchors(page) == {"family-sm90-wgmma", "why-not"}


def test_every_documented_name_can_be_imported() -> None:
    import cutegen

    for document in DOCUMENTS:
        names = {name for text in inline_code(document) for name in re.findall(r"\bcutegen\.(\w+)", text)}
        missing = [n for n in names if not hasattr(cutegen, n) and not list(ROOT.glob(f"cutegen/{n}*"))]
        assert missing == [], document


def test_every_benchmark_is_listed() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    assert "cost.py" in scripts
    assert {name for name in scripts if f"| `{name}` |" not in text} == set()


def test_versions_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[([^\]]+)\]", changelog, re.MULTILINE)
    assert PYPROJECT["project"]["version"] == next(version for version in released if version != "Unreleased")


def test_constraints_satisfy_the_project_file() -> None:
    from packaging.requirements import Requirement

    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = [Requirement(x) for x in [*PYPROJECT["project"]["dependencies"], *extras["torch"], *extras["dev"]]]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines
    for pinned in map(Requirement, lines):
        (version,) = (specifier.version for specifier in pinned.specifier)
        (asked,) = (requirement for requirement in wanted if requirement.name == pinned.name)
        assert asked.specifier.contains(version), pinned


@by_document
def test_fences_say_what_they_are(document: Path) -> None:
    assert [f"{f.document}:{f.line}" for f in fences(document) if not f.language] == []


def test_each_page_of_the_route_leads_to_the_next() -> None:
    docs = ROOT / "docs"
    opening = (docs / "README.md").read_text().split("One route:")[1].split(". ")[0]
    route = [(docs / target).resolve() for target in re.findall(r"\]\(([^)]+)\)", opening)]
    assert len(route) == 6
    for page, following in pairwise(route):
        ending = page.read_text().split("Next: ")[-1]
        (target,) = re.findall(r"\]\(([^)]+)\)", " ".join(ending.split()).split(").")[0] + ")")[:1]
        assert (page.parent / target).resolve() == following, page
