"""The tables of a spec file as one request for a kernel, and the checks between them.

A part is only a record. `GemmSpec` validates all of it on construction, so that a spec built in Python meets the same
rules as a file and fails with the same dotted key.
"""

from dataclasses import dataclass, field

from cutegen.contract.launch import GEMM, OPERANDS
from cutegen.errors import SpecError
from cutegen.hardware import BULK_TENSOR, CP_ASYNC_ATOMS, LDMATRIX_ATOMS, TARGETS, UNIVERSAL, Instruction, dtype
from cutegen.spec.checks import Mismatch
from cutegen.spec.families import FAMILIES, family_with
from cutegen.spec.parts import DEFAULT_ALIGN_BYTES, MODES, Epilogue, G2s, Mma, Problem, S2r, Schedule, Smem, Tile
from cutegen.spec.schema import NOT_A_KEY, Part, mismatches
from cutegen.spec.values import ATOMS, FamilyKey, KindName, Text
from cutegen.support.words import alternatives, literal

_USED_BY = {"residual": "residual", "bias": "bias_n or bias_m", "scale": "scale_m or scale_n", "aux": "aux"}
"""The tables of the epilogue's tensors besides C, and the ops that use each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmSpec(Part):
    """The request for one GEMM kernel. Raises SpecError with the dotted key of an invalid value.

    `name`, `description` and `file` do not count: two requests for the same kernel are equal. An omitted `family` is
    chosen for target and problem.

    >>> from cutegen.spec import Operand, Problem, Tile
    >>> row = Operand("f16", "k")
    >>> GemmSpec(family="sm80", problem=Problem(a=row, b=row, c=Operand("f16", "n")), tile=Tile(stages=17), name="mine")
    Traceback (most recent call last):
        ...
    cutegen.errors.SpecError: mine: tile.stages: found 17; expected an integer, 1 to 16; the nearest is 16
    """

    family: FamilyKey | None = None
    kind: KindName = GEMM
    description: Text = field(default="", compare=False)
    problem: Problem
    tile: Tile = Tile()
    mma: Mma = Mma()
    smem: Smem = Smem()
    g2s: G2s = G2s()
    s2r: S2r = S2r()
    epilogue: Epilogue = Epilogue()
    schedule: Schedule = Schedule()
    name: str = field(default="", compare=False, metadata=NOT_A_KEY)
    file: str = field(default="", compare=False, metadata=NOT_A_KEY)

    def __post_init__(self) -> None:
        for key, wrong in mismatches(self):
            raise self.error(key, found=wrong.found, expected=wrong.expected, fix=wrong.fix, place=wrong.place)

    def contradiction(self) -> Mismatch | None:
        """Check that the family supports the keys and copies, and that the epilogue uses all of its tensors."""
        return (
            (self._of_another_family(self.family) if self.family is not None else None)
            or self._unused()
            or self._copies_of_factors()
            or self._pairs_of_blocks()
            or self._quantized()
        )

    def _of_another_family(self, family: str) -> Mismatch | None:
        row = FAMILIES[family]
        for key in self.lacked_by(family):
            elsewhere = bool(row.instead) and key not in FAMILIES[row.instead].without
            return Mismatch(
                key=key,
                found=f'{literal(self._value(key))} in family "{family}"',
                expected=f"no such key in this family: {row.without[key]}",
                fix=f"leave {key} out" + (f', or family = "{row.instead}"' if elsewhere else ""),
            )
        if (named := self.mma.atom) is not None and (multiplies := ATOMS[named].instruction) not in row.needs:
            having = next(other for other in FAMILIES.values() if multiplies in other.needs and other.bulk_copies)
            return Mismatch(
                key="mma.atom",
                found=f"{named} in family {literal(family)}",
                expected=f"an atom of this family's instructions: {row.instructions}",
                fix=f'leave mma.atom out, or family = "{having.name}" multiplies by {multiplies} on {having.targets}',
            )
        for name in OPERANDS:
            if self.g2s.of(name).op == BULK_TENSOR and not row.bulk_copies:
                bulk = FAMILIES[family_with(Instruction.BULK_TENSOR)]
                return Mismatch(
                    key=f"g2s.{name}.op",
                    found=f'"{BULK_TENSOR}" in family {family}',
                    expected=alternatives((*sorted({atom.op for atom in CP_ASYNC_ATOMS.values()}), UNIVERSAL)),
                    fix=f'leave g2s.{name}.op out, or family = "{bulk.name}" has bulk tensor copies on {bulk.targets}',
                )
        return None

    def modes(self, name: str) -> tuple[str, str]:
        """Return the modes of A, B or C in a kernel: C may have a column for each pair of columns."""
        pairs = self.epilogue.pairs
        return pairs.value.modes_of_result if name == "c" and pairs is not None else MODES[name]

    def lacked_by(self, family: str) -> tuple[str, ...]:
        """Return the keys of this spec that a family does not have."""
        return tuple(key for key in FAMILIES[family].without if self._value(key) is not None)

    def in_family(self, family: str) -> str:
        """Format how to make this a spec of another family: name it, without the keys that it does not have."""
        lacked = ", ".join(self.lacked_by(family))
        return f'family = "{family}"' + (f" without {lacked}" if lacked else "")

    def _value(self, key: str) -> object:
        """Return the value at a dotted key, None if it or one of its tables is left out."""
        value: object = self
        for name in key.split("."):
            value = None if value is None else getattr(value, name)
        return value

    def _copies_of_factors(self) -> Mismatch | None:
        """Check that factors exist whose copy is given, and that a tensor map describes those that boxes copy."""
        for name in OPERANDS:
            factors, key = self.problem.factors(name), f"g2s.scale_{name}"
            if (op := self.g2s.of_factors(name).op) is None:
                continue
            if factors is None:
                fix = f"leave {key} out, or write problem.scale_{name}"
                return Mismatch(key=key, found=f"op = {literal(op)}", expected="factors of blocks to copy", fix=fix)
            if op == BULK_TENSOR and not factors.has_map:
                found, fix = f"{literal(op)} with align = {factors.align}", 'op = "cp.async.ca", or leave it out'
                expected = f"problem.scale_{name}.align = {DEFAULT_ALIGN_BYTES} or more: strides of a tensor map are"
                return Mismatch(key=f"{key}.op", found=found, expected=expected, fix=fix)
        return None

    def _pairs_of_blocks(self) -> Mismatch | None:
        """Check that the blocks of each member of pairs are its own, and one after another."""
        if self.epilogue.pairs is None:
            return None
        operand = self.epilogue.pairs.value.operand
        if (scale := self.problem.factors(operand)) is None:
            return None
        if self.epilogue.pairs.layout != "halves":
            found = f"{literal(self.epilogue.pairs.layout)} with factors of blocks"
            what = "an atom of factors" if scale.in_atoms else "a block"
            expected = f'"halves": otherwise {what} has columns of both members'
            return Mismatch(
                key="epilogue.pairs.layout", found=found, expected=expected, fix="sort the weight's columns"
            )
        if not scale.in_atoms and (scale.block[0] == 1 or scale.major != "k"):
            found = f"{literal(scale.block)}, {scale.major}-major, with epilogue.pairs"
            expected = 'blocks of several rows, major = "k": a copy takes those of both members'
            return Mismatch(key=f"problem.scale_{operand}", found=found, expected=expected, fix="block = [128, 128]")
        return None

    def _quantized(self) -> Mismatch | None:
        """Check that C has the type that it is quantized to, and that nothing else of its shape is stored."""
        if (quantize := self.epilogue.quantize) is None:
            return None
        c = self.problem.c
        if c.dtype != quantize.dtype:
            expected = f"{literal(quantize.dtype)}, that of epilogue.quantize"
            return Mismatch(key="problem.c.dtype", found=literal(c.dtype), expected=expected, fix="write it there too")
        if "aux" in self.epilogue.operands:
            found, expected = '"aux" with epilogue.quantize', "one of them"
            return Mismatch(key="epilogue.ops", found=found, expected=expected, fix="leave aux out")
        return None

    def _unused(self) -> Mismatch | None:
        asked = {name.partition("_")[0] for name in self.epilogue.operands}
        for name, use in _USED_BY.items():
            if getattr(self.problem, name) is not None and name not in asked:
                return Mismatch(
                    key=f"problem.{name}",
                    found=f"{name}, which the epilogue does not use",
                    expected=f"{use} in epilogue.ops or epilogue.expression",
                    fix=f"leave problem.{name} out",
                )
        return None

    @property
    def instructions(self) -> frozenset[Instruction]:
        """The instructions that a target must have: for the family, the spec's copies, and the element types."""
        parts = (getattr(self.problem, name) for name in (*MODES, *_USED_BY))
        of_types = (dtype(part.dtype).needs for part in parts if part is not None and part.dtype is not None)
        loads = (LDMATRIX_ATOMS.get(self.s2r.of(name).atom or "") for name in OPERANDS)
        named = {atom.needs for atom in loads if atom is not None}
        if BULK_TENSOR in {self.g2s.of(name).op for name in OPERANDS}:
            named.add(Instruction.BULK_TENSOR)
        if self.mma.atom is not None:
            named.add(ATOMS[self.mma.atom].instruction)
        of_family = frozenset() if self.family is None else FAMILIES[self.family].needs
        return of_family.union(named, *of_types)

    @property
    def needs(self) -> str:
        """The first target that has all of `instructions`; else the first of those that lack the fewest."""
        return max(TARGETS, key=lambda name: len(TARGETS[name].instructions & self.instructions))

    def error(self, key: str, *, found: str, expected: str, fix: str = "", place: str = "") -> SpecError:
        """Return the error of this spec at the dotted `key`, to be raised."""
        file = self.file or self.name
        file = file if file.isprintable() else repr(file)  # a name from Python may hold anything; an error is one line
        return SpecError(file=file, key=key, found=found, expected=expected, fix=fix, place=place)
