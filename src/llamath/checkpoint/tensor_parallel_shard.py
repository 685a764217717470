"""`TensorParallelShard`: one rank's part of a checkpoint, as `convert --tp-shards` writes it.

Its config.json is that of the whole model, with the rank and the number of ranks under
`tensor_parallel_shard`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..utils.errors import ConfigError, safe
from ..utils.named_tuple import NamedTuple

SHARD_KEY = "tensor_parallel_shard"
_MAX_RANKS = 1_000_000


class TensorParallelShard(NamedTuple):
    """A rank, counted from 0, and the number of ranks."""

    rank: int
    world_size: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {self.world_size} of a checkpoint that was cut for tensor "
            "parallelism"
        )


def parse_shard(keys: Mapping[str, Any], source: str) -> TensorParallelShard | None:
    """Parse the shard in a config; None if it describes a whole checkpoint."""
    value = keys.get(SHARD_KEY)
    if value is None:
        return None
    rank, size = (
        (value.get("rank"), value.get("world_size")) if isinstance(value, Mapping) else (None, None)
    )
    if type(rank) is not int or type(size) is not int or not 0 <= rank < size <= _MAX_RANKS:
        raise ConfigError(
            f"{source}: {SHARD_KEY} should be a rank and a world_size, not {safe(repr(value), 60)}",
            hint='such as {"rank": 0, "world_size": 2}',
        )
    return TensorParallelShard(rank, size)
