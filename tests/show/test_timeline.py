"""The timeline draws the steps of the main loop, and stages as cp.async's rules have it."""

from __future__ import annotations

import pytest

from cutegen.contract.problem import ProblemShape
from cutegen.plan.kernel.timeline import Residence, not_shown, residences, shown
from cutegen.show.canvas.drawing import Text
from cutegen.show.parts import pipeline
from cutegen.show.parts.pipeline import LABEL_PX, SLOT_PX
from tests.show.cases import plan_of
from tests.show.geometry import labeled


@pytest.mark.parametrize("name", ["sm80_hgemm_tn", "sm80_bf16_nn", "8 stages"])
def test_a_stage_holds_one_k_tile_at_a_time_and_mma_reads_what_was_loaded(name: str) -> None:
    plan = plan_of(name)
    rows: dict[float, list[tuple[float, tuple[str, ...]]]] = {}
    for box in labeled(pipeline.picture(plan, 0)):
        if box.x >= LABEL_PX:
            rows.setdefault(box.y, []).append((round((box.x - LABEL_PX) / SLOT_PX, 6), box.lines))
    waits, loads, fetches, multiplications, *stages = (sorted(rows[y]) for y in sorted(rows))
    assert len(stages) == plan.stages
    assert all(lines[1] == "bar.sync" for _, lines in waits)
    # Each k-block is multiplied in the slot after the one that loads it.
    assert [(at + 1, lines) for at, lines in loads[:-1]] == multiplications
    # Half a slot after it is sent for, a k-tile is in flight; a stage is filled with every `stages`-th k-tile.
    for at, (k_tile, into) in fetches:
        stage = stages[int(into.split()[-1])]
        assert any(begin == at + 0.5 and lines[0] in (k_tile, k_tile.split()[-1]) for begin, lines in stage)


def test_slots_and_rows_of_the_shipped_spec() -> None:
    """3 stages and 4 k-blocks: 2 slots to fill, 1 for the first load, 4 k-tiles."""
    picture = pipeline.picture(plan_of("sm80_hgemm_tn"), 0)
    right = max(box.x + box.width for box in labeled(picture))
    assert (right - LABEL_PX) / SLOT_PX == pytest.approx(2 + 1 + 4 * 4)


@pytest.mark.parametrize(
    ("name", "stages", "stays"),
    [
        # Slots 0 and 1 send for k-tiles 0 and 1, slot 2 waits for the first: one group may be in flight. Then a k-tile
        # has four slots: the first sends for the next but one, the third loads the last k-block, the fourth waits for
        # the next. What is sent for in 3 is waited for in 10, after the k-tile before it.
        ("sm80_hgemm_tn", 3, [(0, 2, 5), (1, 6, 9), (3, 10, 13), (7, 14, 17), (11, 18, None)]),
        # Slots 0 to 3 fill four stages. K-tile 0 has slots 4 to 7; each later one has five, the first of which waits,
        # and the last releases the stage of the k-tile before it, which is then sent for.
        ("sm90_hgemm_tn", 4, [(0, 4, 12), (1, 8, 17), (2, 13, 22), (3, 18, 27), (12, 23, None)]),
    ],
)
def test_a_k_tile_lands_when_it_is_waited_for_and_stays_until_it_is_read(
    name: str, stages: int, stays: list[tuple[int, int, int | None]]
) -> None:
    plan = plan_of(name)
    found = list(residences(shown(plan.loop), plan.stages))
    for k_tile, (fetched, landed, last_read) in enumerate(stays):
        at = Residence(k_tile=k_tile, stage=k_tile % stages, fetched=fetched, landed=landed, last_read=last_read)
        assert found[k_tile] == at
    assert all(each.landed is None for each in found[len(stays) :])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sm90_e4m3_tn", ["Of every 8 k-tiles, the last"]),
        ("sm90_hgemm_tn", ["The two warpgroups multiply the last 4 k-tiles one after the other."]),
        ("sm80_hgemm_tn", []),
    ],
)
def test_how_later_k_tiles_differ_is_said(name: str, said: list[str]) -> None:
    """In the text and in the picture, which show the first k-tiles alone."""
    plan = plan_of(name)
    found = list(not_shown(plan.loop))
    assert [sentence.startswith(start) for sentence, start in zip(found, said, strict=True)] == [True] * len(said)
    text = " ".join(pipeline.view(plan, 0, ProblemShape(1024, 1024, 1024)).lines)
    written = [item.text for item in pipeline.picture(plan, 0).items if isinstance(item, Text)]
    assert all(sentence in text and sentence in written for sentence in found)


@pytest.mark.parametrize("name", ["sm90_hgemm_tn", "simt_sgemm_tn"])
def test_json_calls_no_other_multiplication_mma_sync(name: str) -> None:
    plan = plan_of(name)
    view = pipeline.view(plan, 0, ProblemShape(1024, 1024, 1024))
    actions = {step["action"] for slot in view.table["slots"] for step in slot["steps"]}
    assert "mma" in actions
    assert "mma.sync" not in f"{view.table} {plan.to_json()['loop']}"
