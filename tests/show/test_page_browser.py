"""The interactive page in a real browser: what it shows is what the algebra and the hardware's rules say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cutegen.algebra import offsets, tile_to_shape
from cutegen.contract.problem import ProblemShape
from cutegen.plan import GemmPlan
from cutegen.plan.geometry import joined, vectors
from cutegen.show.page import page_of_plan
from tests.seeding import new_generator
from tests.show.browser import Page, until
from tests.show.cases import PADDED, plan_of
from tests.show.page_reference import PROBLEM, Reference, numbers, sums, turns

pytestmark = pytest.mark.slow

SPECS = ("simt_sgemm_tn", "sm80_hgemm_tn", PADDED, "joined copies", "sm120_hgemm_tn", "sm90_hgemm_tn")
ELEMENTS = 2
LEAST_VALUES = 100


class Compared:
    """Values that were read off the page and held against the reference."""

    def __init__(self) -> None:
        self.count = 0
        self.wrong: list[str] = []

    def same(self, what: str, shown: object, expected: object) -> None:
        self.count += 1
        if shown != expected:
            self.wrong.append(f"{what}: the page says {shown}, the library {expected}")


def first_number(text: str) -> int:
    found = re.search(r"\d[\d,]*", text)
    assert found is not None, text
    return int(found[0].replace(",", ""))


@pytest.mark.parametrize("name", SPECS)
def test_what_the_page_says_is_so(name: str, browser: Page, tmp_path: Path) -> None:
    random = new_generator()
    plan = plan_of(name)
    text = page_of_plan(plan, name, ProblemShape(PROBLEM, PROBLEM, PROBLEM))
    browser.open(text, tmp_path)
    found = Compared()
    for operand in ("a", "b"):
        reference = Reference(plan, operand)
        extents = reference.operand.tile
        for _ in range(ELEMENTS):
            x, y = (int(random.integers(extent)) for extent in extents)
            stage = int(random.integers(plan.stages))
            browser.search(f"{operand},{x},{y}")
            browser.slide("stage", stage)
            compare_way(browser, reference, (x, y, stage), found)
            if reference.operand.s2r.in_registers:
                compare_access(browser, reference, found)
        compare_layouts(browser, reference, found)
        compare_writes(browser, reference, found)
    compare_results(browser, plan, random, found)
    compare_hovering(browser, plan, found)
    compare_pipeline(browser, plan, found)
    print(f"{found.count} values")
    assert not found.wrong, "\n".join(found.wrong)
    assert found.count >= LEAST_VALUES
    assert (browser.requests, browser.complaints) == ([], [])


MISTAKES = {
    "a bank too far": ("mod(Math.floor(byte / BANK_BYTES), BANKS)", "mod(Math.floor(byte / BANK_BYTES) + 1, BANKS)"),
    "phases of half as many lanes": ("WARP / phasesOf(accessBytes)", "WARP / phasesOf(accessBytes) / 2"),
    "another bit is read": ("const source = ones << (base + ", "const source = ones << (1 + base + "),
    "the first stage always": ("stage * row.stage", "0 * row.stage"),
    "the register beside": ("Math.floor((value * this.bits) / 32)", "Math.floor((value * this.bits) / 32) ^ 1"),
    "half of the banks": ("const groups = LINE_BYTES / unit;", "const groups = LINE_BYTES / unit / 2;"),
    "lanes from the end": ("this.warps + warp) * lanes + lane]", "this.warps + warp) * lanes + lanes - 1 - lane]"),
    "a sector of 64 bytes": ("const SECTOR_BYTES = 32", "const SECTOR_BYTES = 64"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_script_is_seen(mistake: str, browser: Page, tmp_path: Path) -> None:
    plan = plan_of("sm80_hgemm_tn")
    text = page_of_plan(plan, mistake, ProblemShape(PROBLEM, PROBLEM, PROBLEM))
    right, wrong = MISTAKES[mistake]
    assert text.count(right) >= 1
    browser.open(text.replace(right, wrong), tmp_path)
    found, reference = Compared(), Reference(plan, "a")
    browser.search("a,13,41")
    browser.slide("stage", 1)
    compare_way(browser, reference, (13, 41, 1), found)
    compare_layouts(browser, reference, found)
    assert found.wrong


def compare_way(browser: Page, reference: Reference, place: tuple[int, int, int], found: Compared) -> None:
    """Every station of the followed element's way."""
    x, y, stage = place
    said, operand = browser.said(), reference.operand
    what = f"{operand.name}({x}, {y})"
    byte, in_row = reference.global_place(x, y)
    found.same(f"{what} byte", said["global-byte"], f"{byte} ({in_row})")
    found.same(f"{what} sector", said["global-sector"], f"{byte // 32} ({in_row // 32})")
    found.same(f"{what} copy", reference.copies(said, x, y), True)
    before, offset = reference.shared(x, y, stage)
    address = reference.begins + offset * operand.dtype.bytes
    found.same(f"{what} offset", said["offset"], f"{offset} elements")
    found.same(f"{what} before", said["before"], f"{before}")
    found.same(f"{what} XOR", said["xor"], f"{before ^ offset}" if operand.smem.swizzle else "none")
    found.same(f"{what} address", said["byte"], f"{address}")
    found.same(f"{what} bank", said["bank"], f"{address // 4 % 32}")
    bits = browser.said("#view-bits")
    found.same(f"{what} bits", (bits["bits-before"], bits["bits-after"]), (f"{before}", f"{offset}"))
    found.same(f"{what} accumulators", numbers(said["accumulator-threads"]), reference.meets(x))
    if operand.s2r.in_registers:
        compare_register(reference, what, said, reference.coordinate(x, y), found)
    else:
        found.same(f"{what} descriptor", reference.described(said, x, y, address), True)
        core, row = (said["core"], int(said["core-row"])), (x if operand.major_mode == 1 else y) % 8
        found.same(f"{what} core matrix", row, int(core[1]))


