"""The run-only set: pinned, small, and enough to run a pack in a fresh environment."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder  # setuptools' own finder stops replacing distutils once it is asked for pip
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cutegen.build import Cache
from cutegen.pack.building import build_all, make_pack
from cutegen.pack.kernel_list import combinations
from cutegen.spec import GemmSpec, Operand, Problem, Tile
from scripts.run_only import REQUIREMENTS, make_environment, run_pack, summary

TARGETS = ("sm_80", "sm_86", "sm_90")
NOT_TO_RUN = {"nvidia-cutlass-dsl", "torch", "tensor-layouts", "jinja2", "typer", "rich", "cuda-python"}
LARGEST_BYTES = 200_000_000


def requirements() -> list[Requirement]:
    return [Requirement(line) for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]


def test_the_set_is_pinned_and_has_nothing_that_only_compiles() -> None:
    assert {each.name for each in requirements()} & NOT_TO_RUN == set()
    for each in requirements():
        assert [specifier.operator for specifier in each.specifier] == ["=="], each


def three_specs() -> list[GemmSpec]:
    """Small ones, which compile fast: products of f16, f16 to f32, and s8."""
    types = {"f16": ("f16", 32), "f32": ("f16", 32), "s32": ("s8", 64)}
    return [
        GemmSpec(
            name=f"to_{c}",
            family="sm80",
            problem=Problem(a=Operand(ab, "k"), b=Operand(ab, "k"), c=Operand(c, "n")),
            tile=Tile(cta=(64, 64, k), stages=2),
        )
        for c, (ab, k) in types.items()
    ]


@pytest.mark.slow
@pytest.mark.dsl
@pytest.mark.skipif(PathFinder.find_spec("hatchling") is None, reason="needs hatchling, which builds the wheel")
@pytest.mark.skipif(PathFinder.find_spec("pip") is None, reason="needs pip, which installs the wheel")
def test_a_fresh_environment_of_it_runs_a_pack(
    kernels: Cache, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcomes = build_all(combinations(three_specs(), archs=TARGETS), kernels, jobs=2)
    make_pack(tmp_path / "model.cutepack", outcomes)
    found = run_pack(make_environment(tmp_path), tmp_path / "model.cutepack")
    assert len(found["ran"]) == 9
    assert found["worst"] < 2**-11
    assert found["called"]
    assert {name.lower() for name in found["installed"]} == {"cutegen", *(each.name for each in requirements())}
    assert {name.lower() for name in found["imported"]} & {name.replace("-", "_") for name in NOT_TO_RUN} == set()
    assert found["planner"].startswith("cutegen.plan needs ")
    assert "pip install cutegen" in found["planner"]
    assert found["bytes"] < LARGEST_BYTES
    record_property("run-only environment", summary(found))
