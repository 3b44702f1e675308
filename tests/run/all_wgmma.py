"""All settings of family sm90 together, in slices: each kernel built, run and held against float64.

    python -m tests.run.all_wgmma --slice 1/1000000 [--device cuda] [--folder F]
    python -m tests.run.all_wgmma --strength 3 --slice 1/8

The whole product of `tests/run/wgmma_settings.py` is some thousand millions of kernels: a slice is an equal part of it,
spread over all of it, the same each time. With --strength 3 it is the fewest rows that have every three values together
(2: what the tests run). On the CPU a case is PTX executed, and its counts are held against the plan's too. A line for
each case as it ends; what a plan refuses is counted apart. Exit status 1 when anything is wrong, printed with its
settings. --folder keeps the kernels.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from cutegen.build import Cache
from cutegen.errors import CutegenError, SpecError
from tests.build.warm import warm_compiler
from tests.run.covering import Row, covering_rows, sliced
from tests.run.wgmma_settings import RULES, SETTINGS, case_of
from tests.run.wgmma_trial import try_case

RIGHT, REFUSED, WRONG = "right", "refused", "WRONG"


def main() -> int:
    """0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slice", default="1/1000000", metavar="I/N", help="the I-th of N equal parts, from 1")
    parser.add_argument("--strength", type=int, help="every so many values together, and not the whole product")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--folder", type=Path, help="where kernels are kept (default: nowhere)")
    options = parser.parse_args()
    part, parts = map(int, options.slice.split("/"))
    if not 1 <= part <= parts:
        parser.error(f"--slice {options.slice}: the first is 1/{parts}, the last {parts}/{parts}")
    rows = list(_rows(part, parts, options.strength, options.seed))
    start_s, found = time.monotonic(), Counter[str]()
    with TemporaryDirectory() as temporary, warm_compiler() as warm, warm.used():
        kernels = Cache(options.folder or Path(temporary))
        for number, row in enumerate(rows, 1):
            word, detail = outcome(row, kernels, options.device)
            found[word] += 1
            settings = "" if word == RIGHT else f": {detail}\n{dict(row)}"
            print(f"{number}/{len(rows)}, {time.monotonic() - start_s:.0f} s: {word}{settings}", flush=True)
    print(f"slice {options.slice}: " + ", ".join(f"{count} {word}" for word, count in sorted(found.items())))
    return int(found[WRONG] > 0)


def outcome(row: Row, kernels: Cache, device: str) -> tuple[str, str]:
    """What became of a row: right, refused by its plan, or wrong, and why."""
    try:
        try_case(case_of(row), kernels, device)
    except SpecError as error:
        return REFUSED, str(error)
    except (AssertionError, CutegenError, RuntimeError) as error:
        return WRONG, f"{type(error).__name__}: {error}"
    return RIGHT, ""


def _rows(part: int, parts: int, strength: int | None, seed: int) -> Iterator[Row]:
    if strength is None:
        yield from sliced(SETTINGS, RULES, part, parts)
    else:
        yield from covering_rows(SETTINGS, RULES, seed=seed, strength=strength)[part - 1 :: parts]


if __name__ == "__main__":
    sys.exit(main())
