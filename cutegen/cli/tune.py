"""`cutegen tune`: measures and keeps the fastest spec for each problem on this GPU, and manages the records."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cutegen.bench.benchmark import require_gpu
from cutegen.bench.grouped import GroupSizes
from cutegen.bench.suites import SUITES
from cutegen.cli import options
from cutegen.cli.groups import GivenGroups, named_groups
from cutegen.cli.many import opened_workers
from cutegen.cli.options import refuse_options
from cutegen.cli.output import Answer, complain
from cutegen.cli.parsing import Verbs
from cutegen.cli.pictures import Format, choose_format, deliver_text
from cutegen.cli.progress import progress
from cutegen.cli.verbs import VERBS
from cutegen.contract import ProblemShape
from cutegen.contract.problem import Distribution
from cutegen.errors import ArtifactError, CheckError, OutsideError, RequestError
from cutegen.executors import Workers
from cutegen.hardware.lookup import find
from cutegen.hardware.targeting import choose_target, present_gpu_name
from cutegen.pack.kernel_list import read_calls
from cutegen.spec import GemmSpec
from cutegen.support.words import naturals, plural
from cutegen.tune.campaign import Outcome, campaign_id, run_campaign
from cutegen.tune.jobs import Settings, Timer
from cutegen.tune.journal import Journal
from cutegen.tune.listed import Listed, weighted
from cutegen.tune.listed import listed as listed_calls
from cutegen.tune.measuring import end_children
from cutegen.tune.pick_winner import keep_winner
from cutegen.tune.plot_svg import plot_svg
from cutegen.tune.space import MOST
from cutegen.tune.tables import list_lines, list_table, record_lines, record_table, tuned_lines, tuned_table
from cutegen.tune.tune_requests import TuneRequest, tune_request_of
from cutegen.tuned import store
from cutegen.tuned.record import Record

LARGEST_LIST_BYTES = 1 << 20
MOST_CANDIDATES = 1024
STAND_IN = "stand-in"
"""Device of a timer that needs no GPU."""
_MEASURE = "measure"
"""Name of the verb for `cutegen tune SPEC`, which has none."""
_FORMS = (Format.TEXT, Format.SVG)


class _SpecOrVerb(TyperGroup):
    """Treat a word that is not a verb as a spec; help is that of measuring, which names the verbs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands:
            args = [_MEASURE, *args]
        return super().parse_args(ctx, args)


verbs = Verbs(cls=_SpecOrVerb, help=VERBS["tune"].summary)
RecordsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="RECORD...", help="Names from `tune list`, or unambiguous prefixes.", show_default=False),
]


