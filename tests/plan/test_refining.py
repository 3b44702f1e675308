"""What was measured is joined and refined: times of two states count alike, constants follow only times that differ."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from cutegen.plan.search.warpgroup_rows import H200  # noqa: E402
from tests.gpu import written  # noqa: E402
from tests.gpu.estimates import compared_us, of_plans, row_of  # noqa: E402
from tests.gpu.fit_kernels import Fitted, Samples, predicted, refined  # noqa: E402
from tests.gpu.measured import STORED, Measured, latest, load, row_of_setting  # noqa: E402
from tests.gpu.settings import Setting, parsed  # noqa: E402

PROBLEMS, STEPS = 24, 120
MIDDLE, STREAM = (800, 2856, 3064), (128, 4096, 14336)
SLOWER, DRAWN = 1.2, 0.4
"""How much slower one kernel is made, and the share of it, in logs, that its corrections take up at least."""


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def predicted_times(slower: Setting | None = None) -> list[Measured]:
    """Problems whose kernels take what plans expect of them, but for the rows of one."""
    return [with_predicted_times(measured, slower) for measured in load(STORED)[::60][:PROBLEMS]]


def with_predicted_times(measured: Measured, slower: Setting | None = None) -> Measured:
    times = {setting: compared_us(setting, measured.problem) for setting in measured.us}
    slow = {setting: SLOWER if row_of_setting(setting) == slower else 1.0 for setting in times}
    return replace(measured, us={each: (us * slow[each],) * 2 for each, us in times.items() if math.isfinite(us)})


def corrections(samples: Samples, fitted: Fitted) -> dict[Setting, float]:
    """Logs of what the rows of plans are corrected by, of a k-tile and of the whole together, beside what they are."""
    rows = [(row_of(setting), setting, at) for setting, at in samples.rows.items() if setting.family == "sm90"]
    return {
        setting: fitted.k_tiles[at].item() + fitted.whole[at].item() - math.log(row.correction * row.overall)
        for row, setting, at in rows
    }


def test_times_that_are_as_predicted_stay_so() -> None:
    """The fastest kernels are made a little likelier all the same."""
    samples, fitted = refined(predicted_times(), STEPS)
    change = (predicted(samples, fitted) / samples.us).log().abs()
    assert change.mean() < 0.02
    assert change.max() < 0.1


def test_how_kernels_read_is_taken_out_of_their_times_and_streams_are_left_out() -> None:
    """Streams count corrections of rows by a power, so that no row's own can follow them."""
    middle, stream = (next(each for each in load(STORED) if each.problem == shape) for shape in (MIDDLE, STREAM))
    table = [with_predicted_times(each) for each in (middle, stream)]
    samples, fitted = refined(table, 0)
    assert len(samples.counts) == 1
    assert predicted(samples, fitted).tolist() == pytest.approx(samples.us.tolist())


def test_a_kernel_that_is_slower_is_corrected_and_others_are_not() -> None:
    slower = most_measured(predicted_times())
    table = predicted_times(slower)
    found, otherwise = corrections(*refined(table, STEPS)), corrections(*refined(predicted_times(), STEPS))
    change = found.pop(slower)
    assert change > DRAWN * math.log(SLOWER)
    # A row that one problem alone has goes wherever that likes; others a little where nothing is slower, too.
    times = Counter(row_of_setting(setting) for measured in table for setting in measured.us)
    assert max(abs(moved - otherwise[row]) for row, moved in found.items() if times[row] > 1) < change / 3


def test_where_some_rows_alone_are_refined_nothing_else_moves() -> None:
    assert {row_of_setting(each) for each in of_plans()} & latest()
    slower = most_measured(predicted_times())
    other = next(row for row in map(row_of_setting, of_plans()) if row.family == "sm90" and row != slower)
    moved = corrections(*refined(predicted_times(slower), STEPS, {slower}))
    samples, fitted = refined(predicted_times(slower), STEPS, {other})
    assert moved.pop(slower) > DRAWN * math.log(SLOWER)
    assert max(map(abs, moved.values())) < 1e-12
    assert abs(corrections(samples, fitted)[slower]) < 1e-12
    assert all(value == getattr(H200, name) for name, value in fitted.constants["sm90"].items())


def test_times_of_a_gpu_that_rested_count_as_much_as_of_one_that_did_not(tmp_path: Path) -> None:
    kernels = ("128x128x64_cooperative_c1x1", "128x128x64_pingpong_c1x1", "128x128x64_cooperative_c2x1")
    busy, rested, once = (f"sm90_{kernel}_k1_n8" for kernel in kernels)
    runs = [
        {"names": ["torch", busy, rested], "us": {"4096x4096x4096": [[0, 10, 20], [1, 20, 40], [2, 10, 20]]}},
        {
            "names": ["torch", once, rested],
            "us": {"4096x4096x4096": [[0, 40, 80, 20], [1, 40, 80, 10], [2, 40, 80, 80]]},
        },
    ]
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"device": "", "held_out": [], "runs": runs}))
    (measured,) = load(path)
    assert measured.torch_us == pytest.approx((20, 40))
    # Beside torch: twice in the first run; as much and four times; as much and half.
    expected = {busy: 2.0, rested: 2.0, once: 0.5**0.5}
    for name, times in expected.items():
        assert measured.us[parsed(name)][0] == pytest.approx(20 * times)
    assert measured.best == parsed(once)


def test_times_of_two_gpus_count_as_much_in_the_unit_of_what_both_have(tmp_path: Path) -> None:
    first, second, only = (
        parsed(f"sm90_{x}_k1_n8")
        for x in ("128x128x64_cooperative_c1x1", "128x128x64_pingpong_c1x1", "128x128x64_cooperative_c2x1")
    )
    paths = []
    for number, us in enumerate(({first: (10, 20), second: (20, 40)}, {first: (4, 8), second: (2, 4), only: (8, 16)})):
        rows = [[0, 30, 60], *([at + 1, *times] for at, times in enumerate(us.values()))]
        run = {"names": ["torch", *(setting.name for setting in us)], "us": {"4096x4096x4096": rows}}
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps({"device": "", "in_turns": True, "held_out": [], "runs": [run]}))
    (measured,) = load(*paths)
    # What both have takes sqrt(10 * 20) and sqrt(4 * 2): a microsecond of the second counts as five of the first.
    assert measured.torch_us == pytest.approx((30, 60))
    expected = {first: (10 * 20) ** 0.5, second: (20 * 10) ** 0.5, only: 40.0}
    assert {setting: us[0] for setting, us in measured.us.items()} == pytest.approx(expected)


def most_measured(table: Sequence[Measured]) -> Setting:
    """The row of plans that most of the problems have times of."""
    rows = {row for row in map(row_of_setting, of_plans()) if row.family == "sm90"}
    return max(rows, key=lambda row: sum(row in map(row_of_setting, each.us) for each in table))


def test_what_stays_is_written_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, page = written.SEARCH / written.MODULES["sm90"], written.PAGE
    for path in (module, page):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(written, "SEARCH", tmp_path)
    monkeypatch.setattr(written, "PAGE", tmp_path / page.name)
    samples, fitted = refined(predicted_times(), 0)
    written.write_refined(samples.rows, fitted.constants, fitted.k_tiles.tolist(), fitted.whole.tolist())
    assert (tmp_path / module.name).read_text() == module.read_text()
    assert (tmp_path / page.name).read_text() == page.read_text()
