"""Groups in a launch contract: what a host knows without the sizes, and that nothing else of a contract changes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cutegen.contract.launch import CallSize, LaunchContract, Strides, TensorContract, gemm_parameters
from cutegen.contract.problem import Groups, ProblemShape
from cutegen.errors import ArtifactError
from cutegen.run.plan_table import check_launch

TENSORS = (
    TensorContract("a", "f16", ("m", "k"), "k", 16),
    TensorContract("b", "f16", ("n", "k"), "k", 16),
    TensorContract("c", "f32", ("m", "n"), "n", 16),
)


def contract(groups: Groups | None) -> LaunchContract:
    return LaunchContract(
        entry="gemm",
        tensors=TENSORS,
        parameters=gemm_parameters(TENSORS, (), groups=groups),
        cta_tile=(64, 32),
        threads=128,
        dynamic_smem_bytes=0,
        ctas_per_multiprocessor=1,
        groups=groups,
    )


def test_a_launch_passes_the_ends_and_their_number() -> None:
    launch = contract(Groups("m"))
    names = [parameter.name for parameter in launch.parameters]
    assert names[:9] == ["a", "b", "c", "ends", "m", "n", "k", "groups", "cleared"]
    strides = {name: Strides(64) for name in "abc"}
    size = CallSize(problem=ProblemShape(100, 64, 64, groups=7), strides=strides)
    assert launch.arguments((10, 20, 30, 40), (), size)[:9] == (10, 20, 30, 40, 100, 64, 64, 7, 0)


@pytest.mark.parametrize(("of", "cleared"), [("m", 100), ("n", 60)])
def test_a_launch_that_clears_passes_how_far(of: str, cleared: int) -> None:
    size = CallSize(problem=ProblemShape(100, 60, 64), strides={name: Strides(64) for name in "abc"}, clears=True)
    assert contract(Groups(of)).arguments((10, 20, 30, 40), (), size)[8] == cleared  # type: ignore[arg-type]


def test_groups_of_k_leave_nothing_to_clear() -> None:
    assert "cleared" not in [parameter.name for parameter in contract(Groups("k")).parameters]


def test_a_file_with_groups_says_what_no_kernel_has() -> None:
    launch = contract(Groups("m"))
    check_launch(launch, "plan.json")
    with pytest.raises(ArtifactError, match=r"launch.groups.layout: found .padded.; expected .packed. for parts of K"):
        check_launch(contract(Groups("k", "padded")), "plan.json")
    with pytest.raises(ArtifactError, match=r"launch.parameters\[3\].name: found .ends.; expected one of a, b, c"):
        check_launch(replace(launch, groups=None), "plan.json")
    check_launch(contract(None), "plan.json")


@pytest.mark.parametrize("of", ["m", "n", "k"])
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_groups_are_read_back_and_exchanged_twice(of: str, layout: str) -> None:
    launch = contract(Groups(of, layout))  # type: ignore[arg-type]
    assert LaunchContract.from_json(json.loads(json.dumps(launch.to_json()))) == launch
    assert launch.exchanged().groups == Groups({"m": "n", "n": "m", "k": "k"}[of], layout)  # type: ignore[arg-type]
    assert launch.exchanged().exchanged() == launch


def test_a_contract_without_groups_is_written_as_before() -> None:
    assert "groups" not in contract(None).to_json()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_no_sizes_have_more_tiles_than_the_host_assumes_and_some_have_as_many(layout: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    groups, extent, tile = int(random.integers(1, 8)), int(random.integers(8, 300)), int(random.choice([8, 16, 64]))
    of = Groups("m", layout)  # type: ignore[arg-type]
    bound, problem = of.most_tiles(extent, groups, tile), ProblemShape(extent, 8, 8)

    def tiles(sizes: tuple[int, ...]) -> int:
        return sum(-(-len(each.m) // tile) for each in of.products(sizes, problem))

    assert tiles(tuple(int(x) for x in np.sort(random.integers(-10, extent + 10, groups)))) <= bound
    if layout == "padded":
        assert tiles((extent,) * groups) == bound
    else:  # all but the last group have one row more than whole tiles, as long as there are rows
        ends = np.minimum(np.arange(1, groups), extent)
        assert tiles((*(int(x) for x in ends), extent)) in (bound, bound - 1)


def test_a_persistent_launch_has_no_more_ctas_than_tiles() -> None:
    def ctas(groups: Groups, count: int) -> int:
        return contract(groups).geometry(ProblemShape(100, 64, 64, groups=count), multiprocessors=132).grid[0]

    assert ctas(Groups("m"), 1) == 2 * 2
    assert ctas(Groups("m"), 4) == (100 + 4 * 63) // 64 * 2
    assert ctas(Groups("n"), 4) == 2 * ((64 + 4 * 31) // 32)
    assert ctas(Groups("n"), 9) == 2 * ((64 + 9 * 31) // 32)
    assert ctas(Groups("m", "padded"), 4) == 4 * 2 * 2
    assert ctas(Groups("k"), 4) == 4 * 2 * 2
    assert ctas(Groups("k"), 400) == 132


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_million_garbage_ends_stay_inside_and_in_order(layout: str) -> None:
    random, of = np.random.default_rng(7), Groups("m", layout)  # type: ignore[arg-type]
    near = np.array([-(2**31), -1, 0, 1, 99, 100, 101, 2**31 - 1])
    for _ in range(500):
        some = np.where(random.random(1000) < 0.5, random.choice(near, 1000), random.integers(-(2**31), 2**31, 1000))
        reached = 0
        for each in of.products(some.tolist(), ProblemShape(100, 8, 8)):
            assert 0 <= each.m.start <= each.m.stop <= 100
            assert each.m.start == (reached if layout == "packed" else 0)
            reached = each.m.stop


GARBAGE = np.random.default_rng(60)


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("launches", [30, pytest.param(3334, marks=pytest.mark.slow)])
def test_any_ends_are_groups_within_the_room(layout: str, launches: int) -> None:
    """300 groups a launch, a million numbers in all if slow: in order, apart where packed, and within the room."""
    groups, room = Groups("m", layout), 5000  # type: ignore[arg-type]
    for _ in range(launches):
        near, any_bits = GARBAGE.integers(-2, room + 3, 300), GARBAGE.integers(-(2**31), 2**31, 300)
        given = np.where(GARBAGE.random(300) < GARBAGE.random(), near, any_bits)
        found = [product.m for product in groups.products(given.tolist(), ProblemShape(room, 64, 64))]
        begins, ends = (np.array([getattr(rows, name) for rows in found]) for name in ("start", "stop"))
        clamped = np.clip(given, 0, room)
        wanted = np.maximum.accumulate(clamped) if layout == "packed" else clamped
        assert (ends == wanted).all()
        assert (begins == (np.concatenate([[0], wanted[:-1]]) if layout == "packed" else 0)).all()
        tiles = int((-(-(ends - begins) // 64)).sum())
        assert tiles <= groups.most_tiles(room, 300, 64)
