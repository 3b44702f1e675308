"""Entry point of the command line: runs the verb and turns every error into one line and an exit code."""

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Annotated

import typer

import cutegen
from cutegen.cli.output import complain
from cutegen.cli.parsing import Listed, Verbs
from cutegen.cli.verbs import VERBS
from cutegen.errors import CutegenError, OutsideError, SpecError
from cutegen.support.words import text_width

_OUT_OF = (errno.ENOSPC, errno.EDQUOT)
INTERRUPTED = 130  # as in shells: 128 + SIGINT
DEFECT = 70  # EX_SOFTWARE of sysexits.h: neither the request nor the environment is to blame


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit code: 0 success, 1 a check failed, 2 invalid request, 3 a failure outside cutegen.

    70 is a bug in cutegen, 130 an interrupt.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Parsed by hand: it may follow the verb, and the error may be that the words cannot be parsed.
    verbose = "--verbose" in words
    words = [word for word in words if word != "--verbose"] or ["--help"]
    logging.getLogger("cutegen").handlers[:] = [_Complain()]
    if isinstance(sys.stdout, io.TextIOWrapper):  # a description may hold characters that Latin-1 lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = int(application(_completed() or words)(words, prog_name="cutegen", standalone_mode=False) or 0)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        code, message = _verdict(error, words)
        if verbose or code == DEFECT:
            traceback.print_exception(error)
        complain("error", message)
        return code
    if code == INTERRUPTED and words[0] in VERBS and VERBS[words[0]].kept:  # typer's code for a Ctrl-C at work
        complain("interrupted", VERBS[words[0]].kept)
    return code


def _verdict(error: Exception, words: Sequence[str]) -> tuple[int, str]:
    match error:
        case SpecError():  # one line has no room for a mark under the text; it gives the character position
            return error.exit_code, str(error).removesuffix(error.place)
        case CutegenError():
            return error.exit_code, str(error)
        case typer.TyperException():
            context = getattr(error, "ctx", None)
            if context is None:  # an error of the parser itself
                verb = f"cutegen {words[0]}" if words[0] in VERBS else "cutegen"
            else:
                verb = context.command_path
            return error.exit_code, f"{error.format_message().rstrip('.')}; see {verb} --help"
        case MemoryError():
            return OutsideError.exit_code, f"out of memory: {error}; a smaller problem or smaller arrays need less"
        case OSError() if error.errno in _OUT_OF:
            way_out = "free some space where the output goes, or set TMPDIR if the temporary folder is full"
            return OutsideError.exit_code, f"{error}; {way_out}"
        case _:
            return DEFECT, f"{error!r}: this is a bug in cutegen; please report it with the traceback"


def _completed() -> list[str]:
    """Return the words that a shell asks to complete, which it passes in the environment; none in any other run."""
    return os.environ.get("COMP_WORDS", "").split()[1:] if "_CUTEGEN_COMPLETE" in os.environ else []


def application(words: Sequence[str]) -> typer.Typer:
    """Return the command line for `words`: with the verb that they begin with, or with the names of all.

    Only one verb is imported because `plan` would otherwise wait for everything that `run` imports; help and mistakes
    need none.
    """
    return with_verbs(words[:1] if words[0] in VERBS else ())


def with_verbs(imported: Collection[str]) -> typer.Typer:
    """Return the command line, whose verbs can be called if they are `imported`; help lists the others."""
    app = Verbs(
        name="cutegen",
        help="Write a layout spec, get a compiled tensor-core GEMM kernel, and see why it is correct.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "terminal_width": text_width()},
        cls=None if imported else Listed,
        rich_markup_mode="rich" if imported else None,
    )
    app.callback()(_options_of_all_verbs)
    for verb, about in VERBS.items():
        if verb not in imported:
            app.command(verb, help=about.summary)(_not_imported)
            continue
        module = import_module(f"cutegen.cli.{verb}")
        if hasattr(module, "verbs"):
            app.add_typer(module.verbs, name=verb, epilog=about.epilog)
        else:
            app.command(verb, epilog=about.epilog)(getattr(module, verb))
    return app


def _not_imported() -> None:
    """Stand for a verb in the list of all."""


def _say_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"cutegen {cutegen.__version__}\n")
        raise typer.Exit


def _options_of_all_verbs(
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Add the traceback to an error. May appear anywhere.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """`main` has already removed --verbose; the option is here for the help text."""


class _Complain(logging.Handler):
    """Handler that writes the library's warnings to stderr, in the style of errors, and each of them once."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._told:
            self._told.add(text)
            complain(record.levelname.lower(), text)
