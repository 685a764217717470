"""`parse_regex`: parse Python's regular expressions into a tree, without running code of Python's
own private parser.

What a nondeterministic automaton cannot express is refused by name: back references, conditions on
groups, atomic groups and possessive repetitions. So are the flags `L` and `x` and the escape of
characters by name, which no published file has.
"""

from __future__ import annotations

import re
import string
from functools import cache
from typing import NamedTuple, NoReturn

MAX_PATTERN, MAX_DEPTH = 20_000, 100
"""The most characters of a pattern, and nested groups."""
_MAX_REPEATS = (1 << 32) - 1
"""Python's own limit of a repetition's bounds."""


class RegexError(ValueError):
    """A pattern that is no regular expression, or one that cannot be matched in linear time."""


class Flags(NamedTuple):
    """The flags that change what an item matches."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    ascii: bool = False


class Characters(NamedTuple):
    """One character of a set."""

    is_negated: bool
    singles: frozenset[str]
    ranges: tuple[tuple[str, str], ...] = ()  # sorted, without overlaps
    categories: tuple[str, ...] = ()  # letters of `\\d`, `\\D`, …
    ignore_case: bool = False
    ascii: bool = False


class Assertion(NamedTuple):
    """A position: the text's start or end, `$`, a word boundary or none; `m^`, `m$`, `ab` and
    `aB` are those with the flags m and a.
    """

    kind: str


class Repeat(NamedTuple):
    """An item that is repeated; without an upper limit, `most` is None."""

    least: int
    most: int | None
    body: Items


class Choice(NamedTuple):
    """Alternatives; a group is one with any number of them."""

    branches: tuple[Items, ...]


class Look(NamedTuple):
    """A lookahead or lookbehind."""

    body: Items
    is_ahead: bool
    is_negated: bool


Item = Characters | Assertion | Repeat | Choice | Look
Items = tuple[Item, ...]

ANY = Characters(True, frozenset())
"""Any character, also a line break."""
ANYTHING = Repeat(0, None, (ANY,))


@cache
def literal(char: str, ignore_case: bool = False, ascii_only: bool = False) -> Characters:
    """Return the set of one character; equal ones are one object, as patterns consist of them."""
    return Characters(False, frozenset(char), (), (), ignore_case, ascii_only)


def parse_regex(pattern: str) -> Items:
    """Parse a pattern."""
    if len(pattern) > MAX_PATTERN:
        raise RegexError(
            f"it has {len(pattern):,} characters, at most {MAX_PATTERN:,} are supported"
        )
    return _Parser(pattern).parse()


def width(items: Items) -> tuple[int, int | None]:
    """Return the least and the largest number of characters that a sequence matches; None: any
    number.
    """
    least, most = 0, 0
    bounded = True
    low: int
    high: int | None
    for item in items:
        if isinstance(item, Characters):
            low, high = 1, 1
        elif isinstance(item, Repeat):
            low, high = _repeated_width(item)
        elif isinstance(item, Choice):
            widths = [width(x) for x in item.branches]
            low = min(x for x, _ in widths)
            high = None if any(x is None for _, x in widths) else max(x or 0 for _, x in widths)
        else:
            low, high = 0, 0
        least += low
        bounded &= high is not None
        most += high or 0
    return least, most if bounded else None


def _repeated_width(item: Repeat) -> tuple[int, int | None]:
    low, high = width(item.body)
    if high == 0 or item.most == 0:
        return 0, 0
    return item.least * low, None if high is None or item.most is None else item.most * high


_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_OCTAL, _DIGITS, _HEX = frozenset("01234567"), frozenset(string.digits), frozenset(string.hexdigits)
_LETTERS = frozenset(string.ascii_letters)
_FLAGS = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "a": "ascii", "u": ""}
_OTHER_FLAGS = "Lxt"


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.flags, self.global_flags = Flags(), ""
        self.names: set[str] = set()

    def parse(self) -> Items:
        items = self._alternatives()
        if self.at < len(self.text):
            self._fail("unbalanced parenthesis")
        return items

    def _fail(self, problem: str) -> NoReturn:
        raise RegexError(f"{problem} at character {self.at + 1:,}")

    def _refuse(self, what: str) -> NoReturn:
        raise RegexError(f"{what} at character {self.at + 1:,} cannot be matched in linear time")

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        if self.at >= len(self.text):
            self._fail("unexpected end")
        self.at += 1
        return self.text[self.at - 1]

    def _accept(self, char: str) -> bool:
        found = self.text.startswith(char, self.at)
        self.at += len(char) * found
        return found

    def _take_while(self, allowed: frozenset[str], most: int) -> str:
        start = self.at
        while self.at < min(start + most, len(self.text)) and self.text[self.at] in allowed:
            self.at += 1
        return self.text[start : self.at]

    def _alternatives(self) -> Items:
        """Parse up to the end of a group."""
        branches: list[Items] = []
        while True:
            branches.append(self._sequence(may_set_flags=not self.depth and not branches))
            if not self._accept("|"):
                return branches[0] if len(branches) == 1 else (Choice(tuple(branches)),)

    def _sequence(self, may_set_flags: bool) -> Items:
        items: list[Item] = []
        while (char := self._peek()) and char not in "|)":
            self.at += 1
            if char == "(":
                item = self._group(may_set_flags and not items)
                items += () if item is None else (item,)
            elif char in "*+?{":
                self._repeat(char, items)
            else:
                items.append(self._atom(char))
        return tuple(
            y
            for x in items
            for y in (x.branches[0] if isinstance(x, Choice) and len(x.branches) == 1 else (x,))
        )

    def _atom(self, char: str) -> Item:
        if char == ".":
            return ANY if self.flags.dot_all else Characters(True, frozenset("\n"))
        if char == "^":
            return Assertion("m^" if self.flags.multiline else "\\A")
        if char == "$":
            return Assertion("m$" if self.flags.multiline else "$")
        if char == "[":
            return self._set()
        return self._escape() if char == "\\" else self._literal(char)

    def _literal(self, char: str) -> Characters:
        return literal(char, self.flags.ignore_case, self.flags.ignore_case and self.flags.ascii)

    def _characters(
        self, is_negated: bool, singles: set[str], ranges: list[tuple[str, str]], categories: str
    ) -> Characters:
        flags = self.flags
        depends = flags.ignore_case or bool(categories)
        merged = tuple(_merge(ranges))
        unique = "".join(dict.fromkeys(categories))
        return Characters(
            is_negated,
            frozenset(singles),
            merged,
            tuple(unique),
            flags.ignore_case,
            flags.ascii and depends,
        )

    def _repeat(self, char: str, items: list[Item]) -> None:
        """Replace the last item by its repetition; a brace that begins none is a literal."""
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char, (0, None))
        if char == "{":
            start = self.at
            low = self._take_while(_DIGITS, len(self.text))
            has_comma = self._accept(",")
            high = self._take_while(_DIGITS, len(self.text)) if has_comma else low
            if not self._accept("}") or not (low or has_comma):
                self.at = start
                items.append(self._literal(char))
                return
            if max(len(low), len(high)) > 10 or max(int(low or 0), int(high or 0)) >= _MAX_REPEATS:
                self._fail("the repetition number is too large")
            least, most = int(low or 0), int(high) if high else None
            if most is not None and most < least:
                self._fail("min repeat greater than max repeat")
        if not items or isinstance(items[-1], Assertion):
            self._fail("nothing to repeat")
        if isinstance(items[-1], Repeat):
            self._fail("multiple repeat")
        if self._accept("+"):
            self._refuse("a possessive repetition")
        self._accept("?")  # lazy: another match is tried first, but the same texts match
        body = items[-1]
        items[-1] = Repeat(least, most, (body,))

    # Groups

    def _group(self, may_set_flags: bool) -> Item | None:
        """Parse a group behind its parenthesis; a comment and flags for the whole pattern are no
        item.
        """
        if not self._accept("?"):
            return self._inside(self.flags)
        char = self._take()
        if char == "#":
            while (char := self._take()) != ")":
                self.at += char == "\\"
            return None
        if char in "=!":
            return self._look(is_ahead=True, is_negated=char == "!")
        if char == "<":
            if (char := self._take()) not in "=!":
                self._fail(f"unknown extension ?<{char}")
            return self._look(is_ahead=False, is_negated=char == "!")
        if char == "P":
            self._name()
        elif char == ">":
            self._refuse("an atomic group")
        elif char == "(":
            self._refuse("a condition on a group")
        elif char != ":":
            return self._with_flags(char, may_set_flags)
        return self._inside(self.flags)

    def _inside(self, flags: Flags) -> Choice:
        """Parse the inside of a group, with these flags, and its end; a group of one branch
        becomes part of the sequence around it.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"groups nested more than {MAX_DEPTH} deep")
        outer, self.flags = self.flags, flags
        body = self._alternatives()
        self.flags = outer
        if not self._accept(")"):
            self._fail("missing ), unterminated subpattern")
        self.depth -= 1
        return body[0] if len(body) == 1 and isinstance(body[0], Choice) else Choice((body,))

    def _look(self, is_ahead: bool, is_negated: bool) -> Look:
        body = self._inside(self.flags)
        if not is_ahead:
            least, most = width((body,))
            if least != most:
                self._fail("look-behind requires fixed-width pattern")
        return Look((body,), is_ahead, is_negated)

    def _name(self) -> None:
        kind = self._take()
        if kind == "=":
            self._refuse("a back reference")
        if kind != "<":
            self._fail(f"unknown extension ?P{kind}")
        name, end, _ = self.text[self.at :].partition(">")
        if not end or not name.isidentifier() or name in self.names:
            self._fail("a missing, bad or repeated group name")
        self.names.add(name)
        self.at += len(name) + 1

    def _with_flags(self, char: str, may_set_flags: bool) -> Item | None:
        """Parse `(?i)`, `(?i:…)` or `(?i-s:…)` from its first flag on."""
        added = self._flag_letters(char, ")-:")
        end = self._take() if added else char
        if not added and end != "-":
            self._fail(f"unknown extension ?{char}")
        if end == ")":
            if not may_set_flags:
                self._fail("global flags not at the start of the expression")
            self.global_flags += added
            self.flags = self._changed_flags(self.global_flags, "")
            return None
        removed = self._flag_letters(self._take(), ":") if end == "-" else ""
        if end == "-" and (not removed or not self._accept(":") or set(removed) & {*"au", *added}):
            self._fail("bad inline flags")
        return self._inside(self._changed_flags(added, removed))

    def _flag_letters(self, char: str, ends: str) -> str:
        """Take flags from this letter on, up to one of the ends."""
        letters = ""
        while char not in ends:
            if char in _OTHER_FLAGS:
                raise RegexError(f"the flag {char} is not supported")
            if char not in _FLAGS:
                self._fail(f"unknown extension ?{char}" if not letters else "unknown flag")
            letters += char
            char = self._take()
        self.at -= bool(letters)
        return letters

    def _changed_flags(self, added: str, removed: str) -> Flags:
        if {*"au"} <= {*added}:
            self._fail("bad inline flags")
        changes = {_FLAGS[x]: True for x in added if x != "u"} | {_FLAGS[x]: False for x in removed}
        return self.flags._replace(**({"ascii": False} if "u" in added else {}), **changes)

    # Sets and escapes

    def _set(self) -> Characters:
        is_negated = self._accept("^")
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        categories = ""
        is_empty = True
        while (char := self._take()) != "]" or is_empty:
            is_empty = False
            first, category = self._set_escape() if char == "\\" else (char, "")
            if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                last, other = self._set_escape() if (char := self._take()) == "\\" else (char, "")
                if category or other or last < first:
                    self._fail("bad character range")
                ranges.append((first, last))
            else:
                singles |= {first} if not category else set()
                categories += category
        return self._characters(is_negated, singles, ranges, categories)

    def _set_escape(self) -> tuple[str, str]:
        """Return the character of an escape in a set, or the letter of a category."""
        char = self._take()
        if char in "dDsSwW":
            return "", char
        if char == "b":
            return "\b", ""
        if char in _OCTAL:
            return self._octal(char + self._take_while(_OCTAL, 2)), ""
        return self._escaped(char), ""

    def _escape(self) -> Item:
        char = self._take()
        if char in "dDsSwW":
            return self._characters(False, set(), [], char)
        if char in "AZ":
            return Assertion(f"\\{char}")
        if char in "bB":
            return Assertion(f"a{char}" if self.flags.ascii else f"\\{char}")
        if char == "0":
            return self._literal(chr(int(char + self._take_while(_OCTAL, 2), 8)))
        if char in _DIGITS:
            octal = self.text[self.at - 1 : self.at + 2]
            if len(octal) < 3 or not _OCTAL.issuperset(octal):
                self._refuse("a back reference")
            self.at += 2
            return self._literal(self._octal(octal))
        return self._literal(self._escaped(char))

    def _octal(self, digits: str) -> str:
        if int(digits, 8) > 0o377:
            self._fail("octal escape value outside of range 0-0o377")
        return chr(int(digits, 8))

    def _escaped(self, char: str) -> str:
        """Return the character of an escape that means the same everywhere."""
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in _HEX_DIGITS:
            digits = self._take_while(_HEX, _HEX_DIGITS[char])
            if len(digits) < _HEX_DIGITS[char] or int(digits, 16) > 0x10FFFF:
                self._fail(f"bad escape \\{char}")
            return chr(int(digits, 16))
        if char in _LETTERS or char in _DIGITS:
            self._fail(f"bad escape \\{char}")
        return char


