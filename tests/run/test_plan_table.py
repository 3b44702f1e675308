"""A launch contract from a file is complete and possible, or refused with the address of what is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import cutegen
from cutegen.contract.launch import REGISTERS, LaunchContract
from cutegen.errors import ArtifactError
from cutegen.run.kernel import Kernel
from cutegen.run.plan_table import check_launch
from cutegen.spec import PROBE, shipped_specs

MakeContract = Callable[..., LaunchContract]
Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("name", shipped_specs())
def test_what_a_plan_makes_is_launched(name: str) -> None:
    plan = cutegen.plan(cutegen.load_spec(name))
    contract = LaunchContract.from_json(json.loads(json.dumps(plan.launch.to_json())))
    assert contract == plan.launch
    check_launch(contract, "plan.json", tuple(REGISTERS.values()) if plan.spec.kind == PROBE else ("c",))


@pytest.mark.parametrize(
    ("change", "address"),
    [
        (lambda t: t.update(cta_tile=[0, 64]), "cta_tile[0]: found 0; expected 1 to 8,192"),
        (lambda t: t.update(cta_tile=[64, -1]), "cta_tile[1]: found -1; expected 1 to 8,192"),
        (lambda t: t.update(threads=1025), "threads: found 1025; expected 1 to 1,024"),
        (lambda t: t.update(dynamic_smem_bytes=-1), "dynamic_smem_bytes: found -1; expected 0 to 262,144"),
        (lambda t: t.update(ctas_per_multiprocessor=0), "ctas_per_multiprocessor: found 0; expected 1 to 32"),
        (lambda t: t.update(entry="a b"), "entry: found 'a b'; expected an identifier of PTX"),
        (lambda t: t.update(entry="other"), "entry: found other; expected gemm"),
        (lambda t: t.update(tensors=t["tensors"][:2]), "tensors: found ('a', 'b'); expected a, b, c, then those of"),
        (lambda t: t.update(tensors=t["tensors"][::-1]), "tensors: found ('c', 'b', 'a')"),
        (lambda t: t.update(given=t["tensors"]), "given: found ('a', 'b', 'c'); expected nothing, or b"),
        (lambda t: t.update(scalars=["gamma"]), "scalars: found ['gamma']; expected those of alpha, beta"),
        (lambda t: t.update(scalars=["beta", "beta"]), "scalars: found ('beta', 'beta'); expected each name once"),
        (
            lambda t: t.update(split={"slices": 0, "bytes_per_slice": 4, "atomics": False}),
            "split.slices: found 0; expected 1 to 65,535",
        ),
        (
            lambda t: t.update(split={"slices": 2, "bytes_per_slice": -1, "atomics": False}),
            "split.bytes_per_slice: found -1; expected 0 to 1,073,741,824",
        ),
        (lambda t: t.update(spread=True), "spread: found True; expected false with clusters, and without persistent"),
        (
            lambda t: t.update(cluster=[4, 4]),
            "cluster: found (4, 4); expected extents of at least 1, up to 8 CTAs in total",
        ),
        (lambda t: t.update(cluster=[2, 0]), "cluster: found (2, 0)"),
        (lambda t: t.update(cluster=[2]), "cluster: found [2]; expected a list of 2"),
        (
            lambda t: t.update(cluster=[1, 2], split={"slices": 3, "bytes_per_slice": 4, "atomics": False}),
            "cluster[1]: found 2; expected a divisor of the 3 slices of K",
        ),
        (lambda t: t["tensors"][0].update(dtype="f17"), "tensors[0].dtype: found 'f17'; expected one of"),
        (lambda t: t["tensors"][1].update(modes=["k", "n"]), "tensors[1].modes: found ('k', 'n')"),
        (lambda t: t["tensors"][2].update(major="k"), "tensors[2].major: found 'k'; expected one of the modes, m, n"),
        (lambda t: t["tensors"][0].update(block=[1, 128]), "tensors[0].block: found (1, 128); expected rows and K of"),
        (lambda t: t["tensors"][0].update(block_elems=0), "tensors[0].block_elems: found 0; expected 1, or the"),
        (lambda t: t["tensors"][0].update(align_bytes=0), "tensors[0].align_bytes: found 0; expected a power of two"),
        (lambda t: t["tensors"][0].update(align_bytes=12), "tensors[0].align_bytes: found 12"),
        (lambda t: t["parameters"][0].update(name="z"), "parameters[0].name: found 'z'; expected one of"),
        (lambda t: t["parameters"][0].update(type="i32"), "parameters[0].type: found 'i32'; expected ptr for a"),
        (lambda t: t.update(maps=[{"name": "z", "box": [8, 8], "swizzle_bytes": 0}]), "maps[0].name: found 'z'"),
        (lambda t: t.update(maps=[{"name": "a", "box": [8, 0], "swizzle_bytes": 0}]), "maps[0].box: found (8, 0)"),
        (lambda t: t.update(maps=[{"name": "a", "box": [8, 8], "swizzle_bytes": 1}]), "maps[0].swizzle_bytes: found 1"),
        (lambda t: t.pop("epilogue"), "epilogue: found nothing; expected a value"),
        (lambda t: t["tensors"][1].update(modes="nk"), "tensors[1].modes: found 'nk'; expected a list"),
    ],
)
def test_what_cannot_be_launched_is_refused_with_its_address(
    change: Change, address: str, artifact: Any, contract: MakeContract
) -> None:
    opened = artifact(contract())
    Kernel(opened)
    table = json.loads(opened.plan_json)
    change(table["launch"])
    opened.plan_json = json.dumps(table)
    with pytest.raises(ArtifactError) as refused:
        Kernel(opened)
    assert str(refused.value).startswith(f"somewhere: plan.json: launch.{address}")


def test_a_contract_made_by_hand_is_held_to_the_same(contract: MakeContract) -> None:
    with pytest.raises(ArtifactError, match=r"^here: launch\.threads: found 0; expected 1 to 1,024$"):
        check_launch(replace(contract(), threads=0), "here")
