"""Measure the kernels, and write the tables of docs/performance.md and README.md.

    python -m benchmarks.performance --cutlass FILE FILE                 measure and write; needs a GPU and torch
    python -m benchmarks.performance build --arch sm_90                  compile the kernels; needs no GPU
    python -m benchmarks.performance measure OUT.json --cutlass FILE     measure only; write nothing but OUT.json
    python -m benchmarks.performance write OUT.json ...                  write the documents; needs no GPU

Each FILE is one of CUTLASS's CuTe DSL examples: dense_gemm_persistent.py (Hopper) or tensorop_gemm.py (Ampere). The
figures are stored next to their page: docs/performance.json, and docs/performance_h100.json for an H100. Given several
OUT.json files of one machine, one per process, `write` takes the median of each time.
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
    """Return 0, or 1 after one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "verb", nargs="?", choices=("build", "measure", "write"), help="run this part only (default: measure and write)"
    )
    parser.add_argument("figures", nargs="*", type=Path, help="default: the file of the device; `write` takes several")
    parser.add_argument(
        "--cutlass",
        type=Path,
        metavar="FILE",
        nargs="*",
        default=[],
        help="CUTLASS's examples; without them their columns stay empty",
    )
    parser.add_argument("--arch", metavar="TARGET", help="target of `build` (default: this machine's GPU)")
    parser.add_argument("--quick", action="store_true", help="measure only a few problems of each section")
    parser.add_argument("--seconds", type=float, metavar="S", help="start no further problem after S seconds")
    arguments = parser.parse_args(words)
    if arguments.verb != "write" and len(arguments.figures) > (arguments.verb == "measure"):
        parser.error(f"{arguments.figures[-1]}: only `write` takes several files, and `measure` takes one")
    if missing := [path for path in arguments.cutlass if not path.is_file()]:
        parser.error(f"--cutlass: found no file {missing[0]}; OUT.json goes before --cutlass")
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
