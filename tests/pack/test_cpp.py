"""examples/launch_pack.cpp reads packs, and hands a driver what cutegen's own contract says; a fake driver listens."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cutegen.build.pack_file import read_pack
from cutegen.contract import LaunchContract, ProblemShape
from cutegen.contract.groups import Groups
from cutegen.contract.launch import CallSize, SplitContract, Strides, Workspace
from cutegen.contract.pairs import Pairs
from tests.house.documents import ROOT
from tests.pack.test_pack_file import put_together, taken_apart, with_text
from tests.render import fake_libcuda
from tests.render.fake_libcuda import ACTIVE_CLUSTERS, LETTERS, MULTIPROCESSORS, needs_compiler

SOURCE = ROOT / "examples" / "launch_pack.cpp"
EXTENTS = (301, 130, 40)
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
FLOAT16 = 6  # CUtensorMapDataType
L2_PROMOTION = 20  # 128 bytes, without interleave and fill, as the driver prints them

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [needs_compiler, pytest.mark.dsl, pytest.mark.slow]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled by g++ alone, in the folder of a driver of our own."""
    made = fake_libcuda.make(tmp_path_factory.mktemp("cpp")) / "launch_pack"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run(["g++", *flags, str(SOURCE), "-ldl", "-o", str(made)], check=True)
    return made


@pytest.fixture
def run(program: Path) -> Run:
    def call(*words: object, capability: int = 80, types: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            "LD_LIBRARY_PATH": str(program.parent),
            "FAKE_CAPABILITY": str(capability),
            "FAKE_TYPES": types,
        }
        return subprocess.run([str(program), *map(str, words)], env=environment, capture_output=True, text=True)

    return call


def test_it_lists_what_is_in_a_pack(run: Run, pack_path: Path) -> None:
    said = run(pack_path)
    assert said.returncode == 0
    assert said.stdout.splitlines() == [
        "sm80_hgemm_tn for sm_80, every problem",
        "sm80_hgemm_tn for sm_80, 1 x 256x256x128",
        "sm80_bf16_nn for sm_80, every problem",
        "sm90_hgemm_tn for sm_90, every problem",
        "ldmatrix_probe for sm_80, every problem",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'"target": ', b'"target": "sm_90", "target": ', 1),
        lambda text: b"\xef\xbb\xbf" + text,
    ],
)
def test_an_index_that_two_readers_may_understand_differently_is_refused(
    change: Callable[[bytes], bytes], run: Run, pack_path: Path, tmp_path: Path
) -> None:
    index, members = taken_apart(pack_path.read_bytes())
    path = tmp_path / "ambiguous.cutepack"
    path.write_bytes(with_text(change(json.dumps(index).encode()), members))
    said = run(path)
    assert said.returncode != 0
    assert "the index" in said.stderr


