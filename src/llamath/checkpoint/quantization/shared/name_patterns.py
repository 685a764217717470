"""`NamePatterns`: which of the names and patterns in a quantization config name a module, by the
rule of the library that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ....utils.dotted_names import DottedNames
from .recipe_keys import refuse

if TYPE_CHECKING:
    from ....utils.linear_regex import PatternList

_PLAIN, _INDEX = r"[\w.]+", r"\.\d+(\.|$)"


class NamePatterns:
    """A list of names or patterns. Plain names with a layer's number match names and parents;
    `translate` makes regular expressions of others, or an empty string of those that match only
    like plain names.
    """

    def __init__(self, patterns: Iterable[str], translate: Callable[[str], str]) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        self.exact = frozenset(self.patterns)
        self._parents = DottedNames(self.patterns)
        special = {
            x: regex
            for x in self.patterns
            if not (re.fullmatch(_PLAIN, x) and re.search(_INDEX, x)) and (regex := translate(x))
        }
        self._special = tuple(special)
        self._regexes = pattern_list(special.values()) if special else None

    def find(self, names: Iterable[str]) -> str:
        """Return the pattern that matches one of the names or a parent, or an empty string."""
        for name in names:
            if found := [*self._parents.along(name)]:
                return self.patterns[found[-1]]
        return self.find_special(names)

    def find_special(self, names: Iterable[str]) -> str:
        """Return the first pattern, other than a plain name with a number, that matches one of
        the names; or an empty string.
        """
        if self._regexes is not None:
            for name in names:
                if (found := self._regexes.first_match(name)) is not None:
                    return self._special[found]
        return ""


def pattern_list(patterns: Iterable[str]) -> PatternList:
    """Return regular expressions of a config, those that cannot be matched being an error."""
    from ....utils.linear_regex import PatternList

    return PatternList(patterns, refuse)


def like_transformers(key: str) -> str:
    """Translate as transformers' `should_convert_module`: from the start to a boundary, as a
    regular expression, or as a suffix.
    """
    return rf"(?:{key})(?:(?<=\.)|(?=\.|$))|{suffix(key)}"


def suffix(key: str) -> str:
    """Translate the end of a name."""
    return f".*{re.escape(key)}$"


def inside_name(key: str) -> str:
    """Translate whole parts of a dotted name, anywhere in it."""
    return rf"(?:.*\.)?{re.escape(key.strip('.'))}(?:\.|$)"


def wildcard(key: str) -> str:
    """Translate a shell wildcard over the name; other names match exactly, or as a parent."""
    if not any(x in key for x in "*?["):
        return ""
    from ....utils.regex_syntax import wildcard_regex

    return wildcard_regex(key)


def marked_regex(key: str) -> str:
    """Translate `re:` and a regular expression; other names match exactly, or as a parent."""
    return key.removeprefix("re:") if key.startswith("re:") else ""


def whole_regex(key: str) -> str:
    """Translate a regular expression of the whole name; others match exactly, or as a parent."""
    return "" if re.fullmatch(_PLAIN, key) else f"(?:{key})$"
