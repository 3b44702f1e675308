"""The straight line, from a spec to its plan, to its source, to a kernel that can be called.

A target that is not named is the present GPU's, else sm_80.
"""

from __future__ import annotations

from functools import lru_cache

from cutegen.arch import Target
from cutegen.arch import target as find_target
from cutegen.build import BuildRequest, Cache
from cutegen.build import build as build_artifact
from cutegen.plan import DEFAULT_TARGET, GemmPlan
from cutegen.plan import plan as plan_for
from cutegen.plan.report import plan_json
from cutegen.present_gpu import present_target
from cutegen.render import KernelSource, render
from cutegen.run import Kernel
from cutegen.spec import GemmSpec


def choose_target(arch: str | None = None) -> Target:
    """The target called `arch` (`sm_90`, `sm_90a` or `90a`), else the present GPU's, else sm_80. Raises RequestError."""
    if arch is not None:
        return find_target(arch if arch.startswith("sm_") else f"sm_{arch}")
    return present_target() or find_target(DEFAULT_TARGET)


def plan(spec: GemmSpec, arch: str | None = None) -> GemmPlan:
    """Decide everything that `spec` leaves open. Raises SpecError where the spec cannot be met.

    >>> from cutegen.spec import load_spec
    >>> plan(load_spec("sm80_hgemm_tn"), "sm_80").smem_bytes
    98304
    """
    return plan_for(spec, choose_target(arch))


def emit(spec: GemmSpec, arch: str | None = None) -> KernelSource:
    """The generated kernel: a standalone CuTe DSL file. Raises SpecError."""
    return render(plan(spec, arch))


def build_request(spec: GemmSpec, arch: str | None = None) -> BuildRequest:
    """What the cache is asked for, and the compiler when the cache has it not. Raises SpecError."""
    # Specs that differ only in what is written for people are equal, but their files are not.
    return _build_request(spec, spec.name, spec.description, choose_target(arch))


@lru_cache(maxsize=64)
def _build_request(spec: GemmSpec, name: str, description: str, target: Target) -> BuildRequest:
    plan = plan_for(spec, target)
    return BuildRequest(
        source=render(plan), target=target, plan_json=plan_json(plan), instructions=plan.predictions.instructions
    )


def compile(spec: GemmSpec, arch: str | None = None, *, cache: Cache | None = None) -> Kernel:
    """The kernel for `spec`, from the cache (the user's unless given) or compiled now.

    Raises SpecError when the spec cannot be met, CompileError when the compiler fails, EmissionError when it emitted
    other instructions than planned.
    """
    return Kernel(build_artifact(build_request(spec, arch), cache or Cache.from_environment()))
