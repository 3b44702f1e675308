"""`cutegen show`: the layouts of a plan, part by part, or any layout expression, as text or picture."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cutegen.algebra import LayoutExpr, inner_layout, parse_expression, size
from cutegen.algebra.coordinates import is_of_coordinates, parse_coordinates
from cutegen.algebra.layout import flatten
from cutegen.cli import options
from cutegen.cli.groups import GivenGroups, named_groups
from cutegen.cli.output import Answer
from cutegen.cli.pictures import Format, FormatOption, choose_format, deliver, deliver_text
from cutegen.contract.problem import ProblemShape
from cutegen.errors import RequestError, SpecError
from cutegen.hardware import dtype as find_dtype
from cutegen.plan import GemmPlan, ProbePlan
from cutegen.show.canvas import Picture
from cutegen.show.follow import Element
from cutegen.show.page import Opened, page_of_layout, page_of_plan
from cutegen.show.page.document import page as page_of_thread_values
from cutegen.show.parts import OF_A_PROBE, PICTURES, Part, probe, thread_values, view_of
from cutegen.show.parts import element as element_part
from cutegen.show.parts import layout as layout_part
from cutegen.show.view import View
from cutegen.spec import GemmSpec
from cutegen.support.words import extents, naturals, plural
from cutegen.tuned.answer import plan as make_plan

MAX_ELEMENTS = 1 << 20  # for --layout: takes a moment, not a minute


OF_A_SPEC = frozenset({"thread", "problem", "batch", "groups", "sizes", "arch", "element"})


def show(
    context: typer.Context,
    spec: options.OptionalSpec = None,
    part: Annotated[
        Part | None,
        typer.Argument(metavar="PART", help=f"One of {' '.join(Part)}; default: an overview.", show_default=False),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="EXPR",
            help="Any layout in CuTe's notation, instead of SPEC; CuTe's operations by name, as in "
            "zipped_divide((8,8):(1,8), (2,4)).",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="DTYPE", help="Element type for --layout; default: f16.", show_default=False),
    ] = None,
    tv: Annotated[
        str | None,
        typer.Option(
            "--tv",
            metavar="M,N",
            help="Read --layout as (thread, value) -> column-major coordinate in an M by N tile.",
            show_default=False,
        ),
    ] = None,
    thread: Annotated[int, typer.Option("--thread", metavar="T", help="Thread to show.")] = 0,
    element: Annotated[
        str | None,
        typer.Option(
            "--element",
            metavar="X,I,J",
            help="Path of one element: a,m,k or b,n,k from global memory to accumulators, c,m,n back.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show full tables; by default the text shows the first rows.")
    ] = False,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    sizes: options.SizesOption = None,
    arch: options.ArchOption = None,
    format_: FormatOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file; .txt, .json, .svg, .tex, .png or .html selects the form.",
            show_default=False,
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Shows layouts as CuTe C++ prints them, thread-value maps, swizzled offsets and banks, as text or picture."""
    how = choose_format(format_, out)
    if json and how is not Format.TEXT:
        raise RequestError(f"--json: found together with --format {how}; expected only one of them")
    if spec is not None and layout is None and dtype is None and tv is None:
        of_groups = named_groups(groups, sizes)
        shape = of_groups.problem(problem, batch)
        plan = make_plan(_spec(spec), arch, shape)
        asked = _Asked(part, thread, problem, everything, sizes=_sizes(plan, shape, of_groups))
        if asked.sizes and element is None:
            raise RequestError("--sizes: found without --element; expected the element whose group they tell")
        if element is not None:
            subject = _of_element(plan, Element.parse(element), asked)
        elif isinstance(plan, ProbePlan):
            subject = _of_probe(plan, asked)
        else:
            subject = _of_plan(plan, asked)
    elif spec is None and layout is not None:
        options.refuse_options(context, OF_A_SPEC - {"thread"}, "together with --layout; it applies to a SPEC")
        if tv is not None:
            options.refuse_options(context, {"dtype"}, "together with --tv, where elements have no size")
            subject = _of_threads(layout, _tile(tv), thread, everything=everything)
        else:
            options.refuse_options(
                context, {"thread"}, "together with --layout alone; it applies to a SPEC, or to --tv"
            )
            is_of_offsets = not is_of_coordinates(layout)
            if not is_of_offsets:
                options.refuse_options(context, {"dtype"}, "with a layout of coordinates, which have no size")
            subject = (
                _of_layout(layout, dtype or "f16", everything=everything)
                if is_of_offsets
                else _of_coordinates(layout, everything=everything)
            )
    else:
        given = [
            name
            for name, value in (("SPEC", spec), ("--layout", layout), ("--dtype", dtype), ("--tv", tv))
            if value is not None
        ]
        if given == ["SPEC", "--tv"]:
            raise RequestError("show: found SPEC and --tv; --tv belongs to --layout EXPR")
        found = " and ".join(given) or "neither"
        raise RequestError(
            f"show: found {found}; expected either SPEC, or --layout EXPR with or without --dtype or --tv"
        )
    if how is Format.HTML:
        deliver_text(subject.page(), out)
    elif how is not Format.TEXT:
        deliver(subject.picture(), subject.title, how, out)
    else:
        Answer.asked(json=json, out=out).give(lambda: subject.view().table, lambda: subject.view().lines)


