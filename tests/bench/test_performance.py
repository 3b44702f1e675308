"""The tables of docs/performance.md and README.md: of made-up figures, and the real ones as they stand there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import host_cost
from benchmarks.host_cost import HostCost
from benchmarks.performance import __main__ as door
from benchmarks.performance import claims, documents, tables
from benchmarks.performance.energy import Energy, Reading, between_steps
from benchmarks.performance.figures import OURS, SECTIONS, Ceiling, Clock, Figures, Time, dumped, loaded
from benchmarks.performance.kinds import KINDS
from benchmarks.performance.merged import merged
from benchmarks.performance.problems import LADDER
from cutegen.bench.contenders import CUTLASS, CUTLASS_HOPPER, QUACK, TORCH
from cutegen.bench.measure import Regime
from cutegen.contract.problem import ProblemShape
from cutegen.errors import OutsideError
from examples.hopper_ladder import ladder

THIN = ProblemShape(1000, 500, 8)
EVEN = ProblemShape(1000, 500, 16)


def timed(problem: ProblemShape, regime: Regime = Regime.GRAPH, **median_us: float) -> tuple[Time, ...]:
    """A time for each contender, 20 % less at the least and 25 % more at the most."""
    names = {"ours": OURS, "hopper": f"{CUTLASS_HOPPER} 128x256", "narrow": f"{CUTLASS_HOPPER} 64x64"}
    names |= {"example": CUTLASS, "torch": TORCH, "sm80": "sm80_hgemm_tn"}
    return tuple(
        Time(
            problem=problem,
            regime=regime,
            contender=names.get(name, name),
            median_us=us,
            min_us=0.8 * us,
            max_us=1.25 * us,
        )
        for name, us in median_us.items()
    )


@pytest.fixture
def figures() -> Figures:
    """A run that nobody made, of a GPU that does not exist."""
    large = LADDER  # 137,438,953,472 operations: at 500 us 274.9 TFLOP/s
    rungs = [rung.name for rung in ladder()]
    kinds = {name: 500.0 + 5 * i for i, name in enumerate(KINDS)}
    of_suite: dict[str, float] = {"torch": 250.0, "hopper": 400.0, "narrow": 1000.0, "sm80": 800.0, "ours": 500.0}
    return Figures(
        device="Imaginary 100",
        sms=100,
        driver="580.1",
        cuda="13.0",
        date="2001-02-03",
        versions={"torch": "1.2"},
        seconds=300,
        rounds=20,
        ceilings=(
            Ceiling(instruction="mma.sync", operands="f16", accumulator="f32", tflops=400.0),
            Ceiling(instruction="wgmma", operands="f16", accumulator="f32", tflops=550.0),
        ),
        read_tb_per_s=4.5,
        copy_tb_per_s=4.2,
        chosen={
            large: "sm90 128x256x64, 4 stages",
            THIN: "sm120 16x64x64, 8 stages",
            EVEN: "sm120 16x64x64, 8 stages",
        },
        clocks=(
            Clock(
                problem=large,
                regime=Regime.GRAPH,
                sm_clock_mhz=1500,
                memory_clock_mhz=3201,
                power_w=699.5,
                temperature_c=60,
            ),
        ),
        suite=(*timed(large, **of_suite), *timed(large, Regime.LAUNCH, **of_suite)),
        sample=(
            *timed(THIN, torch=1.0, example=8.0, ours=4.0),
            *timed(EVEN, torch=16.0, example=8.0, ours=1.0),
            *timed(THIN, Regime.LAUNCH, torch=2.0, ours=4.0),
            *timed(EVEN, Regime.LAUNCH, torch=4.0, ours=4.0),
        ),
        kinds=timed(large, **kinds),
        ladder=timed(LADDER, Regime.LAUNCH, **{name: 1000.0 / (i + 1) for i, name in enumerate(rungs)}, torch=100.0),
        energy=(Energy(OURS, large, 1.5, 600.0, 1400),),
        host=(
            HostCost("sm80", host_cost.OURS, 9.0),
            HostCost("sm80", host_cost.TORCH, 10.0),
            HostCost("sm90", host_cost.OURS, 12.0),
            HostCost("sm90", host_cost.TORCH, 10.0),
        ),
    )


def test_the_suite_has_a_row_for_each_problem_and_a_mean(figures: Figures) -> None:
    header, rule, row, mean = tables.suite_graph(figures).splitlines()
    assert header.count("|") == rule.count("|") == row.count("|") == mean.count("|")
    assert row == (
        "| 4096 x 4096 x 4096 | 250.0 |  | 400.0 CUTLASS Hopper 128x256 | 500.0 | 400.0 to 625.0 | "
        "sm90 128x256x64, 4 stages | 0.50 | 0.80 | 50% |"
    )
    assert mean == "| geometric mean |  |  |  |  |  |  | **0.500** | **0.800** |  |"
    assert tables.suite_launch(figures).splitlines()[2] == row


def test_the_floor_is_the_tighter_of_operations_and_bytes(figures: Figures) -> None:
    assert tables.roofline_us(figures, LADDER) == pytest.approx(2 * 4096**3 / 550e12 * 1e6)
    assert tables.roofline_us(figures, ProblemShape(1, 8192, 8192)) == pytest.approx(
        2 * (8192 + 8192 * 8192 + 8192) / 4.5e12 * 1e6
    )


def test_everyone_is_shown_and_the_examples_best_tile(figures: Figures) -> None:
    assert tables.contenders(figures).splitlines()[2] == "| 4096 x 4096 x 4096 | 550 |  | 344 |  |  | 172 |  | 275 |"
    assert tables.hopper(figures).splitlines()[0] == "| M x N x K | 128x256 | 64x64 | cutegen |"
    assert tables.hopper(figures).splitlines()[2] == "| 4096 x 4096 x 4096 | 400.0 | 1,000 | 500.0 |"


def test_the_readme_ranks_by_speed(figures: Figures) -> None:
    caption, table = tables.square(figures).split("\n\n")
    assert caption.startswith("4096 x 4096 x 4096, fp16,")
    assert (
        table
        == """\
