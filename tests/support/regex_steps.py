"""Counts the steps of a backtracking regular-expression engine, so that a test can show how they grow with the text.

The patterns are compiled by Python's own parser into a small program of splits, jumps and tests, which a machine runs with a stack of
alternatives as Python's engine does; every instruction is a step. `adversarial_texts` makes the texts that let a repetition backtrack: the
shortest text that leads to it, a body repeated n times, and an end that cannot match.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

REPEATS = {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}
_MAX_COPIES = 200
"""Bounded repetitions are copied at most this many times into the program; a larger bound is not reached by the texts of a test."""
_MAX_STEPS = 1 << 18


class _Step(NamedTuple):
    """An instruction: a test of one character, a position, a choice, a jump, or a program of its own."""

    kind: str
    argument: Any = None
    other: Any = None


class StepCounter:
    """A compiled pattern that counts its steps."""

    def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
        text = pattern.decode("latin1") if isinstance(pattern, bytes) else pattern
        self.tree, self.flags, self.steps = _parser.parse(text, flags), int(flags), 0
        self.limit = _MAX_STEPS
        self._main = self._compile(self.tree)

    def match(self, text: str, start: int = 0, full: bool = False) -> int | None:
        """Return the end of the match at this position; None if there is none."""
        return self._run(self._main, text, start, full)

    def search_all(self, text: str) -> None:
        """Try every position as `findall`, `sub` and `split` do: a match continues at its end."""
        at = 0
        while at <= len(text):
            end = self.match(text, at)
            at = max(at + 1, end or 0)

    def _compile(self, tree: Any) -> list[_Step]:
        program: list[_Step] = []
        for code, argument in tree:
            program += self._compile_node(code, argument)
        return program

    def _compile_node(self, code: Any, argument: Any) -> list[_Step]:
        if code is op.SUBPATTERN:
            return self._compile(argument[3])
        if code is op.ATOMIC_GROUP:
            return [_Step("atomic", self._compile(argument))]
        if code in (op.ASSERT, op.ASSERT_NOT):
            return [
                _Step(
                    "ahead" if argument[0] > 0 else "behind",
                    self._compile(argument[1]),
                    code is op.ASSERT,
                )
            ]
        if code is op.BRANCH:
            return self._compile_branches([self._compile(x) for x in argument[1]])
        if code in REPEATS:
            return self._compile_repeat(code, *argument)
        if code is op.AT:
            return [_Step("at", argument)]
        return [_Step("char", (code, argument))]

    def _compile_branches(self, branches: list[list[_Step]]) -> list[_Step]:
        program = branches[-1]
        for branch in reversed(branches[:-1]):
            program = [
                _Step("split", 1, len(branch) + 2),
                *branch,
                _Step("jump", len(program) + 1),
                *program,
            ]
        return program

    def _compile_repeat(self, code: Any, least: int, most: int, tree: Any) -> list[_Step]:
        body = self._compile(tree)
        program = body * least
        if most is op.MAXREPEAT or most - least > _MAX_COPIES:
            loop = [*body, _Step("jump", -len(body) - 1)]
            enter, leave = 1, len(loop) + 1
            program += [
                _Step(
                    "loop" if tree.getwidth()[0] == 0 else "split",
                    *((leave, enter) if code is op.MIN_REPEAT else (enter, leave)),
                )
            ]
            program += loop
        else:
            rest: list[_Step] = []
            for _ in range(most - least):
                leave = len(body) + len(rest) + 1
                rest = [
                    _Step("split", *((leave, 1) if code is op.MIN_REPEAT else (1, leave))),
                    *body,
                    *rest,
                ]
            program += rest
        return [_Step("atomic", program)] if code is op.POSSESSIVE_REPEAT else program

    def _run(self, program: list[_Step], text: str, start: int, full: bool = False) -> int | None:
        stack: list[tuple[int, int, tuple[tuple[int, int], ...]]] = [(0, start, ())]
        while stack:
            pc, at, seen = stack.pop()
            while True:
                self.steps += 1
                if self.steps > self.limit:
                    raise TooManySteps
                if pc == len(program):
                    if full and at != len(text):
                        break
                    return at
                step = program[pc]
                if step.kind == "char":
                    if at == len(text) or not _is_in(step.argument, text[at], self.flags):
                        break
                    pc, at = pc + 1, at + 1
                elif step.kind in ("split", "loop"):
                    if (
                        step.kind == "loop"
                    ):  # a body that may be empty is not repeated at the same position
                        if (pc, at) in seen:
                            break
                        seen = (*(x for x in seen if x[0] != pc), (pc, at))
                    stack.append((pc + step.other, at, seen))
                    pc += step.argument
                elif step.kind == "jump":
                    pc += step.argument
                elif step.kind == "atomic":
                    end = self._run(step.argument, text, at)
                    if end is None:
                        break
                    pc, at = pc + 1, end
                elif step.kind == "ahead":
                    if (self._run(step.argument, text, at) is not None) is not step.other:
                        break
                    pc += 1
                elif step.kind == "behind":
                    width = len(step.argument)
                    if (
                        at >= width and self._run(step.argument, text, at - width) is not None
                    ) is not step.other:
                        break
                    pc += 1
                else:
                    if not _is_at(step.argument, text, at, self.flags):
                        break
                    pc += 1
        return None


def adversarial_texts(pattern: str | bytes, size: int) -> Iterator[str]:
    """Yield texts that make each repetition of a pattern backtrack, about `size` characters long."""
    text = pattern.decode("latin1") if isinstance(pattern, bytes) else pattern
    tree = _parser.parse(text)
    texts = dict.fromkeys(
        before + (body * (size // len(body) + 1))[:size] + end
        for before, bodies in _repeated_bodies(tree, "")
        for body in bodies
        for end in ("", "\0", " 1 1", body[0] + "\0", _shortest(tree))
    )
    yield from texts
    yield (_shortest(tree) or "a") * (size // (len(_shortest(tree)) or 1))


def _repeated_bodies(tree: Any, before: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the text that leads to each repetition, and the texts to repeat: the body, and what repetitions in it may match."""
    for code, argument in tree:
        if code in REPEATS:
            body = argument[2]
            inner = list(_repeated_bodies(body, before))
            bodies = [_shortest(body) or _sample(body), *(x for _, more in inner for x in more)]
            yield before, [x for x in dict.fromkeys(bodies) if x]
            yield from inner
        elif code is op.SUBPATTERN:
            yield from _repeated_bodies(argument[3], before)
        elif code is op.ATOMIC_GROUP:
            yield from _repeated_bodies(argument, before)
        elif code is op.BRANCH:
            for branch in argument[1]:
                yield from _repeated_bodies(branch, before)
        elif code in (op.ASSERT, op.ASSERT_NOT):
            yield from _repeated_bodies(argument[1], before)
        before += _shortest([(code, argument)])


