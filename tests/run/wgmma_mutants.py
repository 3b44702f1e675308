"""Mistakes in the PTX of family sm90's kernels, one at a time, judged by the CPU executor and by float64.

    python -m tests.run.wgmma_mutants [--kernel tn --kernel pingpong ...] [--sample 100] [--seed 0] [--kernels FOLDER]

Synchronization is dropped, waits are for one group too few, barriers, coordinates, descriptors, byte counts and
comparisons are wrong. A mutant is dead when the executor faults or the result is wrong; survivors are printed. No
kernel is compiled but the right ones.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from cutegen import api
from cutegen.build import Cache
from cutegen.errors import CutegenError
from cutegen.run import Kernel
from cutegen.verify import compare, expected_outcome, random_operands
from tests.run.ptx_mutants import Mutant, mutated, sampled, with_ptx
from tests.run.wgmma import CASES

KERNELS = ("tn", "nt", "pingpong", "ends_in_turns", "cluster_along_m", "split_k", "e4m3")
MANY_K_TILES, MANY_TILES = (136, 72, 328), (648, 136, 136)
RUNS = (("in-order", MANY_K_TILES), ("reversed", MANY_K_TILES), ("in-order", MANY_TILES))
"""Orders and problems (M, N, K): with many tiles, buffers of C are used again."""
MAX_STEPS = 100_000
"""Warp instructions, several times what a right kernel takes: a mutant may wait forever."""
FAULT, WRONG, SURVIVED = "fault", "wrong result", "survived"
OTHER_COMPARISON = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}
DROPPED = (
    "bar.sync", "barrier.cluster", "fence.proxy", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group",
    "wgmma.mma_async", "mbarrier.arrive", "mbarrier.init", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group",
    "cp.async.bulk.tensor", "stmatrix",
)  # fmt: skip
"""What a kernel may be without, by the beginning of its name."""


def mutants(text: str) -> Iterator[Mutant]:
    """Every mistake of every kind."""
    return mutated(text, _changes)


def _changes(line: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    opcode = next((word for word in line.split() if not word.startswith(("@", "{"))), "")
    if (dropped := next((name for name in DROPPED if opcode.startswith(name)), None)) is not None:
        yield f"{dropped} dropped", ""
    if "wait_group" in opcode:
        yield "waits for one group too few", re.sub(r"(\d+);", lambda found: f"{int(found[1]) + 1};", line)
    if opcode.startswith("mbarrier."):
        yield "another barrier", re.sub(r"\[([^\]+]+)(?:\+(\d+))?\]", lambda x: f"[{x[1]}+{int(x[2] or 0) + 8}]", line)
    if opcode.startswith("cp.async.bulk.tensor"):
        yield "coordinates swapped", re.sub(r"\{(%\w+), (%\w+),", r"{\2, \1,", line)
    if opcode.startswith("wgmma.mma_async"):
        yield "operands swapped", re.sub(r"(%rd\d+), (%rd\d+)", r"\2, \1", line)
        yield "operand negated", re.sub(r", *1, *1(?=, *[01], *[01];)", ", -1, 1", line)
    if opcode.startswith("setp.") and (comparison := opcode.split(".")[1]) in OTHER_COMPARISON:
        yield "off by one", line.replace(f"setp.{comparison}", f"setp.{OTHER_COMPARISON[comparison]}", 1)
    if re.match(r"xor\.b32 .*, 1;", line):
        yield "parity kept", line.replace(", 1;", ", 0;")
    if (found := re.match(r"mov\.b32\s+(%r\d+), (\d+);", line)) is not None:
        kind = next((kind for name, kind in COUNTS if any(_counts(name, found[1], other) for other in lines)), None)
        if kind is not None:
            yield kind, line.replace(f" {found[2]};", f" {int(found[2]) + 1};")


COUNTS = (("mbarrier.arrive.expect_tx", "wrong expected bytes"), ("mbarrier.init", "wrong number of arrivals"))


def _counts(name: str, register: str, line: str) -> bool:
    return name in line and line.rstrip().endswith(f", {register};")


def verdict(right: Kernel, text: str) -> str:
    """What shows that a text in the place of a right kernel's is wrong, if anything does."""
    kernel = with_ptx(right, text)
    for policy, problem in RUNS:
        a, b, out = random_operands(kernel.contract, *problem, seed=1)
        try:
            report = kernel.execute(a, b, out=out, policy=policy, max_steps=MAX_STEPS)
        except CutegenError:
            return FAULT
        if report.violations:
            return FAULT
        exact = expected_outcome(kernel.contract, a, b, {}, accumulator="f32").result
        if not compare(out, exact, dtype=kernel.contract.tensor("c").dtype).ok:
            return WRONG
    return SURVIVED


def main() -> int:
    """0 when the right kernels are right; survivors are for people to read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernel", action="append", choices=CASES, help=f"default: {', '.join(KERNELS)}")
    parser.add_argument("--sample", type=int, help="so many of each kernel's (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", type=Path, help="where right kernels are kept (default: nowhere)")
    options = parser.parse_args()
    found: dict[str, Counter[str]] = {}
    with TemporaryDirectory() as folder:
        for name in options.kernel or KERNELS:
            right = cast("Kernel", api.compile(CASES[name], "sm_90", cache=Cache(options.kernels or Path(folder))))
            if verdict(right, right.artifact.ptx) != SURVIVED:
                print(f"{name} itself is wrong")
                return 1
            for mutant in sampled(mutants(right.artifact.ptx), options.sample, options.seed):
                word = verdict(right, mutant.planted_in(right.artifact.ptx))
                found.setdefault(mutant.kind, Counter())[word] += 1
                if word == SURVIVED:
                    print(f"{name}, {mutant}", flush=True)
    for kind, counts in sorted(found.items()):
        print(f"{kind}: " + ", ".join(f"{counts[word]} {word}" for word in (FAULT, WRONG, SURVIVED) if counts[word]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
