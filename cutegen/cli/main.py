"""The command line's entry: hands the arguments to a verb, and turns every error into one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from cutegen.cli import cache
from cutegen.cli.build import build
from cutegen.cli.doctor import doctor
from cutegen.cli.emit import emit
from cutegen.cli.list import list_specs
from cutegen.cli.output import complain
from cutegen.cli.plan import plan
from cutegen.cli.run import run
from cutegen.cli.show.verb import show
from cutegen.errors import CutegenError

INTERRUPTED = 130

app = typer.Typer(
    name="cutegen",
    help="Write a layout spec, get a compiled tensor-core GEMM kernel, and see why it is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(list_specs)
for verb in (show, plan, emit, build, run):
    app.command()(verb)
app.add_typer(cache.app, name="cache")
app.command()(doctor)


@app.callback()
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the traceback to an error. May stand anywhere.")] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 fine, 1 a check failed, 2 the request is wrong, 3 something outside failed."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Looked for by hand: it may stand behind the verb, and the error may be that the words cannot be parsed.
    verbose = "--verbose" in words
    logging.getLogger("cutegen").handlers[:] = [_Complain()]
    try:
        code = app([word for word in words if word != "--verbose"], prog_name="cutegen", standalone_mode=False) or 0
        sys.stdout.flush()
        return int(code)
    except CutegenError as error:
        code, message = error.exit_code, str(error)
    except typer.TyperException as error:
        code, message = error.exit_code, f"{error.format_message()} (see cutegen --help)"
    except KeyboardInterrupt:
        code, message = INTERRUPTED, "interrupted"
    except BrokenPipeError:  # the reader has seen enough, as in `cutegen plan SPEC | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if verbose:
        traceback.print_exc()
    complain("error", message)
    return code


class _Complain(logging.Handler):
    """What the library logs as worth a person's attention goes to stderr, in the style of errors."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.levelname.lower(), record.getMessage())
