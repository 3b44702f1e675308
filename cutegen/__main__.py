"""`cutegen`, and `python -m cutegen`: the command line, or why there is none."""

import io
import os
import signal
import sys
from typing import Any

import cutegen


def main() -> int:
    """Run the command line; if its dependencies are not installed, say so and return 3."""
    _prepare_streams()
    if sys.argv[1:] == ["--version"]:  # without the command line, whose import takes longer than the answer
        sys.stdout.write(f"cutegen {cutegen.__version__}\n")
        sys.stdout.flush()
        return 0
    try:
        from cutegen.cli.main import INTERRUPTED
        from cutegen.cli.main import main as command_line
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cutegen"):
            raise
        sys.stderr.write(
            f"cutegen: error: the command line needs {error.name}, which is not installed: this installation only runs "
            "kernels; pip install cutegen, with its dependencies, adds the rest\n"
        )
        return 3
    except KeyboardInterrupt:
        return 130  # as in shells, before a command can say more
    code = command_line()
    if code == INTERRUPTED:  # Python waits for threads with running compilers: another Ctrl-C ends it without traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def _prepare_streams() -> None:
    """Let a command finish and return its own exit code, whoever stops reading: `cutegen check FILE | head`.

    Output to a stream that the caller closed (`>&-`), which Python sets to None, goes nowhere. This runs first, so that
    the streams get their own numbers and no file that is opened later is taken for a stream.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        setattr(sys, name, open(os.devnull, "w") if stream is None else _outliving(stream))  # noqa: SIM115


def _outliving(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Unread(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Unread(io.FileIO):
    """File that accepts everything after its reader has closed the pipe."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


if __name__ == "__main__":
    sys.exit(main())
