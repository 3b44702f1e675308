"""`cutegen`, and `python -m cutegen`: the command line, or why there is none."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; where its packages are not installed, say so and answer 3."""
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
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
