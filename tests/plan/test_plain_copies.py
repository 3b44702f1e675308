"""Plain copies from global to shared memory, through registers: chosen, emitted, executed, at every edge."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import pytest

from cutegen.analysis.counters import predict
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware.targeting import choose_target
from cutegen.plan import GemmPlan, plan
from cutegen.plan.kernel.program import Action
from cutegen.plan.kernel.timeline import passages, residences, slots
from cutegen.run import Kernel
from cutegen.spec import G2s, G2sCopy, GemmSpec, Mma, Smem, SmemLayout, Tile
from cutegen.verify import compare, float64_reference, random_operands
from cutegen.verify.counts import LaunchCounts, count_launch
from tests.plan.kernels import Build, execute
from tests.plan.loops import pipelined
from tests.plan.specs import gemm
from tests.plan.test_emitted import check
from tests.plan.test_executed import counted
from tests.plan.test_main_loop import issued

TILE = Tile(cta=(64, 64, 32), stages=2)
ONE_STAGE = replace(TILE, stages=1)
PLAIN = {bits: G2sCopy("universal", bits) for bits in (8, 16, 32, 64, 128)}
OF_8_BITS = replace(TILE, cta=(64, 64, 64))

SPECS = {
    "narrow": gemm(align=(2, 2, 2), tile=TILE),
    "wide": gemm(tile=TILE, g2s=G2s(PLAIN[128], PLAIN[64])),
    "one plain": gemm(tile=TILE, align=(16, 2, 16)),
    "one stage": gemm(tile=ONE_STAGE, g2s=G2s(PLAIN[32], PLAIN[128])),
    "one stage, one plain": gemm("mkn", tile=ONE_STAGE, g2s=G2s(a=PLAIN[64])),
    "one stage, cp.async": gemm("mnm", tile=ONE_STAGE),
    "across K": gemm("mnm", align=(2, 2, 2), tile=TILE),
    "three stages": gemm(align=(2, 2, 16), tile=replace(TILE, stages=3)),
    "four stages, one plain": gemm("mnn", align=(2, 16, 16), tile=replace(TILE, stages=4)),
    "odd pad": gemm(tile=TILE, smem=Smem(a=SmemLayout(pad=1), b=SmemLayout(pad=3))),
    "bf16": gemm("knm", "bf16", align=(2, 4, 2), tile=TILE),
    "bytes": gemm("kkn", "s8", align=(1, 1, 4), tile=OF_8_BITS),
    "bytes across K": gemm("mnn", "s8", align=(1, 2, 4), tile=TILE),
    "pairs of e4m3": gemm("kkn", "e4m3", align=(2, 16, 2), c_dtype="f16", tile=OF_8_BITS),
    "e5m2, one stage": gemm("kkn", "e5m2", align=(1, 4, 2), c_dtype="f16", tile=replace(OF_8_BITS, stages=1)),
    "tf32 nearest": gemm("kkn", "tf32", tile=TILE, g2s=G2s(PLAIN[32], PLAIN[128]), mma=Mma(tf32="nearest")),
    "tf32 nearest, one stage": gemm("kkn", "tf32", tile=ONE_STAGE, g2s=G2s(a=PLAIN[64]), mma=Mma(tf32="nearest")),
}
FAST = ["narrow", "one plain", "bytes"]
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in SPECS]
ONE_STAGE_NAMES = ["one stage", "one stage, cp.async"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def named(name: str) -> GemmSpec:
    return replace(SPECS[name], name=name)


def target_of(name: str) -> str:
    """The oldest target of family sm80 that knows the element types."""
    return SPECS[name].needs


def decision(found: GemmPlan, key: str) -> tuple[str, str]:
    return next((row.chosen, row.why) for row in found.decisions if row.key == key)


def test_chosen_where_no_cp_async_is_narrow_enough() -> None:
    found = plan(gemm(align=(2, 16, 16)), "sm_80")
    assert (found.a.g2s.through_registers, found.a.g2s.bits) == (True, 16)
    assert (found.b.g2s.through_registers, found.b.g2s.bits) == (False, 128)
    chosen, why = decision(found, "g2s.a")
    assert chosen.startswith("universal 16 bits")
    assert "cp.async copies at least 4 bytes" in why


@pytest.mark.parametrize(("align", "bits"), [(1, 8), (2, 16)])
def test_as_narrow_as_8_bit_elements_are_aligned(align: int, bits: int) -> None:
    found = plan(gemm("kkn", "s8", align=(align, 16, 16)), "sm_80")
    assert (found.a.g2s.through_registers, found.b.g2s.through_registers) == (True, False)
    assert decision(found, "g2s.a")[0].startswith(f"universal {bits} bits")


@pytest.mark.parametrize(("align", "bits"), [(2, 16), (4, 32), (8, 64), (16, 128)])
def test_as_wide_as_the_operand_is_aligned_when_asked_for(align: int, bits: int) -> None:
    found = plan(gemm(align=(align, 16, 16), g2s=G2s(a=G2sCopy("universal"))), "sm_80")
    assert (found.a.g2s.through_registers, found.a.g2s.bits) == (True, bits)


def test_a_layout_that_keeps_two_bytes_together_is_filled_by_plain_copies() -> None:
    found = plan(gemm(smem=Smem(b=SmemLayout(pad=1))), "sm_80")
    assert [x.name for x in found.through_registers] == ["b"]


def test_two_stages_are_enough_where_the_next_k_tile_is_in_registers() -> None:
    narrow, wide = plan(gemm(align=(2, 2, 16), tile=Tile((64, 64, 32))), "sm_80"), plan(gemm(tile=Tile((64, 64, 32))))
    assert (narrow.stages, wide.stages) == (2, 4)


def test_the_next_k_tile_counts_among_the_registers() -> None:
    """128 x 128 x 64 on 128 threads: 128 registers of sums, and 64 + 64 elements in registers of their own."""
    found = plan(gemm(align=(2, 2, 2)), "sm_80")
    assert found.threads == 256
    assert "64 registers per thread for sums, 64 for the next k-tile" in decision(found, "mma.atom_layout")[1]
    assert plan(gemm(), "sm_80").threads == 128


def test_one_stage_is_chosen_only_where_two_do_not_fit() -> None:
    """(256 + 128) x 256 elements of 2 bytes are 196,608 bytes a stage, of 232,448 on sm_90."""
    assert plan(gemm(tile=Tile(cta=(256, 128, 256))), "sm_90").stages == 1
    with pytest.raises(SpecError, match=r"tile.cta: found 1 stage: 1 x \(131,072 \+ 65,536\).*not even one stage fits"):
        plan(gemm(tile=Tile(cta=(256, 128, 256))), "sm_80")


REFUSED = {
    "cp.async of two bytes": (
        gemm(align=(2, 16, 16), g2s=G2s(a=G2sCopy("cp.async.ca"))),
        r'g2s.a.op: found "cp.async.ca", but the operand is aligned to 2 bytes; expected "universal": .* 4, 8 or 16',
    ),
    "wider than aligned": (
        gemm(align=(2, 16, 16), g2s=G2s(a=PLAIN[64])),
        r'g2s.a.bits: found 64 bits, 8 bytes at once, but .* aligned to 2 bytes; .*op = "universal" with bits = 16',
    ),
    "narrower than an element": (
        gemm(g2s=G2s(b=PLAIN[8])),
        r"g2s.b.bits: found 8; expected at least 16, one f16 of B",
    ),
    "in family sm120": (
        replace(gemm(g2s=G2s(a=G2sCopy("universal"))), family="sm120"),
        r'g2s.a.op: found "universal"; expected "cp.async.bulk.tensor".*"sm80" has cp.async and plain copies',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_way_out(name: str) -> None:
    spec, message = REFUSED[name]
    with pytest.raises(SpecError, match=message):
        plan(spec, "sm_90")


@pytest.mark.dsl
@pytest.mark.parametrize("name", NAMES)
def test_instructions(name: str, built: Build) -> None:
    """Every ld.global and st.shared of the main loop is in the PTX as often as predicted."""
    check(named(name), built, target_of(name))
    predicted = plan(named(name), target_of(name)).predictions.instructions
    plain = [opcode for opcode in predicted if opcode.startswith(("ld.global", "st.shared"))]
    assert bool(plain) is bool(plan(named(name), target_of(name)).through_registers)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("majors", "align", "arch"),
    [
        ("kkn", (2, 2, 2), "sm_80"),
        ("mnm", (2, 2, 2), "sm_100"),
        ("knn", (16, 2, 2), "sm_90"),
        ("mkn", (2, 16, 2), "sm_80"),
    ],
)
def test_the_default_tile_does_not_spill(majors: str, align: tuple[int, int, int], arch: str, built: Build) -> None:
    check(replace(gemm(majors, align=align), name=f"{majors}{align[0]}{align[1]}"), built, arch)


@pytest.mark.dsl
@pytest.mark.parametrize("name", NAMES)
def test_what_is_counted_is_what_was_predicted(name: str, built: Build) -> None:
    """Two CTAs, five k-tiles: wavefronts, sectors and instructions, A's and B's, loads and stores."""
    counts, violations = counted_on(named(name), target_of(name), 5, built)
    assert counts.differing() == {}
    plain = [key for key in counts.wavefronts if key.startswith("g2s")]
    assert plain
    assert all(counts.sectors[key].predicted is not None for key in plain)
    assert violations == ()


@pytest.mark.dsl
@pytest.mark.parametrize("k_tiles", [1, 2, 3])
@pytest.mark.parametrize("name", ["four stages, one plain", pytest.param("three stages", marks=pytest.mark.slow)])
def test_a_k_shorter_than_the_stages_is_stored_once(name: str, k_tiles: int, built: Build) -> None:
    """As a slice of K often is: no stage is filled that K has nothing for, but for the stores of each k-tile's turn."""
    counts, violations = counted_on(named(name), target_of(name), k_tiles, built)
    assert counts.differing() == {}
    assert violations == ()


