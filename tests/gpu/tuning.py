"""Tuning, step by step, where compiling and measuring are done at different times.

    python -m tests.gpu.tuning build JOBS.json --problems 2048,2048,2048 ... [--most 16] [--every]
    python -m tests.gpu.tuning measure JOBS.json OUT.json
    python -m tests.gpu.tuning shapes SHAPES.txt --count 30 --seed 7
    python -m tests.gpu.tuning again TUNED.json OUT.json SPEC.toml

`build` compiles the candidates of each problem into the cache, and writes the measuring jobs; with --every the whole
space that is predicted to take no more than --within times the favorite. `measure` runs the jobs and says, of each
problem, what the model's choice, the winner of the sixteen and the best of all take. `shapes` writes random problems,
and `again` times, in a new process, what records answer beside the model's choice and torch.matmul, where TUNED.json is
what `cutegen tune --json` printed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

import cutegen
from cutegen.build import Cache, open_artifact
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import target
from cutegen.run import Kernel
from cutegen.spec import GemmSpec, Operand, Problem
from cutegen.support.typed_json import read
from cutegen.tune.campaign import compile_job
from cutegen.tune.jobs import CompileJob, Measured, MeasureJob, Timer
from cutegen.tune.measuring import end_children, measure_job
from cutegen.tune.pick_winner import ERRORS, MARGIN, gain
from cutegen.tune.space import ranked_space
from cutegen.tune.tune_requests import _compile_job, compile_jobs, measure_job_of, tune_request_of

TARGET, DEVICE = "sm_90", "NVIDIA H200"


def spec() -> GemmSpec:
    """f16 TN with f32 sums, everything else open."""
    row = Operand("f16", "k")
    return GemmSpec(problem=Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32"), name="open_tn")


def build(path: Path, problems: list[ProblemShape], most: int, within: float | None, seconds: float) -> int:
    """Compile, each kernel once, and write the jobs. Ends after `seconds` with what is there."""
    begin = time.monotonic()
    asks = [tune_request_of(spec(), TARGET, problem, DEVICE, most=most) for problem in problems]
    wanted: dict[int, list[CompileJob]] = {}
    for i, ask in enumerate(asks):
        wanted[i] = list(compile_jobs(ask))
        if within is not None:
            ranked = ranked_space(spec(), target(TARGET), ask.problem)
            limit = within * (wanted[i][0].predicted_us or 0.0)
            known = {job.id for job in wanted[i]}
            more = [_compile_job(ask, each) for each in ranked if (each.predicted_us or limit) <= limit]
            wanted[i] += [job for job in more if job.id not in known]
    # By turns, so that every problem has its best when time is up.
    turns = [job for row in zip_longest(*wanted.values()) for job in row if job is not None]
    jobs = {job.id: job for job in turns}
    print(f"{len(jobs)} kernels for {len(asks)} problems, planned in {time.monotonic() - begin:.0f} s", flush=True)
    compiled = {}
    pool = ProcessPoolExecutor(16)
    futures = {pool.submit(compile_job, job): id for id, job in jobs.items()}
    wait(futures, seconds - (time.monotonic() - begin))
    pool.shutdown(cancel_futures=True)
    for future, id in futures.items():
        if not future.cancelled():
            compiled[id] = future.result()
    failed = [one for one in compiled.values() if one.key is None]
    for one in failed[:10]:
        print("FAILED", jobs[one.id].label, (one.why or "")[:200])
    total = sum(one.seconds for one in compiled.values())
    print(
        f"{len(compiled)} of {len(jobs)}, {len(failed)} failed, {time.monotonic() - begin:.0f} s, {total:.0f} s of work"
    )
    made = [
        measure_job_of(ask, [job for job in wanted[i] if job.id in compiled], compiled) for i, ask in enumerate(asks)
    ]
    path.write_text(json.dumps({"most": most, "jobs": [asdict(job) for job in made]}))
    return 0


def measure(path: Path, out: Path, seed: int, *, plant: bool) -> int:
    """Run the jobs and write what comes of them after each."""
    table = json.loads(path.read_text())
    found: list[Measured] = []
    for each in table["jobs"]:
        job = read(MeasureJob, each, str(path))
        job = replace(job, settings=replace(job.settings, seed=seed))
        if plant:
            names = [one.name for one in job.candidates]
            job = replace(job, timer=Timer(hanging=(names[1],), crashing=(names[2],)))
            job = replace(job, settings=replace(job.settings, candidate_limit_s=5.0))
        measured = measure_job(job)
        found.append(measured)
        out.write_text(json.dumps([asdict(one) for one in found]))
        print(line_of(measured, table["most"]), flush=True)
    end_children()
    return 0


def shapes(path: Path, count: int, seed: int) -> int:
    """Log-uniform multiples of 8 from 16 to 8192."""
    drawn = random.Random(seed)
    side = lambda: max(2, round(math.exp(drawn.uniform(math.log(16), math.log(8192))) / 8)) * 8  # noqa: E731
    path.write_text("".join(f"{side()},{side()},{side()}\n" for _ in range(count)))
    return 0


def again(path: Path, out: Path, asked: Path, rounds: int) -> int:
    """Time winner, favorite and torch once more; 1 where a winner is slower than the favorite beyond noise."""
    import torch

    from cutegen.bench.measure import captured, graph_samples, l2_bytes, launch_samples, operand_sets

    rows: list[dict[str, Any]] = []
    slower = 0
    for result in json.loads(path.read_text())["results"]:
        if result["winner"] is None:
            continue
        m, n, k, _ = result["problem"].values()
        tuned: Any = cutegen.compile(asked, TARGET, problem=(m, n, k))
        key = next(one["key"] for one in result["candidates"] if one["name"] == result["favorite"])
        winner = next(one["key"] for one in result["candidates"] if one["name"] == result["winner"])
        model = Kernel(open_artifact(Cache.from_environment().path(key)))
        if not tuned.artifact.hit or tuned.artifact.key != winner:
            print(f"{m}x{n}x{k}: the record answers with {tuned.artifact.key[:12]}, and {winner[:12]} was measured")
            slower += 1
        new = lambda r, c: torch.randn(r, c, device="cuda", dtype=torch.float16)  # noqa: E731
        count = operand_sets(2 * (m * k + n * k + m * n), l2_bytes())
        sets = [(new(m, k), new(n, k).T, torch.empty(m, n, device="cuda", dtype=torch.float16)) for _ in range(count)]
        calls: dict[str, Any] = {"tuned": tuned, "model": model, "torch": lambda a, b, out: torch.matmul(a, b, out=out)}
        expected = sets[0][0].double() @ sets[0][1].double()
        for name in ("tuned", "model"):
            sets[0][2].fill_(math.nan)
            calls[name](sets[0][0], sets[0][1], out=sets[0][2])
            error = ((sets[0][2].double() - expected).norm() / expected.norm()).item()
            if not error < 2e-3:
                print(f"{m}x{n}x{k}: WRONG {name}: {error}")
                slower += 1
        ready = {x: [partial(call, a, b, out=c) for a, b, c in sets] for x, call in calls.items()}
        graphs = {x: captured(each) for x, each in ready.items()}
        in_graph = graph_samples(graphs, rounds=rounds, seed=1)
        alone = launch_samples({x: each[0] for x, each in ready.items()}, rounds=rounds, seed=1)
        ratio, error = gain(in_graph, "tuned", "model")
        medians = {x: round(median(in_graph[x]), 3) for x in calls}
        launch = {x: round(median(alone[x]), 3) for x in calls}
        worse = ratio < 1 - max(MARGIN, ERRORS * error)
        slower += worse
        rows.append({"problem": [m, n, k], "graph": medians, "launch": launch, "gain": ratio, "error": error})
        out.write_text(json.dumps(rows))
        said = "SLOWER" if worse else "the model's" if result["winner"] == result["favorite"] else ""
        print(f"{m}x{n}x{k}: {medians} {launch} {ratio:.3f} +- {error:.3f}, when tuned {result['gain']:.3f} {said}")
    for regime in ("graph", "launch"):
        over = {
            x: math.exp(sum(math.log(row[regime][x] / row[regime]["tuned"]) for row in rows) / len(rows))
            for x in ("model", "torch")
        }
        print(f"{regime}: tuned is {over['model']:.4f}x the model's choice and {over['torch']:.4f}x torch")
    print(f"{slower} wrong or slower")
    return int(slower > 0)


def line_of(measured: Measured, most: int) -> str:
    """One problem in a line."""
    us = {one.name: one.graph.median_us for one in measured.results if one.graph}
    bad = [f"{one.name}: {one.status}: {one.why}" for one in measured.results if one.status != "ok"]
    first = measured.results[0].name if measured.results else ""
    if measured.winner is None:
        return f"{measured.problem}: {measured.why}; {bad[:3]}"
    best = min(us, key=us.__getitem__)
    sixteen = min(us[one.name] for one in measured.results[:most] if one.name in us)
    return (
        f"{measured.problem}: {len(us)} timed in {measured.seconds:.1f} s; model {first} {us[first]:.2f}, "
        f"winner {measured.winner} {us[measured.winner]:.2f} ({us[first] / us[measured.winner]:.3f}x), "
        f"best of {most} {sixteen:.2f}, of all {best} {us[best]:.2f} ({us[best] / sixteen:.3f}), "
        f"{'tie, ' if measured.tie else ''}{len(bad)} bad {bad[:2]}"
    )


def main() -> int:
    """0, unless arguments are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    building = verbs.add_parser("build")
    building.add_argument("jobs", type=Path)
    building.add_argument("--problems", nargs="+", required=True)
    building.add_argument("--most", type=int, default=16)
    building.add_argument("--within", type=float)
    building.add_argument("--seconds", type=float, default=180.0)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("jobs", type=Path)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--seed", type=int, default=int(time.time()) % 100000)
    measuring.add_argument("--plant", action="store_true", help="have one candidate hang, and one crash")
    drawing = verbs.add_parser("shapes")
    drawing.add_argument("path", type=Path)
    drawing.add_argument("--count", type=int, default=30)
    drawing.add_argument("--seed", type=int, default=7)
    repeating = verbs.add_parser("again")
    repeating.add_argument("path", type=Path)
    repeating.add_argument("out", type=Path)
    repeating.add_argument("spec", type=Path)
    repeating.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    if options.verb == "shapes":
        return shapes(options.path, options.count, options.seed)
    if options.verb == "again":
        return again(options.path, options.out, options.spec, options.rounds)
    if options.verb == "build":
        problems = [ProblemShape(*map(int, text.split(","))) for text in options.problems]
        return build(options.jobs, problems, options.most, options.within, options.seconds)
    return measure(options.jobs, options.out, options.seed, plant=options.plant)


if __name__ == "__main__":
    sys.exit(main())
