"""Tuning, step by step, where compiling and measuring are done at different times.

    python -m tests.gpu.tuning build JOBS.json --problems 2048,2048,2048 ... [--most 16] [--every]
    python -m tests.gpu.tuning measure JOBS.json OUT.json

`build` compiles the candidates of each problem into the cache, and writes the measuring jobs; with --every the whole
space that is predicted to take no more than --within times the favourite. `measure` runs the jobs and says, of each
problem, what the model's choice, the winner of the sixteen and the best of all take.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import target
from cutegen.spec import GemmSpec, Operand, Problem
from cutegen.tune.asking import _compile_job, ask_of, compile_jobs, measure_job_of
from cutegen.tune.compiling import compile_job
from cutegen.tune.jobs import CompileJob, Measured, MeasureJob, Timer, as_json, from_json
from cutegen.tune.measuring import end_children, measure_job
from cutegen.tune.space import ranked_space

TARGET, DEVICE = "sm_90", "NVIDIA H200"


def spec() -> GemmSpec:
    """f16 TN with f32 sums, everything else open."""
    row = Operand("f16", "k")
    return GemmSpec(problem=Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32"), name="open_tn")


def build(path: Path, problems: list[ProblemShape], most: int, within: float | None, seconds: float) -> int:
    """Compile, each kernel once, and write the jobs. Ends after `seconds` with what is there."""
    begin = time.monotonic()
    asks = [ask_of(spec(), TARGET, problem, DEVICE, most=most) for problem in problems]
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
    path.write_text(json.dumps({"most": most, "jobs": [as_json(job) for job in made]}))
    return 0


def measure(path: Path, out: Path, seed: int, *, plant: bool) -> int:
    """Run the jobs and write what comes of them after each."""
    table = json.loads(path.read_text())
    found: list[Measured] = []
    for each in table["jobs"]:
        job = from_json(MeasureJob, each, str(path))
        job = replace(job, settings=replace(job.settings, seed=seed))
        if plant:
            names = [one.name for one in job.candidates]
            job = replace(job, timer=Timer(hanging=(names[1],), crashing=(names[2],)))
            job = replace(job, settings=replace(job.settings, candidate_limit_s=5.0))
        measured = measure_job(job)
        found.append(measured)
        out.write_text(json.dumps([as_json(one) for one in found]))
        print(line_of(measured, table["most"]), flush=True)
    end_children()
    return 0


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
    options = parser.parse_args()
    if options.verb == "build":
        problems = [ProblemShape(*map(int, text.split(","))) for text in options.problems]
        return build(options.jobs, problems, options.most, options.within, options.seconds)
    return measure(options.jobs, options.out, options.seed, plant=options.plant)


if __name__ == "__main__":
    sys.exit(main())
