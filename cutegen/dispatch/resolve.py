"""Turns the tensors of a call into a request, and into the kernel's operands."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NoReturn, TypedDict

from cutegen.contract.problem import BATCH_INVARIANT_M, ProblemShape, bucket
from cutegen.dispatch import block_scales, placement, shapes
from cutegen.dispatch.formula import Formula, Gated, takes_any_pairs
from cutegen.dispatch.providers import providers
from cutegen.dispatch.quantized import Strided, new_factors, place_factors_of_result
from cutegen.dispatch.request import Matrix, Request
from cutegen.errors import OperandError
from cutegen.hardware import Instruction, dtype, target
from cutegen.run.call.operands import Form, compact_strides

Given = Mapping[str, tuple[Form, int]]
"""The forms and addresses of a call's tensors by name: a, b, c, bias, residual, scale_a, scale_b, out."""


@dataclass(frozen=True, slots=True)
class CallTarget:
    """Place where a call computes: a target, the name of its GPU if it is one, and how f32 may be multiplied.

    `family` is as in `Request`. A call that `copies_factors` has those of blocks copied if no tensor map reads them.
    """

    target: str
    device: str | None = None
    tf32: bool = False
    batch_invariant: bool = False
    family: str | None = None
    copies_factors: bool = False


class _How(TypedDict):
    """Keywords that `place_operand` and `place_result` share."""

    fold: bool
    any_rows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A resolved call: its request, and the placements of its tensors by role, in a kernel's order.

    `called` is the problem of the launch, `request` has its bucket; `dtype` is the result's element type, which may be
    narrower than that of the kernel's C. `out_copied` says why the result must be computed elsewhere and copied, to
    `out` if it is given. With `clears` a kernel of groups sets what none of them has of the result to 0. An empty
    result needs no kernel, nor does one of no groups. `factors` is the place of new factors of a quantized result.
    """

    request: Request
    placements: Mapping[str, placement.Placement]
    problem: shapes.Multiplied
    called: ProblemShape
    dtype: str
    out_copied: str = ""
    clears: bool = False
    factors: Strided | None = None

    @property
    def empty(self) -> bool:
        """True if there is no element to compute."""
        return 0 in self.problem.result or self.called.groups == 0

    @property
    def copies(self) -> Mapping[str, str]:
        """The tensors that are copied for the call, and why."""
        found = {name: each.copy.why for name, each in self.placements.items() if each.copy}
        return found | ({"out": self.out_copied} if self.out_copied else {})


def resolve(given: Given, formula: Formula, where: CallTarget, out_dtype: str | None = None) -> Resolved:
    """Check a call and place its tensors. Raises OperandError if they do not fit together, RequestError."""
    return as_packed(lambda where: _resolved(given, formula, where, out_dtype), where)


def as_packed(resolved: Callable[[CallTarget], Resolved], where: CallTarget) -> Resolved:
    """Return a resolved call; with its factors copied if open packs have a kernel for the copy alone."""
    as_given = resolved(where)
    if not providers.has_packs or not any(map(block_scales.read_by_lanes, _factors(as_given.request))):
        return as_given
    copied = resolved(replace(where, copies_factors=True))
    return copied if providers.in_pack(copied.request) and not providers.in_pack(as_given.request) else as_given


def _factors(request: Request) -> Iterator[Matrix]:
    return (x for x in (request.scale_a, request.scale_b) if x is not None)


def _resolved(given: Given, formula: Formula, where: CallTarget, out_dtype: str | None) -> Resolved:
    (a, at_a), (b, at_b) = given["a"], given["b"]
    out, at_out = given.get("out") or (None, 0)
    forms = {name: form for name, (form, _) in given.items()}
    problem, element = product_of(forms, out_dtype, formula.gated)
    check_given(forms, problem, element, quantized=formula.quantized is not None)
    blocks, atoms = block_scales.blocks_in_call(forms), block_scales.in_atoms(forms)
    if atoms:
        block_scales.check_target(where.target)
    if blocks:
        scale_a, scale_b = (block_scales.SECOND[name] in given for name in block_scales.SCALES)
        formula = replace(formula, scale_a=scale_a, scale_b=scale_b)
    kind_a, kind_b = ("tf32" if form.dtype == "f32" and where.tf32 else form.dtype for form in (a, b))
    matrix_a, matrix_b = _matrix(a, "a"), _matrix(b, "b")
    beside = {name: given[name] for name in ("c", "residual") if name in given}
    stored = _stored(forms, element)
    assert stored is not None
    fresh = replace_form(a, problem.result, stored)
    rounds = "" if stored == element else f"c is {forms['c'].dtype}: the sum is {stored}, then rounded to {element}"
    written, at_written = (fresh, 0) if out is None or rounds else (out, at_out)
    fold = _folds(problem, matrix_a, b, [written, *(form for form, _ in beside.values())], blocks, forms)
    how: _How = {"fold": fold, "any_rows": where.batch_invariant}
    placed_out, out_copied = placement.place_result(written, at_written, stored, problem, **how), rounds
    if placed_out is None:
        placed_out, out_copied = _like_fresh(fresh, stored, problem, how), "no kernel writes its layout"
    rows = problem.m * (problem.batches if fold else 1)
    reuse = BATCH_INVARIANT_M if where.batch_invariant else rows  # a copy of B would be read by another kernel
    # Only kernels with tensor maps have blocks or factors of C, and on their targets pairs.
    mapped = bool(blocks) or (formula.gated is not None and takes_any_pairs(where.target))
    mapped = mapped or formula.quantized is not None
    of_a, of_b = (placement.WORTH_A_COPY, placement.WORTH_A_COPY) if mapped else (problem.n, reuse)
    placements = {
        "a": placement.place_operand("a", matrix_a, at_a, kind_a, problem, **how, reuse=of_a),
        "b": _place_b(matrix_b, at_b, kind_b, problem, of_b, formula.gated),
        "out": placed_out,
    }
    if mapped and target(where.target).has(Instruction.WGMMA):
        for name, form in (("a", matrix_a), ("b", matrix_b)):
            folded = fold and name == "a"
            placements[name] = placement.along_k(placements[name], name, form, problem, fold=folded)
    for name, (form, address) in beside.items():
        kept = stored if name == "c" else form.dtype
        placements[name] = _beside(name, form, address, kept, placed_out, fresh, problem, how)
    if "c" in placements and placements["c"].matrix.major != placed_out.matrix.major:
        placed_out, out_copied = _like_fresh(fresh, stored, problem, how), "its layout differs from that of c"
        placements["out"] = placed_out
    if "bias" in given:
        placements["bias"] = _bias(*given["bias"])
    for name in ("scale_a", "scale_b"):
        any_stride, folded = block_scales.takes_any_stride(where.target), fold and name == "scale_a"
        how_read: block_scales.HowRead = {"any_stride": any_stride, "copies": where.copies_factors}
        if name in blocks and atoms:
            placements[name] = block_scales.place_atoms(
                name, *given[name], forms[block_scales.SCALES[name]], problem, fold=folded
            )
        elif name in blocks:
            placements[name] = block_scales.place_factors(
                name, *given[name], blocks[name], problem, fold=folded, **how_read
            )
        elif name in given:
            placements[name] = placement.place_scale(name, *given[name], problem, fold=fold)
        if (second := block_scales.SECOND[name]) in given:
            placements[second] = block_scales.place_second(name, forms[second])
    if formula.quantized is not None:
        factors = forms.get("scale_c")
        placements["scale_c"] = place_factors_of_result(factors, fresh, problem, fold=fold)
    if formula.aux:
        placements["aux"] = _like_fresh(fresh, stored, problem, how)
    shape = ProblemShape(rows, problem.n, problem.k, 1 if fold else max(problem.batches, 1))
    return Resolved(
        request=_request(placements, formula, where, shape),
        placements=placements,
        problem=problem,
        called=shape,
        dtype=element,
        out_copied=out_copied,
        factors=None if formula.quantized is None else new_factors(problem),
    )


def product_of(
    given: Mapping[str, Form], out_dtype: str | None, gated: Gated | None = None
) -> tuple[shapes.Multiplied, str]:
    """Return the product of A and B, and the element type of its result. Raises OperandError, RequestError."""
    a, b, out = given["a"], given["b"], given.get("out")
    shapes.check_operands(a.dtype, b.dtype)
    block_scales.check_values(given)
    asked = out.dtype if out is not None and out_dtype is None else out_dtype
    product = shapes.multiplied(a.shape, b.shape)
    if gated is not None:
        if not product.of_columns or product.n % gated.pairs.multiple:
            found, expected = f"shape {tuple(b.shape)}", f"(..., K, N) with N a multiple of {gated.pairs.multiple}"
            raise OperandError(operand="b", found=found, expected=f"{expected}: {gated.pairs}")
        product = replace(product, members=2)
    return product, shapes.result_type(a.dtype, asked)


def _place_b(
    form: Form, address: int, element: str, problem: shapes.Multiplied, reuse: int, gated: Gated | None
) -> placement.Placement:
    """Place B; as a K-major copy if it is N-major and a tensor map cannot take its pairs of columns apart."""
    placed = placement.place_operand("b", form, address, element, problem, fold=False, reuse=reuse, any_rows=False)
    if gated is None or placement.takes_apart(placed.matrix, gated.pairs, problem.n):
        return placed
    return placement.place_copy(
        "b", form, element, problem, fold=False, why="a copy along K takes its pairs of columns apart"
    )


def with_rows(given: Given, rows: int | None) -> Given:
    """Return the tensors with `rows` rows for `a` and a one-row `out`, in their layout. Raises OperandError."""
    if rows is None:
        return given
    a, out = given["a"][0], given["out"][0] if "out" in given else None
    if len(a.shape) != 2:
        raise OperandError(operand="a", found=f"shape {tuple(a.shape)}", expected="(M, K), with variable rows")
    varied = ["a"] + (["out"] if out is not None and out.shape[:-1] == (1,) else [])
    made = {**given, **{name: (_of_rows(given[name][0], rows), given[name][1]) for name in varied}}
    if block_scales.in_atoms({name: form for name, (form, _) in given.items()}) and "scale_a" in given:
        factors, address = given["scale_a"]
        made["scale_a"] = block_scales.filled_atoms("scale_a", factors, made["a"][0]), address
    return made


def _of_rows(form: Form, rows: int) -> Form:
    """Return a matrix with so many rows, in the layout of `form`: a slice stays one, and so does a transpose."""
    (had, columns), (step, across) = form.shape, form.strides
    if columns <= 1 or across == 1:
        strides = max(step, columns), 1
    elif had > 1 and step == 1:
        strides = 1, rows if across == had else max(across, rows)
    else:
        strides = step, across  # each call copies it
    return form._replace(shape=(rows, columns), strides=strides)


def replace_form(like: Form, shape: shapes.Shape, element: str) -> Form:
    """Return a new contiguous tensor of `like`'s framework and device."""
    return like._replace(shape=shape, strides=compact_strides(shape), dtype=element, read_only=False)


