"""A PTX kernel that only reads device memory: its rate is the limit for every kernel with operands there.

A CTA reads 32 KiB: every thread has eight 16-byte vectors in flight, and a warp's are contiguous. Nothing is written
in practice: a thread stores its digest only if it has one particular value of 2^32.
"""

from collections.abc import Iterator

ENTRY = "read_peak"
THREADS = 256
VECTORS = 8
VECTOR_BYTES = 16
CTA_BYTES = THREADS * VECTORS * VECTOR_BYTES
_UNLIKELY = 0x5EED5EED


def ptx() -> str:
    """Return the kernel's text, for every target. Parameters: the address of CTA_BYTES per CTA, and that of a word."""
    lines = "\n".join(f"    {line}" for line in _body())
    return f"{_HEADER}{lines}\n}}\n"


_HEADER = f"""\
.version 7.0
.target sm_80
.address_size 64

.visible .entry {ENTRY}(.param .u64 source, .param .u64 found)
{{
    .reg .pred  %unlikely;
    .reg .b32   %thread, %cta, %digest, %x<{4 * VECTORS}>;
    .reg .b64   %address, %from;
"""


def _body() -> Iterator[str]:
    yield "mov.u32 %thread, %tid.x;"
    yield "mov.u32 %cta, %ctaid.x;"
    yield "ld.param.u64 %address, [source];"
    yield f"mul.wide.u32 %from, %cta, {CTA_BYTES};"
    yield "add.u64 %address, %address, %from;"
    yield f"mul.wide.u32 %from, %thread, {VECTOR_BYTES};"
    yield "add.u64 %address, %address, %from;"
    for i in range(VECTORS):
        words = ", ".join(f"%x{4 * i + j}" for j in range(4))
        yield f"ld.global.v4.u32 {{{words}}}, [%address+{i * THREADS * VECTOR_BYTES}];"
    yield "mov.u32 %digest, 0;"
    for i in range(4 * VECTORS):
        yield f"xor.b32 %digest, %digest, %x{i};"
    yield f"setp.eq.u32 %unlikely, %digest, {_UNLIKELY:#x};"
    yield "ld.param.u64 %address, [found];"
    yield "@%unlikely st.global.u32 [%address], %digest;"
    yield "ret;"
