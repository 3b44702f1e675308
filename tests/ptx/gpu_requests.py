"""Measures single requests of one warp to shared memory on a GPU, and marks those of which the executor says otherwise.

    python tests/ptx/gpu_requests.py [--ncu PATH] [--only KIND] [--out FILE]    # needs ncu, cuda-bindings and a driver

Asks again for every request of h200_requests.txt, and for scattered ones of the kinds in `DRAWN`, until there are so
many. Writes all of them, those that disagree with what the executor says beside what the GPU counted: to FILE, by
default h200_requests.txt itself. `pytest tests/ptx --update-golden` then writes the figures into docs/measurements.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpu_counters import WAVEFRONTS, ncu_counts
from kernels import kernel

from cutegen.ptx.watch.traffic import line_writes, shared_wavefronts, staged_writes

Units = npt.NDArray[np.int64]
"""(lanes,): places in units of 16 bytes, or of 8."""

FILE = Path(__file__).parent / "h200_requests.txt"
HEADER = """\
# Requests of one warp and what ncu on an H200 counted: smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_*.sum
# cg, ca: cp.async of 16 bytes, cg-sized: with a source size; the lanes' 16-byte chunks of global | of shared memory.
# ld8, ld16, st8, st16: the lanes' places in shared memory, in units of 8 or 16 bytes.
# KIND COUNT: the executor says the same. KIND COUNT not RULE: it says RULE, and why is not known.
"""
DRAWN = {"ca": 101, "cg": 201}
"""How many requests of a kind are measured; those that are not stored yet are drawn."""
CHUNK_BYTES = 16
SOURCE_BYTES, SHARED_BYTES = 1 << 16, 1 << 14
LANES = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request: the counter that has its wavefronts, what the executor says, and its PTX.

    In `ptx` the lane's byte of global memory is %rd2 plus %rd4, that of shared memory is %r4.
    """

    counter: str
    rule: Callable[[Sequence[Units]], int]
    ptx: str


def _copied(rule: Callable[[Units, Units], int]) -> Callable[[Sequence[Units]], int]:
    return lambda units: rule(units[0] * CHUNK_BYTES, units[1] * CHUNK_BYTES)


def _lines(source: Units, target: Units) -> int:
    return line_writes(source, target)[0]


def _staged(source: Units, target: Units) -> int:
    return staged_writes(source, target, np.arange(len(source)), CHUNK_BYTES)


def _accessed(size: int, *, merges: bool = False) -> Callable[[Sequence[Units]], int]:
    return lambda units: shared_wavefronts(units[0] * size, np.arange(len(units[0])), size, merges=merges)[0]


