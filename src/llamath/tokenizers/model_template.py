"""`ModelTemplate`: the chat template that a model was published with, and the arguments it is
rendered with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..utils.errors import LlamathError, nearest, safe
from .template_process import OwnTemplates, TemplateProcess

_RESERVED = ("messages", "add_generation_prompt")
_LISTS = ("tools", "documents")


class ModelTemplate:
    """One of the templates in a model's files. Without a choice it is `tool_use` if there are
    tools and such a template, else `default`.
    """

    def __init__(
        self,
        templates: Mapping[str, str],
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        choice: str = "",
        arguments: Mapping[str, Any] | None = None,
        process: TemplateProcess | OwnTemplates | None = None,
    ) -> None:
        self.templates, self.source, self.special_tokens = (
            dict(templates),
            source,
            dict(special_tokens or {}),
        )
        self.arguments = dict(arguments or {})
        self.choice = choice or (
            "tool_use"
            if self.arguments.get("tools") is not None and "tool_use" in templates
            else "default"
        )
        _check_arguments(self.arguments)
        if self.choice not in self.templates:
            near = nearest(self.choice, self.templates)
            hint = (
                f"did you mean {near[0]}?"
                if near
                else (f"choose one by its name: {', '.join(map(safe, self.templates))}")
            )
            raise LlamathError(
                f"{safe(source)} has no chat template named {safe(self.choice)!r}", hint=hint
            )
        self._process = process or TemplateProcess()

    @property
    def text(self) -> str:
        """The source of the template."""
        return self.templates[self.choice]

    @property
    def name(self) -> str:
        """The name of the template."""
        return "the model's own" if self.choice == "default" else f"the model's {safe(self.choice)}"

    @property
    def title(self) -> str:
        """What a chat is headed with."""
        return (
            "The model's own chat template"
            if self.choice == "default"
            else (f"The model's chat template {safe(self.choice)}")
        )

    def with_arguments(self, arguments: Mapping[str, Any]) -> ModelTemplate:
        """Return the template with these arguments, too; the tools may select another one."""
        choice = "" if self.choice in ("default", "tool_use") else self.choice
        return self._copy(choice, {**self.arguments, **arguments})

    def choose(self, name: str) -> ModelTemplate:
        """Return the template with this name."""
        return self._copy(name, self.arguments)

    def render(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """Return the prompt, as text that knows what the template wrote."""
        options = {"add_generation_prompt": add_generation_prompt, "arguments": self.arguments}
        return self._process.render(
            self.text, self.source, self.special_tokens, messages, **options
        )

    def _copy(self, choice: str, arguments: Mapping[str, Any]) -> ModelTemplate:
        return ModelTemplate(
            self.templates,
            self.source,
            self.special_tokens,
            choice=choice,
            arguments=arguments,
            process=self._process,
        )


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    for name in arguments:
        if name in _RESERVED or not name.isidentifier():
            raise LlamathError(
                f"{safe(repr(name), 40)} is no argument of a chat template",
                hint="an argument is a name like enable_thinking",
            )
    for name in _LISTS:
        value = arguments.get(name)
        if value is not None and not (
            isinstance(value, list | tuple) and all(isinstance(x, Mapping) for x in value)
        ):
            raise LlamathError(
                f"{name}: expected a list of JSON objects, found {type(value).__name__}"
            )
