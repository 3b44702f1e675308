"""Launches of foreign PTX that a file writes: what is read, and what is refused with its key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cutegen.errors import RequestError
from cutegen.ptx import Program
from cutegen.run.foreign import check_foreign, file_launch, only_entry, parse_argument

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
