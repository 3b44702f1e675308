"""Compiles one candidate; every failure is a result, since errors do not travel between processes."""

from __future__ import annotations

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import CutegenError
from cutegen.hardware import target
from cutegen.tune.jobs import Compiled, CompileJob, spec_of_json
from cutegen.tuned.overlay import settled_plan


def compile_job(job: CompileJob) -> Compiled:
    """Return the candidate's artifact in this machine's cache, found or compiled; or why there is none."""
    try:
        asked, settled = spec_of_json(job.asked, job.name), spec_of_json(job.settled, job.name)
        made = settled_plan(asked, settled, target(job.target), job.problem)
        artifact = build(request_of(made), Cache.from_environment())
    except CutegenError as error:
        return Compiled(id=job.id, why=" ".join(str(error).split()))
    return Compiled(id=job.id, key=artifact.key)
