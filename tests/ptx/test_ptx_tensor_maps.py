"""Tensor maps of 4-bit elements and of 32-byte atoms, maps in memory, and maps that a kernel makes and changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bulk_kernels import POLICIES, READY, dump, expect, store, wait
from bulk_kernels import launch as run_bulk
from kernels import cuda_program, kernel
from test_ptx_bulk import loaded, matrix_map

from cutegen.cli.main import main
from cutegen.errors import PtxSyntaxError
from cutegen.ptx import ExecutionFault, LaunchError, Program, TensorMap, TensorMaps, ViolationKind
from cutegen.ptx.machine.tensor_map import FIELDS, decode, encode

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
K = ViolationKind


@EVERY_POLICY
def test_a_swizzle_of_atoms_of_32_bytes(policy: str) -> None:
    """Atom c of row r lies in place c ^ r % 4 of its row of 128 bytes."""
    array = np.random.default_rng(3).integers(1, 1 << 16, (32, 64)).astype(np.uint16)
    tensor_map = TensorMap(
        array=array, extents=(64, 32), strides_bytes=(128,), box=(64, 32), swizzle_bytes=128, swizzle_atom_bytes=32
    )
    atoms = array.view("V32")  # (32 rows, 4 atoms)
    expected = np.zeros_like(atoms)
    for row in range(32):
        for atom in range(4):
            expected[row, atom ^ row % 4] = atoms[row, atom]
    assert loaded(tensor_map, (0, 0), policy).tobytes() == expected.tobytes()
    assert expected.tobytes() != loaded(matrix_map(array, (64, 32), 128), (0, 0), policy).tobytes()


@EVERY_POLICY
@pytest.mark.parametrize("corner", [(0, 0), (64, 3), (224, 14), (-32, 0)])
def test_elements_of_4_bits(corner: tuple[int, int], policy: str) -> None:
    """Coordinates, extents and boxes count elements; the lower half of a byte is the first."""
    nibbles = np.random.default_rng(4).integers(1, 16, (16, 256)).astype(np.uint8)
    array = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    tensor_map = TensorMap(array=array, extents=(256, 16), strides_bytes=(128,), box=(64, 4), element_bits=4)
    assert tensor_map.box_bytes == 128
    padded = np.zeros((24, 384), np.uint8)
    padded[:16, 32:288] = nibbles
    box = padded[corner[1] : corner[1] + 4, corner[0] + 32 : corner[0] + 96]
    found = loaded(tensor_map, corner, policy)
    assert (found & 15).tolist() == box[:, ::2].reshape(-1).tolist()
    assert (found >> 4).tolist() == box[:, 1::2].reshape(-1).tolist()


@EVERY_POLICY
@pytest.mark.parametrize("swizzle_bytes", [0, 128])
@pytest.mark.parametrize("bits", [4, 6])
def test_padded_elements(bits: int, swizzle_bytes: int, policy: str) -> None:
    """16 elements of 4 or 6 bits take 16 bytes of shared memory: theirs, then zeros."""
    pitch = 256 * bits // 8
    array = np.random.default_rng(5).integers(1, 256, (16, pitch)).astype(np.uint8)
    tensor_map = TensorMap(
        array=array, extents=(256, 16), strides_bytes=(pitch,), box=(128, 8), swizzle_bytes=swizzle_bytes,
        element_bits=bits, is_padded=True,
    )  # fmt: skip
    assert tensor_map.box_bytes == 1024
    expected = np.zeros((8, 8, 16), np.uint8)  # row, chunk, byte; rows past the tensor are zeros
    for row in range(4):
        for chunk in range(8):
            start = (128 + 16 * chunk) * bits // 8
            place = chunk ^ row if swizzle_bytes else chunk
            expected[row, place, : 2 * bits] = array[12 + row, start : start + 2 * bits]
    assert loaded(tensor_map, (128, 12), policy).tobytes() == expected.tobytes()
    with pytest.raises(ExecutionFault, match="expected a multiple of 128"):
        loaded(tensor_map, (64, 12), policy)


def test_padded_elements_are_not_stored() -> None:
    tensor_map = TensorMap(
        array=np.zeros((16, 64), np.uint8), extents=(128, 16), strides_bytes=(64,), box=(128, 8), element_bits=4,
        is_padded=True,
    )  # fmt: skip
    fill = "mov.u32 %r9, 0; shl.b32 %r8, %r0, 5; add.u32 %r8, %r8, %r4; st.shared.v4.u32 [%r8], {%r9, %r9, %r9, %r9};"
    fill += "st.shared.v4.u32 [%r8+16], {%r9, %r9, %r9, %r9}; fence.proxy.async; bar.warp.sync -1;"
    with pytest.raises(ExecutionFault, match="a store of padded elements"):
        run_bulk(READY + fill + store((0, 0)) + "@%p0 cp.async.bulk.wait_group 0;", tensor_map)


def test_an_odd_coordinate_of_4_bits_is_misaligned() -> None:
    tensor_map = TensorMap(
        array=np.zeros((16, 128), np.uint8), extents=(256, 16), strides_bytes=(128,), box=(64, 4), element_bits=4
    )
    with pytest.raises(ExecutionFault, match="coordinate 3 of elements of 4 bits; expected a multiple of 32"):
        loaded(tensor_map, (3, 0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"element_bits": 6}, r"elements of 6 bits; expected one of \(None, 4\)"),
        ({"element_bits": 2, "is_padded": True}, r"elements of 2 bits; expected one of \(4, 6\)"),
        ({"extents": (255, 16)}, "expected multiples of 2 along the first mode"),
        ({"is_padded": True}, "expected multiples of 128 along the first mode"),
        ({"is_padded": True, "box": (128, 4), "swizzle_bytes": 64}, "expected 0 or 128, and multiples of 32"),
        ({"swizzle_atom_bytes": 64}, "atoms of 64 bytes; expected 16 or 32"),
        ({"swizzle_atom_bytes": 32}, "atoms of 32 bytes under a swizzle of 0; expected 128"),
        ({"box": (512, 4)}, "expected 1 to 256 elements"),
        ({"array": np.zeros((16, 64), np.uint16)}, "elements of 4 bits in items of 2 bytes"),
    ],
)
def test_maps_that_do_not_exist_are_refused(change: dict[str, object], message: str) -> None:
    right = {"array": np.zeros((16, 128), np.uint8), "extents": (256, 16), "strides_bytes": (128,), "box": (64, 4)}
    with pytest.raises(LaunchError, match=message):
        TensorMap(**{**right, "element_bits": 4, **change})  # type: ignore[arg-type]


def test_a_map_survives_its_bytes() -> None:
    array = np.zeros((4, 40, 256), np.float16)
    one = TensorMap(array=array, extents=(256, 40, 4), strides_bytes=(512, 20480), box=(64, 8, 2), swizzle_bytes=128)
    narrow = TensorMap(
        array=np.zeros((16, 128), np.uint8), extents=(256, 16), strides_bytes=(128,), box=(256, 4),
        swizzle_bytes=128, swizzle_atom_bytes=32, element_bits=4,
    )  # fmt: skip
    padded = TensorMap(
        array=np.zeros((16, 192), np.uint8), extents=(256, 16), strides_bytes=(192,), box=(128, 4), element_bits=6,
        is_padded=True,
    )  # fmt: skip
    for given in (one, narrow, padded):
        octets = encode(given, 0x1234_5678_9AB0)
        found, address = decode(octets)
        assert len(octets) == 128
        assert address == 0x1234_5678_9AB0
        for name in (
            "extents",
            "strides_bytes",
            "box",
            "swizzle_bytes",
            "swizzle_atom_bytes",
            "element_bits",
            "is_padded",
        ):
            assert getattr(found, name) == getattr(given, name)
        assert found.array.dtype.itemsize == given.array.dtype.itemsize


@EVERY_POLICY
def test_maps_in_global_memory(policy: str) -> None:
    """A pointer to two maps: each of two loads uses one, and so does a map inside of a structure."""
    arrays = [np.arange(start, start + 256, dtype=np.uint32).reshape(8, 32) for start in (0, 1000)]
    maps = TensorMaps(tuple(matrix_map(array, (32, 4)) for array in arrays))
    load = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    body = READY + expect(1024) + "ld.param.u64 %rd3, [maps]; mov.b64 %rd4, many; cvta.param.u64 %rd4, %rd4;"
    body += f"@%p0 {load} [%r4], [%rd3+128, {{0, 2}}], [%r5]; @%p0 {load} [%r4+512], [%rd4+64, {{0, 4}}], [%r5];"
    body += wait() + dump(1024)
    parameters = ".param .u64 maps, .param .align 64 .b8 many[192], .param .u64 out"
    text, out = kernel(body, shared_bytes=16384, parameters=parameters), np.zeros(1024 // 4 + 32, np.uint32)
    many = (np.uint64(5), matrix_map(arrays[0], (32, 4)))
    Program.parse(text).launch("k", grid=1, block=32, args=[maps, many, out], policy=policy)
    assert (out[32:160].reshape(4, 32) == arrays[1][2:6]).all()
    assert (out[160:].reshape(4, 32) == arrays[0][4:8]).all()
    out[:] = 0
    Program.parse(text).launch("k", grid=1, block=32, args=[maps, many, out], policy=policy, jobs=2)
    assert (out[32:160].reshape(4, 32) == arrays[1][2:6]).all()
    wrong = text.replace("[%rd4+64,", "[%rd4,")
    with pytest.raises(ExecutionFault, match="the bytes are not a tensor map"):
        Program.parse(wrong).launch("k", grid=1, block=32, args=[maps, many, out], policy=policy)


def test_launch_files_have_them(tmp_path: Path) -> None:
    load = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    body = READY + expect(128) + f"ld.param.u64 %rd3, [map]; @%p0 {load} [%r4], [%rd3, {{0, 0}}], [%r5];" + wait()
    text = kernel(body, shared_bytes=16384, parameters=".param .u64 map, .param .u64 out")
    (tmp_path / "k.ptx").write_text(text)
    table = "box = [64, 4], element_bits = 4, in_memory = true"
    argument = f'[[argument]]\narray = "u8"\nshape = [16, 128]\nfill = "random"\ntensor_map = {{ {table} }}\n'
    out = '[[argument]]\narray = "u32"\nshape = [32]\nfill = "zeros"\n'
    (tmp_path / "k.toml").write_text("block = 32\n" + argument + out)
    words = ["check", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "k.toml")]
    assert main(words) == 0
    (tmp_path / "k.toml").write_text("block = 32\n" + argument.replace("= true", "= 3") + out)
    assert main(words) == 2


PROGRAM = cuda_program("tensor_maps")
TEXT = PROGRAM.text
MATRICES = ((8, 32), (5, 48), (20, 36))


def first_boxes(text: str, policy: str) -> None:
    generator = np.random.default_rng(8)
    matrices = [generator.standard_normal(shape).astype(np.float32) for shape in MATRICES]
    values = np.concatenate([matrix.reshape(-1) for matrix in matrices])
    table = np.zeros(3, [("first", "i8"), ("rows", "i4"), ("pitch_bytes", "i4")])
    table["first"] = np.cumsum([0, *(matrix.size for matrix in matrices[:-1])])
    table["rows"], table["pitch_bytes"] = zip(*((len(m), m.strides[0]) for m in matrices), strict=True)
    original = TensorMap(array=values, extents=(32, 8), strides_bytes=(128,), box=(32, 8))
    out, made = np.full((3, 8, 32), np.nan, np.float32), np.zeros(128, np.uint8)
    args = [original, values, table.view(np.uint8), made, out, 3]
    Program.parse(text).launch("first_boxes", grid=1, block=32, args=args, policy=policy, max_steps=20_000)
    for matrix, found in zip(matrices, out, strict=True):
        rows = min(8, len(matrix))
        assert (found[:rows] == matrix[:rows, :32]).all()
        assert (found[rows:] == 0).all()


@EVERY_POLICY
def test_a_kernel_makes_its_maps(policy: str) -> None:
    first_boxes(TEXT, policy)


ADDRESS = "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r10], %rd13;"
EXTENT = "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r10], 1, "
STRIDE = "tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r10], 0, "
PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu"
WAIT_AGAIN = "@!done bra again;"


def without(text: str, start: str) -> str:
    """The text without the instruction that begins so."""
    assert text.count(start) == 1, start
    at = text.index(start)
    return text[:at] + text[text.index(";", at) + 1 :]


@EVERY_POLICY
@pytest.mark.parametrize("start", ["tensormap.replace.tile.global_address", EXTENT, STRIDE])
def test_a_field_that_is_not_replaced_shows_in_the_result(start: str, policy: str) -> None:
    with pytest.raises((AssertionError, ExecutionFault)):
        first_boxes(without(TEXT, start), policy)


@EVERY_POLICY
@pytest.mark.parametrize(
    ("change", "kinds", "says"),
    [
        ((PUBLISH, None), {K.OUT_OF_BOUNDS}, "not a tensor map"),
        ((ACQUIRE, None), {K.RACE}, "without its acquire: a fence.proxy.tensormap::generic.acquire"),
        ((ACQUIRE, "fence.proxy.tensormap::generic.release.gpu; //"), {K.RACE}, "without its acquire"),
        ((WAIT_AGAIN, ""), {K.RACE, K.ASYNC_COPY, K.UNINITIALIZED, K.BARRIER}, ""),
    ],
)
def test_wrong_orders_are_caught(change: tuple[str, str | None], kinds: set[K], says: str, policy: str) -> None:
    text = without(TEXT, change[0]) if change[1] is None else TEXT.replace(change[0], change[1])
    with pytest.raises(ExecutionFault) as caught:
        first_boxes(text, policy)
    assert caught.value.violation.kind in kinds
    assert says in str(caught.value)


COPY = "mov.b64 %rd2, map; cvta.param.u64 %rd2, %rd2; shl.b32 %r6, %r0, 2; cvt.u64.u32 %rd4, %r6;"
COPY += "add.s64 %rd5, %rd2, %rd4; ld.u32 %r7, [%rd5]; ld.param.u64 %rd3, [made]; add.s64 %rd5, %rd3, %rd4;"
COPY += "st.global.u32 [%rd5], %r7; bar.warp.sync -1;"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
USE = "fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;"
LOAD = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd3, {0, 0}], [%r5];"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {0, 0}], [%r4]; cp.async.bulk.commit_group;"
REPLACE = "@%p0 tensormap.replace.tile.box_dim.global.b1024.b32 [%rd3], 1, 4;"


def written(body: str, policy: str) -> None:
    """32 threads write a copy of a map to global memory, then do `body`."""
    array = np.ones((8, 32), np.uint32)
    parameters = ".param .align 64 .b8 map[128], .param .u64 made, .param .u64 out"
    text = kernel(READY + COPY + body, shared_bytes=16384, parameters=parameters).replace("sm_80", "sm_90a")
    args = [matrix_map(array, (32, 4)), np.zeros(128, np.uint8), np.zeros(32, np.uint32)]
    Program.parse(text).launch("k", grid=1, block=32, args=args, policy=policy, max_steps=20_000)


PUT = "shl.b32 %r8, %r0, 4; add.u32 %r8, %r8, %r4; st.shared.v4.u32 [%r8], {%r0, %r0, %r0, %r0};"
PUT += "fence.proxy.async; bar.warp.sync -1;"
SYNC = "bar.warp.sync -1;"
PUBLISHED = RELEASE + SYNC + USE
ANOTHER = RELEASE + SYNC + "setp.eq.u32 %p3, %r0, 5; @%p3 " + USE
FILL = expect(512) + "@%p0 " + LOAD
ONE = "@%p0 bra ONE; bra ALL; ONE:" + STORE
SEQUENCES = [
    ("release, acquire, load", PUBLISHED + FILL + wait(), None),
    ("no release", USE + FILL + wait(), "without its release"),
    ("an acquire by another thread", ANOTHER + SYNC + FILL + wait(), None),
    ("an acquire by another thread, without order", ANOTHER + FILL + wait(), "without its acquire"),
    ("an acquire before the write", USE + REPLACE + RELEASE + FILL + wait(), "without its acquire"),
    ("a change after the wait", PUBLISHED + FILL + wait() + REPLACE, None),
    ("a change in flight", PUBLISHED + FILL + REPLACE + wait(), "not ordered after the read by a bulk copy"),
    ("a change after a store", PUT + PUBLISHED + ONE + "cp.async.bulk.wait_group 0; ALL:" + REPLACE, None),
    (
        "a change during a store",
        PUT + PUBLISHED + ONE + REPLACE + "cp.async.bulk.wait_group 0; ALL:",
        "still be reading",
    ),
]


@EVERY_POLICY
@pytest.mark.parametrize(("name", "body", "says"), SEQUENCES, ids=[row[0] for row in SEQUENCES])
def test_writes_reach_copies_through_a_release_and_an_acquire(
    name: str, body: str, says: str | None, policy: str
) -> None:
    if says is None:
        written(body + "mov.u32 %r3, 0;", policy)
        return
    with pytest.raises(ExecutionFault, match=says) as caught:
        written(body + "mov.u32 %r3, 0;", policy)
    assert caught.value.violation.kind is K.RACE


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_replaced(name: str) -> None:
    """In shared memory, from a zeroed object: the number goes to the field, and nowhere else."""
    field = FIELDS[name]
    for mode in range(field.count):
        value = {"global_stride": 4096, "global_address": 0x1234_5678_9ABC_DEF0}.get(name, 1 + field.less)
        kind = "b64" if name in ("global_address", "global_stride") else "b32"
        ordinal = f"{mode}, " if field.count > 1 else ""
        body = (
            "mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.u32 %r6, %r4, %r5; st.shared.u32 [%r6], 0; bar.warp.sync -1;"
        )
        body += "setp.eq.u32 %p0, %r0, 0;"
        body += f"@%p0 tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%r4], {ordinal}{value};"
        body += "bar.warp.sync -1; ld.shared.u32 %r3, [%r6];"
        out = np.zeros(32, np.uint32)
        text = kernel(body, shared_bytes=128).replace(".align 16 .b8 smem", ".align 128 .b8 smem")
        Program.parse(text).launch("k", grid=1, block=32, args=[out])
        word, shift = field.place(mode)
        expected = np.zeros(32, np.uint32)
        expected[word] = ((value // field.unit - field.less) & ((1 << field.bits) - 1)) << shift
        if field.wide:
            expected[word + 1] = value >> 32
        assert (out == expected).all(), (name, mode)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4], 5, 3;", "the mode is a literal from 0 to 4"),
        ("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4], 3;", "expected 3 operands"),
        ("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r4], 1, 3;", "expected 2 operands"),
        ("tensormap.replace.tile.rank.local.b1024.b32 [%r4], 3;", "in .global or .shared::cta memory"),
        ("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r4], %r1;", "is a literal"),
        ("tensormap.replace.tile.color.shared::cta.b1024.b32 [%r4], 3;", "expected one of .global_address"),
        ("tensormap.replace.tile.rank.shared::cta.b1024.b64 [%r4], 3;", "expected .b32"),
        ("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r4], 64;",
         "the size is 128"),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;", "the size is 128"),
        ("fence.proxy.tensormap::generic.acquire.gpu;", "expected 2 operands"),
    ],
)  # fmt: skip
def test_other_forms_are_refused(instruction: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message.replace(".", r"\.")):
        Program.parse(kernel("mov.u32 %r1, 0;" + instruction)).prepare("k")
