"""`page_tokenizer`: a tokenizer.json as the page's own tokenizer reads it; one that it would read
differently from the `tokenizers` package is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....tokenizers.pretokenizers import SPLIT_PATTERNS
from ....utils.errors import LlamathError, safe

_SPACE = "▁"
_MAX_PATTERN = 1000
_CASES = {"s": "sSſ", "k": "kK\u212a"}
"""Letters that more than two characters equal where case is ignored."""
_ESCAPE = re.compile(r"\\(?:p\{(?:L|N|P|S|M|Lu|Ll|Lt|Lm|Lo|Nd|Zs)\}|[rnt]|u[0-9a-fA-F]{4})")
_PUNCTUATION = frozenset(r"!#$%&'()*+,-./:;<=>?@[\]^_`{|}~" + '"')
_SYNTAX_IN_JS = frozenset(r"^$\.*+?()[]{}|/")
"""What a regular expression of JavaScript with the flag u may escape, outside of a class, beside
the hyphen."""
_QUANTIFIER = re.compile(r"[*+?]|\{\d{1,4}(?:,\d{0,4})?\}")


def page_tokenizer(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return what the page reads: the kind, the texts of tokens by their ids, merges, and the
    regular expressions that split a text.
    """
    reader = _Reader(source)
    model = reader.mapping(data.get("model"), "model")
    reader.expect("model", model.get("type", "BPE"), "BPE")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key) not in (None, "", 0, 0.0):
            raise reader.error(f"model.{key}", model[key])
    splits, is_bytes, byte_prefix = reader.splits(data.get("pre_tokenizer"))
    prefix, metaspace = reader.spaces(data.get("normalizer"), data.get("pre_tokenizer"))
    if is_bytes == metaspace:
        raise reader.error("pre_tokenizer", data.get("pre_tokenizer"))
    added = [
        reader.mapping(x, "added_tokens")
        for x in reader.array(data.get("added_tokens"), "added_tokens")
    ]
    for x in added:
        if not isinstance(x.get("content"), str):
            raise reader.error("added_tokens", x.get("content"))
        if any(x.get(key) for key in ("lstrip", "rstrip", "single_word")):
            raise reader.error("added_tokens", x.get("content"))
    return {
        "kind": "bytes" if is_bytes else "characters",
        "texts": reader.texts(model, added),
        "merges": [list(x) for x in reader.merges(model)],
        "added": [[x["content"], x["id"]] for x in added],
        "splits": splits,
        "ignoreMerges": bool(model.get("ignore_merges")),
        "prefix": byte_prefix if is_bytes else prefix,
        "start": reader.start(data.get("post_processor")),
        "special": [x["id"] for x in added if x.get("special")],
    }


