"""Kinds of violations in a running program, and how they are reported.

A violation names its kind, the instruction, the thread and the address. A kind that is in `raise_on` ends the launch
with a `PtxFault`; the others are collected in the report.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from cutegen.errors import PtxFault
from cutegen.ptx.text.syntax import Dim3, Instruction

MAX_GATHERED = 1000


class ViolationKind(Enum):
    """Kinds of undefined behavior, and `CONVENTION`: patterns that PTX does not order but kernels rely on."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    READ_ONLY = "write to read-only memory"
    UNINITIALIZED = "uninitialized read"
    RACE = "race"
    ASYNC_COPY = "asynchronous copy"
    ASYNC_MMA = "asynchronous mma"
    TENSOR_MEMORY = "tensor memory"
    BARRIER = "barrier"
    DIVERGENCE = "divergence"
    CONVENTION = "convention"
    LAUNCH_CONTROL = "launch control"
    TRAP = "trap"
    STEP_LIMIT = "step limit"


ALL_KINDS: frozenset[ViolationKind] = frozenset(ViolationKind)
UNDEFINED: frozenset[ViolationKind] = ALL_KINDS - {ViolationKind.CONVENTION}
_ALWAYS_RAISED = frozenset(
    {ViolationKind.BARRIER, ViolationKind.TRAP, ViolationKind.STEP_LIMIT, ViolationKind.DIVERGENCE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violation: `thread` is numbered in the CTA with x fastest, `address` is relative to its state space."""

    kind: ViolationKind
    message: str
    line: int
    instruction: str
    cta: Dim3
    thread: int | None
    address: int | None
    count: int = 1
    """Number of occurrences; the other fields describe the first."""

    def __str__(self) -> str:
        """Kind, message and place in one line."""
        where = f"CTA {self.cta}" + (f", thread {self.thread}" if self.thread is not None else "")
        at = f", address {self.address:#x}" if self.address is not None else ""
        return f"{self.kind.value}: {self.message} ({where}{at})"


class ExecutionFault(PtxFault):
    """A `PtxFault` that carries its `violation`."""

    def __init__(self, violation: Violation) -> None:
        self.violation = violation
        super().__init__(str(violation), line=violation.line, instruction=violation.instruction)

    def __reduce__(self) -> "tuple[type[ExecutionFault], tuple[Violation]]":
        """Pickles by its violation, so that a fault can come back from a worker process."""
        return ExecutionFault, (self.violation,)


class Monitor:
    """Receives violations: raises those in `raise_on`, and keeps the others (each once per instruction)."""

    def __init__(self, instructions: tuple[Instruction, ...], raise_on: Collection[ViolationKind]) -> None:
        self._instructions = instructions
        self._raise_on = frozenset(raise_on) | _ALWAYS_RAISED
        self._places: dict[tuple[ViolationKind, int, str], int] = {}
        self._found: list[Violation] = []

    @property
    def violations(self) -> list[Violation]:
        """Violations that are undefined behavior."""
        return [found for found in self._found if found.kind is not ViolationKind.CONVENTION]

    @property
    def conventions(self) -> list[Violation]:
        """Violations that are only conventions."""
        return [found for found in self._found if found.kind is ViolationKind.CONVENTION]

    def describe(self, site: int) -> str:
        """`line 12 'st.shared...'` of an instruction."""
        instruction = self._instructions[site]
        return f"line {instruction.line} '{instruction.text}'"

    def opcode(self, site: int) -> str:
        """The opcode of an instruction."""
        return self._instructions[site].opcode

    def report(
        self,
        kind: ViolationKind,
        site: int,
        message: str,
        *,
        cta: Dim3,
        thread: int | None,
        address: int | None = None,
        always: bool = False,
    ) -> None:
        """Raises or keeps one violation."""
        instruction = self._instructions[site]
        violation = Violation(
            kind=kind,
            message=message,
            line=instruction.line,
            instruction=instruction.text,
            cta=cta,
            thread=thread,
            address=address,
        )
        if always or kind in self._raise_on:
            raise ExecutionFault(violation)
        place = self._places.setdefault((kind, site, message.partition(" ")[0]), len(self._found))
        if place < len(self._found):
            self._found[place] = replace(self._found[place], count=self._found[place].count + 1)
        elif place < MAX_GATHERED:
            self._found.append(violation)
