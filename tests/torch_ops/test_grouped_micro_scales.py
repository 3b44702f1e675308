"""Groups with factors of 8 bits: `quantize(offs=)` and `scaled_grouped_mm` against NumPy, and kernels on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

import cutegen  # noqa: E402
from cutegen.build import Cache  # noqa: E402
from cutegen.errors import OperandError, RequestError  # noqa: E402
from cutegen.verify.error_bounds import Bounded  # noqa: E402
from tests.run.test_grouped_wgmma import compiled  # noqa: E402
from tests.run.test_sm100_scaled_groups import MXF8, NVF4  # noqa: E402
from tests.torch_ops.exact import close, scaled_product  # noqa: E402

SWIZZLED = {"swizzle_a": "SWIZZLE_32_4_4", "swizzle_b": "SWIZZLE_32_4_4"}
MX, NV = {"block": (1, 32), "scale": "ue8m0"}, {"block": (1, 16), "scale": "ue4m3", "dtype": "e2m1"}
RECIPES: dict[str, Any] = {"mx": (MX, "BlockWise1x32"), "nv": (NV, ["BlockWise1x16", "TensorWise"])}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
ROOM, N, K, GIVEN = 210, 72, 160, (3, 3, 140, 200)
ENDS = torch.tensor(GIVEN, dtype=torch.int32)


def matrix(*shape: int) -> Tensor:
    """Normal numbers, of which each row has its own range."""
    return torch.randn(shape) * torch.exp2(torch.randint(-8, 8, (*shape[:-1], 1)).float())


def decoded(values: Tensor) -> Any:
    """Values of 4 or 8 bits in float64."""
    if values.dtype != torch.float4_e2m1fn_x2:
        return values.double().numpy()
    codes = values.view(torch.uint8).numpy()
    return np.concatenate((E2M1, -E2M1))[np.stack((codes & 15, codes >> 4), -1)].reshape(*codes.shape[:-1], -1)


def factor(code: int, block: int) -> float:
    """The number of a code of ue8m0, or of ue4m3."""
    if block == 32:
        return 2.0 ** (code - 127)
    exponent, mantissa = code >> 3 & 15, code & 7
    return (mantissa / 8 + (exponent > 0)) * 2.0 ** (max(exponent, 1) - 7)


def in_order(stored: Any, begin: int, rows: int, along_k: int, block: int) -> Any:
    """Factors of `rows` from a row of atoms on, by the layout's formula, an element at a time."""
    found, atoms = np.empty((rows, along_k)), -(-along_k // 4)
    for r, k in np.ndindex(found.shape):
        row = begin + r
        found[r, k] = factor(
            int(stored[(row // 128 * atoms + k // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + k % 4]), block
        )
    return found


def expected(recipe: str, a: Any, of_a: Any, b: Any, of_b: Any) -> Bounded:
    """The product of each group, from the bytes of values and factors: zeros past the last end."""
    block, (of_a, *second_a), (of_b, *second_b) = (
        RECIPES[recipe][0]["block"][1],
        *(x if isinstance(x, tuple) else (x,) for x in (of_a, of_b)),
    )
    along_k, begin, atom = -(-K // block), 0, 0
    found = Bounded(torch.zeros(ROOM, N, dtype=torch.float64), torch.zeros(ROOM, N, dtype=torch.float64))
    stored_a, stored_b = (x.view(torch.uint8).numpy() for x in (of_a, of_b))
    for group, end in enumerate(GIVEN):
        scaled = []
        for wide, stored, first in (
            (decoded(a)[begin:end], stored_a.ravel(), atom),
            (decoded(b)[group], stored_b[group], 0),
        ):
            scale = in_order(stored, first, len(wide), along_k, block).repeat(block, 1)[:, :K]
            scaled.append(wide * scale)
        second = float(second_a[0][group]) * float(second_b[0].reshape(-1)[0]) if second_a else 1.0
        of_group = scaled_product(*scaled, second)
        found.value[begin:end], found.error[begin:end] = of_group.value, of_group.error
        atom += -(-(end - begin) // 128) * 128
        begin = end
    return found


@pytest.mark.parametrize("recipe", RECIPES)
def test_rows_of_groups_are_multiplied_by_what_their_factors_stand_for(recipe: str) -> None:
    asked, name = RECIPES[recipe]
    a, of_a = cutegen.quantize(matrix(ROOM, K), **asked, offs=ENDS)
    b, of_b = cutegen.quantize(matrix(len(GIVEN), N, K), **asked)
    found = cutegen.scaled_grouped_mm(
        a, b.mT, of_a, name, of_b, name, **SWIZZLED, offs=ENDS, output_dtype=torch.float32
    )
    close(found, expected(recipe, a, of_a, b, of_b))
    assert cutegen.scaled_grouped_mm(a, b.mT, of_a, name, of_b, name, **SWIZZLED, offs=ENDS).dtype == torch.bfloat16


def test_factors_of_a_group_fill_atoms_of_128_rows() -> None:
    """Those of groups of 3, 0, 137 and 60 rows: 1, 0, 2 and 1 atoms of rows, of (210 + 4 x 127) / 128 that any need."""
    x = matrix(ROOM, K)
    values, factors = cutegen.quantize(x, **MX, offs=ENDS)
    assert tuple(factors.shape) == (5 * 128, 8)
    alone = [cutegen.quantize(x[begin:end], **MX) for begin, end in ((0, 3), (3, 140), (140, 200))]
    together = torch.cat([each[1].view(torch.uint8) for each in alone])
    stored = factors.view(torch.uint8).reshape(-1)
    assert torch.equal(stored[: len(together)], together)
    assert not stored[len(together) :].any()
    assert torch.equal(values[:200].view(torch.uint8), torch.cat([each[0].view(torch.uint8) for each in alone]))


@pytest.mark.parametrize("ends", [(5, -3, 400, 2), (2**31 - 1, 0), (-(2**31),), ()])
def test_any_ends_are_safe_and_limited_as_a_kernel_limits_them(ends: tuple[int, ...]) -> None:
    limited, last = [], 0
    for end in ends:
        last = min(max(end, last), 8)
        limited.append(last)
    x = matrix(8, 64)
    (_, found), (_, wanted) = (
        cutegen.quantize(x, **NV, offs=torch.tensor(each, dtype=torch.int32)) for each in (ends, limited)
    )
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))


def test_what_the_rows_of_no_group_hold_reaches_nothing() -> None:
    a, of_a = cutegen.quantize(matrix(ROOM, K), **MX, offs=ENDS)
    b, of_b = cutegen.quantize(matrix(len(GIVEN), N, K), **MX)
    terms: dict[str, Any] = {**SWIZZLED, "offs": ENDS}
    recipe = "BlockWise1x32"
    right = cutegen.scaled_grouped_mm(a, b.mT, of_a, recipe, of_b, recipe, **terms)
    a.view(torch.uint8)[200:] = 0x7F
    of_a.view(torch.uint8)[4 * 128 :] = 0xFF
    assert torch.equal(cutegen.scaled_grouped_mm(a, b.mT, of_a, recipe, of_b, recipe, **terms), right)
    assert not right[200:].any()
    exact = of_a[: 4 * 128]  # torch's own has no atoms past the last group's
    assert torch.equal(cutegen.scaled_grouped_mm(a, b.mT, exact, recipe, of_b, recipe, **terms), right)


@pytest.mark.parametrize("recipe", RECIPES)
def test_padded_groups_and_columns_have_the_same_products(recipe: str) -> None:
    """A matrix for each group; and the transposed product, whose groups are columns."""
    asked, name = RECIPES[recipe]
    x, w = matrix(ROOM, K), matrix(len(GIVEN), N, K)
    a, of_a = cutegen.quantize(x, **asked, offs=ENDS)
    b, of_b = cutegen.quantize(w, **asked)
    packed = expected(recipe, a, of_a, b, of_b)
    columns = cutegen.scaled_grouped_mm(b, a.mT, of_b, name, of_a, name, **SWIZZLED, offs=ENDS)
    close(columns.T, packed)
    begins, room = (0, *GIVEN[:-1]), 137
    sizes = torch.tensor([end - begin for begin, end in zip(begins, GIVEN, strict=True)], dtype=torch.int32)
    each = [cutegen.quantize(torch.nn.functional.pad(x[begin:end], (0, 0, 0, room - (end - begin))), **asked)
            for begin, end in zip(begins, GIVEN, strict=True)]  # fmt: skip
    values = torch.stack([value.view(torch.uint8) for value, _ in each]).view(a.dtype)
    firsts = [x[0] if isinstance(x, tuple) else x for _, x in each]
    of_each: Any = torch.stack([x.view(torch.uint8) for x in firsts]).view(firsts[0].dtype)
    if recipe == "nv":
        of_each = [of_each, torch.stack([x[1] for _, x in each])]
    padded = cutegen.scaled_grouped_mm(values, b.mT, of_each, name, of_b, name, **SWIZZLED, sizes=sizes)
    for group, (begin, end) in enumerate(zip(begins, GIVEN, strict=True)):
        close(padded[group, : end - begin], Bounded(packed.value[begin:end], packed.error[begin:end]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale_a": 3}, r"scale_a: found .*\(384, 8\); expected .*at least 512 x 8"),
        ({"scale_b": 1}, r"scale_b: found .*expected 4 x 128 x 8 factors in atoms"),
        ({"scale_b": "of one type more"}, r"scale_b: found torch.uint8 of shape"),
        ({"offs": None}, "offs: found None with packed groups"),
        ({"recipe_b": "BlockWise1x16"}, "scale_recipe_b: found BlockWise1x16 with BlockWise1x32"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    a, of_a = cutegen.quantize(matrix(ROOM, K), **MX, offs=ENDS)
    b, of_b = cutegen.quantize(matrix(len(GIVEN), N, K), **MX)
    of_a = of_a[: change.get("scale_a", 5) * 128]
    of_b = of_b.view(torch.uint8) if "type" in str(change.get("scale_b")) else of_b[: change.get("scale_b", 4)]
    offs = change.get("offs", ENDS)
    recipe = "BlockWise1x32"
    with pytest.raises((OperandError, RequestError), match=said):
        cutegen.scaled_grouped_mm(a, b.mT, of_a, recipe, of_b, change.get("recipe_b", recipe), **SWIZZLED, offs=offs)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_compiled_calls_are_whole_graphs(recipe: str) -> None:
    asked, name = RECIPES[recipe]
    a, of_a = cutegen.quantize(matrix(ROOM, K), **asked, offs=ENDS)
    b, of_b = cutegen.quantize(matrix(len(GIVEN), N, K), **asked)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def product(a: Tensor, of_a: Any, ends: Tensor) -> Tensor:
        return cutegen.scaled_grouped_mm(a, b.mT, of_a, name, of_b, name, **SWIZZLED, offs=ends)

    wanted = cutegen.scaled_grouped_mm(a, b.mT, of_a, name, of_b, name, **SWIZZLED, offs=ENDS)
    assert torch.equal(product(a, of_a, ENDS), wanted)


PARTS = (48, 48, 192, 208, 337)
"""Ends of parts of K: an empty one, others of half a block more than whole ones, and one that ends anywhere."""


def parts_of_k(rows: int) -> tuple[Tensor, Tensor]:
    """Values (rows, K) and factors of parts of K, as torch has them: each part quantized alone, one after another."""
    x = matrix(rows, PARTS[-1] + 23)
    made = [cutegen.quantize(x[:, begin:end], **MX) for begin, end in zip((0, *PARTS[:-1]), PARTS, strict=True)]
    values = torch.cat([each.view(torch.uint8) for each, _ in made], 1)
    padded = torch.nn.functional.pad(values, (0, 23 + 8), value=0x7F)[:, : x.shape[1]]  # NaN past the last end
    return padded.view(torch.float8_e4m3fn), torch.cat([factors.view(torch.uint8) for _, factors in made])


def expected_of_parts(a: Tensor, of_a: Tensor, b: Tensor, of_b: Tensor) -> Bounded:
    """The product of each part, from the bytes of values and factors."""
    shape, begin, atoms = (len(PARTS), len(a), len(b)), 0, [0, 0]
    found = Bounded(torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))
    for part, end in enumerate(PARTS):
        along_k, scaled = -(-(end - begin) // 32), []
        for each, (x, stored) in enumerate(((a, of_a), (b, of_b))):
            mine = stored.numpy()[atoms[each] * 512 :]
            scale = in_order(mine, 0, len(x), along_k, 32).repeat(32, 1)[:, : end - begin]
            scaled.append(decoded(x)[:, begin:end] * scale)
            atoms[each] += -(-len(x) // 128) * -(-along_k // 4)
        if begin < end:
            of_part = scaled_product(*scaled)
            found.value[part], found.error[part] = of_part.value, of_part.error
        begin = end
    return found


def test_parts_of_k_have_blocks_of_their_own() -> None:
    """More factors than the parts have are not read, whether torch shapes them as rows or not."""
    (a, of_a), (b, of_b) = parts_of_k(140), parts_of_k(N)
    ends, recipe, of = torch.tensor(PARTS, dtype=torch.int32), "BlockWise1x32", torch.float8_e8m0fnu
    terms: dict[str, Any] = {**SWIZZLED, "offs": ends, "output_dtype": torch.float32}
    wanted = expected_of_parts(a, of_a, b, of_b)
    found = cutegen.scaled_grouped_mm(a, b.mT, of_a.view(of).reshape(256, -1), recipe, of_b.view(of), recipe, **terms)
    close(found, wanted)
    more = torch.cat((of_b, torch.full((512,), 0xFF, dtype=torch.uint8))).view(of)
    assert torch.equal(cutegen.scaled_grouped_mm(a, b.mT, of_a.view(of), recipe, more, recipe, **terms), found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ends": (40, 96)}, "offs: found a part of K that begins at 40; expected a multiple of 16"),
        ({"scale_b": 512}, r"scale_b: found .*\(512,\); expected at least"),
        ({"swizzle_a": "NO_SWIZZLE"}, "swizzle_a: found 'NO_SWIZZLE'; expected SWIZZLE_32_4_4 with parts of K"),
        ({"dtype": torch.float4_e2m1fn_x2}, "mat_a: found torch.float4_e2m1fn_x2; expected 8-bit floats"),
    ],
    ids=["begins", "factors", "swizzle", "4 bits"],
)
def test_parts_of_k_that_do_not_fit_are_refused(change: dict[str, Any], said: str) -> None:
    (a, of_a), (b, of_b) = parts_of_k(140), parts_of_k(N)
    dtype, of, recipe = change.get("dtype", a.dtype), torch.float8_e8m0fnu, "BlockWise1x32"
    factors = of_a.view(of), recipe, of_b[: change.get("scale_b")].view(of), recipe
    ends = torch.tensor(change.get("ends", PARTS), dtype=torch.int32)
    swizzles = {**SWIZZLED, **({"swizzle_a": change["swizzle_a"]} if "swizzle_a" in change else {})}
    with pytest.raises((OperandError, RequestError), match=said):
        cutegen.scaled_grouped_mm(a.view(dtype), b.view(dtype).mT, *factors, **swizzles, offs=ends)


def test_factors_in_f32_need_no_ends() -> None:
    with pytest.raises(RequestError, match="offs: found ends of groups with blocks of"):
        cutegen.quantize(matrix(8, 128), offs=ENDS)
    with pytest.raises(OperandError, match=r"offs: found torch.int64"):
        cutegen.quantize(matrix(8, 128), **MX, offs=ENDS.long())


@pytest.mark.dsl
@pytest.mark.slow
@pytest.mark.parametrize(("setting", "recipe"), [(MXF8, "mx"), (NVF4, "nv")], ids=["mxf8", "nvf4"])
def test_a_kernel_takes_the_bytes_and_computes_what_the_call_does(setting: Any, recipe: str, kernels: Cache) -> None:
    """nvf4's second factors of a group are one number for the kernel: scale_n, their product in each column."""
    asked, _ = RECIPES[recipe]
    a, of_a = cutegen.quantize(matrix(ROOM, K), **asked, offs=ENDS)
    b, of_b = cutegen.quantize(matrix(len(GIVEN), N, K), **asked)
    (first_a, *second_a), (first_b, *second_b) = (x if isinstance(x, tuple) else (x,) for x in (of_a, of_b))
    of_row = first_a.shape[1] // 4 * 128
    words_a = first_a.view(torch.uint8).view(torch.int32).reshape(-1, of_row).numpy()
    words_b = first_b.view(torch.uint8).view(torch.int32).reshape(len(GIVEN), -1, of_row).numpy()
    extras: dict[str, Any] = {"scale_a": words_a, "scale_b": words_b.swapaxes(-1, -2), "offs": ENDS.numpy()}
    if second_a:
        of_groups = (second_a[0] * second_b[0]).numpy()
        extras |= {"scale_m": np.ones(1, np.float32), "scale_n": np.repeat(of_groups[:, None], N, 1)}
    out = np.zeros((ROOM, N), np.float32)
    values_a, values_b = (x.view(torch.uint8).numpy() for x in (a, b))
    report = compiled(setting, kernels)[1].execute(values_a, values_b.swapaxes(-1, -2), out=out, **extras)
    assert report.violations == () == report.conventions
    close(torch.from_numpy(out), expected(recipe, a, of_a, b, of_b))
