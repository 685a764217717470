"""`Settings` and `Question`: records whose fields are described once, and read from text or from
typed values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform, overload

from ..utils.errors import Argument, ArgumentError, LlamathError, nearest, safe
from ..utils.record_type import Record
from .value_kinds import Kind, Several

T = TypeVar("T")
D = TypeVar("D")
_REQUIRED: Any = object()


class Field(Generic[T]):
    """One field of a record: its kind, its default, and its help.

    `{name}` in a help stands for another field, which each caller spells in its own way. `example`
    is a value for the help of a record that is written as `key=value`. `option` is an option, or a
    key, that differs from the field. `default_text` describes a default that depends on other
    things, and `bare` is the value of an option without one.
    """

    def __init__(
        self,
        kind: Kind[T],
        *,
        help: str,  # noqa: A002
        default: Any = _REQUIRED,
        example: str = "",
        option: str = "",
        default_text: str = "",
        bare: str = "",
        positional: bool = False,
    ) -> None:
        self.kind, self.help, self.default, self.example = kind, help, default, example
        self.option, self.default_text, self.bare = option, default_text, bare
        self.positional = positional

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is _REQUIRED

    @property
    def shown_default(self) -> str:
        """The default as help shows it; empty if there is none worth showing."""
        if self.default_text or self.is_required:
            return self.default_text
        plain = isinstance(self.default, int | float | str) and not isinstance(self.default, bool)
        return str(self.default) if plain and self.default else ""

    @property
    def signature_default(self) -> Any:
        """The default in a signature: None stands for records and for no values."""
        return self.default if isinstance(self.default, bool | int | float | str) else None

    def parse(self, argument: str, value: object) -> Any:
        """Return the value of an argument, of which None is the default."""
        is_default = type(value) is type(self.default) and value == self.default
        if value is None or is_default or (value == "" and self.signature_default is None):
            if self.is_required:
                raise ArgumentError(argument, f" is missing: it should be {self.kind.expected}")
            return self.default
        return self.kind.parse(argument, value)

    def text(self, spell: Callable[[str], str] = str) -> str:
        """Return the help, with the keys of settings; `spell` spells the names of other fields."""
        words = re.sub(r"\{(\w+)\}", lambda found: spell(found[1]), self.help)
        if self.kind.keys_in_words:
            words = f"{words.rstrip('.')}: {self.kind.keys_in_words}."
        return words

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the value, with its default and its help."""
        found = {**self.kind.schema, "description": self.text()}
        if self.shown_default:
            found["description"] += f" Default: {self.shown_default}."
        if isinstance(self.default, bool | int | float) or (
            isinstance(self.default, str) and self.default
        ):
            found["default"] = self.default
        return found


@overload
def ask(
    kind: Kind[T],
    *,
    help: str,
    example: str = ...,
    option: str = ...,
    positional: bool = ...,
) -> T: ...
@overload
def ask(
    kind: Kind[T],
    *,
    help: str,
    default: D,
    example: str = ...,
    option: str = ...,
    default_text: str = ...,
    bare: str = ...,
    positional: bool = ...,
) -> T | D: ...
def ask(kind: Kind[Any], **described: Any) -> Any:
    """Describe a field of a record of settings."""
    return Field(kind, **described)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(ask,))
