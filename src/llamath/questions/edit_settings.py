"""`Edit`: what is changed in a checkpoint before it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from .settings import Settings, ask
from .value_kinds import YES_OR_NO, Kind, choice, integer

MAX_RANKS = 4096
_NUMBER = r"-?\d{1,9}"
LAYER_RANGE = re.compile(rf"({_NUMBER})|({_NUMBER})?:({_NUMBER})?(?::(\d{{1,9}}))?", re.ASCII)
"""A number of a layer, or a half-open range of them, perhaps with a step."""


def _read_layers(value: object) -> str | int:
    if type(value) is int:
        return value
    if not isinstance(value, str) or not all(
        LAYER_RANGE.fullmatch(x.strip()) for x in value.split(",")
    ):
        raise ValueError
    return value


LAYERS: Kind[str | int] = Kind(
    _read_layers,
    expected="numbers and half-open ranges such as 0:16,20:32 or -1",
    annotation="str | int",
    metavar="LAYERS",
)


class Edit(Settings):
    """The layers and the vocabulary to keep, and the ranks to cut or to join.

    Ranks are joined first; then layers are left out, the vocabulary is resized, and ranks are cut.
    """

    layers: str | int | Iterable[str | int] | None = ask(
        LAYERS.several(),
        default=None,
        help="Layers to keep, in their order: numbers and half-open ranges, as 0:16,20:32.",
        example="0:16,20:32",
    )
    vocab_size: int | None = ask(
        integer(1, 2**31 - 1),
        default=None,
        help="Rows of embedding and head; new rows are the mean of the others.",
        example="152064",
    )
    part: Literal["text", "main"] | None = ask(
        choice("text", "main"),
        default=None,
        help="main: leave out multi-token prediction layers; text: only towers, as always.",
        example="main",
    )
    tp_shards: int | None = ask(
        integer(2, MAX_RANKS),
        default=None,
        help="Cut into N ranks for tensor parallelism, in the folders 0, 1, … of DST.",
        example="4",
    )
    join_shards: bool = ask(
        YES_OR_NO, default=False, help="Join the ranks in the subfolders of SRC.", example="yes"
    )

    @property
    def keeps_mtp(self) -> bool:
        """Whether layers for multi-token prediction are kept."""
        return self.part != "main"

    @property
    def is_none(self) -> bool:
        """Whether the tensors and the config stay as they are stored."""
        return not {"layers", "vocab_size", "tp_shards", "join_shards"} & set(self.changed)
