"""`PatternList`: match names against the regular expressions of a file in linear time, with one
limit for all of them together.

Python's own matcher backtracks, so that a pattern such as `(?:a?){30}b` takes exponential time.
Here the patterns of a list become one nondeterministic automaton, which is simulated on sets of
states. Patterns that begin alike share states, and what a set of states does with a character, or
with a part of a dotted name, is computed once. Every visit of a state is counted: a list that needs
more than `MAX_STEPS` is refused, however many names it is matched with.

A lookahead at the start of a pattern, as in `(?!.*vision).*proj`, is a pattern of its own that must
match or must not. Other lookaheads and lookbehinds are answered first, the innermost first, for all
positions of a text: lookbehinds by reading it forwards, lookaheads by reading it backwards with an
automaton of the reversed expression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from .errors import ConfigError, LlamathError, safe
from .regex_syntax import (
    ANYTHING,
    Assertion,
    Characters,
    Choice,
    Item,
    Items,
    Look,
    RegexError,
    Repeat,
    parse_regex,
)

MAX_STATES, MAX_STEPS = 200_000, 5_000_000
"""The most states of the automaton of a list, and visits of its states in all texts together."""
_MAX_CACHE = 500_000
"""The most states in the sets of states that are kept, and cached moves between them."""
_LAST_LINE_BREAK = "\n$"
"""A line break at the end of a text, before which `$` holds."""
_NO_STATES: list[int] = []
_NONE = 1 << 62
"""The index of no pattern."""

_Test = Callable[[str], bool]
_Condition = Callable[[str, str], bool]
"""Whether an assertion holds between two characters; at the edge of the text one is empty."""


class PatternList:
    """Regular expressions in the order of a file; `refuse` makes the error for those that cannot
    be matched.
    """

    def __init__(
        self, patterns: Iterable[str], refuse: Callable[[str], LlamathError] = ConfigError
    ) -> None:
        self._budget = _Budget(refuse)
        self._automaton = _Automaton(self._budget)
        self._conjunctions = _Conjunctions(self._budget)
        # patterns with other lookarounds, each for itself
        self._looking: list[tuple[int, _Automaton]] = []
        pattern = ""
        try:
            for i, pattern in enumerate(patterns):
                self._add(parse_regex(pattern), i)
        except RegexError as error:
            reason = (
                f"the regular expression {safe(repr(pattern), 80)} cannot be matched: "
                f"{safe(str(error), 120)}"
            )
            raise refuse(reason) from None
        for automaton in (
            self._automaton,
            self._conjunctions.automaton,
            *(x for _, x in self._looking),
        ):
            automaton.finish()

    @property
    def steps(self) -> int:
        """The number of states that were visited."""
        return self._budget.steps

    def first_match(self, text: str) -> int | None:
        """Return the index of the first pattern that matches at the start of a text, as
        `re.match` decides it.
        """
        lowest = min(self._automaton.read_name(text)[1], self._conjunctions.read(text)[1])
        for index, automaton in self._looking:
            if index < lowest and any(automaton.read(text)):
                lowest = index
        return None if lowest == _NONE else lowest

    def full_matches(self, text: str) -> frozenset[int]:
        """Return the indices of the patterns that match the whole text, as `re.fullmatch`
        decides it.
        """
        found = self._automaton.read_name(text)[0] | self._conjunctions.read(text)[0]
        more = [index for index, automaton in self._looking if list(automaton.read(text))[-1]]
        return found.union(more) if more else found

    def match_parents(self, text: str) -> Iterator[bool]:
        """Yield, for each parent of a dotted name and at last the name itself, whether a pattern
        matches all of it.
        """
        for parent, found in self._automaton.read_parents(text):
            yield bool(
                found
                or self._conjunctions.read(parent)[0]
                or any(list(x.read(parent))[-1] for _, x in self._looking)
            )

    def _add(self, items: Items, index: int) -> None:
        if not _looks_far(items):
            self._automaton.add(items, index)
        elif not self._conjunctions.add(items, index):
            automaton = _Automaton(self._budget)
            automaton.add(items, index)
            self._looking.append((index, automaton))


class LinearRegex:
    """One pattern that is matched in linear time."""

    def __init__(self, pattern: str, refuse: Callable[[str], LlamathError] = ConfigError) -> None:
        self.pattern = pattern
        self._list = PatternList([pattern], refuse)

    @property
    def steps(self) -> int:
        """The number of states that were visited."""
        return self._list.steps

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches, as `re.fullmatch` decides it."""
        return bool(self._list.full_matches(text))

    def match(self, text: str) -> bool:
        """Whether the start of a text matches, as `re.match` decides it."""
        return self._list.first_match(text) is not None


