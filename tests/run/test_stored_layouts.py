"""Every stored layout, element by element: small stored tensors are written out and compared with the weights split from them."""

from __future__ import annotations

from math import exp

import pytest
import torch
from torch import Tensor

from llamath.checkpoint.naming.scheme import half_split_order, interleaved_order
from llamath.checkpoint.naming.stored_layouts import (
    LayoutParams,
    reorder_rows,
    split_tensor,
    undo_layout,
)

HEADS = LayoutParams(groups=2, heads=4, head_dim=4, values_per_key=2, value_channels=8, offset=1.0)


def rows(*numbers: float) -> Tensor:
    """A matrix whose rows are identified by their first value."""
    return torch.tensor([[x, x + 0.5] for x in numbers])


def same(found: Tensor, *numbers: float) -> bool:
    return torch.equal(found, rows(*numbers))


def test_joined_matrices_are_split() -> None:
    a, b = split_tensor(rows(1, 2, 3), [(2, 2), (1, 2)], "", HEADS)
    assert same(a, 1, 2)
    assert same(b, 3)


def test_heads_layout_groups_by_key_head() -> None:
    # two key heads; each has two queries of one row, one key, one value
    q, k, v = split_tensor(
        rows(10, 11, 20, 30, 12, 13, 21, 31), [(4, 2), (2, 2), (2, 2)], "heads", HEADS
    )
    assert same(q, 10, 11, 12, 13)
    assert same(k, 20, 21)
    assert same(v, 30, 31)


def test_each_layout_groups_by_query_head() -> None:
    q, gate = split_tensor(rows(1, -1, 2, -2, 3, -3, 4, -4), [(4, 2), (4, 2)], "each", HEADS)
    assert same(q, 1, 2, 3, 4)
    assert same(gate, -1, -2, -3, -4)


def test_rows_layout_interleaves_transposed_rows() -> None:
    gate, up = split_tensor(rows(1, -1, 2, -2).mT, [(2, 2), (2, 2)], "rows flip", HEADS)
    assert same(gate, 1, 2)
    assert same(up, -1, -2)


def test_split_heads_are_flattened() -> None:
    (result,) = split_tensor(torch.stack((rows(1, 2), rows(3, 4))), [(4, 2)], "split", HEADS)
    assert same(result, 1, 2, 3, 4)
    (flipped,) = split_tensor(
        torch.stack((rows(1, 2).mT, rows(3, 4).mT)), [(4, 2)], "flip split", HEADS
    )
    assert same(flipped, 1, 2, 3, 4)


def test_unit_and_flat_layouts() -> None:
    assert same(split_tensor(rows(1, 2)[:, None], [(2, 2)], "unit", HEADS)[0], 1, 2)
    assert same(split_tensor(torch.tensor([1, 1.5, 2, 2.5]), [(2, 2)], "flat", HEADS)[0], 1, 2)


def test_rotary_pairs_become_halves() -> None:
    stored = rows(0, 2, 1, 3, 10, 12, 11, 13)  # two heads of four: row i beside row i + 2
    assert same(
        undo_layout(stored, "rotary", HEADS, "attn.q.weight", torch), 0, 1, 2, 3, 10, 11, 12, 13
    )


@pytest.mark.parametrize("size", [2, 4, 6, 128])
def test_rotary_orders_match_the_published_conversion(size: int) -> None:
    """`convert_llama_weights_to_hf.py` of transformers: view(heads, h / 2, 2, d).transpose(1, 2); both orders invert each other."""
    meta = torch.arange(3 * size)
    assert torch.equal(
        reorder_rows(meta, half_split_order(size)),
        meta.view(3, size // 2, 2).transpose(1, 2).flatten(),
    )
    assert torch.equal(
        reorder_rows(reorder_rows(meta, half_split_order(size)), interleaved_order(size)), meta
    )


def test_shifted_and_decay_layouts() -> None:
    assert torch.equal(
        undo_layout(torch.tensor([1.5, 1.0]), "shifted", HEADS, "norm.weight", torch),
        torch.tensor([0.5, 0.0]),
    )
    assert torch.allclose(
        undo_layout(torch.tensor([-exp(0.3)]), "decay", HEADS, "a_log", torch), torch.tensor([0.3])
    )


def test_tiled_value_heads_are_reordered() -> None:
    # two key heads with two value heads each; stored: the first of both, then the second of both
    assert same(undo_layout(rows(1, 3, 2, 4), "tiled", HEADS, "beta.weight", torch), 1, 2, 3, 4)
    assert same(
        undo_layout(rows(1, 3, 2, 4).mT, "tiled", HEADS, "out.weight", torch).mT, 1, 2, 3, 4
    )
    stored = rows(
        -1, -2, 10, 11, 30, 31, 20, 21, 40, 41
    )  # behind queries' and keys' channels, heads of two
    own = LayoutParams(groups=2, values_per_key=2, value_channels=8)
    assert same(
        undo_layout(stored, "tiled", own, "conv.weight", torch),
        -1,
        -2,
        10,
        11,
        20,
        21,
        30,
        31,
        40,
        41,
    )
