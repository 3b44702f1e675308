"""Report of a launch: counts for each instruction, traffic, violations."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cutegen.ptx.text.syntax import Dim3
from cutegen.ptx.watch.violations import Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionReport:
    """One PTX instruction: `executed` counts warps; the rest is zero if it does not access that memory.

    `wavefronts` minus `ideal_wavefronts` are its bank conflicts in shared memory, `sectors` are 32-byte sectors of
    global memory. For `cp.async`, as an H200 counts: `line_wavefronts` and `line_sectors` of `.cg`, by lines, and
    `staged_wavefronts` of `.ca` and of the zeros that a copy with a source size also writes. `boxes` are the bulk
    tensor copies: each counts the full box in `shared_bytes`, and its part in the tensor in `global_bytes`.
    """

    line: int
    opcode: str
    text: str
    executed: int
    shared_requests: int
    wavefronts: int
    ideal_wavefronts: int
    line_wavefronts: int
    ideal_line_wavefronts: int
    line_sectors: int
    staged_wavefronts: int
    shared_bytes: int
    global_requests: int
    sectors: int
    global_bytes: int
    boxes: int

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the minimum."""
        return self.wavefronts - self.ideal_wavefronts


MAX_PRINTED = 1 << 20
"""Characters that a launch keeps of what its threads print, as a GPU's buffer has 1 MiB."""


@dataclass(slots=True)
class Printed:
    """Text that the threads of a launch print, in order; `on_text` receives each at once."""

    on_text: Callable[[str], None] | None = None
    _texts: list[str] = field(default_factory=list)
    _left: int = MAX_PRINTED

    def add(self, text: str) -> None:
        """Keep `text`, or as much of it as there is room for."""
        kept = text[: self._left]
        self._left -= len(kept)
        if kept:
            self._texts.append(kept)
            if self.on_text is not None:
                self.on_text(kept)

    def text(self) -> str:
        """All that was kept."""
        return "".join(self._texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReport:
    """The report of one launch; `steps` is the number of warp instructions."""

    entry: str
    grid: Dim3
    block: Dim3
    policy: str
    steps: int
    instructions: tuple[InstructionReport, ...]
    violations: tuple[Violation, ...]
    conventions: tuple[Violation, ...]
    """Patterns that PTX does not order but kernels rely on; not violations unless the launch raises on them."""
    printed: str = ""
    """Text that the threads printed by `printf`, at most 1 MiB."""

    def executed(self, opcode: str) -> int:
        """Warp executions of all instructions whose opcode begins with `opcode`, such as `"mma.sync"`."""
        return sum(i.executed for i in self.matching(opcode))

    def matching(self, opcode: str) -> tuple[InstructionReport, ...]:
        """The instructions whose opcode begins with `opcode`, in text order."""
        prefix = opcode.split(".")
        return tuple(i for i in self.instructions if i.opcode.split(".")[: len(prefix)] == prefix)

    def wavefronts(self, opcode: str) -> int:
        """Shared-memory wavefronts of all instructions whose opcode begins with `opcode`."""
        return sum(i.wavefronts for i in self.matching(opcode))

    def line_wavefronts(self, opcode: str) -> int:
        """Wavefronts of 16-byte `cp.async.cg` as sm_90 counts them, of all instructions that begin with `opcode`."""
        return sum(i.line_wavefronts for i in self.matching(opcode))

    def line_sectors(self, opcode: str) -> int:
        """Sectors of `cp.async.cg` as sm_90 counts them, of all instructions that begin with `opcode`."""
        return sum(i.line_sectors for i in self.matching(opcode))

    def staged_wavefronts(self, opcode: str) -> int:
        """Wavefronts of `cp.async.ca`, and of zeros, as sm_90 counts them."""
        return sum(i.staged_wavefronts for i in self.matching(opcode))

    def conflicts(self, opcode: str) -> int:
        """Wavefronts beyond the minimum of all instructions whose opcode begins with `opcode`."""
        return sum(i.conflicts for i in self.matching(opcode))

    def sectors(self, opcode: str) -> int:
        """Global sectors of all instructions whose opcode begins with `opcode`."""
        return sum(i.sectors for i in self.matching(opcode))

    def boxes(self, opcode: str) -> int:
        """Boxes that bulk tensor copies moved, of all instructions whose opcode begins with `opcode`."""
        return sum(i.boxes for i in self.matching(opcode))

    def shared_bytes(self, opcode: str) -> int:
        """Bytes to and from shared memory of all instructions whose opcode begins with `opcode`."""
        return sum(i.shared_bytes for i in self.matching(opcode))

    def global_bytes(self, opcode: str) -> int:
        """Bytes to and from global memory of all instructions whose opcode begins with `opcode`."""
        return sum(i.global_bytes for i in self.matching(opcode))
