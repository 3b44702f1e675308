"""One kernel on this machine: `python -m cutegen.analysis.machine_kernel SPEC TARGET DEVICE ROUNDS`.

Prints a row of `cutegen report --machine` as JSON. A kernel that faults or does not end takes only this process along.
Operands are drawn by NumPy on the host, so they, and a right result, have the same bits on every machine.
"""

import hashlib
import json
import sys
from typing import Any

import numpy as np

from cutegen.api import request_of
from cutegen.bench.measure import launch_times
from cutegen.build import Cache, build
from cutegen.contract.launch import OPERANDS, RESULT
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import dtype
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.run.call.storage import call_tensors
from cutegen.spec import load_spec
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.grouped import LEFT, given_by
from cutegen.verify.reference import histogram, steps, steps_between
from cutegen.verify.trial import CPU, grouped_extras, small_problem

TIMED = ProblemShape(4096, 4096, 4096)
"""The problem whose launches are timed."""
SEED = 1
GROUPS = 3


def kernel_row(planned: GemmPlan, kernel: Kernel, device: str, rounds: int) -> dict[str, Any]:
    """Return a kernel's facts, its counts or times, and the bits of its result for a small problem."""
    manifest, problem = kernel.artifact.manifest, small_problem(planned)
    row: dict[str, Any] = {
        "family": planned.family,
        "instruction": str(planned.atom.instruction),
        "gpu_arch": manifest.inputs.gpu_arch,
        "tile": list(planned.cta_tile),
        "key": kernel.artifact.key,
        "registers": manifest.registers,
        "spill_bytes": manifest.spill_bytes,
        "emitted_as_planned": not manifest.warnings,
        "problem": problem.table(),
        "not_measured": {},
    }
    operands, given = _operands(kernel, problem)
    if device == CPU:
        report = kernel.execute(**operands)
        a, b, out = (operands[name] for name in ("a", "b", "out"))
        extras = {name: x for name, x in operands.items() if name not in ("a", "b", "out")}
        counts = count_launch(planned, kernel.call_size(a, b, out, **extras), report, given)
        differing = {name: [each.predicted, each.measured] for name, each in counts.differing().items()}
        row |= {"executed_as_planned": not differing, "differing": differing}
        row |= {"violations": len(report.violations), "conventions": len(report.conventions)}
        row["not_measured"] |= dict.fromkeys(("times", "torch"), "no GPU: the executor ran it")
    else:
        row["not_measured"] |= dict.fromkeys(("executed", "violations"), "a GPU does not count")
        operands = _run_on_gpu(kernel, operands, device)
    row["bits"] = _bits(planned, kernel, operands)
    if device != CPU:
        row |= _beside_torch(kernel, operands, device)
        row |= _times(kernel, device, rounds)
    return row


def _operands(kernel: Kernel, problem: ProblemShape) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the arguments of a call in host memory, by name, and the ends or sizes of its groups."""
    groups = kernel.contract.groups
    drawn: dict[str, Any] = {"seed": SEED, "groups": None if groups is None else GROUPS}
    a, b, out = random_operands(kernel.contract, problem.m, problem.n, problem.k, **drawn)
    extras, given = random_extras(kernel.contract, problem.m, problem.n, k=problem.k, **drawn), ()
    if groups is not None:
        each = problem.extents[groups.of] // (GROUPS if groups.layout == "packed" else 1)
        given = tuple(given_by(groups, (each, 0, each)).tolist())
        extras |= grouped_extras(kernel.contract, given, a, b, {**extras, "out": out})
    return {"a": a, "b": b, "out": out, **extras}, given


def _run_on_gpu(kernel: Kernel, operands: dict[str, Any], device: str) -> dict[str, Any]:
    """Run the kernel on copies of the operands on the GPU; return the operands with what it wrote, in host memory."""
    import torch

    tensors = {tensor.name: tensor for tensor in call_tensors(kernel.contract).values()}
    there = {name: _moved(x, tensors[name].dtype.torch_name, device) for name, x in operands.items() if name in tensors}
    scalars = {name: x for name, x in operands.items() if name not in tensors}
    kernel(**there, **scalars)
    torch.cuda.synchronize()
    for name, tensor in tensors.items():
        if tensor.written:
            carrier = operands[name].dtype
            operands[name] = there[name].cpu().view(getattr(torch, carrier.name)).numpy()
    return operands


def _moved(x: Any, torch_name: str, device: str) -> Any:
    """Return a copy of a NumPy array as torch's type on a device, with its strides."""
    import torch

    host = torch.from_numpy(x)
    element = getattr(torch, torch_name)
    host = host if host.dtype == element else host.view(element)
    return torch.empty_strided(host.shape, host.stride(), dtype=element, device=device).copy_(host)


def _bits(planned: GemmPlan, kernel: Kernel, operands: dict[str, Any]) -> dict[str, Any]:
    """Return how the result compares with float64, and a digest of its bits."""
    extras = {name: x for name, x in operands.items() if name not in ("a", "b", "out")}
    element, out = kernel.contract.tensor(RESULT).dtype, operands["out"]
    expected = expected_outcome(
        kernel.contract, operands["a"], operands["b"], extras, accumulator=planned.atom.c_dtype.name, left=LEFT
    ).result
    found = compare(out, expected, dtype=element)
    return {
        "ok": found.ok,
        "wrong": found.wrong,
        "rel_error": found.rel_error if np.isfinite(found.rel_error) else None,
        "steps_from_float64": histogram(steps(out, expected.value, element)),
        "sha256": hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest(),
    }


def _beside_torch(kernel: Kernel, operands: dict[str, Any], device: str) -> dict[str, Any]:
    """Return how many bits differ from those of `torch.matmul`, where that computes the same."""
    import torch

    contract, types = kernel.contract, {kernel.contract.tensor(x).dtype for x in (*OPERANDS, RESULT)}
    if len(types) > 1 or contract.epilogue or contract.groups is not None or contract.factors:
        return {"torch": None}
    (element,) = types
    if element not in ("f16", "bf16", "f32"):
        return {"torch": None}
    a, b = (_moved(operands[x], dtype(element).torch_name, device) for x in OPERANDS)
    theirs = torch.matmul(a, b).cpu().view(getattr(torch, operands["out"].dtype.name)).numpy()
    differing = steps_between(operands["out"], theirs, element)
    return {"torch": {"differing": int((differing > 0).sum()), "most_steps": int(differing.max(initial=0))}}


def _times(kernel: Kernel, device: str, rounds: int) -> dict[str, Any]:
    """Return the times of launches of a large problem; none of groups, whose time depends on their sizes."""
    contract = kernel.contract
    if contract.groups is not None:
        return {"times": None}
    where: dict[str, Any] = {"seed": SEED, "framework": "torch", "device": device}
    a, b, out = random_operands(contract, TIMED.m, TIMED.n, TIMED.k, **where)
    extras = random_extras(contract, TIMED.m, TIMED.n, k=TIMED.k, **where)
    found = launch_times({"kernel": lambda: kernel(a, b, out=out, **extras)}, rounds=rounds)["kernel"]
    times = {"median_us": found.median_us, "min_us": found.min_us, "max_us": found.max_us, "rounds": found.rounds}
    return {"times": {"problem": TIMED.table(), **times}}


def main(name: str, target: str, device: str, rounds: str) -> None:
    """Print the row of a shipped spec."""
    planned = plan(load_spec(name), target)
    assert isinstance(planned, GemmPlan)
    kernel = Kernel(build(request_of(planned), Cache.from_environment()))
    print(json.dumps(kernel_row(planned, kernel, device, int(rounds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
