"""Runs a probe on random data, and checks it: what its registers received, and the executor's counts.

Each register is compared with the element that the MMA's fragment table names.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutegen.hardware.units import REGISTER_BITS, WARP
from cutegen.plan import ProbePlan
from cutegen.plan.geometry import Place
from cutegen.plan.values.copies import AccessKey
from cutegen.plan.values.path import FragmentTable
from cutegen.ptx import InstructionReport, LaunchReport
from cutegen.run import Probe
from cutegen.run.call.storage import CallTensor, call_tensor, numpy_dtype
from cutegen.run.probe import Registers
from cutegen.support.words import aligned, plural
from cutegen.verify.counts import Count, LaunchCounts
from cutegen.verify.reference import require_torch_gpu
from cutegen.verify.trial import CUDA, Execution
from cutegen.verify.trial_report import count_lines, count_tables, executed

Bits = NDArray[np.uint32]
Element = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRegister:
    """The first wrong value.

    It is at `place` (MMA, MMA_X, MMA_K) of the thread's fragment of `stage`, in its 32-bit register `register`. `found`
    and `expected` are (x, k) of A or B; `found` is None if the bits are not an element's.
    """

    thread: int
    stage: int
    register: int
    place: Place
    found: Element | None
    expected: Element


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """32-bit registers of all threads and stages, and how many of them are correct."""

    operand: str
    registers: int
    agreeing: int
    first_wrong: WrongRegister | None

    @property
    def ok(self) -> bool:
        """True if all are correct."""
        return self.agreeing == self.registers


def check_registers(
    plan: ProbePlan, load: Callable[[Any, Any], Registers], *, seed: int, framework: str = "numpy", device: str = "cpu"
) -> tuple[Received, Received]:
    """Compare the results of `load`, a probe of `plan`, with the fragments of its MMA, for A and B.

    Each element is filled with its own number, in as many loads as its bits need, and once with random bits. Nothing
    computes on them, so every pattern, including NaN, must arrive unchanged.
    """
    tensors = [call_tensor(x) for x in plan.launch.operands]
    tables = [plan.fragments(operand) for operand in plan.operands]
    k = plan.extents[2]
    shapes = [(table.tile[0], k) for table in tables]

    def arriving(patterns: list[Bits]) -> list[Bits]:
        operands = [
            _operand(tensor, bits.reshape(shape, order="F"), framework, device)
            for tensor, bits, shape in zip(tensors, patterns, shapes, strict=True)
        ]
        return [_bits(table, framework) for table in load(*operands)]

    numbers = [np.arange(x * y, dtype=np.uint32) for x, y in shapes]
    width = tables[0].bits
    held = [np.zeros((plan.gemm.threads, plan.gemm.stages * table.values), np.uint32) for table in tables]
    for shift in range(0, max(int(each[-1]).bit_length() for each in numbers), width):
        part = arriving([each >> np.uint32(shift) & _mask(width) for each in numbers])
        held = [one | bits << np.uint32(shift) for one, bits in zip(held, part, strict=True)]
    random = np.random.default_rng(seed)
    noise = [random.integers(_mask(width), size=each.size, dtype=np.uint32, endpoint=True) for each in numbers]
    heard = arriving(noise)
    a, b = (_received(plan, table, held[i], noise[i], heard[i]) for i, table in enumerate(tables))
    return a, b


def _mask(bits: int) -> np.uint32:
    return np.uint32((1 << bits) - 1)


def _received(plan: ProbePlan, table: FragmentTable, held: Bits, noise: Bits, heard: Bits) -> Received:
    """Compare `held` and `heard` [thread, value of all stages], the results for numbered and for random elements."""
    stage_elems = table.tile[0] * table.tile[1]
    stages = np.arange(plan.gemm.stages)[:, None] * stage_elems
    wanted = (table.coordinates[:, None, :] + stages).reshape(held.shape)
    wrong = (held != wanted) | (heard != noise[wanted])
    per_register = REGISTER_BITS // table.bits
    registers = wrong.reshape(len(wrong), -1, per_register).any(axis=2)
    return Received(
        operand=table.operand.lower(),
        registers=registers.size,
        agreeing=registers.size - int(registers.sum()),
        first_wrong=_first_wrong(table, wrong, held, wanted, noise.size) if wrong.any() else None,
    )


def _first_wrong(
    table: FragmentTable, wrong: NDArray[np.bool_], held: Bits, wanted: NDArray[np.int64], elems: int
) -> WrongRegister:
    thread, index = (int(i) for i in np.argwhere(wrong)[0])
    stage, value = divmod(index, table.values)
    found, expected = int(held[thread, index]), int(wanted[thread, index])
    known = found < elems and found != expected
    return WrongRegister(
        thread=thread,
        stage=stage,
        register=value * table.bits // REGISTER_BITS,
        place=table.place(value),
        found=table.element(found) if known else None,
        expected=table.element(expected),
    )


def _operand(tensor: CallTensor, bits: Bits, framework: str, device: str) -> Any:
    """Return A (M,K), or B as (K,N), whose elements have the bit patterns `bits` (X, K)."""
    dtype = tensor.dtype
    patterns = bits.astype(f"uint{dtype.bits}")
    matrix = patterns.T if tensor.name == "b" else patterns
    stored = np.ascontiguousarray(matrix if tensor.row_major else matrix.T)
    if framework == "torch":
        import torch

        whole = torch.from_numpy(stored.view(f"int{dtype.bits}")).to(device).view(getattr(torch, dtype.torch_name))
    else:
        whole = stored.view(numpy_dtype(dtype.torch_name))
    return whole if tensor.row_major else whole.T


def _bits(table: Any, framework: str) -> Bits:
    """Return the bit patterns of a table."""
    if framework == "torch":
        import torch

        table = table.view(getattr(torch, f"int{8 * table.element_size()}")).cpu().numpy()
    return np.ascontiguousarray(table).view(f"uint{8 * table.itemsize}").astype(np.uint32)


# The executor's counts for one launch of a probe, compared with its plan.


def count_probe(plan: ProbePlan, report: LaunchReport) -> LaunchCounts:
    """Compare the report of a launch of `plan`'s kernel with the plan, which predicts for one stage."""
    stages = plan.gemm.stages
    words = plural(stages, "stage")
    unit = {key: row.predicted for key, row in plan.predictions.wavefronts.items()}
    unit[AccessKey.S2R] = sum(unit.values())
    warps = plan.gemm.threads // WARP
    return LaunchCounts(
        wavefronts={
            key: Count(unit[key] * stages, sum(site.wavefronts for site in sites), f"{unit[key]:,} x {words}")
            for key, sites in _loads(plan, report)
        },
        line_writes={},
        sectors={},
        boxes={},
        executed={
            opcode: Count(
                count * stages * warps, report.executed(opcode), f"{count:,} x {plural(warps, 'warp')} x {words}"
            )
            for opcode, count in sorted(plan.predictions.instructions.items())
        },
    )


