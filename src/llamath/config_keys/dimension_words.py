"""`dimension_words`: the name of a dimension in a label, by its letter, or by its config key where
a letter stands for several.
"""

from __future__ import annotations

from . import SYNONYMS

LETTER_WORDS = {
    "V": "vocabulary",
    "C": "positions",
    "L": "layers",
    "d": "hidden size",
    "H": "heads",
    "K": "KV heads",
    "h": "head dim",
    "W": "window",
    "F": "FFN size",
    "Fs": "shared expert FFN size",
    "Fe": "expert FFN size",
    "Fd": "dense FFN size",
    "dense": "first dense layers",
    "E": "experts",
    "k": "experts per token",
    "S": "shared experts",
    "Z": "zero experts",
    # latent attention, and the choice of keys
    "s": "query latent",
    "r": "KV latent",
    "o": "output latent",
    "og": "output groups",
    "n": "NoPE key dim",
    "p": "RoPE key dim",
    "v": "value dim",
    "Hi": "indexer heads",
    "hi": "indexer head dim",
    "ki": "selected keys",
    # layers with a window that have heads of their own
    "Hs": "window heads",
    "Hw": "window heads",
    "Kw": "window KV heads",
    "hw": "window head dim",
    # recurrences
    "Hk": "linear key heads",
    "Hv": "linear value heads",
    "hk": "linear key dim",
    "hv": "linear value dim",
    "c": "convolution kernel",
    "Hm": "Mamba heads",
    "m": "Mamba head dim",
    "G": "Mamba groups",
    "N": "state size",
    "R": "time step rank",
    "i": "inner width",
    # few families
    "hc": "residual streams",
    "w": "embedding width",
    "b": "base width",
    "D": "biased distances",
    "x": "n-gram tables",
}
"""Letter -> name, of the key that has it in most families."""

_KEY_WORDS = {
    "linear_head_dim": "linear head dim",
    "n_mamba_heads": "Mamba heads",
    "adapter_rank": "adapter rank",
    "expansion_ratio": "FFN size over hidden size",
    "moe_latent_size": "expert latent",
    "d_rel": "rank of position biases",
    "num_loops": "runs of the layers",
    "total_ut_steps": "runs of the layers",
}
"""Key -> name, of keys whose letter means another dimension in most families."""


def dimension_words(letter: str, key: str = "") -> str:
    """Return the name of a dimension; empty if it has none but its key."""
    return _KEY_WORDS.get(SYNONYMS.get(key, key)) or LETTER_WORDS.get(letter, "")