class Settings(Record):
    """A record whose fields are described. Its text form is `key=value,key=value`."""

    described: ClassVar[Mapping[str, Field[Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        described = dict(cls.described)
        for name in cls.fields:
            if isinstance(field := cls.__dict__.get(name), Field):
                described[name] = field
                if field.is_required:
                    delattr(cls, name)
                else:
                    setattr(cls, name, field.default)
        cls.described = described

    @classmethod
    def parse(cls, **values: object) -> Self:
        """Return the record with these values, each as text or as a typed value; None is the
        default.
        """
        if unknown := sorted(values.keys() - cls.described.keys()):
            raise TypeError(f"{cls.__name__} has no field {unknown[0]!r}")
        own = {name: x.parse(name, values.get(name)) for name, x in cls.described.items()}
        return cls(**own)

    @property
    def changed(self) -> list[str]:
        """The fields whose values differ from their defaults."""
        return [x for x, field in self.described.items() if getattr(self, x) != field.default]


class Spec(Kind[Any]):
    """Settings as one value: a record, or text such as `tp=8,pp=2`, perhaps with some of its keys
    only.

    Some keys are named otherwise than their fields, by `option`. `gone` says what to give instead
    of keys that went.
    """

    def __init__(
        self,
        record: type[Settings],
        keys: str = "",
        gone: Mapping[str, str | Argument] | None = None,
    ) -> None:
        self.record, self.gone = record, gone or {}
        named = {x.option or name: name for name, x in record.described.items()}
        self.keys = {x: named[x] for x in keys.split() or named}
        with_values = self._keys_with_values()
        examples = [x for x in with_values if "=" in x]
        super().__init__(
            lambda value: self.parse("", value),
            expected=f"text such as {','.join(examples[:2])!r} or a {record.__name__}",
            annotation=f"str | {record.__name__}",
            metavar="SPEC",
        )
        self.keys_in_words = ", ".join(with_values)

    def _keys_with_values(self) -> list[str]:
        """Return the keys, with values where there are examples, those first."""
        shown: list[str] = []
        others: list[str] = []
        for key, name in self.keys.items():
            example = self.record.described[name].example
            (shown if example else others).append(f"{key}={example}" if example else key)
        return shown + others

    def key_fields(self) -> dict[str, Field[Any]]:
        """Return the fields by their keys."""
        return {x: self.record.described[name] for x, name in self.keys.items()}

    def parse(self, argument: str, value: object) -> Any:
        """Return the record, whose values are checked."""
        values = self.values(argument, value)
        for key, name in self.keys.items():
            field = self.record.described[name]
            if field.is_required and name not in values:
                raise ArgumentError(argument, f" needs {key}, {field.kind.expected}")
        return self.record(**values)

    def values(self, argument: str, value: object) -> dict[str, Any]:
        """Return the fields that text names, or all of a record, with their values."""
        if isinstance(value, self.record):
            typed = {x: getattr(value, x) for x in value.fields}
            return {x: self._value(argument, x, x, y) for x, y in typed.items()}
        if not isinstance(value, str):
            raise ArgumentError(
                argument, f" should be {self.expected}, found {safe(repr(value), 60)}"
            )
        named = split_keys(value, argument, self.key_fields(), self.gone)
        return {self.keys[x]: self._value(argument, x, self.keys[x], y) for x, y in named.items()}

    def _value(self, argument: str, key: str, name: str, value: object) -> Any:
        field = self.record.described.get(name)
        if field is None or (not field.is_required and value == field.default):
            return value
        try:
            return field.kind.read(value)
        except LlamathError as error:
            raise ArgumentError(argument, f": {key}: {error}", hint=error.hint) from None
        except ValueError:
            shown = safe(value if isinstance(value, str) else repr(value), 40)
            raise ArgumentError(
                argument, f": {key}={shown}: expected {field.kind.expected}"
            ) from None


class SomeKeys(Spec):
    """Some of the settings of a record, as a mapping: text fixes those that it names, a record all
    of them.
    """

    def parse(self, argument: str, value: object) -> Any:
        """Return the keys with their values; a record may have no other settings."""
        values = self.values(argument, value)
        others = {x: y for x, y in values.items() if x not in self.keys.values()}
        for name, found in others.items():
            if found != getattr(self.record, name):
                hint = str(self.gone.get(name, ""))
                raise ArgumentError(argument, f": {name} is not taken here", hint=hint)
        return {key: values[name] for key, name in self.keys.items() if name in values}


def split_keys(
    text: str, argument: str, fields: Mapping[str, Field[Any]], gone: Mapping[str, str | Argument]
) -> dict[str, Any]:
    """Return the keys and values of `key=value,key=value`; words after a list continue it."""
    found: dict[str, Any] = {}
    last = ""
    for part in text.replace("×", ",").split(",") if text else ():
        name, equals, value = (x.strip() for x in part.partition("="))
        if not equals and name and isinstance(found.get(last), list):
            found[last].append(name)
            continue
        if name in gone:
            raise ArgumentError(argument, f": the key {name} has gone", hint=str(gone[name]))
        if name not in fields:
            near = nearest(name, fields)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(fields)}"
            raise ArgumentError(argument, f": unknown key {safe(repr(name), 40)}", hint=hint)
        if name in found:
            raise ArgumentError(argument, f": {name} is given twice")
        if not value:
            hint = f"like {name}=…; it takes {', '.join(fields)}"
            raise ArgumentError(argument, f": {name}: a value is missing", hint=hint)
        last, found[name] = name, [value] if isinstance(fields[name].kind, Several) else value
    return found


class Question(Settings):
    """A question about a model: what is asked besides the model.

    Its docstring is that of the public function that answers it.
    """

    function: ClassVar[str] = ""
    report: ClassVar[str] = ""
    """The type of what the function returns."""
    report_of_tensors: ClassVar[str] = ""
    """The type of what it returns of a model without a family, where that is another."""
    report_of_all: ClassVar[str] = ""
    """The type of what it returns without its first argument, if that may be left out."""
    models: ClassVar[tuple[str, ...]] = ("model",)
    """The arguments that are models."""
    loader: ClassVar[str] = "load_family"
    """The function that loads the models; `load` accepts those without a family. Empty: the
    answering function gets the arguments as given."""
    more: ClassVar[tuple[str, ...]] = ()
    """The arguments of the function that are no part of the question: how a model is built, and
    the callback for progress."""
    about: ClassVar[str] = ""
    """What it is about, in a word or two, where a command asks several questions: "training"."""
