"""Subject of a verb: a spec, a folder with a built artifact, or a kernel file, possibly edited."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cutegen.api import compile as compile_spec
from cutegen.api import open_folder, read_file, request_of_file
from cutegen.build import Artifact, Cache, build
from cutegen.build.artifact import MANIFEST
from cutegen.cli.options import named_spec
from cutegen.cli.output import complain
from cutegen.contract import ProblemShape
from cutegen.contract.source import KernelSource
from cutegen.errors import RequestError
from cutegen.hardware.targeting import choose_target
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.render import ReadKernel, render
from cutegen.run import Kernel, Probe
from cutegen.spec import PROBE
from cutegen.tuned.answer import plan as make_plan

KERNEL_SUFFIX = ".py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kernel, however it is named; `notes` lists how an edited file differs from its plan.

    `make` finds or compiles the kernel; `source` is its text.
    """

    name: str
    plan: GemmPlan | ProbePlan
    source: Callable[[], KernelSource]
    make: Callable[[], Kernel | Probe]
    notes: tuple[str, ...] = ()

    @property
    def gemm(self) -> GemmPlan:
        """The plan of a GEMM. Raises RequestError for a probe."""
        if isinstance(self.plan, ProbePlan):
            expected = "a GEMM, which can be measured; `cutegen run` runs probes"
            raise RequestError(f'{self.name}: kind: found "{PROBE}"; expected {expected}')
        return self.plan

    def kernel(self) -> Kernel:
        """Return the kernel of a GEMM, built if necessary. Raises RequestError for a probe."""
        assert isinstance(self.gemm, GemmPlan)
        made = self.make()
        assert isinstance(made, Kernel)
        return made

    def probe(self) -> Probe:
        """Return the probe, built if necessary."""
        made = self.make()
        assert isinstance(made, Probe)
        return made


def says_all(words: str) -> bool:
    """Return whether `words` name a folder or a kernel file, which leave nothing open."""
    return os.path.isdir(words) or Path(words).suffix == KERNEL_SUFFIX


def named_subject(words: str, arch: str | None, problem: ProblemShape | None = None) -> Subject:
    """Find what `words` name; choose what a spec leaves open for `arch` and `problem`. Raises CutegenError.

    Differences of an edited file from its plan go to stderr.
    """
    path = Path(words)
    if (folder := _artifact_folder(path)) is not None:
        artifact, found = open_folder(folder)
        subject = _of_file(found, lambda: artifact)
        _check_target(words, arch, subject)
    elif path.suffix == KERNEL_SUFFIX:
        found = read_file(path, arch)
        subject = _of_file(found, lambda: build(request_of_file(found), Cache.from_environment()))
    else:
        return _of_spec(words, arch, problem)
    for note in subject.notes:
        complain("note", f"{words}: {note}")
    return subject


def _of_spec(words: str, arch: str | None, problem: ProblemShape | None) -> Subject:
    spec = named_spec(words)
    plan = make_plan(spec, arch, problem)
    return Subject(
        name=spec.name,
        plan=plan,
        source=lambda: render(plan),
        make=lambda: compile_spec(spec, arch, problem=problem),
    )


def _of_file(found: ReadKernel, artifact: Callable[[], Artifact]) -> Subject:
    plan = found.plan
    opens = Probe if isinstance(plan, ProbePlan) else Kernel
    return Subject(
        name=plan.kernel_name,
        plan=plan,
        source=lambda: found.source,
        make=lambda: opens(artifact()),
        notes=found.notes,
    )


def _artifact_folder(path: Path) -> Path | None:
    """Return the artifact folder: `path` itself or the only one in it; None if `path` is not a folder."""
    if not os.path.isdir(path):  # accepts any name, unlike Path's method
        return None
    if os.path.exists(path / MANIFEST):
        return path
    found = sorted(each.parent for each in path.glob(f"*/{MANIFEST}"))
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} artifacts, {', '.join(x.name for x in found[:3])}" if found else "no artifact"
    raise RequestError(f"{path}: found {what}; expected one folder of `cutegen build --out`, with {MANIFEST} in it")


def _check_target(words: str, arch: str | None, subject: Subject) -> None:
    if arch is not None and (asked := choose_target(arch)) != subject.plan.target:
        was = subject.plan.target.name
        raise RequestError(f"--arch: found {asked.name} together with {words}, which is for {was}; leave it out")