@verbs.command(
    _MEASURE,
    hidden=True,
    epilog="The results: `cutegen tune list`, `show`, `export`, `import` and `forget`. " + VERBS["tune"].epilog,
)
def measure(
    context: typer.Context,
    spec: options.OptionalSpec = None,
    problem: options.ProblemsOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    sizes: options.SizesOption = None,
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help=f"A list of problems: {', '.join(SUITES)}.", show_default=False),
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option("--problems", metavar="FILE", help="File with M,N,K or M,N,K,BATCH per line.", show_default=False),
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="LIST.toml",
            help="Instead of a spec, the calls that CUTEGEN_RECORD wrote.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="REGIME", help="The times that decide: graph or launch.")
    ] = "graph",
    most: Annotated[
        int, typer.Option("--most", metavar="N", min=1, max=MOST_CANDIDATES, help="Candidates per problem.")
    ] = MOST,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, max=options.LARGEST_SEED, help="Seed of operands and order.")
    ] = 0,
    arch: options.ArchOption = None,
    jobs: options.CompilersOption = None,
    scheduler: options.SchedulerOption = None,
    stand_in: Annotated[
        float | None,
        typer.Option(
            "--stand-in",
            metavar="SECONDS",
            min=0.0,
            help="Measure nothing, without a GPU: a function supplies times, this many seconds per candidate.",
            hidden=True,
        ),
    ] = None,
    out: options.OutOption = None,
    json: options.JsonOption = False,
) -> None:
    """Measures at most 16 kernels per problem and keeps the fastest as a spec, which is used from then on."""
    answer = Answer.asked(json=json, out=out)
    if by not in ("graph", "launch"):
        raise RequestError(f"--by: found {by!r}; expected graph or launch")
    of_groups = named_groups(groups, sizes)
    if listed is not None:
        refuse_options(context, _OF_A_SPEC, "together with --from, whose calls have their own")
        found = _listed(spec, listed, of_groups)
    else:
        found = _of_spec(spec, _problems(problem, batch, of_groups.number, suite, problems))
    all_sizes = tuple(_sizes(each, of_groups, of_list=listed is not None) for each in found)
    if scheduler is None and stand_in is None:
        require_gpu()
    settings = Settings(seed=seed, decide_by="graph" if by == "graph" else "launch")
    timer = Timer() if stand_in is None else Timer(kind="stand-in", seconds=stand_in)
    with opened_workers(scheduler, jobs, gpu=stand_in is None) as workers:
        # The GPU belongs to the workers; this machine need not have one.
        device, asks, times = workers.product or STAND_IN, list[TuneRequest](), dict[str, int]()
        for each, each_sizes in zip(found, all_sizes, strict=True):
            target = choose_target(arch or workers.target or None, least=each.spec.needs).name
            options = {"most": most, "settings": settings, "timer": timer, "sizes": each_sizes}
            asks.append(tune_request_of(each.spec, target, each.problem, device, **options))
            times[asks[-1].id] = each.times
        outcome = _campaign(asks, workers)
    folder, totals = store.folder(), weighted(outcome.measured, times)
    calls = None if listed is None else totals
    answer.give(
        lambda: tuned_table(outcome.measured, outcome.resumed, folder, calls),
        lambda: tuned_lines(outcome.measured, folder, calls or ()),
    )
    if outcome.interrupted:
        done = len(outcome.measured)
        raise OutsideError(f"interrupted: {done} of {len(asks)} problems are kept; the same command continues")
    if outcome.failed:
        raise CheckError(f"{len(outcome.failed)} of {len(asks)} problems have no winner; the same command tries again")


_OF_A_SPEC = frozenset({"problem", "batch", "groups", "suite", "problems"})


def _listed(spec: str | None, path: Path, given: GivenGroups) -> tuple[Listed, ...]:
    """Return what to tune for a list of calls: those of groups only if a distribution says their sizes.

    Raises RequestError for a spec, whose problems it would not be for, and for the sizes of one call.
    """
    if spec is not None:
        raise RequestError(f"SPEC: found {spec} together with --from, whose calls have their own specs; leave it out")
    if isinstance(given.sizes, tuple):
        names = ", ".join(Distribution)
        raise RequestError(f"--sizes: found {given.name} together with --from; expected one of {names}, for any groups")
    calls = read_calls(options.named_file("--from", path, "a list of calls"))
    tuned = tuple(each for each in calls if _has_sizes(each.wanted.spec, given))
    if len(tuned) < len(calls):
        why = "a list does not have the sizes of groups; --sizes NAME tunes packed ones for a distribution"
        complain("warning", f"{path}: {plural(len(calls) - len(tuned), 'call')} of groups not tuned: {why}")
    if not tuned:
        raise RequestError(f"--from: {path}: found no call to tune; expected one without groups, or --sizes NAME")
    return listed_calls(tuned)


def _has_sizes(spec: GemmSpec, given: GivenGroups) -> bool:
    """Return whether a call has no groups, or packed ones whose sizes are given."""
    groups = spec.problem.groups
    return groups is None or (groups.layout == "packed" and given.sizes is not None)


