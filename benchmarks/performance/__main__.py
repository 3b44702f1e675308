"""Measures, and writes the tables of docs/performance.md and README.md.

    python -m benchmarks.performance --cutlass FILE                     both, where there is a GPU, torch and nvcc
    python -m benchmarks.performance measure OUT.json --cutlass FILE    the first half; nothing else is written
    python -m benchmarks.performance write OUT.json                     the second half, anywhere

FILE is tensorop_gemm.py of CUTLASS's Ampere examples of the CuTe DSL. The figures are kept in performance.json beside
docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.performance import documents
from benchmarks.performance.figures import dumped, loaded
from benchmarks.performance.measure import measure
from cutegen.errors import CutegenError


def main(words: list[str] | None = None) -> int:
    """0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("verb", nargs="?", choices=("measure", "write"), help="one half alone (default: both)")
    parser.add_argument(
        "figures", nargs="?", type=Path, default=documents.FIGURES, help="default: performance.json in docs"
    )
    parser.add_argument(
        "--cutlass", type=Path, metavar="FILE", help="tensorop_gemm.py; its columns stay out without it"
    )
    arguments = parser.parse_args(words)
    try:
        if arguments.verb != "write":
            arguments.figures.write_text(dumped(measure(arguments.cutlass)), encoding="utf-8")
        if arguments.verb != "measure":
            figures = loaded(arguments.figures.read_text(encoding="utf-8"))
            documents.FIGURES.write_text(dumped(figures), encoding="utf-8")
            documents.write(figures)
    except (CutegenError, OSError) as error:
        print(f"benchmarks.performance: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
