"""The instructions in the emitted PTX against those the plan calls for.

Another kind of instruction than planned means that the kernel is not the one that was explained and proved: an error.
So are other counts of copies and loads beside as many multiplications as planned: the template's loop has other steps
than the plan's (`cutegen/plan/loop.py`). Where multiplications differ too, the compiler unrolled a loop in its own way,
which is worth a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from cutegen.errors import EmissionError

# The opcodes whose kinds a plan decides: shared memory to registers, multiply, global to shared memory. Plain loads and
# stores are among the last of these up to the last multiplication; behind it they are the epilogue's.
COUNTED = re.compile(r"(?:ldmatrix|stmatrix|mma\.sync|wgmma|cp\.async\.c[ag]|cp\.async\.bulk\.tensor)\.")
PLAIN_COPIES = re.compile(r"(?:ld\.global|st\.shared)\.")
MULTIPLY = ("mma.sync.", "wgmma.mma_async.")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT_END = re.compile(r"[;{}]")
_OPCODE = re.compile(r"(?:[$%\w]+:\s*)*(?:@!?%?\w+\s+)?([a-z][\w.:]*)")


def count_instructions(ptx: str, entry: str, predicted: Collection[str] = ()) -> Mapping[str, int]:
    """Static counts by full opcode, modifiers included and predicates left out, in the body of `entry`.

    Of a kernel without tensor cores all opcodes of `predicted` are counted, wherever they stand. Raises EmissionError
    when `ptx` does not hold exactly the one entry.

    >>> count_instructions(".entry k(.param .u64 p) { @%p1 cp.async.ca.shared.global [%r1], [%rd1], 4; ret; }", "k")
    {'cp.async.ca.shared.global': 1}
    """
    text = _COMMENT.sub(" ", ptx)
    entries = re.findall(r"\.entry\s+([\w$]+)", text)
    if entries != [entry]:
        raise EmissionError(f"the PTX has the entries {', '.join(entries) or 'none'}; expected exactly {entry}")
    body = text[text.index("{", text.index(".entry")) :]
    opcodes = [match[1] for part in _STATEMENT_END.split(body) if (match := _OPCODE.match(part.strip()))]
    last = max((i for i, opcode in enumerate(opcodes) if opcode.startswith(MULTIPLY)), default=0)
    if last:
        others = [opcode for opcode in opcodes[:last] if PLAIN_COPIES.match(opcode)]
    else:
        others = [opcode for opcode in opcodes if opcode in predicted and not COUNTED.match(opcode)]
    return dict(sorted(Counter((*filter(COUNTED.match, opcodes), *others)).items()))


EDITED = "the kernel's code was edited: what the plan predicts of instructions need not hold"


def check_emission(
    predicted: Mapping[str, int], emitted: Mapping[str, int], *, edited: bool = False
) -> tuple[str, ...]:
    """Warnings, one for each opcode whose count differs.

    Raises EmissionError, naming both sides, when the kinds differ, or the steps of the main loop. Of code that was
    `edited` that is a warning too, after one that says why.
    """
    if edited:
        opcodes = sorted(predicted.keys() | emitted.keys())
        counts = ((opcode, predicted.get(opcode, 0), emitted.get(opcode, 0)) for opcode in opcodes)
        return EDITED, *(f"{opcode}: {x} predicted, {y} emitted" for opcode, x, y in counts if x != y)
    missing = _listing(predicted, predicted.keys() - emitted.keys())
    unplanned = _listing(emitted, emitted.keys() - predicted.keys())
    if missing or unplanned:
        raise EmissionError(
            f"the compiler emitted {unplanned or 'nothing else'} where the plan calls for {missing or 'none of it'}"
        )
    differing = {opcode: count for opcode, count in emitted.items() if count != predicted[opcode]}
    steps = {opcode for opcode in differing if COUNTED.match(opcode)}
    if steps and any(opcode.startswith(MULTIPLY) for opcode in predicted.keys() - steps):
        found, wanted = _listing(emitted, steps), _listing(predicted, steps)
        raise EmissionError(
            f"the compiler emitted {found} where the plan's main loop has {wanted}, beside as many multiplications"
        )
    return tuple(f"{opcode}: {predicted[opcode]} predicted, {count} emitted" for opcode, count in differing.items())


def _listing(counts: Mapping[str, int], opcodes: set[str]) -> str:
    return ", ".join(f"{opcode} ({counts[opcode]} times)" for opcode in sorted(opcodes))
