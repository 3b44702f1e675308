"""Turns the tensors of a call with groups into a request, and into a kernel's operands: torch's forms of grouped_mm.

a (R,K)    b (G,K,N)   rows belong to groups, packed        out (R,N)
a (G,M,K)  b (K,C)     columns belong to groups, packed     out (M,C)
a (M,K)    b (K,N)     K is cut into groups, packed         out (G,M,N)
a (G,R,K)  b (G,K,N)   rows belong to groups, padded        out (G,R,N)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from cutegen.contract.launch import ENDS, OPERANDS, RESULT_FACTORS
from cutegen.contract.problem import GROUP, FactorsOfC, Groups, ProblemShape, bucket
from cutegen.dispatch import block_scales
from cutegen.dispatch.formula import Formula, Gated, gated_of, takes_any_pairs
from cutegen.dispatch.placement import (
    ALONG_K,
    VECTOR_BYTES,
    WORTH_A_COPY,
    Copy,
    Placement,
    alignment,
    major_of,
    takes_apart,
)
from cutegen.dispatch.quantized import Strided, new_factors, place_factors_of_result
from cutegen.dispatch.request import Matrix, Request
from cutegen.dispatch.resolve import (
    CallTarget,
    Given,
    Resolved,
    as_packed,
    check_devices,
    check_given,
    refuse_type,
    replace_form,
)
from cutegen.dispatch.shapes import OUT_DTYPES, Multiplied, Shape, check_operands, result_type
from cutegen.errors import OperandError, RequestError
from cutegen.hardware import dtype as element_type
from cutegen.run.call.operands import Form, compact_strides
from cutegen.support.words import round_up

MEAN_OF_PADDED = 64
"""Rows that padded groups are assumed to have, if there is room for more and a call does not say how many to expect."""

_MODES = {"a": ("m", "k"), "b": ("k", "n"), "out": ("m", "n"), "aux": ("m", "n")}
_FORMS: Mapping[tuple[int, int], str] = {(2, 3): "m", (3, 2): "n", (2, 2): "k"}


class GroupedTerms(NamedTuple):
    """Terms of a call with groups: `keep` what no group has of the result, and how many rows to expect of a group.

    `aux` also stores the value before the activation. A `quantized` result has factors, rounded so.
    """

    activation: str | None = None
    keep: bool = False
    expected: int | None = None
    aux: bool = False
    quantized: FactorsOfC | None = None


@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """The product of a call: its groups, their number, and the extents of M, N and K.

    A column of the result is made of as many columns of B as there are `members`: two if they are pairs.
    """

    groups: Groups
    count: int
    m: int
    n: int
    k: int
    members: int = 1

    @property
    def result(self) -> Shape:
        """The shape of the result."""
        return self.shape("out")

    @property
    def multiplied(self) -> Multiplied:
        """The product with the shape of its result."""
        return Multiplied(self.result[:-2], self.m, self.n, self.k, members=self.members)

    def shape(self, name: str) -> Shape:
        """Return the shape of A, B or a result as a call has it."""
        modes = _MODES[name]
        columns = self.n if name in OPERANDS else self.n // self.members
        extents = tuple({"m": self.m, "n": columns, "k": self.k}[mode] for mode in modes)
        return extents if self.groups.packs(modes) else (self.count, *extents)

    def chosen_for(self, expected: int | None) -> ProblemShape:
        """Return the problem that a kernel is chosen for, before it is rounded."""
        problem, of = ProblemShape(self.m, self.n, self.k, groups=self.count), self.groups.of
        if self.groups.layout == "padded":
            return replace(problem, m=min(self.m, MEAN_OF_PADDED if expected is None else expected))
        return problem if expected is None else replace(problem, **{of: expected * self.count})


def name_in_call(name: str) -> str:
    """Return the name that `grouped_mm` has for a tensor.

    >>> name_in_call("a"), name_in_call("bias")
    ('mat_a', 'bias')
    """
    return f"mat_{name}" if name in OPERANDS else name


def check_k(a: Shape, b: Shape) -> None:
    """Raise OperandError if the shapes of A and B, matrices or several, have another K each."""
    k, (rows, n) = a[-1], b[-2:]
    if k != rows:
        fix = "`mat_b.mT`, if it is stored as (N, K)" if n == k else ""
        raise OperandError(
            operand="mat_b", found=f"shape {tuple(b)}, so K = {rows}", expected=f"K = {k}, as in mat_a", fix=fix
        )


def product_of_groups(forms: Mapping[str, Form]) -> GroupedProduct:
    """Return the product of A and B with `offs` or `sizes`. Raises OperandError, RequestError."""
    a, b = forms["a"], forms["b"]
    ranks, sizes, offs = (len(a.shape), len(b.shape)), forms.get("sizes"), forms.get("offs")
    if ranks == (3, 3):
        if a.shape[0] != b.shape[0]:
            found = f"shape {tuple(b.shape)}, so {b.shape[0]} groups"
            raise OperandError(operand="mat_b", found=found, expected=f"{a.shape[0]}, as in mat_a")
        if sizes is None:
            raise RequestError(
                "grouped_mm: offs: found with mat_a and mat_b of 3 dimensions; expected sizes=, the rows of each "
                "group, or neither for all rows"
            )
        groups, given, name = Groups("m", "padded"), sizes, "sizes"
    elif ranks in _FORMS:
        if offs is None:
            raise RequestError(
                f"grouped_mm: offs: found nothing with mat_a of {ranks[0]} and mat_b of {ranks[1]} dimensions; "
                "expected the ends of the groups, (G,) of int32 on their device"
            )
        groups, given, name = Groups(_FORMS[ranks]), offs, "offs"  # type: ignore[arg-type]
    else:
        wrong = "mat_a" if ranks[0] not in (2, 3) else "mat_b"
        found = f"shape {tuple((a if wrong == 'mat_a' else b).shape)}"
        raise OperandError(operand=wrong, found=found, expected="2 or 3 dimensions")
    if given.dtype not in ("s32", "int32"):
        fix = f"`{name}.to(torch.int32)`" if given.framework == "torch" else f"`{name}.astype(np.int32)`"
        raise OperandError(operand=name, found=f"dtype {given.dtype}", expected="int32", fix=fix)
    if len(given.shape) != 1:
        raise OperandError(operand=name, found=f"shape {tuple(given.shape)}", expected="(G,), one for each group")
    check_k(a.shape, b.shape)
    (count,), (m, k), n = given.shape, a.shape[-2:], b.shape[-1]
    for operand, form in (("mat_a", a), ("mat_b", b)):
        if len(form.shape) == 3 and form.shape[0] != count:
            fix = "`cu_seqlens=`, if it begins with a 0" if count == form.shape[0] + 1 else ""
            expected = f"{form.shape[0]}, one for each matrix of {operand}"
            raise OperandError(operand=name, found=f"{count} groups", expected=expected, fix=fix)
    return GroupedProduct(groups, count, m, n, k)


def blocks_of_groups(forms: Mapping[str, Form]) -> Mapping[str, block_scales.Block]:
    """Return the blocks of A and of B that have a factor each, by the names of their factors; nothing without blocks.

    Factors of blocks have as many dimensions as their operand, those of rows and of columns one less, except that parts
    of K have no blocks. Those of 8 bits are told by their type. Raises OperandError.
    """
    if block_scales.in_atoms(forms):
        for name in block_scales.SCALES:
            block_scales.check_types_of_atoms(name, forms)
        return {name: block_scales.block_of_atoms(forms[name]) for name in block_scales.SCALES}
    given = {name: forms[name] for name in block_scales.SCALES if name in forms}
    whole = [name for name, form in given.items() if len(form.shape) == len(forms[block_scales.SCALES[name]].shape)]
    if not whole or (len(forms["a"].shape), len(forms["b"].shape)) == (2, 2):
        return {}
    shapes = {name: forms[name].shape for name in (*OPERANDS, *given)}
    return {name: block_scales.block_of(name, shapes) for name in block_scales.SCALES}


def joins_pairs(given: Given, gated: Gated, target_name: str) -> bool:
    """Return whether one kernel for a target scales blocks and joins pairs.

    Blocks are of several columns of one member, along K. Factors of 8 bits are in atoms of 128 columns.
    """
    forms = {name: form for name, (form, _) in given.items()}
    blocks = blocks_of_groups(forms)
    if not blocks:
        return True
    block, (*batch, k, n) = blocks["scale_b"], forms["b"].shape
    if block_scales.in_atoms(forms):
        return block_scales.members_have_atoms(forms["b"], gated.pairs)
    if not block_scales.scales_sums_of_pairs(target_name):
        return False
    if gated.pairs.width is not None or block[0] == 1 or n % (2 * block[0]):
        return False
    problem = Multiplied(tuple(batch), 0, n, k)
    placed = block_scales.place_factors("scale_b", *given["scale_b"], block, problem, fold=False, any_stride=True)
    return placed.matrix.major == "k"


def _check_scales(forms: Mapping[str, Form], product: GroupedProduct) -> None:
    """Check the factors of rows and columns, or of blocks. Raises OperandError."""
    block_scales.check_values(forms)
    given = {name: forms[name] for name in block_scales.SCALES if name in forms}
    if block_scales.in_atoms(forms):
        blocks_of_groups(forms)
        for name, operand in block_scales.SCALES.items():
            packed = product.groups if product.groups.packs(_MODES[operand]) else None
            block_scales.check_number(name, given[name], forms[operand], packed, product.count)
        given = {name: forms[name] for name in block_scales.SECOND.values() if name in forms}
    for name, block in {} if block_scales.in_atoms(forms) else blocks_of_groups(forms).items():
        block_scales.check_factors(name, given[name], forms[block_scales.SCALES[name]])
        if block[0] > 1 and product.groups.packs(_MODES[block_scales.SCALES[name]]):
            which = "row" if name == "scale_a" else "column"
            found = f"factors of blocks of {block[0]} {which}s, and packed groups"
            fix = f"repeat each factor for its {which}s, or pad the groups: sizes="
            raise OperandError(
                operand=name, found=found, expected=f"one for each {which}: a group begins at any of them", fix=fix
            )
        del given[name]
    for name, form in given.items():
        mode, extent = ("m", product.m) if name in ("scale_a", "scale_m") else ("n", product.n)
        of_all = [(1,), (extent,)]
        shapes = of_all if product.groups.packs((mode,)) else [*of_all, (product.count, extent)]
        if tuple(form.shape) not in shapes:
            expected = f"{' or '.join(map(str, shapes))}, for all or along {mode.upper()}"
            raise OperandError(operand=name, found=f"shape {tuple(form.shape)}", expected=expected)
        if form.dtype != "f32":
            raise OperandError(operand=name, found=f"dtype {form.dtype}", expected="f32", fix=f"cast {name}")


def result_of(
    forms: Mapping[str, Form], out_dtype: str | None, gated: Gated | None = None
) -> tuple[GroupedProduct, str]:
    """Return the product, and the result's element type. Raises OperandError, RequestError."""
    product, out = product_of_groups(forms), forms.get("out")
    if gated is not None:
        if product.groups.of == "n":
            expected = "groups of rows or of K, mat_b (G, K, N) or (K, N): groups of columns would cut pairs"
            raise OperandError(operand="mat_b", found="groups of columns, with pairs of them", expected=expected)
        if product.n % gated.pairs.multiple:
            expected = f"a multiple of {gated.pairs.multiple}: {gated.pairs}"
            raise OperandError(operand="mat_b", found=f"N = {product.n}", expected=expected)
        product = replace(product, members=2)
    check_operands(forms["a"].dtype, forms["b"].dtype, ("mat_a", "mat_b"))
    check_devices({name_in_call(name): form for name, form in forms.items()})
    asked = out.dtype if out is not None and out_dtype is None else out_dtype
    element = result_type(forms["a"].dtype, asked, "grouped_mm")
    _check_bias(forms.get("bias"), product)
    _check_scales(forms, product)
    own = ("bias", *block_scales.SCALES, *block_scales.SECOND.values(), RESULT_FACTORS)
    alike = {name: form for name, form in forms.items() if name not in own}
    check_given(alike, product.multiplied, element)
    return product, element


