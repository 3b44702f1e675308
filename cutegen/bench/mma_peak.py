"""A PTX kernel of only `mma.sync`, or fma: its rate is the limit for every kernel with that instruction.

The driver compiles the text for the present GPU, so the ceiling needs no compiler. Every warp keeps eight independent
accumulators busy, each with its own operands, so that the multipliers' inputs change between instructions as in a real
GEMM. Operands are random, of magnitude 0.5 to 2. B and its negative alternate, which keeps the sums changing and within
range for any number of iterations.
"""

from collections.abc import Iterator

from cutegen.algebra import size
from cutegen.bench.peak_kernel import FMA, NEGATION, MmaTypes, PeakKernel, begun, draw, looped, stored
from cutegen.hardware import UNIVERSAL_FMA, dtype
from cutegen.hardware.units import WARP

ENTRY = "mma_peak"
WARPS_PER_CTA = 4
THREADS = WARP * WARPS_PER_CTA
CTAS_PER_SM = 2
CHAINS = 8
MMA_PER_ITERATION = 2 * CHAINS
FMA_REPEATS = 16  # makes the loop's own instructions negligible

_A_REGISTERS, _B_REGISTERS = 4, 2
_C_REGISTERS = {"f32": 4, "f16": 2, "s32": 4}
_FIRST = ".version 7.0\n.target sm_80"
_FIRST_WITH_8_BIT_FLOATS = ".version 8.4\n.target sm_89"


def kernel(types: MmaTypes) -> PeakKernel:
    """Return the kernel of these types."""
    lanes = WARP // int(size(types.atom.thr_id))
    multiplications = lanes * repeats(types) * MMA_PER_ITERATION * WARPS_PER_CTA
    return PeakKernel(
        ptx=ptx(types),
        entry=ENTRY,
        threads=THREADS,
        ctas_per_sm=CTAS_PER_SM,
        smem_bytes=0,
        flops_per_iteration=types.atom.flops * multiplications,
    )


def repeats(types: MmaTypes) -> int:
    """Return how often the loop has each chain's two instructions."""
    return FMA_REPEATS if types == FMA else 1


def registers(types: MmaTypes) -> tuple[int, int, int]:
    """Return the registers of A, B and the accumulator per instruction. Every `mma.sync` has four of A, two of B."""
    return (1, 1, 1) if types == FMA else (_A_REGISTERS, _B_REGISTERS, _C_REGISTERS[types.accumulator])


def ptx(types: MmaTypes) -> str:
    """Return the kernel's text, for the first target that has the instruction and all later ones.

    Parameters: the address of 4 bytes per thread, of 8 bytes per CTA, the iterations, a seed. A thread stores a digest
    of its sums, so that nothing is optimized away; a CTA's first thread stores the clock cycles of the loop.
    """
    lines = "\n".join(f"    {line}" for line in _body(types))
    header = _HEADER
    if dtype(types.operands).is_float8:
        header = header.replace(_FIRST, _FIRST_WITH_8_BIT_FLOATS)
    return header + lines + "\n}\n"


_HEADER = f"""\
{_FIRST}
.address_size 64

.visible .entry {ENTRY}(.param .u64 sums, .param .u64 cycles, .param .u32 iterations, .param .u32 seed)
{{
    .reg .pred  %more, %first;
    .reg .b32   %random, %thread, %cta, %left, %digest, %a<{CHAINS * _A_REGISTERS}>, %b<{CHAINS * _B_REGISTERS}>;
    .reg .b32   %negative<{CHAINS * _B_REGISTERS}>, %c<{CHAINS * 4}>;
    .reg .b64   %address, %start, %end;
"""


def _body(types: MmaTypes) -> Iterator[str]:
    a_registers, b_registers, c_registers = registers(types)
    yield from begun()
    for name, count, element in (
        ("a", CHAINS * a_registers, types.operands),
        ("b", CHAINS * b_registers, types.operands),
        ("c", CHAINS * c_registers, types.accumulator),
    ):
        for i in range(count):
            yield from draw(f"%{name}{i}", element)
    for i in range(CHAINS * b_registers):
        yield f"xor.b32 %negative{i}, %b{i}, {NEGATION[types.operands]:#x};"
    yield "ld.param.u32 %left, [iterations];"
    yield "bar.sync 0;"
    yield from looped(_multiply(types, i, b) for b in ("b", "negative") * repeats(types) for i in range(CHAINS))
    yield "mov.u64 %end, %clock64;"
    yield from stored(CHAINS * c_registers, THREADS)


def _multiply(types: MmaTypes, chain: int, b: str) -> str:
    a_registers, b_registers, c_registers = registers(types)
    if types.atom is UNIVERSAL_FMA:
        return f"{types.atom.ptx} %c{chain}, %a{chain}, %{b}{chain}, %c{chain};"
    c = _registers("c", chain, c_registers)
    return f"{types.atom.ptx} {c}, {_registers('a', chain, a_registers)}, {_registers(b, chain, b_registers)}, {c};"


def _registers(name: str, chain: int, count: int) -> str:
    return "{" + ", ".join(f"%{name}{chain * count + i}" for i in range(count)) + "}"
