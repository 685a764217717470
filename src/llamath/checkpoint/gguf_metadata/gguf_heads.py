"""Attention's heads in a GGUF header: how many, how large, how much of each rotates."""

from __future__ import annotations

from math import nextafter

from .gguf_header import Header


def kv_heads(h: Header) -> int | None:
    """As many in every layer that has any; as many as query heads where the header is silent."""
    found = sorted(set(h.each("attention.head_count_kv") or ()) - {0})
    if len(found) > 1:
        raise h.uneven("attention.head_count_kv", found)
    return found[0] if found else h.number("attention.head_count")


def fused_kv_heads(h: Header) -> int | None:
    """What the rows of `attn_qkv` leave for keys and values: converters of models with one such matrix have written other numbers."""
    rows, heads, width = h.rows(".attn_qkv.weight"), h.needed("attention.head_count"), h.needed("embedding_length")
    said = kv_heads(h)
    if not rows or not heads or not (size := width // heads) or rows % size or (rows // size - heads) % 2 or rows // size <= heads:
        return said
    found = (rows // size - heads) // 2
    if found != said:
        h.notes.append(f"attention.head_count_kv says {said}; attn_qkv of {rows:,} rows has {found}, which is taken")
    return found


def head_dim(h: Header) -> int | None:
    """A head's size; without a word about it the width shared among the heads."""
    key, value = h.number("attention.key_length"), h.number("attention.value_length")
    width, heads = h.needed("embedding_length"), h.needed("attention.head_count")
    shared = width // heads if heads and width % heads == 0 else None
    key, value = key or shared or value, value or shared or key
    if key != value:
        raise h.refusal(f"keys of {key} and values of {value}")
    return key


def rotary_dim(h: Header) -> int | None:
    """How many of a head's numbers rotate: all, where the header is silent."""
    return h.number("rope.dimension_count") or head_dim(h)


def partial_rotary_factor(h: Header) -> float | None:
    """The same as a share of the head, such that rounding down gives the number back."""
    turned, whole = rotary_dim(h), head_dim(h)
    if not turned or not whole:
        return None
    share = turned / whole
    return share if int(whole * share) == turned else nextafter(share, 2.0)