class _Conjunctions:
    """Patterns that begin with lookaheads: the rest of each and what it looks for are sequences
    of one automaton.
    """

    def __init__(self, budget: _Budget) -> None:
        self.automaton = _Automaton(budget)
        self._budget = budget
        self._number = 0
        # index; number of the rest; those of looks, with the answer
        self._rules: list[tuple[int, int, tuple[tuple[int, bool], ...]]] = []
        self._known: dict[frozenset[int], tuple[frozenset[int], int]] = {}

    def add(self, items: Items, index: int) -> bool:
        """Add a pattern if it has lookarounds at its start alone."""
        start = items[: int(items[:1] == (Assertion("\\A"),))]
        first = takewhile(lambda x: isinstance(x, Look) and x.is_ahead, items[len(start) :])
        looks = [x for x in first if isinstance(x, Look)]
        rest = (*start, *items[len(start) + len(looks) :])
        if _looks_far(rest) or any(_looks_far(x.body) for x in looks):
            return False
        wanted = tuple((self._add((*x.body, ANYTHING)), not x.is_negated) for x in looks)
        self._rules.append((index, self._add(rest), wanted))
        self._add((*rest, ANYTHING))
        return True

    def _add(self, items: Items) -> int:
        self._number += 1
        self.automaton.add(items, self._number)
        return self._number

    def read(self, text: str) -> tuple[frozenset[int], int]:
        """Return the indices of the patterns that match the whole text, and the lowest of those
        that match at its start.
        """
        if not self._rules:
            return frozenset(), _NONE
        held = self.automaton.read_name(text)[0]
        if held not in self._known:
            self._budget.visit(len(held) + len(self._rules))
            matching = [
                (index, rest)
                for index, rest, looks in self._rules
                if all((x in held) is expected for x, expected in looks)
            ]
            lowest = min((index for index, rest in matching if rest + 1 in held), default=_NONE)
            self._known[held] = frozenset(index for index, rest in matching if rest in held), lowest
        return self._known[held]


