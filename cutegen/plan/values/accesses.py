"""Keys of the memory accesses that are predicted and counted."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class AccessKey(StrEnum):
    """Kinds of access that belong to no single operand; the operands' have keys such as "g2s.a".

    If a cluster adds slices of K: sums to a CTA's shared memory, and shares of them from the memory of all CTAs.
    """

    CLUSTER_WRITE = "cluster.write"
    CLUSTER_READ = "cluster.read"
    EPILOGUE_WRITE = "epilogue.write"
    EPILOGUE_READ = "epilogue.read"
    G2S = "g2s"
    """Of all operands together, where they cannot be told apart."""
    S2R = "s2r"
    """Of all operands together, where they cannot be told apart."""

    @staticmethod
    def g2s(name: str) -> str:
        """Return the key of the copies to shared memory of the operand `name`.

        >>> AccessKey.g2s("a"), AccessKey.s2r("b")
        ('g2s.a', 's2r.b')
        """
        return f"g2s.{name}"

    @staticmethod
    def s2r(name: str) -> str:
        """Return the key of the fragment loads of the operand `name`."""
        return f"s2r.{name}"

    @staticmethod
    def mma(name: str) -> str:
        """Return the key of the MMA's own reads of the operand `name` from shared memory."""
        return f"mma.{name}"


def shared_accesses(operands: Iterable[str]) -> tuple[str, ...]:
    """Return the keys of all accesses to shared memory, in the order of the kernel.

    >>> shared_accesses("ab")[:3]
    ('g2s.a', 'g2s.b', 's2r.a')
    """
    names = tuple(operands)
    of_operands = (of(name) for of in (AccessKey.g2s, AccessKey.s2r, AccessKey.mma) for name in names)
    of_cluster = (AccessKey.CLUSTER_WRITE, AccessKey.CLUSTER_READ)
    return (*of_operands, *of_cluster, AccessKey.EPILOGUE_WRITE, AccessKey.EPILOGUE_READ)


def is_of_few(key: str) -> bool:
    """Return whether few kernels have such accesses: MMAs that read shared memory, clusters that add."""
    return key.startswith(("mma.", "cluster."))