def _merge(ranges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the same ranges sorted and without overlaps, so that one is found by bisection."""
    merged: list[tuple[str, str]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def wildcard_regex(text: str) -> str:
    """Translate a shell wildcard as `fnmatch` reads it into a regular expression; Python's own
    translation has atomic groups.
    """
    found: list[str] = []
    i, last_end = 0, text.rfind("]")
    while i < len(text):
        char = text[i]
        i += 1
        first = i + text.startswith("!", i)
        if char == "*":
            found += [".*"] if found[-1:] != [".*"] else []
        elif char == "?":
            found.append(".")
        elif char == "[" and first + 1 <= last_end:
            end = text.index("]", first + 1)
            found.append(_wildcard_set(text[first:end], first > i))
            i = end + 1
        else:
            found.append(re.escape(char))
    return f"(?s:{''.join(found)})\\Z"


def _wildcard_set(text: str, is_negated: bool) -> str:
    """Translate the inside of brackets; a range that ends before it begins is empty."""
    found, i = "", 0
    while i < len(text):
        if text[i + 1 : i + 2] == "-" and i + 2 < len(text):
            found += (
                f"{re.escape(text[i])}-{re.escape(text[i + 2])}" if text[i] <= text[i + 2] else ""
            )
            i += 3
        else:
            found += re.escape(text[i])
            i += 1
    if not found:
        return "." if is_negated else r"[^\s\S]"
    return f"[{'^' * is_negated}{found}]"