@dataclass(frozen=True, slots=True)
class _Subject:
    """Subject to show, produced in the requested form."""

    title: str
    view: Callable[[], View]
    picture: Callable[[], Picture]
    page: Callable[[], str]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Part of a plan to show, and how much of it."""

    part: Part | None
    thread: int
    problem: str | None
    everything: bool
    loads_only: bool = False
    sizes: tuple[int, ...] = ()

    @property
    def extents(self) -> ProblemShape:
        """The problem, or a default one."""
        return options.DEFAULT_PROBLEM if self.problem is None else options.parse_problem(self.problem)


def _sizes(plan: GemmPlan | ProbePlan, shape: ProblemShape | None, given: GivenGroups) -> tuple[int, ...]:
    """Return the sizes of groups, if they are given. Raises RequestError for a kernel without groups or room."""
    if given.sizes is None:
        return ()
    groups = plan.launch.groups if isinstance(plan, GemmPlan) else None
    return given.of_problem(groups, shape or options.DEFAULT_PROBLEM)


def _of_plan(plan: GemmPlan, asked: _Asked) -> _Subject:
    part, thread = asked.part, asked.thread
    extents = asked.extents
    if not 0 <= thread < plan.threads_of_sums:
        last = plan.threads_of_sums - 1
        raise RequestError(f"--thread: found {thread}; expected 0 to {last}, a thread that has sums")

    def picture() -> Picture:
        if part is None or part not in PICTURES:
            drawn = " ".join(str(known) for known in PICTURES)
            raise RequestError(f"--format: found {part or 'no PART'}; expected one with a picture: {drawn}")
        return PICTURES[part](plan, thread)

    title = f"{plan.spec.name or plan.kernel_name}: {part or 'overview'}"
    page = partial(_page, plan, asked, Opened(thread=thread, part=part, loads_only=asked.loads_only))
    return _Subject(title, partial(view_of, part, plan, thread, extents, everything=asked.everything), picture, page)


def _page(plan: GemmPlan, asked: _Asked, opened: Opened) -> str:
    return page_of_plan(plan, plan.spec.name or plan.kernel_name, asked.extents, opened)


def _of_element(plan: GemmPlan | ProbePlan, element: Element, asked: _Asked) -> _Subject:
    """Show the path of one element; it has a page but no picture."""
    if asked.part is not None:
        raise RequestError(f"--element: found together with {asked.part}; expected only one of them")
    if isinstance(plan, ProbePlan):
        raise RequestError("--element: found a probe, which has no MMA; expected a GEMM spec")

    def picture() -> Picture:
        raise RequestError("--element: found a picture format; expected text, or --json")

    view = partial(element_part.view, plan, element, asked.extents, sizes=asked.sizes, everything=asked.everything)
    page = partial(_page, plan, asked, Opened(thread=asked.thread, element=element))
    return _Subject(f"{plan.spec.name or plan.kernel_name}: {element}", view, picture, page)


def _of_probe(plan: ProbePlan, asked: _Asked) -> _Subject:
    """Restrict a probe to the parts that it shares with its GEMM."""
    if asked.part not in (None, *OF_A_PROBE):
        *others, last = OF_A_PROBE
        expected = f"{', '.join(others)} or {last}"
        raise RequestError(f"show: found {asked.part}; expected {expected}: a probe only loads fragments")
    subject = _of_plan(plan.gemm, replace(asked, loads_only=True))
    return subject if asked.part is not None else replace(subject, view=lambda: probe.view(plan))


def _spec(name: str) -> GemmSpec:
    """Load a spec. Raises SpecError, or RequestError for a layout in its place."""
    try:
        return options.named_spec(name)
    except SpecError:
        with suppress(ValueError):
            parse_expression(name)
            raise RequestError(f'show: found a layout, {name}; expected it after --layout: --layout "{name}"') from None
        raise


def _of_layout(text: str, dtype_name: str, *, everything: bool) -> _Subject:
    element, expression = find_dtype(dtype_name), _expression(text)
    view = partial(layout_part.view, expression, element, everything=everything)
    picture = partial(layout_part.picture, expression, element)
    return _Subject(text, view, picture, partial(page_of_layout, expression, element, text))


def _of_coordinates(text: str, *, everything: bool) -> _Subject:
    """Show a layout of coordinates, or an operation on one; it has a picture but no page."""
    try:
        layout = parse_coordinates(text)
    except ValueError as error:
        raise RequestError(f"--layout: {error}") from error
    _check_elements(prod(flatten(layout.shape)))

    def page() -> NoReturn:
        raise RequestError("--format: found html of a layout of coordinates; expected text, json or a picture")

    view = partial(layout_part.coordinates_view, layout, everything=everything)
    return _Subject(text, view, partial(layout_part.coordinates_picture, layout), page)


def _of_threads(text: str, tile: tuple[int, int], thread: int, *, everything: bool) -> _Subject:
    """Show a thread-value layout, drawn in its tile."""
    expression = _expression(text)
    view = partial(thread_values.view, expression, tile, everything=everything)

    def page() -> str:
        table = view().table
        holders, threads = table["holders"], table["threads"]
        if not 0 <= thread < threads:
            raise RequestError(f"--thread: found {thread}; expected 0 to {threads - 1}, a thread of the layout")
        facts = f"{threads:,} threads, {plural(table['values'], 'value')} each, in a tile of {extents(tile)}"
        return page_of_thread_values(table["layout"], facts, threads, thread, holders)

    return _Subject(text, view, lambda: thread_values.picture(expression, tile, thread), page)


def _expression(text: str) -> LayoutExpr:
    """Parse the layout, written out or as operations. Raises RequestError."""
    try:
        expression = parse_expression(text)
    except ValueError as error:
        raise RequestError(f"--layout: {error}") from error
    _check_elements(size(inner_layout(expression)))
    return expression


def _check_elements(elements: int) -> None:
    """Reject a layout that takes long to evaluate. Raises RequestError."""
    if elements > MAX_ELEMENTS:
        raise RequestError(f"--layout: found {elements:,} elements; expected at most {MAX_ELEMENTS:,}")


def _tile(text: str) -> tuple[int, int]:
    """Parse M,N of --tv. Raises RequestError."""
    extents = naturals(text) or ()
    if len(extents) != 2 or not all(extents):
        raise RequestError(f"--tv: found {text!r}; expected the extents of a tile, M,N, as in --tv 16,8")
    m, n = extents
    if m * n > MAX_ELEMENTS:
        raise RequestError(f"--tv: found a tile of {m * n:,} elements; expected at most {MAX_ELEMENTS:,}")
    return m, n
