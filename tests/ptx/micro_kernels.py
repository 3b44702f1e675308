"""PTX kernels of one instruction each, for comparing the executor with references and with a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

HEADER = ".version 8.4\n.target {target}\n.address_size 64\n"
WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """`instruction` with `{d}`, `{a}`, `{b}`, `{c}` for its operands.

    `types` are those of d, a, b, c as loads and stores write them.

    `values` says what the operands hold: `bits` (any), `floats` of the operand's type, `tiny` (such floats, half of
    them subnormal or nearly), or `small` integers below 64.
    `tolerance_ulp` is how far the result may be from a GPU's; None where the result is only reported.
    """

    name: str
    instruction: str
    types: tuple[str, ...]
    values: tuple[str, ...]
    tolerance_ulp: int | None = 0
    float_result: str | None = None
    target: str = "sm_80"

    def ptx(self) -> str:
        """A kernel of blocks of 128 threads.

        Thread i reads element i of each operand and writes element i of the result.
        """
        lines = [f"ld.param.u64 %p{i}, [p{i}];" for i in range(len(self.types))]
        lines += ["mov.u32 %i0, %ctaid.x;", "mov.u32 %i1, %tid.x;", "mad.lo.u32 %i2, %i0, 128, %i1;"]
        for i, kind in enumerate(self.types):
            lines += [f"mul.wide.u32 %o{i}, %i2, {size_bytes(kind)};", f"add.s64 %q{i}, %p{i}, %o{i};"]
        letters = "dabc"
        registers = {letter: f"%{letter}" for letter in letters[: len(self.types)]}
        for i, kind in list(enumerate(self.types))[1:]:
            lines.append(f"ld.global.{memory_type(kind)} %{letters[i]}, [%q{i}];")
        lines.append(self.instruction.format(**registers))
        lines.append(f"st.global.{memory_type(self.types[0])} [%q0], %d;")
        declared = [f".reg .{register_type(kind)} %{letters[i]};" for i, kind in enumerate(self.types)]
        declared += [
            ".reg .b64 %p<4>, %q<4>, %o<4>;",
            ".reg .b32 %i<4>, %t<8>;",
            ".reg .b16 %h<8>;",
            ".reg .pred %pr<4>;",
        ]
        return entry(self.name, len(self.types), [*declared, *lines], self.target)

    def operands(self, generator: np.random.Generator, count: int) -> list[np.ndarray]:
        """Fresh operands: unsigned integers that hold the bits."""
        return [make_values(generator, how, kind, count) for how, kind in zip(self.values, self.types[1:], strict=True)]


def size_bytes(kind: str) -> int:
    """Bytes of a type such as `b32` or `f16x2`."""
    return {"f16x2": 4, "bf16x2": 4, "bf16": 2, "e4m3x2": 2, "e5m2x2": 2}.get(kind) or int(kind.lstrip("bfusi")) // 8


def memory_type(kind: str) -> str:
    """The type that loads and stores of `kind` use."""
    return f"b{size_bytes(kind) * 8}"


def register_type(kind: str) -> str:
    """The type that a register of `kind` is declared with."""
    return f"b{max(16, size_bytes(kind) * 8)}"


def entry(name: str, parameters: int, lines: list[str], target: str) -> str:
    """The PTX text of one entry with pointer parameters p0, p1, ..."""
    declared = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    body = "\n    ".join([*lines, "ret;"])
    return f"{HEADER.format(target=target)}.visible .entry {name}({declared})\n{{\n    {body}\n}}\n"


def atomic_sum(opcode: str, place: str, kind: str) -> str:
    """An instruction of `Elementwise`: d is the sum that `opcode`, `atom` or `red`, leaves in memory of a and b.

    With `atom`, d is that xor what the instruction returned. `place` is the state space that it names, or `to global`
    or `to shared`, where its address is generic. Each thread has a place of its own.
    """
    bits = 8 * size_bytes(kind)
    memory, address = ("global", "%q0") if place.endswith("global") else ("shared", "%t0")
    generic, old = "%q3" if place == "to shared" else address, {16: "%h0", 32: "%t1", 64: "%o3"}[bits]
    words = [opcode, "" if place.startswith("to ") else place, "add", "noftz" if "f16" in kind else "", kind]
    lines = [
        f".shared .align 8 .b8 cells[{128 * bits // 8}]; mov.u32 %t0, cells; mad.lo.u32 %t0, %i1, {bits // 8}, %t0;",
        f"st.{memory}.b{bits} [{address}], {{a}};",
        "cvt.u64.u32 %q3, %t0; cvta.shared.u64 %q3, %q3;",
        f"{'.'.join(filter(None, words))} {f'{old}, ' if opcode == 'atom' else ''}[{generic}], {{b}};",
        f"ld.{memory}.b{bits} {{d}}, [{address}];",
        f"xor.b{bits} {{d}}, {{d}}, {old};" if opcode == "atom" else "",
    ]
    return f"{{{{ {' '.join(lines)} }}}}"


_MANTISSA = {
    "f16": (16, 10),
    "bf16": (16, 7),
    "f32": (32, 23),
    "f64": (64, 52),
    "tf32": (32, 23),
    "e4m3": (8, 3),
    "e5m2": (8, 2),
}


def make_values(generator: np.random.Generator, how: str, kind: str, count: int) -> np.ndarray:
    """`count` values of `kind` as unsigned integers of its size."""
    dtype = np.dtype(f"u{size_bytes(kind)}") if kind not in _MANTISSA else np.dtype(f"u{_MANTISSA[kind][0] // 8}")
    if how == "small":
        return generator.integers(0, 64, count).astype(dtype)
    if kind.endswith("x2") and how != "bits":
        half = make_values(generator, how, kind.removesuffix("x2"), 2 * count)
        return half.view(dtype)
    anything = generator.integers(0, 1 << 64, count, np.uint64).astype(dtype)
    if how == "bits":
        return anything
    return _special_floats(generator, how, kind, anything)


def _special_floats(generator: np.random.Generator, how: str, kind: str, anything: np.ndarray) -> np.ndarray:
    """Random bit patterns in which normal, subnormal, infinite and NaN values are all frequent."""
    bits, mantissa = _MANTISSA[kind]
    exponents = (1 << (bits - 1 - mantissa)) - 1
    bias = exponents >> 1
    dtype = anything.dtype.type
    near = generator.integers(-6, 7, len(anything)) + bias
    exponent = np.clip(near, 1, exponents - 1)
    if how in ("floats", "tiny"):
        draw = generator.random(len(anything))
        exponent = np.where(draw < 0.4, generator.integers(0, exponents + 1, len(anything)), exponent)
        exponent = np.where(draw < 0.15, 0, exponent)
        exponent = np.where(draw < 0.06, exponents, exponent)
    if how == "tiny":
        exponent = np.where(generator.random(len(anything)) < 0.5, generator.integers(0, 4, len(anything)), exponent)
    sign = anything & dtype(1 << (bits - 1))
    fraction = anything & dtype((1 << mantissa) - 1)
    if how in ("floats", "tiny"):
        fraction = np.where((exponent == exponents) & (generator.random(len(anything)) < 0.5), dtype(0), fraction)
    return sign | (exponent.astype(anything.dtype) << dtype(mantissa)) | fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Mma:
    """One `mma.sync` of the given shape and types: each CTA is one warp with its own operands."""

    shape: str
    k: int
    a_type: str
    b_type: str
    c_type: str
    target: str = "sm_80"

    @property
    def name(self) -> str:
        """The entry's name."""
        return f"mma_{self.shape}_{self.a_type}_{self.b_type}_{self.c_type}"

    @property
    def counts(self) -> tuple[int, int, int]:
        """Registers of a thread for a, b, c."""
        bits = 32 if self.a_type == "tf32" else 16 if self.a_type in ("f16", "bf16") else 8
        a = 16 * self.k * bits // 32 // WARP
        return a, a // 2, 2 if self.c_type == "f16" else 4

    def ptx(self) -> str:
        """p0: result, p1, p2, p3: a, b, c, each [CTA][register][lane] of 32 bits."""
        a, b, c = self.counts
        lines = [".reg .b64 %p<4>, %q<4>, %o<4>;", ".reg .b32 %i<6>, %a<4>, %b<4>, %c<4>, %d<4>;"]
        lines += [f"ld.param.u64 %p{i}, [p{i}];" for i in range(4)] + ["mov.u32 %i0, %ctaid.x;", "mov.u32 %i1, %tid.x;"]
        for i, count in enumerate((c, a, b, c)):
            lines += [
                f"mad.lo.u32 %i2, %i0, {count * WARP}, %i1;",
                f"mul.wide.u32 %o{i}, %i2, 4;",
                f"add.s64 %q{i}, %p{i}, %o{i};",
            ]
        for i, (letter, count) in enumerate(zip("abc", (a, b, c), strict=True)):
            lines += [f"ld.global.b32 %{letter}{r}, [%q{i + 1}+{r * 128}];" for r in range(count)]
        vectors = [
            f"{{{', '.join(f'%{letter}{r}' for r in range(n))}}}"
            for letter, n in zip("dabc", (c, a, b, c), strict=True)
        ]
        result = self.c_type
        opcode = f"mma.sync.aligned.{self.shape}.row.col.{result}.{self.a_type}.{self.b_type}.{result}"
        lines.append(f"{opcode} {', '.join(vectors)};")
        lines += [f"st.global.b32 [%q0+{r * 128}], %d{r};" for r in range(c)]
        return entry(self.name, 4, lines, self.target)

    def operands(self, generator: np.random.Generator, ctas: int, how: str) -> list[np.ndarray]:
        """a, b, c for `ctas` warps; `how`: `normal` (near one), `floats` (special values are frequent), `bits`."""
        counts = self.counts
        return [
            _fill(generator, how, kind, (ctas, count, WARP))
            for kind, count in zip((self.a_type, self.b_type, self.c_type), counts, strict=True)
        ]


