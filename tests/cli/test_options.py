"""Every option of every verb: one that keeps one value is refused if it is given twice, and numbers have bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from cutegen.cli.main import with_verbs
from cutegen.cli.verbs import VERBS
from tests.cli.commands import Cli

REPEATABLE = {
    ("bench", "--cutlass"),
    ("bench", "--problem"),
    ("build", "--problem"),
    ("pack", "--problem"),
    ("tune measure", "--problem"),
    ("check", "--arg"),
    ("run", "--arg"),
}
"""Options that keep every value."""


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Each command below one, with the words that call it."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, each in command.commands.items():
        yield from commands(each, f"{name} {word}".strip())


def options() -> Iterator[tuple[str, Any]]:
    for name, command in commands(typer.main.get_command(with_verbs(VERBS)), ""):
        yield from ((name, option) for option in command.params if option.param_type_name == "option")


def test_every_option_with_one_value_is_refused_if_it_is_given_twice(cli: Cli) -> None:
    refused, silent, kept = set(), set(), set()
    for name, option in options():
        word = next(each for each in option.opts if each.startswith("--"))
        if option.is_flag and not option.secondary_opts:  # the same twice
            continue
        if option.multiple:
            kept.add((name, word))
            continue
        again = [option.secondary_opts[0]] if option.is_flag else [word, "1"]
        once = [word] if option.is_flag else [word, "1"]
        said = cli(name, "subject", *once, *again)
        right = said.code == 2 and f"{word}: found" in said.err and "expected one" in said.err
        (refused if right else silent).add((name, word))
    assert silent == set()
    assert kept == REPEATABLE
    assert {name.split()[0] for name, _ in refused} == set(VERBS)
    assert len(refused) > 100


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "plan hgemm_tn --problem 64,64,64 --problem 4096,4096,4096",
            "--problem: found 2 values; expected one, --problem M,N,K; see cutegen plan --help",
        ),
        ("show hgemm_tn --arch=sm_80 --arch sm_90", "--arch: found 2 values; expected one, --arch ARCH"),
        ("emit hgemm_tn -o a.py --out b.py --output c.py", "--out: found 3 values; expected one, --out FILE"),
        ("build hgemm_tn --arch sm_80 --arch sm_90", "--arch: found 2 values; expected one, --arch ARCH[,ARCH...]"),
        ("compare a b --time --no-time", "--time: found it or its opposite 2 times; expected one of them, once"),
        ("tune hgemm_tn --seed 1 --seed 1", "--seed: found 2 values; expected one, --seed S; see cutegen tune"),
        ("cache info hgemm_tn --arch sm_80 --arch h100", "--arch: found 2 values; expected one"),
    ],
)
def test_the_refusal_names_the_option_and_its_one_value(words: str, error: str, cli: Cli) -> None:
    said = cli(words)
    assert said.code == 2
    assert said.error.startswith(error)


NUMBERS = ("IntParamType", "IntRange", "FloatParamType", "FloatRange")
CHECKED_ELSEWHERE = {
    ("show", "--thread"): "the plan has the number of threads",
    ("run", "--max-steps"): "it is a limit itself",
    ("probe", "--max-steps"): "it is a limit itself",
    ("check", "--max-steps"): "it is a limit itself",
    ("tune measure", "--stand-in"): "seconds of the tests' timer",
}


def test_every_number_has_an_upper_bound() -> None:
    free = {
        (name, option.opts[0])
        for name, option in options()
        if type(option.type).__name__ in NUMBERS and getattr(option.type, "max", None) is None
    }
    assert free == set(CHECKED_ELSEWHERE)


def test_a_flag_may_be_repeated(cli: Cli) -> None:
    assert cli("list --json --json").json == cli("list --json").json
