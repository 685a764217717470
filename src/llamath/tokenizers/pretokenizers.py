"""How byte-level vocabularies cut a text into words: the published expressions, and GGUF's names for them (`tokenizer.ggml.pre`).

Sources: the models' own tokenizer.json as quoted in llama.cpp's llama-vocab.cpp, and the packages of OpenAI and Meta.
"""

from __future__ import annotations

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BLANK = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + BLANK


def _words(digits: str) -> str:
    return rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANK}"


def _cased(digits: str, short: str = "") -> str:
    """Words that end where a capital begins one anew."""
    begin = r"[^\r\n\p{L}\p{N}]?"
    return rf"{begin}{UPPER}*{LOWER}+{short}|{begin}{UPPER}+{LOWER}*{short}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANK}"


SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (GPT2,),
    "digits": (r"\p{N}", GPT2),
    "llama-3": (_words(r"\p{N}{1,3}"),),
    "qwen2": (_words(r"\p{N}"),),
    "tekken": (_cased(r"\p{N}"),),
    "gpt-4o": (_cased(r"\p{N}{1,3}", SHORT + "?"),),
    "deepseek-v3": (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"),
}
"""Our name → the expressions, applied one after the other."""

PRE = {
    **dict.fromkeys("gpt-2 phi-2 mpt olmo jais trillion exaone4 a.x-4.0 mellum gigachat granite-docling".split(), "gpt-2"),
    **dict.fromkeys("starcoder refact command-r smollm codeshell exaone minerva-7b".split(), "digits"),
    **dict.fromkeys("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe glm4 chatglm-bpe".split(), "llama-3"),
    **dict.fromkeys("qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez grok-2 kormo".split(), "qwen2"),
    **dict.fromkeys("gpt-4o llama4 minimax-m2".split(), "gpt-4o"),
    **dict.fromkeys("deepseek-v3 hunyuan-dense".split(), "deepseek-v3"),
    "tekken": "tekken",
    "falcon": "falcon",
}
"""GGUF's name → ours."""

WHOLE = frozenset("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken".split())
"""GGUF's names of those that take a word that is a token as it is, and begin a text with their start token unless told otherwise."""
