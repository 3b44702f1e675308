"""Measures, and writes the tables of docs/performance.md and README.md.

    python -m benchmarks.performance --cutlass FILE FILE                 all of it, where there is a GPU and torch
    python -m benchmarks.performance build --arch sm_90                  compiles the kernels, anywhere
    python -m benchmarks.performance measure OUT.json --cutlass FILE     the first half; nothing else is written
    python -m benchmarks.performance write OUT.json ...                  the second half, anywhere

FILEs are CUTLASS's examples of the CuTe DSL: dense_gemm_persistent.py of Hopper, tensorop_gemm.py of Ampere. The
figures are kept in performance.json beside docs/performance.md, those of an H100 in performance_h100.json beside its
page. Of several OUT.json of one machine, each a process, `write` takes the median of each time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.performance import choice, documents
from benchmarks.performance.figures import Figures, dumped, loaded
from benchmarks.performance.measure import Asked, compiled, measure
from benchmarks.performance.merged import merged
from cutegen.errors import CutegenError


def main(words: list[str] | None = None) -> int:
    """0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("verb", nargs="?", choices=("build", "measure", "write"), help="one part alone (default: all)")
    parser.add_argument(
        "figures", nargs="*", type=Path, help="default: where those of the device are kept; `write` takes several"
    )
    parser.add_argument(
        "--cutlass", type=Path, metavar="FILE", nargs="*", default=[], help="examples; their columns stay out without"
    )
    parser.add_argument("--arch", metavar="TARGET", help="what `build` compiles for (default: the GPU here)")
    parser.add_argument("--quick", action="store_true", help="a few problems of each section: a first look")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no further problem after so many")
    arguments = parser.parse_args(words)
    asked = Asked(cutlass=tuple(arguments.cutlass), quick=arguments.quick, seconds=arguments.seconds)
    try:
        if arguments.verb == "build":
            with choice.untuned():
                compiled(asked, print, arguments.arch)
            return 0
        measured: list[Figures] = []
        if arguments.verb != "write":

            def keep(found: Figures) -> None:
                path = next(iter(arguments.figures), documents.place(found.device)[0])
                path.write_text(dumped(found), encoding="utf-8")
                measured[:] = [found]

            with choice.untuned():
                measure(asked, keep)
        if arguments.verb != "measure":
            paths = arguments.figures or [documents.FIGURES]
            documents.write(merged(measured or [loaded(path.read_text(encoding="utf-8")) for path in paths]))
    except (CutegenError, OSError) as error:
        print(f"benchmarks.performance: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