class _Budget:
    """The states that were made and visited for a list of patterns."""

    def __init__(self, refuse: Callable[[str], LlamathError]) -> None:
        self.refuse, self.states, self.steps = refuse, 0, 0

    def build(self) -> None:
        """Count a state or a copy of a repeated part."""
        self.states += 1
        if self.states > MAX_STATES:
            raise RegexError(
                f"this list of patterns needs more than {MAX_STATES:,} states, the "
                "most that are supported"
            )

    def visit(self, steps: int) -> None:
        """Count visits of states."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise self.refuse(
                f"the regular expressions take more than {MAX_STEPS:,} steps to "
                "match, the most that are supported"
            )


class _State:
    """A state: moves to `next` on a character that passes `test`, or to any of `free` without
    one, where its condition holds.
    """

    __slots__ = ("condition", "free", "look", "next", "test")

    def __init__(self, free: list[int], test: _Test | None = None, target: int = -1) -> None:
        self.free, self.test, self.next = free, test, target
        self.condition: _Condition | None = None
        self.look = -1  # the number of a lookaround that was answered before


class _Node:
    """A set of states, and the character that was read last if a condition needs it."""

    __slots__ = ("ends", "last", "moves", "parts", "states")

    def __init__(self, states: tuple[int, ...], last: str) -> None:
        self.states, self.last = states, last
        self.moves: dict[tuple[str, int], tuple[_Node, frozenset[int]]] = {}
        self.parts: dict[str, tuple[_Node, int]] = {}
        self.ends: dict[str, tuple[frozenset[int], int]] = {}


class _Automaton:
    """The states of several sequences, each with an index; `is_reversed`: for reading a text
    backwards.
    """

    def __init__(self, budget: _Budget, is_reversed: bool = False) -> None:
        self._budget, self._is_reversed = budget, is_reversed
        self._looks: list[tuple[_Automaton, Look]] = []
        self._ends: dict[int, int] = {}  # state → index of a pattern
        # state and item → the state after it, which patterns that begin alike share
        self._after: dict[tuple[int, Item], int] = {}
        self._tests: dict[Characters, _Test] = {}
        self._needs_last = 0  # 1: whether a character was read before; 2: which one
        self._nodes: dict[tuple[tuple[int, ...], str], _Node] = {}
        self._cached = 0
        self._states: list[_State] = []
        self._root = self._add_state(_State([]))

    # Building

    def add(self, items: Items, index: int) -> None:
        """Add a sequence."""
        if len(items) == 1 and isinstance(items[0], Choice):
            for branch in items[0].branches:
                self.add(branch, index)
            return
        at = self._root
        for item in reversed(items) if self._is_reversed else items:
            after = self._after.get((at, item))
            if after is None:
                after = self._after[at, item] = self._add_state(_State([]))
                self._states[at].free.append(self._item(item, after))
            at = after
        end = self._add_state(_State(_NO_STATES))
        self._ends[end] = index
        self._states[at].free.append(end)

    def finish(self) -> None:
        """Forget what only building needs."""
        self._after.clear()

    def _add_state(self, state: _State) -> int:
        self._budget.build()
        self._states.append(state)
        return len(self._states) - 1

    def _sequence(self, items: Items, target: int) -> int:
        """Add the states of a sequence that continues at `target`; returns the first."""
        self._budget.build()
        for item in items if self._is_reversed else reversed(items):
            target = self._item(item, target)
        return target

    def _item(self, item: Item, target: int) -> int:
        if isinstance(item, Characters):
            test = self._tests.get(item) or self._tests.setdefault(item, _test(item))
            return self._add_state(_State(_NO_STATES, test, target))
        if isinstance(item, Choice):
            return self._add_state(_State([self._sequence(x, target) for x in item.branches]))
        if isinstance(item, Repeat):
            return self._repeat(item, target)
        state = _State([target])
        if (condition := _condition_of(item)) is not None:
            state.condition, needs = condition.holds, condition.needs
            self._needs_last = max(self._needs_last, needs[self._is_reversed])
        elif isinstance(item, Look):
            state.look = len(self._looks)
            automaton = _Automaton(self._budget, is_reversed=item.is_ahead)
            automaton.add((*item.body, ANYTHING) if item.is_ahead else (ANYTHING, *item.body), 0)
            automaton.finish()
            self._looks.append((automaton, item))
        return self._add_state(state)

    def _repeat(self, item: Repeat, target: int) -> int:
        if item.most is None:
            loop = self._add_state(_State([target]))
            self._states[loop].free.append(self._sequence(item.body, loop))
            target = loop
        else:
            end = target
            for _ in range(item.most - item.least):
                target = self._add_state(_State([end, self._sequence(item.body, target)]))
        for _ in range(item.least):
            target = self._sequence(item.body, target)
        return target

    # Reading

    def read_name(self, text: str) -> tuple[frozenset[int], int]:
        """Return the indices of the sequences that match the whole text, and the lowest of those
        that match at its start.

        A part of a dotted name that was read from a set of states is not read again.
        """
        lowest, node = _NONE, self._first_node()
        *parts, last = text.split(".")
        for part in parts:
            found = node.parts.get(part)
            if found is None:
                found = self._read_part(node, part)
            node = found[0]
            lowest = min(lowest, found[1])
            if not node.states:
                return frozenset(), lowest
        whole, first = node.ends.get(last) or self._read_end(node, last)
        return whole, min(lowest, first)

    def read_parents(self, text: str) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield each parent of a dotted name and the name itself, with the indices of the
        sequences that match all of it.
        """
        node, end = self._first_node(), -1
        for part in text.split("."):
            end += 1 + len(part)
            yield text[:end], (node.ends.get(part) or self._read_end(node, part))[0]
            node = (node.parts.get(part) or self._read_part(node, part))[0]

    def read(self, text: str) -> Iterator[frozenset[int]]:
        """Yield, for each position in the direction of reading, the indices of the sequences
        that match up to there.
        """
        self._budget.visit(1 + len(text) // 2)  # a move that is known takes half the time
        held = self._answer_looks(text)
        tokens = _tokens(text)
        node = self._first_node()
        for i in range(len(text), -1, -1) if self._is_reversed else range(len(text) + 1):
            token = (
                (tokens[i - 1] if i else "")
                if self._is_reversed
                else (tokens[i] if i < len(text) else "")
            )
            node, accepted = self._move(node, token, held[i] if held else 0)
            yield accepted

    def _answer_looks(self, text: str) -> list[int]:
        """Return, for each position of a text, a bit for each lookaround that holds there;
        nothing if there are none.
        """
        held = [0] * (len(text) + 1) if self._looks else []
        for number, (automaton, look) in enumerate(self._looks):
            for i, accepted in enumerate(automaton.read(text)):
                if bool(accepted) is not look.is_negated:
                    held[-1 - i if look.is_ahead else i] |= 1 << number
        return held

    def _first_node(self) -> _Node:
        if self._cached > _MAX_CACHE:
            self._forget()
        return self._node((self._root,), "")

    def _forget(self) -> None:
        self._nodes.clear()
        self._cached = 0

    def _node(self, states: tuple[int, ...], last: str) -> _Node:
        found = self._nodes.get((states, last))
        if found is None:
            if self._cached > _MAX_CACHE:
                self._forget()
            self._cached += 8 + len(states)
            found = self._nodes[states, last] = _Node(states, last)
        return found

    def _move(self, node: _Node, token: str, held: int) -> tuple[_Node, frozenset[int]]:
        found = node.moves.get((token, held))
        if found is None:
            self._cached += 4
            found = node.moves[token, held] = self._compute_move(node, token, held)
        return found

    def _compute_move(self, node: _Node, token: str, held: int) -> tuple[_Node, frozenset[int]]:
        """Return the states behind the next character, and the indices of the sequences that end
        before it.
        """
        states, char = self._states, token[:1]
        between = (token, node.last) if self._is_reversed else (node.last, token)
        reached, waiting = set(node.states), list(node.states)
        following, accepted, steps = set(), [], 0
        while waiting:
            at = waiting.pop()
            state = states[at]
            steps += 1 + len(state.free)
            if state.test is not None:
                if char and state.test(char):
                    following.add(state.next)
            elif at in self._ends:
                accepted.append(self._ends[at])
            elif (state.condition is None or state.condition(*between)) and (
                state.look < 0 or held >> state.look & 1
            ):
                waiting += [x for x in state.free if x not in reached]
                reached.update(state.free)
        self._budget.visit(steps)
        last = (token if self._needs_last > 1 else "x") if self._needs_last else ""
        return self._node(tuple(sorted(following)), last), frozenset(accepted)

    def _read_part(self, node: _Node, part: str) -> tuple[_Node, int]:
        """Return the states behind a part of a name and its dot, and the lowest index of the
        sequences that end in it.
        """
        start, lowest = node, _NONE
        for char in f"{part}.":
            node, accepted = self._move(node, char, 0)
            lowest = min(lowest, *accepted, lowest)
        self._cached += 4 + len(part)
        start.parts[part] = node, lowest
        return node, lowest

    def _read_end(self, node: _Node, part: str) -> tuple[frozenset[int], int]:
        """Return the indices of the sequences that end behind the last part of a name, and the
        lowest index of those that end in it.
        """
        start, lowest, accepted = node, _NONE, frozenset[int]()
        for token in (*_tokens(part), ""):
            node, accepted = self._move(node, token, 0)
            lowest = min(lowest, *accepted, lowest)
        self._cached += 4 + len(part)
        start.ends[part] = accepted, lowest
        return accepted, lowest


def _tokens(text: str) -> list[str]:
    return [*text[:-1], _LAST_LINE_BREAK] if text.endswith("\n") else list(text)


# Characters


def _test(item: Characters) -> _Test:
    """Return the test of one character."""
    if len(item.singles) == 1 and not (item.ranges or item.categories or item.ignore_case):
        (single,) = item.singles
        return single.__ne__ if item.is_negated else single.__eq__
    variants = (_ascii_variants if item.ascii else _variants) if item.ignore_case else None
    singles = (
        item.singles
        if variants is None
        else frozenset(y for x in item.singles for y in variants(x))
    )
    firsts = [x for x, _ in item.ranges]
    categories = [_categories(item.ascii)[x] for x in item.categories]

    def is_in_range(char: str) -> bool:
        at = bisect_right(firsts, char)
        return at > 0 and char <= item.ranges[at - 1][1]

    def passes(char: str) -> bool:
        found = char in singles or (
            bool(firsts) and any(map(is_in_range, (char,) if variants is None else variants(char)))
        )
        return (found or any(holds(char) for holds in categories)) is not item.is_negated

    return passes


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _is_ascii_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


@cache
def _categories(ascii_only: bool) -> dict[str, _Test]:
    digit: _Test = (lambda x: x.isascii() and x.isdecimal()) if ascii_only else str.isdecimal
    space: _Test = (lambda x: x in " \t\n\r\f\v") if ascii_only else str.isspace
    word = _is_ascii_word if ascii_only else _is_word
    tests = {"d": digit, "s": space, "w": word}
    return tests | {key.upper(): lambda x, test=test: not test(x) for key, test in tests.items()}


def _ascii_variants(char: str) -> tuple[str, ...]:
    return (char.lower(), char.upper()) if char.isascii() else (char,)


@cache
def _case_classes() -> dict[str, tuple[str, ...]]:
    """Return the characters that are equal without case, as Python's `re` compares them, by the
    capital of their small letter.
    """
    classes: dict[str, list[str]] = defaultdict(list)
    for char in map(chr, range(0x20000)):  # there are no letters with case beyond
        classes[char.lower()[0].upper()].append(char)
    return {key: tuple(x) for key, x in classes.items() if len(x) > 1}


def _variants(char: str) -> tuple[str, ...]:
    return _case_classes().get(char.lower()[0].upper(), (char,))


# Positions


class _Between(NamedTuple):
    """A condition on the characters before and after a position."""

    holds: _Condition
    # of the character before and that after it: 0 nothing, 1 whether there is one, 2 which
    needs: tuple[int, int]


def _word_boundary(is_word: _Test, is_boundary: bool) -> _Condition:
    def holds(before: str, after: str) -> bool:
        if not before and not after:  # Python before 3.14: neither holds in an empty text
            return False
        return (is_word(before[:1]) != is_word(after[:1])) is is_boundary

    return holds


_ASSERTIONS = {
    "\\A": _Between(lambda before, _: not before, (1, 0)),
    "\\Z": _Between(lambda _, after: not after, (0, 1)),
    "$": _Between(lambda _, after: after in ("", _LAST_LINE_BREAK), (0, 2)),
    "m^": _Between(lambda before, _: before[:1] in ("", "\n"), (2, 0)),
    "m$": _Between(lambda _, after: after[:1] in ("", "\n"), (0, 2)),
    "\\b": _Between(_word_boundary(_is_word, True), (2, 2)),
    "\\B": _Between(_word_boundary(_is_word, False), (2, 2)),
    "ab": _Between(_word_boundary(_is_ascii_word, True), (2, 2)),
    "aB": _Between(_word_boundary(_is_ascii_word, False), (2, 2)),
}


def _condition_of(item: Item) -> _Between | None:
    """Return the condition of an assertion, or of a lookaround at one character or position;
    None for any other lookaround.
    """
    if isinstance(item, Assertion):
        return _ASSERTIONS[item.kind]
    if not isinstance(item, Look):
        return None
    inner = (
        item.body[0].branches
        if len(item.body) == 1 and isinstance(item.body[0], Choice)
        else (item.body,)
    )
    conditions = [_at_character(x, item.is_ahead) for x in inner]
    found = [x.holds for x in conditions if x is not None]
    if len(found) < len(conditions):
        return None
    return _Between(
        lambda before, after: any(x(before, after) for x in found) is not item.is_negated, (2, 2)
    )


def _at_character(items: Items, is_ahead: bool) -> _Between | None:
    if len(items) != 1 or not isinstance(items[0], Characters | Assertion):
        return None
    if isinstance(item := items[0], Assertion):
        return _ASSERTIONS[item.kind]
    test = _test(item)
    if is_ahead:
        return _Between(lambda _, after: bool(after) and test(after[:1]), (0, 2))
    return _Between(lambda before, _: bool(before) and test(before[:1]), (2, 0))


def _looks_far(items: Items) -> bool:
    """Whether a sequence has a lookaround of more than one character."""
    for item in items:
        if isinstance(item, Look) and _condition_of(item) is None:
            return True
        inner = (
            item.branches
            if isinstance(item, Choice)
            else (item.body,)
            if isinstance(item, Repeat)
            else ()
        )
        if any(map(_looks_far, inner)):
            return True
    return False
