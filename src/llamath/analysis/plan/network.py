"""`Wires`: how long ranks take to share what they have, by the links inside a node and the network between nodes.

Ranks are numbered tensor first, then context, data, pipeline, so that those who talk most are neighbours (Narayanan et al. 2021,
arXiv:2104.04473; experts are dealt out among the ranks of tensor, context and data). What a group gathers crosses the network once for all
its ranks of a node, as a ring through every node does.
"""

from __future__ import annotations

from typing import NamedTuple

from ...hardware import Device

LINK_EFFICIENCY = 0.8
"""The share of a link's data sheet that collectives reach, in a node and across: nccl-tests on eight A100 has 230 to 250 of 300 GB/s."""


class RankGroup(NamedTuple):
    """Ranks that share something: so many in each node, in so many nodes."""

    per_node: int
    nodes: int

    @property
    def size(self) -> int:
        """How many."""
        return self.per_node * self.nodes


def rank_group(size: int, stride: int, node: int) -> RankGroup:
    """`size` ranks, each `stride` after the other, in nodes of so many."""
    near = max(1, min(size, node // stride))
    while size % near:
        near -= 1
    return RankGroup(near, size // near)


class Network(NamedTuple):
    """Bytes a second of one GPU, in one direction: to others of its node, and to other nodes."""

    link: float
    network: float

    def all_gather_seconds(self, ranks: RankGroup, whole: float) -> float:
        """Seconds until each rank has the whole of what each had a part of; to sum up and part again takes as long."""
        across = (ranks.nodes - 1) / ranks.nodes * whole / ranks.per_node
        return across / self.network + (ranks.per_node - 1) / ranks.per_node * whole / self.link

    def all_to_all_seconds(self, ranks: RankGroup, sent: float) -> float:
        """Seconds until each rank has sent every other its part of so many bytes."""
        return sent / ranks.size * ((ranks.per_node - 1) / self.link + (ranks.size - ranks.per_node) / self.network)

    def send_seconds(self, ranks: RankGroup, size: float) -> float:
        """Seconds to send so much to the next of the group."""
        return size / (self.link if ranks.nodes == 1 else self.network)


def network_of(device: Device) -> Network:
    """Those of a device; one without links of its own talks to its neighbours as it does to other nodes."""
    return Network(LINK_EFFICIENCY * (device.link or device.network), LINK_EFFICIENCY * device.network)
