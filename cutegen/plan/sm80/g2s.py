"""Rule for the copy from global to shared memory: `cp.async`, its width, and which thread copies what."""

from __future__ import annotations

from cutegen.algebra import Layout, offsets, parse_layout, size
from cutegen.arch import cp_async_atom
from cutegen.plan.decision import Choice, Decision, Rejected
from cutegen.plan.gemm_plan import VectorCopy
from cutegen.plan.sm80.vectors import thread_grid, vector_copy
from cutegen.plan.text import extents
from cutegen.spec import G2sCopy, GemmSpec

WIDTHS_BITS = (128, 64, 32)


def choose_g2s(
    spec: GemmSpec,
    name: str,
    *,
    tile: tuple[int, int],
    major_mode: int,
    element_bits: int,
    align_bytes: int,
    smem_vector_elems: int,
    threads: int,
) -> Choice[VectorCopy]:
    """The widest cp.async that global alignment and shared layout allow and whose threads tile the operand exactly.

    `smem_vector_elems` is the longest vector that lies contiguous in the shared layout the spec asks for.
    """
    given = getattr(spec.g2s, name) or G2sCopy()
    key = f"g2s.{name}"
    limit_bits = min(8 * align_bytes, smem_vector_elems * element_bits, 128)
    if given.bits is not None and given.bits > limit_bits:
        raise _too_wide(spec, key, name, given.bits, align_bytes, smem_vector_elems * element_bits)
    rejected: list[Rejected] = []
    for bits in WIDTHS_BITS if given.bits is None else (given.bits,):
        if given.op == "cp.async.cg" and bits != 128:
            rejected.append(Rejected(f"{bits} bits", "cp.async.cg copies 16 bytes only"))
            continue
        if bits > limit_bits:
            rejected.append(
                Rejected(f"{bits} bits", _limit_reason(bits, align_bytes, smem_vector_elems * element_bits))
            )
            continue
        vector = bits // element_bits
        grid = _grid(given, vector, tile, major_mode, threads)
        if grid is None:
            rejected.append(
                Rejected(f"{bits} bits", f"{threads} threads x {vector} elements do not tile {extents(tile)}")
            )
            continue
        if given.threads is not None:
            _check_given_grid(spec, key, grid, vector, tile, major_mode, threads)
        return _chosen(given, key, bits, grid, major_mode, element_bits, rejected)
    raise spec.error(
        f"problem.{name}.align" if 8 * align_bytes < WIDTHS_BITS[-1] else "tile.cta",
        found=f"align = {align_bytes}"
        if 8 * align_bytes < WIDTHS_BITS[-1]
        else f"an operand tile of {extents(tile)} for {threads} threads",
        expected="a copy of 4, 8 or 16 bytes that every thread can make: "
        + "; ".join(f"{r.what}: {r.why}" for r in rejected),
        fix="align = 4 is the least that cp.async can copy"
        if 8 * align_bytes < WIDTHS_BITS[-1]
        else "use fewer warps or a larger tile",
    )


def _limit_reason(bits: int, align_bytes: int, smem_bits: int) -> str:
    if bits > 8 * align_bytes:
        return f"the operand is aligned to {align_bytes} bytes"
    return f"the shared layout keeps only {smem_bits // 8} bytes together"


def _too_wide(spec: GemmSpec, key: str, name: str, bits: int, align_bytes: int, smem_bits: int) -> Exception:
    return spec.error(
        f"{key}.bits",
        found=f"{bits} ({bits // 8} bytes), but {_limit_reason(bits, align_bytes, smem_bits)}",
        expected=f"at most {min(8 * align_bytes, smem_bits)} bits",
        fix=f"set problem.{name}.align = {bits // 8} if that is so"
        if bits > 8 * align_bytes
        else "change the shared layout or the width",
    )


def _grid(given: G2sCopy, vector: int, tile: tuple[int, int], major_mode: int, threads: int) -> Layout | None:
    """The thread grid: the one given, or the one with the most threads along the contiguous mode; None when there is none."""
    if given.threads is not None:
        layout = parse_layout(given.threads)
        assert isinstance(layout, Layout)
        return layout
    return thread_grid(tile, major_mode, vector, threads)


def _check_given_grid(
    spec: GemmSpec, key: str, grid: Layout, vector: int, tile: tuple[int, int], major_mode: int, threads: int
) -> None:
    text = getattr(spec.g2s, key[-1]).threads
    rows, columns = (size(Layout(mode)) for mode in grid.shape)
    if size(grid) != threads or sorted(offsets(grid)) != list(range(threads)):
        nearest = thread_grid(tile, major_mode, vector, threads)
        raise spec.error(
            f"{key}.threads",
            found=f'"{text}", which covers {size(grid)} of {threads} threads'
            if size(grid) != threads
            else f'"{text}", which does not number its {threads} threads 0 to {threads - 1} once each',
            expected=f"every one of the {threads} threads exactly once",
            fix=f'"{_text(nearest)}" covers {extents(tile)} exactly'
            if nearest
            else f"no grid of {threads} threads tiles {extents(tile)}",
        )
    unit = (rows * vector, columns) if major_mode == 0 else (rows, columns * vector)
    if tile[0] % unit[0] or tile[1] % unit[1]:
        nearest = thread_grid(tile, major_mode, vector, threads)
        raise spec.error(
            f"{key}.threads",
            found=f'"{text}": {rows} x {columns} threads with {vector} elements each span {extents(unit)}',
            expected=f"a divisor of the operand's tile {extents(tile)}",
            fix=f'"{_text(nearest)}" covers it exactly' if nearest else "change tile.cta",
        )


def _text(layout: Layout) -> str:
    return f"{layout.shape}:{layout.stride}".replace(" ", "")


def _chosen(
    given: G2sCopy,
    key: str,
    bits: int,
    grid: Layout,
    major_mode: int,
    element_bits: int,
    rejected: list[Rejected],
) -> Choice[VectorCopy]:
    op = given.op or ("cp.async.cg" if bits == 128 else "cp.async.ca")
    atom = cp_async_atom(op, bits)
    copy = vector_copy(atom, bits, grid, major_mode, element_bits)
    line_bytes = size(Layout(grid.shape[major_mode])) * bits // 8
    why = f"{size(Layout(grid.shape[major_mode]))} threads x {bits // 8} bytes = {line_bytes} contiguous bytes of global memory"
    why += "; cg, since 16 bytes need not pass through L1" if op == "cp.async.cg" and given.op is None else ""
    is_given = None not in (given.op, given.bits, given.threads)
    chosen = f"{op} {bits} bits, threads {_text(grid)}"
    return Choice(copy, Decision(key, chosen, why, given=is_given, rejected=tuple(rejected)))
