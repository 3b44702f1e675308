"""Runs a grid: one CTA after another in the policy's order, in this process or in several."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.arguments import Argument, Binding, pack_arguments
from cutegen.ptx.machine.cluster import make_cluster
from cutegen.ptx.machine.cta import Machine, Rules
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.grid import ONE_CTA, Grid, Shape, volume
from cutegen.ptx.machine.launch_control import ClusterQueue
from cutegen.ptx.machine.memory import ALLOCATION_STRIDE, MAX_CLUSTER_CTAS, Buffer, Bytes, GlobalMemory
from cutegen.ptx.machine.report import InstructionReport, LaunchReport
from cutegen.ptx.machine.special import WORKSPACE_ADDRESS, WORKSPACE_BYTES, WORKSPACE_REGISTERS
from cutegen.ptx.machine.tensor_map import MapsOfLaunch, TensorMap
from cutegen.ptx.text.syntax import WARP_LANES, Dim3, Entry
from cutegen.ptx.watch.global_shadow import GlobalShadow, Touched, first_race
from cutegen.ptx.watch.predecessor import Predecessor
from cutegen.ptx.watch.traffic import Traffic, TrafficCounters
from cutegen.ptx.watch.violations import Monitor, Violation, ViolationKind

MAX_THREADS, MAX_DEPTH = 1024, 64
"""Threads per block, and along z."""
MAX_CTAS = 1 << 22
"""CTAs of a grid: more would run for days, and orders are drawn of all."""
MOST_RESIDENT = 16
"""Number of clusters that take turns if CTAs communicate: more start when one of these ends, or none can end."""
_ENDED = object()
_COUNTS = tuple(each.name for each in fields(Traffic))
MAX_SHARED_BYTES = 232_448
"""227 KiB, the limit per CTA on sm_90; the planner checks targets with less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of the CTAs of one process; outcomes of several processes are added."""

    steps: int
    block_runs: list[int]
    traffic: list[Traffic]
    violations: list[Violation]
    conventions: list[Violation]
    printed: str = ""
    touched: tuple[Touched, ...] = ()
    """Accesses to each allocation, if other processes run other CTAs."""


def dim3(value: int | Sequence[int], name: str) -> Dim3:
    """A grid or block size: one to three positive integers."""
    sizes = [value] if isinstance(value, int) else list(value)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(s, int | np.integer) or s < 1 or s >= 1 << 31 for s in sizes):
        raise LaunchError(f"{name} is {value}; expected one to three positive integers")
    x, y, z = [int(s) for s in sizes] + [1] * (3 - len(sizes))
    return x, y, z


def check_shape(executable: Executable, shape: Shape) -> None:
    """Raises `LaunchError` if the entry cannot be launched like this."""
    entry, threads, (_, _, depth) = executable.entry, shape.threads, shape.block
    if threads > MAX_THREADS:
        raise LaunchError(f"block {shape.block} has {threads} threads; at most {MAX_THREADS} are allowed")
    if depth > MAX_DEPTH:
        raise LaunchError(f"block {shape.block} has {depth} threads along z; at most {MAX_DEPTH} are allowed")
    if entry.max_block is not None and threads > (most := volume(entry.max_block)):
        raise LaunchError(f"block {shape.block} has {threads} threads; {entry.name} allows {most} (.maxntid)")
    required = entry.required_block
    if required is not None and required != shape.block:
        raise LaunchError(f"block is {shape.block}; {entry.name} requires {required} (.reqntid)")
    if (ctas := volume(shape.grid.ctas)) > MAX_CTAS:
        raise LaunchError(f"grid {shape.grid.ctas} has {ctas:,} CTAs; at most {MAX_CTAS:,} are executed")
    _check_cluster(entry, shape.grid)
    total = executable.layout.dynamic_shared_offset + shape.dynamic_smem_bytes
    if shape.dynamic_smem_bytes < 0 or total > MAX_SHARED_BYTES:
        raise LaunchError(f"{total} bytes of shared memory; at most {MAX_SHARED_BYTES} are allowed")


def chosen_cluster(entry: Entry, asked: Dim3 | None) -> tuple[Dim3, bool]:
    """The clusters of a launch that requests `asked`, and whether they are explicit. Raises `LaunchError`."""
    required = entry.required_cluster
    if required is not None and asked not in (None, required):
        raise LaunchError(f"cluster is {asked}; {entry.name} requires {required} (.reqnctapercluster)")
    if required is None and asked is None and entry.needs_cluster:
        raise LaunchError(
            f"{entry.name} is launched with the size of its clusters (.explicitcluster); give cluster=, or --cluster"
        )
    cluster = required or asked
    return cluster or ONE_CTA, cluster is not None


def _check_cluster(entry: Entry, grid: Grid) -> None:
    """Raises `LaunchError` if the grid cannot be divided into such clusters."""
    size, most = grid.cluster_size, min(MAX_CLUSTER_CTAS, entry.max_cluster_size or MAX_CLUSTER_CTAS)
    if size > most:
        raise LaunchError(f"cluster {grid.cluster} has {size} CTAs; at most {most} are allowed")
    if any(ctas % each for ctas, each in zip(grid.ctas, grid.cluster, strict=True)):
        raise LaunchError(f"grid {grid.ctas} is not a multiple of cluster {grid.cluster}")


def run_ctas(
    executable: Executable,
    shape: Shape,
    arguments: Sequence[Argument],
    rules: Rules,
    chosen: Sequence[int],
    done: Callable[[], None],
    *,
    runs_apart: bool = False,
    printed: Callable[[str], None] | None = None,
) -> Outcome:
    """Runs the clusters `chosen` and calls `done` after each; `runs_apart`: other processes run the other clusters.

    `printed` receives what threads print.
    """
    queue = ClusterQueue(chosen, rules.policy.schedule("launch control"), done)
    machine, shadows = _make_machine(executable, shape, arguments, rules, queue)
    machine.printed.on_text = printed
    with np.errstate(all="ignore"):
        if executable.ctas_communicate:
            _run_together(machine, queue, done)
        else:
            while queue:
                for _ in make_cluster(machine, queue.start()).turns():
                    pass
                done()
    return Outcome(
        steps=machine.steps,
        block_runs=machine.block_runs,
        traffic=machine.traffic.sites,
        violations=machine.monitor.violations,
        conventions=machine.monitor.conventions,
        printed=machine.printed.text(),
        touched=tuple(shadow.touched() for shadow in shadows) if runs_apart else (),
    )


def _run_together(machine: Machine, queue: ClusterQueue, done: Callable[[], None]) -> None:
    """Runs clusters that may wait for each other: one that keeps running lets others start, and they take turns."""
    schedule = machine.rules.policy.schedule("turns of CTAs")
    resident, beginning = list[Iterator[None]](), 1
    while queue or resident:
        for _ in range(min(len(queue), beginning)):
            resident.append(make_cluster(machine, queue.start()).turns())
        still = []
        for turns in schedule.order(resident):
            if next(turns, _ENDED) is _ENDED:
                done()
            else:
                still.append(turns)
        # If so many wait and none ends, they wait for CTAs that have not started: as many again start.
        stuck = len(still) == len(resident) >= MOST_RESIDENT
        beginning = len(still) if stuck else int(len(still) < MOST_RESIDENT)
        resident = still


def _make_machine(
    executable: Executable, shape: Shape, arguments: Sequence[Argument], rules: Rules, queue: ClusterQueue
) -> tuple[Machine, list[GlobalShadow]]:
    """The machine, and the shadows of the arrays among the arguments."""
    items = [argument.array.dtype.itemsize for argument in arguments if isinstance(argument, TensorMap)]
    granule_bytes = min(executable.global_granule_bytes, *items) if items else executable.global_granule_bytes

    def watch(size_bytes: int) -> GlobalShadow:
        return GlobalShadow(size_bytes, granule_bytes, executable.sites)

    before = rules.programmatic
    binding = Binding(watch, frozenset() if before is None else before)
    packed = pack_arguments(executable.entry, arguments, binding)
    monitor = Monitor(executable.entry.instructions, rules.raise_on)
    counters = TrafficCounters([Traffic() for _ in executable.entry.instructions])
    uncounted = TrafficCounters([Traffic() for _ in executable.entry.instructions])
    parameters = Buffer(name="the parameters", start=0, writeable=False, bytes=Bytes(np.frombuffer(packed, np.uint8)))
    variables = executable.layout.buffers(watch, is_shared_before=before is not None)
    if not executable.frame.specials.keys().isdisjoint(WORKSPACE_REGISTERS):
        variables.append(_workspace(watch(WORKSPACE_BYTES)))
    constants = [buffer for buffer in variables if not buffer.writeable]
    memories = {
        "global": GlobalMemory([*binding.buffers, *variables], monitor, counters, executable.semantics),
        "const": GlobalMemory(constants, monitor, uncounted, {}),
        "param": GlobalMemory([parameters], monitor, uncounted, {}),
    }
    machine = Machine(
        executable=executable,
        shape=shape,
        rules=rules,
        memories=memories,
        tensors=MapsOfLaunch(binding.tensors, memories),
        monitor=monitor,
        traffic=counters,
        queue=queue,
        block_runs=[0] * len(executable.blocks),
        predecessor=None if before is None else Predecessor(),
    )
    return machine, binding.shadows


def _workspace(shadow: GlobalShadow) -> Buffer:
    """The grid's workspace, zeros at first."""
    shadow.is_writeable = True
    data = Bytes(np.zeros(WORKSPACE_BYTES, np.uint8))
    return Buffer(name="the grid's workspace", start=WORKSPACE_ADDRESS, writeable=True, bytes=data, shadow=shadow)