def _request(
    placements: Mapping[str, placement.Placement], formula: Formula, where: CallTarget, shape: ProblemShape
) -> Request:
    matrices = {name: placed.matrix for name, placed in placements.items()}
    scaled = "scale_a" in matrices and matrices["scale_a"].block is not None
    vectors = (*block_scales.SECOND.values(),) if scaled else (*block_scales.SCALES,)
    out, align = matrices["out"], min(matrices[name].align_bytes for name in ("out", "c") if name in matrices)
    return Request(
        a=matrices["a"],
        b=matrices["b"],
        c=replace(out, align_bytes=align),  # the kernel has one C for input and output
        ops=formula.ops,
        expression=formula.expression,
        pairs=None if formula.gated is None else formula.gated.pairs,
        quantized=formula.quantized,
        bias=matrices["bias"].dtype if "bias" in matrices else None,
        scale=next((matrices[name].dtype for name in vectors if name in matrices), None),
        scale_a=matrices["scale_a"] if scaled else None,
        scale_b=matrices["scale_b"] if scaled else None,
        residual=matrices.get("residual"),
        aux=matrices.get("aux"),
        problem=shape if shape.empty else bucket(shape, batch_invariant=where.batch_invariant),
        target=where.target,
        device=where.device,
        batch_invariant=where.batch_invariant,
        family=where.family,
    )


