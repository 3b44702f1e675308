"""The main loop in a disassembled kernel: the instructions that a warp issues per k-tile.

nvdisasm prints one instruction per line, `/*0e20*/  @P0 HMMA.16816.F32 R4, ... ;`, and labels at branch targets. A loop
extends from a label to a branch back to it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cutegen import hardware
from cutegen.errors import OutsideError
from cutegen.support.words import either

MMA = ("HMMA", "IMMA", "QMMA")
"""SASS of `mma.sync`: for floats, for integers, for 8-bit floats if tensor cores support them."""

WGMMA = ("HGMMA", "IGMMA", "QGMMA")
"""SASS of `wgmma`, for the same types."""

FMA = ("FFMA",)
"""SASS of fma."""

MULTIPLIES: Mapping[hardware.Instruction, tuple[str, ...]] = {
    hardware.Instruction.MMA_SYNC: MMA,
    hardware.Instruction.WGMMA: WGMMA,
    hardware.Instruction.FMA: FMA,
}

_INSTRUCTION = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:(?P<predicate>@!?U?P\w+)\s+)?"
    r"(?P<opcode>[A-Z][\w.]*)(?P<operands>[^;]*);"
)
_LABEL = re.compile(r"(?P<name>\.L_x_\d+):")
_TARGET = re.compile(r"`\((?P<name>\.L_x_\d+)\)")
_SECTION = re.compile(r"\s*\.section\s+\.text\.(?P<entry>[\w$.]+),")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction; `opcode` with its modifiers, as `LDSM.16.M88.4`."""

    address: int
    predicate: str
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without modifiers, except `IMAD.MOV`, a move done by the multiplier."""
        return "IMAD.MOV" if self.opcode.startswith("IMAD.MOV") else self.opcode.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Loop:
    """The instructions from the label to the branch back, in order."""

    instructions: tuple[Instruction, ...]

    def count(self, name: str) -> int:
        """Return the instructions of this name."""
        return sum(instruction.name == name for instruction in self.instructions)

    def encloses(self, other: "Loop") -> bool:
        """Return whether the other loop is a proper part of this one."""
        begin, end = self.instructions[0].address, self.instructions[-1].address
        first, last = other.instructions[0].address, other.instructions[-1].address
        return begin <= first and last <= end and (begin, end) != (first, last)

    def multiplications(self, names: Sequence[str] = MMA) -> int:
        """Return the instructions of these names."""
        return sum(map(self.count, names))

    @property
    def mix(self) -> Mapping[str, int]:
        """Instructions by name, the most frequent first."""
        return dict(sorted(Counter(i.name for i in self.instructions).items(), key=lambda item: (-item[1], item[0])))


def main_loop(sass: str, entry: str, multiply: Sequence[str] = MMA) -> Loop:
    """Return the innermost loop with the most instructions of `multiply`, of several the one with the fewest others.

    There may be two main loops, one for k-tiles inside the matrices and one for partial k-tiles. A large problem runs
    the first: the loop with several k-tiles per turn, or the shorter one. A persistent kernel's loop over tiles
    surrounds it. Raises OutsideError if there is none.
    """
    found = [loop for loop in loops(sass, entry) if loop.multiplications(multiply)]
    if not found:
        wanted = either(multiply)
        raise OutsideError(f"the disassembly of {entry} has no loop with {wanted}; nvdisasm may use another format")
    innermost = [loop for loop in found if not any(loop.encloses(other) for other in found)]
    return max(innermost, key=lambda loop: (loop.multiplications(multiply), -len(loop.instructions)))


def loops(sass: str, entry: str) -> Iterator[Loop]:
    """Return every loop of `entry`, in the order in which they end."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in _lines_of(sass, entry):
        if label := _LABEL.match(line):
            labels[label["name"]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            found = Instruction(int(match["address"], 16), match["predicate"] or "", match["opcode"], match["operands"])
            instructions.append(found)
            target = _TARGET.search(found.operands) if found.name == "BRA" else None
            if target and target["name"] in labels:
                yield Loop(tuple(instructions[labels[target["name"]] :]))


def _lines_of(sass: str, entry: str) -> Iterator[str]:
    inside = False
    for line in sass.splitlines():
        if section := _SECTION.match(line):
            inside = section["entry"] == entry
        elif inside:
            yield line
