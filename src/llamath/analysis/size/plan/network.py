"""The time of collectives, from the bandwidth of the links inside a node and of the network between
nodes.

Ranks are numbered tensor-parallel first, then context, data and pipeline, so that the ranks that
communicate most are neighbors (Narayanan et al. 2021, arXiv:2104.04473); experts are distributed
over the tensor, context and data ranks. Gathered data crosses the network once for all ranks of a
node, as in a ring through every node.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ....hardware import Device

LINK_EFFICIENCY = 0.8
"""The fraction of the published link bandwidth that collectives reach: nccl-tests on eight A100
report 230 to 250 of 300 GB/s."""


class RankGroup(NamedTuple):
    """The ranks of a collective: how many in each node, and in how many nodes."""

    per_node: int
    nodes: int

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.per_node * self.nodes


@cache
def rank_group(size: int, stride: int, node: int) -> RankGroup:
    """Place `size` ranks, `stride` apart, in nodes of `node` GPUs."""
    near = max(1, min(size, node // stride))
    while size % near:
        near -= 1
    return RankGroup(near, size // near)


class Network(NamedTuple):
    """Bytes per second of one GPU in one direction: to GPUs of its node (`link`) and of other
    nodes (`network`).
    """

    link: float
    network: float

    def all_gather_seconds(self, ranks: RankGroup, whole: float) -> float:
        """Seconds of an all-gather (or reduce-scatter) of `whole` bytes."""
        across = (ranks.nodes - 1) / ranks.nodes * whole / ranks.per_node
        return across / self.network + (ranks.per_node - 1) / ranks.per_node * whole / self.link

    def all_to_all_seconds(self, ranks: RankGroup, sent: float) -> float:
        """Seconds of an all-to-all in which each rank sends `sent` bytes in all."""
        return (
            sent
            / ranks.size
            * ((ranks.per_node - 1) / self.link + (ranks.size - ranks.per_node) / self.network)
        )

    def send_seconds(self, ranks: RankGroup, size: float) -> float:
        """Seconds to send `size` bytes to the next rank of the group."""
        return size / (self.link if ranks.nodes == 1 else self.network)


def network_of(device: Device) -> Network:
    """Return the bandwidths of a device; a device without a published link uses the network
    inside the node, too.
    """
    return Network(
        LINK_EFFICIENCY * (device.link or device.network), LINK_EFFICIENCY * device.network
    )
