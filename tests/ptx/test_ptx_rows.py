"""What the rows of instructions declare: what ends a block, what holds registers, and who accesses shared memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cutegen.ptx
from cutegen.ptx.instructions import row_of
from cutegen.ptx.text.flow import Ends, written_registers
from cutegen.ptx.text.parser import parse_module
from cutegen.ptx.text.syntax import Instruction
from cutegen.ptx.watch.actor import Proxy


def instruction(opcode: str) -> Instruction:
    return Instruction(line=1, text=opcode, guard=None, parts=tuple(opcode.split(".")), operands=())


@pytest.mark.parametrize(
    ("opcode", "ends"),
    [
        ("bra.uni", Ends.BRANCH),
        ("brx.idx", Ends.BRANCH),
        ("ret", Ends.RETURN),
        ("call.uni", Ends.CALL),
        ("exit", Ends.EXIT),
        ("bar.sync", Ends.BARRIER),
        ("barrier.cta.red.popc.u32", Ends.BARRIER),
        ("bar.warp.sync", Ends.NOTHING),
        ("barrier.cluster.arrive.relaxed", Ends.NOTHING),
        ("barrier.cluster.wait.acquire.aligned", Ends.WAIT),
        ("mbarrier.init.shared::cta.b64", Ends.NOTHING),
        ("mbarrier.try_wait.parity.shared.b64", Ends.WAIT),
        ("mbarrier.test_wait.shared.b64", Ends.WAIT),
        ("wgmma.wait_group.sync.aligned", Ends.WAIT),
        ("wgmma.commit_group.sync.aligned", Ends.NOTHING),
        ("setmaxnreg.dec.sync.aligned.u32", Ends.WAIT),
        ("add.f32", Ends.NOTHING),
    ],
)
def test_what_ends_a_block(opcode: str, ends: Ends) -> None:
    assert row_of(instruction(opcode)).ends is ends


@pytest.mark.parametrize(
    ("opcode", "noun", "proxy"),
    [
        ("cp.async.cg.shared.global", "cp.async", Proxy.GENERIC),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group", "bulk copy", Proxy.ASYNC),
        ("st.async.shared::cluster.b32", "st.async", Proxy.GENERIC),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma.mma_async", Proxy.ASYNC),
    ],
)
def test_who_accesses_shared_memory_after_the_issue(opcode: str, noun: str, proxy: Proxy) -> None:
    agent = row_of(instruction(opcode)).agent
    assert agent is not None
    assert (agent.noun, agent.proxy) == (noun, proxy)


@pytest.mark.parametrize("opcode", ["st.shared.b32", "ld.shared.b32", "wgmma.fence.sync.aligned", "mbarrier.arrive"])
def test_ordinary_instructions_have_no_agent(opcode: str) -> None:
    assert row_of(instruction(opcode)).agent is None


def test_a_barrier_reads_its_registers_and_a_vote_at_a_barrier_writes_one() -> None:
    text = """.version 8.0
.target sm_90a
.address_size 64
.entry k() {
    .reg .b32 %r<4>; .reg .pred %p<2>;
    bar.sync %r1, %r2;
    bar.red.popc.u32 %r3, %r1, %p1;
    nanosleep.u32 %r1;
    ret;
}"""
    sync, vote, sleep = parse_module(text).entries[0].instructions[:3]
    written = [written_registers(each, sources_only=row_of(each).sources_only) for each in (sync, vote, sleep)]
    assert [len(registers) for registers in written] == [0, 1, 0]


def test_what_prepares_an_entry_names_no_instruction() -> None:
    """An instruction that is special says so in its row. `mov` is: compilers put copies after a `wgmma.fence`."""
    package = Path(cutegen.ptx.__file__).parent
    for name in ("prepare.py", "text/flow.py", "watch/shadow.py"):
        assert not re.search("wgmma|mbarrier|setmaxnreg|cp.async.bulk", _code(package / name)), name


def _code(path: Path) -> str:
    """A module without its docstrings and comments."""
    return re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text())
