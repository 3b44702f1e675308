"""Replaces a GPU in tests: a time is a function of candidate, problem and seed."""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from cutegen.tune.jobs import Candidate, MeasureJob
from cutegen.tune.pick_winner import times_of

ROUNDS = 9
SPREAD = 0.3
"""Maximum relative excess of a candidate's time over the prediction."""


def measure(job: MeasureJob, say: Callable[[dict[str, Any]], None]) -> None:
    """Report for each candidate what `gpu_timer.measure` would, and fail as the timer's settings request."""
    timer, right = job.timer, []
    for candidate in job.candidates:
        say({"say": "begin", "name": candidate.name})
        time.sleep(timer.seconds)
        if candidate.name in timer.crashing:
            os.abort()
        if candidate.name in timer.hanging:
            time.sleep(3600)
        if candidate.name in timer.wrong:
            say({"say": "done", "name": candidate.name, "status": "wrong", "why": "1 element wrong"})
            continue
        right.append(candidate)
        say({"say": "checked", "name": candidate.name, "rel_error": 0.0})
    samples = {each.name: [stand_in_us(job, each)] * ROUNDS for each in right}
    for each in right:
        times = asdict(times_of(samples[each.name]))
        say({"say": "timed", "name": each.name, "rel_error": 0.0, "graph": times, "launch": times})
    if right:
        say({"say": "duel", "favorite": right[0].name, "graph": samples, "launch": samples})
    say({"say": "end"})


def stand_in_us(job: MeasureJob, candidate: Candidate) -> float:
    """Return microseconds: the model's prediction, and up to SPREAD more."""
    of_groups = "" if job.sizes is None else f" {job.sizes.name}"
    text = f"{candidate.name} {job.problem} {job.timer.seed}{of_groups}"
    share = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
    return (candidate.predicted_us or 10.0) * (1 + SPREAD * share)
