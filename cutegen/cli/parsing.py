"""Reads the words of every verb: an option that takes one value may be given once.

The parser would keep the last value and say nothing: a script that adds `--problem` to a line that has one would get
the answer to another question.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cutegen.cli.verbs import VERBS


class Verb(TyperCommand):
    """A command that refuses a second value for an option that keeps one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of one command. Raises TyperException."""
        if not ctx.resilient_parsing:  # a shell completes words that are not finished
            parsed: list[Any] = self.make_parser(ctx).parse_args(list(args))[2]
            for parameter, times in Counter(parsed).items():
                if times > 1 and keeps_one(parameter):
                    name = next(each for each in parameter.opts if each.startswith("--"))
                    if parameter.is_flag:
                        ctx.fail(f"{name}: found it or its opposite {times} times; expected one of them, once")
                    ctx.fail(f"{name}: found {times} values; expected one, {name} {parameter.metavar or 'VALUE'}")
        return super().parse_args(ctx, args)


class Listed(TyperGroup):
    """The list of all verbs with their summaries, in plain text: to draw boxes takes imports of a fifth of a second."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, VERBS[name].summary) for name in self.list_commands(ctx)])


class Verbs(typer.Typer):
    """Verbs, each a `Verb`."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as the verb `name`."""
        return super().command(name, **{"cls": Verb, **settings})


def keeps_one(parameter: Any) -> bool:
    """Tell whether a second value would replace the first; a flag without an opposite says the same twice."""
    if parameter.param_type_name != "option" or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)
