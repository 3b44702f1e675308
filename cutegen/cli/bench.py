"""`cutegen bench`: kernels against torch, Triton and the hardware's ceilings, in one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cutegen.bench import tables
from cutegen.bench.benchmark import Result, require_gpu
from cutegen.bench.benchmark import bench as run_bench
from cutegen.bench.ceilings import measure_ceilings, rounds_of_all
from cutegen.bench.conditions import conditions
from cutegen.bench.contenders import Entrant
from cutegen.bench.grouped import GroupSizes
from cutegen.bench.measure import WARM_UP_ROUNDS, Regime
from cutegen.bench.recorded import CallTimes, bench_calls, rounds_of
from cutegen.bench.suites import SUITES
from cutegen.cli import options
from cutegen.cli.groups import GivenGroups, named_groups
from cutegen.cli.output import Answer, require_folder, suffix_of, write_file
from cutegen.cli.progress import rounds as rounds_bar
from cutegen.cli.subject import KERNEL_SUFFIX, named_subject
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError, by_exit_code
from cutegen.hardware.lookup import find
from cutegen.hardware.targeting import present_gpu_name
from cutegen.pack.kernel_list import read_calls
from cutegen.support.words import plural


def bench(
    context: typer.Context,
    specs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SPEC...",
            help="Spec files, names of shipped specs, `build --out` folders, or kernel.py files (edited or not).",
            show_default=False,
            autocompletion=options.complete_spec,
        ),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="M,N,K", help="Repeatable.", show_default=False),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help=f"A list of problems: {', '.join(SUITES)}.", show_default=False),
    ] = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    sizes: options.SizesOption = None,
    listed: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="LIST.toml",
            help="Instead of specs, the calls that CUTEGEN_RECORD wrote, beside torch. --out may be .md or .csv.",
            show_default=False,
        ),
    ] = None,
    rounds: options.RoundsOption = options.DEFAULT_ROUNDS,
    arch: options.ArchOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Write a roofline plot.", show_default=False)
    ] = None,
    regime: Annotated[
        Regime | None,
        typer.Option(
            "--regime",
            help="One launch with a cold L2, or back-to-back launches in a CUDA graph; default: both.",
        ),
    ] = None,
    cutlass: Annotated[
        list[Path] | None,
        typer.Option(
            "--cutlass",
            metavar="FILE",
            help="Add a CUTLASS CuTe DSL example for fp16 TN specs: Hopper's dense_gemm_persistent.py or "
            "Ampere's tensorop_gemm.py. Repeatable.",
            show_default=False,
        ),
    ] = None,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Times kernels, torch.matmul, Triton, QuACK and the measured ceilings in one run. Needs a GPU and torch."""
    if listed is not None:
        options.refuse_options(context, _OF_SPECS, "together with --from, whose calls have their own")
        if specs:
            raise RequestError(f"SPEC: found {specs[0]} together with --from, which measures calls; leave it out")
        _calls(listed, rounds, (regime,) if regime else tuple(Regime), out=out, json=json)
        return
    if not specs:
        raise RequestError("bench: found neither SPEC nor --from LIST.toml; expected kernels or calls to measure")
    answer = Answer.asked(json=json, out=out)
    suffix_of(plot, (".svg",), "--plot")
    require_folder("--plot", plot)
    for path in cutlass or ():
        options.named_file(
            "--cutlass", path, "an example of the CuTe DSL in CUTLASS's repository, examples/python/CuTeDSL"
        )
    of_groups = named_groups(groups, sizes)
    problems = choose_problems(problem, suite, batch, of_groups.number)
    require_gpu()
    entrants = {extents: [_entrant(spec, arch, extents) for spec in specs] for extents in problems}
    _check_names(entrants[problems[0]])
    all_sizes = {extents: _sizes(each, extents, of_groups) for extents, each in entrants.items()}
    regimes = (regime,) if regime else tuple(Regime)
    total = rounds_of_all() + len(problems) * len(regimes) * (WARM_UP_ROUNDS + rounds)
    results: list[Result] = []
    with rounds_bar("ceilings", total) as bar:
        types = dict.fromkeys(x for each in entrants.values() for entrant in each for x in entrant.ceiling_types)
        ceilings = measure_ceilings(types, after_round=bar.advance)
        for extents in problems:
            bar.begin(str(extents))
            results += run_bench(
                entrants[extents],
                extents,
                rounds=rounds,
                regimes=regimes,
                cutlass=tuple(cutlass or ()),
                sizes=all_sizes[extents],
                after_round=bar.advance,
            )
    answer.give(
        lambda: tables.bench_table(ceilings, results, conditions()),
        lambda: [*tables.ceiling_lines(ceilings), *tables.result_lines(ceilings, results)],
    )
    if plot is not None:
        write_file("--plot", plot, tables.roofline(ceilings, results).encode())


