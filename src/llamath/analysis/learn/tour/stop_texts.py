"""What each stop of the tour says, in the order of the tour."""

from __future__ import annotations

from .attention_texts import ATTENTION_TEXTS
from .ffn_texts import FFN_TEXTS
from .recurrence_texts import RECURRENCE_TEXTS
from .score_texts import SCORE_TEXTS
from .stop_text import StopTexts
from .stream_texts import STREAM_TEXTS

_ORDER = (
    "token encoder embedding positions per_layer norm mixer_in conv state mixer_out compress "
    "expand qkv biases qk_norm rope no_positions indexer scores alibi window softmax sinks mix "
    "attention_gate attention_out parallel gate_up down router experts shared post_norm more "
    "next_layer logits next_token cache apart"
)
_TEXTS: StopTexts = {
    **STREAM_TEXTS,
    **ATTENTION_TEXTS,
    **SCORE_TEXTS,
    **FFN_TEXTS,
    **RECURRENCE_TEXTS,
}
STOP_TEXTS: StopTexts = {name: _TEXTS[name] for name in _ORDER.split()}
"""Stops in the order of the tour, with their words or the function that writes them."""
