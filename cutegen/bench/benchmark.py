"""The benchmark: contenders take turns on the same random operands, once every result has been found right."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cutegen.bench.ceilings import Ceilings
from cutegen.bench.contenders import Against, Operands, Prepare, others
from cutegen.bench.measure import Call, Measurement, interleaved
from cutegen.bench.mma_peak import FMA, MmaTypes
from cutegen.contract.launch import OPERANDS, RESULT, LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CheckError, CutegenError, DeviceError
from cutegen.hardware import dtype
from cutegen.hardware.targeting import present_target
from cutegen.run import Kernel
from cutegen.verify import (
    Bounded,
    Comparison,
    Reference,
    compare,
    expected_outcome,
    float64_reference,
    random_extras,
    random_operands,
)

_LOG = logging.getLogger("cutegen.bench")

# Others may round sums to f16 on the way, as cuBLAS does when it splits K: they are only held to making sense.
OTHERS_MAX_REL_ERROR = 1e-2


@dataclass(frozen=True, slots=True)
class Entrant:
    """A kernel of cutegen's under the name it is shown by."""

    name: str
    kernel: Kernel

    @property
    def types(self) -> MmaTypes:
        """The types of its MMA atom."""
        plan = json.loads(self.kernel.artifact.plan_json)
        if plan["mma"]["ptx"] == FMA.opcode:
            return FMA
        return MmaTypes.of(self.kernel.contract.tensor("a").dtype, plan["mma"]["accumulator"])

    @property
    def ceiling_types(self) -> tuple[MmaTypes, MmaTypes]:
        """The ceilings that the libraries' results and its own are held against.

        Libraries sum in f32, integers in s32, and use tensor cores on all but f32.
        """
        operands = self.kernel.contract.tensor("a").dtype
        libraries_sums = self.types.accumulator if dtype(operands).is_integer else "f32"
        return MmaTypes.of(operands, libraries_sums), self.types

    @property
    def setting(self) -> Setting:
        """What else must be equal for a comparison to be fair."""
        return Setting.of(self.kernel.contract)


@dataclass(frozen=True, slots=True)
class Setting:
    """Element type and major of A, B and C: whoever agrees in these multiplies the same tensors."""

    a: tuple[str, str]
    b: tuple[str, str]
    c: tuple[str, str]

    @classmethod
    def of(cls, contract: LaunchContract) -> Setting:
        """That of a kernel."""
        return cls(*((x.dtype, x.major) for x in (*contract.operands, contract.tensor(RESULT))))

    def __str__(self) -> str:
        return ", ".join(f"{role.upper()} {x} {major}-major" for role, (x, major) in self.tensors.items())

    @property
    def tensors(self) -> Mapping[str, tuple[str, str]]:
        """By role."""
        return {"a": self.a, "b": self.b, RESULT: self.c}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One contender on one problem; `ours` says that cutegen made it, `types` which ceiling it is held against."""

    problem: ProblemShape
    setting: Setting
    contender: str
    ours: bool
    types: MmaTypes
    rel_error: float
    measurement: Measurement

    @property
    def tflops(self) -> float:
        """10^12 operations a second, by the median."""
        return self.tflops_in(self.measurement.median_us)

    def tflops_in(self, time_us: float) -> float:
        """10^12 operations a second if the problem took so long."""
        return self.problem.flops / time_us / 1e6

    @property
    def compulsory_bytes(self) -> int:
        """What device memory moves at the least."""
        a, b, c = (dtype(name).bytes for name, _ in self.setting.tensors.values())
        return self.problem.compulsory_bytes(a, b, c)

    @property
    def intensity(self) -> float:
        """Operations for each compulsory byte."""
        return self.problem.flops / self.compulsory_bytes

    def of_mma(self, ceilings: Ceilings) -> float:
        """Share of what `mma.sync` alone reaches; a library that uses other instructions may pass 1."""
        return self.tflops / ceilings.of(self.types).tflops

    def of_copy(self, ceilings: Ceilings) -> float:
        """Compulsory bytes a second as a share of the copy bandwidth."""
        return self.compulsory_bytes / (1e-6 * self.measurement.median_us) / ceilings.copy_bytes_per_s


def require_gpu() -> None:
    """Raises DeviceError when there is nothing to measure on."""
    way_out = "; `cutegen report SPEC --problem M,N,K` says without a GPU what a kernel will ask of one"
    if present_target() is None:
        raise DeviceError(f"measuring needs a GPU that kernels can be compiled for, and there is none here{way_out}")
    if find_spec("torch") is None:
        raise DeviceError(f"measuring needs torch, which is not installed: pip install torch{way_out}")
    import torch

    if not torch.cuda.is_available():
        raise DeviceError(f"torch {torch.__version__} sees no GPU; install one built for CUDA{way_out}")


def bench(
    entrants: Sequence[Entrant],
    problem: ProblemShape,
    *,
    rounds: int,
    cutlass: Path | None = None,
    against: Against | None = None,
    seed: int = 0,
    after_round: Callable[[], None] = lambda: None,
) -> tuple[Result, ...]:
    """Everyone on one problem, in the order of the entrants' settings, others first.

    The others are those that `against` names, else all that are here, and `cutlass`, the file of CUTLASS's example.

    Raises CheckError for a wrong result of cutegen's, before anything is timed, and DeviceError when device memory is
    short. Another's wrong result is a warning, and is not timed.
    """
    import torch

    try:
        return _bench(entrants, problem, rounds, against or partial(others, cutlass=cutlass), seed, after_round)
    except torch.OutOfMemoryError as error:
        first_line = str(error).partition(". ")[0]
        raise DeviceError(f"{problem}: {first_line}; a smaller --problem needs less") from error


def _bench(
    entrants: Sequence[Entrant],
    problem: ProblemShape,
    rounds: int,
    against: Against,
    seed: int,
    after_round: Callable[[], None],
) -> tuple[Result, ...]:
    ready = {
        f"{setting}: {one.name}": (setting, one)
        for setting, members in _by_setting(entrants).items()
        for one in _prepare(setting, members, problem, against, seed)
    }
    calls = {name: one.call for name, (_, one) in ready.items()}
    measured = interleaved(calls, rounds=rounds, after_round=after_round)
    return tuple(
        Result(
            problem=problem,
            setting=setting,
            contender=one.name,
            ours=one.ours,
            types=one.types,
            rel_error=one.rel_error,
            measurement=measured[name],
        )
        for name, (setting, one) in ready.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A contender whose result on these operands is right."""

    name: str
    ours: bool
    types: MmaTypes
    call: Call
    rel_error: float


