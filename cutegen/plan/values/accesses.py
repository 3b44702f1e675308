"""Keys of the memory accesses that are predicted and counted."""

from __future__ import annotations

from enum import StrEnum


class AccessKey(StrEnum):
    """Kind of access: A and B to shared memory, and to fragments or directly to the MMA; C through shared memory.

    If a cluster adds slices of K: sums to a CTA's shared memory, and shares of them from the memory of all CTAs.
    """

    G2S_A = "g2s.a"
    G2S_B = "g2s.b"
    S2R_A = "s2r.a"
    S2R_B = "s2r.b"
    MMA_A = "mma.a"
    MMA_B = "mma.b"
    CLUSTER_WRITE = "cluster.write"
    CLUSTER_READ = "cluster.read"
    EPILOGUE_WRITE = "epilogue.write"
    EPILOGUE_READ = "epilogue.read"
    G2S = "g2s"
    """A's and B's together, where they cannot be told apart."""
    S2R = "s2r"
    """A's and B's together, where they cannot be told apart."""

    @classmethod
    def g2s(cls, name: str) -> AccessKey:
        """Return the key of the copies to shared memory of the operand `name`.

        >>> AccessKey.g2s("a"), f"{AccessKey.s2r('b')}"
        (<AccessKey.G2S_A: 'g2s.a'>, 's2r.b')
        """
        return cls(f"g2s.{name}")

    @classmethod
    def s2r(cls, name: str) -> AccessKey:
        """Return the key of the fragment loads of the operand `name`."""
        return cls(f"s2r.{name}")

    @classmethod
    def mma(cls, name: str) -> AccessKey:
        """Return the key of the MMA's own reads of the operand `name` from shared memory."""
        return cls(f"mma.{name}")


SHARED_ACCESSES = (
    AccessKey.G2S_A,
    AccessKey.G2S_B,
    AccessKey.S2R_A,
    AccessKey.S2R_B,
    AccessKey.MMA_A,
    AccessKey.MMA_B,
    AccessKey.CLUSTER_WRITE,
    AccessKey.CLUSTER_READ,
    AccessKey.EPILOGUE_WRITE,
    AccessKey.EPILOGUE_READ,
)
"""Accesses to shared memory, in the order of the kernel."""

OF_FEW = (AccessKey.MMA_A, AccessKey.MMA_B, AccessKey.CLUSTER_WRITE, AccessKey.CLUSTER_READ)
"""Accesses that few kernels have: MMAs that read shared memory, clusters that add."""
