"""What wrong kernels with `tcgen05` cover: every opcode by itself, every class of mistake that has a public case."""

from __future__ import annotations

import difflib
import re
from functools import cache

import pytest
from tcgen05_wrong import Wrong
from test_ptx_tcgen05 import WRONG

from cutegen.ptx.instructions.tcgen05 import ROWS

NAMES = {wrong.name: wrong for wrong in WRONG}
CLASSES = {
    "sums released while loads are in flight (FlashInfer #5334, vllm-project/flash-attention #182)": (
        "sums released while their loads are in flight",
        "no wait for a load of which one register is not used",
    ),
    "the leader of a pair does not wait for its peer's data (CUTLASS #3643)": (
        "a leader that does not wait for the peer",
    ),
    "an arrival at scope cta before an asynchronous reader (CUTLASS #3643)": (
        "the peer's arrival at scope cta, data of a bulk copy",
        "the peer's arrival at scope cta, data of a thread",
        "the leader's wait at scope cta, data of a bulk copy",
    ),
    "no cluster barrier before a pair allocates or frees (CUTLASS #3435, tilelang #2644)": (
        "no cluster barrier",
        "an allocation of one CTA",
        "columns of a pair freed while the other CTA loads",
    ),
    "columns freed while another warp loads (triton #7994, #9498)": (
        "columns freed while other warps load",
        "columns freed before the last loads",
    ),
    "a CTA exits while its peer commits to it (sglang #32954)": ("a CTA that exits while its peer commits to it",),
    "bytes expected of another number of CTAs (tilelang #2644)": ("twice the bytes expected",),
    "a commit of another group (tilelang #2287)": ("groups that differ",),
    "no fences between roles (tilelang #1980)": ("no fence before the release", "no fence behind the wait for sums"),
    "no proxy fence before a multiplication of what threads store (triton #9871)": (
        "no proxy fence",
        "factors of threads without a proxy fence",
    ),
    "an address of tensor memory read without synchronization (CUTLASS #2835)": ("no barrier after the allocation",),
    "factors of another layout or type (transformers #46209, flashinfer #2147)": (
        "factors of another type",
        "A's factors for B's",
        "one half's factors for both",
    ),
    "a count of another number of arrivals (triton #9498)": ("a count of warps for arrivals of threads",),
    "a descriptor that begins elsewhere (CUTLASS #2968)": ("factors from 16 bytes further on",),
    "a tile without k-tiles stores old sums (CUTLASS #2674)": ("a tile without k-tiles stores old sums",),
    "two warps write one slot (QuACK c8ec317)": ("two warps write one slot",),
    "a first sum that adds": ("a sum that begins with what nobody wrote", "a first sum that adds"),
    "columns that overlap": ("accumulators that overlap", "A where D is"),
    "columns that are not allocated": ("too few columns", "columns taken for granted", "a store beyond the columns"),
    "allocation": (
        "columns that are no power of two",
        "an allocation without a permit",
        "columns never freed",
        "columns freed twice",
        "columns freed at another address",
    ),
    "parity and phase": ("a wait for the other parity", "a phase that never was"),
    "a quarter of another warp": ("the lanes of warp 0 in every warp",),
    "the instruction descriptor differs from the operands": (
        "an operand said to be M-major",
        "another swizzle",
        "a product wider than its columns",
    ),
    "a stage released by an arrival in place of a commit": ("a stage released by an arrival",),
    "a commit that is missing on a path": ("sums never complete", "a stage never released"),
    "a count of another number of commits": ("a count of two commits",),
    "factors copied while they are read": ("factors copied again behind the mma that reads them",),
    "both CTAs of a pair multiply": ("both CTAs multiply",),
    "a multiplication by several lanes": ("every lane multiplies",),
    "bytes of factors": ("another factor's byte", "an odd byte for two factors"),
}
"""Classes of mistakes, with public cases, and the kernels that have them. `setmaxnreg`: `test_ptx_registers.py`."""


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_of_mistakes_has_a_wrong_kernel(kind: str) -> None:
    for name in CLASSES[kind]:
        assert NAMES[name].right.text() != NAMES[name].text


@pytest.mark.parametrize("opcode", ROWS)
def test_each_opcode_has_a_right_and_a_wrong_kernel_that_differ_in_it_alone(opcode: str) -> None:
    assert any(differences(wrong) == {opcode} for wrong in WRONG), opcode


@cache
def differences(wrong: Wrong) -> set[str]:
    """The opcodes of the statements in which a wrong kernel differs from its right one."""
    before, after = statements(wrong.right.text()), statements(wrong.text)
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changed = [s for tag, i, j, k, m in codes if tag != "equal" for s in (*before[i:j], *after[k:m])]
    return {opcode_of(statement) for statement in changed}


def statements(text: str) -> list[str]:
    """The statements of a text, without labels and guards."""
    parts = (re.sub(r"^(\w+:\s*)?(@!?%\w+\s+)?", "", part.strip()) for part in re.split(r"[;\n]", text))
    return [part for part in parts if part]


def opcode_of(statement: str) -> str:
    """The row of `tcgen05` that a statement belongs to, or its first word."""
    rows = [row for row in ROWS if statement.startswith(row)]
    return max(rows, key=len) if rows else statement.split(".")[0]
