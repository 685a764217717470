"""The regular expressions that split text before byte-level BPE, and GGUF's names for them
(`tokenizer.ggml.pre`).

Sources: the models' own tokenizer.json as quoted in llama.cpp's llama-vocab.cpp, and the packages
of OpenAI and Meta.
"""

from __future__ import annotations

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_WHITESPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
) + _WHITESPACE


def _words_and_digits(digits: str) -> str:
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| "
        rf"?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_WHITESPACE}"
    )


def _words_by_case(digits: str, short: str = "") -> str:
    """Split words before capital letters."""
    begin = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{begin}{_UPPER}*{_LOWER}+{short}|{begin}{_UPPER}+{_LOWER}*{short}|{digits}| "
        rf"?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_WHITESPACE}"
    )


SPLIT_PATTERNS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "digits": (r"\p{N}", _GPT2),
    "llama-3": (_words_and_digits(r"\p{N}{1,3}"),),
    "qwen2": (_words_and_digits(r"\p{N}"),),
    "tekken": (_words_by_case(r"\p{N}"),),
    "gpt-4o": (_words_by_case(r"\p{N}{1,3}", _CONTRACTIONS + "?"),),
    "deepseek-v3": (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", _DEEPSEEK),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
}
"""Name → the expressions, applied one after the other."""

GGUF_PRETOKENIZERS = {
    **dict.fromkeys(
        "gpt-2 phi-2 mpt olmo jais trillion exaone4 a.x-4.0 mellum gigachat "
        "granite-docling".split(),
        "gpt-2",
    ),
    **dict.fromkeys(
        "starcoder refact command-r smollm codeshell exaone minerva-7b".split(), "digits"
    ),
    **dict.fromkeys(
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx "
        "smaug-bpe glm4 chatglm-bpe".split(),
        "llama-3",
    ),
    **dict.fromkeys(
        "qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 kormo".split(), "qwen2"
    ),
    **dict.fromkeys("gpt-4o llama4 minimax-m2".split(), "gpt-4o"),
    **dict.fromkeys("deepseek-v3 hunyuan-dense".split(), "deepseek-v3"),
    "tekken": "tekken",
    "falcon": "falcon",
}
"""GGUF's name → the name in SPLIT_PATTERNS."""

IGNORE_MERGES = frozenset(
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken".split()
)
"""GGUF's names of pre-tokenizers that do not merge words that are tokens, and that add the bos
token by default."""
