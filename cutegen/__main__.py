"""`cutegen`, and `python -m cutegen`: the command line, or why there is none."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line; where its packages are not installed, say so and answer 3."""
    _open_closed_streams()
    try:
        from cutegen.cli.main import main as command_line
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cutegen"):
            raise
        sys.stderr.write(
            f"cutegen: error: the command line needs {error.name}, which is not installed: this installation only runs "
            "kernels; pip install cutegen, with its dependencies, brings the rest\n"
        )
        return 3
    except KeyboardInterrupt:
        return 130  # as shells have it, before there is a command that could say more
    return command_line()


def _open_closed_streams() -> None:
    """Let what is written to a stream that the caller closed (`>&-`) go nowhere: Python has None in its place.

    First of all, so that they get their own numbers, and no file that is opened later is taken for a stream.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends


if __name__ == "__main__":
    sys.exit(main())
