"""`LinearRegex`: match regular expressions from untrusted files in linear time, by simulating a nondeterministic automaton.

Python's own matcher backtracks, so a pattern such as `(a+)+b` takes exponential time. This one supports Python's syntax without lookaround,
back references and atomic groups, which no automaton of this kind can express, and decides only whether a whole text matches.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from .errors import ConfigError, safe

MAX_PATTERN, MAX_STATES, _MAX_CACHE = 20_000, 20_000, 4_096
"""Maximum characters of a pattern, states of its automaton, and sets of states that are cached."""

_Test = Callable[[str], bool]


class _Position(NamedTuple):
    """What assertions at a position of the text see."""

    at_start: bool
    at_end: bool
    is_boundary: bool  # of a word


class _State:
    """A state: moves to `next` on a character that passes `test`, or to any of `free` without one, where `assertion` holds."""

    __slots__ = ("assertion", "free", "next", "test")

    def __init__(self) -> None:
        self.test: _Test | None = None
        self.next = -1
        self.free: list[int] = []
        self.assertion = ""


class LinearRegex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._states: list[_State] = []
        if len(pattern) > MAX_PATTERN:
            raise _unsupported(pattern, f"it has {len(pattern):,} characters, at most {MAX_PATTERN:,} are supported")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # on sets that a later Python may read as nested
                tree = parser.parse(pattern)
            if tree.state.flags & ~re.UNICODE:
                raise _unsupported(pattern, "flags are not supported")
            self._end = self._add()
            self._start = self._sequence(tree, self._end)
        except (re.error, RecursionError, OverflowError) as error:
            raise _unsupported(pattern, str(error)) from None
        self._moves: dict[tuple[frozenset[int], _Position, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches, as `re.fullmatch` decides it."""
        states = frozenset([self._start])
        for i, char in enumerate(text):
            key = (states, _position(text, i), char)
            found = self._moves.get(key)
            if found is None:
                reached = self._closure(states, key[1])
                found = frozenset(x.next for x in map(self._states.__getitem__, reached) if x.test and x.test(char))
                if len(self._moves) >= _MAX_CACHE:
                    self._moves.clear()
                self._moves[key] = found
            states = found
            if not states:
                return False
        return self._end in self._closure(states, _position(text, len(text)))

    def _closure(self, states: Iterable[int], position: _Position) -> set[int]:
        """Return the states that are reached without a character."""
        waiting, reached = list(states), set(states)
        while waiting:
            state = self._states[waiting.pop()]
            if not state.assertion or _holds(state.assertion, position):
                waiting += [x for x in state.free if x not in reached]
                reached.update(state.free)
        return reached

    def _add(self) -> int:
        if len(self._states) >= MAX_STATES:
            raise _unsupported(self.pattern, "its repetitions are too long")
        self._states.append(_State())
        return len(self._states) - 1

    def _add_free(self, *targets: int) -> int:
        index = self._add()
        self._states[index].free += targets
        return index

    def _sequence(self, items: Any, target: int) -> int:
        """Add the states of a sequence that continues at `target`; returns the first."""
        for operator, argument in reversed(list(items)):
            target = self._item(operator, argument, target)
        return target

    def _item(self, operator: Any, argument: Any, target: int) -> int:
        if operator is constants.BRANCH:
            return self._add_free(*(self._sequence(branch, target) for branch in argument[1]))
        if operator is constants.SUBPATTERN:
            _, added, removed, items = argument
            if added or removed:
                raise _unsupported(self.pattern, "flags are not supported")
            return self._sequence(items, target)
        if operator in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            least, most, repeated = argument
            return self._repeat(least, most, repeated, target)
        index = self._add()
        state = self._states[index]
        if operator is constants.AT:
            state.assertion = str(argument)
            if state.assertion not in _ASSERTIONS:
                raise _unsupported(self.pattern, f"{state.assertion} is not supported")
            state.free.append(target)
            return index
        test = _test(operator, argument)
        if test is None:
            raise _unsupported(self.pattern, f"{operator} is not supported")
        state.test, state.next = test, target
        return index

    def _repeat(self, least: int, most: Any, items: Any, target: int) -> int:
        if most is constants.MAXREPEAT:
            loop = self._add_free(target)
            self._states[loop].free.append(self._sequence(items, loop))
            target = loop
        else:
            end = target
            for _ in range(most - least):
                target = self._add_free(end, self._sequence(items, target))
        for _ in range(least):
            target = self._sequence(items, target)
        return target


def _position(text: str, i: int) -> _Position:
    before, after = i > 0 and _is_word(text[i - 1]), i < len(text) and _is_word(text[i])
    return _Position(i == 0, i == len(text), before != after)


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


_ASSERTIONS: dict[str, Callable[[_Position], bool]] = {
    "AT_BEGINNING": lambda x: x.at_start,
    "AT_BEGINNING_STRING": lambda x: x.at_start,
    "AT_END": lambda x: x.at_end,
    "AT_END_STRING": lambda x: x.at_end,
    "AT_BOUNDARY": lambda x: x.is_boundary,
    "AT_NON_BOUNDARY": lambda x: not x.is_boundary,
}
_CATEGORIES: dict[str, _Test] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda x: not x.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda x: not x.isspace(),
    "CATEGORY_WORD": _is_word,
    "CATEGORY_NOT_WORD": lambda x: not _is_word(x),
}


def _holds(assertion: str, position: _Position) -> bool:
    return _ASSERTIONS[assertion](position)


def _test(operator: Any, argument: Any) -> _Test | None:
    """Return the test of one character."""
    if operator is constants.ANY:
        return lambda x: x != "\n"
    if operator is constants.LITERAL:
        return chr(argument).__eq__
    if operator is constants.NOT_LITERAL:
        return chr(argument).__ne__
    if operator is constants.IN:
        return _any_of(argument)
    return None


def _any_of(items: Any) -> _Test | None:
    """Return the test of a set of characters."""
    negated = items[0][0] is constants.NEGATE
    singles: set[str] = set()
    tests: list[_Test] = []
    for operator, argument in items[negated:]:
        if operator is constants.LITERAL:
            singles.add(chr(argument))
        elif operator is constants.RANGE:
            first, last = map(chr, argument)
            tests.append(lambda x, first=first, last=last: first <= x <= last)  # type: ignore[misc]
        elif operator is constants.CATEGORY:
            tests.append(_CATEGORIES[str(argument)])
        else:
            return None
    return lambda x: (x in singles or any(test(x) for test in tests)) != negated


def _unsupported(pattern: str, reason: str) -> ConfigError:
    return ConfigError(f"the regular expression {safe(repr(pattern), 80)} cannot be matched: {safe(reason, 120)}")
