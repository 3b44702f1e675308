"""`cutegen list`: the shipped specs."""

from cutegen.cli.options import JsonOption, OutOption
from cutegen.cli.output import Answer
from cutegen.spec import load_spec, shipped_specs
from cutegen.support.words import aligned


def list(out: OutOption = None, json: JsonOption = False) -> None:
    """Lists the shipped specs with their descriptions."""
    answer = Answer.asked(json=json, out=out)
    specs = [load_spec(name) for name in shipped_specs()]
    rows = [
        {"name": x.name, "family": x.family, "kind": x.kind, "description": x.description, "file": x.file}
        for x in specs
    ]
    answer.give(lambda: {"specs": rows}, lambda: aligned([(x.name, x.description) for x in specs], indent=0))