FILL_8 = "mov.u32 %r7, 1; st.shared.v2.u32 [%r4], {%r7, %r7}; bar.sync 0;\n"
FILL_16 = "mov.u32 %r7, 1; st.shared.v4.u32 [%r4], {%r7, %r7, %r7, %r7}; bar.sync 0;\n"
WAIT = " cp.async.wait_all; mov.u32 %r3, 0;"
KINDS: Mapping[str, Kind] = {
    "ca": Kind("ldgsts_cache_access", _copied(_staged), "cp.async.ca.shared.global [%r4], [%rd2], 16;" + WAIT),
    "cg": Kind("ldgsts_cache_bypass", _copied(_lines), "cp.async.cg.shared.global [%r4], [%rd2], 16;" + WAIT),
    # ptxas must not see that the size is 16.
    "cg-sized": Kind(
        "ldgsts_cache_bypass",
        _copied(lambda source, target: _lines(source, target) + _staged(source, target)),
        "mov.u32 %r6, %ntid.y; add.u32 %r6, %r6, 15; cp.async.cg.shared.global [%r4], [%rd2], 16, %r6;" + WAIT,
    ),
    "ld8": Kind("ld", _accessed(8, merges=True), FILL_8 + "ld.shared.v2.u32 {%r7, %r8}, [%r4]; add.u32 %r3, %r7, %r8;"),
    "ld16": Kind(
        "ld",
        _accessed(16, merges=True),
        FILL_16 + "ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r4]; add.u32 %r3, %r7, %r8; add.u32 %r9, %r9, %r10; "
        "add.u32 %r3, %r3, %r9;",
    ),
    "st8": Kind("st", _accessed(8), "mov.u32 %r3, 1; st.shared.v2.u32 [%r4], {%r3, %r3};"),
    "st16": Kind("st", _accessed(16), "mov.u32 %r3, 1; st.shared.v4.u32 [%r4], {%r3, %r3, %r3, %r3};"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What the lanes of one warp ask for: of copies places in global and in shared memory, else in shared memory."""

    kind: str
    units: tuple[Units, ...]

    @property
    def rule(self) -> int:
        """The wavefronts that the executor counts."""
        return KINDS[self.kind].rule(self.units)

    @property
    def unit_bytes(self) -> int:
        """Of a place."""
        return 8 if self.kind.endswith("8") else CHUNK_BYTES

    @property
    def key(self) -> str:
        """The same for the same request."""
        return " | ".join((self.kind, *(" ".join(map(str, places)) for places in self.units)))

    def line(self, counted: int) -> str:
        """The line of the file."""
        said = f"{counted}" if counted == self.rule else f"{counted} not {self.rule}"
        return self.key.replace(self.kind, f"{self.kind} {said}", 1)

    def ptx(self, entry: str) -> str:
        """A kernel of as many threads as there are lanes, which asks for this once."""
        places = [int(place) * self.unit_bytes for places in (self.units[0], self.units[-1]) for place in places]
        before = (
            f".global .align 128 .b8 data[{SOURCE_BYTES}];\n"
            f".global .align 4 .u32 places[{len(places)}] = {{{', '.join(map(str, places))}}};\n"
        )
        lanes = len(self.units[0])
        body = f"""
            mov.u64 %rd2, places; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd2, %rd2, %rd3;
            ld.global.u32 %r5, [%rd2]; ld.global.u32 %r6, [%rd2+{4 * lanes}];
            mov.u64 %rd2, data; cvt.u64.u32 %rd3, %r5; add.s64 %rd2, %rd2, %rd3;
            mov.u32 %r4, smem; add.u32 %r4, %r4, %r6;
            {KINDS[self.kind].ptx}"""
        return kernel(body, before=before, shared_bytes=SHARED_BYTES).replace(".entry k(", f".entry {entry}(")


@dataclass(frozen=True, slots=True)
class Measured:
    """A line of the file."""

    request: Request
    counted: int
    marked: int | None

    @property
    def off(self) -> int:
        """By how much the executor is wrong."""
        return abs(self.counted - self.request.rule)


def stored(path: Path = FILE) -> list[Measured]:
    """The requests of the file, in order."""
    found = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            first, *rest = line.split(" | ")
            kind, counted, *marked = first.replace(" not ", " ").split()
            units = tuple(np.array(places.split(), np.int64) for places in rest)
            found.append(Measured(Request(kind, units), int(counted), int(marked[0]) if marked else None))
    return found


def summary(rows: Iterable[Measured]) -> Iterator[str]:
    """How many of each kind agree, as markdown."""
    yield "| requests | measured | equal | most off |"
    yield "|---|---:|---:|---:|"
    by_kind: dict[str, list[int]] = {}
    for row in rows:
        by_kind.setdefault(row.request.kind, []).append(row.off)
    for kind, off in sorted(by_kind.items()):
        yield f"| `{kind}` | {len(off)} | {off.count(0)} | {max(off)} |"


def requests() -> list[Request]:
    """Those of the file, then drawn ones: what is measured is the same every time."""
    found = {row.request.key: row.request for row in stored()}
    random = np.random.default_rng(0)
    for kind, count in DRAWN.items():
        while sum(request.kind == kind for request in found.values()) < count:
            drawn = Request(kind, (_scattered(random), random.permutation(2 * LANES)[:LANES]))
            found.setdefault(drawn.key, drawn)
    return list(found.values())


def _scattered(random: np.random.Generator) -> Units:
    """Chunks of global memory: rows of a tile from any chunk on, chunks at random, or some of them several times."""
    row, among = int(random.choice([1, 2, 4, 8, 16])), int(random.choice([LANES, 2 * LANES, 8 * LANES]))
    lanes = np.arange(LANES)
    match random.integers(3):
        case 0:
            return lanes // row * int(random.choice([row, 2 * row, 64])) + lanes % row + int(random.integers(4))
        case 1:
            return random.permutation(among)[:LANES]
        case _:
            return random.integers(0, among, LANES)


def entry(index: int) -> str:
    """The name of a kernel, which ncu shows."""
    return f"request_{index}"


def launch_all(asked: Sequence[Request]) -> None:
    """The child that ncu watches: launches every request once."""
    from gpu_compare import Gpu

    gpu = Gpu()
    for index, request in enumerate(asked):
        lanes = len(request.units[0])
        gpu.launch(request.ptx(entry(index)), entry(index), (1, 1, 1), (lanes, 1, 1), [np.zeros(lanes, np.uint32)])


def measured(asked: Sequence[Request], ncu: str, child: Sequence[str]) -> list[Measured]:
    """What ncu counted of each; those that it did not count are left out and said."""
    metrics = sorted({f"{WAVEFRONTS}{kind.counter}.sum" for kind in KINDS.values()})
    counted = ncu_counts(ncu, metrics, [sys.executable, __file__, "--child", *child])
    found = []
    for index, request in enumerate(asked):
        count = counted.get(entry(index), {}).get(f"{WAVEFRONTS}{KINDS[request.kind].counter}.sum")
        if count is None:
            print(f"not counted: {request.key}")
        else:
            found.append(Measured(request, count, None))
    return found


def written(rows: Iterable[Measured]) -> str:
    """The file."""
    return HEADER + "".join(row.request.line(row.counted) + "\n" for row in rows)


def main() -> int:
    """0 where every request was counted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    asked = [request for request in requests() if arguments.only in (None, request.kind)]
    if arguments.child:
        launch_all(asked)
        return 0
    found = measured(asked, arguments.ncu, ["--only", arguments.only] if arguments.only else [])
    if found:
        arguments.out.write_text(written(found))
    print("\n".join(summary(found)))
    return 0 if len(found) == len(asked) else 1


if __name__ == "__main__":
    sys.exit(main())