def _fill(generator: np.random.Generator, how: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    words = int(np.prod(shape))
    if kind in ("s8", "u8", "s32") or how == "bits":
        return generator.integers(0, 1 << 32, shape, np.uint32)
    per_word = 32 // _MANTISSA[kind][0]
    return make_values(generator, how, kind, words * per_word).view(np.uint32).reshape(shape)


MMAS = (
    Mma(shape="m16n8k8", k=8, a_type="f16", b_type="f16", c_type="f32"),
    Mma(shape="m16n8k16", k=16, a_type="f16", b_type="f16", c_type="f32"),
    Mma(shape="m16n8k8", k=8, a_type="f16", b_type="f16", c_type="f16"),
    Mma(shape="m16n8k16", k=16, a_type="f16", b_type="f16", c_type="f16"),
    Mma(shape="m16n8k8", k=8, a_type="bf16", b_type="bf16", c_type="f32"),
    Mma(shape="m16n8k16", k=16, a_type="bf16", b_type="bf16", c_type="f32"),
    Mma(shape="m16n8k4", k=4, a_type="tf32", b_type="tf32", c_type="f32"),
    Mma(shape="m16n8k8", k=8, a_type="tf32", b_type="tf32", c_type="f32"),
    Mma(shape="m16n8k16", k=16, a_type="s8", b_type="s8", c_type="s32"),
    Mma(shape="m16n8k32", k=32, a_type="s8", b_type="u8", c_type="s32"),
    Mma(shape="m16n8k32", k=32, a_type="e4m3", b_type="e4m3", c_type="f32", target="sm_90"),
    Mma(shape="m16n8k32", k=32, a_type="e5m2", b_type="e4m3", c_type="f32", target="sm_90"),
)


def ldmatrix_ptx(count: int, transposed: bool, bits: int = 16) -> str:
    """p0: result [register][lane]; p1: 2048 bytes of data; p2: for each lane the byte offset of its row."""
    side, trans = 128 // bits, ".trans" if transposed else ""
    registers = [f"%d{r}" for r in range(count * side // 8)]
    lines = [
        ".shared .align 128 .b8 tile[2048];",
        ".reg .b64 %p<3>, %q<4>;",
        ".reg .b32 %i<8>, %v<4>, %d<4>;",
        *[f"ld.param.u64 %p{i}, [p{i}];" for i in range(3)],
        "mov.u32 %i0, %tid.x;",
        "mov.u32 %i1, tile;",
        "mul.wide.u32 %q0, %i0, 16;",
        "add.s64 %q1, %p1, %q0;",
        "shl.b32 %i2, %i0, 4;",
        "add.s32 %i3, %i1, %i2;",
    ]
    for piece in range(4):
        lines += [f"ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%q1+{piece * 512}];"]
        lines += [f"st.shared.v4.b32 [%i3+{piece * 512}], {{%v0, %v1, %v2, %v3}};"]
    lines += [
        "bar.sync 0;",
        "mul.wide.u32 %q2, %i0, 4;",
        "add.s64 %q3, %p2, %q2;",
        "ld.global.b32 %i4, [%q3];",
        "add.s32 %i5, %i1, %i4;",
        f"ldmatrix.sync.aligned.m{side}n{side}.x{count}{trans}.shared.b{bits} {{{', '.join(registers)}}}, [%i5];",
        "add.s64 %q3, %p0, %q2;",
        *[f"st.global.b32 [%q3+{r * 128}], {register};" for r, register in enumerate(registers)],
    ]
    name = f"ldmatrix_x{count}{'_trans' if transposed else ''}"
    return entry(name, 3, lines, "sm_80" if bits == 16 else "sm_120a")