| kernel | TFLOP/s | share of `wgmma` alone |
|---|---|---|
| `torch.matmul` | 550 | 100% |
| CUTLASS Hopper 128x256 | 344 | 62% |
| cutegen | 275 | 50% |
| `sm80_hgemm_tn` | 172 | 31% |"""
    )
    header, _, graph, launch = tables.headline(figures).splitlines()[-4:]
    assert header == "|  | suite of 1 problems | 2 random problems |"
    assert graph == "| in a CUDA graph | 0.50 (0.50 to 0.50) | 2.00 (0.25 to 16.00) |"
    assert launch.startswith("| one launch, L2 cold |")
    assert tables.headline(replace(figures, sample=())).splitlines()[-2].endswith("| 0.50 (0.50 to 0.50) |  |")


def test_quack_has_rows_where_it_took_part(figures: Figures) -> None:
    assert tables.quack(figures).startswith("Not measured")
    times = (*timed(LADDER, torch=250.0, ours=200.0, **{QUACK: 240.0}), *timed(THIN, torch=1.0, ours=2.0))
    assert tables.quack(replace(figures, suite=times)).splitlines()[2:] == [
        "| 4096 x 4096 x 4096 | 250.0 | 240.0 | 200.0 | 1.20 |",
        "| median |  |  |  | **1.20** |",
        "| geometric mean |  |  |  | **1.20** |",
    ]


def test_one_extreme_problem_does_not_hide_the_median(figures: Figures) -> None:
    header, *_ = tables.peers(figures).splitlines()
    assert header == "| suite in a graph, speed over | median | geometric mean | worst to best |"
    others = [LADDER, THIN, ProblemShape(64, 64, 64)]
    times = [
        time
        for problem, quack_us in zip(others, (100.0, 101.0, 800.0), strict=True)
        for time in timed(problem, torch=100.0, ours=100.0, **{QUACK: quack_us})
    ]
    (row,) = [x for x in tables.peers(replace(figures, suite=tuple(times))).splitlines() if "QuACK" in x]
    assert row.endswith("| 1.01 | 2.01 | 1.00 to 8.00 |")


def test_kinds_are_relative_to_tn(figures: Figures) -> None:
    assert tables.kinds(figures).splitlines()[2:4] == ["| TN | 275 | 1.00 |", "| NT | 272 | 0.99 |"]


def test_the_sample_is_judged_beside_torch_and_worst_first(figures: Figures) -> None:
    sentences, _, table = tables.sample(figures).split("\n\n")
    launch, graph = sentences.splitlines()
    assert "2 problems, geometric mean 2.000 times the speed" in graph  # of 0.25 and 16
    assert "worst 0.25, best 16.00; 1 below 1, 1 below 0.97, 1 below 0.9" in graph
    assert "geometric mean 0.707 times" in launch
    assert [row.split(" | ")[0] for row in table.splitlines()[2:]] == ["| 1000 x 500 x 8", "| 1000 x 500 x 16"]
    assert table.splitlines()[2] == (
        "| 1000 x 500 x 8 | 1.00 | 4.00 | 0.25 | 6% | 8.00 | sm120 16x64x64, 8 stages | 0.50 |"
    )


def test_the_ladder_has_each_rungs_gain_over_the_one_below(figures: Figures) -> None:
    lines = tables.ladder(figures).splitlines()
    assert len(lines) == 2 + len(list(ladder())) + 1
    assert "| 1,000 | 137 |  |" in lines[2]
    assert "| 500.0 | 275 | 2.00 |" in lines[3]


def test_claims_are_held_against_the_figures(figures: Figures) -> None:
    found = {claim.text: claim for claim in claims.claims(figures)}
    alike = found["bf16 and all majors within 3% of fp16 TN at 2048^3 and above"]
    assert (alike.found, alike.holds) == ("+4.0% time, TN, bf16 at 4096x4096x4096", False)
    assert found["bias and tanh-GELU cost at most 3%"].found.startswith("+6.0%")
    assert not found["s8: at least 1.6 times fp16's speed"].holds
    cost = found["host cost of an eager call at most torch's, for every family and with an epilogue"]
    assert (cost.found, cost.holds) == ("sm90: 12.0 us, torch 10.0 us", False)
    before = found["`sm80_hgemm_tn` at 4096^3: still 0.61 times torch's speed, as before cutegen used `wgmma`"]
    assert (before.found, before.holds) == ("0.31", False)
    peer = found["suite in a graph: on average faster than the best tile of CUTLASS's Hopper example"]
    assert (peer.found, peer.holds) == ("0.800 over 1 problems", False)
    worst = found["suite in a graph: no problem more than 2% behind the best tile of CUTLASS's Hopper example"]
    assert worst.found == "0.80 at 4096x4096x4096"
    assert not any("QuACK" in text for text in found)
    random = found["random problems in a graph: on average at least 1.05 times torch's speed"]
    assert (random.found, random.holds) == ("2.000 over 2 problems", True)
    random = found["random problems in a graph: no problem below 0.8 times torch's speed"]
    assert (random.found, random.holds) == ("0.25 at 1000x500x8", False)
    faster = tuple(x for regime in Regime for x in timed(LADDER, regime, torch=530.0, ours=500.0))
    worst = next(
        x for x in claims.claims(replace(figures, suite=faster)) if x.text.startswith("suite in a graph: no problem")
    )
    assert (worst.found, worst.holds) == ("1.06 at 4096x4096x4096", True)


def test_energy_and_host_cost_have_their_rows(figures: Figures) -> None:
    assert tables.energy(figures).splitlines()[2] == "| cutegen | 1.500 | 10.914 | 600 | 55.0 | 1400 |"
    assert tables.host(figures).splitlines()[2:] == ["| sm80 | 9.0 | 10.0 |", "| sm90 | 12.0 | 10.0 |"]


def test_the_counter_of_energy_is_read_between_its_steps() -> None:
    """10 J a launch, counted in steps of 30 J: what lies before the first step and after the last one is left out."""
    readings = [Reading(n, 0.1 * n, 30.0 * (n // 3)) for n in range(3, 25)]
    joules, watts = between_steps(readings)
    assert (joules, watts) == (pytest.approx(10), pytest.approx(100))


def test_what_was_not_measured_is_said(figures: Figures) -> None:
    nothing = replace(figures, suite=(), sample=(), kinds=(), ladder=(), energy=(), host=(), clocks=())
    assert all("not measured" in block(nothing).lower() for name, block in tables.BLOCKS.items() if name != "run")
    assert list(claims.claims(nothing)) == []
    alone = replace(figures, suite=timed(LADDER, torch=250.0, ours=500.0), energy=(), clocks=())
    assert tables.hopper(alone).startswith("Not measured")
    assert tables.energy(alone).startswith("Not measured")
    assert tables.sample(replace(alone, sample=())).startswith("Not measured")
    assert "NVML was not read" in tables.run(alone)
    assert "250.0 torch.matmul" in tables.suite_graph(alone)


@pytest.mark.parametrize(
    ("us", "shown"), [(1374.4, "100"), (1375.8, "99.9"), (13_743.9, "10.0"), (13_760.0, "9.99"), (261.3, "526")]
)
def test_three_digits_are_shown(figures: Figures, us: float, shown: str) -> None:
    row = tables.kinds(replace(figures, kinds=timed(LADDER, TN=us))).splitlines()[2]
    assert row == f"| TN | {shown} | 1.00 |"


def test_figures_survive_their_file_a_line_for_each_time(figures: Figures) -> None:
    text = dumped(figures)
    assert loaded(text) == figures
    lines = text.replace(",\n", "\n").splitlines()
    assert '["4096x4096x4096", "graph", "torch.matmul", 250.0, 200.0, 312.5]' in lines


def test_of_several_processes_the_median_counts(figures: Figures) -> None:
    def slower(factor: float) -> Figures:
        def times(each: Time) -> Time:
            return replace(
                each, median_us=factor * each.median_us, min_us=factor * each.min_us, max_us=factor * each.max_us
            )

        of = {name: tuple(map(times, getattr(figures, name))) for name in SECTIONS}
        host = tuple(replace(x, median_us=factor * x.median_us) for x in figures.host)
        energy = tuple(replace(x, joules=factor * x.joules) for x in figures.energy)
        return replace(figures, **of, host=host, energy=energy)

    runs = [slower(1.25), replace(slower(3.0), sample=()), slower(1.0)]
    found = merged(runs)
    assert (found.processes, found.seconds) == (3, 900)
    assert tables.suite_graph(found).splitlines()[2].split(" | ")[4:6] == ["625.0", "400.0 to 1,875"]
    assert [x.median_us for x in found.sample] == [1.125 * x.median_us for x in figures.sample]
    assert [x.median_us for x in found.host] == [1.25 * x.median_us for x in figures.host]
    assert found.energy[0].joules == 1.25 * figures.energy[0].joules
    assert "3 processes in sequence, 900 s in total" in tables.run(found).replace("\n", " ")
    assert loaded(dumped(found)) == found
    with pytest.raises(OutsideError, match="differ in driver"):
        merged([figures, replace(figures, driver="1.0")])
    problem, kernel = next(iter(figures.chosen.items()))
    with pytest.raises(OutsideError, match=f"differ in chosen: {problem} is {kernel} and another$"):
        merged([figures, replace(figures, chosen={**figures.chosen, problem: "another"})])


def test_only_what_stands_between_markers_is_written(figures: Figures) -> None:
    text = "before\n<!-- performance: kinds -->\nold\n<!-- end -->\nafter\n<!-- modules: x -->\nkept\n<!-- end -->\n"
    once = documents.filled(text, figures)
    assert once == text.replace("old", "\n" + tables.kinds(figures) + "\n")
    assert documents.filled(once, figures) == once


def test_the_documents_ask_for_every_block_once() -> None:
    asked = [name for path in documents.DOCUMENTS for name in documents.asked_for(path.read_text())]
    assert sorted(asked) == sorted(tables.BLOCKS)


@pytest.mark.parametrize("device", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_the_documents_have_the_figures_that_are_kept(device: str) -> None:
    kept, pages = documents.place(device)
    figures = loaded(kept.read_text())
    assert figures.device == device
    for path in pages:
        text = path.read_text()
        assert "claims" in documents.asked_for(text) or path.name == "README.md"
        assert documents.filled(text, figures) == text, "python -m benchmarks.performance write"


def test_write_rewrites_the_documents_and_keeps_the_figures(
    figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, kept, measured = tmp_path / "doc.md", tmp_path / "kept.json", tmp_path / "out.json"
    document.write_text("<!-- performance: kinds -->\n<!-- end -->\n")
    measured.write_text(dumped(figures))
    monkeypatch.setattr(documents, "DOCUMENTS", (document,))
    monkeypatch.setattr(documents, "FIGURES", kept)
    assert door.main(["write", str(measured)]) == 0
    assert "| NT | 272 | 0.99 |" in document.read_text()
    assert loaded(kept.read_text()) == figures


def test_a_device_that_has_a_page_leaves_the_others_alone(
    figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own, kept = tmp_path / "doc.md", tmp_path / "own.md", tmp_path / "own.json"
    for page in (shared, own):
        page.write_text("<!-- performance: kinds -->\n<!-- end -->\n")
    monkeypatch.setattr(documents, "DOCUMENTS", (shared,))
    monkeypatch.setattr(documents, "OF_DEVICE", {"H100": (kept, (own,))})
    before = shared.read_text()
    of_other = replace(figures, device="NVIDIA H100 80GB HBM3")
    documents.write(of_other)
    assert loaded(kept.read_text()) == of_other
    assert shared.read_text() == before != own.read_text()


def test_without_a_gpu_it_is_said_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cutegen.bench.benchmark.present_target", lambda: None)
    out = tmp_path / "out.json"
    assert door.main(["measure", str(out)]) == 1
    assert "no supported GPU found" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["measure", "one.json", "two.json"], "two.json: only `write` takes several files"),
        (["measure", "--cutlass", "example.py", "one.json"], "--cutlass: found no file example.py"),
    ],
)
def test_a_file_that_would_be_ignored_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        door.main(words)
    assert said in capsys.readouterr().err
