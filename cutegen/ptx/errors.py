"""The error for a launch that does not fit the kernel; the others come from `cutegen.errors` and `violations`."""

from cutegen.errors import RequestError


class LaunchError(RequestError):
    """Grid, block, arguments or policy do not fit the entry."""
