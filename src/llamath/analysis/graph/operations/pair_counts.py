"""The query-key pairs that masks, selected blocks and selected windows admit."""

from __future__ import annotations

from ....core.attention_facts import AttentionWindow
from ....core.expr import Expr, floor_div, minimum


def pairs_in_window(window: AttentionWindow, new: Expr, past: Expr) -> Expr:
    """Return the number of query-key pairs that the mask admits, for `new` queries after `past`
    tokens.
    """
    if new.terms == {(): 1}:  # one query attends to itself and earlier positions
        return _num_keys(window, past)
    if window.max_lookback is None:
        return (
            new * new + past * new
            if not window.causal
            else _pairs_of_first(window, new) + past * new
        )
    back = _pairs_of_first(window, past + new) - _pairs_of_first(window, past)
    return back if window.causal else back + _pairs_of_first(window, new) - new


def _num_keys(window: AttentionWindow, past: Expr) -> Expr:
    """Return the number of keys of one query after `past` tokens."""
    if window.chunk is not None:
        return past + 1 - window.chunk * floor_div(past, window.chunk)
    return past + 1 if window.size is None else minimum(past + 1, window.size)


def pairs_in_blocks(blocks: tuple[int, int], n: Expr) -> Expr:
    """Return the pairs of the first n positions with the earlier ones in their own block and in
    all other blocks that are selected.
    """
    size, kept = blocks
    far = n - minimum(n, size * kept)  # positions with more blocks before them than are selected
    near = n - far
    whole = floor_div(far, size)
    rest = far - size * whole
    own = whole * (size * (size + 1) // 2) + floor_div(rest * rest + rest, 2)
    return floor_div(near * near + near, 2) + far * ((kept - 1) * size) + own


def _pairs_of_first(window: AttentionWindow, n: Expr) -> Expr:
    """Return the pairs of the first n positions with themselves and the earlier ones in their
    window or chunk.
    """
    if window.chunk is not None:
        chunks = floor_div(n, window.chunk)
        rest = n - window.chunk * chunks
        return chunks * (window.chunk * (window.chunk + 1) // 2) + floor_div(rest * rest + rest, 2)
    near = n if window.size is None else minimum(n, window.size)
    return floor_div(2 * n * near - near * near + near, 2)


def windows_seen(ratio: int, new: Expr, past: Expr, most: int | None) -> Expr:
    """Return the pairs of `new` queries after `past` tokens and complete windows of `ratio`
    tokens, at most `most` for a query.
    """
    if new.terms == {(): 1}:
        seen = floor_div(past + 1, ratio)
        return seen if most is None else minimum(seen, most)
    return _windows_of_first(ratio, past + new, most) - _windows_of_first(ratio, past, most)


def _windows_of_first(ratio: int, n: Expr, most: int | None) -> Expr:
    """Return Σ min(⌊j / ratio⌋, most) for j from 1 to n."""
    near = n if most is None else minimum(n, ratio * most + ratio - 1)
    windows = floor_div(near, ratio)
    each = floor_div(ratio * windows * windows - ratio * windows, 2) + windows * (
        near - ratio * windows + 1
    )
    return each if most is None else each + most * (n - near)


def pairs_in_selected_windows(windows: tuple[int, int], new: Expr, past: Expr) -> Expr:
    """Return the pairs of `new` queries after `past` tokens with those of the selected windows,
    and those after the last complete one.
    """
    ratio, most = windows
    rest = pairs_in_window(AttentionWindow(), new, past) - ratio * windows_seen(
        ratio, new, past, None
    )
    return rest + ratio * windows_seen(ratio, new, past, most)
