"""Checks and times the candidates of one problem on the GPU of this process.

Every candidate first computes on poisoned memory, alone and in a graph, and is checked against float64. Then all run
in random order, in rounds. Candidates that are far slower drop out of later rounds. The fastest few are measured again
with the model's favorite, so that a single lucky measurement does not win.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

from cutegen.bench.contenders import Entrant
from cutegen.bench.measure import Graph, captured, graph_samples, l2_bytes, launch_samples, operand_sets
from cutegen.build import Cache, open_artifact
from cutegen.contract.launch import OPERANDS, RESULT, LaunchContract
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError
from cutegen.hardware import dtype
from cutegen.run import Kernel
from cutegen.tune.jobs import Candidate, MeasureJob
from cutegen.tune.pick_winner import is_settled, leaders, times_of
from cutegen.tuned.record import RegimeName
from cutegen.verify import compare, expected_outcome, poison, random_extras, random_operands

FIRST_ROUNDS, MORE_ROUNDS, MOST_ROUNDS, LAUNCH_ROUNDS = 5, 11, 66, 15
FAR_BEHIND = 1.25
"""Factor over the fastest median after the first rounds: slower candidates are not timed again."""
DUEL = 4
"""Candidates that are measured to the end: the favorite and the fastest others."""
_NEXT_SEED = 1000

Say = Callable[[dict[str, Any]], None]
Samples = dict[str, list[float]]
"""Microseconds of candidates by name, round by round."""


@dataclass(slots=True)
class _Ready:
    """A candidate with correct results."""

    call: Callable[[], object]
    graph: Graph
    rel_error: float


def measure(job: MeasureJob, say: Say) -> None:
    """Check and time the candidates of `job`, and `say` each result as it comes."""
    ready: dict[str, _Ready] = {}
    operands: _Operands | None = None
    for candidate in job.candidates:
        say({"say": "begin", "name": candidate.name})
        try:
            _misbehave(job, candidate.name)
            kernel = _opened(candidate)
            operands = operands or _Operands.made(kernel, job)
            found = operands.checked(kernel)
        except CutegenError as error:
            say({"say": "done", "name": candidate.name, "status": "failed", "why": " ".join(str(error).split())})
            continue
        if isinstance(found, str):
            say({"say": "done", "name": candidate.name, "status": "wrong", "why": found})
            continue
        ready[candidate.name] = found
        say({"say": "checked", "name": candidate.name, "rel_error": found.rel_error})
    if ready:
        _time(job, ready, say)
    say({"say": "end"})


@dataclass(frozen=True, slots=True)
class _Timer:
    """Times candidates in either regime, and says so: the parent waits for a message."""

    ready: Mapping[str, _Ready]
    say: Say

    def sample(self, regime: RegimeName, names: Iterable[str], *, rounds: int, seed: int, warm_up: int = 1) -> Samples:
        """Return so many rounds of the named candidates, after `warm_up` others if they are graphs."""
        self.say({"say": "timing"})
        options: dict[str, Any] = {"rounds": rounds, "seed": seed}
        if regime == "graph":
            graphs = {name: self.ready[name].graph for name in names}
            return dict(graph_samples(graphs, warm_up=warm_up, **options))
        return dict(launch_samples({name: self.ready[name].call for name in names}, **options))


def _time(job: MeasureJob, ready: Mapping[str, _Ready], say: Say) -> None:
    favorite = next(each.name for each in job.candidates if each.name in ready)
    timer, seed, decide_by = _Timer(ready, say), job.settings.seed, job.settings.decide_by
    first: dict[RegimeName, Samples] = {
        "graph": timer.sample("graph", ready, rounds=FIRST_ROUNDS, seed=seed, warm_up=2),
        "launch": timer.sample("launch", ready, rounds=FIRST_ROUNDS, seed=seed),
    }
    medians = {name: _median(times) for name, times in first[decide_by].items()}
    near = {name for name, us in medians.items() if us <= FAR_BEHIND * min(medians.values())} | {favorite}
    more = {regime: timer.sample(regime, near, rounds=MORE_ROUNDS, seed=seed + 1) for regime in first}
    last = _duel(job, leaders(more[decide_by], favorite, DUEL), timer)
    for name, each in ready.items():
        graph, launch = (asdict(times_of((first[x] | more[x] | last[x])[name])) for x in first)
        say({"say": "timed", "name": name, "rel_error": each.rel_error, "graph": graph, "launch": launch})
    say({"say": "duel", "favorite": favorite, "graph": last["graph"], "launch": last["launch"]})


def _duel(job: MeasureJob, names: list[str], timer: _Timer) -> dict[RegimeName, Samples]:
    """Time the fastest few again, until the fastest is distinguished from the favorite or the rounds are used up."""
    favorite, seed, decide_by = names[0], job.settings.seed + 2, job.settings.decide_by
    found: dict[RegimeName, Samples] = {"graph": {name: [] for name in names}, "launch": {name: [] for name in names}}
    decisive = found[decide_by]
    while len(found["graph"][favorite]) < MOST_ROUNDS:
        seed += 1
        _extend(found["graph"], timer.sample("graph", names, rounds=MORE_ROUNDS, seed=seed))
        if decide_by == "launch" or len(found["launch"][favorite]) < LAUNCH_ROUNDS:
            _extend(found["launch"], timer.sample("launch", names, rounds=LAUNCH_ROUNDS, seed=seed))
        leader = min(decisive, key=lambda name: _median(decisive[name]))
        if leader == favorite or is_settled(decisive, leader, favorite):
            break
    return found


def _extend(samples: Samples, more: Samples) -> None:
    for name, times in more.items():
        samples[name] += times


@dataclass(slots=True)
class _Operands:
    """The operands of all candidates, more sets than the L2 cache holds, and the expected results of two of them."""

    problem: ProblemShape
    contract: LaunchContract
    sets: list[tuple[Any, Any, Any]]
    extras: list[dict[str, Any]]
    expected: dict[int, Any]
    accumulator: str

    @classmethod
    def made(cls, kernel: Kernel, job: MeasureJob) -> Self:
        """Allocate fresh operands for the candidates of `job`, which all have one kernel's tensors."""
        contract, accumulator = kernel.contract, Entrant("", kernel).types.accumulator
        problem, seed = job.problem, job.settings.seed
        element_bytes = [dtype(contract.tensor(role).dtype).bytes for role in (*OPERANDS, RESULT)]
        products = (problem,) if job.sizes is None else job.sizes.products(problem)
        count = operand_sets(sum(each.compulsory_bytes(*element_bytes) for each in products), l2_bytes())
        options: dict[str, Any] = {"batch": problem.operand_batch, "groups": problem.groups}
        options |= {"framework": "torch", "device": "cuda"}
        sets = [
            random_operands(contract, problem.m, problem.n, problem.k, seed=seed + _NEXT_SEED * i, **options)
            for i in range(count)
        ]
        ends = {} if job.sizes is None else job.sizes.argument("cuda")
        extras = [
            random_extras(contract, problem.m, problem.n, k=problem.k, seed=seed + _NEXT_SEED * i, **options) | ends
            for i in range(count)
        ]
        expected = {
            i: expected_outcome(contract, *sets[i][:2], extras[i], accumulator=accumulator).result
            for i in {0, count - 1}
        }
        return cls(problem, contract, sets, extras, expected, accumulator)

    def checked(self, kernel: Kernel) -> _Ready | str:
        """Return the candidate ready to be timed, or what is wrong with its results."""
        calls = [
            partial(kernel, a, b, out=out, **more) for (a, b, out), more in zip(self.sets, self.extras, strict=True)
        ]
        self._poison()
        calls[0]()
        if wrong := self._wrong(0):
            return wrong
        graph = captured(calls)
        self._poison()
        graph.replay()
        wrong = next(filter(None, map(self._wrong, self.expected)), None)
        return f"in a graph: {wrong}" if wrong else _Ready(calls[0], graph, self._compared(0).rel_error)

    def _compared(self, index: int) -> Any:
        out = self.sets[index][2]
        element = self.contract.tensor(RESULT).dtype
        return compare(out, self.expected[index], dtype=element, accumulator=self.accumulator)

    def _wrong(self, index: int) -> str | None:
        found = self._compared(index)
        return None if found.ok else f"{found.wrong:,} elements wrong, relative error {found.rel_error:.3g}"

    def _poison(self) -> None:
        for _, _, out in self.sets:
            out.fill_(poison(self.contract.tensor(RESULT).dtype))


def _misbehave(job: MeasureJob, name: str) -> None:
    """Fail as tests request: launch a kernel that does not end, or one that reads an invalid address."""
    import torch

    if name in job.timer.hanging:
        torch.cuda._sleep(1 << 42)
        torch.cuda.synchronize()
    if name in job.timer.crashing:
        nowhere = torch.tensor([1 << 40], device="cuda")
        torch.zeros(1, device="cuda").take(nowhere)
        torch.cuda.synchronize()


def _opened(candidate: Candidate) -> Kernel:
    return Kernel(open_artifact(Cache.from_environment().path(candidate.key)))


def _median(times: list[float]) -> float:
    return times_of(times).median_us
