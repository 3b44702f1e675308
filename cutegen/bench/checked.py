"""Contenders with correct results: each computes on poisoned memory, alone and in a graph, before it is timed."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

from cutegen import verify
from cutegen.bench.contenders import Against, Entrant, Operands, Prepare
from cutegen.bench.grouped import GroupSizes, product_of_groups
from cutegen.bench.measure import Call, Graph, Regime, captured, l2_bytes, operand_sets
from cutegen.bench.peak_kernel import MmaTypes
from cutegen.contract.launch import OPERANDS, RESULT, LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CheckError, CutegenError
from cutegen.hardware import dtype
from cutegen.verify import Comparison, Reference, random_extras, random_operands

_LOG = logging.getLogger("cutegen.bench")

OTHERS_MAX_REL_ERROR = 1e-2
"""Relative error of other contenders at most: they may round partial sums to f16, as cuBLAS does when it splits K."""
_T = TypeVar("_T")
_NEXT_SEED = 1000  # between sets of operands, whose extras use the following seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A contender with correct results; without a `graph` if none was requested or can be made.

    `rel_errors` are those of each regime; a graph has several sets of operands, and the largest error of those checked.
    """

    name: str
    ours: bool
    types: MmaTypes
    call: Call
    graph: Graph | None
    rel_errors: Mapping[Regime, float]


def prepared(
    members: Sequence[Entrant],
    problem: ProblemShape,
    against: Against,
    *,
    seed: int,
    in_graphs: bool,
    sizes: GroupSizes | None = None,
) -> Iterator[Ready]:
    """Check all contenders of one setting on the same operands against float64; others first. Raises CheckError."""
    contract = aligned_for_all([x.kernel.contract for x in members])
    sets = tuple(_sets(contract, problem, seed, in_graphs, sizes))
    judged = (0,) if len(sets) == 1 else (0, len(sets) - 1)
    libraries_types, _ = members[0].ceiling_types
    theirs = tuple(against(contract))
    products = {i: _product(contract, sets[i], libraries_types) for i in judged} if theirs else {}
    plain = sets if contract.pairs is None or not theirs else tuple(map(_with_all_columns, sets))
    for name, prepare in theirs:
        judge = _Judge(name, problem, contract, plain, libraries_types, products)
        if (found := _of_others(judge, prepare, in_graphs)) is not None:
            yield found
    for member in members:
        yield _of_ours(member, problem, sets, judged, seed, in_graphs)


def aligned_for_all(contracts: Sequence[LaunchContract]) -> LaunchContract:
    """Return the first contract, with A, B and C aligned for the most demanding contract."""
    first, *_ = contracts
    tensors = (
        replace(first.tensor(role), align_bytes=max(each.tensor(role).align_bytes for each in contracts))
        for role in (*OPERANDS, RESULT)
    )
    return replace(first, tensors=tuple(tensors))


def _product(contract: LaunchContract, x: Operands, types: MmaTypes) -> Reference | verify.Bounded:
    """Return A B in float64."""
    if contract.groups is not None:
        return product_of_groups(contract, x, types.accumulator)
    return verify.float64_reference(x.a, x.b, contract)


def _sets(
    contract: LaunchContract, problem: ProblemShape, seed: int, in_graphs: bool, sizes: GroupSizes | None = None
) -> Iterator[Operands]:
    """One set of operands, or as many as a graph uses."""
    types = [dtype(contract.tensor(role).dtype).bytes for role in (*OPERANDS, RESULT)]
    products = (problem,) if sizes is None else sizes.products(problem)
    count = operand_sets(sum(x.compulsory_bytes(*types) for x in products), l2_bytes()) if in_graphs else 1
    m, n, k = problem.m, problem.n, problem.k
    data: Mapping[str, Any] = {"batch": problem.operand_batch, "groups": problem.groups, "framework": "torch"}
    for i in range(count):
        a, b, out = random_operands(contract, m, n, k, seed=seed + _NEXT_SEED * i, device="cuda", **data)
        yield Operands(a, b, out, {} if sizes is None else sizes.argument(a.device))


def _with_all_columns(x: Operands) -> Operands:
    """Return operands for others, which do not join pairs of columns: C is (M,N) in the order of (M,N/2)."""
    *batch, rows, columns = x.out.shape
    if x.out.stride(-1) == 1:
        return replace(x, out=x.out.new_empty((*batch, rows, 2 * columns)))
    return replace(x, out=x.out.new_empty((*batch, 2 * columns, rows)).mT)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Checks one contender's results on some of the sets."""

    name: str
    problem: ProblemShape
    contract: LaunchContract
    sets: Sequence[Operands]
    types: MmaTypes
    expected: Mapping[int, Reference | verify.Bounded]

    @classmethod
    def of(cls, member: Entrant, problem: ProblemShape, sets: Sequence[Operands], judged: Sequence[int]) -> Self:
        """Return the judge of a kernel's results, with the epilogue, on the sets whose numbers are `judged`."""
        contract, types = member.kernel.contract, member.types
        expected = {
            i: verify.expected_outcome(
                contract, x.a, x.b, {**x.extras, "out": x.out}, accumulator=types.accumulator
            ).result
            for i, x in ((i, sets[i]) for i in judged)
        }
        return cls(member.name, problem, contract, sets, types, expected)

    def poison(self) -> None:
        for each in self.sets:
            each.out.fill_(verify.poison(self.contract.tensor(RESULT).dtype))

    def first(self) -> Comparison:
        return self._of(0)

    def worst(self) -> Comparison:
        """Return the comparison with the largest error; NaN is larger than any."""
        return max(map(self._of, self.expected), key=lambda x: (not x.ok, not x.rel_error <= math.inf, x.rel_error))

    def _of(self, index: int) -> Comparison:
        out, sums = self.sets[index].out, self.types.accumulator
        return verify.compare(out, self.expected[index], dtype=self.contract.tensor(RESULT).dtype, accumulator=sums)


