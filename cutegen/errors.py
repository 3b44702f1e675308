"""Every error that cutegen raises on purpose.

    CutegenError
    ├── RequestError              the request is wrong                     exit 2
    │   ├── SpecError             a layout spec, with file and key
    │   ├── OperandError          a tensor passed to a kernel
    │   └── PtxSyntaxError        PTX text that cannot be read, with its line
    ├── CheckError                a check failed                           exit 1
    │   ├── ProofError            a finished plan contradicts the algebra
    │   ├── EmissionError         the compiler emitted other instructions than planned
    │   └── PtxFault              a PTX program did something undefined while executing
    └── OutsideError              something outside cutegen failed         exit 3
        ├── CompileError          the CuTe DSL or ptxas refused, crashed or timed out
        ├── CacheError            the artifact cache cannot be used
        ├── ArtifactError         an artifact on disk is damaged or incomplete
        ├── WorkerError           a scheduler or its workers cannot be used, or were lost
        └── DeviceError           no usable GPU, or the driver reported a failure

A message has a location and a fix: where, what was found, what was expected, the nearest valid value.
"""

import copyreg
from typing import Any, ClassVar


class CutegenError(Exception):
    """Root of the tree; the command line returns its `exit_code`."""

    exit_code: ClassVar[int] = 3

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception calls the class with `args` again, which a keyword-only __init__ rejects: an error from a process of
        # a pool would then break the pool.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class RequestError(CutegenError):
    """The request is wrong: a spec, an argument, an operand."""

    exit_code = 2


class SpecError(RequestError):
    """A layout spec requests something impossible.

    `file` is the spec's path or name and `key` the dotted TOML key; `found`, `expected` and `fix` are sentences without
    a final period. Any of them may be empty if it does not apply. `place` is two more lines for an error within a text:
    the text, and a caret below the place.
    """

    def __init__(self, *, file: str, key: str, found: str, expected: str, fix: str = "", place: str = "") -> None:
        self.file, self.key, self.found, self.expected, self.fix, self.place = file, key, found, expected, fix, place
        address = ": ".join(part for part in (file, key) if part)
        body = f"found {found}; expected {expected}"
        line = (f"{address}: " if address else "") + body + (f"; {fix}" if fix else "")
        super().__init__(f"{line}\n{place}" if place else line)


class OperandError(RequestError):
    """A tensor passed to a kernel does not fit what the kernel was compiled for."""

    def __init__(self, *, operand: str, found: str, expected: str, fix: str = "") -> None:
        self.operand, self.found, self.expected, self.fix = operand, found, expected, fix
        super().__init__(f"operand {operand}: found {found}; expected {expected}" + (f"; {fix}" if fix else ""))


class PtxSyntaxError(RequestError):
    """PTX text that cannot be read; `line` counts from 1."""

    def __init__(self, message: str, *, line: int, instruction: str = "") -> None:
        self.line, self.instruction = line, instruction
        super().__init__(f"line {line}: {message}" + (f": {instruction}" if instruction else ""))


class CheckError(CutegenError):
    """A check was made and failed."""

    exit_code = 1


class ProofError(CheckError):
    """A finished plan contradicts the algebra that it was built from: a bug in cutegen."""


class EmissionError(CheckError):
    """The compiler emitted other instructions than the plan requires."""


class PtxFault(CheckError):  # noqa: N818 - the program's fault, not an error of cutegen
    """A PTX program did something undefined while executing; `line` is the instruction's line in the text."""

    def __init__(self, message: str, *, line: int, instruction: str = "") -> None:
        self.line, self.instruction = line, instruction
        super().__init__(f"line {line}: {message}" + (f": {instruction}" if instruction else ""))


class OutsideError(CutegenError):
    """Something outside cutegen failed: compiler, driver, disk."""


class CompileError(OutsideError):
    """The CuTe DSL or ptxas refused, crashed or ran out of time."""


class CacheError(OutsideError):
    """The artifact cache cannot be read or written."""


class ArtifactError(OutsideError):
    """An artifact on disk is damaged, incomplete or of another format version."""


class WorkerError(OutsideError):
    """A scheduler or its workers cannot be used, or were lost."""


class DeviceError(OutsideError):
    """No usable GPU, or the driver reported a failure."""


def by_exit_code(exit_code: int) -> type[CutegenError]:
    """Return the class for an error that was reported by its exit code alone, as from another process."""
    return {each.exit_code: each for each in (CheckError, RequestError, OutsideError)}[exit_code]
