"""Values that a template computes with besides text, numbers, lists and dicts, and the budget
that bounds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any, ClassVar, NamedTuple


class TemplateError(Exception):
    """An error in a template, or one that it raises itself."""


class BudgetExceeded(TemplateError):
    """A template needs more operations or memory than any published one."""


class Limits(NamedTuple):
    """The limits of one rendering, per text that is passed in and in all."""

    # nodes evaluated, elements visited, and characters written, eight of which count as one
    operations: int = 3_000_000
    operations_per_character: int = 4  # of the messages, tools and arguments
    integer_bits: int = 1024
    macro_depth: int = 48
    range_length: int = 100_000  # as in Jinja's sandbox
    padding: int = 1000  # characters of a field width or an indentation
    nesting: int = 100  # lists in lists


VIEWS: tuple[type[Any], ...] = (type({}.keys()), type({}.items()), type({}.values()))
CONTAINERS: tuple[type[Any], ...] = (list, tuple, Mapping, *VIEWS)
"""What is compared and written element by element."""
_SHORT = 2500
"""Characters of a text that Python searches by comparing at every position; longer ones take
linear time."""


class Budget:
    """The operations that are left."""

    def __init__(self, limits: Limits, input_characters: int) -> None:
        self.limits = limits
        self.total = self.left = (
            limits.operations + limits.operations_per_character * input_characters
        )

    def charge(self, operations: int) -> None:
        """Take operations off the budget."""
        self.left -= operations
        if self.left < 0:
            raise BudgetExceeded(f"expected at most {self.total:,} operations, found more")

    def charge_text(self, length: int) -> None:
        """Take a text of this length off the budget, before it is made."""
        self.charge(1 + length // 8)

    def charge_search(self, text: str, part: str) -> None:
        """Take what finding one text in another costs off the budget."""
        short = min(len(text), _SHORT)
        self.charge_text(len(text) + len(part) + short * min(short, len(part)) // 128)

    def charge_value(self, value: object, *, indent: int = 0, separators: int = 0) -> None:
        """Take what hashing, comparing or writing a value costs, every element of a list as often
        as it occurs, off the budget.

        Written as JSON, an element has separators, and an indentation for each list that it is in.
        A value that is nested so deeply that these could exhaust the stack is refused.
        """
        level: list[Any] = [value]
        depth = 0
        while level:
            if depth > self.limits.nesting:
                raise BudgetExceeded(
                    f"a value is nested too deeply: expected at most {self.limits.nesting} levels"
                )
            depth += 1
            around = (indent * depth + separators) // 8
            inner: list[Any] = []
            for x in level:
                if isinstance(x, str):
                    self.charge_text(len(x))
                elif isinstance(x, Mapping):
                    self.charge(1 + 2 * len(x) + around * (len(x) + 1))
                    inner += x.keys()
                    inner += x.values()
                elif isinstance(x, CONTAINERS):
                    self.charge(1 + len(x) + around * (len(x) + 1))
                    inner += x
                else:
                    self.charge(1)
            level = inner

    def items(self, values: Iterable[Any]) -> list[Any]:
        """Return what an iteration visits, after it is paid for."""
        self.charge(length_hint(values))
        return list(values)

    def check_padding(self, width: object) -> None:
        """Refuse a width that no prompt needs, and take as many characters off the budget."""
        if isinstance(width, int):
            if abs(width) > self.limits.padding:
                raise BudgetExceeded(
                    f"expected a width of at most {self.limits.padding:,}, found {width:,}"
                )
            self.charge_text(abs(width))

    def check_number(self, value: Any) -> Any:
        """Return a number; refuse an integer that no prompt needs."""
        if isinstance(value, int) and value.bit_length() > self.limits.integer_bits:
            raise BudgetExceeded(
                f"expected integers of at most {self.limits.integer_bits:,} "
                f"bits, found one of {value.bit_length():,}"
            )
        return value


class Undefined:
    """A name or key that does not exist: empty as text and in loops, false, and an error in
    everything else.
    """

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __str__(self) -> str:
        return ""

    def __repr__(self) -> str:
        return "Undefined"

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undefined)

    def __hash__(self) -> int:
        return hash(Undefined)

    def error(self) -> TemplateError:
        """Return the error of using it."""
        return TemplateError(f"{self.what} is undefined")


class Namespace:
    """The result of `namespace(…)`: an object with variables that survive a loop."""

    __slots__ = ("variables",)

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables
        for name in variables:
            check_attribute_name(name)


def check_attribute_name(name: object) -> None:
    """Refuse a name that leads into Python."""
    if isinstance(name, str) and name.startswith("_"):
        raise TemplateError(f"access to the attribute {name[:60]!r} is not allowed")


class Group(tuple[Any, ...]):
    """A group of items, as a tuple of what they share and of themselves; both have names."""

    __slots__ = ()
    names: ClassVar[tuple[str, ...]] = ("grouper", "list")


class Function:
    """Something that a template can call, and nothing else."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.call = name, call


class Joiner:
    """The result of `joiner(…)`: empty at the first call, the separator after it."""

    def __init__(self, separator: str) -> None:
        self.separator, self.used = separator, False

    def __call__(self) -> str:
        first, self.used = not self.used, True
        return "" if first else self.separator


class Cycler:
    """The result of `cycler(…)`."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items, self.at = items, 0
        if not items:
            raise TemplateError("cycler: expected at least one item, found none")

    @property
    def current(self) -> Any:
        """The next item, without moving on."""
        return self.items[self.at]

    def next(self) -> Any:
        """Return the next item."""
        item, self.at = self.current, (self.at + 1) % len(self.items)
        return item

    def reset(self) -> None:
        """Start again."""
        self.at = 0


class Loop:
    """The variable `loop` of a for loop."""

    def __init__(
        self, items: Sequence[Any], depth: int, recurse: Callable[..., Any] | None, budget: Budget
    ) -> None:
        self.items, self.depth, self.at = items, depth, 0
        self._recurse, self._budget = recurse, budget
        self._last: tuple[Any, ...] | None = None

    def _neighbor(self, at: int, name: str) -> Any:
        return self.items[at] if 0 <= at < len(self.items) else Undefined(f"loop.{name}")

    def __call__(self, items: Any) -> Any:
        if self._recurse is None:
            raise TemplateError("loop(…) needs a loop marked as recursive")
        return self._recurse(items, self.depth + 1)

    def _cycle(self, *values: Any) -> Any:
        if not values:
            raise TemplateError("loop.cycle: expected at least one value, found none")
        return values[self.at % len(values)]

    def _changed(self, *values: Any) -> bool:
        self._budget.charge_value(values)
        changed, self._last = values != self._last, values
        return changed

    attributes: ClassVar[dict[str, Callable[[Loop], Any]]] = {
        "index0": lambda self: self.at,
        "index": lambda self: self.at + 1,
        "revindex0": lambda self: len(self.items) - self.at - 1,
        "revindex": lambda self: len(self.items) - self.at,
        "first": lambda self: self.at == 0,
        "last": lambda self: self.at == len(self.items) - 1,
        "length": lambda self: len(self.items),
        "depth": lambda self: self.depth,
        "depth0": lambda self: self.depth - 1,
        "previtem": lambda self: self._neighbor(self.at - 1, "previtem"),
        "nextitem": lambda self: self._neighbor(self.at + 1, "nextitem"),
        "cycle": lambda self: Function("loop.cycle", self._cycle),
        "changed": lambda self: Function("loop.changed", self._changed),
    }
