"""The options of commands that ask questions, made from the records of the questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from ..questions.settings import Field, Question, Settings, Spec, split_keys
from ..questions.shared_fields import MODEL_NAME
from ..questions.value_kinds import MAX_VALUES, SERIES_NAME, YES_OR_NO, Kind, Several
from ..utils.errors import ArgumentError, safe
from .model_options import MODEL, SERIES, CompletedText

Q = TypeVar("Q", bound=Question)
Fields = Mapping[str, Field[Any]]


class FieldOption(click.Option):
    """An option for a field, or one whose keys are several fields.

    `group` is what it is about, if it is for one of the questions of its command.
    """

    def __init__(self, *names: Any, fields: Fields, group: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.field_names, self.group = tuple(fields), group
        self._fields = fields

    def is_key(self, name: str) -> bool:
        """Whether the value of a field is that of one key, as in `--set tolerance=0.5%`."""
        return len(self._fields) > 1 and not isinstance(self._fields[name].kind, Spec)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its `key=value`; none if it has another form."""
        takes_keys = len(self._fields) > 1 or any(
            isinstance(x.kind, Spec) for x in self._fields.values()
        )
        return tuple(_keys(self._fields)) if takes_keys else ()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its value."""
        first = next(iter(self._fields.values()))
        if len(self._fields) == 1:
            return first.schema()
        described = {"description": _help(self._fields)}
        return {"type": "array", "items": first.kind.schema, "maxItems": MAX_VALUES, **described}


class FieldArgument(click.Argument):
    """An argument for a field."""

    def __init__(self, *names: Any, field: Field[Any], **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.schema = field.schema()


class Asked:
    """What the options of a command ask, for the question that the command chooses."""

    def __init__(self, questions: tuple[type[Question], ...], given: Mapping[str, Any]) -> None:
        self._questions, self.given = questions, given

    def names_only(self, question: type[Question]) -> list[str]:
        """Return the given options that no other question of the command has."""
        others = {x for q in self._questions if q is not question for x in q.described}
        return [x for x in self.given if x in question.described and x not in others]

    def parse(self, question: type[Q], **more: Any) -> Q:
        """Return a question; an option of another one is an error."""
        for other in self._questions:
            for name in self.given:
                if name in other.described and name not in question.described:
                    raise ArgumentError(name, f" is for {other.about}, not for {question.about}")
        values = {x: _for_field(x, question, y) for x, y in self.given.items()}
        return question.parse(**values | more)


def _for_field(name: str, question: type[Question], value: Any) -> Any:
    """Return the value of an option for a question, which may take one where another takes
    several.
    """
    if not isinstance(value, tuple) or isinstance(question.described[name].kind, Several):
        return value
    if len(value) > 1:
        raise ArgumentError(name, f" is given several times; {question.about} takes one")
    return value[0]


def option_name(name: str, field: Field[Any]) -> str:
    """Return how an option is typed."""
    return field.option or f"--{name.replace('_', '-')}"


def completed(kind: Kind[Any]) -> CompletedText:
    """Return the type of an option whose words the shell completes."""
    return CompletedText(kind.words or tuple)


def field_option(
    record: type[Settings], name: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the option of one field of a record; the command gets its text."""
    field = record.described[name]
    return click.option(
        option_name(name, field),
        default=field.signature_default,
        metavar=field.kind.metavar,
        help=field.text(),
    )