def expected_of(launch: LaunchContract, addresses: list[int]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Geometry and parameters as cutegen's launchers have them, of matrices as compact as alignment allows."""
    m, n, k = EXTENTS
    extents = {"m": m, "n": n, "k": k}
    strides = {
        x.name: Strides(-(-extents[x.major] // (x.align_bytes // 2)) * (x.align_bytes // 2)) for x in launch.tensors
    }
    size = CallSize(problem=ProblemShape(m, n, k), strides=strides)
    clusters = ACTIVE_CLUSTERS if launch.cluster != (1, 1) else None
    made = launch.geometry(size.problem, multiprocessors=MULTIPROCESSORS, active_clusters=clusters)
    maps = [
        (
            addresses[launch.pointers.index(each.name)],
            *f.extents,
            *f.strides_bytes,
            *f.box,
            FLOAT16,
            SWIZZLES[f.swizzle_bytes],
            L2_PROMOTION,
        )
        for each, f in zip(launch.maps, launch.map_fields(size), strict=True)
    ]
    values = launch.arguments(tuple(addresses), (), size, tuple(maps))  # type: ignore[arg-type]
    geometry = [*made.grid, *made.block, made.dynamic_smem_bytes]
    return geometry, [value if isinstance(value, tuple) else (value,) for value in values]


def counter_bytes(workspace: Workspace) -> int:
    """Bytes of the counters at the begin of a workspace, to the next multiple of 256."""
    return -(-4 * workspace.counters // 256) * 256


def check_launch(run: Run, path: Path, name: str, launch: LaunchContract, capability: int) -> list[list[str]]:
    types = "".join(LETTERS[parameter.type] for parameter in launch.parameters)
    said = run(path, name, *EXTENTS, capability=capability, types=types)
    lines = [line.split() for line in said.stdout.splitlines()]
    assert said.returncode == 1, said.stderr  # nothing was computed, and that is noticed
    assert lines[-1][-1] == "wrong"
    assert ["load", "ELF", "0"] in lines
    assert ["kernel", launch.entry] in lines
    assert ["attribute", "8", str(launch.dynamic_smem_bytes)] in lines
    attributes = [["4", *map(str, launch.cluster), "1"]] * (launch.cluster != (1, 1))
    assert [line[1:] for line in lines if line[0] == "launch_attribute"] == attributes
    addresses = [int(line[1]) for line in lines if line[0] == "memory"]
    if (workspace := launch.workspace(ProblemShape(*EXTENTS))) is not None:
        counters = addresses.pop()
        at = {"counters": counters, "sums": counters + counter_bytes(workspace)}
        addresses += [at[name] for name in launch.pointers if name in at]
    geometry, values = expected_of(launch, addresses)
    assert [list(map(int, line[1:])) for line in lines if line[0] == "launch"] == [geometry]
    assert [tuple(map(int, line[1:])) for line in lines if line[0] in ("value", "map")] == values
    return lines


@pytest.mark.parametrize(("name", "capability"), [("sm80_hgemm_tn", 80), ("sm80_hgemm_tn", 86), ("sm90_hgemm_tn", 90)])
def test_it_launches_what_the_contract_says(name: str, capability: int, run: Run, pack_path: Path) -> None:
    launch = next(entry.launch for entry in read_pack(pack_path).entries if entry.name == name)
    assert bool(launch.maps) == (name == "sm90_hgemm_tn")
    check_launch(run, pack_path, name, launch, capability)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": (2, 1), "ctas_per_multiprocessor": 1},
        {"cluster": (1, 2), "ctas_per_multiprocessor": None},
        {"ctas_per_multiprocessor": 2},
        {"split": SplitContract(4, 1024)},
        {"split": SplitContract(2, 4096), "cluster": (2, 2)},
        {"split": SplitContract(3, 0, atomics=True)},
        {"split": SplitContract(2, 0), "cluster": (1, 2)},
        {"cluster": (2, 1), "swapped": True},
        {"split": SplitContract(4, 512), "cluster": (2, 1), "swapped": True},
        {"spread": True, "ctas_per_multiprocessor": 32},
        {"spread": True, "ctas_per_multiprocessor": 1, "split": SplitContract(64, 512)},
    ],
)
def test_clusters_slices_and_persistent_ctas_are_launched_as_the_contract_says(
    changes: dict[str, object], run: Run, pack_path: Path, tmp_path: Path
) -> None:
    index, members = taken_apart(pack_path.read_bytes())
    launch = replace(LaunchContract.from_json(index["entries"][0]["launch"]), **changes)  # type: ignore[arg-type]
    index["entries"][0]["launch"] = launch.to_json()
    forged = tmp_path / "forged.cutepack"
    forged.write_bytes(put_together(index, members))
    lines = check_launch(run, forged, "sm80_hgemm_tn", launch, 80)
    sizes = [int(line[2]) for line in lines if line[0] == "memory"]
    cleared = [int(line[3]) for line in lines if line[0] == "set_bytes"]
    workspace = launch.workspace(ProblemShape(*EXTENTS))
    if workspace is not None:
        assert sizes[3:] == [counter_bytes(workspace) + workspace.sums_bytes]
        assert cleared == [counter_bytes(workspace)]
    else:
        assert cleared == (sizes[2:3] if launch.adds_to_result else [])


def test_a_damaged_pack_is_refused_before_the_driver_hears_of_it(run: Run, pack_path: Path, tmp_path: Path) -> None:
    data = pack_path.read_bytes()
    index, members = taken_apart(data)
    place = index["entries"][0]["files"]["kernel.cubin"]
    within = len(data) - len(members) + place["offset"] + random.randrange(place["size_bytes"])
    damaged = tmp_path / "damaged.cutepack"
    for at, said in (
        (0, "not a pack"),
        (8, "another version"),
        (24, "cut off"),
        (40, "index is damaged"),
        (within, "kernel.cubin is damaged"),
    ):
        damaged.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        refused = run(damaged, "sm80_hgemm_tn")
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr
    index["entries"][0]["files"]["kernel.cubin"]["offset"] = 1 << 62
    damaged.write_bytes(put_together(index, members))
    assert "lies outside the pack" in run(damaged).stderr


@pytest.mark.parametrize("extent", ["cta_tile", "cluster"])
def test_an_extent_of_0_is_refused(extent: str, run: Run, pack_path: Path, tmp_path: Path) -> None:
    index, members = taken_apart(pack_path.read_bytes())
    index["entries"][0]["launch"][extent] = [1, 0]
    forged = tmp_path / "forged.cutepack"
    forged.write_bytes(put_together(index, members))
    refused = run(forged, "sm80_hgemm_tn")
    assert refused.returncode == 2
    assert "the launch contract has an extent below 1" in refused.stderr


@pytest.mark.parametrize(
    ("name", "capability", "said"),
    [
        ("nothing", 80, "no kernel of this name runs on sm_80"),
        ("sm90_hgemm_tn", 100, "no kernel of this name runs on sm_100"),
        ("sm80_bf16_nn", 80, "only f16 is launched here"),
    ],
)
def test_what_it_does_not_launch_it_says(name: str, capability: int, said: str, run: Run, pack_path: Path) -> None:
    refused = run(pack_path, name, capability=capability)
    assert refused.returncode == 2
    assert said in refused.stderr


@pytest.mark.parametrize("changes", [{"groups": Groups("m")}, {"pairs": Pairs("gate")}, {"scalars": ("alpha",)}])
def test_a_product_that_is_not_plain_is_refused(
    changes: dict[str, object], run: Run, pack_path: Path, tmp_path: Path
) -> None:
    index, members = taken_apart(pack_path.read_bytes())
    launch = replace(LaunchContract.from_json(index["entries"][0]["launch"]), **changes)  # type: ignore[arg-type]
    index["entries"][0]["launch"] = launch.to_json()
    forged = tmp_path / "forged.cutepack"
    forged.write_bytes(put_together(index, members))
    refused = run(forged, "sm80_hgemm_tn")
    assert (refused.returncode, refused.stdout.count("launch ")) == (2, 0)
    assert "only plain products are launched here" in refused.stderr