def check_quantized(product: GroupedProduct) -> None:
    """Raise RequestError for groups whose blocks of 128 columns of the result are not each of one of them."""
    if product.groups.of == "m":
        return
    found = {"n": "groups of columns, of which a block of 128 columns may be of two", "k": "parts of K"}[
        product.groups.of
    ]
    raise RequestError(f"grouped_mm: quantize: found {found}; expected groups of rows: mat_b (G, K, N)")


def factors_of_groups(product: GroupedProduct) -> Strided:
    """Return the place of new factors of a quantized result."""
    return new_factors(product.multiplied, of_groups=product.groups.layout == "padded")


def place_factors_of_groups(form: Form | None, like: Form, product: GroupedProduct) -> Placement:
    """Return the factors as a kernel writes them: those given, or new ones. Raises OperandError."""
    padded = product.groups.layout == "padded"
    return place_factors_of_result(form, like, product.multiplied, fold=False, of_groups=padded)


def _check_bias(bias: Form | None, product: GroupedProduct) -> None:
    if bias is None:
        return
    shapes = [(product.n,)] if product.groups.of == "n" else [(product.count, product.n), (product.n,)]
    if tuple(bias.shape) not in shapes:
        expected = " or ".join(map(str, shapes))
        raise OperandError(operand="bias", found=f"shape {tuple(bias.shape)}", expected=f"{expected}, along N")
    if bias.dtype not in OUT_DTYPES:
        refuse_type("bias", bias, f"one of {', '.join(OUT_DTYPES)}")