_OF_SPECS = frozenset({"problem", "suite", "batch", "groups", "sizes", "arch", "plot", "cutlass"})
_TEXTS = (".txt", ".json", ".md", ".csv")


def _calls(listed: Path, rounds: int, regimes: Sequence[Regime], *, out: Path | None, json: bool) -> None:
    """Measure the calls of a list. Raises CheckError if some have no kernel, after the others are shown."""
    require_folder("--out", out)
    suffix = suffix_of(out, _TEXTS)
    calls = read_calls(options.named_file("--from", listed, "a list of calls"))
    require_gpu()
    times: list[CallTimes] = []
    with rounds_bar("calls", rounds_of(calls, rounds, regimes)) as bar:
        begin = lambda call: bar.begin(str(call))  # noqa: E731
        times.extend(bench_calls(calls, rounds=rounds, regimes=regimes, before=begin, after_round=bar.advance))
    device = present_gpu_name() or "this GPU"
    if out is not None and suffix in (".md", ".csv") and not json:
        text = tables.calls_markdown(times, device) if suffix == ".md" else tables.calls_csv(times)
        write_file("--out", out, text.encode())
    else:
        answer = Answer(json or suffix == ".json", out)
        answer.give(lambda: tables.calls_table(times, conditions()), lambda: tables.calls_lines(times, device))
    if failed := {each.call: each.exit_code for each in times if each.exit_code}:
        error = by_exit_code(max(failed.values()))
        raise error(f"{len(failed)} of {plural(len(calls), 'call')} have no kernel here; the others are shown")


def choose_problems(
    problems: Sequence[str] | None, suite: str | None, batch: int | None = None, groups: int | None = None
) -> tuple[ProblemShape, ...]:
    """Return the requested problems without duplicates: those of the suite, then those named on the command line.

    Raises RequestError for an unknown suite, an invalid problem, or a batch or groups without a problem that they are
    of.
    """
    named = options.named_problems(problems, batch, groups)
    found = (*(find(SUITES, suite, "--suite") if suite else ()), *named)
    return tuple(dict.fromkeys(found)) or (options.DEFAULT_PROBLEM,)


def _entrant(spec: str, arch: str | None, problem: ProblemShape) -> Entrant:
    """Return the kernel of an artifact, an edited file, or a spec with its open parts chosen for the problem."""
    subject = named_subject(spec, arch, problem)
    # One kernel may come from several files, each edited differently.
    file = f" ({Path(spec).name})" if spec.endswith(KERNEL_SUFFIX) else ""
    return Entrant(f"{subject.name}{file}", subject.kernel())


def _sizes(entrants: Sequence[Entrant], problem: ProblemShape, given: GivenGroups) -> GroupSizes | None:
    """Return the sizes for kernels of groups; None for kernels without. Raises RequestError if not all are alike."""
    kinds = {str(each.kernel.contract.groups): each.kernel.contract.groups for each in entrants}
    if len(kinds) > 1:
        raise RequestError(f"bench: found {' and '.join(kinds)}; expected kernels of the same groups; bench them apart")
    (groups,) = kinds.values()
    if groups is None:
        given.of_problem(None, problem)
        return None
    return GroupSizes(groups, given.filling(groups, problem), given.name)


def _check_names(entrants: Sequence[Entrant]) -> None:
    names = [entrant.name for entrant in entrants]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise RequestError(f"bench: found two specs called {twice[0]}; expected unique names; rename one file")
