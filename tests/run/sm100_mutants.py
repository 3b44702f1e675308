"""Mistakes in the PTX of family sm100's shipped kernels, one at a time, judged by the CPU executor and by float64.

    python -m tests.run.sm100_mutants [--kernel sm100_mxf8_tn ...] [--order] [--sample 100] [--seed 0] [--json FILE]

The kinds of mistakes are those of `tests/run/tcgen05_changes.py`. A mutant runs on small problems, in several orders,
with poisoned results and no convention accepted, until something shows it: a violation, a launch that does not end, a
wrong result, or counts that are not the plan's. What nothing shows survives; `tests/run/sm100_survivors.py` says why.
It prints survivors, and a table of what showed the others. The exit status is 1 if a survivor is not explained there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import CutegenError
from cutegen.plan import GemmPlan, plan
from cutegen.ptx import ExecutionFault, ViolationKind
from cutegen.run import Kernel
from cutegen.spec import load_spec
from cutegen.verify import compare, expected_outcome, random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.grouped import LEFT, GroupedCall
from tests.run.ptx_mutants import Mutant, sampled, with_ptx
from tests.run.sm100_survivors import reason
from tests.run.tcgen05_changes import ORDER_KINDS, mutants

REFUSED, VIOLATION, HANGS, WRONG, COUNTS, SURVIVED = (
    "refused", "violation", "does not end", "wrong result", "other counts", "survived",
)  # fmt: skip
"""What shows a mutant: the text is refused before it runs, or what came of running it."""
WORDS = (REFUSED, VIOLATION, HANGS, WRONG, COUNTS, SURVIVED)
STEPS = 4
"""A mutant may take so many times the warp instructions of the right kernel."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A problem, the number of matrices or the ends of groups, and an order."""

    m: int
    n: int
    k: int
    policy: str = "reversed"
    batch: int | None = None
    ends: tuple[int, ...] | None = None
    clears: bool = False
    """The kernel sets what no group has to 0; nothing but its result is looked at then."""


_MANY_GROUPS = (*(0,) * 33, 1, 40, 40, 90)
LAUNCHES: Mapping[str, tuple[Launch, ...]] = {
    "sm100_hgemm_tn": (
        Launch(40, 264, 72),
        Launch(128, 256, 64),
        Launch(40, 264, 648, "in-order"),
        Launch(264, 520, 136),
        Launch(40, 264, 0, batch=2),
        Launch(131, 261, 71, "random:2"),
        Launch(136, 2056, 8, "random:1"),
    ),
    "sm100_bf16_pair": (
        Launch(40, 264, 72),
        Launch(256, 256, 64),
        Launch(40, 264, 968, "in-order"),
        Launch(264, 520, 136),
        Launch(40, 264, 0, batch=2),
        Launch(131, 261, 71, "random:2"),
        Launch(264, 2056, 8, "random:1"),
    ),
    "sm100_mxf8_tn": (
        Launch(40, 200, 144),
        Launch(128, 192, 128),
        Launch(40, 400, 1168, "in-order"),
        Launch(264, 400, 272),
        Launch(40, 200, 0, batch=2),
        Launch(131, 197, 141, "random:2"),
        Launch(136, 1544, 16, "random:1"),
    ),
    "sm100_nvf4_tn": (
        Launch(40, 136, 160),
        Launch(128, 128, 128),
        Launch(40, 264, 1168, "in-order"),
        Launch(264, 264, 272),
        Launch(40, 136, 0, batch=2),
        Launch(131, 133, 157, "random:2"),
        Launch(136, 1032, 16, "random:1"),
    ),
    "sm100_e4m3_block_scaled": (
        Launch(40, 136, 160),
        Launch(128, 128, 128),
        Launch(40, 264, 1168, "in-order"),
        Launch(264, 264, 272),
        Launch(40, 136, 0, batch=2),
        Launch(131, 133, 157, "random:2"),
        Launch(136, 1032, 16, "random:1"),
    ),
    "sm100_bf16_grouped": (
        Launch(203, 256, 136, ends=(3, 3, 203)),
        Launch(256, 256, 64, ends=(128, 256)),
        Launch(150, 264, 648, "in-order", ends=(0, 130, 140)),
        Launch(90, 264, 72, ends=_MANY_GROUPS),
        Launch(40, 264, 0, ends=(7, 40)),
        Launch(131, 255, 71, "random:2", ends=(31, 130)),
        *(Launch(35, n, 8, ends=(3, 35)) for n in (63, 127, 191)),
        Launch(150, 2056, 8, "random:1", ends=(-5, 140, 100, 500)),
        Launch(90, 136, 72, ends=(20, 60), clears=True),
    ),
}
"""Problems of each kernel: extents of whole tiles, of whole vectors, and of odd numbers, more k-tiles than stages, more
tiles than buffers, no K, every band of the order of tiles."""