def _sizes(each: Listed, given: GivenGroups, *, of_list: bool) -> GroupSizes | None:
    """Return the sizes of groups to measure; None for a kernel without. Raises RequestError for a misfit."""
    if each.spec.problem.groups is None:
        if not of_list:
            given.of_problem(None, each.problem)
        return None
    groups = each.spec.problem.groups.value
    return GroupSizes(groups, given.filling(groups, each.problem), given.name)


def _of_spec(spec: str | None, problems: Sequence[ProblemShape]) -> tuple[Listed, ...]:
    """Return a spec with each of the problems. Raises RequestError without a spec."""
    if spec is None:
        raise RequestError("tune: found neither SPEC nor --from LIST.toml; expected one of them")
    loaded = options.named_spec(spec)
    return tuple(Listed(spec=loaded, problem=each, times=1) for each in problems)


def _campaign(asks: Sequence[TuneRequest], workers: Workers) -> Outcome:
    journal = Journal(store.folder() / "unfinished" / f"{campaign_id(asks)}.jsonl")
    try:
        with progress("problems") as tell:
            return run_campaign(asks, workers, journal, keep=keep_winner, tell=tell)
    finally:
        end_children()


def _problems(
    named: Sequence[str] | None, batch: int | None, groups: int | None, suite: str | None, file: Path | None
) -> tuple[ProblemShape, ...]:
    """Return the problems of suite, file and --problem without duplicates. Raises RequestError for none."""
    found = (
        *(find(SUITES, suite, "--suite") if suite else ()),
        *(_of_file(file) if file is not None else ()),
        *options.named_problems(named, batch, groups),
    )
    if not found:
        raise RequestError(
            "tune: found no problem; expected one or more of --problem M,N,K, --suite NAME, --problems FILE"
        )
    return tuple(dict.fromkeys(found))


def _of_file(path: Path) -> tuple[ProblemShape, ...]:
    """Return the problems of a file, one per line; `#` begins a comment. Raises RequestError."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_LIST_BYTES + 1)
        lines = data.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"--problems: {path} cannot be read: {error}; expected a text file") from error
    if len(data) > LARGEST_LIST_BYTES:
        raise RequestError(f"--problems: {path}: found more than {LARGEST_LIST_BYTES:,} bytes; expected a shorter list")
    found = []
    for number, line in enumerate(lines, start=1):
        if words := line.partition("#")[0].strip():
            try:
                found.append(_of_line(words))
            except RequestError as error:
                raise RequestError(f"--problems: {path}:{number}: {error}") from error
    if not found:
        raise RequestError(f"--problems: {path}: found no problem; expected lines such as 4096,4096,4096")
    return tuple(found)


def _of_line(words: str) -> ProblemShape:
    """Parse M,N,K or M,N,K,BATCH. Raises RequestError."""
    numbers = naturals(words) or ()
    if len(numbers) not in (3, 4) or 0 in numbers:
        raise RequestError(f"found {words!r}; expected M,N,K or M,N,K,BATCH")
    return ProblemShape(*numbers)


@verbs.command("list")
def list_records(out: options.OutOption = None, json: options.JsonOption = False) -> None:
    """Lists every record, and whether this machine uses it."""
    answer = Answer.asked(json=json, out=out)
    found, folder, device = list(store.every()), store.folder(), present_gpu_name()
    answer.give(lambda: list_table(found, folder, device), lambda: list_lines(found, folder, device))


@verbs.command()
def show(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="A name from `tune list`, or a file.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="text, or svg: predicted against measured times; default: from FILE's suffix, else text.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Output file.", show_default=False)
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Shows a record: the winner, and every candidate's times."""
    if form is not None and form not in _FORMS:
        raise RequestError(f"--format: found {form!r}; expected {' or '.join(_FORMS)}")
    how = choose_format(None if form is None else Format(form), out, _FORMS)
    if json and how is not Format.TEXT:
        raise RequestError(f"--json: found together with a picture in {how}; expected only one of them")
    path = _path(record)
    loaded = store.load(path)
    if how is Format.SVG:
        deliver_text(plot_svg(loaded), out)
        return
    Answer.asked(json=json, out=out).give(lambda: record_table(loaded, path), lambda: record_lines(loaded))


