"""The groups that options of a verb name: their number and their sizes, listed or by a distribution."""

from dataclasses import dataclass, replace

from cutegen.cli.options import named_problem, parse_sizes
from cutegen.contract.problem import Distribution, Groups, ProblemShape
from cutegen.errors import RequestError

SMALL_GROUPS = 4
"""Groups of a launch that names none."""


@dataclass(frozen=True, slots=True)
class GivenGroups:
    """The groups of a launch: their number and their sizes or a distribution, each None if it is not given."""

    number: int | None
    sizes: tuple[int, ...] | Distribution | None

    @property
    def name(self) -> str:
        """Name of the sizes: the distribution, or the sizes themselves.

        >>> GivenGroups(3, (3, 0, 200)).name, GivenGroups(3, None).name
        ('3,0,200', 'uniform')
        """
        if isinstance(self.sizes, tuple):
            return ",".join(map(str, self.sizes))
        return str(self.sizes or Distribution.UNIFORM)

    def problem(self, problem: str | None, batch: int | None) -> ProblemShape | None:
        """Return the problem to plan for, with as many groups; a few for a distribution that comes without a number.

        None if no problem is given. Raises RequestError for sizes without a problem.
        """
        if problem is None and self.sizes is not None:
            raise RequestError(
                f"--sizes: found {self.name} without --problem; expected it together with --problem M,N,K"
            )
        number = SMALL_GROUPS if self.number is None and self.sizes is not None else self.number
        return named_problem(problem, batch, number)

    def filling(self, groups: Groups, shape: ProblemShape) -> tuple[int, ...]:
        """Return the sizes of packed groups that have the whole extent of a problem, as measurements need them.

        Raises RequestError for padded groups, for a problem without groups, and for sizes that leave a rest.
        """
        if groups.layout == "padded" or shape.groups is None:
            found = str(groups) if groups.layout == "padded" else "a kernel of groups without --groups"
            raise RequestError(
                f"--groups: found {found}; expected packed groups, and --groups G or --sizes with --problem"
            )
        given = replace(self, number=shape.groups, sizes=Distribution.UNIFORM if self.sizes is None else self.sizes)
        values = given.of_problem(groups, shape)
        if sum(values) != (room := shape.extents[groups.of]):
            along = groups.of.upper()
            raise RequestError(
                f"--sizes: found {sum(values)} along {along}; expected {room}, all of the extent in --problem"
            )
        return values

    def of_problem(
        self, groups: Groups | None, shape: ProblemShape, seed: int = 0, *, multiple: int = 1
    ) -> tuple[int, ...]:
        """Return the sizes for a problem: those given, else all the same, a `multiple`; none for one without groups.

        Raises RequestError if the kernel has no groups, no room for these, or padded ones and a distribution is given.
        """
        if groups is None:
            if self.number is not None or self.sizes is not None:
                raise RequestError("--groups, --sizes: found with a spec without groups; expected problem.groups in it")
            return ()
        room, number = shape.extents[groups.of], self.number or SMALL_GROUPS
        if self.sizes is None:
            return (room // number // multiple * multiple if groups.layout == "packed" else room,) * number
        if isinstance(self.sizes, Distribution):
            if groups.layout == "padded":
                raise RequestError(
                    f"--sizes: found {self.sizes} with padded groups; expected their sizes, such as 3,0,200: a "
                    "distribution shares out the rows of packed groups"
                )
            return self.sizes.sizes(room, number, seed)
        needed = sum(self.sizes) if groups.layout == "packed" else max(self.sizes)
        if needed > room:
            raise RequestError(
                f"--sizes: found {needed} along {groups.of.upper()}; expected at most {room}, the extent in --problem"
            )
        return self.sizes


def named_groups(number: int | None, sizes: str | None) -> GivenGroups:
    """Return the groups that the options name. Raises RequestError."""
    given = None if sizes is None else parse_sizes(sizes)
    if not isinstance(given, tuple):
        return GivenGroups(number, given)
    if number is not None and number != len(given):
        raise RequestError(f"--groups: found {number} with {len(given)} sizes; leave it out")
    return GivenGroups(len(given), given)