def resolve_groups(given: Given, terms: GroupedTerms, where: CallTarget, out_dtype: str | None = None) -> Resolved:
    """Check a call with groups and place its tensors. Raises OperandError if they do not fit, RequestError."""
    return as_packed(lambda where: _resolved(given, terms, where, out_dtype), where)


def _resolved(given: Given, terms: GroupedTerms, where: CallTarget, out_dtype: str | None) -> Resolved:
    forms, gated = {name: form for name, (form, _) in given.items()}, gated_of(terms.activation)
    product, element = result_of(forms, out_dtype, gated)
    if terms.quantized is not None:
        check_quantized(product)
    blocks = blocks_of_groups(forms)
    whole = bool(blocks) or terms.quantized is not None
    mapped = whole or (gated is not None and takes_any_pairs(where.target))
    placements = {name: _operand(name, *given[name], where, product, mapped=mapped, whole=whole) for name in OPERANDS}
    if gated is not None and not takes_apart(placements["b"].matrix, gated.pairs, product.n):
        b = placements["b"].matrix.dtype
        placements["b"] = _copy("b", forms["b"], b, "a copy along K takes its pairs of columns apart")
    fresh = replace_form(forms["a"], product.result, element)
    placed, out_copied = _in_place("out", *given.get("out", (fresh, 0)), element), ""
    if placed is None:
        placed, out_copied = _in_place("out", fresh, 0, element), "no kernel writes its layout"
    assert placed is not None
    placements["out"] = placed
    if "bias" in given:
        placements["bias"] = _vector("n", *given["bias"])
    atoms = block_scales.in_atoms(forms)
    if atoms:
        block_scales.check_target(where.target)
    for name in (name for name in (*block_scales.SCALES, *block_scales.SECOND.values()) if name in given):
        if name in blocks and atoms:
            operand = block_scales.SCALES[name]
            packed = product.groups if product.groups.packs(_MODES[operand]) else None
            problem = replace(product.multiplied, batch=() if packed else (product.count,))
            placements[name] = block_scales.place_atoms(
                name, *given[name], forms[operand], problem, fold=False, groups=packed, count=product.count
            )
        elif name in blocks:
            batch = () if len(forms[name].shape) == 2 else (product.count,)
            problem = replace(product.multiplied, batch=batch)
            how_read: block_scales.HowRead = {
                "any_stride": block_scales.takes_any_stride(where.target),
                "copies": where.copies_factors,
            }
            placements[name] = block_scales.place_factors(
                name, *given[name], blocks[name], problem, fold=False, **how_read
            )
        else:
            mode = "m" if name in ("scale_a", "scale_m") else "n"
            placements[name] = _vector(mode, *given[name], may_repeat=True)
    if terms.quantized is not None:
        placements[RESULT_FACTORS] = place_factors_of_groups(forms.get(RESULT_FACTORS), fresh, product)
    if terms.aux:
        placements["aux"] = replace(placed, form=_in_place("aux", fresh, 0, element).form)  # type: ignore[union-attr]
    ends = forms.get("offs") or forms["sizes"]
    placements[ENDS] = Placement(ends, Matrix(ends.dtype, GROUP, element_type("s32").bytes))
    called = ProblemShape(product.m, product.n, product.k, groups=product.count)
    chosen_for = product.chosen_for(terms.expected)
    scale_a, scale_b = (block_scales.SECOND[name] in given if blocks else name in given for name in block_scales.SCALES)
    formula = Formula(terms.activation, bias="bias" in given, aux=terms.aux, scale_a=scale_a, scale_b=scale_b)
    request = Request(
        a=placements["a"].matrix,
        b=placements["b"].matrix,
        c=placed.matrix,
        ops=formula.ops,
        expression=formula.expression,
        pairs=None if gated is None else gated.pairs,
        bias=placements["bias"].matrix.dtype if "bias" in placements else None,
        scale="f32" if scale_a or scale_b else None,
        scale_a=placements["scale_a"].matrix if blocks else None,
        scale_b=placements["scale_b"].matrix if blocks else None,
        aux=placements["aux"].matrix if terms.aux else None,
        quantized=terms.quantized,
        problem=called
        if called.empty
        else bucket(chosen_for, batch_invariant=where.batch_invariant, groups=product.groups),
        target=where.target,
        device=where.device,
        batch_invariant=where.batch_invariant,
        family=where.family,
        groups=product.groups,
    )
    return Resolved(
        request=request,
        placements=placements,
        problem=product.multiplied,
        called=called,
        dtype=element,
        out_copied=out_copied,
        clears="out" not in given and not terms.keep and product.groups.leaves_elements,
        factors=None if terms.quantized is None else factors_of_groups(product),
    )


