"""Rules for the sums of 8-bit floats: the K after which the tensor core's sums are added to float32 registers, and how.

The tensor core of sm_90 keeps about 14 bits of a sum of products of 8-bit floats: small later addends are lost.
(DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.3.2, which promotes every 128 too.)
"""

from __future__ import annotations

from cutegen.algebra import Extents
from cutegen.hardware import dtype
from cutegen.plan.rules.mma import accumulator_among
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.spec import GemmSpec

DEFAULT_K = 128
SUMS, TWO_SETS, ONE_SET = "schedule.promoted_sums", "two sets in turn", "one set"
BEHIND = "the second warpgroup one k-tile later"


def promotes(spec: GemmSpec) -> bool:
    """Return whether a second set of registers holds promoted sums in addition to the tensor core's."""
    return _can_promote(spec) and spec.mma.promote_k != 0


def _can_promote(spec: GemmSpec) -> bool:
    """Return whether operands are 8-bit floats and sums float32."""
    element = dtype(spec.problem.a.dtype)
    return element.bits == 8 and not element.is_integer and _sums(spec) != "f16"


def _sums(spec: GemmSpec) -> str:
    """Name the type of the tensor core's sums."""
    return accumulator_among(spec, ("s32",) if dtype(spec.problem.a.dtype).is_integer else ("f32",))


def choose_promotion(spec: GemmSpec, cta_tile: Extents) -> Choice[int] | None:
    """The K between promotions, in whole k-tiles; None if neither the spec nor the types ask for any."""
    asked, k = spec.mma.promote_k, cta_tile[2]
    if asked and not _can_promote(spec):
        raise spec.error(
            "mma.promote_k",
            found=f"{asked} with {spec.problem.a.dtype} operands and {_sums(spec)} sums",
            expected="8-bit floats and f32 sums: only these lose digits in the tensor core",
            fix="leave the key out",
        )
    if asked is not None and asked % k:
        raise spec.error(
            "mma.promote_k",
            found=f"{asked} with k-tiles of {k}",
            expected=f"a multiple of {k}: sums are promoted between k-tiles",
            fix=f"{max(1, round(asked / k)) * k} is the nearest; 0 promotes nothing",
        )
    if asked is not None:
        return Choice(asked, Decision.as_given("mma.promote_k", str(asked)))
    if not _can_promote(spec):
        return None
    chosen = max(DEFAULT_K // k, 1) * k
    why = (
        "the tensor core keeps about 14 bits of a sum of 8-bit floats: sums are added to float32 registers before they "
        "grow long, and restart from zero"
    )
    return Choice(chosen, Decision("mma.promote_k", str(chosen), why))


def choose_promoted_sums(sets: int, warpgroups: int, *, promote_k: int, k: int, pingpong: bool) -> Choice[bool] | None:
    """Return whether the second of two `warpgroups` that share a tile starts one k-tile of `k` after the first.

    Return None if sums are not promoted. The tensor core's sums use `sets` sets of registers, as many as fit.
    """
    if promote_k == 0:
        return None
    if sets == 1:
        alone = warpgroups == 1 and not pingpong
        why = (
            "no warpgroup multiplies while it promotes" if alone else "another warpgroup multiplies while one promotes"
        )
        lacking = (
            f"the sums of {promote_k // k} k-tiles accumulate in one set"
            if promote_k > k
            else "no registers for a second set"
        )
        return Choice(False, Decision(SUMS, ONE_SET, why, rejected=(Rejected(TWO_SETS, lacking),)))
    behind = warpgroups == 2 and not pingpong
    why = "a k-tile is multiplied into one set of registers while the sums of the other are promoted"
    rejected = [Rejected(ONE_SET, "tensor cores would wait for promotions")]
    if behind:
        together = "both would store C at the same time, and no warpgroup would multiply"
        rejected.append(Rejected("both warpgroups at the same k-tile", together))
    chosen = f"{TWO_SETS}, {BEHIND}" if behind else TWO_SETS
    return Choice(behind, Decision(SUMS, chosen, why, rejected=tuple(rejected)))