def _matrix(form: Form, name: str) -> Form:
    """Return a vector as the row, or as the column, of its product."""
    if len(form.shape) > 1:
        return form
    (k,), (stride,) = form.shape, form.strides
    shape, strides = ((1, k), (k, stride)) if name == "a" else ((k, 1), (stride, k))
    return form._replace(shape=shape, strides=strides)


def _folds(
    problem: shapes.Multiplied,
    a: Form,
    b: Form,
    of_result: list[Form],
    blocks: Mapping[str, block_scales.Block],
    forms: Mapping[str, Form],
) -> bool:
    """Return whether the batch can become more rows of one product: B has no batch, and every other tensor fits."""
    if problem.batches <= 1 or any(extent != 1 for extent in b.shape[:-2]):
        return False
    if blocks:
        return block_scales.folds_factors(forms["scale_a"], blocks["scale_a"], problem) and (
            placement.as_matrices(a, problem.batch, fold=True) is not None
            and all(
                placement.as_matrices(problem.of_result(x), problem.batch, fold=True) is not None for x in of_result
            )
        )
    scale_b = forms.get("scale_b")
    if scale_b is not None and placement.is_of_matrices("scale_b", scale_b.shape, problem):
        return False
    mine = placement.as_matrices(a, problem.batch, fold=True)
    if mine is None:
        # If only K is next to the batch, matrices at equal distances are no worse; otherwise A is copied, as rows.
        return placement.as_matrices(a, problem.batch, fold=False) is None
    whole = [form for form in of_result if tuple(form.shape) == problem.result]
    return all(placement.as_matrices(problem.of_result(form), problem.batch, fold=True) is not None for form in whole)


