"""The shape of a launch: its grid and clusters, the position of each CTA, and its blocks.

Source: PTX ISA, "Cluster of Cooperative Thread Arrays", special registers `%clusterid`, `%cluster_ctaid`,
`%cluster_ctarank`. CTAs, clusters, and the CTAs of a cluster are numbered with x fastest.
"""

from dataclasses import dataclass

from cutegen.ptx.text.syntax import Dim3

ONE_CTA: Dim3 = (1, 1, 1)
CTA_WINDOW_BYTES = 1 << 24
"""Addresses of shared memory that one CTA of a cluster occupies: an address has the CTA's rank in bits 24 and up.

Addresses of `.shared::cta`, those of variables among them, have it too. Kernels for pairs of CTAs clear bit 24.
"""


def in_cta(rank: int, address: int) -> int:
    """The address of the same place of shared memory in the CTA of `rank`.

    >>> hex(in_cta(3, 0x1000480))
    '0x3000480'
    """
    return rank * CTA_WINDOW_BYTES + address % CTA_WINDOW_BYTES


def volume(extents: Dim3) -> int:
    """Return the product of `extents`."""
    x, y, z = extents
    return x * y * z


def linear(place: Dim3, extents: Dim3) -> int:
    """The linear number of `place`, x fastest."""
    return place[0] + extents[0] * (place[1] + extents[1] * place[2])


def coordinates(number: int, extents: Dim3) -> Dim3:
    """The coordinates of a linear number, x fastest."""
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of `ctas`, in clusters of `cluster` CTAs; it is a multiple of the cluster.

    >>> grid = Grid((4, 2, 1), (2, 1, 1))
    >>> grid.place(3, 1), grid.cta_number(3, 1)
    ((3, 1, 0), 7)
    """

    ctas: Dim3
    cluster: Dim3

    @property
    def cluster_size(self) -> int:
        """CTAs per cluster."""
        return volume(self.cluster)

    @property
    def clusters(self) -> Dim3:
        """Number of clusters along each axis."""
        x, y, z = (ctas // each for ctas, each in zip(self.ctas, self.cluster, strict=True))
        return x, y, z

    def all_clusters(self) -> list[int]:
        """The numbers of all clusters."""
        return list(range(volume(self.clusters)))

    def place(self, cluster: int, rank: int) -> Dim3:
        """The index in the grid of a CTA of a cluster."""
        outer, inner = coordinates(cluster, self.clusters), coordinates(rank, self.cluster)
        x, y, z = (o * each + i for o, each, i in zip(outer, self.cluster, inner, strict=True))
        return x, y, z

    def cta_number(self, cluster: int, rank: int) -> int:
        """The number in the grid of a CTA of a cluster."""
        return linear(self.place(cluster, rank), self.ctas)

    def rank(self, place: Dim3) -> int:
        """The rank in its cluster of the CTA at `place`."""
        x, y, z = (at % each for at, each in zip(place, self.cluster, strict=True))
        return linear((x, y, z), self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Grid, block and dynamic shared memory of a launch; `explicit_cluster`: the launch or the entry set clusters."""

    grid: Grid
    block: Dim3
    dynamic_smem_bytes: int
    explicit_cluster: bool

    @property
    def threads(self) -> int:
        """Threads per CTA."""
        return volume(self.block)