@dataclass(frozen=True, slots=True)
class Operands:
    """What a launch reads and writes, fresh."""

    a: Any
    b: Any
    out: Any
    extras: dict[str, Any]

    @classmethod
    def of(cls, kernel: Kernel, launch: Launch) -> Operands:
        """Random operands; what no group has is NaN."""
        contract, ends = kernel.contract, launch.ends
        options: dict[str, Any] = {
            "seed": launch.m + launch.n + launch.k, "batch": launch.batch, "groups": ends and len(ends)
        }  # fmt: skip
        a, b, out = random_operands(contract, launch.m, launch.n, launch.k, **options)
        extras = random_extras(contract, launch.m, launch.n, k=launch.k, **options)
        if ends is not None:
            extras["offs"] = np.array(ends, np.int32)
            call = GroupedCall.of(contract, a, b, {**extras, "out": out})
            call.fill_rest("a", np.nan)
            call.fill_rest("out", LEFT)
        return cls(a, b, out, extras)


class Right:
    """A shipped kernel, and what its launches give."""

    def __init__(self, name: str, kernels: Cache) -> None:
        planned = plan(load_spec(name), "sm_100")
        assert isinstance(planned, GemmPlan)
        self.name, self.plan, self.kernel = name, planned, Kernel(build(request_of(planned), kernels))
        self.launches = LAUNCHES[name]
        self._expected = {launch: self._expect(launch) for launch in self.launches}
        self._steps: dict[Launch, int] = {}
        for launch in self.launches:
            found = self._shown(self.kernel, launch)
            assert found is None, f"{name} itself is wrong: {launch}: {found}"

    @property
    def text(self) -> str:
        """Its PTX."""
        return self.kernel.artifact.ptx

    def shown(self, mutant: Mutant) -> tuple[str, str]:
        """What shows a mutant, a word of `WORDS`, and the message."""
        try:
            kernel = with_ptx(self.kernel, mutant.planted_in(self.text))
        except CutegenError as error:
            return REFUSED, str(error)
        found = (self._shown(kernel, launch) for launch in self.launches)
        return next((each for each in found if each is not None), (SURVIVED, ""))

    def _expect(self, launch: Launch) -> Any:
        made = Operands.of(self.kernel, launch)
        left = 0.0 if launch.clears else LEFT
        return expected_outcome(self.kernel.contract, made.a, made.b, made.extras, left=left).result

    def _shown(self, kernel: Kernel, launch: Launch) -> tuple[str, str] | None:
        made = Operands.of(kernel, launch)
        try:
            if launch.clears:
                return self._compared(kernel(made.a, made.b, **made.extras), launch)
            limit = self._steps.get(launch)
            report = kernel.execute(
                made.a, made.b, out=made.out, **made.extras, policy=launch.policy, max_steps=limit and STEPS * limit
            )
        except ExecutionFault as fault:
            kind = fault.violation.kind
            message = str(fault)
            ends = kind is not ViolationKind.STEP_LIMIT and "waits for" not in message
            return (VIOLATION if ends else HANGS), message
        except CutegenError as error:
            return REFUSED, str(error)
        self._steps.setdefault(launch, sum(each.executed for each in report.instructions))
        if against := (*report.violations, *report.conventions):
            return VIOLATION, str(against[0])
        if (wrong := self._compared(made.out, launch)) is not None:
            return wrong
        size = kernel.call_size(made.a, made.b, made.out, **made.extras)
        differing = count_launch(self.plan, size, report, launch.ends or ()).differing()
        return (COUNTS, ", ".join(differing)) if differing else None

    def _compared(self, out: Any, launch: Launch) -> tuple[str, str] | None:
        found = compare(out, self._expected[launch], dtype=self.kernel.contract.tensor("c").dtype)
        return None if found.ok else (WRONG, str(found))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What showed a mutant of a kernel, or why it may survive: "" if nobody knows."""

    kernel: str
    mutant: Mutant
    word: str
    message: str

    def __str__(self) -> str:
        return f"{self.kernel}, {self.mutant}"


def load(path: Path) -> list[Verdict]:
    """The verdicts that a file has."""
    return [Verdict(**{**each, "mutant": Mutant(**each["mutant"])}) for each in json.loads(path.read_text())]


def store(path: Path, found: Iterable[Verdict]) -> None:
    """Write verdicts to a file."""
    path.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


def verdicts(right: Right, tried: Iterable[Mutant], known: Iterable[Verdict] = ()) -> Iterator[Verdict]:
    """The verdict on each; the message of a survivor is why it may survive, which may have become known."""
    words = {(each.kernel, each.mutant): (each.word, each.message) for each in known}
    for mutant in tried:
        why = reason(right.text, mutant) or ""
        word, message = words.get((right.name, mutant), (SURVIVED, ""))
        if word == SURVIVED and not (message and why):
            word, message = right.shown(mutant)
        yield Verdict(right.name, mutant, word, why if word == SURVIVED else message)


def table(found: Sequence[Verdict]) -> list[str]:
    """A row for each kernel: mutants, by what was shown, and survivors without a reason."""
    rows = ["| kernel | mutants | " + " | ".join(WORDS) + " | of these without a reason |", "|---" * 9 + "|"]
    for kernel in dict.fromkeys(each.kernel for each in found):
        own = [each for each in found if each.kernel == kernel]
        words = Counter(each.word for each in own)
        unknown = sum(each.word == SURVIVED and not each.message for each in own)
        rows.append(
            f"| `{kernel}` | " + " | ".join(map(str, (len(own), *(words[word] for word in WORDS), unknown))) + " |"
        )
    return rows


def main() -> int:
    """0 when the right kernels are right, and every survivor has a reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernel", action="append", choices=LAUNCHES, help="default: all")
    parser.add_argument("--order", action="store_true", help="only those that break a handshake")
    parser.add_argument("--sample", type=int, help="so many of each kernel's (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json",
        type=Path,
        help="where verdicts are kept: a later call tries what is new, and survivors without a reason",
    )
    parser.add_argument("--kernels", type=Path, help="where right kernels are kept (default: nowhere)")
    options = parser.parse_args()
    found: list[Verdict] = []
    known = load(options.json) if options.json and options.json.exists() else []
    kept = {(each.kernel, each.mutant): each for each in known}
    with TemporaryDirectory() as folder:
        for name in options.kernel or LAUNCHES:
            right = Right(name, Cache(options.kernels or Path(folder)))
            tried = [each for each in mutants(right.text) if not options.order or each.kind in ORDER_KINDS]
            for verdict in verdicts(right, sampled(tried, options.sample, options.seed), known):
                found.append(verdict)
                kept[verdict.kernel, verdict.mutant] = verdict
                if verdict.word == SURVIVED:
                    print(f"{verdict}\n    {verdict.message or 'NO REASON KNOWN'}", flush=True)
                if options.json:
                    store(options.json, kept.values())
    print(*table(found), sep="\n")
    return int(any(each.word == SURVIVED and not each.message for each in found))


if __name__ == "__main__":
    sys.exit(main())