def counted_on(spec: GemmSpec, target: str, k_tiles: int, built: Build) -> tuple[LaunchCounts, tuple[object, ...]]:
    """Counts of two CTAs, and what the executor found wrong."""
    found, kernel = plan(spec, target), Kernel(built(spec, target))
    m, n, k = found.cta_tile
    a, b, out = random_operands(kernel.contract, m, 2 * n, k_tiles * k, seed=1)
    report = kernel.execute(a, b, out=out)
    return count_launch(found, kernel.call_size(a, b, out), report), report.violations


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow", "one plain", "one stage, one plain"])
def test_what_counters_py_expects_of_a_gpu(name: str, built: Build) -> None:
    """Two CTAs and four k-tiles, counted by the executor instead of ncu."""
    found, artifact = plan(named(name), "sm_80"), built(named(name))
    problem = found.cta_tile[0] * 2, found.cta_tile[1], found.cta_tile[2] * 4
    expected = predict(found.to_json(), ProblemShape(*problem))
    counts = counted(execute(artifact, found.launch, *problem))
    assert counts == {counter: expected[counter] for counter in counts}


@pytest.mark.dsl
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_right_at_every_edge(name: str, device: str, built: Build) -> None:
    """Sizes below, at and beyond a tile, odd ones too; nothing is written beside the result."""
    kernel = Kernel(built(named(name), choose_target().name if device == "cuda" else target_of(name)))
    framework = "torch" if device == "cuda" else "numpy"
    for m, n, k in [(1, 1, 1), (5, 9, 0), (64, 64, 32), (65, 63, 33), (63, 129, 97)]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m + n + k, framework=framework, device=device)
        kernel(a, b, out=out)
        expected = float64_reference(a, b, kernel.contract)
        found = compare(out, expected, dtype=kernel.contract.tensor("c").dtype)
        assert found.ok, (m, n, k, found)


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow", "across K", "one plain", "one stage"])
def test_every_small_size(name: str, built: Build) -> None:
    """Each M, N and K from 1 to 9, which alignment to 2 bytes leaves without any padding."""
    kernel = Kernel(built(named(name)))
    for m, n, k in [(m, n, k) for m in (1, 2, 7, 9) for n in (1, 3, 8, 9) for k in (1, 2, 5, 9)]:
        a, b, out = random_operands(kernel.contract, m, n, k, seed=m * n + k)
        report = kernel.execute(a, b, out=out)
        assert report.violations == ()
        assert compare(out, float64_reference(a, b), dtype="f16").ok, (m, n, k)


