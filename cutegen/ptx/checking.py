"""Runs one entry in several orders and collects what is undefined in any of them, each violation once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cutegen.ptx.machine.arguments import Argument
from cutegen.ptx.machine.policy import IN_ORDER, REVERSED, Policy, random_order
from cutegen.ptx.machine.report import LaunchReport
from cutegen.ptx.watch.violations import ExecutionFault, Violation, ViolationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation at its first occurrence, and the orders in which it occurred."""

    violation: Violation
    policies: tuple[str, ...]

    @property
    def is_convention(self) -> bool:
        """True for a convention: PTX does not order it."""
        return self.violation.kind is ViolationKind.CONVENTION


def explored_policies(count: int, seed: int) -> tuple[Policy, ...]:
    """`count` orders: in order, reversed, and random ones from `seed` on."""
    random = tuple(random_order(seed + i) for i in range(max(0, count - 2)))
    return (IN_ORDER, REVERSED, *random)[:count]


def check_entry(
    launch: Callable[..., LaunchReport],
    arguments: Callable[[], Sequence[Argument]],
    policies: Sequence[Policy],
    *,
    finished: Callable[[Policy, Sequence[Argument]], None],
    max_steps: int,
    printed: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Finding, ...]:
    """Launch an entry in several orders and return its violations, in the order of detection.

    `launch` takes arguments, and options of `Program.launch`. `arguments` makes fresh arguments for each launch;
    `finished` receives them after a launch that completes. `printed` receives what threads print in the first order.
    `progress(done, total)` is called after each CTA, with those of all launches. A launch that has read memory that
    nobody wrote is repeated, to follow what it read: it counts only if its value mattered.

    Raises:
        LaunchError: the launch does not fit the entry.
        PtxSyntaxError: an unknown instruction.
    """
    found: dict[tuple[ViolationKind, int], tuple[Violation, list[str]]] = {}
    for number, policy in enumerate(policies):
        values, told = arguments(), printed if number == 0 else None

        def of_all(done: int, total: int, before: int = number) -> None:
            progress(before * total + done, len(policies) * total)

        try:
            options = {"policy": policy, "max_steps": max_steps, "raise_on": ()}
            report = launch(values, printed=told, progress=of_all, **options)
            if any(each.kind is ViolationKind.UNINITIALIZED for each in report.violations):
                again = arguments()
                followed = launch(again, follows_memory=True, **options)
                if not any(each.kind is ViolationKind.UNINITIALIZED for each in followed.violations):
                    values, report = again, followed
            violations = (*report.violations, *report.conventions)
            finished(policy, values)
        except ExecutionFault as fault:
            violations = (fault.violation,)
        for violation in violations:
            key = violation.kind, violation.line
            found.setdefault(key, (violation, []))[1].append(str(policy))
    return tuple(Finding(violation=violation, policies=tuple(names)) for violation, names in found.values())