@verbs.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Receives one file per record.")],
    records: RecordsArgument = None,
    json: options.JsonOption = False,
) -> None:
    """Copies records, all or the named ones, for another machine with the same GPU."""
    answer = Answer.asked(json=json)
    paths = [_path(each) for each in records or ()] or _sound_paths()
    if not paths:
        raise RequestError(f"export: found no record in {store.folder()}; expected one or more")
    for path in paths:
        store.load(path)  # check all before copying any
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = [Path(shutil.copyfile(path, folder / path.name)) for path in paths]
    except OSError as error:
        raise OutsideError(f"{folder} cannot be written: {error.strerror or error}") from error
    answer.give(
        lambda: {"folder": str(folder), "files": [path.name for path in written]},
        lambda: [f"{len(written)} exported to {folder}", *(f"  {path.name}" for path in written)],
    )


@verbs.command("import")
def import_records(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Records, or folders of records.")],
    json: options.JsonOption = False,
) -> None:
    """Imports records from another machine; they are used on the GPU that they were measured on."""
    answer = Answer.asked(json=json)
    named = [each for path in files for each in (sorted(path.glob("*.toml")) if os.path.isdir(path) else [path])]
    if not named:
        raise RequestError(f"import: found no .toml in {', '.join(map(str, files))}; expected records")
    loaded = [
        store.load(options.named_file("import", path, "a record")) for path in named
    ]  # check all before keeping any
    kept, here = [store.keep(each) for each in loaded], present_gpu_name()
    rows = [
        (path.name, "used here" if each.evidence.device.name == here else f"for {each.evidence.device.name}")
        for path, each in zip(kept, loaded, strict=True)
    ]
    answer.give(
        lambda: {"folder": str(store.folder()), "files": [path.name for path in kept]},
        lambda: [f"{len(kept)} imported to {store.folder()}", *(f"  {name}: {remark}" for name, remark in rows)],
    )


@verbs.command()
def forget(
    records: RecordsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Every record.")] = False,
    damaged: Annotated[bool, typer.Option("--damaged", help="Records that cannot be read.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Removes records; the performance model selects kernels again."""
    answer = Answer.asked(json=json)
    found = list(store.every())
    paths = [_path(each) for each in records or ()]
    paths += [path for path, each in found if everything or (damaged and isinstance(each, ArtifactError))]
    if not paths and not (everything or damaged):
        raise RequestError("forget: found no record; expected names in `cutegen tune list`, --damaged or --all")
    for path in paths:
        if not store.holds(path):
            raise RequestError(f"forget: found {path}; expected a name in `cutegen tune list`; rm removes other files")
    gone = list(dict.fromkeys(store.folder() / path.name for path in paths))
    for path in gone:
        store.forget(path)
    answer.give(
        lambda: {"folder": str(store.folder()), "files": [path.name for path in gone]},
        lambda: [f"{len(gone)} forgotten", *(f"  {path.name}" for path in gone)],
    )


def _path(name: str) -> Path:
    """Return the file of a record, from its path or a prefix of its name. Raises RequestError."""
    if Path(name).suffix == ".toml" and os.path.isfile(name):
        return Path(name)
    paths = [path for path, _ in store.every()]
    found = [path for path in paths if path.name == name] or [path for path in paths if path.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(path.name for path in (found or paths)[:4])
    way_out = f"existing: {there}" if there else "`cutegen tune SPEC --problem M,N,K` makes the first"
    raise RequestError(f"record: found {len(found)} called {name!r} in {store.folder()}; expected one; {way_out}")


def _sound_paths() -> list[Path]:
    return [path for path, each in store.every() if isinstance(each, Record)]
