"""The strings of the page: letters, keyboard help, notes and error messages."""

from __future__ import annotations

from typing import Any

from ...analysis.graph.operations.attention_operations import OVER_CACHED_KEYS
from ...analysis.learn.tour.stop_questions import SO_FAR
from ...analysis.understand.diff.causes import LETTER_CHANGES, LETTER_ORDER, METHOD
from ...analysis.understand.diff.structural_diff import HEAD_CHANGES

_SETTINGS = {
    "T": "T: tokens of each sequence",
    "B": "B: sequences",
    "chunk": "chunk: tokens of a prefill chunk",
    "act_bytes": "act_bytes: bytes per activation",
    "kv_block": "kv_block: elements per block of the KV cache",
    "kv_bytes": "kv_bytes: bytes per block of the KV cache",
    "conv_bytes": "conv_bytes: bytes per element of a convolution's state",
    "k": "k: experts per token",
    "TP": "TP: tensor-parallel ranks",
    "DP_weights": "DP_weights: data-parallel ranks over which ZeRO shards the weights",
    "DP_gradients": "DP_gradients: data-parallel ranks over which ZeRO shards the gradients",
    "DP_master": "DP_master: data-parallel ranks over which ZeRO shards the master weights",
    "DP_optimizer": "DP_optimizer: data-parallel ranks over which ZeRO shards the optimizer states",
    "W": "W: bytes of the matrices that a GPU reads in full",
    "R": "R: bytes of a lookup table, of which each token reads one row",
    "X": "X: bytes of expert matrices; the expected number of distinct experts is read",
}
"""The variables of the page's expressions, and letters that no count of parameters has; no other
letter is one of these symbols."""
_NAMED_EXPRESSIONS = {
    "M": "M: keys that a query attends to",
    "A": "A: query-key pairs",
    "Aw": "Aw: query-key pairs within the window",
    "Ac": "Ac: query-key pairs within chunks",
}
"""Symbols that stand for an expression."""
_KEYS = [
    ["Tab", "next control, picture, table, or numbers of a section"],
    ["← ↑ → ↓", "move within a picture, a table, a choice, or the numbers of a section"],
    ["Enter", "show how a number follows; open a part of a picture"],
    ["← → Space", "in the tour: back, next, play"],
    ["+ −", "zoom the picture of the model in and out"],
    ["Esc", "close; zoom out"],
    ["/", "find a tensor"],
    ["?", "keyboard shortcuts"],
]
_FILE_ERRORS = {
    "entry": "{0} should have a dtype, a shape and two data_offsets",
    "dtype": "{0} has the unknown dtype {1}",
    "bits": "{0} has a size that exceeds 64 bits",
    "bytes": "{0} does not fill whole bytes",
    "offsets": "{0}: {1} bytes, its offsets {2} apart",
    "instead": "it is {0}, not {1}",
    "empty": "the file ends before its header",
    "header": "the header should have {0} bytes; {1} follow",
    "long": "the header has {0} bytes, which is over the limit",
    "brace": "the header should begin with {",
    "metadata": "__metadata__ should be an object of strings",
    "tensors": "{0} tensors are over the limit",
    "string": "a string is too long, or has lone surrogates",
    "hole": "{0} before {1}, at byte {2} of the data",
    "short": "the file is {0} bytes short",
    "rest": "{0} bytes at the end belong to no tensor",
    "inside": "the file ends inside its header, at byte {0}",
    "most": "{0} {1}; at most {2}",
    "nul": "a name contains a NUL",
    "value": "a value has the unknown type {0}",
    "boolean": "a boolean is {0}",
    "arrays": "an array of arrays",
    "array": "an array of {0} elements does not fit into the file",
    "strings": "more than {0} strings in arrays",
    "typed": "{0} should be {1}, not {2}",
    "twice": "the tensor {0} occurs twice",
    "dimensions": "{0} has {1} dimensions",
    "shape": "{0} has an empty dimension, or too many elements",
    "type": "{0} has the unknown type {1}",
    "rows": "{0}: rows should be a multiple of {1} elements for {2}",
    "begin": "{0} should begin at byte {1} of the data, not at {2}",
    "version": "the GGUF version should be 2 or 3, not {0}",
    "fit": "{0} tensors and {1} keys do not fit into the file",
    "many": "{0} tensors and {1} keys are over the limit",
    "alignment": "the alignment should be a power of two, not {0}",
    "cut": "the file ends inside its header",
    "longer": "the header is longer than {0} bytes",
    "key": "the key {0} occurs twice",
    "utf": "a name is not UTF-8",
    "expected": "expected {0} at {1}, found {2}",
    "cut short": "expected {0} at {1}, found {2}, which may be cut short",
    "digits": "a number has hundreds of digits",
    "values": "more than {0} values",
    "deep": "the file is too long or too deeply nested",
    "text": "the file is not UTF-8",
    "mark": "it begins with a byte order mark, which JSON has none of: save it as UTF-8 without "
    "one",
    "whole": "{0} is not a whole number of at least 1",
    "large": "{0} is {1}; at most {2}",
    "params": "{0} is no key of Meta's params.json that this page knows",
    "vocabulary": "vocab_size is −1, which leaves it to the tokenizer: set it in the file (LLaMA 1 "
    "and 2: 32000, Code Llama: 32016, Llama 3: 128256)",
    "multiplier": "ffn_dim_multiplier is not a positive number",
    "index": "the file contains no weight_map, which an index should have",
    "given": "{0} is missing",
    "other": "{0} differs from that of {1}, the nearest model here",
    "config": "the file is too long for a config",
    "object": "the file contains no JSON object",
    "forms": "it describes {0}, and this page counts configs of {1}",
    "no forms": "this page has no closed forms. The command line reads it: `llamath count {0}`",
    "no type": "it has no model_type, which every config.json has: it is no config of a model",
    "other json": "it is {0}, not a model's configuration, which config.json is",
    "elsewhere": "it is {0}. `llamath ls {1}` reads it, and executes nothing in it; this page "
    "reads safetensors and GGUF",
    "kept": "this browser keeps nothing for the page that would count it: allow data of this site",
    "folder": "it is a folder. Drop its config.json, or all of its safetensors files; `llamath "
    "serve {0}` opens the whole of it",
    "several": "these are {0} files. Several are read together only if they are the safetensors "
    "files of one checkpoint",
    "no server": "the server does not answer. Does `llamath serve` still run?",
    "server": "the server answered with status {0}",
    "says": "{0}{1}",
    "no page": "{0} parameters. This type is only counted, so that there is no page of it: "
    "`llamath count` shows its tensors",
    "empty key": "an empty key",
}
"""Error messages for dropped files."""

UI_STRINGS: dict[str, Any] = {
    "letters": _SETTINGS,
    "symbols": _NAMED_EXPRESSIONS,
    "keys": _KEYS,
    "nothing": "Nothing contradicts the config.",
    "checkpoint": [
        "The checkpoint does not match its config.",
        "The checkpoint matches its config.",
    ],
    "percent": "rounded to a hundredth of a percent",
    "refused": _FILE_ERRORS,
    "method": METHOD,
    "order": LETTER_ORDER,
    "so_far": SO_FAR,
    "all_keys": OVER_CACHED_KEYS,
    "changes": LETTER_CHANGES | {"head": HEAD_CHANGES},
}
"""All strings by where they are used."""
