"""The gallery shows what is drawn today: every picture is made again and compared."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import cutegen
from cutegen.plan.kernel.program import Action, RangeName
from tests.house.documents import ROOT

SCRIPT = ROOT / "scripts" / "make_gallery.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("make_gallery", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = sys.modules["make_gallery"] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_gallery_is_up_to_date(script: ModuleType, tmp_path: Path) -> None:
    script.make_gallery(tmp_path)
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*.*")}
    kept = {path.relative_to(ROOT): path.read_text() for path in (ROOT / "docs" / "pictures").glob("*.svg")}
    kept[script.GALLERY] = (ROOT / script.GALLERY).read_text()
    assert sorted(made) == sorted(kept)
    assert [path for path, text in made.items() if text != kept[path]] == [], f"run {SCRIPT.name}"


def test_it_counts_the_k_blocks_between_a_copy_and_its_wait_as_the_loop_does() -> None:
    """Also the timelines: their rows are k-blocks."""

    def k_blocks_between(name: str) -> int:
        loop = cutegen.plan(name, "sm_80").loop
        (slots,) = (part.slots for part in loop.ranges if part.name is RangeName.TURN)
        at = {step.action: (step.ahead, i) for i, slot in enumerate(slots) for step in slot}
        (copied_ahead, copied), (waited_ahead, waited) = at[Action.FETCH], at[Action.WAIT]
        return (copied_ahead - waited_ahead) * loop.k_blocks + waited - copied

    two, three = k_blocks_between("sm80_bf16_nn"), k_blocks_between("sm80_hgemm_tn")
    words = {3: "three", 7: "seven"}
    page = " ".join((ROOT / "docs" / "gallery.md").read_text().split())
    assert f"waits for it {words[two]} k-blocks after issuing the copy, not {words[three]}." in page


def test_every_part_is_in_the_gallery(script: ModuleType) -> None:
    from cutegen.show.parts import PICTURES

    requests = [exhibit.request for exhibits in script.EXHIBITS.values() for exhibit in exhibits]
    assert all(any(f" {part} " in f"{request} " for request in requests) for part in PICTURES)
    assert any("--layout" in request for request in requests)


def test_every_photograph_is_small_and_in_the_gallery(script: ModuleType) -> None:
    """They are not taken again here: another browser draws letters otherwise."""
    kept = {path.stem: path.stat().st_size for path in (ROOT / "docs" / "pictures").glob("*.png")}
    assert sorted(kept) == sorted(page.name for page in script.PAGES)
    assert max(kept.values()) <= 160_000
