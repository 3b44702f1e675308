"""One check of a probe: how many registers hold what the MMA needs, and the content of the first wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cutegen.plan import ProbePlan
from cutegen.run import Probe
from cutegen.run.probe import Registers
from cutegen.support.columns import aligned
from cutegen.support.words import plural
from cutegen.verify.probe_check import Received, WrongRegister, check_registers
from cutegen.verify.probe_counts import count_probe
from cutegen.verify.reference import require_torch_gpu
from cutegen.verify.trial import CUDA, Execution
from cutegen.verify.trial_report import count_lines, count_tables, executed

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
        """Return whether every register is correct."""
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
