"""Specs side by side: what is said of each is what its own plan says, and what is folded is equal."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import cutegen
from cutegen.analysis.comparison import Compared, Comparison, Section, compare, with_times
from cutegen.analysis.comparison_picture import picture
from cutegen.analysis.comparison_text import comparison_lines, comparison_table
from cutegen.bench.benchmark import Result
from cutegen.bench.ceilings import Ceilings
from cutegen.bench.contenders import Setting
from cutegen.bench.measure import Measurement
from cutegen.build import Cache
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.plan import FAMILIES, GemmPlan
from cutegen.show.canvas import to_svg
from cutegen.spec import load_spec
from tests.plan.specs import SHIPPED_GEMMS, SHIPPED_ON
from tests.seeding import new_generator

PROBLEM = ProblemShape(1024, 1024, 1024)


def of(*names: str, cache: Cache, arch: str | None = None, problem: ProblemShape | None = None) -> Comparison:
    return compare(list(map(load_spec, names)), arch, problem, default=PROBLEM, cache=cache)


ON_HOPPER = [name for name, arch in SHIPPED_ON if arch == "sm_90"]


@pytest.fixture
def empty(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_every_value_is_its_own_plans(empty: Cache) -> None:
    chosen = new_generator().permutation(SHIPPED_GEMMS)[:3].tolist()
    made = of(*chosen, cache=empty)
    rows = {(row.section, row.name): row for row in made.rows}
    for i, name in enumerate(chosen):
        spec = load_spec(name)
        plan = cutegen.plan(spec, spec.needs)
        assert isinstance(plan, GemmPlan)
        table = plan.to_json()
        decisions = {row.name: row.values[i] for row in made.rows if row.section is Section.DECISIONS}
        assert {k: v for k, v in decisions.items() if v is not None} == {
            d["key"]: d["chosen"] for d in table["decisions"]
        }
        counts = {row.name: row.values[i] for row in made.rows if row.section is Section.INSTRUCTIONS}
        assert {k: v for k, v in counts.items() if v} == table["instructions"]
        assert rows[Section.SHARED, "sA"].values[i] == table["smem"]["a"]["layout"]
        assert rows[Section.RESOURCES, "bytes of shared memory"].values[i] == table["smem_bytes"]
        for key, found in table["line_writes"].items():
            assert rows[Section.ACCESSES, f"{key} writes by line"].values[i] == found["predicted"] / found["ideal"]
        for key, found in table["wavefronts"].items():
            row = rows.get((Section.ACCESSES, f"{key} bank conflicts"))
            said = None if row is None else row.values[i]
            assert said == (found["predicted"] / found["ideal"] if found["ideal"] else None)


@pytest.mark.parametrize(
    ("name", "arch", "unit", "operations_per_cycle"),
    [
        ("sm80_hgemm_tn", "sm_80", "tensor cores", 2048),
        ("sm80_tf32_tn", "sm_80", "tensor cores", 1024),
        ("sm80_s8_tn", "sm_80", "tensor cores", 4096),
        ("sm90_hgemm_tn", "sm_90", "tensor cores", 4096),
        ("sm90_e4m3_tn", "sm_90", "tensor cores", 8192),
        ("simt_sgemm_nt", "sm_90", "FMA units", 256),
    ],
)
def test_bounds_are_those_of_the_operands_type(
    name: str, arch: str, unit: str, operations_per_cycle: int, empty: Cache
) -> None:
    """Tensor cores: 1024 f16 multiply-adds per cycle on A100, 2048 on H100; half of it for tf32, twice for 8 bits."""
    rows = {row.name: row.values[0] for row in of(name, cache=empty, arch=arch).rows if row.section is Section.BOUNDS}
    bottleneck, share = rows.pop("bottleneck"), rows.pop("share of its MMA's rate, at most")
    cycles = {name: value for name, value in rows.items() if isinstance(value, float)}
    assert cycles.keys() == rows.keys()
    assert cycles[unit] == pytest.approx(1e6 / operations_per_cycle)
    assert bottleneck == max(cycles, key=lambda resource: cycles[resource])
    assert share == pytest.approx(cycles[unit] / max(cycles.values()))


def test_types_of_different_rates_differ(empty: Cache) -> None:
    made = of("sm90_hgemm_tn", "sm90_e4m3_tn", cache=empty, arch="sm_90")
    rows = {row.name: row for row in made.rows if row.section is Section.BOUNDS}
    assert not rows["tensor cores"].equal
    assert rows["bottleneck"].values == ("tensor cores", "shared memory")


@pytest.mark.parametrize("pair", list(itertools.pairwise(ON_HOPPER))[::4])
def test_text_fits_100_columns_whatever_is_compared(pair: tuple[str, str], empty: Cache) -> None:
    made = of(*pair, cache=empty, arch="sm_90")
    for everything in (False, True):
        lines = list(comparison_lines(made, everything=everything))
        assert max(map(len, lines)) <= 100
        assert all(row.name in "\n".join(lines) or len(row.name) > 24 for row in made.rows if not row.equal)


def test_what_is_equal_is_folded_and_shown_in_full_when_asked(empty: Cache) -> None:
    made = of("sm80_hgemm_tn", "cute_tutorial_tn", cache=empty)
    short, whole = ("\n".join(comparison_lines(made, everything=everything)) for everything in (False, True))
    assert "  mma.atom  " in short
    assert "  tile.cta  " not in short
    assert "tile.cta 128x128x64" in short
    assert "  tile.cta" in whole.partition("\nEqual\n")[2]
    assert "  mma.atom  " not in whole.partition("\nEqual\n")[2]


def test_a_spec_beside_itself_differs_in_nothing(empty: Cache) -> None:
    made = of("sm80_hgemm_tn", "sm80_hgemm_tn", cache=empty)
    assert [x.name for x in made.specs] == ["sm80_hgemm_tn", "sm80_hgemm_tn (2)"]
    assert all(row.equal for row in made.rows)
    assert "Nothing differs." in list(comparison_lines(made))
    assert "nothing differs" in to_svg(picture(made), "")


def test_a_spec_that_cannot_be_planned_says_why_in_its_column(empty: Cache) -> None:
    made = of("sm80_hgemm_tn", "sm90_hgemm_tn", cache=empty, arch="sm_80")
    assert made.specs[1].plan is None
    text = " ".join(" ".join(comparison_lines(made)).split())
    assert 'found "sm90" for sm_80' in text
    table = comparison_table(made)
    assert [spec["why_not"] is None for spec in table["specs"]] == [True, False]
    assert all(row["values"][1] is None for row in table["rows"] if row["name"] != "not planned")
    with pytest.raises(SpecError, match="wgmma"):
        of("sm90_hgemm_tn", "sm90_bf16_nt", cache=empty, arch="sm_80")


def test_what_is_equal_is_shown_if_the_first_spec_has_no_plan(empty: Cache) -> None:
    made = of("sm90_hgemm_tn", "sm80_hgemm_tn", "sm80_bf16_nn", cache=empty, arch="sm_80")
    assert made.specs[0].plan is None
    assert "  target and operands: target sm_80, family sm80" in list(comparison_lines(made))
    shown = [line.split() for line in comparison_lines(made, everything=True)]
    assert ["target", "sm_80"] in shown
    assert ["threads", "128"] in shown


def test_many_specs_have_a_line_each(empty: Cache) -> None:
    names = SHIPPED_GEMMS[:6]
    lines = list(comparison_lines(of(*names, cache=empty)))
    assert max(map(len, lines)) <= 100
    assert all(any(line.startswith(f"    {name} ") for line in lines) for name in names)


@pytest.mark.dsl
def test_registers_are_the_compilers_where_there_is_a_build(kernels: Cache) -> None:
    spec = load_spec("sm80_bf16_nn")
    built = cutegen.compile(spec, "sm_80", cache=kernels)
    made = compare([spec, load_spec("sm80_tf32_tn")], "sm_80", None, default=PROBLEM, cache=kernels)
    row = next(row for row in made.rows if row.name == "registers per thread (built)")
    assert row.values[0] == built.artifact.manifest.registers


def timed(made: Comparison, ceilings: Ceilings, times: dict[str, float]) -> Comparison:
    setting = Setting(("f16", "k"), ("f16", "k"), ("f16", "n"))
    types = ceilings.mma[0].types
    results = [
        Result(
            problem=made.problem,
            setting=setting,
            contender=name,
            ours=name != "torch",
            types=types,
            rel_error=0.0,
            measurement=Measurement.of([time, time + 2, time + 1]),
        )
        for name, time in times.items()
    ]
    return with_times(made, ceilings, results)


def test_times_stand_beside_each_other(empty: Cache, ceilings: Any) -> None:
    made = timed(
        of("sm80_hgemm_tn", "cute_tutorial_tn", cache=empty),
        ceilings,
        {"cute_tutorial_tn": 30.0, "sm80_hgemm_tn": 20.0},
    )
    predicted, _, row = [row for row in made.rows if row.section is Section.TIMES]
    assert row.values == (21.0, 31.0)
    assert predicted.values == tuple(
        FAMILIES[x.plan.family].time_of(x.plan, made.problem).us for x in made.specs if x.plan
    )
    text = "\n".join(comparison_lines(made))
    assert "Not measured" not in text
    assert any(line.split()[-2:] == ["21.0", "31.0"] for line in text.splitlines())
    svg = to_svg(picture(made), "")
    assert "21.0" in svg
    assert "31.0" in svg


def test_pictures_name_every_spec_and_figure(empty: Cache) -> None:
    made = of("sm80_hgemm_tn", "cute_tutorial_tn", "sm80_s8_tn", cache=empty)
    svg = to_svg(picture(made), "")
    for x in made.specs:
        assert isinstance(x, Compared)
        assert x.name in svg
    registers = next(row for row in made.rows if row.name == "registers per thread (estimated)")
    assert all(f">{cell}<" in svg for cell in registers.cells)
