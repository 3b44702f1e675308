"""Launches of foreign PTX that a file writes: what is read, and what is refused with its key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutegen.errors import RequestError
from cutegen.ptx import Program
from cutegen.run.call.bits import bf16_bits
from cutegen.run.foreign import check_foreign, only_entry, parse_argument
from cutegen.run.launch_file import file_launch

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
SCALE = """
.visible .entry scale(.param .u64 x, .param .f32 factor) {
    .reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .f32 %f<3>;
    ld.param.u64 %rd0, [x];
    ld.param.f32 %f0, [factor];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd2, %rd0, %rd1;
    ld.global.f32 %f1, [%rd2];
    mul.f32 %f2, %f1, %f0;
    st.global.f32 [%rd2], %f2;
    ret;
}
"""


def launch_of(folder: Path, text: str) -> Path:
    path = folder / "launch.toml"
    path.write_text(text)
    return path


def test_numbers_and_arrays_of_a_file_reach_the_kernel(tmp_path: Path) -> None:
    np.save(tmp_path / "want.npy", np.arange(32, dtype=np.float32) * 2.5)
    launch = file_launch(
        launch_of(
            tmp_path,
            """
            [[argument]]
            array = "f32"
            shape = [32]
            fill = "arange"
            expected = "want.npy"
            [[argument]]
            type = "f32"
            number = 2.5
            """,
        )
    )
    assert check_foreign(Program.parse(HEAD + SCALE), launch, policies=2, seed=1, max_steps=10**6).is_clean(strict=True)
    np.save(tmp_path / "want.npy", np.zeros(31, np.float32))
    launch = file_launch(tmp_path / "launch.toml")
    with pytest.raises(RequestError, match=r"argument 0: expected has shape \(31,\); the argument has \(32,\)"):
        check_foreign(Program.parse(HEAD + SCALE), launch, policies=1, seed=1, max_steps=10**6)


@pytest.mark.parametrize(("given", "swizzle"), [("", 0), (", swizzle_bytes = 64", 64)])
def test_a_tensor_map_has_its_innermost_mode_first(tmp_path: Path, given: str, swizzle: int) -> None:
    """Extents, strides and box are in the order of cuTensorMapEncodeTiled: the contiguous mode leads."""
    text = (
        f'[[argument]]\narray = "f16"\nshape = [3, 5, 64]\nfill = "random"\ntensor_map = {{ box = [32, 4, 1]{given} }}'
    )
    (make,) = file_launch(launch_of(tmp_path, text)).make
    found = make(np.random.default_rng(2))
    assert (found.extents, found.strides_bytes) == ((64, 5, 3), (128, 640))
    assert (found.box, found.swizzle_bytes) == ((32, 4, 1), swizzle)


@pytest.mark.parametrize(
    "text", ["smem_bytes = -1", 'smem_bytes = "many"', "smem_bytes = 1.5", "entry = 3", 'entry = ["a"]']
)
def test_an_entry_is_text_and_smem_is_a_count(tmp_path: Path, text: str) -> None:
    with pytest.raises(RequestError, match="expected entry as text and smem_bytes as a number of bytes"):
        file_launch(launch_of(tmp_path, text))


def test_arguments_have_their_types() -> None:
    generator = np.random.default_rng(0)
    assert parse_argument("i32:-5", generator) == np.int32(-5)
    assert parse_argument("u64:0xff", generator) == 255
    assert parse_argument("bf16[2]:ones", generator).tolist() == [0x3F80, 0x3F80]
    random = parse_argument("f16[1000]:random", generator)
    assert (random.dtype, random.shape) == (np.float16, (1000,))
    assert 0.8 < random.astype(np.float64).std() < 1.2
    with pytest.raises(RequestError):
        parse_argument("i8:300", generator)


@pytest.mark.parametrize("text", ["f32[4]:zeroes", "f33[4]:zeros", "f32[4]", "f32[x]:zeros"])
def test_an_array_has_a_known_type_and_fill(text: str) -> None:
    with pytest.raises(RequestError, match="expected TYPE:NUMBER such as"):
        parse_argument(text, np.random.default_rng(0))


def test_arguments_that_a_file_lacks_are_told_with_the_file(tmp_path: Path) -> None:
    launch = file_launch(launch_of(tmp_path, "[[argument]]\ntype = 'f32'\nnumber = 2.5\n"))
    said = r"\[\[argument\]\] of .*launch\.toml: found 1 for scale; expected 2, one per parameter in order: x, factor"
    with pytest.raises(RequestError, match=said):
        check_foreign(Program.parse(HEAD + SCALE), launch, policies=1, seed=1, max_steps=10**6)


def test_one_of_two_entries_has_to_be_named() -> None:
    two = Program.parse(HEAD + ".visible .entry one() { ret; }\n.visible .entry two() { ret; }")
    assert only_entry(two, "two") == "two"
    with pytest.raises(RequestError, match="--entry: found nothing; expected one of one, two"):
        only_entry(two, None)
    with pytest.raises(RequestError, match="--entry: found 'three'; expected one of one, two"):
        only_entry(two, "three")
    assert only_entry(Program.parse(HEAD + ".visible .entry one() { ret; }"), None) == "one"


ARRAY = "[[argument]]\narray = 'f32'\nshape = [4, 3]\nfill = 'random'\n"
NUMBER = "[[argument]]\ntype = 'f32'\nnumber = 2.5\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{ARRAY}expected = '7'", "argument 0: expected: found argument 7; expected one of the arrays, 0"),
        (f"{ARRAY}expected = '0 @ 1'\n{NUMBER}", "argument 0: expected: found argument 1; expected one of the arrays"),
        (f"{NUMBER}expected = '0'", "argument 0: expected: found a number or a structure; expected an array"),
        ("[[argument]]\nbytes = '00'\nexpected = '0'", "argument 0: expected: found a number or a structure"),
        (f"{ARRAY}expected = 'words.npy'", "argument 0: expected: found elements of <U1; expected numbers"),
        (f"{ARRAY}expected = 'none.npy'", r"argument 0: expected: .*none\.npy cannot be read as a NumPy array"),
        ("[[argument]]\nfile = 'none.npy'", r"argument 0: file: .*none\.npy cannot be read as a NumPy array"),
        ("[[argument]]\ntype = 'i32'\nnumber = true", "argument 0: number: found i32:'True'; expected a number"),
        (f"{ARRAY}tensor_map = {{ box = [2, 2], swizzle_bytes = 'x' }}", "argument 0: tensor_map: expected { box = "),
        (f"{ARRAY}tensor_map = {{ box = [2, 2], swizzle_bytes = 1.5 }}", "argument 0: tensor_map: expected { box = "),
        (f"{ARRAY}tensor_map = {{ box = [2, 2], swizzle_bytes = [64] }}", "argument 0: tensor_map: expected { box = "),
    ],
)
def test_a_wrong_value_of_a_file_is_refused_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    np.save(tmp_path / "words.npy", np.array(["a"]))
    with pytest.raises(RequestError, match=rf"launch\.toml: {said}"):
        file_launch(launch_of(tmp_path, text))


def test_a_product_of_shapes_that_do_not_fit_is_told_with_them(tmp_path: Path) -> None:
    launch = file_launch(launch_of(tmp_path, f"{ARRAY}expected = '0 @ 0'\n{NUMBER}"))
    with pytest.raises(RequestError, match=r"argument 0: expected: shapes \(4, 3\) and \(4, 3\) cannot be multiplied"):
        check_foreign(Program.parse(HEAD + SCALE), launch, policies=1, seed=1, max_steps=10**6)


COPY = """
.visible .entry copy(.param .u64 x, .param .u64 y) {
    .reg .b16 %h<1>; .reg .b32 %r<1>; .reg .b64 %rd<5>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 2;
    add.s64 %rd3, %rd0, %rd2;
    add.s64 %rd4, %rd1, %rd2;
    ld.global.b16 %h0, [%rd3];
    st.global.b16 [%rd4], %h0;
    ret;
}
"""


@pytest.mark.parametrize(("expected", "is_right"), [("0", True), ("values", True), ("bits", True), ("near", False)])
def test_bf16_is_compared_by_value(tmp_path: Path, expected: str, is_right: bool) -> None:
    """A tolerance of 1% of the bits would accept twice the value."""
    values = np.arange(32, dtype=np.float32)
    np.save(tmp_path / "values.npy", values * 1.001)
    np.save(tmp_path / "bits.npy", bf16_bits(values * 1.001))
    np.save(tmp_path / "near.npy", values * 1.1)
    text = "[[argument]]\narray = 'bf16'\nshape = [32]\nfill = 'arange'\n"
    wanted = f"expected = '{expected if expected == '0' else f'{expected}.npy'}'\nrtol = 0.01\n"
    launch = file_launch(launch_of(tmp_path, text + text.replace("arange", "zeros") + wanted))
    found = check_foreign(Program.parse(HEAD + COPY), launch, policies=1, seed=1, max_steps=10**6)
    assert found.is_clean(strict=True) is is_right