class _Reader:
    """Reads the parts of one file, and refuses what the page does not have."""

    def __init__(self, source: str) -> None:
        self.source = source

    def error(self, where: str, found: object) -> LlamathError:
        """Make the error for something that the page's tokenizer lacks."""
        return LlamathError(
            f"{safe(self.source)}: a page cannot run this tokenizer: {where} is "
            f"{safe(str(found), 120)}",
            hint="a page runs byte-pair encoding over bytes, or over characters with ▁ for spaces",
        )

    def mapping(self, value: object, where: str) -> Mapping[str, Any]:
        """Return a JSON object."""
        if not isinstance(value, Mapping):
            raise self.error(where, value)
        return value

    def array(self, value: object, where: str) -> Sequence[Any]:
        """Return a JSON array; an absent one is empty."""
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.error(where, value)
        return value

    def expect(self, where: str, found: object, expected: object) -> None:
        """Refuse any other value."""
        if found != expected:
            raise self.error(where, found)

    def texts(self, model: Mapping[str, Any], added: list[Mapping[str, Any]]) -> list[str]:
        """Return the texts of all tokens by id."""
        vocab = dict(self.mapping(model.get("vocab"), "model.vocab"))
        for x in added:
            vocab[x["content"]] = x.get("id")
        by_id: dict[int, str] = {}
        for text, number in vocab.items():
            if not isinstance(text, str) or type(number) is not int or not 0 <= number < 2**20:
                raise self.error("a token", f"{text!r} with the id {number!r}")
            by_id.setdefault(number, text)
        return [by_id.get(i, "") for i in range(max(by_id, default=-1) + 1)]

    def merges(self, model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the pairs that are merged."""
        for x in self.array(model.get("merges"), "model.merges"):
            pair = x.split(" ") if isinstance(x, str) else x
            if not (
                isinstance(pair, Sequence)
                and len(pair) == 2
                and all(isinstance(y, str) for y in pair)
            ):
                raise self.error("model.merges", x)
            yield pair[0], pair[1]

    def splits(self, part: object) -> tuple[list[str], bool, dict[str, Any] | None]:
        """Return the expressions by which text is split, whether the rest is bytes, and what is
        put before a text.
        """
        found: list[str] = []
        is_bytes, prefix = False, None
        for x in self._sequence(part, "pretokenizers"):
            kind = x.get("type")
            if is_bytes:
                raise self.error("pre_tokenizer", kind)
            if kind == "Split":
                self.expect("behavior", x.get("behavior"), "Isolated")
                self.expect("invert", bool(x.get("invert")), False)
                found.append(self._pattern(self.mapping(x.get("pattern"), "pattern")))
            elif kind == "Digits":
                found.append(r"\p{N}" if x.get("individual_digits") else r"\p{N}+")
            elif kind == "ByteLevel":
                is_bytes = True
                if x.get("add_prefix_space"):
                    prefix = {"text": " ", "each": True, "once": True}
                if x.get("use_regex", True):
                    found += [javascript_pattern(y) for y in SPLIT_PATTERNS["gpt-2"]]
            elif kind != "Metaspace":
                raise self.error("pre_tokenizer", kind)
        return found, is_bytes, prefix

    def _pattern(self, pattern: Mapping[str, Any]) -> str:
        if isinstance(text := pattern.get("String"), str):
            return re.sub(r"[.*+?^${}()|\[\]\\/]", r"\\\g<0>", text)
        try:
            return javascript_pattern(str(pattern.get("Regex")))
        except ValueError as error:
            raise self.error("pattern", error) from None

    def _sequence(self, part: object, key: str) -> list[Mapping[str, Any]]:
        if part is None:
            return []
        one = self.mapping(part, key)
        if one.get("type") != "Sequence":
            return [one]
        return [self.mapping(x, key) for x in self.array(one.get(key), key)]

    def spaces(self, normalizer: object, part: object) -> tuple[dict[str, Any] | None, bool]:
        """Return what is put before a text, and whether ▁ stands for a space."""
        prefix: dict[str, Any] | None = None
        replaces = False
        for x in self._sequence(normalizer, "normalizers"):
            if x.get("type") == "Prepend" and not replaces:
                prefix = {"text": str(x.get("prepend")), "each": True, "once": False}
            elif x.get("type") == "Replace" and x.get("pattern") == {"String": " "}:
                self.expect("normalizer.content", x.get("content"), _SPACE)
                replaces = True
            else:
                raise self.error("normalizer", x.get("type"))
        for x in self._sequence(part, "pretokenizers"):
            if x.get("type") != "Metaspace":
                continue
            self.expect("Metaspace.replacement", x.get("replacement"), _SPACE)
            self.expect("Metaspace.split", x.get("split", True), False)
            scheme = x.get("prepend_scheme", "always")
            if scheme not in ("always", "first", "never"):
                raise self.error("Metaspace.prepend_scheme", scheme)
            each = scheme == "always"
            prefix = None if scheme == "never" else {"text": _SPACE, "each": each, "once": True}
            replaces = True
        if prefix is not None and not replaces:
            raise self.error("normalizer", "Prepend without Replace")
        return prefix, replaces

    def start(self, part: object) -> list[int]:
        """Return the ids before every text."""
        ids: list[int] = []
        for x in self._sequence(part, "processors"):
            if x.get("type") == "ByteLevel":
                continue
            self.expect("post_processor", x.get("type"), "TemplateProcessing")
            tokens = self.mapping(x.get("special_tokens"), "special_tokens")
            single = self.array(x.get("single"), "single")
            template = [item for y in single for item in self.mapping(y, "single").items()]
            if not template or template[-1][0] != "Sequence":
                raise self.error("post_processor", "a token after the text")
            for kind, y in template[:-1]:
                self.expect("post_processor", kind, "SpecialToken")
                name = self.mapping(y, "single").get("id")
                token = self.mapping(tokens.get(str(name)), "special_tokens")
                ids += self.array(token.get("ids"), "special_tokens")
        if not all(type(x) is int for x in ids):
            raise self.error("post_processor", ids)
        return ids


def javascript_pattern(pattern: str) -> str:
    r"""Return a regular expression of the `tokenizers` package as one of JavaScript with the flags
    g and u: `\s` is Unicode's white space in both, and groups without case are written out.

    Raises ValueError where the two may differ: possessive quantifiers, look-behinds, anchors.
    """
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(f"longer than {_MAX_PATTERN:,} characters")
    out: list[str] = []
    at, in_class, closers = 0, False, [False]  # whether case is ignored in each open group
    after_quantifier = False
    while at < len(pattern):
        c, rest = pattern[at], pattern[at:]
        found = _ESCAPE.match(rest)
        quantifier = None if in_class else _QUANTIFIER.match(rest)
        if quantifier:
            if after_quantifier:
                raise ValueError(f"a quantifier follows another one: {rest[:20]}")
            out.append(quantifier[0])
            at += len(quantifier[0])
            after_quantifier = True
            continue
        after_quantifier = False
        if found:
            out.append(found[0])
            at += len(found[0])
        elif rest.startswith((r"\s", r"\S")):
            out.append(r"\p{White_Space}" if rest[1] == "s" else r"\P{White_Space}")
            at += 2
        elif c == "\\" and len(rest) > 1 and rest[1] in _PUNCTUATION:
            out.append(_literal(rest[1], in_class))
            at += 2
        elif c == "\\":
            raise ValueError(f"it has {rest[:2]}")
        elif in_class:
            if rest.startswith(("&&", "[")):
                raise ValueError("it has a set operation in a class")
            out.append(c if c in "]-" or (c == "^" and out[-1] == "[") else _literal(c, True))
            in_class = c != "]"
            at += 1
        elif c == "[":
            if closers[-1]:
                raise ValueError("it has a class that ignores case")
            out.append("[")
            in_class = True
            at += 1
        elif c == "(":
            start = next((x for x in ("(?i:", "(?:", "(?!", "(?=") if rest.startswith(x)), None)
            if start is None:
                raise ValueError(f"it has {rest[:4]}")
            closers.append(closers[-1] or start == "(?i:")
            out.append("(?:" if start == "(?i:" else start)
            at += len(start)
        elif c == ")":
            if len(closers) == 1:
                raise ValueError("it has a parenthesis too many")
            closers.pop()
            out.append(")")
            at += 1
        elif c in "^$.":
            raise ValueError(f"it has {c}")
        else:
            if closers[-1] and not c.isascii():
                raise ValueError(f"it ignores the case of {c}")
            cases = _CASES.get(c.lower(), c.lower() + c.upper())
            out.append(
                f"[{cases}]"
                if closers[-1] and c.isalpha()
                else c
                if c == "|"
                else _literal(c, False)
            )
            at += 1
    if in_class or len(closers) > 1:
        raise ValueError("it ends within a group")
    return "".join(out)


def _literal(c: str, in_class: bool) -> str:
    """Return a character that stands for itself."""
    if c in _SYNTAX_IN_JS or (in_class and c == "-"):
        return "\\" + c
    return c
