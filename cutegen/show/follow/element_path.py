"""The complete path of an element of A, B or C, for a problem."""

from dataclasses import replace

from cutegen.algebra import OperandName, offsets
from cutegen.contract.launch import FACTORS, OPERANDS, RESULT, RESULT_FACTORS
from cutegen.contract.problem import QUANTIZED_BLOCK, Pairs, ProblemShape, leading_stride_of_factors
from cutegen.errors import RequestError
from cutegen.hardware import factor_atoms
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.scheduler import k_tiles_of, slice_of
from cutegen.plan.operands.factor_atoms import WORDS_OF_ROWS
from cutegen.plan.values.path import ROWS, OperandPath
from cutegen.show.follow import locations
from cutegen.show.follow.operands import OperandFollower
from cutegen.show.follow.results import ResultFollower
from cutegen.show.follow.vectors import Surroundings
from cutegen.show.follow.window import (
    Window,
    of_blocks,
    of_blocks_of_members,
    of_words,
    of_words_of_members,
    paired,
    tiled,
)

_EXCHANGED = dict(zip((*OPERANDS, *FACTORS), (*OPERANDS[::-1], *FACTORS[::-1]), strict=True))


class Follower:
    """A plan's tables, computed once for any number of elements; coordinates are those of complete matrices.

    If A and B are swapped, `elements` have the names of the call, and `read_as` is the kernel's name. With groups the
    problem is one group's: its tiles begin at its first row, column or element of K, wherever that is in memory.
    """

    def __init__(self, plan: GemmPlan, problem: ProblemShape) -> None:
        self.plan, self.problem = plan, problem
        self.operands = {x.name: OperandFollower(plan, x) for x in plan.operands}
        self.result = ResultFollower(plan)

    def path_of(self, element: locations.Element) -> locations.ElementPath:
        """Return the path of `element`. Raises RequestError if the problem has no such element."""
        match element.operand:
            case "c":
                return self._of_result(element)
            case "scale_c":
                return self._of_result_factor(element)
        return self._of_operand(element)

    def _of_operand(self, element: locations.Element) -> locations.OperandElementPath:
        plan, follower = self.plan, self._follower(element)
        x, rows = follower.operand, self.problem.extents[element.modes[0]]
        extents = (-(-rows // x.block[0]), -(-self.problem.k // x.block[1]) * x.block_elems)
        asked = element
        if x.block_elems > 1:
            asked.check((rows, -(-self.problem.k // (x.block[1] // factor_atoms.PER_WORD))))
            element = replace(element, coordinate=_word(element.coordinate))
        else:
            element.check(extents)
        pairs = plan.epilogue.fusion.pairs if element.operand in ("b", "scale_b") else None
        pair = self._pair(asked, x, pairs, rows)
        window, scales = self._window(asked, x, pairs), self._scales(asked, x, pair)
        source = locations.GlobalLocation.of(
            element,
            extents,
            window,
            major="k" if x.major == "k" else element.modes[0],
            align_bytes=x.align_bytes,
            element_bytes=x.dtype.bytes,
        )
        tile_k = plan.cta_tile[2]
        k_tile, k_tiles = element.coordinate[1] * x.block[1] // x.block_elems // tile_k, -(-self.problem.k // tile_k)
        slice_ = slice_of(k_tile, plan.slices, k_tiles)
        stage = k_tiles_of(slice_, plan.slices, k_tiles).index(k_tile) % plan.stages
        within = window.within
        lines = self._line(window, x) if scales is None else self._in_tile(scales, window, x, pairs, pair)
        return locations.OperandElementPath(
            element=asked,
            read_as=x.name,
            dtype=x.dtype.name,
            source=source,
            k_tile=k_tile,
            slice=slice_,
            slices=plan.slices,
            copy=follower.copy(Surroundings.of(source, window)),
            shared=follower.shared(within, stage),
            loads=follower.loads(within, stage),
            reads=follower.reads(within, stage),
            meets=follower.meets(lines),
            line=lines.start,
            pair=pair,
            scales=scales,
            sums=self._sums(x.operand, lines),
            tensor_memory=None if x.block_elems == 1 else self._in_tensor_memory(asked, x, within, stage),
        )

    def _sums(self, operand: OperandName, lines: range) -> locations.SumsLocation | None:
        """Return where the sums of rows or columns of the CTA's tile are, unless threads hold them."""
        if not self.plan.tensor_memory:
            return None
        rows, columns = self.plan.mma.accumulator.tile
        chosen = (lines, range(columns)) if operand == "A" else (range(rows), lines)
        return self.result.sums(*chosen)

    def _in_tensor_memory(
        self, element: locations.Element, x: OperandPath, within: tuple[int, int], stage: int
    ) -> locations.TensorMemoryLocation:
        """Return the place of a factor."""
        row, factor = element.coordinate
        atom = within[1] // factor_atoms.ATOM_WORDS * x.tile[0] + within[0]
        column = (
            self.plan.columns_of(x.name, stage).first
            + atom * factor_atoms.ATOM_COLUMNS
            + row % factor_atoms.ATOM_ROWS // factor_atoms.COLUMN_ROWS
        )
        return locations.TensorMemoryLocation(row % factor_atoms.COLUMN_ROWS, column, factor % factor_atoms.PER_WORD)

    def _follower(self, element: locations.Element) -> OperandFollower:
        """Return the tables of the kernel's operand. Raises RequestError for factors that the kernel does not have."""
        name = _EXCHANGED[element.operand] if self.plan.swapped else element.operand
        if name not in self.operands:
            raise RequestError(
                f"--element: found {element.operand}; expected one of {', '.join(self._names)}: the spec has "
                "no factors of blocks"
            )
        return self.operands[name]

    @property
    def _names(self) -> tuple[str, ...]:
        """Names of the matrices that the kernel has, whose elements can be followed."""
        quantized = self.plan.epilogue.fusion.quantization is not None
        return (*self.operands, RESULT, *((RESULT_FACTORS,) if quantized else ()))

    def _window(self, element: locations.Element, x: OperandPath, pairs: Pairs | None) -> Window:
        """Return the tile that has the element: the first one, if a factor is of several."""
        if x.block_elems > 1:
            rows, word = self._rows_of_tile(x), _word(element.coordinate)
            if pairs is not None:
                return of_words_of_members(word, x.tile, self.problem.n // 2 // x.block[0])
            return of_words(word, x.tile, x.block[0], element.coordinate[0] // rows, rows)
        if not x.is_multiplied:
            of_tile = element.coordinate, x.tile, x.block[0], self._rows_of_tile(x), x.box_steps
            return of_blocks(*of_tile) if pairs is None else of_blocks_of_members(*of_tile, self.problem.n)
        if pairs is not None:
            return paired(element.coordinate, x.tile, pairs, self.problem.n, self._rows_of_tile(x))
        return tiled(element.coordinate, x.tile)

    def _pair(
        self, element: locations.Element, x: OperandPath, pairs: Pairs | None, rows: int
    ) -> locations.PairMember | None:
        """Return which member of a pair a column of B is, or the first of those of a factor: members have their own."""
        if pairs is None:
            return None
        if x.is_multiplied or x.block_elems > 1:
            return locations.PairMember(*pairs.pair(element.coordinate[0], rows))
        member, block = divmod(element.coordinate[0], rows // 2 // x.block[0])
        return locations.PairMember(block * x.block[0], pairs.members[member])

    def _rows_of_tile(self, x: OperandPath) -> int:
        """Return the rows that the CTA's tile has of an operand's side."""
        return self.plan.cta_tile[ROWS.index(x.operand)]

    def _scales(
        self, element: locations.Element, x: OperandPath, pair: locations.PairMember | None
    ) -> locations.ScaledBlock | None:
        """Return what a factor scales; None for an element of A or B. With pairs its rows are columns of C."""
        if x.is_multiplied:
            return None
        block = x.block if x.block_elems == 1 else (1, x.block[1] // factor_atoms.PER_WORD)
        if pair is not None:
            element = replace(element, coordinate=(pair.pair // block[0], element.coordinate[1]))
        extents = self.problem.extents[element.modes[0]], self.problem.k
        spans = zip(element.coordinate, block, extents, strict=True)
        rows, k = (range(at * block, min((at + 1) * block, extent)) for at, block, extent in spans)
        return locations.ScaledBlock(rows, k)

    def _line(self, window: Window, x: OperandPath) -> range:
        """Return the row or column of C's tile that an element meets; a CTA of a pair has a part of B's tile."""
        shares = self._rows_of_tile(x) // x.tile[0]
        line = window.within[0] + window.tile[0] % shares * x.tile[0]
        return range(line, line + 1)

    def _in_tile(
        self,
        scales: locations.ScaledBlock,
        window: Window,
        x: OperandPath,
        pairs: Pairs | None,
        pair: locations.PairMember | None,
    ) -> range:
        """Return the rows of a block that the CTA's tile has, counted in it; with pairs a half has a member's."""
        extent, before = self._rows_of_tile(x), 0
        if pairs is not None and pair is not None:
            extent //= 2
            before = extent if pair.member == pairs.members[1] else 0
        first = window.tile[0] * extent - before
        return range(max(before, scales.rows.start - first), min(before + extent, scales.rows.stop - first))

    @property
    def _result_extents(self) -> tuple[int, int]:
        """Rows and columns of C."""
        return self.problem.m, self.problem.n // self.plan.epilogue.fusion.members

    @property
    def _result_tile(self) -> tuple[int, int]:
        """Rows and columns of a call's C in a CTA's tile."""
        m, n, _ = self.plan.cta_tile
        tile = self.plan.epilogue.fusion.tile_of_c((m, n))
        return tile[::-1] if self.plan.swapped else tile

    @property
    def _result_read_as(self) -> str:
        return "c, transposed" if self.plan.swapped else "c"

    def _of_result(self, element: locations.Element) -> locations.ResultElementPath:
        c, swapped, extents = self.plan.epilogue, self.plan.swapped, self._result_extents
        major = "mn"[c.major == "m"] if swapped else c.major
        element.check(extents)
        window = tiled(element.coordinate, self._result_tile)
        target = locations.GlobalLocation.of(
            element, extents, window, major=major, align_bytes=c.align_bytes, element_bytes=c.dtype.bytes
        )
        around = Surroundings.of(target, window)
        if swapped:
            around = around.exchanged()
        within = around.window.within
        return locations.ResultElementPath(
            element=element,
            dtype=c.dtype.name,
            read_as=self._result_read_as,
            held=self.result.held(within),
            sums=self.result.sums(*(range(at, at + 1) for at in within)) if self.plan.tensor_memory else None,
            members=self.result.members(within),
            staged=self.result.staged(within),
            store=self.result.store(around),
            target=target,
            slices=self.plan.slices,
            factor=self._factor(element, within, extents),
        )

    def _of_result_factor(self, element: locations.Element) -> locations.ResultFactorPath:
        """Return the path of a factor of a quantized C, through the first value of its block."""
        wide, tile, (rows, columns) = QUANTIZED_BLOCK[1], self._result_tile, self._result_extents
        if (quantization := self.plan.epilogue.fusion.quantization) is None:
            raise RequestError(
                f"--element: found {element.operand}; expected one of {', '.join(self._names)}: the spec does not "
                "quantize C"
            )
        blocks = (rows, -(-columns // wide))
        element.check(blocks)
        row, block = element.coordinate
        first = locations.Element(RESULT, (row, block * wide))
        within = tiled(first.coordinate, tile).within
        if self.plan.swapped:
            within = within[::-1]
        factor, size = self._factor(first, within, (rows, columns)), quantization.factors.dtype.bytes
        assert factor is not None
        return locations.ResultFactorPath(
            element=element,
            dtype=quantization.factors.dtype.name,
            read_as=self._result_read_as,
            first=within,
            meets=self.result.block(within),
            factor=factor,
            target=locations.GlobalLocation.of(
                element,
                blocks,
                tiled(element.coordinate, (tile[0], tile[1] // wide)),
                major="m",
                align_bytes=leading_stride_of_factors(1) * size,
                element_bytes=size,
            ),
            slices=self.plan.slices,
        )

    def _factor(
        self, element: locations.Element, within: tuple[int, int], extents: tuple[int, int]
    ) -> locations.FactorOfResult | None:
        """Return the factor of an element of a quantized C; None without. Factors have rows contiguous, as new ones."""
        if (quantization := self.plan.epilogue.fusion.quantization) is None:
            return None
        (row, column), wide = element.coordinate, QUANTIZED_BLOCK[1]
        block, met = column // wide, self.result.block(within)
        threads, value = tuple(each.thread for each in met), met[0].values[0]
        return locations.FactorOfResult(
            coordinate=(row, block),
            columns=range(block * wide, min((block + 1) * wide, extents[1])),
            threads=threads,
            shared=self.result.largest(within),
            stored_by=threads[quantization.storing_lane(wide, value)],
            offset_elems=block * leading_stride_of_factors(extents[0]) + row,
        )


def _word(factor: tuple[int, int]) -> tuple[int, int]:
    """Return the coordinates of the word that has the factor of a row and a block of K: (rows / 128, words along K)."""
    row, k = factor
    return row // factor_atoms.ATOM_ROWS, k // factor_atoms.PER_WORD * factor_atoms.ATOM_WORDS + int(
        offsets(WORDS_OF_ROWS)[row % factor_atoms.ATOM_ROWS]
    )


def follow(plan: GemmPlan, element: locations.Element, problem: ProblemShape) -> locations.ElementPath:
    """Follow one element. Raises RequestError if the problem has no such element."""
    return Follower(plan, problem).path_of(element)