def compare_apart(executable: Executable, shape: Shape, rules: Rules, outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes of several processes, plus a race between CTAs of two of them if there is one.

    Raises:
        ExecutionFault: such a race, if the launch raises on races.
    """
    found = first_race([outcome.touched for outcome in outcomes])
    if found is None:
        return outcomes
    monitor = Monitor(executable.entry.instructions, rules.raise_on)
    number, thread, site = found.writer
    other, other_thread, other_site = found.other
    grid, per_cta = shape.grid, -(-shape.threads // WARP_LANES) * WARP_LANES
    who = f"several threads of CTA number {grid.cta_number(other, 0)}"
    if other_thread is not None and other_thread >= per_cta * grid.cluster_size:
        who = f"a bulk copy of CTA number {grid.cta_number(other, 0)}"
    elif other_thread is not None:
        who = f"thread {other_thread % per_cta} of CTA number {grid.cta_number(other, other_thread // per_cta)}"
    earlier = f"the {'write' if found.other_wrote else 'read'} by {who}"
    monitor.report(
        ViolationKind.RACE,
        site,
        f"write of global memory not ordered after {earlier} ({monitor.describe(other_site)})",
        cta=grid.place(number, 0 if thread is None else thread // per_cta),
        thread=None if thread is None else thread % per_cta,
        address=(found.allocation + 1) * ALLOCATION_STRIDE + found.offset,
    )
    return [*outcomes[:-1], replace(outcomes[-1], violations=[*outcomes[-1].violations, *monitor.violations])]


def make_report(executable: Executable, shape: Shape, rules: Rules, outcomes: Sequence[Outcome]) -> LaunchReport:
    """Adds up the outcomes."""
    executed = [0] * len(executable.entry.instructions)
    for outcome in outcomes:
        for block, runs in zip(executable.blocks, outcome.block_runs, strict=True):
            for index in range(block.first, block.last):
                executed[index] += runs
    instructions = tuple(
        _instruction_report(executable, index, count, [outcome.traffic[index] for outcome in outcomes])
        for index, count in enumerate(executed)
    )
    return LaunchReport(
        entry=executable.entry.name,
        grid=shape.grid.ctas,
        block=shape.block,
        policy=str(rules.policy),
        steps=sum(outcome.steps for outcome in outcomes),
        instructions=instructions,
        violations=tuple(violation for outcome in outcomes for violation in outcome.violations),
        conventions=tuple(convention for outcome in outcomes for convention in outcome.conventions),
        printed="".join(outcome.printed for outcome in outcomes),
    )


def _instruction_report(executable: Executable, index: int, executed: int, traffic: list[Traffic]) -> InstructionReport:
    instruction = executable.entry.instructions[index]
    return InstructionReport(
        line=instruction.line,
        opcode=instruction.opcode,
        text=instruction.text,
        executed=executed,
        **{name: sum(getattr(one, name) for one in traffic) for name in _COUNTS},
    )