def _operand(
    name: str, form: Form, address: int, where: CallTarget, product: GroupedProduct, *, mapped: bool, whole: bool
) -> Placement:
    """Return A or B as the kernel reads it: in place, or as a padded copy if that is worth it.

    With `mapped` only kernels that read it by tensor maps do: they need wide alignment, and if groups are `whole`, with
    nothing before them in their tiles, also groups that begin at a row.
    """
    dtype = "tf32" if form.dtype == "f32" and where.tf32 else form.dtype
    reuse = product.n if name == "a" else product.m // (product.count or 1) if product.groups.of == "m" else product.m
    placed = _in_place(name, form, address, dtype, prefer_last=name == "a")
    if placed is None:
        return _copy(name, form, dtype, "it is contiguous in neither mode")
    narrow = placed.matrix.align_bytes < VECTOR_BYTES and reuse >= WORTH_A_COPY
    anywhere = product.groups.packs(_MODES[name]) and placed.matrix.major == product.groups.of
    if mapped and element_type(dtype).bytes == 1 and placed.matrix.major != "k":
        return _copy(name, form, dtype, ALONG_K)
    if anywhere and whole and product.groups.of != "k":
        return _copy(name, form, dtype, "groups begin anywhere in its rows: a copy along K begins them at one")
    if mapped:
        narrow = placed.matrix.align_bytes < VECTOR_BYTES
    if not narrow or (anywhere and not mapped):  # only families without tensor maps read it, and a copy is no gain
        return placed
    align = placed.matrix.align_bytes
    why = f"it is aligned to only {align} bytes: a padded copy allows {VECTOR_BYTES}-byte loads"
    return _copy(name, form, dtype, why)


