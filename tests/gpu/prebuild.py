"""Builds the kernels of tests/gpu/cases.py where there is the CuTe DSL, for a GPU machine where there may be none.

    python -m tests.gpu.prebuild OUT_DIR [--arch sm_90] [--jobs 16] [--only PREFIX] [--all] [--probes]

OUT_DIR/NAME is the artifact of each case and of each mistake that is planted in one. With --all, OUT_DIR/cache
becomes a cache (CUTEGEN_CACHE_DIR) that also holds what tests/run/test_gpu.py and test_gpu_wgmma.py compile; it is used
where the same version of the DSL is installed. With --probes, OUT_DIR/probes/NAME are the artifacts of the matrix of
probes instead, which OUT_DIR/cache holds too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from cutegen.api import build_request
from cutegen.build import Artifact, BuildRequest, Cache, build
from cutegen.hardware import MMA_ATOMS
from cutegen.spec import GemmSpec
from tests.build.warm import warm_compiler
from tests.gpu.cases import CASES, MISTAKES, OF_TESTS, Mistake
from tests.plan.probes import REPEATS, matrix

PROBES = "probes"


def main() -> int:
    """Build everything; 0 when each kernel's instructions are the predicted ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--all", action="store_true", help="also what the tests on a GPU compile")
    parser.add_argument(
        "--probes", action="store_true", help="the matrix of probes, for tests.gpu.probes, and no other"
    )
    parser.add_argument("--only", default="", metavar="PREFIX", help="cases whose names begin so: counters_, sanitize_")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    start = time.monotonic()
    cache = Cache(arguments.out_dir / "cache")
    if arguments.probes:
        return build_probes(arguments.out_dir / PROBES, cache, arguments.arch)
    warnings, each = 0, partial(built, cache=cache, arch=arguments.arch)
    cases = {name: spec for name, spec in CASES.items() if name.startswith(arguments.only)}
    mistakes = {name: mistake for name, mistake in MISTAKES.items() if mistake.case in cases}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for_tests = pool.map(each, OF_TESTS if arguments.all else ())
        for name, artifact in zip(cases, pool.map(each, cases.values()), strict=True):
            keep(artifact, arguments.out_dir / name)
            warnings += len(artifact.manifest.warnings)
            print(f"{name}: {artifact.manifest.registers} registers", *artifact.manifest.warnings, sep="; ")
        for name, artifact in zip(mistakes, pool.map(partial(planted, cache=cache), mistakes.values()), strict=True):
            keep(artifact, arguments.out_dir / name)
        others = len(mistakes) + len(list(for_tests))
    taken_s = time.monotonic() - start
    print(f"{len(cases)} artifacts in {arguments.out_dir} and {others} more, {taken_s:.0f} s, {warnings} warnings")
    return 1 if warnings else 0


def built(spec: GemmSpec, cache: Cache, arch: str) -> Artifact:
    """The kernel of a spec."""
    return build(build_request(spec, arch), cache)


def planted(mistake: Mistake, cache: Cache) -> Artifact:
    """The kernel of a case with a mistake in its text."""
    return build(with_mistake(mistake), cache)


def with_mistake(mistake: Mistake) -> BuildRequest:
    """A case's kernel with a mistake in its text. It is of family sm90, and so for sm_90."""
    request = build_request(CASES[mistake.case], "sm_90")
    assert request.source.text.count(mistake.before) == 1, f"{mistake} is not to be planted"
    text = request.source.text.replace(mistake.before, mistake.after)
    return replace(request, source=replace(request.source, text=text))


def build_probes(directory: Path, cache: Cache, arch: str) -> int:
    """Every probe of the matrix; 0 when each kernel's instructions are the predicted ones."""
    specs = [spec for atom in MMA_ATOMS for repeat in REPEATS for spec in matrix(atom, repeat)]
    with warm_compiler() as warm, warm.used():
        artifacts = [build(build_request(spec, arch), cache) for spec in specs]
    for spec, artifact in zip(specs, artifacts, strict=True):
        keep(artifact, directory / spec.name)
    warnings = sum(len(artifact.manifest.warnings) for artifact in artifacts)
    print(f"{len(artifacts)} probes in {directory}, {warnings} warnings")
    return 1 if warnings else 0


def keep(artifact: Artifact, target: Path) -> None:
    """Copy an artifact to where the measuring scripts find it."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(artifact.path, target)


if __name__ == "__main__":
    sys.exit(main())