def compare_register(reference: Reference, what: str, said: dict[str, str], coordinate: int, found: Compared) -> None:
    """The load that brings an element to the shown thread, and the register where it is then."""
    operand = reference.operand
    holders = {thread for thread, held in enumerate(reference.held) if coordinate in held}
    thread = int(said["thread"][1:])
    others = set(re.findall(r"t(\d+)–?(\d+)?", said.get("others", "")))
    named = {thread} | {t for first, last in others for t in range(int(first), int(last or first) + 1)}
    if " by " not in said.get("others", ""):
        found.same(f"{what} holders", named, holders)
    found.same(f"{what} thread", thread in holders, True)
    value = reference.held[thread].index(coordinate)
    found.same(f"{what} value", said["value"], f"{value}")
    found.same(f"{what} register", first_number(said["register"]), value * operand.dtype.bits // 32)
    load, loads, warp = map(int, re.findall(r"\d+", said["load"]))
    lane, phase = first_number(said["lane"]), int(said["phase"])
    found.same(f"{what} loads", loads, len(reference.received))
    found.same(f"{what} warp", warp, thread // 32)
    found.same(f"{what} load", coordinate in reference.received[load, thread], True)
    found.same(f"{what} phase", phase, lane // (32 // max(1, reference.access // 4)))
    first = reference.addressed[load, warp, lane]
    step = operand.tile[0] if operand.major_mode == 1 else 1
    row = first + step * np.arange(reference.access // operand.dtype.bytes)
    found.same(f"{what} addressing lane", coordinate in row, True)


def compare_access(browser: Page, reference: Reference, found: Compared) -> None:
    """The banks and wavefronts of a phase, of each phase that the slider comes by."""
    shown = browser.said("#view-access")
    load, warp, phase = map(int, re.findall(r"load (\d+), warp (\d+), phase (\d+)", shown["access"])[0])
    operand = reference.operand
    stage = first_number(browser.text("#at-stage"))
    per_stage = operand.smem.chosen.tile_bytes // operand.dtype.bytes
    for step in range(2):
        phases = max(1, reference.access // 4)
        now = min(phase + step, phases - 1)
        browser.slide("phase", now)
        shown = browser.said("#view-access")
        placed = reference.phase(load, warp, now, operand.smem.layout_of_one_stage, stage * per_stage)
        banks = " ".join(str(int(byte) // 4 % 32) for byte in placed)
        found.same(f"{operand.name} load {load} phase {now}: banks", shown["first-banks"], banks)
        expected = turns(placed, reference.access)
        found.same(
            f"{operand.name} load {load} phase {now}: wavefronts", first_number(shown["phase-wavefronts"]), expected
        )


def compare_layouts(browser: Page, reference: Reference, found: Compared) -> None:
    """A switch to the best plain, padded and swizzled layout, and back."""
    operand = reference.operand
    browser.slide("stage", 0)
    for kind in ("plain", "pad", "swizzle"):
        rows = [row for row in (operand.smem.chosen, *operand.smem.ranking) if _kind(row) == kind]
        enabled = browser.driver.execute_script(f"return !document.getElementById('shared-{kind}').disabled")
        found.same(f"{operand.name}: there is {kind}", enabled, bool(rows))
        if not rows:
            continue
        browser.click(f"#shared-{kind}")
        shown = browser.said("#view-shared")
        row = rows[0]
        layout = (
            tile_to_shape(row.atom, operand.tile) if row != operand.smem.chosen else operand.smem.layout_of_one_stage
        )
        found.same(f"{operand.name}, {kind}: name", shown["layout"], row.name)
        found.same(
            f"{operand.name}, {kind}: writes", first_number(shown["writes"].split(", ", 1)[1]), row.write.predicted
        )
        found.same(f"{operand.name}, {kind}: bytes", first_number(shown["bytes"]), row.tile_bytes)
        access = browser.said("#view-access")
        if operand.s2r.in_registers:
            load, warp, phase = map(int, re.findall(r"load (\d+), warp (\d+), phase (\d+)", access["access"])[0])
            torn = reference.torn(load, warp, layout)
            found.same(f"{operand.name}, {kind}: read otherwise", "torn" in access, torn)
            is_phase = phase < max(1, reference.access // 4)
            found.same(f"{operand.name}, {kind}: phase {phase} exists", is_phase, True)
            if torn or not is_phase:
                continue
            placed = reference.phase(load, warp, phase, layout, 0)
            banks = " ".join(str(int(byte) // 4 % 32) for byte in placed)
            found.same(f"{operand.name}, {kind}: banks", access["first-banks"], banks)
            found.same(
                f"{operand.name}, {kind}: wavefronts",
                first_number(access["phase-wavefronts"]),
                turns(placed, reference.access),
            )
            if reference.access == 16 and operand.s2r.by_ldmatrix:
                every = offsets(layout)[reference.addressed] * operand.dtype.bytes
                total = sum(turns(lanes, 16) for load_ in every for lanes in load_)
                found.same(f"{operand.name}, {kind}: reads", first_number(shown["reads"].split(", ", 1)[1]), total)
    browser.driver.execute_script("document.getElementById('shared-layout').value = '0'")
    browser.driver.execute_script("document.getElementById('shared-layout').dispatchEvent(new Event('change'))")
    browser.settle()
    found.same(f"{operand.name}: back", browser.said("#view-shared")["layout"], operand.smem.chosen.name)


def compare_writes(browser: Page, reference: Reference, found: Compared) -> None:
    """The banks of a warp's copies into shared memory, in the layout in use; boxes are written by no lanes."""
    operand = reference.operand
    enabled = browser.driver.execute_script("return !document.getElementById('side-writes').disabled")
    by_threads = operand.g2s.by_kind(vectors=lambda _: True, boxes=lambda _: False)
    found.same(f"{operand.name}: writes by lanes", enabled, by_threads)
    if not by_threads:
        return
    browser.click("#side-writes")
    copy, layout = operand.g2s, operand.smem.layout_of_one_stage
    starts = vectors(copy.threads, copy.values, operand.tile)[..., 0]
    lengths = (copy.bits // operand.dtype.bits,) * len(starts)
    if copy.joins(operand.dtype, reference.plan.tiled_mma):
        starts, lengths = joined(copy.threads, copy.values, layout, operand.tile, operand.dtype.bits)
    for step in (0, len(starts) - 1):
        browser.slide("load", step)
        shown = browser.said("#view-access")
        at, warp, phase = map(int, re.findall(r"copy (\d+), warp (\d+), phase (\d+)", shown["access"])[0])
        found.same(f"{operand.name}: copy", at, step)
        bytes_ = lengths[step] * operand.dtype.bytes
        lanes = 32 // max(1, bytes_ // 4)
        first = warp * 32 + phase * lanes
        placed = offsets(layout)[starts[step, first : first + lanes]] * operand.dtype.bytes
        found.same(f"{operand.name} copy {step}", shown["first-banks"], " ".join(str(int(b) // 4 % 32) for b in placed))
        what = f"{operand.name} copy {step}: wavefronts"
        found.same(what, first_number(shown["phase-wavefronts"]), turns(placed, bytes_))
    browser.click("#side-reads")


def _kind(row: object) -> str:
    return "swizzle" if row.swizzle is not None else "pad" if row.pad_elems else "plain"  # type: ignore[attr-defined]


def compare_results(browser: Page, plan: GemmPlan, random: np.random.Generator, found: Compared) -> None:
    """The places of accumulators, and of C in shared memory."""
    (m, n, _), held, c = plan.cta_tile, sums(plan), plan.epilogue
    for _ in range(ELEMENTS):
        x, y = int(random.integers(m)), int(random.integers(n))
        browser.search(f"c,{x},{y}")
        said, what = browser.said(), f"c({x}, {y})"
        thread = int(said["thread"][1:])
        found.same(f"{what} thread", x + y * m in held[thread], True)
        found.same(f"{what} value", said["value"], f"{held[thread].index(x + y * m)} of {len(held[thread])}")
        across, along = (x, y) if c.major_mode == 1 else (y, x)
        byte = (across * PROBLEM + along) * c.dtype.bytes
        found.same(f"{what} sector", first_number(said["global-sector"]), byte // 32)
        if c.smem is None:
            continue
        rows, columns = c.part or (m, n)
        size = rows * columns
        buffer = int(said.get("slot-of-part", "0"))
        offset = int(offsets(c.smem.layout)[x % rows + y % columns * rows + buffer * size])
        address = plan.memory.offset_bytes("c") + offset * c.dtype.bytes
        found.same(f"{what} address", said["byte"], f"{address}")
        found.same(f"{what} bank", said["bank"], f"{offset * c.dtype.bytes // 4 % 32}")
        byte_in_word = offset * c.dtype.bytes % 4
        if c.dtype.bytes < 4:
            found.same(f"{what} byte of the word", first_number(said["word-bytes"]), byte_in_word)
        compare_views_of_result(browser, plan, (x % rows, y % columns, buffer), found)


def compare_views_of_result(browser: Page, plan: GemmPlan, place: tuple[int, int, int], found: Compared) -> None:
    """C is followed by every view: its layout, its swizzle's bits, and the banks of the write that covers it."""
    c, (x, y, buffer) = plan.epilogue, place
    assert c.smem is not None
    rows, columns = c.part or plan.cta_tile[:2]
    offset = int(offsets(c.smem.layout)[x + y * rows + buffer * rows * columns])
    found.same("C: layout", browser.said("#view-shared")["layout"], c.smem.chosen.name)
    found.same("C: bits", browser.said("#view-bits")["bits-after"], f"{offset}")
    found.same("C: ranking", browser.text("#view-ranking caption"), "C: the first is in use")
    found.same("C: tile", browser.said("#view-global")["tile"].split(" ")[-1], c.dtype.name)
    access = browser.said("#view-access")
    bank = offset * c.dtype.bytes // 4 % 32
    banks = {int(first) + i for first in access["first-banks"].split() for i in range(4)}
    found.same("C: the write covers the element", (access["access"].split(" ")[0], bank in banks), ("write", True))
    found.same("C: wavefronts", first_number(access["access-wavefronts"]) >= 1, True)


def compare_hovering(browser: Page, plan: GemmPlan, found: Compared) -> None:
    """The pointer over a picture is followed everywhere, and what was kept comes back when it goes."""
    browser.search("a,1,1")
    browser.slide("phase", 0)
    kept, sliders = browser.text("#followed"), browser.text("#bar")
    for view, x, y in (("map", 0.9, 0.9), ("shared", 0.5, 0.3), ("global", 0.6, 0.6), ("fragment", 0.7, 0.5)):
        browser.hover(view, x, y)
        followed = browser.text("#followed")
        found.same(f"hovering over {view}", re.fullmatch(r"[abc]\(\d+, \d+\)", followed) is not None, True)
        found.same(f"hovering over {view} moves", followed != kept, True)
        if followed[0] != "c":
            px, py = map(int, re.findall(r"\d+", followed))
            reference = Reference(plan, followed[0])
            offset = reference.shared(px, py, first_number(browser.text("#at-stage")))[1]
            found.same(f"hovering over {view}: offset", browser.said()["offset"], f"{offset} elements")
        browser.leave()
        found.same(f"the pointer leaves {view}", browser.text("#followed"), kept)
        found.same(f"the sliders after {view}", browser.text("#bar"), sliders)


def compare_pipeline(browser: Page, plan: GemmPlan, found: Compared) -> None:
    """A step on is a slot on; playing goes on by itself."""
    browser.slide("slot", 0)
    browser.click("#step")
    found.same("a step", browser.said("#view-pipeline")["slot"].split(" ")[0], "2")
    browser.click("#step-back")
    found.same("a step back", browser.said("#view-pipeline")["slot"].split(" ")[0], "1")
    browser.click("#play")
    moved = until(lambda: browser.said("#view-pipeline")["slot"].split(" ")[0] != "1", 10)
    found.same("playing", moved, True)
    browser.click("#play")


def test_tensor_memory_says_where_the_sum_of_an_element_is(browser: Page, tmp_path: Path) -> None:
    """With 128 rows a lane is a row and a column a column; without tensor memory there is no such view."""
    browser.open(page_of_plan(plan_of("sm100_mxf8_tn"), "it", ProblemShape(PROBLEM, PROBLEM, PROBLEM)), tmp_path)
    for m, n in ((5, 40), (127, 191)):
        browser.search(f"c,{m},{n}")
        said = browser.said("#view-tensor-memory")
        assert said["sum"] == f"lane {m}, column {n} of the tile's buffer"
        assert said["load"] == f"thread {m}: tcgen05.ld.sync.aligned.32x32b.x64.b32"
    assert said["columns-scale_a, stage 0"] == "columns 384 to 387"
    assert (browser.requests, browser.complaints) == ([], [])
    browser.open(page_of_plan(plan_of("sm80_hgemm_tn"), "it", ProblemShape(PROBLEM, PROBLEM, PROBLEM)), tmp_path)
    assert browser.said("#view-tensor-memory") == {}
