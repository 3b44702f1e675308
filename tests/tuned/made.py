"""Records for tests, made of nothing that was measured."""

from __future__ import annotations

from dataclasses import replace

from cutegen.bench.grouped import GroupSizes
from cutegen.contract.problem import ProblemShape
from cutegen.spec import GemmSpec, Operand, Problem
from cutegen.tune.jobs import Compiled, Measured, Timer
from cutegen.tune.measuring import measure_job
from cutegen.tune.pick_winner import record_of
from cutegen.tune.tune_requests import compile_jobs, measure_job_of, tune_request_of
from cutegen.tuned.record import DeviceFacts, Record

DEVICE = "NVIDIA H200"
TARGET = "sm_90"
PROBLEM = ProblemShape(1000, 4096, 4096)


def open_spec(name: str = "open_tn", align: int | None = None) -> GemmSpec:
    """f16 TN, all else open."""
    row = Operand("f16", "k", align)
    return GemmSpec(problem=Problem(a=row, b=row, c=Operand("f16", "n", align)), name=name)


def measured(
    spec: GemmSpec, problem: ProblemShape = PROBLEM, seed: int = 0, most: int = 6, sizes: GroupSizes | None = None
) -> Measured:
    """What a stand-in timer finds; every candidate counts as compiled."""
    timer = Timer(kind="stand-in", seed=seed)
    ask = tune_request_of(spec, TARGET, problem, DEVICE, most=most, timer=timer, sizes=sizes)
    jobs = compile_jobs(ask)
    compiled = {job.id: Compiled(id=job.id, key=job.id * 2) for job in jobs}
    found = measure_job(measure_job_of(ask, jobs, compiled))
    return replace(found, device=DeviceFacts(name=DEVICE, multiprocessors=132))


def with_winner(found: Measured, index: int) -> Record:
    """The record of a measurement which that candidate won."""
    record = record_of(replace(found, winner=found.results[index].name))
    assert record is not None
    return record