def _beside(
    name: str,
    form: Form,
    address: int,
    element: str,
    out: placement.Placement,
    fresh: Form,
    problem: shapes.Multiplied,
    how: _How,
) -> placement.Placement:
    """Place the input C like the result, and a residual in any layout that a kernel reads, as elements of one type."""
    why, placed = f"it is {form.dtype}, and the kernel's C is {element}", None
    if form.dtype == element:
        why = "its layout differs from that of the result"
        if tuple(form.shape) == problem.result:
            placed = placement.place_result(form, address, element, problem, **how)
    if placed is not None and (name == "residual" or placed.matrix.major == out.matrix.major):
        return placed
    made = _like_fresh(replace_form(fresh, problem.result, element), element, problem, how)
    strides, elems = compact_strides(problem.result), prod(problem.result)
    return replace(made, copy=placement.Copy(tuple(form.shape), problem.result, strides, elems, why))


def _like_fresh(fresh: Form, element: str, problem: shapes.Multiplied, how: _How) -> placement.Placement:
    made = placement.place_result(fresh, 0, element, problem, **how)
    assert made is not None
    return made


def _bias(form: Form, address: int) -> placement.Placement:
    size = dtype(form.dtype).bytes
    matrix = Matrix(form.dtype, "n", size)
    if (form.shape[0] <= 1 or form.strides[0] == 1) and address % size == 0:
        return placement.Placement(form, matrix)
    copy = placement.Copy(form.shape, form.shape, (1,), form.shape[0], "its elements are not contiguous")
    return placement.Placement(form._replace(strides=(1,)), matrix, copy)