def _loads(plan: ProbePlan, report: LaunchReport) -> Iterator[tuple[str, list[InstructionReport]]]:
    """Return the loads of A, then those of B, in text order; a plain load is identified by its opcode."""
    ldmatrix, plain = list(report.matching("ldmatrix")), list(report.matching("ld.shared"))
    by_ldmatrix = {x.name: x.s2r.by_ldmatrix for x in plan.operands}
    if all(by_ldmatrix.values()):
        sites = iter(ldmatrix)
        for x in plan.operands:
            yield AccessKey.s2r(x.name), list(islice(sites, x.loads(plan.gemm.tiled_mma).total()))
    elif any(by_ldmatrix.values()):
        yield from ((AccessKey.s2r(name), ldmatrix if found else plain) for name, found in by_ldmatrix.items())
    else:
        yield AccessKey.S2R, plain


# One check of a probe: how many registers hold what the MMA needs, and the content of the first wrong one.


Both = tuple[Received, Received]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTrial:
    """One check of a probe and its result; `execution` is None on a GPU."""

    plan: ProbePlan
    device: str
    seed: int
    received: Both
    execution: Execution | None

    @property
    def ok(self) -> bool:
        """True if every register is correct."""
        return all(each.ok for each in self.received)


def try_probe(plan: ProbePlan, probe: Probe, device: str, seed: int, options: Mapping[str, Any]) -> ProbeTrial:
    """Load numbered and random elements; on the CPU also count one load. `options` are the executor's.

    Raises DeviceError if the elements belong on a GPU and torch sees none.
    """
    if device == CUDA:
        require_torch_gpu()
        received = check_registers(plan, probe, seed=seed, framework="torch", device=device)
        return ProbeTrial(plan=plan, device=device, seed=seed, received=received, execution=None)
    reports = []

    def load(a: Any, b: Any) -> Registers:
        registers, report = probe.execute(a, b, **options)
        reports.append(report)
        return registers

    received = check_registers(plan, load, seed=seed)
    execution = Execution(reports[0], options.get("jobs", 1), count_probe(plan, reports[0]))
    return ProbeTrial(plan=plan, device=device, seed=seed, received=received, execution=execution)


