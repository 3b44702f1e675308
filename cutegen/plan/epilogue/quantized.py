"""Rule for a quantized C: 8-bit floats with a factor for each 128 columns of a row, written by the same kernel.

A warpgroup stores C in parts. If a part of 128 columns has whole blocks, the largest magnitude of a row is found among
the values of four lanes, by two shuffles, before anything is rounded. In the swapped product columns of C are rows of
the tile, and a block is in eight warps: all parts of a tile are computed first, and the warps' largest magnitudes meet
in shared memory.
"""

from cutegen.algebra import Extents, size
from cutegen.contract.launch import RESULT_FACTORS
from cutegen.contract.problem import QUANTIZED_BLOCK
from cutegen.hardware import dtype
from cutegen.plan.epilogue.pairs import tile_of_c
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.epilogue import EpilogueTensor, Fusion, Quantization
from cutegen.plan.values.gemm_plan import MmaPlan
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, round_up

KEY = "epilogue.quantize"


def choose_quantization(spec: GemmSpec, *, by_rows: bool) -> Choice[Quantization] | None:
    """Return which of a thread's values share a factor, if C is quantized: all, if it has parts `by_rows`."""
    if (asked := spec.epilogue.quantize) is None:
        return None
    element, of_rows = dtype("f32"), spec.problem.c.major == "m"  # of the kernel's C
    block, major = (QUANTIZED_BLOCK[::-1], "n") if of_rows else (QUANTIZED_BLOCK, "m")
    modes = spec.modes("c")
    factors = EpilogueTensor(
        RESULT_FACTORS, element, modes, modes["mn".index(major)], element.bytes, RESULT_FACTORS, block=block
    )
    quantization = Quantization(factors, asked.scale, of_threads=by_rows)
    whose = "a thread" if quantization.of_threads else f"{size(quantization.lanes)} lanes"
    lanes = f"the largest magnitude of a {'column' if of_rows else 'row'} is that of {whose}"
    whole = f"a part of {QUANTIZED_BLOCK[1]} columns has whole blocks"
    storing = ", by two of the lanes" if quantization.of_quads else ""
    why = (
        f"{lanes} of {quantization.warps} warps, which meet in shared memory before values are rounded"
        if of_rows
        else f"{whole}: {lanes}, found before values are rounded; factors are stored after the values{storing}"
    )
    rejected = (Rejected("in another kernel", "it would read all of C again"),)
    chosen = f"{asked.dtype}, a factor for {extents(QUANTIZED_BLOCK)} of C, {asked.scale}"
    return Choice(quantization, Decision(KEY, chosen, why, given=True, rejected=rejected))


def check_quantized(spec: GemmSpec) -> None:
    """Raise SpecError for a schedule in which no warpgroup has whole blocks of C, and for a C without rows."""
    if spec.epilogue.quantize is None:
        return
    if spec.problem.c.major != "n":
        raise spec.error(
            "problem.c.major",
            found=f'"{spec.problem.c.major}" with {KEY}',
            expected='"n": each row has a factor for 128 columns',
            fix='major = "n"',
        )
    if (grouped := spec.problem.groups) is not None and (grouped.of, grouped.layout) == ("n", "packed"):
        raise spec.error(
            KEY,
            found="a quantized C with packed groups of n",
            expected="groups of m, or padded ones: a block of 128 columns would be of two groups",
            fix='problem.groups.of = "m"',
        )
    if spec.schedule.reduction == "atomics":
        raise spec.error(
            KEY,
            found='a quantized C with schedule.reduction = "atomics"',
            expected="whole sums in one CTA before they are quantized",
            fix='reduction = "workspace"',
        )


def check_blocks(spec: GemmSpec, cta_tile: Extents, warpgroups: Extents) -> None:
    """Raise SpecError for a tile without whole blocks: of a warpgroup, or of the tile if they are in its rows."""
    if spec.epilogue.quantize is None:
        return
    mode = 0 if spec.problem.c.major == "m" else 1
    columns, block = tile_of_c(spec, cta_tile)[mode], QUANTIZED_BLOCK[1]
    groups = warpgroups[1] if mode == 1 else 1
    if columns % (block * groups) == 0:
        return
    of_each = f" for each of {groups} warpgroups along N" if groups > 1 else ""
    fix = round_up(columns, block * groups) * cta_tile[mode] // columns
    raise spec.error(
        "tile.cta",
        found=f"{extents(cta_tile)} with {KEY}: {columns} {('rows, columns', 'columns')[mode]} of C{of_each}",
        expected=f"a multiple of {block}, the columns that share a factor",
        fix=f"{'MN'[mode]} = {fix}",
    )


def check_drained(spec: GemmSpec) -> None:
    """Raise SpecError for a quantized C of which no thread that drains tensor memory has a whole row of a block.

    Those are swapped products, and pairs of columns whose sums stay in registers.
    """
    if spec.epilogue.quantize is None:
        return
    if spec.epilogue.pairs is not None and (factors := spec.problem.scale_a) is not None and not factors.in_atoms:
        raise spec.error(
            KEY,
            found="a quantized C of pairs of columns, with factors of f32",
            expected="factors of 8 bits, or none: the 256 sums of 128 elements are added to in registers",
            fix=f"leave {KEY} out",
        )
    if spec.problem.c.major == "m":
        raise spec.error(
            KEY,
            found="a quantized C with schedule.swap",
            expected="no exchange of A and B: a block would be a column of sums, in the lanes of four warps",
            fix="leave schedule.swap out",
        )


def check_shares(spec: GemmSpec, fusion: Fusion, mma: MmaPlan) -> None:
    """Raise SpecError if CTAs that add the slices of a tile would store a part of a block each."""
    ctas, slices = mma.cluster[2], spec.schedule.slices
    if fusion.quantization is None or slices == 1:
        return
    rows, columns = mma.accumulator.block[0], fusion.tile_of_c(mma.accumulator.row_of_blocks)[1]
    whole = fusion.tile_of_c(mma.cta_tile[:2])
    held = whole[0] * whole[1] * mma.accumulator.group_threads // (mma.accumulator.threads * rows)
    if fusion.quantization.of_rows:
        beside = whole[0] * columns // (rows * held)  # warpgroups along M, which have parts of a block each
        alone = slices == ctas and beside % (fusion.quantization.block[0] // rows) == 0
    else:
        alone = held % (ctas * QUANTIZED_BLOCK[1]) == 0
    if alone:
        return
    whose = "rows" if fusion.quantization.of_rows else f"{held} columns of a warpgroup"
    raise spec.error(
        KEY,
        found=f"{slices} slices of K, {ctas} of them in a cluster: their CTAs would share blocks in the tile's {whose}",
        expected="all values that share a factor in one CTA",
        fix="another schedule.cluster, or leave schedule.split_k out",
    )
