"""Entry point of this package: parse PTX once, launch its entries on numpy arrays."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from cutegen.ptx.arithmetic.tensor_core import HOPPER, TensorCore
from cutegen.ptx.errors import LaunchError
from cutegen.ptx.machine.arguments import Argument
from cutegen.ptx.machine.cta import Rules
from cutegen.ptx.machine.executable import Executable
from cutegen.ptx.machine.grid import Grid, Shape
from cutegen.ptx.machine.launch import check_shape, chosen_cluster, compare_apart, dim3, make_report, run_ctas
from cutegen.ptx.machine.policy import IN_ORDER, Policy
from cutegen.ptx.machine.report import LaunchReport
from cutegen.ptx.parallel import run_in_processes
from cutegen.ptx.prepare import prepare
from cutegen.ptx.text.parser import parse_module
from cutegen.ptx.text.syntax import Entry, Module
from cutegen.ptx.watch.violations import UNDEFINED, ViolationKind

DEFAULT_MAX_STEPS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """A PTX module that can be run.

    >>> import numpy as np
    >>> program = Program.parse('''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry scale(.param .u64 x, .param .f32 factor) {
    ...     .reg .b32 %r<2>; .reg .b64 %rd<3>; .reg .f32 %f<3>;
    ...     ld.param.u64 %rd0, [x];
    ...     ld.param.f32 %f0, [factor];
    ...     mov.u32 %r0, %tid.x;
    ...     mul.wide.u32 %rd1, %r0, 4;
    ...     add.s64 %rd2, %rd0, %rd1;
    ...     ld.global.f32 %f1, [%rd2];
    ...     mul.f32 %f2, %f1, %f0;
    ...     st.global.f32 [%rd2], %f2;
    ...     ret;
    ... }''')
    >>> x = np.arange(32, dtype=np.float32)
    >>> report = program.launch("scale", grid=1, block=32, args=[x, 2.0])
    >>> float(x[3]), report.sectors("ld.global")
    (6.0, 4)
    """

    text: str
    target: str
    entries: Mapping[str, Entry]
    _module: Module
    _executables: dict[tuple[str, bool], Executable] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads PTX text. An entry is prepared at its first launch, so an invalid one does not block the others.

        Raises:
            PtxSyntaxError: text outside of the entries' bodies that is not PTX; with its line.
        """
        module = parse_module(text)
        return cls(text, module.target, MappingProxyType({entry.name: entry for entry in module.entries}), module)

    def prepare(self, entry: str, *, follows_memory: bool = False) -> Executable:
        """Prepares `entry`, once, to follow undefined values through memory or not.

        Raises:
            LaunchError: no such entry.
            PtxSyntaxError: a body that is not PTX, or an instruction that this package does not know; with its line.
        """
        if entry not in self.entries:
            raise LaunchError(f"no entry {entry!r}; the program has {', '.join(self.entries) or 'none'}")
        key = entry, follows_memory
        if key not in self._executables:
            self._executables[key] = prepare(self._module, self.entries[entry], follows_memory=follows_memory)
        return self._executables[key]

    def launch(
        self,
        entry: str,
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Argument],
        cluster: int | Sequence[int] | None = None,
        dynamic_smem_bytes: int = 0,
        policy: Policy | str = IN_ORDER,
        max_steps: int = DEFAULT_MAX_STEPS,
        progress: Callable[[int, int], None] | None = None,
        jobs: int = 1,
        raise_on: Collection[ViolationKind] = UNDEFINED,
        tensor_core: TensorCore = HOPPER,
        printed: Callable[[str], None] | None = None,
        programmatic: bool | Collection[int] = False,
        follows_memory: bool = False,
    ) -> LaunchReport:
        """Runs `entry` on a grid; arrays among `args` are read and written in place.

        `args`: a numpy array for a pointer (`.u64`), a number for a scalar (packed by its declared type), bytes or a
        tuple of arrays and numpy scalars for a structure, a `TensorMap` for a tensor map. `cluster`: CTAs per cluster,
        if the entry does not declare it (`.reqnctapercluster`). `policy`: see `Policy`.
        `max_steps`: limit on warp instructions. `progress(done, total)` is called after each CTA. `jobs`: number of
        processes that share the CTAs; an entry that refers to global variables of the module runs in one, because
        processes do not share these. `raise_on`: kinds of violations that end the launch; the others are collected in
        the report. With `ALL_KINDS` conventions end it as well. `printed` receives what threads print, if one process
        runs the CTAs; the report has all of it. `programmatic`: the launch is a programmatic dependent one, so the grid
        before may use the memory of the arguments (or of those with these numbers) until it is waited for.
        `follows_memory`: a read of shared or local memory that nobody wrote is an error only where its value matters,
        like that of a register; in one process.

        Raises:
            LaunchError: the launch does not fit the entry.
            PtxSyntaxError: an instruction of the entry that this package does not know; with its line.
            PtxFault: undefined behavior while executing (an `ExecutionFault`, with its `violation`).
        """
        executable = self.prepare(entry, follows_memory=follows_memory)
        asked = None if cluster is None else dim3(cluster, "cluster")
        cluster_shape, explicit = chosen_cluster(executable.entry, asked)
        shape = Shape(
            grid=Grid(dim3(grid, "grid"), cluster_shape),
            block=dim3(block, "block"),
            dynamic_smem_bytes=dynamic_smem_bytes,
            explicit_cluster=explicit,
        )
        check_shape(executable, shape)
        chosen_policy = Policy.parse(policy) if isinstance(policy, str) else policy
        rules = Rules(
            policy=chosen_policy,
            max_steps=max_steps,
            raise_on=raise_on,
            tensor_core=tensor_core,
            programmatic=_used_before(executable.entry, programmatic),
        )
        chosen, size = chosen_policy.schedule("grid").order(shape.grid.all_clusters()), shape.grid.cluster_size
        counter = _Counter(size * len(chosen), progress)
        if jobs > 1 and follows_memory:
            raise LaunchError(f"jobs is {jobs}; expected 1 where undefined values are followed through memory")
        if jobs < 1 or (jobs > 1 and executable.ctas_communicate):
            raise LaunchError(f"jobs is {jobs}; expected 1 or more, and 1 for a kernel whose CTAs communicate")
        if jobs == 1 or executable.names_global_variables:
            outcomes = [run_ctas(executable, shape, args, rules, chosen, lambda: counter.step(size), printed=printed)]
        else:
            outcomes = run_in_processes(
                self.text, entry, shape, args, rules, chosen, jobs, lambda n: counter.step(n * size)
            )
            outcomes = compare_apart(executable, shape, rules, outcomes)
        return make_report(executable, shape, rules, outcomes)


def _used_before(entry: Entry, programmatic: bool | Collection[int]) -> frozenset[int] | None:
    """The parameters whose memory the grid before may use; None if it has ended."""
    if isinstance(programmatic, bool):
        return frozenset(range(len(entry.parameters))) if programmatic else None
    wrong = [number for number in programmatic if not 0 <= number < len(entry.parameters)]
    if wrong:
        raise LaunchError(f"programmatic names argument {wrong[0]}; {entry.name} has {len(entry.parameters)}")
    return frozenset(programmatic)


class _Counter:
    """Counts finished CTAs for a progress callback."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def step(self, ctas: int) -> None:
        """`ctas` more are finished."""
        self._done += ctas
        if self._progress is not None:
            self._progress(self._done, self._total)
