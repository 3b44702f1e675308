"""A damaged entry costs one build: it never ends in a traceback, never stops others, and gives no other kernel."""

from __future__ import annotations

import ast
import logging
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import cutegen
from cutegen.build import Artifact, BuildRequest, Cache, build, explain_miss, open_artifact
from cutegen.errors import ArtifactError
from cutegen.hardware import target
from cutegen.plan.gemm_plan import plan_json
from cutegen.run.kernel import Kernel
from cutegen.run.probe import Probe
from tests.build.conftest import stand_in_cubin, stand_in_ptx, stand_in_request
from tests.build.faults import FAULTS, FILES, Fault, plant, scrub

ENTRY = "sm80_hgemm_tn_0"
ROUNDS = 4  # of the faults that draw a place or a value


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> BuildRequest:
    """A GEMM as far as Python sees it, with a contract that can be launched; the compiler stands in."""
    calls = tmp_path_factory.mktemp("calls") / "calls.txt"
    plan = plan_json(cutegen.plan(cutegen.load_spec("sm80_hgemm_tn"), "sm_80"))
    ptx, cubin = stand_in_ptx(ENTRY), stand_in_cubin(ENTRY)
    return stand_in_request(calls, plan_json=plan, entry=ENTRY, ptx=ptx, cubin=cubin)


@pytest.fixture(scope="module")
def other_request(tmp_path_factory: pytest.TempPathFactory) -> BuildRequest:
    """Another kernel's."""
    return stand_in_request(tmp_path_factory.mktemp("calls") / "calls.txt")


@pytest.fixture(scope="module")
def built(request_: BuildRequest, other_request: BuildRequest, tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """A cache with both, which nobody damages."""
    cache = Cache(tmp_path_factory.mktemp("built"))
    build(request_, cache)
    build(other_request, cache)
    return cache


@pytest.fixture
def whole(request_: BuildRequest, built: Cache, cache: Cache) -> Iterator[Artifact]:
    """The GEMM's entry in a cache. What is left of it is removed without pytest, which cannot remove deep folders."""
    shutil.copytree(built.directory, cache.directory)
    yield Artifact(cache.path(request_.inputs.key), open_artifact(cache.path(request_.inputs.key)).content, hit=False)
    scrub(cache.directory)


def file_of(fault: Fault) -> str:
    """The file that the fault is in, as its name begins."""
    return fault.name.partition(":")[0]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_in_the_cache_costs_one_build(
    fault: Fault,
    whole: Artifact,
    request_: BuildRequest,
    other_request: BuildRequest,
    cache: Cache,
    rng: random.Random,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fault.plant(whole.path, rng)
    assert other_request.inputs.key in {entry.key for entry in cache.entries()}
    assert cache.info().problem == ""
    assert explain_miss(cache, replace(other_request, target=target("sm_86"))).nearest is not None
    assert build(other_request, cache).hit
    again = build(request_, cache)
    assert again.hit == (fault.openable or fault.of_plan)
    assert (again.ptx, again.plan_json, again.cubin) == (whole.ptx, whole.plan_json, whole.cubin)
    assert Kernel(again).contract.threads == 128
    assert build(request_, cache).hit
    assert cache.info().quarantined == (0 if again.hit else 1)
    assert all("\n" not in message for message in caplog.messages)
    if (file := file_of(fault)) in FILES:
        [record] = caplog.records
        assert (record.name, record.levelno) == ("cutegen.build", logging.WARNING)
        assert file in record.getMessage()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_verify_sets_a_fault_aside(fault: Fault, whole: Artifact, cache: Cache, rng: random.Random) -> None:
    fault.plant(whole.path, rng)
    damages = cache.verify()
    assert len(damages) == (0 if fault.openable or fault.of_plan else 1)
    assert all(damage.set_aside for damage in damages)
    assert cache.verify() == ()
    assert bool(cache.clear().failures) == (fault.name == "deep")


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_in_a_folder_is_refused_in_one_line(
    fault: Fault, whole: Artifact, tmp_path: Path, rng: random.Random
) -> None:
    for number in range(ROUNDS if fault.name.startswith("resealed") else 1):
        copy = shutil.copytree(whole.path, tmp_path / "copies" / str(number))
        assert Kernel.open(copy).contract.threads == 128
        fault.plant(copy, rng)
        if fault.openable:
            Kernel.open(copy)
            continue
        for opened in (Kernel, Probe):
            with pytest.raises(ArtifactError) as refused:
                opened.open(copy)
            message = str(refused.value)
            assert message.startswith(str(copy))
            assert message.isprintable()
            assert len(message) < 1000
            assert file_of(fault) in message or file_of(fault) not in FILES
        scrub(copy)


def test_drawn_faults_never_stop_a_build(
    request_: BuildRequest, cache: Cache, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        artifact = build(request_, cache)
        assert Kernel(artifact).contract.entry == ENTRY
        fault = plant(artifact.path, rng)
        print(fault)
    assert build(request_, cache).ptx == stand_in_ptx(ENTRY)
    scrub(cache.directory)


def test_a_plan_of_another_launch_is_not_that_of_the_request(
    whole: Artifact, request_: BuildRequest, cache: Cache, rng: random.Random
) -> None:
    """The key covers the kernel's text and not plan.json: a look-up must not take the launch contract from there."""
    (fault,) = (each for each in FAULTS if each.name == "resealed: launch_value")
    fault.plant(whole.path, rng)
    found = cache.lookup(request_)
    assert found is not None
    assert found.plan_json == request_.plan_json != open_artifact(whole.path).plan_json


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "/dev/null", "/proc/self/mem", ""])
def test_what_is_no_folder_at_all_is_refused(path: str) -> None:
    with pytest.raises(ArtifactError):
        Kernel.open(path)


def test_every_read_of_the_build_goes_through_one_function() -> None:
    """What opens a file otherwise writes it, or reads the log of a process of its own."""
    folder = Path(cutegen.__file__).parent / "build"
    opened = {
        (path.name, _name(call))
        for path in folder.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and _name(call) in ("open", "read_bytes", "read_text")
    }
    assert opened == {
        ("artifact.py", "open"),  # Content.write
        ("compiler.py", "open"),  # the log
        ("disk.py", "open"),  # of others, and to lock a folder
    }


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
