"""The whole line from a spec on: its plan, its source, an artifact, a kernel that can be called."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from cutegen.build import Artifact, BuildRequest, Cache, build, open_artifact
from cutegen.build.disk import read_file as read_regular
from cutegen.build.record import record
from cutegen.contract import ProblemLike, ProblemShape
from cutegen.contract.source import KernelSource
from cutegen.errors import ArtifactError, RequestError
from cutegen.hardware import Target
from cutegen.hardware.targeting import choose_target
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.plan.explain import plan_json
from cutegen.render import ReadKernel, read_kernel, render
from cutegen.render.kernel_text import LARGEST_BYTES
from cutegen.run import Kernel, Probe
from cutegen.spec import PROBE, GemmSpec, SpecLike, as_spec
from cutegen.spec.write import recorded_name, spec_reference
from cutegen.support.environment import record_file
from cutegen.support.typed_json import parse_object
from cutegen.tuned.answer import plan, plan_by, record_for
from cutegen.tuned.record import Record


def emit(spec: SpecLike, arch: str | None = None, *, problem: ProblemLike | None = None) -> KernelSource:
    """The generated kernel, a standalone CuTe DSL file. Raises SpecError.

    `spec` is a GemmSpec, the name of a shipped spec, or a path. `arch` is the target, as `sm_90` or `h100`; without it
    the present GPU's, else the first that knows the spec's element types. What the spec leaves open is chosen for
    `problem`.
    """
    return render(plan(spec, arch, problem))


def build_request(spec: SpecLike, arch: str | None = None, *, problem: ProblemLike | None = None) -> BuildRequest:
    """Plan and render `spec`: the request that the cache answers, or the compiler. Raises SpecError, RequestError."""
    spec = as_spec(spec)
    target, shape = choose_target(arch, least=spec.needs), ProblemShape.of(problem)
    # Specs that differ only in what is written for people are equal, but their files are not.
    return _build_request(spec, spec.name, spec.description, target, shape, record_for(spec, target, shape))


@lru_cache(maxsize=128)
def _build_request(
    spec: GemmSpec, name: str, description: str, target: Target, problem: ProblemShape | None, kept: Record | None
) -> BuildRequest:
    return request_of(plan_by(kept, spec, target, problem))


def request_of(made: GemmPlan | ProbePlan) -> BuildRequest:
    """Render a plan: the request that the cache answers, or the compiler."""
    return BuildRequest(
        source=render(made),
        target=made.target,
        plan_json=plan_json(made),
        instructions=made.predictions.instructions,
        tile_is_chosen=isinstance(made, GemmPlan) and made.tile_is_chosen,
    )


def read_file(path: Path, arch: str | None = None) -> ReadKernel:
    """A kernel's file, as `emit` wrote it or edited since: the plan of its constants for `arch`. Raises RequestError.

    Nothing of it is run; that the compiler does.
    """
    try:
        content = read_regular(path, LARGEST_BYTES)
        return read_kernel(content.decode(), str(path), arch)
    except ArtifactError as error:
        raise RequestError(str(error)) from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: byte {error.start} is not UTF-8; expected a kernel's text") from error


def open_folder(path: Path) -> tuple[Artifact, ReadKernel]:
    """The artifact in a folder, as `build --out` writes it, with the plan of its kernel's text.

    Raises ArtifactError for what is damaged, or holds a launch that is not its kernel's; RequestError.
    """
    artifact = open_artifact(path)
    found = read_kernel(artifact.source, str(path / "kernel.py"), artifact.manifest.inputs.gpu_arch)
    launch = json.loads(json.dumps(found.plan.launch.to_json()))
    if parse_object(artifact.plan_json.encode(), f"{path}/plan.json").get("launch") != launch:
        raise ArtifactError(f"{path}/plan.json: launch is not that of the constants in kernel.py; build it again")
    return artifact, found


def request_of_file(found: ReadKernel) -> BuildRequest:
    """The request for a kernel's file: its own text, which the key has, and the plan of its constants."""
    asked = replace(request_of(found.plan), source=found.source)
    if not found.notes:
        return asked
    table = {**json.loads(asked.plan_json), "edited": list(found.notes)}
    text = json.dumps(table, indent=2) + "\n"
    return replace(asked, plan_json=text, tile_is_chosen=False, edited=bool(found.edited_code))


def compile(
    spec: SpecLike, arch: str | None = None, *, problem: ProblemLike | None = None, cache: Cache | None = None
) -> Kernel | Probe:
    """The kernel for `spec`, from the cache (the user's unless given) or compiled now; a Probe where it asks for one.

    `spec` is a GemmSpec, the name of a shipped spec, or a path; `arch` as in `emit`.

    With a `problem`, (M, N, K) or (M, N, K, batch), what the spec leaves open is chosen for it; the kernel takes every
    other too. Problems for which the same is chosen share one kernel.

    Raises SpecError when the spec cannot be met, CompileError when the compiler fails, EmissionError when it emitted
    other instructions than planned.
    """
    spec = as_spec(spec)
    kind = Probe if spec.kind == PROBE else Kernel
    asked = build_request(spec, arch, problem=problem)
    _record(spec, asked.target, ProblemShape.of(problem))
    return kind(build(asked, cache or Cache.from_environment()))


def _record(spec: GemmSpec, target: Target, problem: ProblemShape | None) -> None:
    """Add what was asked for to the list of CUTEGEN_RECORD, if there is one."""
    if record_file() is not None:
        reference = spec_reference(spec)
        name = recorded_name(spec) if isinstance(reference, dict) else None
        problems = None if problem is None else [(*problem.extents.values(), problem.batch)]
        record({"name": name, "spec": reference, "problems": problems, "targets": [target.name]})


def compile_gemm(spec: GemmSpec, arch: str | None = None, *, problem: ProblemLike | None = None) -> Kernel:
    """The kernel for a spec that must be a GEMM. Raises SpecError for a probe."""
    if spec.kind == PROBE:
        raise spec.error(
            "kind", found=f'"{spec.kind}"', expected="a GEMM, which can be measured", fix="`cutegen run` runs a probe"
        )
    kernel = compile(spec, arch, problem=problem)
    assert isinstance(kernel, Kernel)
    return kernel


def compile_probe(spec: GemmSpec, arch: str | None = None) -> Probe:
    """The probe of the loads of `spec`, whichever kind it asks for."""
    probe = compile(replace(spec, kind=PROBE), arch)
    assert isinstance(probe, Probe)
    return probe
