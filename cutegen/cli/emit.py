"""`cutegen emit`: any stage from a spec to machine code: source, PTX, SASS, cubin; or a header for C++."""

import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cutegen.build import disassemble
from cutegen.build.pack_file import SUFFIX as PACK_SUFFIX
from cutegen.build.pack_file import read_pack
from cutegen.cli import options
from cutegen.cli.output import JSON_SUFFIX, Answer, suffix_of, write_file
from cutegen.cli.subject import Subject, named_subject, says_all
from cutegen.errors import OutsideError, RequestError
from cutegen.pack.header import pack_header
from cutegen.render.cpp import cpp_header


class Stage(StrEnum):
    """A stage of compilation, as --what names it."""

    SOURCE = "source"
    PTX = "ptx"
    SASS = "sass"
    CUBIN = "cubin"
    CPP = "cpp"


SUFFIXES = {
    ".py": Stage.SOURCE,
    ".ptx": Stage.PTX,
    ".sass": Stage.SASS,
    ".cubin": Stage.CUBIN,
    ".h": Stage.CPP,
}
FILES = {stage: f"kernel{suffix}" for suffix, stage in SUFFIXES.items()}
"""File name of each stage in a folder, the same as in an artifact."""


def emit(
    context: typer.Context,
    spec: options.KernelArgument,
    what: Annotated[
        str | None,
        typer.Option(
            "--what",
            metavar="STAGE[,STAGE...]",
            help="source, ptx, sass, cubin, or cpp (a header that launches the kernel); default: from FILE's suffix, "
            "else source. All but source compile.",
            show_default=False,
        ),
    ] = None,
    problem: options.ProblemOption = None,
    batch: options.BatchOption = None,
    groups: options.GroupsOption = None,
    arch: options.ArchOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--output",
            "-o",
            metavar="FILE or FOLDER",
            help="Output file: .py, .ptx, .sass, .cubin or .h for that stage alone, .json for JSON. Several stages "
            "need a folder, a name without suffix.",
            show_default=False,
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Shows the generated CuTe DSL kernel, a standalone Python file, or its PTX, SASS or cubin.

    Of a pack, FILE.cutepack, it writes the header with all kernels: --what cpp.
    """
    as_json = json or (suffix_of(out, (*SUFFIXES, JSON_SUFFIX)) == JSON_SUFFIX)
    stages = _stages(what, out)
    if not as_json:
        _check_destination(stages, out)
    if spec.lower().endswith(PACK_SUFFIX):
        options.refuse_options(
            context, ("problem", "batch", "groups", "arch"), "together with a pack, which has its own"
        )
        contents: Mapping[Stage, bytes] = {Stage.CPP: _header_of_pack(spec, stages)}
        whole: Mapping[str, Any] = {"pack": spec}
    else:
        if says_all(spec):
            options.refuse_options(context, ("problem", "batch"), "together with a finished kernel")
        subject = named_subject(spec, arch, options.named_problem(problem, batch, groups))
        contents = _contents(subject, stages)
        plan = subject.plan
        whole = {"spec": subject.name, "target": plan.target.name, "entry": plan.launch.entry}
    if not as_json or (out is not None and out.suffix.lower() != JSON_SUFFIX):
        _write(contents, out)
    if as_json:
        in_file = out if out is not None and out.suffix.lower() == JSON_SUFFIX else None
        Answer(json=True, out=in_file).give(lambda: {**whole, **_in_json(contents)}, list)


def _stages(what: str | None, out: Path | None) -> tuple[Stage, ...]:
    """Return the requested stages without duplicates. Raises RequestError."""
    of_file = SUFFIXES.get("" if out is None else out.suffix.lower())
    if what is None:
        return (of_file or Stage.SOURCE,)
    words = dict.fromkeys(word.strip() for word in what.split(","))
    if unknown := [word for word in words if word not in list(Stage)]:
        raise RequestError(f"--what: found {unknown[0]!r}; expected one or more of {', '.join(Stage)}, with commas")
    stages = tuple(map(Stage, words))
    if of_file is not None and stages != (of_file,):
        expected = f"a file that ends with {Path(FILES[stages[0]]).suffix}" if len(stages) == 1 else "a folder"
        raise RequestError(f"--out: found {out} for {', '.join(stages)}; expected {expected}")
    return stages


def _check_destination(stages: tuple[Stage, ...], out: Path | None) -> None:
    """Raise RequestError for several stages to stdout, and for a binary one to a terminal."""
    if out is None and len(stages) > 1:
        raise RequestError(f"--what: found {', '.join(stages)}; expected one for stdout, or --out FOLDER for several")
    if out is None and stages == (Stage.CUBIN,) and sys.stdout.isatty():
        raise RequestError("--what: found cubin, which is binary; expected --out FILE.cubin, or a pipe")


def _contents(subject: Subject, stages: tuple[Stage, ...]) -> Mapping[Stage, bytes]:
    made: Mapping[Stage, Callable[[], bytes]] = {
        Stage.SOURCE: lambda: subject.source().text.encode(),
        Stage.PTX: lambda: subject.make().artifact.ptx.encode(),
        Stage.SASS: lambda: disassemble(subject.make().artifact.cubin).encode(),
        Stage.CUBIN: lambda: subject.make().artifact.cubin,
        Stage.CPP: lambda: _header(subject).encode(),
    }
    return {stage: made[stage]() for stage in stages}


def _header(subject: Subject) -> str:
    """Return the header of a GEMM. Raises RequestError for a probe."""
    launch, artifact = subject.gemm.launch, subject.make().artifact
    return cpp_header(launch, artifact.cubin, artifact.manifest.inputs.gpu_arch)


def _header_of_pack(path: str, stages: tuple[Stage, ...]) -> bytes:
    """Return the header of a pack's kernels. Raises RequestError for another stage, and as `pack_header` does."""
    if stages != (Stage.CPP,):
        found = ", ".join(stages)
        raise RequestError(f"--what: found {found} for {path}; expected cpp, a header with all kernels of the pack")
    return pack_header(read_pack(path)).encode()


def _write(contents: Mapping[Stage, bytes], out: Path | None) -> None:
    """Write to stdout, to a file, or each stage into a folder. Raises OutsideError."""
    if out is None:
        ((stage, content),) = contents.items()
        if stage is Stage.CUBIN:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        else:
            sys.stdout.write(content.decode())
    elif len(contents) == 1 and not os.path.isdir(out):
        write_file("--out", out, *contents.values())
    else:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutsideError(f"--out: {out} cannot be made a folder: {error.strerror}") from error
        for stage, content in contents.items():
            write_file("--out", out / FILES[stage], content)


def _in_json(contents: Mapping[Stage, bytes]) -> dict[str, str]:
    """Return the stages for JSON; a cubin in base64."""
    return {
        str(stage): b64encode(content).decode() if stage is Stage.CUBIN else content.decode()
        for stage, content in contents.items()
    }
