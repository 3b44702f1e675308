"""`cutegen probe`: only the loads of a spec from shared memory to registers."""

from dataclasses import replace

from cutegen.api import compile_probe
from cutegen.cli import options
from cutegen.cli.output import Answer
from cutegen.cli.run import Wanted, choose_device, run_probe
from cutegen.plan import ProbePlan, plan
from cutegen.spec import PROBE


def probe(
    spec: options.SpecArgument,
    device: options.DeviceOption = options.Device.AUTO,
    seed: options.SeedOption = 0,
    arch: options.ArchOption = None,
    strict: options.StrictOption = False,
    out: options.OutOption = None,
    json: options.JsonOption = False,
    policy: options.PolicyOption = None,
    max_steps: options.StepsOption = None,
    jobs: options.JobsOption = None,
) -> None:
    """Executes a spec's loads to registers and compares each with what the MMA needs. Exit 1 if one differs."""
    answer = Answer.asked(json=json, out=out)
    execution = options.ExecutionOptions(policy=policy, max_steps=max_steps, jobs=jobs)
    planned = plan(replace(options.named_spec(spec), kind=PROBE), arch)
    assert isinstance(planned, ProbePlan)
    where = choose_device(device, execution)
    wanted = Wanted(device=where, seed=seed, arch=arch, strict=strict, execution=execution, answer=answer)
    run_probe(planned, None, wanted, lambda: compile_probe(planned.spec, arch))