def words(steps: list[str]) -> list[str]:
    return [word for word, _ in groupby(steps)]


def planned(found: GemmPlan) -> tuple[list[str], list[str]]:
    """Prologue, and one k-tile of the loop, in the words of `issued`."""
    prologue: list[str] = []
    body: list[str] = []
    for slot in slots(found.loop, 1):
        for step in slot.steps:
            word = f"wait {step.pending}" if step.action is Action.WAIT else step.action.name.lower()
            (prologue if slot.k_tile is None else body).append(word)
    return words(prologue), words(body)


@pytest.mark.dsl
@pytest.mark.parametrize("name", [*FAST, *(pytest.param(x, marks=pytest.mark.slow) for x in ONE_STAGE_NAMES)])
def test_the_emitted_loop_runs_the_steps_of_the_timeline(name: str, built: Build) -> None:
    found = plan(named(name), "sm_80")
    kinds = issued(built(named(name)).ptx)
    labels = [i for i, word in enumerate(kinds) if word == "label"]
    loops = [kinds[a + 1 : b] for a, b in pairwise(labels) if "multiply" in kinds[a + 1 : b]]
    assert loops[0] == planned(found)[1]


@pytest.mark.parametrize("name", SPECS)
def test_a_stage_is_stored_after_it_was_read_and_before_it_is_read_again(name: str) -> None:
    found = plan(named(name), target_of(name))
    stages = found.stages
    first = slots(found.loop, 3 * stages + 2)
    stays = list(residences(first, stages))
    for earlier in stays:
        assert earlier.landed is None or earlier.fetched <= earlier.landed
        for later in stays:
            if later.k_tile == earlier.k_tile + stages and earlier.last_read is not None:
                assert earlier.last_read < later.fetched
    for k_tile, loaded, stored in passages(first):
        following = [sent for other, sent, _ in passages(first) if other == k_tile + 1]
        assert stored is None or (loaded <= stored and all(stored <= sent for sent in following))


def test_a_load_has_a_k_tile_to_arrive() -> None:
    """4 k-blocks: sent for in the first of a k-tile, stored in the last."""
    first = slots(pipelined(2, 4, 1, (Action.GLOBAL_LOAD,)), 6)
    times = {stored - loaded for k_tile, loaded, stored in passages(first) if stored is not None and k_tile >= 2}
    assert times == {3}


def test_a_problem_finds_tiles_for_plain_copies_too() -> None:
    """The model knows a pipeline of one stage, and compares no third stage that nothing would fill sooner."""
    problem = (1000, 1000, 4096)
    assert plan(gemm(align=(2, 2, 2)), "sm_80", problem).stages == 2
    assert plan(gemm(tile=Tile(stages=1)), "sm_80", problem).stages == 1