def check_given(
    given: Mapping[str, Form], problem: shapes.Multiplied, element: str, *, quantized: bool = False
) -> None:
    """Check shapes, types and devices of the tensors other than A and B. Raises OperandError.

    A `quantized` result is added to no C of another type.
    """
    check_devices(given)
    if "bias" in given:
        _check_shape("bias", given["bias"], (problem.n,), "one per column")
    for name in ("c", "residual"):
        if name in given and not _expands(given[name].shape, problem.result):
            _check_shape(name, given[name], problem.result, "the result's, or one that expands to it")
    for name in ("bias", "residual"):
        if name in given and given[name].dtype not in shapes.OUT_DTYPES:
            refuse_type(name, given[name], f"one of {', '.join(shapes.OUT_DTYPES)}")
    blocks = block_scales.blocks_in_call(given)
    for name in () if block_scales.in_atoms(given) else blocks:
        block_scales.check_factors(name, given[name], given[block_scales.SCALES[name]])
    scales = [name for name in block_scales.SCALES if name in given and name not in blocks]
    for name in scales:
        if given[name].dtype not in shapes.SCALE_DTYPES:
            refuse_type(name, given[name], f"one of {', '.join(shapes.SCALE_DTYPES)}")
        if given[name].dtype != given[scales[0]].dtype:
            refuse_type(name, given[name], f"{given[scales[0]].dtype}, as {scales[0]} has")
        if prod(given[name].shape) != 1:
            placement.ones_of_scale(name, given[name].shape, problem)
    if (stored := _stored(given, element)) is None or (quantized and stored != element):
        which = "that of the quantized result" if quantized else "the result's"
        refuse_type("c", given["c"], f"{element}, {which}")
    if "out" in given:
        if given["out"].dtype != element:
            refuse_type("out", given["out"], f"{element}, the result's")
        _check_shape("out", given["out"], problem.result, "the result's")
        if given["out"].read_only:
            raise OperandError(operand="out", found="a read-only array", expected="a writable array")
        _check_apart("out", given["out"])


def check_devices(given: Mapping[str, Form]) -> None:
    """Reject a tensor on another device than the first one, by the names of a call. Raises OperandError."""
    first, device = next((name, form.device) for name, form in given.items())
    for name, form in given.items():
        if form.device != device:
            fix = f'`{name}.to("{_spelled(device)}")`'
            expected = f"{_spelled(device)}, the device of {first}"
            raise OperandError(operand=name, found=f"device {_spelled(form.device)}", expected=expected, fix=fix)


def _stored(given: Mapping[str, Form], element: str) -> str | None:
    """Return the type of the kernel's C beside the call's; None if c has one that is not converted to it.

    Only torch converts: NumPy has no bf16.
    """
    c = given.get("c")
    if c is None or c.dtype == element:
        return element
    return shapes.stored_type(element, c.dtype) if c.framework == "torch" else None


def _check_apart(name: str, form: Form) -> None:
    """Reject a tensor whose elements share memory: which of them is written last would be undefined."""
    if 0 in form.shape:
        return
    reach = 1
    modes = zip(map(abs, form.strides), form.shape, strict=True)
    for stride, extent in sorted((stride, extent) for stride, extent in modes if extent > 1):
        if stride < reach:
            found = f"strides {tuple(form.strides)}, with elements that share memory"
            raise OperandError(operand=name, found=found, expected="separate memory for each element")
        reach += stride * (extent - 1)


def refuse_type(name: str, form: Form, expected: str) -> NoReturn:
    """Raise OperandError for a tensor's element type."""
    raise OperandError(operand=name, found=f"dtype {form.dtype}", expected=expected, fix=f"cast {name}")


def _check_shape(name: str, form: Form, wanted: shapes.Shape, which: str) -> None:
    if tuple(form.shape) != wanted:
        raise OperandError(operand=name, found=f"shape {tuple(form.shape)}", expected=f"{wanted}, {which}")


def _spelled(device: tuple[str, int]) -> str:
    kind, ordinal = device
    return f"{kind}:{ordinal}" if kind == "cuda" else kind


def _expands(shape: shapes.Shape, to: shapes.Shape) -> bool:
    if len(shape) > len(to):
        return False
    return all(mine in (1, wanted) for mine, wanted in zip(reversed(shape), reversed(to), strict=False))
