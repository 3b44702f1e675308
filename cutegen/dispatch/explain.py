"""Explains which kernel would serve a call, and why."""

from collections.abc import Iterator
from contextlib import suppress

from cutegen.contract.launch import FACTORS, OPERANDS
from cutegen.contract.tensor_map import BOX_MULTIPLE_BYTES
from cutegen.dispatch.block_scales import read_by_lanes
from cutegen.dispatch.providers import providers
from cutegen.dispatch.request import Matrix, Request
from cutegen.dispatch.resolve import Resolved
from cutegen.errors import SpecError
from cutegen.hardware import PACKED, Instruction, target
from cutegen.hardware.factor_atoms import ATOM_ROWS, BLOCK_VALUES, PER_WORD
from cutegen.support.words import aligned


def explained(resolved: Resolved) -> str:
    """Describe the request, each provider's response, and the copies that the call makes. Compiles nothing."""
    shape = f"result: {resolved.dtype}, shape {resolved.problem.result}"
    if resolved.empty:
        why = "the result is empty" if 0 in resolved.problem.result else "it is of no group"
        return f"{shape}; {why} and needs no kernel"
    request = resolved.request
    rows = [("problem", _bucket(resolved)), ("on", request.device or request.target)]
    if request.groups is not None:
        rows.append(("groups", f"{request.groups}, chosen for {_mean(request)}"))
    rows += [(name, str(getattr(request, name))) for name in ("a", "b", "c")]
    rows += [(name, _copied_as(each)) for name in FACTORS if (each := getattr(request, name)) is not None]
    last = () if request.expression is None else (request.expression,)
    rows.append(("epilogue", ", ".join((*request.ops, *last)) or "none"))
    if request.pairs is not None:
        rows.append(("pairs", str(request.pairs)))
    if request.quantized is not None:
        rows.append(("quantized", f"a factor for 1 x 128 of c, {request.quantized}"))
    rows += [(f"copied: {name}", why) for name, why in resolved.copies.items()]
    answers = list(providers.answers(request))
    rows += [("remark", text) for text in (*(text for _, each in answers for text in each.remarks), *_begins(request))]
    for provider, answer in answers:
        rows.append(("kernel" if answer.open is not None else "tried", f"{provider.name}: {answer.why}"))
    if providers.leaves_to_torch(request):
        rows.append(("kernel", f"none: {_left_to_torch(request)}, as no family that has run on hardware can"))
    return "\n".join([shape, *aligned(rows)])


def _left_to_torch(request: Request) -> str:
    return "torch computes it in f32" if request.quantized is None else "torch quantizes the product in f32"


def _copied_as(factors: Matrix) -> str:
    """Describe factors, and how a kernel copies them to shared memory."""
    if factors.dtype in BLOCK_VALUES and factors.block is not None:
        blocks = " x ".join(map(str, factors.block))
        return f"{factors.dtype} for blocks of {blocks}, in atoms of {ATOM_ROWS} rows by {PER_WORD}: by tensor map"
    by_lanes = read_by_lanes(factors)
    return f"{factors}: {'by lanes of a warp, since strides allow no tensor map' if by_lanes else 'by tensor map'}"


def _begins(request: Request) -> Iterator[str]:
    """Say which operands are read by elements since no box of a tensor map begins where groups do."""
    # An installation that only runs kernels has no specs, and still has `matmul`.
    from cutegen.dispatch.model import planned
    from cutegen.spec import MODES
    from cutegen.spec.families import family_with

    groups = request.groups
    if groups is None or groups.of == "k" or not target(request.target).has(Instruction.BULK_TENSOR):
        return
    begun = [x for x in OPERANDS if groups.packs(MODES[x]) and getattr(request, x).major == groups.of]
    by_elements = family_with(Instruction.CP_ASYNC)
    with suppress(SpecError):
        if begun and planned(request).family == by_elements:
            yield from (
                f"groups begin anywhere in rows of {name}, and boxes of tensor maps at multiples of "
                f"{BOX_MULTIPLE_BYTES} bytes: family {by_elements} reads it by elements; "
                f"{name} with K contiguous can have a faster kernel"
                for name in begun
            )


def _mean(request: Request) -> str:
    """Format the size of a group that a kernel is chosen for."""
    assert request.groups is not None
    of, problem = request.groups.of, request.problem
    each = problem.extents[of] // (1 if request.groups.layout == "padded" else problem.products)
    return f"{each} of {of.upper()} in each"


def _bucket(resolved: Resolved) -> str:
    """Name the problem that the kernel is chosen for, and the call's extents that it replaces."""
    chosen, called = resolved.request.problem, resolved.called
    pairs = [(name.upper(), called.extents[name], chosen.extents[name]) for name in chosen.extents]
    pairs += [("batch", called.batch, chosen.batch), ("groups", called.products, chosen.products)]
    others = [f"{name} = {had:,}" for name, had, has in pairs if had != has]
    what = f"{chosen}, K in bytes of two values" if resolved.request.a.dtype in PACKED else str(chosen)
    if not others:
        return what
    alike = "no row depends on the number of rows" if resolved.request.batch_invariant else "calls share kernels"
    return f"{what}, the bucket of {', '.join(others)}: {alike}"
