"""Commands that documents show are run, and what they print is compared."""

from __future__ import annotations

import contextlib
import io
import re
import shlex

import pytest

from cutegen.cli.main import main
from tests.house.documents import Fence, Transcript


def replay(transcript: Transcript) -> int:
    """Run a command of cutegen's, and count it; others (git, make, pip) have tests of their own."""
    if shlex.split(transcript.command)[0] != "cutegen":
        return 0
    compare(f"{transcript.address}: {transcript.command}", transcript.output, printed(transcript.command))
    return 1


def printed(command: str) -> str:
    """What a command of cutegen's says, on stdout and stderr, without the progress that a busy machine sees.

    Pages leave out which file was written, too: its bytes change with each line of a kernel.
    """
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        main(shlex.split(command)[1:])
    told = r"^cutegen: (wrote: .*|[\d,]+ of [\d,]+ .*, [\d,]+ s.*)\n"
    return re.sub(told, "", out.getvalue(), flags=re.MULTILINE)


def execute(fence: Fence, namespace: dict[str, object]) -> str:
    """What a block of Python prints."""
    code = compile("\n" * (fence.line - 1) + fence.text, fence.document, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, namespace)
    return out.getvalue()


def compare(address: str, expected: str, found: str) -> None:
    """Equal but for blanks at the ends of lines; `...` stands for any lines, and within a line for any text."""
    if not re.fullmatch(_pattern(expected), _without_trailing_blanks(found)):
        pytest.fail(f"{address}\n--- the document says\n{expected}\n--- it printed\n{found}", pytrace=False)


def _pattern(expected: str) -> str:
    lines = _without_trailing_blanks(expected).splitlines()
    return "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + r"\n" for line in lines
    )


def _without_trailing_blanks(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip().splitlines())