def _in_place(name: str, form: Form, address: int, dtype: str, *, prefer_last: bool = True) -> Placement | None:
    """Return a tensor that a kernel takes as it is; None if it takes no such layout."""
    last, size = major_of(form, prefer_last=prefer_last), element_type(dtype).bytes
    if last is None or (len(form.shape) == 3 and form.strides[0] < 0):
        return None
    align = VECTOR_BYTES if 0 in form.shape else alignment(form, address, last=last, element_bytes=size)
    return None if align < size else Placement(form, Matrix(dtype, _MODES[name][1 if last else 0], align))


def _copy(name: str, form: Form, dtype: str, why: str) -> Placement:
    """Return a copy with K contiguous and rows padded to a multiple of the vector size."""
    *batch, rows, columns = form.shape
    outer, inner = (rows, columns) if name == "a" else (columns, rows)
    stride = round_up(max(inner, 1), max(1, VECTOR_BYTES // element_type(dtype).bytes))
    steps = (stride, 1) if name == "a" else (1, stride)
    strides = (*(outer * stride for _ in batch), *steps)
    elems = max(1, outer * stride * (batch[0] if batch else 1))
    shape = tuple(form.shape)
    made = form._replace(strides=strides)
    return Placement(made, Matrix(dtype, "k", VECTOR_BYTES), Copy(shape, shape, strides, elems, why))


def _vector(mode: str, form: Form, address: int, *, may_repeat: bool = False) -> Placement:
    """Return a vector for all groups or one for each, with contiguous elements; or one element, if it `may_repeat`."""
    matrix = Matrix(form.dtype, mode, element_type(form.dtype).bytes)
    in_place = form.shape[-1] <= 1 or form.strides[-1] == 1 or (may_repeat and form.strides[-1] == 0)
    if in_place and min(form.strides) >= 0:
        return Placement(form, matrix)
    strides, elems = compact_strides(form.shape), 1
    for extent in form.shape:
        elems *= max(extent, 1)
    copy = Copy(tuple(form.shape), tuple(form.shape), strides, elems, "its elements are not contiguous")
    return Placement(form._replace(strides=strides), matrix, copy)