def probe_lines(trial: ProbeTrial, probe: Probe) -> list[str]:
    """Return the trial as text."""
    plan, (m, n, k) = trial.plan, trial.plan.extents
    facts = [
        ("kernel", f"{plan.launch.entry}, {probe.artifact.manifest.inputs.gpu_arch}, {probe.artifact.key[:16]}"),
        ("device", trial.device),
        ("operands", f"A {m}x{k} and B {n}x{k}: {plural(plan.gemm.stages, 'stage')} of one CTA's shared memory"),
        ("seed", f"{trial.seed}"),
        *(
            (x.name.upper(), f"{_agreement(found)}; {x.fragment_copy.atom.name} from {x.smem.chosen.name}")
            for x, found in zip(plan.operands, trial.received, strict=True)
        ),
        *(("first wrong", wrong_register(found)) for found in trial.received if not found.ok),
        ("result", "ok, every register holds what the MMA needs" if trial.ok else "wrong"),
    ]
    if trial.execution is None:
        return aligned(facts, indent=0)
    return [*aligned([*facts, ("executed", executed(trial.execution))], indent=0), *count_lines(trial.execution)]


def _agreement(found: Received) -> str:
    return f"{found.agreeing:,} of {found.registers:,} registers"


def wrong_register(found: Received) -> str:
    """Describe the first wrong register, its content, and the expected element."""
    wrong, x = found.first_wrong, found.operand.upper()
    assert wrong is not None
    held = "bits of no element" if wrong.found is None else _element(x, wrong.found)
    return f"{_place(x, wrong)}: found {held}; expected {_element(x, wrong.expected)}"


def _place(x: str, wrong: WrongRegister) -> str:
    value = ",".join(map(str, wrong.place))
    return f"thread {wrong.thread}, register {wrong.register} of stage {wrong.stage}, tCr{x}({value})"


def _element(x: str, element: tuple[int, int]) -> str:
    return f"{x}({element[0]},{element[1]})"


def wrong_probe(trial: ProbeTrial) -> str:
    """Return the error message for a probe that loaded wrong elements."""
    return "; ".join(
        f"{found.registers - found.agreeing:,} of {found.registers:,} registers of {found.operand.upper()} are wrong; "
        f"the first is {wrong_register(found)}"
        for found in trial.received
        if not found.ok
    )


def probe_table(trial: ProbeTrial) -> dict[str, Any]:
    """Return the trial as JSON; values that only the CPU executor knows are null on a GPU."""
    execution = trial.execution
    return {
        "device": trial.device,
        "problem": list(trial.plan.extents),
        "seed": trial.seed,
        "ok": trial.ok,
        "registers": {found.operand: _received_table(found) for found in trial.received},
        "policy": None if execution is None else execution.report.policy,
        "steps": None if execution is None else execution.report.steps,
        **count_tables(execution),
        "as_predicted": None if execution is None else not execution.differing,
    }


def _received_table(found: Received) -> dict[str, Any]:
    wrong = found.first_wrong
    return {
        "total": found.registers,
        "agreeing": found.agreeing,
        "first_wrong": None if wrong is None else asdict(wrong),
    }
