"""Factors of blocks in kernels of family sm100, on the CPU: right, and wrong ones that are noticed.

They have never run on hardware.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from cutegen.build import Cache
from cutegen.errors import SpecError
from cutegen.hardware.factor_atoms import ATOM_ROWS, PER_WORD, unblocked
from cutegen.plan import GemmPlan, plan
from cutegen.spec import Factors, GemmSpec, Operand, Problem, Tile, load_spec
from tests.run.sm100_cases import Case, shown, try_case

MX = Factors((1, 32), "ue8m0")


def _spec(columns: int = 64, k: int = 128, stages: int | None = 2, **problem: object) -> GemmSpec:
    operands = {"a": Operand("e4m3", "k"), "b": Operand("e4m3", "k"), "c": Operand("f32", "n")}
    factors = {"scale_a": MX, "scale_b": MX}
    return GemmSpec(
        family="sm100",
        problem=Problem(**{**operands, **factors, **problem}),  # type: ignore[arg-type]
        tile=Tile((ATOM_ROWS, columns, k), stages),
        name="scaled",
    )


PAIRS = {name: Operand("e2m1x2", "k") for name in "ab"}
NVF4: dict[str, object] = {**PAIRS, **dict.fromkeys(("scale_a", "scale_b"), Factors((1, 16), "ue4m3"))}
MXF4: dict[str, object] = {**PAIRS, "scale_a": MX, "scale_b": MX}
SEVERAL_TILES = Case(_spec(), 40, 144, 272, None)
"""Three tiles of columns, which begin at both halves of an atom; more k-tiles than stages."""

TURNED = _spec(192, a=Operand("e5m2", "m"), b=Operand("e4m3", "n"))


def test_words_of_atoms_by_hand() -> None:
    """Row r, factor k of an atom is at byte 16 (r mod 32) + 4 (r / 32) + k; atoms follow one another along K."""
    stored = np.arange(2 * 2 * 512, dtype=np.uint32).astype(np.uint8)
    found = unblocked(stored.view(np.int32).reshape(2, 256))
    assert found.shape == (256, 8)
    for row, factor in ((0, 0), (33, 2), (127, 3), (128, 0), (250, 7)):
        atom = row // 128 * 2 + factor // PER_WORD
        at = atom * 512 + 16 * (row % 32) + 4 * (row % 128 // 32) + factor % PER_WORD
        assert found[row, factor] == at % 256


@pytest.mark.dsl
@pytest.mark.parametrize(
    "case",
    [
        SEVERAL_TILES,
        pytest.param(Case(_spec(96, 256, None), 130, 300, 464, 2), marks=pytest.mark.slow),
        pytest.param(Case(_spec(96), 128, 96, 128, None), marks=pytest.mark.slow),
        pytest.param(Case(TURNED, 256, 400, 96, None), marks=pytest.mark.slow),
        pytest.param(Case(_spec(128), 128, 128, 0, None), marks=pytest.mark.slow),
        pytest.param(Case(_spec(96, 64, **NVF4), 40, 144, 200, None), marks=pytest.mark.slow),
        pytest.param(Case(_spec(96, 128, **MXF4), 40, 144, 200, None), marks=pytest.mark.slow),
        # A CTA of two has three tiles, and one buffer of sums.
        pytest.param(Case(_spec(256), 130, 600, 272, None), marks=pytest.mark.slow),
        pytest.param(Case(_spec(256, 128, **NVF4), 130, 300, 320, None), marks=pytest.mark.slow),
    ],
    ids=["begin-within-atoms", "two-atoms-along-k", "an-atom-less-than-a-box", "transposed", "empty-k", "nvf4", "mxf4",
         "one-buffer", "one-buffer-nvf4"],
)  # fmt: skip
def test_a_kernel_is_right(case: Case, kernels: Cache) -> None:
    try_case(case, kernels)


_MMA = r"(tcgen05\.mma\S+ \[%r\d+\], %rd\d+, %rd\d+, %r\d+, )\[(%r\d+)\], \[(%r\d+)\]"
_IDS = [1 << 27 | 64 // 8 << 17 | 1 << 23 | identity << 29 | identity << 4 for identity in range(4)]
PLANTED: dict[str, tuple[str, str]] = {
    "factors shifted by one k-block": (f", {_IDS[1]};", f", {_IDS[2]};"),
    "factors of A used for B": (_MMA, r"\1[\2], [\2]"),
    "factors of A and B exchanged": (_MMA, r"\1[\3], [\2]"),
    "nothing copied to tensor memory": (r"tcgen05\.cp\S+ \[%r\d+\], %rd\d+;", ""),
    "every stage in the columns of the first": (
        r"add\.s32 (\s*%r\d+, %r\d+), %r\d+;(\s*add\.s32 \s*%r\d+, %r\d+, 4;)", r"add.s32 \1, 0;\2"
    ),
    "atoms of another place in shared memory": (r"(tcgen05\.cp\S+ \[%r\d+\]), (%rd\d+);", r"\1, %rd1;"),
    "no wait for the bytes of factors": (", 25600;", ", 24576;"),
    "columns of factors are those of sums": (r"(tcgen05\.cp\S+) \[(%r\d+)\]", r"\1 [%r10]"),
}  # fmt: skip
"""A mistake in every place of the text: by a pattern, and what stands there instead."""


FIRST, *OTHERS = PLANTED


@pytest.mark.dsl
@pytest.mark.parametrize("mistake", [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_a_mistake_is_noticed(mistake: str, kernels: Cache) -> None:
    before, after = PLANTED[mistake]
    assert shown(SEVERAL_TILES, kernels, (re.compile(before), after))


def test_the_shipped_spec_has_factors_on_the_pipeline_of_k_tiles() -> None:
    found = plan(load_spec("sm100_mxf8_tn"), "sm_100")
    assert isinstance(found, GemmPlan)
    assert [x.name for x in found.operands] == ["a", "b", "scale_a", "scale_b"]
    # A tile of 192 columns meets two atoms wherever it begins.
    assert [x.tile for x in found.operands[2:]] == [(1, 128), (2, 128)]
    assert found.predictions.instructions["tcgen05.cp.cta_group::1.32x128b.warpx4"] == 3
    assert found.stages * 12 + 2 * 192 <= 512


def test_the_shipped_spec_of_4_bits_has_an_atom_for_each_instruction() -> None:
    """An instruction has 64 values of K, 32 pairs: 4 factors of 16."""
    found = plan(load_spec("sm100_nvf4_tn"), "sm_103")
    assert isinstance(found, GemmPlan)
    assert found.atom.name == "SM100_128x128x64_F32E2M1E2M1_UE4M3_VS16_SS"
    assert found.mma.k_blocks == 4
    assert [x.tile for x in found.operands[2:]] == [(1, 4 * 128)] * 2
    assert found.stages * 32 + 2 * 128 <= 512
    assert found.launch.scalars == ()
    assert {"scale_m", "scale_n"} < {x.name for x in found.launch.tensors}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_spec(288), "tile.cta: found 128x288x128; expected M = 128, the lanes of tensor memory, and N a"),
        (_spec(48), "N a multiple of 32 up to 256"),
        (replace(_spec(), tile=Tile((64, 64, 128))), "up to 256; of one CTA no tcgen05.mma with factors has fewer"),
        (_spec(256, 128, 6, **NVF4), "found 6 stages of 48 columns of factors beside 256 of sums"),
        (_spec(64, 64), "K a multiple of 128, that of 4 factors of a row"),
        (_spec(224, stages=6), "tile.stages: found 6 stages of 16 columns of factors beside 448 of sums"),
        (_spec(a=Operand("bf16", "k"), b=Operand("bf16", "k")), "ue8m0 of blocks of 1x32 of e4m3 or e5m2"),
        (_spec(**{**NVF4, "a": Operand("e2m1x2", "m")}), "transposes no elements of 8 bits"),
        (_spec(**{**MXF4, "scale_a": None, "scale_b": None}), "e2m1x2"),
        (_spec(scale_a=Factors((1, 64), "ue8m0"), scale_b=Factors((1, 64), "ue8m0")), "problem.scale_a: found"),
    ],
)  # fmt: skip
def test_factors_that_no_instruction_reads_are_refused(spec: GemmSpec, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        plan(spec, "sm_100")
    assert message in str(refused.value)


def test_factors_of_other_families() -> None:
    with pytest.raises(SpecError, match='expected "f32": threads scale sums by it; family = "sm100"'):
        plan(GemmSpec(family="sm90", problem=_spec().problem, name="scaled"), "sm_90")
    with pytest.raises(SpecError, match="expected 1 row"):
        _spec(scale_a=Factors((128, 32), "ue8m0"), scale_b=Factors((128, 32), "ue8m0"))
