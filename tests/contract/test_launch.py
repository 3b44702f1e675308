"""The launch contract without a launcher: operands by role, tensor maps, persistent CTAs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cutegen.contract.launch import (
    CallSize,
    LaunchContract,
    SplitContract,
    Strides,
    TensorContract,
    Workspace,
    gemm_parameters,
)
from cutegen.contract.problem import ProblemShape
from cutegen.contract.tensor_map import TensorMapContract, TensorMapFields
from cutegen.errors import ArtifactError, RequestError
from cutegen.run.plan_table import check_launch

TENSORS = (
    TensorContract("a", "f16", ("m", "k"), "k", 16),
    TensorContract("b", "f16", ("n", "k"), "n", 16),
    TensorContract("c", "f32", ("m", "n"), "n", 16),
    TensorContract("bias", "f32", ("n",), "n", 4),
)
MAPS = (
    TensorMapContract("a", (64, 128), 128),
    TensorMapContract("b", (32, 64), 64),
    TensorMapContract("c", (8, 64), 0),
)
CONTRACT = LaunchContract(
    entry="gemm",
    tensors=TENSORS,
    scalars=("alpha",),
    epilogue=("x -> alpha * x + bias_n",),
    parameters=gemm_parameters(TENSORS, ("alpha",), MAPS),
    cta_tile=(128, 64),
    threads=160,
    dynamic_smem_bytes=98304,
    ctas_per_multiprocessor=2,
    maps=MAPS,
)


def test_operands_are_known_by_their_roles_in_whatever_order_they_stand() -> None:
    shuffled = replace(CONTRACT, tensors=TENSORS[::-1])
    for contract in (CONTRACT, shuffled):
        assert {role: contract.tensor(role) for role in ("a", "b", "c", "bias")} == {x.name: x for x in TENSORS}
        assert [x.name for x in contract.operands] == ["a", "b"]
        assert [x.name for x in contract.beside_result] == ["bias"]
        with pytest.raises(KeyError, match="aux"):
            contract.tensor("aux")


def test_a_call_may_be_empty_and_a_request_may_not() -> None:
    assert ProblemShape(0, 16, 8).empty
    assert ProblemShape(8, 16, 8, 0).empty
    assert not ProblemShape(8, 16, 0).empty, "sums of nothing are 0, and are written"
    assert ProblemShape.of((8, 16, 4)) == ProblemShape(8, 16, 4, 1) == ProblemShape.of(ProblemShape(8, 16, 4))
    for asked in ((8, 16, 0), ProblemShape(8, 16, 0), (8, 16, 4, 0)):
        with pytest.raises(RequestError, match=r"expected extents from 1 to 2147352576 and a batch from 1 to 65535"):
            ProblemShape.of(asked)
    with pytest.raises(RequestError, match="expected extents from 0"):
        ProblemShape(-1, 16, 8)


def test_it_is_read_back_as_it_was_written() -> None:
    written = json.dumps(CONTRACT.to_json())
    read = LaunchContract.from_json(json.loads(written))
    assert read == CONTRACT
    assert hash(read) == hash(CONTRACT), "tuples, not lists, all the way down"


def test_what_an_older_version_did_not_write_is_missed() -> None:
    """The format version of the manifest says so before; here it is noticed in any case."""
    table = {name: value for name, value in CONTRACT.to_json().items() if name != "maps"}
    with pytest.raises(ArtifactError, match=r"plan\.json: launch\.maps: found nothing"):
        LaunchContract.from_json(table)


def test_maps_come_first_and_stand_for_addresses_and_strides() -> None:
    assert [(parameter.name, parameter.type) for parameter in CONTRACT.parameters] == [
        *((f"map_{name}", "tensormap") for name in "abc"),
        ("bias", "ptr"),
        ("alpha", "f32"),
        *((name, "i32") for name in "mnk"),
        ("batch_stride_bias", "i64"),
    ]
    size = CallSize(problem=ProblemShape(1, 2, 3, 4), strides={x.name: Strides(8, 16) for x in TENSORS})
    arguments = CONTRACT.arguments(("a", "b", "c", "bias"), (0.5,), size, maps=("A", "B", "C"))
    assert arguments == ("A", "B", "C", "bias", 0.5, 1, 2, 3, 16)


def test_fields_are_bytes_with_the_contiguous_mode_first() -> None:
    strides = {"a": Strides(56, 20_000), "b": Strides(80), "c": Strides(72, 30_000), "bias": Strides(1)}
    size = CallSize(problem=ProblemShape(300, 72, 48, 5), strides=strides)
    assert CONTRACT.map_fields(size) == (
        fields("f16", (48, 300, 5), (112, 40_000), (64, 128, 1), 128),
        fields("f16", (72, 48, 5), (160, 0), (32, 64, 1), 64),
        fields("f32", (72, 300, 5), (288, 120_000), (8, 64, 1), 0),
    )


def test_an_empty_matrix_has_one_element() -> None:
    strides = {"a": Strides(0), "b": Strides(72), "c": Strides(72), "bias": Strides(1)}
    a, b, c = CONTRACT.map_fields(CallSize(problem=ProblemShape(300, 72, 0), strides=strides))
    assert (a.extents, b.extents, c.extents) == ((1, 1, 1), (1, 1, 1), (72, 300, 1))
    assert a.strides_bytes == b.strides_bytes == (16, 16)


@pytest.mark.parametrize(("m", "multiprocessors", "ctas"), [(1, 100, 2), (257, 100, 6), (257, 2, 4), (257, 1, 2)])
def test_persistent_ctas_share_the_tiles_of_one_result(m: int, multiprocessors: int, ctas: int) -> None:
    """Tiles of 128 x 64, N = 128, two CTAs on a multiprocessor."""
    problem = ProblemShape(m, 128, 64, 5)
    geometry = CONTRACT.geometry(problem, multiprocessors=multiprocessors)
    assert (geometry.grid, geometry.block) == ((ctas, 1, 5), (160, 1, 1))
    assert CONTRACT.tiles(problem) == -(-m // 128) * 2 * 5


@pytest.mark.parametrize(
    ("cluster", "held", "grid", "tiles"),
    [
        ((1, 1), None, (6, 1, 5), 6),
        ((2, 1), None, (8, 1, 5), 8),
        ((1, 2), None, (3, 2, 5), 6),
        ((2, 2), None, (4, 2, 5), 8),
        ((4, 2), None, (4, 2, 5), 8),
        ((2, 1), 3, (6, 1, 5), 8),
        ((2, 2), 1, (2, 2, 5), 8),
    ],
)
def test_whole_clusters_are_launched(
    cluster: tuple[int, int], held: int | None, grid: tuple[int, int, int], tiles: int
) -> None:
    """3 x 2 tiles of 128 x 64; a GPU holds 264 CTAs, or as many clusters as it says."""
    problem, contract = ProblemShape(257, 128, 64, 5), replace(CONTRACT, cluster=cluster)
    geometry = contract.geometry(problem, multiprocessors=132, active_clusters=held)
    assert (geometry.grid, geometry.cluster) == (grid, (*cluster, 1))
    assert contract.tiles(problem) == tiles * 5
    assert all(ctas % each == 0 for ctas, each in zip(geometry.grid, geometry.cluster, strict=True))


def test_persistent_clusters_fit_the_multiprocessors() -> None:
    contract = replace(CONTRACT, cluster=(2, 1))
    assert contract.geometry(ProblemShape(2048, 128, 64), multiprocessors=3).grid == (6, 1, 1)
    assert contract.geometry(ProblemShape(2048, 128, 64), multiprocessors=1).grid == (2, 1, 1)
    alone = replace(contract, ctas_per_multiprocessor=1, cluster=(2, 2))
    assert alone.geometry(ProblemShape(2048, 128, 64), multiprocessors=2).grid == (2, 2, 1), "at least one cluster"


@pytest.mark.parametrize(
    ("m", "slices", "batch", "multiprocessors", "ctas"),
    [
        (2048, 1, 1, 64, 64),
        (2048, 1, 1, 63, 32),
        (2049, 1, 1, 64, 34),
        (2048, 2, 1, 127, 32),
        (2048, 2, 1, 128, 64),
        (2048, 1, 2, 127, 32),
        (2048, 1, 2, 128, 64),
        (2048, 1, 1, 2, 2),
    ],
)
def test_few_ctas_have_one_to_spare_each(m: int, slices: int, batch: int, multiprocessors: int, ctas: int) -> None:
    """Tiles of 128 x 64, N = 128, one CTA on a multiprocessor; workspace is that of the tiles."""
    split = SplitContract(slices=slices, bytes_per_slice=64) if slices > 1 else None
    side_by_side = replace(CONTRACT, ctas_per_multiprocessor=1, split=split)
    contract, problem = replace(side_by_side, spread=True), ProblemShape(m, 128, 64, batch)
    assert contract.geometry(problem, multiprocessors=multiprocessors).grid == (ctas, slices, batch)
    assert contract.tiles(problem) == side_by_side.tiles(problem)
    assert contract.workspace(problem) == side_by_side.workspace(problem)


@pytest.mark.parametrize("changes", [{"cluster": (2, 1)}, {"ctas_per_multiprocessor": None}])
def test_only_persistent_ctas_without_clusters_are_spread(changes: dict[str, object]) -> None:
    check_launch(replace(CONTRACT, spread=True), "here")
    with pytest.raises(ArtifactError, match=r"launch\.spread: found True; expected false with clusters"):
        check_launch(replace(CONTRACT, spread=True, **changes), "here")  # type: ignore[arg-type]


def test_a_cluster_may_hold_a_tiles_slices() -> None:
    split = SplitContract(slices=4, bytes_per_slice=64)
    contract = replace(CONTRACT, split=split, ctas_per_multiprocessor=None, cluster=(1, 4))
    assert contract.geometry(ProblemShape(257, 128, 64)).grid == (6, 4, 1)
    assert contract.workspace(ProblemShape(257, 128, 64)) == Workspace(6 * 4 * 64, 6 * 4), "a counter for each share"
    whole = replace(contract, split=replace(split, bytes_per_slice=0))
    assert (whole.workspace(ProblemShape(257, 128, 64)), whole.pointers) == (None, ("a", "b", "c", "bias"))


def test_a_contract_names_its_clusters_where_it_has_any() -> None:
    """So that what had none is written, and read, as before."""
    assert "cluster" not in CONTRACT.to_json()
    assert "spread" not in CONTRACT.to_json()
    for contract in (CONTRACT, replace(CONTRACT, cluster=(2, 1)), replace(CONTRACT, spread=True)):
        assert LaunchContract.from_json(json.loads(json.dumps(contract.to_json()))) == contract


def fields(
    dtype: str, extents: tuple[int, int, int], strides: tuple[int, int], box: tuple[int, int, int], swizzle: int
) -> TensorMapFields:
    return TensorMapFields(dtype=dtype, extents=extents, strides_bytes=strides, box=box, swizzle_bytes=swizzle)
