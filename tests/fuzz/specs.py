"""Specs, plausible and hostile: each is planned and proved, or refused with words and an address."""

from __future__ import annotations

import random

from cutegen.contract.problem import MAX_BATCH, MAX_EXTENT
from cutegen.errors import CheckError, CutegenError, SpecError
from cutegen.plan import GemmPlan, plan
from cutegen.plan.gemm_plan import plan_json
from cutegen.render import render
from cutegen.spec import FAMILIES, parse_spec
from tests.fuzz.case import ACCEPTED, FOUND, REFUSED, Case, Outcome, random_of
from tests.fuzz.hostile import hostile, mangled, odd
from tests.fuzz.plausible import arch_of, plausible, toml

FILE = "case.toml"
LONGEST_MESSAGE = 1200
EXTENTS = (1, 7, 16, 64, 100, 128, 1000, 4096, 8192, 14336, 65536, 65537, 131072, MAX_EXTENT)
ODD_EXTENTS = (*EXTENTS, MAX_EXTENT + 1, 2**31 - 1, 2**40, 0, -1)


def case(seed: int) -> Case:
    """Its first line, a comment, is the target and the problem; the rest is the spec."""
    rng = random_of("specs", seed)
    family = rng.choice(tuple(FAMILIES))
    arch = arch_of(rng, family)
    content = _content(rng, family, arch)
    return Case(seed, f"# {arch} {_problem(rng)}\n{content}")


def _content(rng: random.Random, family: str, arch: str) -> str:
    table = plausible(rng, family, arch)
    kind = rng.random()
    if kind < 0.74:
        return toml(table)
    if kind < 0.86:
        return toml(odd(rng, table))
    if kind < 0.95:
        return toml(hostile(rng, table))
    return mangled(rng, toml(table))


def _problem(rng: random.Random) -> str:
    """M,N,K or M,N,K,batch, or nothing."""
    if rng.random() < 0.6:
        return ""
    allowed = EXTENTS if rng.random() < 0.85 else ODD_EXTENTS
    extents = [rng.choice(allowed) for _ in range(3)]
    return ",".join(map(str, extents if rng.random() < 0.7 else [*extents, rng.choice((1, 2, 7, MAX_BATCH))]))


def split_case(text: str) -> tuple[str, tuple[int, ...] | None, str]:
    """Target, problem and spec of a case."""
    first, _, content = text.partition("\n")
    arch, _, problem = first.removeprefix("# ").partition(" ")
    return arch, tuple(int(extent) for extent in problem.split(",")) if problem.strip() else None, content


def check(case: Case) -> Outcome:
    """Plan it; a plan explains itself and renders as Python, a refusal is one line with an address."""
    arch, problem, content = split_case(case.text)
    try:
        spec = parse_spec(content, file=FILE, name="case")
        found = plan(spec, arch, problem)  # type: ignore[arg-type]
    except CheckError as error:
        return Outcome(FOUND, f"a plan contradicts itself: {error}")
    except CutegenError as error:
        wrong = wrong_refusal(error)
        return Outcome(FOUND if wrong else REFUSED, wrong or str(error))
    if not isinstance(found, GemmPlan):
        return Outcome(ACCEPTED)
    if case.seed % 8 == 0 and plan_json(found) != plan_json(plan(spec, arch, problem)):  # type: ignore[arg-type]
        return Outcome(FOUND, "planned twice, and not the same")
    return _accepted(found)


def _accepted(found: GemmPlan) -> Outcome:
    limit = found.target.smem_per_cta_bytes
    if found.smem_bytes > limit or found.predictions.occupancy.ctas_per_sm < 1:
        return Outcome(FOUND, f"planned and cannot be launched: {found.smem_bytes} bytes of {limit}")
    if not (found.explain(everything=True) and plan_json(found)):
        return Outcome(FOUND, "a plan explains nothing")
    if not all(decision.chosen and decision.why for decision in found.decisions):
        return Outcome(FOUND, "a decision has no reason")
    compile(render(found).text, "kernel.py", "exec")
    return Outcome(ACCEPTED)


def wrong_refusal(error: CutegenError) -> str:
    """What a refusal lacks: a key, what was found and expected, one printable line of bounded length."""
    line, *place = str(error).split("\n")
    if not line.isprintable() or len(str(error)) > LONGEST_MESSAGE:
        return f"a message of {len(str(error))} characters, printable: {line.isprintable()}: {line[:200]!r}"
    if not isinstance(error, SpecError):
        return ""
    if place and not (error.key == "epilogue.expression" and place[-1].strip() == "^"):
        return f"a message of several lines: {str(error)[:200]!r}"
    said = error.file and error.found and error.expected
    return "" if said else f"a refusal without its place or reason: {str(error)[:200]!r}"
