"""The instructions in the emitted PTX against the plan's.

Another kind of instruction than planned means that the kernel is not the explained and proved one: an error. It is also
an error if copy and load counts differ but the number of MMAs matches: the template's loop has other steps than the
plan's (`cutegen/plan/kernel/program.py`). If the MMAs differ as well, the compiler unrolled a loop differently, which
is a warning. Each mbarrier of the plan's pipelines is initialized once, with its count of arrivals.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping

from cutegen.errors import EmissionError

# Opcodes whose kinds a plan decides: shared memory to registers, MMA, global to shared memory. Plain loads and stores
# belong to the last group up to the last MMA; after it they belong to the epilogue.
COUNTED = re.compile(
    r"(?:ldmatrix|stmatrix|mma\.sync|wgmma|tcgen05\.mma|tcgen05\.cp|cp\.async\.c[ag]|cp\.async\.bulk\.tensor)\."
)
PLAIN_COPIES = re.compile(r"(?:ld\.global|st\.shared)\.")
MULTIPLY = ("mma.sync.", "wgmma.mma_async.", "tcgen05.mma.")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT_END = re.compile(r"[;{}]")
_OPCODE = re.compile(r"(?:[$%\w]+:\s*)*(?:@!?%?\w+\s+)?([a-z][\w.:]*)")


def count_instructions(ptx: str, entry: str, predicted: Collection[str] = ()) -> Mapping[str, int]:
    """Return static counts by full opcode, with modifiers and without predicates, in the body of `entry`.

    For a kernel without tensor cores all opcodes of `predicted` are counted, at any place. Raises EmissionError if
    `ptx` does not have exactly this one entry.

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


_MBARRIER = re.compile(
    r"mov\.(?:b|u)32\s+(?P<register>%\w+),\s*(?P<value>\d+)\s*;"
    r"|mbarrier\.init\.[\w.:]+\s+\[[^\]]*\],\s*(?:(?P<count>\d+)|(?P<of>%\w+))\s*;"
)


def count_mbarriers(ptx: str) -> Mapping[int, int]:
    """Return how many mbarriers the text initializes with each count of arrivals, which may be in a register.

    Raises EmissionError for a count that no instruction before sets to a constant.

    >>> count_mbarriers("mov.b32 %r1, 8; mbarrier.init.shared.b64 [%r0], %r1; mbarrier.init.shared.b64 [%r0+8], 1;")
    {1: 1, 8: 1}
    """
    counts: Counter[int] = Counter()
    registers: dict[str, int] = {}
    for match in _MBARRIER.finditer(_COMMENT.sub(" ", ptx)):
        if match["register"]:
            registers[match["register"]] = int(match["value"])
        elif match["count"]:
            counts[int(match["count"])] += 1
        elif match["of"] in registers:
            counts[registers[match["of"]]] += 1
        else:
            raise EmissionError(f"an mbarrier is initialized with {match['of']}, which is no constant")
    return dict(sorted(counts.items()))


def check_mbarriers(
    planned: Mapping[str, tuple[int, int]], emitted: Mapping[int, int], *, edited: bool = False
) -> tuple[str, ...]:
    """Compare mbarriers with those of the plan's pipelines: by name, how many, and the arrivals that each counts.

    Raises EmissionError, or for `edited` code returns a warning, if their numbers differ for any count of arrivals.
    """
    wanted: Counter[int] = Counter()
    for number, count in planned.values():
        wanted[count] += number
    if +wanted == emitted:
        return ()
    found = ", ".join(f"{number} for {count} arrivals" for count, number in emitted.items())
    names = ", ".join(f"{number} for {count} arrivals ({name})" for name, (number, count) in planned.items())
    message = f"the compiler emitted {found or 'no'} mbarriers, but the plan's pipelines have {names or 'none'}"
    if edited:
        return (message,)
    raise EmissionError(message)


EDITED = "the kernel's code was edited: the plan's instruction counts need not hold"


def check_emission(
    predicted: Mapping[str, int], emitted: Mapping[str, int], *, edited: bool = False
) -> tuple[str, ...]:
    """Return warnings, one per opcode whose count differs.

    Raises EmissionError, naming both sides, if the kinds or the steps of the main loop differ. For `edited` code that
    is also a warning, after one that says why.
    """
    if edited:
        opcodes = sorted(predicted.keys() | emitted.keys())
        counts = ((opcode, predicted.get(opcode, 0), emitted.get(opcode, 0)) for opcode in opcodes)
        return EDITED, *(f"{opcode}: {x} predicted, {y} emitted" for opcode, x, y in counts if x != y)
    missing = _listing(predicted, predicted.keys() - emitted.keys())
    unplanned = _listing(emitted, emitted.keys() - predicted.keys())
    if missing or unplanned:
        raise EmissionError(
            f"the compiler emitted {unplanned or 'nothing else'} instead of the planned {missing or 'nothing'}"
        )
    differing = {opcode: count for opcode, count in emitted.items() if count != predicted[opcode]}
    steps = {opcode for opcode in differing if COUNTED.match(opcode)}
    if steps and any(opcode.startswith(MULTIPLY) for opcode in predicted.keys() - steps):
        found, wanted = _listing(emitted, steps), _listing(predicted, steps)
        raise EmissionError(
            f"the compiler emitted {found}, but the plan's main loop has {wanted} for the same number of MMAs"
        )
    return tuple(f"{opcode}: {predicted[opcode]} predicted, {count} emitted" for opcode, count in differing.items())


def _listing(counts: Mapping[str, int], opcodes: set[str]) -> str:
    return ", ".join(f"{opcode} ({counts[opcode]} times)" for opcode in sorted(opcodes))
