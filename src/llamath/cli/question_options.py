"""The options of commands that ask questions, made from the records of the questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from ..questions.settings import Field, Question, Settings, Spec
from ..questions.shared_fields import GPUS_OR_FILE, MODEL_NAME
from ..questions.value_kinds import SERIES_NAME, YES_OR_NO, Kind, Several
from ..utils.errors import ArgumentError, safe
from .model_options import MODEL, SERIES, CompletedText
from .output import is_captured, note
from .user_defaults import settings_path, user_defaults

Q = TypeVar("Q", bound=Question)


class FieldOption(click.Option):
    """An option for a field; `group` is what it is about, if it is for one of the questions of its
    command.
    """

    def __init__(self, *names: Any, field: Field[Any], group: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.field, self.group = field, group

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its `key=value`; none if it has another form."""
        return tuple(self.field.kind.keys) if isinstance(self.field.kind, Spec) else ()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its value."""
        return self.field.schema()


class FieldArgument(click.Argument):
    """An argument for a field."""

    def __init__(self, *names: Any, field: Field[Any], **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.schema = field.schema()


class Asked:
    """What the options of a command ask, for the question that the command chooses."""

    def __init__(
        self,
        questions: tuple[type[Question], ...],
        typed: Mapping[str, Any],
        defaults: Mapping[str, Any] = {},
    ) -> None:
        self._questions, self.typed = questions, typed
        self.given = {**defaults, **typed}

    def names_only(self, question: type[Question]) -> list[str]:
        """Return the given options that no other question of the command has."""
        others = {x for q in self._questions if q is not question for x in q.described}
        return [x for x in self.typed if x in question.described and x not in others]

    def parse(self, question: type[Q], **more: Any) -> Q:
        """Return a question; an option of another one is an error."""
        for other in self._questions:
            for name in self.typed:
                if name in other.described and name not in question.described:
                    raise ArgumentError(name, f" is for {other.about}, not for {question.about}")
        taken = (x for x in self.given if x in question.described or x in self.typed)
        values = {x: _for_field(x, question, self.given[x]) for x in taken}
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
        name,
        cls=FieldOption,
        field=field,
        default=None if field.is_required else field.signature_default,
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

        @wraps(command)
        def wrapper(*arguments: Any, **rest: Any) -> int | None:
            values = {name: rest.pop(name) for name in fields}
            given = {x: y for x, y in values.items() if y not in (None, (), False)}
            asked = _complete(questions, given, rest.get("form"))
            return command(*arguments, asked=asked, **rest)

        decorated: Callable[..., int | None] = wrapper
        for name, field in reversed(fields.items()):
            owners = [q for q in questions if name in q.described]
            group = "" if len(owners) > 1 else owners[0].about
            required = all(name in q.described and q.described[name].is_required for q in questions)
            decorated = _option(name, field, group, required)(decorated)
        return decorated

    return decorate


def _complete(
    questions: tuple[type[Question], ...], typed: dict[str, Any], form: str | None
) -> Asked:
    """Return what is asked, with this machine in place of `this` and the defaults of the user; a
    program gets neither, and with --json no defaults.
    """
    if is_captured():
        return Asked(questions, typed)
    defaults: dict[str, str] = {}
    if form != "json":
        defaults = user_defaults(click.get_current_context().info_name or "", typed)
    if typed.get("on") == "all":  # in place of a default
        del typed["on"]
    if defaults:
        told = ", ".join(f"{x} {safe(y, 60)}" for x, y in defaults.items())
        note(f"{told}: from {safe(settings_path(), 200)}")
    for values in (typed, defaults):
        if not isinstance(on := values.get("on"), str) or "this" not in on.lower():
            continue
        from .this_machine_option import names_this, replace_this

        if names_this(on):
            fields = [q.described["on"] for q in questions if "on" in q.described]
            takes_file = any(x.kind is GPUS_OR_FILE for x in fields)
            values["on"] = replace_this(on, takes_file=takes_file)
    return Asked(questions, typed, defaults)


def _option(
    name: str, field: Field[Any], group: str, required: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator that adds the option of a field."""
    if field.positional:
        is_model = field.kind is MODEL_NAME
        how: dict[str, Any] = {"type": MODEL, "metavar": "[MODEL]"} if is_model else {}
        how |= {"nargs": -1} if isinstance(field.kind, Several) else {}
        return click.argument(name, required=required, cls=FieldArgument, field=field, **how)
    settings: dict[str, Any] = {
        "metavar": field.kind.metavar,
        "multiple": isinstance(field.kind, Several),
        "required": required,
    }
    kind = field.kind.kind if isinstance(field.kind, Several) else field.kind
    if kind is YES_OR_NO:
        settings = {"is_flag": True}
    elif kind is SERIES_NAME:
        settings["type"] = SERIES
    elif kind is MODEL_NAME:
        settings["type"] = MODEL
    elif field.kind.words:
        settings["type"] = completed(field.kind)
    if field.bare:
        settings |= {"is_flag": False, "flag_value": field.bare}
    option, shown = option_name(name, field), field.shown_default
    text = field.text(lambda x: f"--{x.replace('_', '-')}")
    if field.bare:
        text = f"{text.rstrip('.')}; {option} alone: {field.bare}."
    return click.option(
        option,
        name,
        cls=FieldOption,
        field=field,
        group=group,
        help=f"{text}  [default: {shown}]" if shown else text,
        **settings,
    )
