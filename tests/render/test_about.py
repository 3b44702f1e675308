"""The docstring of a kernel: its roles, the pipelines between them with their counts, and its first k-tiles."""

from __future__ import annotations

import ast

import pytest

from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.pipeline import AB
from cutegen.render import render
from cutegen.spec import load_spec
from tests.run import wgmma


def said(found: GemmPlan) -> list[str]:
    """The docstring of the kernel itself."""
    tree = ast.parse(render(found).text)
    (kernel,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "gemm")
    return (ast.get_docstring(kernel) or "").splitlines()


def cells(found: GemmPlan, name: str) -> list[str]:
    """The row of a table that begins with this name, and the row below it."""
    lines = said(found)
    (at,) = (i for i, line in enumerate(lines) if line.startswith(f"{name} "))
    below = [line for line in lines[at + 1 : at + 2] if line.startswith(" ")]
    return " ".join([lines[at], *below]).split()


def planned(**asked: object) -> GemmPlan:
    found = plan(wgmma.spec("said", **asked), "sm_90a")  # type: ignore[arg-type]
    assert isinstance(found, GemmPlan)
    return found


def test_a_producer_and_warpgroups_that_take_turns() -> None:
    found = planned(cta=(64, 64, 64), stages=3, consumers="pingpong")
    assert "Roles: mma (2 groups of 4 warps, in turn), producer (1 warp), idle (3 warps)." in said(found)
    # A stage has (64 + 64) x 64 f16 elements; one of the warpgroups, 4 warps, reads it.
    assert cells(found, "ab")[1:5] == ["producer", "mma", "3", "x"]
    assert "1 (copy of producer), 16384 bytes" in " ".join(cells(found, "ab"))
    assert "4 (each warp of mma)" in " ".join(cells(found, "ab"))
    assert cells(found, "turn")[1:4] == ["mma", "mma", "2"]


def test_ctas_of_a_cluster_release_a_stage_in_each_other() -> None:
    found = planned(cta=(128, 64, 64), cluster=(2, 1))
    assert "16 (each warp of mma in 2 CTAs)" in " ".join(cells(found, "ab"))


@pytest.mark.parametrize(("name", "arch"), [("sm80_hgemm_tn", "sm_80"), ("sm90_hgemm_tn", "sm_90a")])
def test_a_stage_is_filled_again_when_its_k_tile_has_been_read(name: str, arch: str) -> None:
    found = plan(load_spec(name), arch)
    assert isinstance(found, GemmPlan)
    ab = found.loop.pipeline(AB)
    assert ab is not None
    places, multiplied, copied = (cells(found, row)[1:] for row in ("k-tile", "multiply", "copy"))
    assert places[0] == "before"
    assert multiplied[-1] == places[-1]
    # Copies run at most as many k-tiles ahead of what is multiplied as there are stages.
    assert 0 < int(copied[-1]) - int(multiplied[-1]) < ab.stages + 1


def test_plain_copies_are_in_no_group() -> None:
    found = plan(load_spec("simt_sgemm_nt"), "sm_80")
    assert isinstance(found, GemmPlan)
    assert "bar.sync" in cells(found, "ab")
    assert not any("cp.async" in line for line in said(found))