def asks(
    *questions: type[Question],
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Add the options of questions; the command gets what was `asked`."""

    def decorate(command: Callable[..., int | None]) -> Callable[..., int | None]:
        fields: dict[str, Field[Any]] = {}
        for question in questions:
            for name, field in question.described.items():
                fields.setdefault(name, field)
        options = _by_option(fields)

        @wraps(command)
        def wrapper(*arguments: Any, **rest: Any) -> int | None:
            given: dict[str, Any] = {}
            for own in options.values():
                first = next(iter(own))
                given |= _given(own, {first: rest.pop(first)})
            return command(*arguments, asked=Asked(questions, given), **rest)

        decorated: Callable[..., int | None] = wrapper
        for name, own in reversed(options.items()):
            owners = [q for q in questions if own.keys() <= q.described.keys()]
            group = "" if len(owners) > 1 else owners[0].about
            required = all(
                x in q.described and q.described[x].is_required for x in own for q in questions
            )
            for decorator in reversed(list(_options(name, own, group, required))):
                decorated = decorator(decorated)
        return decorated

    return decorate


def _by_option(fields: Fields) -> dict[str, dict[str, Field[Any]]]:
    """Return the options, each with its fields."""
    options: dict[str, dict[str, Field[Any]]] = {}
    for name, field in fields.items():
        options.setdefault(option_name(name, field), {})[name] = field
    return options


def _given(own: Fields, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an option by the fields that they are for."""
    given = {x: y for x, y in values.items() if y not in (None, (), False)}
    first = next(iter(own))
    if len(own) == 1 or not given:
        return given
    found = split_keys(",".join(given[first]), first, _keys(own))
    parts: dict[str, Any] = {}
    for name, x in own.items():
        if not isinstance(x.kind, Spec):
            parts |= {name: _key_value(first, name, x, found[name])} if name in found else {}
        elif mine := {key: found[key] for key in x.kind.keys if key in found}:
            parts[name] = ",".join(f"{key}={value}" for key, value in mine.items())
    return parts


def _keys(own: Fields) -> dict[str, Field[Any]]:
    """Return the keys of an option that several fields share."""
    keys: dict[str, Field[Any]] = {}
    for name, field in own.items():
        keys |= field.kind.key_fields() if isinstance(field.kind, Spec) else {name: field}
    return keys


def _key_value(argument: str, key: str, field: Field[Any], value: str) -> Any:
    try:
        return field.parse(key, value)
    except ArgumentError:
        problem = f": {key}={safe(value, 40)}: expected {field.kind.expected}"
        raise ArgumentError(argument, problem) from None


def _help(own: Fields) -> str:
    """Return the help of an option, which names the keys of all its fields."""
    first = next(iter(own.values()))
    if len(own) == 1:
        return first.text(lambda x: f"--{x.replace('_', '-')}")
    words = [
        x.kind.keys_in_words if isinstance(x.kind, Spec) else f"{name}={x.example}"
        for name, x in own.items()
    ]
    return f"{first.help.rstrip('.')}: {', '.join(words)}."


def _options(name: str, own: Fields, group: str, required: bool) -> Iterator[Callable[[Any], Any]]:
    """Yield the decorators that add the options of a field, or of several with one option."""
    first, field = next(iter(own.items()))
    if field.positional:
        many = {"nargs": -1} if isinstance(field.kind, Several) else {}
        yield click.argument(first, required=required, cls=FieldArgument, field=field, **many)
        return
    settings: dict[str, Any] = {
        "metavar": "KEY=VALUE,…" if len(own) > 1 else field.kind.metavar,
        "multiple": len(own) > 1 or isinstance(field.kind, Several),
        "required": required,
    }
    if field.kind is YES_OR_NO:
        settings = {"is_flag": True}
    elif field.kind is SERIES_NAME:
        settings["type"] = SERIES
    elif field.kind is MODEL_NAME:
        settings["type"] = MODEL
    elif field.kind.words:
        settings["type"] = completed(field.kind)
    if field.bare:
        settings |= {"is_flag": False, "flag_value": field.bare}
    shown = field.shown_default if len(own) == 1 else ""
    text = _help(own)
    if field.bare:
        text = f"{text.rstrip('.')}; {name} alone: {field.bare}."
    yield click.option(
        name,
        first,
        cls=FieldOption,
        fields=own,
        group=group,
        help=f"{text}  [default: {shown}]" if shown else text,
        **settings,
    )
