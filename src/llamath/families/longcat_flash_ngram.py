"""LongCat-Flash-Lite: LongCat-Flash whose embedding of a token is a mean with rows of twelve
tables, chosen by hashes of the n-grams that end at it (arXiv:2601.21204).

The family is counted only: these hashes are not part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..core.blocks import Decoder, Embedding, Linear
from ..core.config import Config
from ..core.constructors import linear, side_table
from ..core.expr import Expr
from ..core.tree import Block, Cut, Stack, counted_only
from .longcat_flash import NAMES as LONGCAT_NAMES
from .longcat_flash import longcat_flash
from .registry import family

NAMES = LONGCAT_NAMES.with_changes(
    outside={
        "embed.tables.{l}.rows": "model.ngram_embeddings.embedders.{l}",
        "embed.tables.{l}.projection": "model.ngram_embeddings.post_projs.{l}",
    }
)
_MAX_TABLES = 256


class NGramTable(Block):
    """A table of n-grams of one length by one hash, and a projection of its rows."""

    group: ClassVar[str] = "embedding"
    cuts: ClassVar[dict[str, Cut]] = {"rows": Cut(0, on_indivisible="pad")}
    rows: Embedding
    projection: Linear

    forward = counted_only("LongCat's tables of n-grams")


class NGramEmbedding(Embedding):
    """The mean of a token's row and of those that the n-grams ending at it choose."""

    tables: Stack

    forward = counted_only("LongCat's tables of n-grams")


@family(hf=NAMES)
def longcat_flash_ngram(c: Config) -> Decoder:
    tree: Decoder = longcat_flash(c)
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    longest, hashes = c.dim("n", "emb_neighbor_num"), c.dim("k", "emb_split_num")
    tables = int(longest - 1) * int(hashes)
    if not 0 < tables <= _MAX_TABLES or d % tables:
        raise c.error(
            "emb_neighbor_num",
            f"is {longest} with {hashes} hashes of each length: {tables} tables do not divide the "
            f"width {d}",
            f"n-grams have 2 tokens or more; at most {_MAX_TABLES} tables can be counted",
        )
    least, width = c.dim("x", "ngram_vocab_size_ratio") * V, Expr("dn", d // tables)
    blocks = [
        NGramTable(rows=side_table(least + 2 * i + 1, width), projection=linear(d, width))
        for i in range(tables)
    ]
    stack = Stack(*(((x,), 1) for x in blocks))
    return tree.replace(embed=tree.embed.extended(NGramEmbedding, tables=stack))
