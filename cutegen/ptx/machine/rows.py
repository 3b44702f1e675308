"""A row describes an instruction: how it is executed, and what it is to the instructions around it.

The modules of `cutegen.ptx.instructions` declare the rows; `prepare` needs nothing else of an instruction.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cutegen.ptx.machine.blocks import End
from cutegen.ptx.machine.lowering import Lowerer, Lowering, Predicate
from cutegen.ptx.machine.undefined import SpreadLowerer, from_own_lane
from cutegen.ptx.text.flow import Ends
from cutegen.ptx.text.syntax import Address, Instruction
from cutegen.ptx.watch.actor import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The blocks that may come next: `following` in the text, the `targets` of a branch; its lanes `meet` in a third.

    `following` is the block of a last branch itself, where no other follows; `meet` is None at the exit.
    """

    following: int
    targets: tuple[int, ...]
    meet: int | None


EndLowerer: TypeAlias = Callable[[Lowering, Instruction, Predicate | None, Ways], End]
"""Turns an instruction, under its predicate, into the end of its block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An instruction: a `step`, or the `end` of a basic block, which it `ends` for the flow of control.

    `sources_only`: its first operand is not a destination, although it may be a register. `holds` gives the registers
    of the 32-bit file that it uses after it was issued, as rows, `fills` those that receive their values after it; it
    answers for its own use of them. `agent` accesses shared memory for it after its issue. With `passes_seen` it tells
    others what has happened, although it makes none of it visible.

    `spread` says which results depend on which undefined sources, except those in the operands that `decide` what it
    does, by number. `may_miss` tells whether an instruction may give an undefined result by itself. With `follows` it
    answers for undefined values between registers and memory, in a launch that follows them there: its result may be
    undefined, or the operands after its address.
    """

    step: Lowerer | None = None
    end: EndLowerer | None = None
    ends: Ends = Ends.NOTHING
    sources_only: bool = False
    holds: Callable[[Instruction], set[int]] | None = None
    fills: Callable[[Instruction], set[int]] | None = None
    agent: Agent | None = None
    passes_seen: bool = False
    spread: SpreadLowerer = from_own_lane
    decide: tuple[int, ...] = ()
    may_miss: Callable[[Instruction], bool] | None = None
    follows: bool = False

    def only_computes(self, instruction: Instruction) -> bool:
        """Return whether all that it does is to write registers, so that undefined sources may not matter."""
        accesses = any(isinstance(operand, Address) for operand in instruction.operands)
        stays = self.holds is None and self.fills is None and self.agent is None and self.ends is Ends.NOTHING
        return stays and not accesses and not self.sources_only and len(instruction.operands) > 0
