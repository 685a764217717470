"""What the page says besides numbers: of letters, of keys, of estimates and bounds."""

from __future__ import annotations

from typing import Any

from .page_settings import TREEMAP_GROUPINGS, TREEMAP_MEASURES

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
SPEED_LIMIT_NOTE = (
    "Bounds, no predictions: every byte is read once at the data sheet's bandwidth, every product runs at the dense peak, and nothing else"
    " costs time. With the context, batch, weights, cache and GPUs that are set above for running."
)
COLUMNS = {
    "memory": [["bytes"], ["GB"], ["GiB"], ["share"]],
    "speed": ["pass", ["tokens/s at most"], "bound by", ["bytes read"], ["FLOPs"], ["FLOPs for each byte"]],
    "tensors": [["path", "weight"], ["", "shape"], ["each", "each"], ["", "copies"], ["total", "all"], ["", "share"]],
    "file": ["tensor", "type", "shape", ["each"], ["copies"], ["values"], ["bytes"]],
    "types": ["type", ["tensors"], ["values"], ["bytes"], ["share"]],
}
"""Of tables; what stands in a list is a number. Those of tensors with what they are sorted by."""
FILE_ERRORS = {
    "entry": "{0} should have a dtype, a shape and two data_offsets",
    "dtype": "{0} has the unknown dtype {1}",
    "bits": "{0} has more bits than 64 bits count",
    "bytes": "{0} is no whole number of bytes",
    "offsets": "{0}: {1} bytes, its offsets {2} apart",
    "empty": "it ends before its header begins",
    "header": "its header should have {0} bytes; {1} follow",
    "long": "its header has {0} bytes, more than are read",
    "brace": "its header should begin with {",
    "metadata": "__metadata__ should be an object of strings",
    "tensors": "{0} tensors are more than are read",
    "string": "a string is too long, or has lone surrogates",
    "hole": "{0} before {1}, at byte {2} of the tensors",
    "short": "it is {0} bytes short",
    "rest": "{0} bytes at its end belong to no tensor",
    "inside": "it ends inside its header, at byte {0}",
    "most": "{0} {1}; at most {2}",
    "nul": "a name holds a NUL",
    "value": "a value of the unknown type {0}",
    "boolean": "a boolean is {0}",
    "arrays": "an array of arrays",
    "array": "an array of {0} elements does not fit the file",
    "strings": "more than {0} strings in arrays",
    "typed": "{0} should be {1}, not {2}",
    "twice": "the tensor {0} occurs twice",
    "dimensions": "{0} has {1} dimensions",
    "shape": "{0} has an empty dimension, or too many elements",
    "type": "{0} has the unknown type {1}",
    "rows": "{0}: rows should be a multiple of {1} elements for {2}",
    "begin": "{0} should begin at {1} of the tensors, not at {2}",
    "version": "GGUF's version should be 2 or 3, not {0}",
    "fit": "{0} tensors and {1} keys do not fit the file",
    "many": "{0} tensors and {1} keys are more than are read",
    "alignment": "the alignment should be a power of two, not {0}",
    "cut": "it ends inside its header",
    "longer": "its header is longer than {0} bytes",
    "key": "the key {0} occurs twice",
    "utf": "a name is not UTF-8",
    "expected": "expected {0} at character {1}, found {2}",
    "digits": "a number of hundreds of digits",
    "values": "more than {0} values",
    "deep": "it is too long or too deep to be read",
    "text": "it is not UTF-8",
    "whole": "{0} is no whole number",
    "given": "{0} is not given",
    "other": "{0} is other than in this page's model",
    "config": "it is longer than a configuration",
    "object": "it holds no object",
    "forms": "this page has no forms for a model_type of {0}",
    "empty key": "an empty key",
}
"""Why the header of a dropped file is not read."""

UI_STRINGS: dict[str, Any] = {
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
    "stored": "n: the numbers of the weight; out, in: its rows and columns.",
    "cut": "Sequences are filled up to the next length that tensor parallelism cuts evenly.",
    "step": [
        "FLOPs for each token, of its matrices:",
        "FLOPs of this pass:",
        "Remembered from here on, of all sequences:",
        "It has no weights.",
    ],
    "fixed": "not moved here, as the total is no form of it. `llamath count --set KEY=VALUE` counts any value.",
    "chosen": "these, or any others",
    "some": "; not all are drawn",
    "shared": "the shared one, which every token passes",
    "itself": "What it says of itself",
    "cards": "Cards, by what the fullest GPU holds",
    "signs": "+ more in the second; −, with a dashed edge: fewer",
    "agreed": " keys say the same; * a default, – no such key",
    "nothing": "Nothing was found that contradicts the configuration.",
    "checkpoint": [
        f"The checkpoint is {x}." for x in ("not what its configuration says", "whole: its files are what the configuration says")
    ],
    "count": "a count: 405B, 1.5e9, 500M or 8,030,261,248",
    "matrices": " parameters each; matrices to one scale, as wide as they read, as high as they write",
    "pieces": "one GPU holds its pieces of the matrices that are cut, and whole what every GPU has.",
    "largest": "the largest T with all(T) ≤ memory of the card",
    "clipboard": "No clipboard here: copy the selected text.",
    "percent": "rounded to a hundredth of a percent",
    "ridge": "ridge: where memory and arithmetic take as long",
    "axes": ["tokens of each sequence; k 1,024, M 1,048,576", "GiB"],
    "columns": COLUMNS,
    "sliders": {"run": ["Context", "Batch"], "train": ["Tokens of a sequence", "Sequences at a time"]},
    "plane": ["FLOPs for each byte read", "FLOP/s of each GPU"],
    "header": "bytes of which the header alone was read, here",
    "names": [["path", "canonical"], ["hf", "Hugging Face"], ["meta", "Meta"], ["gguf", "GGUF"]],
    "shapes": [["letters", "letters"], ["numbers", "numbers"]],
    "themes": [["", "as the system"], ["light", "light"], ["dark", "dark"]],
    "modes": [["run", "Run it"], ["train", "Train it"]],
    "refused": FILE_ERRORS,
    "maps": TREEMAP_MEASURES,
    "by": TREEMAP_GROUPINGS,
    "passes": PASSES,
    "flops": "2 for each weight that a token passes, and the products of queries, keys and values.",
    "stages": {"decode": "stages take turns, so they add up.", "prefill": "stages work side by side: the fullest counts."},
    "bounds": {
        "memory": "bytes over the bandwidth take longer than FLOPs over the peak",
        "arithmetic": "FLOPs over the peak take longer than bytes over the bandwidth",
    },
    "ceilings": SPEED_LIMIT_NOTE,
}
"""Texts by where they are said."""
