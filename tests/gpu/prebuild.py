"""Builds the kernels of tests/gpu/cases.py where there is the CuTe DSL, for a GPU machine where there may be none.

    python -m tests.gpu.prebuild OUT_DIR [--arch sm_90] [--all]

OUT_DIR/NAME is the artifact of each case. With --all, OUT_DIR/cache becomes a cache (CUTEGEN_CACHE_DIR) that also holds
what tests/run/test_gpu.py compiles; it is used where the same version of the DSL is installed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from cutegen.build import Cache, build
from cutegen.straight_line import build_request
from tests.gpu.cases import CASES, CHOSEN


def main() -> int:
    """Build everything; 0 when each kernel's instructions are the predicted ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--all", action="store_true", help="also what tests/run/test_gpu.py compiles")
    arguments = parser.parse_args()
    start = time.monotonic()
    cache = Cache(arguments.out_dir / "cache")
    warnings = 0
    for name, spec in CASES.items():
        artifact = build(build_request(spec, arguments.arch), cache)
        target = arguments.out_dir / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(artifact.path, target)
        warnings += len(artifact.manifest.warnings)
        print(f"{name}: {artifact.manifest.registers} registers", *artifact.manifest.warnings, sep="; ")
    for spec in CHOSEN if arguments.all else ():
        build(build_request(spec, arguments.arch), cache)
    print(f"{len(CASES)} artifacts in {arguments.out_dir}, {time.monotonic() - start:.0f} s, {warnings} warnings")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
