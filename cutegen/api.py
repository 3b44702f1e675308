"""The main functions on a spec: its plan, its source, an artifact, a kernel to call."""

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
from cutegen.plan.gemm_plan import plan_json
from cutegen.plan.kernel.pipeline import initial_counts
from cutegen.render import ReadKernel, read_kernel, render
from cutegen.render.edited import LARGEST_BYTES
from cutegen.run import Kernel, Probe
from cutegen.spec import PROBE, GemmSpec, SpecLike, as_spec
from cutegen.spec.file import recorded_name, spec_reference
from cutegen.support.environment import record_file
from cutegen.support.typed_json import parse_object
from cutegen.tuned.answer import plan, plan_by, record_for
from cutegen.tuned.record import Record


def emit(spec: SpecLike, arch: str | None = None, *, problem: ProblemLike | None = None) -> KernelSource:
    """Return the generated kernel, a standalone CuTe DSL file. Raises SpecError.

    `spec` is a GemmSpec, the name of a shipped spec, or a path. `arch` is the target, such as `sm_90` or `h100`; the
    default is the present GPU's, else the first that supports the spec's element types. Open parts of the spec are
    chosen for `problem`.
    """
    return render(plan(spec, arch, problem))


def build_request(spec: SpecLike, arch: str | None = None, *, problem: ProblemLike | None = None) -> BuildRequest:
    """Plan and render `spec`: the request for the cache or the compiler. Raises SpecError, RequestError."""
    spec = as_spec(spec)
    target, shape = choose_target(arch, least=spec.needs), ProblemShape.of(problem)
    # Specs that differ only in text for people are equal, but their files are not.
    return _build_request(spec, spec.name, spec.description, target, shape, record_for(spec, target, shape))


@lru_cache(maxsize=128)
def _build_request(
    spec: GemmSpec, name: str, description: str, target: Target, problem: ProblemShape | None, kept: Record | None
) -> BuildRequest:
    return request_of(plan_by(kept, spec, target, problem))


def request_of(made: GemmPlan | ProbePlan) -> BuildRequest:
    """Render a plan: the request for the cache or the compiler."""
    return BuildRequest(
        source=render(made),
        target=made.target,
        plan_json=plan_json(made),
        instructions=made.predictions.instructions,
        mbarriers=initial_counts(made.loop.pipelines) if isinstance(made, GemmPlan) else None,
        tile_is_chosen=isinstance(made, GemmPlan) and made.tile_is_chosen,
    )


def read_file(path: Path, arch: str | None = None) -> ReadKernel:
    """Return a kernel file, as `emit` wrote it or as edited, and the plan of its constants. Raises RequestError.

    Nothing of it is executed; the compiler does that.
    """
    try:
        content = read_regular(path, LARGEST_BYTES)
        return read_kernel(content.decode(), str(path), arch)
    except ArtifactError as error:
        raise RequestError(str(error)) from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: byte {error.start} is not UTF-8; expected a kernel's text") from error


def open_folder(path: Path) -> tuple[Artifact, ReadKernel]:
    """Return the artifact in a folder that `build --out` wrote, with the plan of its kernel's text.

    Raises ArtifactError if it is damaged or its launch is not that of its kernel; RequestError.
    """
    artifact = open_artifact(path)
    found = read_kernel(artifact.source, str(path / "kernel.py"), artifact.manifest.inputs.gpu_arch)
    launch = parse_object(json.dumps(found.plan.launch.to_json()), "launch")
    if parse_object(artifact.plan_json.encode(), f"{path}/plan.json").get("launch") != launch:
        raise ArtifactError(f"{path}/plan.json: launch does not match the constants in kernel.py; rebuild it")
    return artifact, found


def request_of_file(found: ReadKernel) -> BuildRequest:
    """Return the request for a kernel file: its own text, which is in the key, and the plan of its constants."""
    asked = replace(request_of(found.plan), source=found.source)
    if not found.notes:
        return asked
    table = {**parse_object(asked.plan_json, "plan.json"), "edited": list(found.notes)}
    text = json.dumps(table, indent=2) + "\n"
    return replace(asked, plan_json=text, tile_is_chosen=False, edited=bool(found.edited_code))


def compile(
    spec: SpecLike, arch: str | None = None, *, problem: ProblemLike | None = None, cache: Cache | None = None
) -> Kernel | Probe:
    """Return the kernel for `spec`, from the cache (default: the user's) or compiled; a Probe if the spec is one.

    `spec` is a GemmSpec, the name of a shipped spec, or a path; `arch` as in `emit`.

    With a `problem`, (M, N, K) or (M, N, K, batch), open parts of the spec are chosen for it; the kernel accepts every
    other problem as well. Problems with the same choices share one kernel.

    Raises SpecError if the spec cannot be met, CompileError if the compiler fails, EmissionError if it emitted other
    instructions than planned.
    """
    spec = as_spec(spec)
    kind = Probe if spec.kind == PROBE else Kernel
    asked = build_request(spec, arch, problem=problem)
    _record(spec, asked.target, ProblemShape.of(problem))
    return kind(build(asked, cache or Cache.from_environment()))


def _record(spec: GemmSpec, target: Target, problem: ProblemShape | None) -> None:
    """Add the request to the list of CUTEGEN_RECORD, if there is one."""
    if record_file() is not None:
        reference = spec_reference(spec)
        name = recorded_name(spec) if isinstance(reference, dict) else None
        problems = None if problem is None else [(*problem.extents.values(), problem.batch)]
        record({"name": name, "spec": reference, "problems": problems, "targets": [target.name]})


def compile_gemm(spec: GemmSpec, arch: str | None = None, *, problem: ProblemLike | None = None) -> Kernel:
    """Return the kernel for a spec that must be a GEMM. Raises SpecError for a probe."""
    if spec.kind == PROBE:
        raise spec.error(
            "kind", found=f'"{spec.kind}"', expected="a GEMM, which can be measured", fix="`cutegen run` runs probes"
        )
    kernel = compile(spec, arch, problem=problem)
    assert isinstance(kernel, Kernel)
    return kernel


def compile_probe(spec: GemmSpec, arch: str | None = None) -> Probe:
    """Return the probe of the loads of `spec`, whatever its kind."""
    probe = compile(replace(spec, kind=PROBE), arch)
    assert isinstance(probe, Probe)
    return probe
