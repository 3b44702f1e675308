"""Pairs of CTAs: the rank in shared addresses, and bulk loads whose mbarrier is in the other CTA of the pair."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_kernels import BOX_BYTES, HERE, MAP, POLICIES, SYNC, launch, ready, wait
from wrong_clusters import matrix

from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, ViolationKind

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
K = ViolationKind
RANKS = np.arange(4)[:, None]


@EVERY_POLICY
def test_an_address_has_the_rank_in_its_upper_bits(policy: str) -> None:
    out, _ = launch(HERE + "shr.u32 %r3, %r4, 24;", cluster=4, policy=policy)
    assert (out == RANKS).all()
    out, _ = launch(HERE + "getctarank.shared::cluster.u32 %r3, %r4;", cluster=4, policy=policy)
    assert (out == RANKS).all()
    same = "mapa.shared::cluster.u32 %r8, %r4, %r1; setp.eq.u32 %p1, %r8, %r4; selp.u32 %r3, 1, 0, %p1;"
    assert (launch(HERE + same, cluster=4, policy=policy)[0] == 1).all()


EVEN = "and.b32 %r8, {address}, 0xFEFFFFFF;"
"""The same place in the even CTA of the pair, as kernels for pairs find it."""


@EVERY_POLICY
def test_a_mask_gives_the_even_cta(policy: str) -> None:
    put = "st.shared.u32 [%r6], %r1;" + SYNC + EVEN.format(address="%r6") + "ld.shared::cluster.u32 %r3, [%r8];" + SYNC
    out, _ = launch(HERE + put, cluster=4, policy=policy)
    assert (out == RANKS // 2 * 2).all()
    with pytest.raises(ExecutionFault, match=r"an address of another CTA of the cluster needs \.shared::cluster"):
        launch(HERE + put.replace("ld.shared::cluster", "ld.shared"), cluster=4, policy=policy)


@EVERY_POLICY
def test_generic_addresses_have_it_too(policy: str) -> None:
    put = "st.shared.u32 [%r6], %r1; cvt.u64.u32 %rd2, %r6; cvta.shared.u64 %rd2, %rd2;" + SYNC
    found, _ = launch(HERE + put + "isspacep.shared %p1, %rd2; selp.u32 %r3, 1, 0, %p1;", policy=policy)
    assert (found == 1).all()
    peer = put + "and.b64 %rd2, %rd2, 0xFFFFFFFFFEFFFFFF; ld.u32 %r3, [%rd2];" + SYNC
    assert (launch(HERE + peer, policy=policy)[0] == 0).all()


LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
BOTH = 2 * BOX_BYTES
ISSUE = MAP + EVEN.format(address="%r5") + "mov.u32 %r9, 0; shl.b32 %r10, %r1, 4;"
ISSUE += "@%p0 {opcode} [%r4], [%rd3, {{%r9, %r10}}], {rest};"


def pair(
    *,
    opcode: str = LOAD + ".cta_group::2",
    rest: str = "[%r8]",
    expected: int = BOTH,
) -> str:
    """Each CTA of a pair loads its box and signals the even CTA, which alone waits, and then tells the other."""
    body = HERE + ready(1) + "setp.eq.and.u32 %p5, %r1, 0, %p0;" + SYNC
    body += f"@%p5 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r5], {expected};"
    body += ISSUE.format(opcode=opcode, rest=rest)
    body += "setp.ne.u32 %p6, %r1, 0; @%p6 bra TOLD;" + wait() + "TOLD:" + SYNC
    return body + "ld.shared.u32 %r3, [%r6];" + SYNC


def expected_words() -> np.ndarray:
    tensor = matrix().array
    return np.stack([tensor[16 * rank : 16 * rank + 2, :32].reshape(-1) for rank in range(2)])


@EVERY_POLICY
def test_both_loads_of_a_pair_signal_the_even_cta(policy: str) -> None:
    out, _ = launch(pair(), tensor_map=matrix(), policy=policy)
    assert (out == expected_words()).all()


@EVERY_POLICY
@pytest.mark.parametrize(
    ("changes", "kinds", "says"),
    [
        ({"opcode": LOAD}, {K.OUT_OF_BOUNDS}, "the mbarrier is in CTA 0"),
        ({"opcode": LOAD + ".cta_group::1"}, {K.OUT_OF_BOUNDS}, "the mbarrier is in CTA 0"),
        ({"rest": "[%r5]"}, {K.BARRIER, K.ASYNC_COPY}, ""),
        ({"expected": BOX_BYTES}, {K.BARRIER, K.ASYNC_COPY}, ""),
        ({"expected": 3 * BOX_BYTES}, {K.BARRIER}, ""),
    ],
)
def test_wrong_loads_of_a_pair(changes: dict[str, object], kinds: set[ViolationKind], says: str, policy: str) -> None:
    with pytest.raises(ExecutionFault) as caught:
        launch(pair(**changes), tensor_map=matrix(), policy=policy)  # type: ignore[arg-type]
    assert caught.value.violation.kind in kinds
    assert says in str(caught.value)


@EVERY_POLICY
@pytest.mark.parametrize("odd", [0, 1])
def test_a_multicast_to_pairs_signals_the_ctas_of_one_parity(odd: int, policy: str) -> None:
    """CTA 0 loads one box for four CTAs; the mbarriers of two of them count the bytes of their pairs."""
    body = HERE + ready(1) + SYNC + f"and.b32 %r16, %r1, 1; setp.eq.and.u32 %p5, %r16, {odd}, %p0;"
    body += f"@%p5 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r5], {BOTH};" + SYNC
    body += MAP + f"mov.u32 %r9, {odd}; mapa.shared::cluster.u32 %r8, %r5, %r9; mov.u32 %r9, 0; mov.u16 %h0, 15;"
    body += "setp.eq.and.u32 %p6, %r1, 0, %p0;"
    body += f"@%p6 {LOAD}.multicast::cluster.cta_group::2 [%r4], [%rd3, {{%r9, %r9}}], [%r8], %h0;"
    body += f"setp.ne.u32 %p6, %r16, {odd}; @%p6 bra TOLD;" + wait() + "TOLD:" + SYNC
    body += "ld.shared.u32 %r3, [%r6];" + SYNC
    out, _ = launch(body, cluster=4, tensor_map=matrix(), policy=policy)
    assert (out == matrix().array[:2, :32].reshape(-1)).all()
    with pytest.raises(ExecutionFault):
        launch(body.replace(".cta_group::2", ""), cluster=4, tensor_map=matrix(), policy=policy)


@pytest.mark.parametrize(
    "instruction",
    [
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.cta_group::2 [%rd3, {%r9, %r9}], [%r4];",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%r4], [%rd0], 16, [%r5];",
    ],
)
def test_other_copies_have_no_cta_group(instruction: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"cta_group::2 is not supported"):
        launch(HERE + MAP + instruction, tensor_map=matrix())