def _by_setting(entrants: Iterable[Entrant]) -> Mapping[Setting, list[Entrant]]:
    found: dict[Setting, list[Entrant]] = {}
    for entrant in entrants:
        found.setdefault(entrant.setting, []).append(entrant)
    return found


def _prepare(
    setting: Setting, members: Sequence[Entrant], problem: ProblemShape, against: Against, seed: int
) -> Iterator[_Ready]:
    """Everyone of one setting on the same operands, checked against float64."""
    contract = aligned_for_all([x.kernel.contract for x in members])
    m, n, batch = problem.m, problem.n, problem.operand_batch
    a, b, out = random_operands(contract, m, n, problem.k, seed=seed, batch=batch, framework="torch", device="cuda")
    product = float64_reference(a, b, contract)

    def compared(reference: Reference | Bounded, types: MmaTypes) -> Comparison:
        return compare(out, reference, dtype=contract.tensor(RESULT).dtype, accumulator=types.accumulator)

    libraries_types, _ = members[0].ceiling_types
    for name, prepare in against(contract, Operands(a, b, out)):
        _poison(out)
        if (call := _run_once(name, prepare)) is not None:
            found = compared(product, libraries_types)
            if _makes_sense(name, problem, found):
                yield _Ready(name=name, ours=False, types=libraries_types, call=call, rel_error=found.rel_error)
    for member in members:
        _poison(out)
        extras = random_extras(member.kernel.contract, m, n, seed=seed, batch=batch, framework="torch", device="cuda")
        kernel = partial(member.kernel, a, b, out=out, **extras)
        kernel()
        accumulator = member.types.accumulator
        expected = expected_outcome(member.kernel.contract, a, b, extras, accumulator=accumulator)
        found = compared(expected.result, member.types)
        _demand(member.name, problem, found)
        yield _Ready(name=member.name, ours=True, types=member.types, call=kernel, rel_error=found.rel_error)


def _poison(out: Any) -> None:
    out.fill_(math.nan if out.is_floating_point() else -1)


def _run_once(name: str, prepare: Prepare) -> Call | None:
    """A library's call, made once; None, with a warning, when the library cannot do it here."""
    try:
        call = prepare()
        call()
    except CutegenError:
        raise
    except Exception as error:  # Triton's and the DSL's errors have no root in common
        first_line = str(error).partition("\n")[0]
        _LOG.warning("%s is left out: %s: %s", name, type(error).__name__, first_line)
        return None
    return call


def aligned_for_all(contracts: Sequence[LaunchContract]) -> LaunchContract:
    """The first contract, its A, B and C aligned as the most demanding of all want them."""
    first, *_ = contracts
    tensors = (
        replace(first.tensor(role), align_bytes=max(each.tensor(role).align_bytes for each in contracts))
        for role in (*OPERANDS, RESULT)
    )
    return replace(first, tensors=tuple(tensors))


def _makes_sense(name: str, problem: ProblemShape, found: Comparison) -> bool:
    """Whether a library's result is near enough; says so when it is not."""
    if found.rel_error <= OTHERS_MAX_REL_ERROR:
        return True
    _LOG.warning("%s is left out: relative error %.3g at %s", name, found.rel_error, problem)
    return False


def _demand(name: str, problem: ProblemShape, found: Comparison) -> None:
    if not found.ok:
        raise CheckError(
            f"{name} at {problem}: relative error {found.rel_error:.3g}, {found.wrong:,} elements wrong; what is wrong "
            "is not timed"
        )