def _sample(tree: Any) -> str:
    """Return a text that a tree matches, with optional parts taken once."""
    return _text_of(tree, 1)


def _shortest(tree: Any) -> str:
    """Return the shortest text that a tree matches."""
    return _text_of(tree, 0)


def _text_of(tree: Any, at_least: int) -> str:
    parts: list[str] = []
    for code, argument in tree:
        if code in REPEATS:
            parts.append(
                _text_of(argument[2], at_least) * max(argument[0], min(at_least, argument[1]))
            )
        elif code is op.SUBPATTERN:
            parts.append(_text_of(argument[3], at_least))
        elif code is op.ATOMIC_GROUP:
            parts.append(_text_of(argument, at_least))
        elif code is op.BRANCH:
            parts.append(min((_text_of(x, at_least) for x in argument[1]), key=len))
        elif code is op.LITERAL:
            parts.append(chr(argument))
        elif code not in (op.AT, op.ASSERT, op.ASSERT_NOT):
            parts.append(next(x for x in _CANDIDATES if _is_in((code, argument), x, 0)))
    return "".join(parts)


_CANDIDATES = [*" a0A-_./\"'x1,:", *map(chr, range(0x3000)), "\ud800", "\uffff"]
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s", op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


_IGNORECASE = int(re.IGNORECASE)  # an enumeration's `&` takes longer than the test of a character


def _is_in(node: tuple[Any, Any], char: str, flags: int) -> bool:
    code, argument = node
    if flags & _IGNORECASE and char.swapcase() != char and _is_in(node, char.swapcase(), 0):
        return True
    if code is op.LITERAL:
        return ord(char) == int(argument)
    if code is op.NOT_LITERAL:
        return ord(char) != int(argument)
    if code is op.ANY:
        return char != "\n" or bool(flags & re.DOTALL)
    if code is op.RANGE:
        return bool(argument[0] <= ord(char) <= argument[1])
    if code is op.CATEGORY:
        return re.match(_CATEGORIES[argument], char) is not None
    assert code is op.IN, code
    negated = argument[0][0] is op.NEGATE
    return any(_is_in(x, char, flags) for x in argument[negated:]) is not negated


def _is_at(code: Any, text: str, at: int, flags: int) -> bool:
    if code in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
        return at == 0 or (
            code is op.AT_BEGINNING and bool(flags & re.MULTILINE) and text[at - 1] == "\n"
        )
    if code in (op.AT_END, op.AT_END_STRING):
        return at >= len(text) - 1 or (bool(flags & re.MULTILINE) and text[at] == "\n")
    is_boundary = (at > 0 and text[at - 1].isalnum()) != (at < len(text) and text[at].isalnum())
    return is_boundary is (code is op.AT_BOUNDARY)


def growth(pattern: str | bytes, size: int, search: bool, flags: int = 0) -> tuple[float, str]:
    """Return the largest factor by which the steps grow when an adversarial text doubles, and the beginning of that text.

    A factor of more than 2 counts if the steps grow like this again when the text doubles once more: where a bounded repetition is full, the
    steps jump once.
    """
    worst, culprit = 0.0, ""
    for short, long, longest in zip(
        *(adversarial_texts(pattern, n * size) for n in (1, 2, 4)), strict=True
    ):
        few = _count(pattern, short, search, flags, _MAX_STEPS)
        many = _count(pattern, long, search, flags, 10 * few)
        factor = many / few
        if factor > max(worst, 2):
            factor = min(factor, _count(pattern, longest, search, flags, 10 * many) / many)
        worst, culprit = max((worst, culprit), (factor, f"{short[:20]!r}…{short[-5:]!r}"))
    return worst, culprit


def _count(pattern: str | bytes, text: str, search: bool, flags: int, limit: int) -> int:
    """Return the number of steps, or the limit if there are more."""
    counter = StepCounter(pattern, flags)
    counter.limit = limit
    try:
        if search:
            counter.search_all(text)
        else:
            counter.match(text, full=True)
    except TooManySteps:
        return limit
    return counter.steps


class TooManySteps(Exception):
    """The limit of a counter is reached."""
