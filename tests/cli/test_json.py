"""What programs read: fields, and values against facts that were known before."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cutegen.algebra import format_layout, parse_layout
from cutegen.cli.output import Answer
from cutegen.contract import LaunchContract
from tests.cli.commands import Cli

TUTORIAL = Path(__file__).parents[1] / "show" / "cute_cpp_tutorial_tn.txt"
OPERANDS = """
family = "sm80"
problem.a = { dtype = "f16", major = "k" }
problem.b = { dtype = "f16", major = "k" }
problem.c = { dtype = "f16", major = "n" }
"""
ACCESSES = ("g2s.a", "g2s.b", "s2r.a", "s2r.b", "epilogue.write", "epilogue.read")


def test_plan_has_the_fields_that_are_promised(cli: Cli) -> None:
    table = cli("plan sm80_hgemm_tn --arch sm_80 --json").json
    assert (table["spec"], table["target"], table["tile"], table["stages"]) == (
        "sm80_hgemm_tn",
        "sm_80",
        [128, 128, 64],
        3,
    )
    assert table["threads"] == 128
    assert table["smem_bytes"] == 3 * 2 * 128 * 64 * 2
    for x in "ab":
        assert table["smem"][x]["swizzle"] == [3, 3, 3]
        assert table["smem"][x]["pad"] == 0
        assert table["smem"][x]["bytes"] == 3 * 128 * 64 * 2
        layout = table["smem"][x]["layout"]
        assert format_layout(parse_layout(layout)) == layout
        assert table["g2s"][x] == {"op": "cp.async.cg", "bits": 128, "threads": "(16,8):(8,1)"}
        assert (table["s2r"][x]["atom"], table["s2r"][x]["matrices"]) == ("SM75_U32x4_LDSM_N", 4)
        assert table["s2r"][x]["transpose"] is False
        assert all(set(rejected) == {"what", "why"} for rejected in table["s2r"][x]["rejected"])
    assert tuple(table["wavefronts"]) == ACCESSES
    assert all(set(counts) == {"ideal", "predicted"} for counts in table["wavefronts"].values())
    assert set(table["instructions"]) == {
        "cp.async.cg.shared.global",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    }
    assert {"tile.cta", "mma.atom", "smem.a", "schedule.raster"} <= {row["key"] for row in table["decisions"]}
    assert all(set(row) == {"key", "chosen", "why", "given", "rejected", "for_problem"} for row in table["decisions"])
    assert LaunchContract.from_json(table["launch"]).threads == 128


def test_transposing_loads_are_named(cli: Cli) -> None:
    table = cli("plan sm80_bf16_nn --arch sm_80 --json").json
    assert (table["s2r"]["a"]["atom"], table["s2r"]["a"]["transpose"]) == ("SM75_U16x8_LDSM_T", True)
    assert (table["s2r"]["b"]["atom"], table["s2r"]["b"]["transpose"]) == ("SM75_U32x4_LDSM_N", False)


def test_c_straight_from_registers_makes_no_access_to_shared_memory(cli: Cli) -> None:
    table = cli("plan cute_tutorial_tn --arch sm_80 --json").json
    assert (table["epilogue"]["smem"], table["epilogue"]["store"]) == (None, None)
    assert table["wavefronts"]["epilogue.write"] == {"ideal": 0, "predicted": 0}


@pytest.mark.parametrize(
    ("tile_k", "smem", "write_ways", "read_ways"),
    [
        (64, "{ pad = 0 }", 1, 8),
        (64, "{ swizzle = [3, 3, 3] }", 1, 1),
        (32, "{ pad = 0 }", 1, 4),
        (32, "{ pad = 8 }", 2, 1),
        (32, "{ swizzle = [2, 3, 3] }", 1, 1),
        (64, '{ layout = "(8,(8,8)):(8,(1,64))" }', 8, 1),
    ],
)
def test_conflicts_are_those_that_hardware_counters_show(
    tile_k: int, smem: str, write_ways: int, read_ways: int, cli: Cli, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(f"{OPERANDS}tile.cta = [128, 128, {tile_k}]\nsmem.a = {smem}\n")
    wavefronts = cli(f"plan {spec} --arch sm_80 --json").json["wavefronts"]
    assert wavefronts["g2s.a"]["predicted"] == write_ways * wavefronts["g2s.a"]["ideal"]
    assert wavefronts["s2r.a"]["predicted"] == read_ways * wavefronts["s2r.a"]["ideal"]


def test_partitions_are_the_tutorials_printout(cli: Cli) -> None:
    expected = dict(line.split(" ", 1) for line in TUTORIAL.read_text().splitlines())
    sentence = "show cute_tutorial_tn partitions --problem 5120,5120,4096 --thread 0 --arch sm_80"
    table = cli(f"{sentence} --json").json
    assert (table["thread"], table["problem"]) == (0, [5120, 5120, 4096])
    assert {name: table["layouts"].get(name) for name in expected} == expected
    printed = cli(sentence).out.splitlines()
    assert set(TUTORIAL.read_text().splitlines()) <= set(printed)


def test_no_number_is_printed_that_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Answer(json=True, out=None).give(lambda: {"ratio": math.nan}, list)


@pytest.mark.parametrize("spec", ["sm80_hgemm_tn", "simt_sgemm_tn"])
@pytest.mark.parametrize("part", ["", "mma", "smem", "g2s", "s2r", "tmem", "epilogue", "pipeline", "partitions"])
def test_every_part_speaks_json_alone(part: str, spec: str, cli: Cli) -> None:
    outcome = cli(f"show {spec} {part} --arch sm_80 --json")
    assert outcome.code == 0
    assert outcome.json["spec"] == spec


def test_the_fragment_that_a_thread_holds_is_ptx_isas(cli: Cli) -> None:
    """PTX ISA, m16n8k16: row = lane / 4 (+ 8), column = 2 (lane mod 4) + (i & 1) (+ 8)."""
    lane = 23
    held = cli(f"show sm80_hgemm_tn mma --thread {lane} --arch sm_80 --json").json["holds"]
    row, column = lane // 4, 2 * (lane % 4)
    assert held["A"] == [[row + dm, column + dk + i] for dk in (0, 8) for dm in (0, 8) for i in (0, 1)]


def test_offsets_of_the_swizzle_are_a_permutation(cli: Cli) -> None:
    table = cli("show sm80_hgemm_tn smem --arch sm_80 --json").json["a"]
    assert table["offsets"][1][:9] == [72, 73, 74, 75, 76, 77, 78, 79, 64]
    assert sorted(offset for row in table["offsets"] for offset in row) == list(range(128 * 64))


def test_list_and_doctor_and_emit(cli: Cli) -> None:
    assert {row["name"] for row in cli("list --json").json["specs"]} >= {"sm80_hgemm_tn", "cute_tutorial_tn"}
    doctor = cli("doctor --json").json
    assert {finding["name"] for finding in doctor["findings"]} >= {"CuTe DSL", "driver", "GPU", "torch", "cache"}
    assert next(x for x in doctor["abilities"] if x["what"] == "list, show, plan, emit, compare")["works"]
    emitted = cli("emit sm80_hgemm_tn --arch sm_80 --json").json
    assert emitted["entry"] == "sm80_hgemm_tn_0"
