"""A PTX kernel of only `wgmma`: its rate is the limit for every kernel with that instruction.

Each SM has one CTA of two warpgroups, like the fastest kernels. Each warpgroup multiplies its own 64 rows by 256
columns, both from shared memory in the layout of bulk tensor copies (rows of 128 bytes, swizzled), and waits only for
the previous group. The operands are random, 128 bytes of K long, so that the multipliers' inputs change between
instructions as in a real GEMM. B and its negative alternate, which keeps the sums changing and within range for any
number of iterations.
"""

from collections.abc import Iterator

from cutegen.bench.peak_kernel import NEGATION, WGMMA_N, MmaTypes, PeakKernel, begun, draw, looped, stored
from cutegen.hardware import GMMA_LAYOUTS, OperandDescriptors, dtype, operand_descriptors
from cutegen.hardware.units import WARPGROUP, WGMMA_ROWS

ENTRY = "wgmma_peak"
WARPGROUPS = 2
ROW_BYTES = 128
K_BLOCKS = 4
WGMMA_PER_ITERATION = 2 * K_BLOCKS
THREADS = WARPGROUPS * WARPGROUP
_WORD_BYTES = 4
_ROWS_BYTES = WGMMA_ROWS * ROW_BYTES
_A_BYTES, _B_BYTES = WARPGROUPS * _ROWS_BYTES, WGMMA_N * ROW_BYTES
SMEM_BYTES = _A_BYTES + 2 * _B_BYTES


def kernel(types: MmaTypes) -> PeakKernel:
    """Return the kernel of these types."""
    return PeakKernel(
        ptx=ptx(types),
        entry=ENTRY,
        threads=THREADS,
        ctas_per_sm=1,
        smem_bytes=SMEM_BYTES,
        flops_per_iteration=types.atom.flops * WGMMA_PER_ITERATION * WARPGROUPS,
    )


def ptx(types: MmaTypes) -> str:
    """Return the kernel's text, for sm_90a."""
    lines = "\n".join(f"    {line}" for line in _body(types))
    return f"{_HEADER}{lines}\n}}\n"


_HEADER = f"""\
.version 8.0
.target sm_90a
.address_size 64

.extern .shared .align 1024 .b8 tiles[];

.visible .entry {ENTRY}(.param .u64 sums, .param .u64 cycles, .param .u32 iterations, .param .u32 seed)
.maxntid {THREADS}, 1, 1
.minnctapersm 1
{{
    .reg .pred  %more, %first, %yes;
    .reg .b32   %random, %thread, %cta, %left, %digest, %word, %negative, %at, %c<{WGMMA_N // 2}>;
    .reg .b64   %address, %start, %end, %a, %b<2>, %one<{2 * WGMMA_PER_ITERATION}>;
"""


def _body(types: MmaTypes) -> Iterator[str]:
    sums = WGMMA_N // (2 if types.accumulator != "f16" else 4)
    yield from begun()
    yield from _fill(types)
    for i in range(sums):
        yield from draw(f"%c{i}", types.accumulator)
    yield from _descriptors(types)
    yield "ld.param.u32 %left, [iterations];"
    yield "fence.proxy.async.shared::cta;"  # the tensor core reads what generic stores wrote
    yield "bar.sync 0;"
    yield "setp.eq.u32 %yes, %left, %left;"
    yield from looped(_iteration(types, sums))
    yield "wgmma.wait_group.sync.aligned 0;"
    yield "mov.u64 %end, %clock64;"
    yield from stored(sums, THREADS)


def _fill(types: MmaTypes) -> Iterator[str]:
    """Write random words for both operands, then the negatives of B's; neighbors write neighboring words."""
    step = THREADS * _WORD_BYTES
    yield "mov.u32 %at, tiles;"
    yield f"mad.lo.u32 %at, %thread, {_WORD_BYTES}, %at;"
    for offset in range(0, _A_BYTES, step):
        yield from draw("%word", types.operands)
        yield f"st.shared.b32 [%at+{offset}], %word;"
    for offset in range(_A_BYTES, _A_BYTES + _B_BYTES, step):
        yield from draw("%word", types.operands)
        yield f"st.shared.b32 [%at+{offset}], %word;"
        yield f"xor.b32 %negative, %word, {NEGATION[types.operands]:#x};"
        yield f"st.shared.b32 [%at+{offset + _B_BYTES}], %negative;"


def _descriptors(types: MmaTypes) -> Iterator[str]:
    """Set %one<2 i> and %one<2 i + 1>: A and B of an iteration's i-th instruction; first all of B, then of -B."""
    of_a, of_b = (_described(types, rows) for rows in (WGMMA_ROWS, WGMMA_N))
    yield "mov.u32 %at, tiles;"
    yield "shr.u32 %at, %at, 4;"
    yield "cvt.u64.u32 %address, %at;"
    yield f"shr.u32 %at, %thread, {WARPGROUP.bit_length() - 1};"
    yield f"mul.wide.u32 %a, %at, {_ROWS_BYTES // 16};"
    yield "add.u64 %a, %a, %address;"
    yield f"add.u64 %a, %a, {of_a.first.encode():#x};"
    for i in range(2):
        yield f"add.u64 %b{i}, %address, {of_b.first.encode() + (_A_BYTES + i * _B_BYTES) // 16:#x};"
    for i in range(WGMMA_PER_ITERATION):
        block = i % K_BLOCKS
        yield f"add.u64 %one{2 * i}, %a, {of_a.steps(0, block)};"
        yield f"add.u64 %one{2 * i + 1}, %b{i // K_BLOCKS}, {of_b.steps(0, block)};"


def _described(types: MmaTypes, rows: int) -> OperandDescriptors:
    element = dtype(types.operands)
    layout = GMMA_LAYOUTS["Layout_K_SW128_Atom"].tile((rows, ROW_BYTES // element.bytes), element.bits)
    return operand_descriptors(layout, 1, element.bytes, rows=rows)


def _iteration(types: MmaTypes, sums: int) -> Iterator[str]:
    yield "wgmma.fence.sync.aligned;"
    for i in range(WGMMA_PER_ITERATION):
        yield _multiply(types, sums, i)
    yield "wgmma.commit_group.sync.aligned;"
    yield "wgmma.wait_group.sync.aligned 1;"


def _multiply(types: MmaTypes, sums: int, i: int) -> str:
    """Write D += A B. Floats may be negated, and 16-bit ones transposed; neither is used."""
    element = dtype(types.operands)
    flags = "" if element.is_integer else ", 1, 1, 0, 0" if element.bits == 16 else ", 1, 1"
    accumulators = ", ".join(f"%c{register}" for register in range(sums))
    return f"{types.atom.ptx} {{{accumulators}}}, %one{2 * i}, %one{2 * i + 1}, %yes{flags};"
