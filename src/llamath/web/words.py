"""What the page says besides numbers: of letters, of keys, of estimates and bounds."""

from __future__ import annotations

from typing import Any

from .settings import BY, MAPS


def words() -> dict[str, Any]:
    """Texts by where they are said."""
    return {
        "letters": LETTERS,
        "forms": FORMS,
        "keys": KEYS,
        "estimates": {
            "activations": "An estimate: a plain pass with flash attention.",
            "overhead": "An estimate: device context, workspaces, gaps.",
        },
        "longest": "Found by halving: what is held never shrinks as the context grows.",
        "whole": "a whole number from 1 to 4,294,967,295",
        "packed": "Integers may be packed values: `llamath count FILE` says how many parameters they stand for.",
        "maps": MAPS,
        "by": BY,
        "passes": PASSES,
        "flops": "2 for each weight that a token passes, and the products of queries, keys and values.",
        "stages": {"decode": "stages take turns, so they add up.", "prefill": "stages work side by side: the fullest counts."},
        "bounds": {
            "memory": "bytes over the bandwidth take longer than FLOPs over the peak",
            "arithmetic": "FLOPs over the peak take longer than bytes over the bandwidth",
        },
        "ceilings": CEILINGS,
    }


LETTERS = {
    "T": "T: tokens of each sequence",
    "B": "B: sequences",
    "C": "C: tokens of prompts read at once",
    "a": "a: bytes of an activation",
    "q": "q: numbers in a block of the cache",
    "s": "s: bytes of such a block",
    "p": "p: bytes of a number beside the cache",
    "P": "P: ranks of tensor parallelism",
    "D": "D: data-parallel ranks",
    "N": "N: numbers that one rank of tensor parallelism has",
    "W": "W: bytes of the matrices that a GPU reads whole",
    "R": "R: bytes of a table, of which each token reads a row",
    "X": "X: bytes of matrices of experts, of which so many are read as tokens are expected to choose",
}
FORMS = {
    "M": "M: keys in reach of a query",
    "P": "P: pairs of a query and a key",
    "Pw": "Pw: such pairs in the window",
    "Pc": "Pc: such pairs in the chunk",
}
"""Letters that stand for a form of their own."""
KEYS = [
    ["/", "find a tensor"],
    ["?", "this list"],
    ["← →", "fold and unfold a group of tensors; the next number of a row"],
    ["↑ ↓", "the next group, the next tile"],
    ["Enter", "what a number or tile comes from"],
    ["Esc", "close"],
]
PASSES = {
    "prompt": "a prompt, read at once",
    "next": "one token more",
    "decode": "decode: one more token of each sequence",
    "prefill": "prefill: whole prompts",
}
CEILINGS = (
    "Bounds, no predictions: every byte is read once at the data sheet's bandwidth, every product runs at the dense peak, and nothing else"
    " costs time. With the context, batch, weights, cache and GPUs that are set above for running."
)