def _of_others(judge: _Judge, prepare: Prepare, in_graphs: bool) -> Ready | None:
    """Return a library with correct results; None, with a warning, if it fails here or is wrong."""
    # Views of its own: it may replace them by tensors that it allocates.
    judge = replace(judge, sets=[replace(x, out=x.out.view_as(x.out)) for x in judge.sets])
    judge.poison()
    call = _tried(judge.name, lambda: _called(prepare, judge.sets[0]))
    if call is None or not _makes_sense(judge, found := judge.first(), "at"):
        return None
    graph, errors = None, {Regime.LAUNCH: found.rel_error}
    if in_graphs:
        graph = _tried(f"{judge.name} in a graph", lambda: captured([prepare(x) for x in judge.sets]))
        if graph is not None:
            _replayed(judge, graph)
            errors[Regime.GRAPH] = (worst := judge.worst()).rel_error
            graph = graph if _makes_sense(judge, worst, "in a graph at") else None
    return Ready(name=judge.name, ours=False, types=judge.types, call=call, graph=graph, rel_errors=errors)


def _of_ours(
    member: Entrant,
    problem: ProblemShape,
    sets: Sequence[Operands],
    judged: Sequence[int],
    seed: int,
    in_graphs: bool,
) -> Ready:
    """Return a kernel of cutegen's on these sets with its own extras. Raises CheckError if it is wrong."""
    mine = tuple(_with_extras(member.kernel.contract, problem, sets, seed))
    return _of_judged(_Judge.of(member, problem, mine, judged), member, in_graphs)


def prepared_call(
    member: Entrant,
    problem: ProblemShape,
    theirs: Iterable[tuple[str, Prepare]],
    *,
    seed: int,
    in_graphs: bool,
) -> Iterator[Ready]:
    """Check others that compute the whole call of one kernel, with its epilogue, and then the kernel.

    Raises CheckError if the kernel is wrong; others are left out with a warning.
    """
    contract = member.kernel.contract
    plain = tuple(_sets(contract, problem, seed, in_graphs))
    sets = tuple(_with_extras(contract, problem, plain, seed))
    judge = _Judge.of(member, problem, sets, (0,) if len(sets) == 1 else (0, len(sets) - 1))
    for name, prepare in theirs:
        if (found := _of_others(replace(judge, name=name), prepare, in_graphs)) is not None:
            yield found
    yield _of_judged(judge, member, in_graphs)


def _with_extras(
    contract: LaunchContract, problem: ProblemShape, sets: Sequence[Operands], seed: int
) -> Iterator[Operands]:
    options: Mapping[str, Any] = {"batch": problem.operand_batch, "groups": problem.groups, "framework": "torch"}
    m, n, k = problem.m, problem.n, problem.k
    for i, each in enumerate(sets):
        extras = random_extras(contract, m, n, k=k, seed=seed + _NEXT_SEED * i, device="cuda", **options)
        yield replace(each, extras={**each.extras, **extras})


def _of_judged(judge: _Judge, member: Entrant, in_graphs: bool) -> Ready:
    calls = [partial(member.kernel, x.a, x.b, out=x.out, **x.extras) for x in judge.sets]
    judge.poison()
    calls[0]()
    _demand(judge, found := judge.first())
    graph, errors = captured(calls) if in_graphs else None, {Regime.LAUNCH: found.rel_error}
    if graph is not None:
        _replayed(judge, graph)
        _demand(judge, worst := judge.worst(), " in a graph")
        errors[Regime.GRAPH] = worst.rel_error
    return Ready(name=member.name, ours=True, types=member.types, call=calls[0], graph=graph, rel_errors=errors)


def _replayed(judge: _Judge, graph: Graph) -> None:
    judge.poison()
    graph.replay()


def _called(prepare: Prepare, operands: Operands) -> Call:
    call = prepare(operands)
    call()
    return call


def _tried(name: str, attempt: Callable[[], _T]) -> _T | None:
    """Return a library's result; None, with a warning, if it fails."""
    try:
        return attempt()
    except CutegenError:
        raise
    except Exception as error:  # Triton's and the DSL's errors have no common base class
        first_line = str(error).partition("\n")[0]
        _LOG.warning("%s is left out: %s: %s", name, type(error).__name__, first_line)
        return None


def _makes_sense(judge: _Judge, found: Comparison, where: str) -> bool:
    """Return whether a library's result is close enough; warn if it is not."""
    if found.rel_error <= OTHERS_MAX_REL_ERROR:
        return True
    _LOG.warning("%s is left out: relative error %.3g %s %s", judge.name, found.rel_error, where, judge.problem)
    return False


def _demand(judge: _Judge, found: Comparison, where: str = "") -> None:
    if not found.ok:
        raise CheckError(
            f"{judge.name} at {judge.problem}{where}: relative error {found.rel_error:.3g}, {found.wrong:,} elements "
            "wrong; wrong results are not timed"
        )
