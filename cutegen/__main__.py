"""`cutegen`, and `python -m cutegen`: the command line, or why there is none."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the command line; if its dependencies are not installed, say so and return 3."""
    _open_closed_streams()
    try:
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
    return command_line()


def _open_closed_streams() -> None:
    """Send output to a stream that the caller closed (`>&-`) nowhere: Python sets it to None.

    It runs first, so that the streams get their own numbers and no file that is opened later is taken for a stream.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends


if __name__ == "__main__":
    sys.exit(main())
