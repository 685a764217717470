"""`JinjaTemplate`: renders a chat template as transformers does, within limits, and says where each character comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ...utils.errors import LlamathError, MissingExtra, safe
from .template_text import TemplateText
from .template_values import Budget, BudgetExceeded, Limits, TemplateError

if TYPE_CHECKING:
    from jinja2 import nodes

MAX_TEMPLATE_CHARACTERS = 1 << 18
"""The longest template that is parsed; published ones have about 20,000 characters."""
_MAX_DEPTH = 64
"""The deepest nesting of messages, tools and arguments."""
_ROLES = frozenset(
    "assistant context control developer document documents environment function ipython observation system tool user".split()
)
"""Roles that a template may put together with text of its own to a control token, such as `<|user|>`."""
_REASONING = ("reasoning_content", "thinking", "reasoning")
_HINT = "--chat-template NAME uses a named format instead, and --raw none"


class JinjaTemplate:
    """A chat template, and the special tokens that it refers to."""

    def __init__(self, text: str, source: str, special_tokens: Mapping[str, str] | None = None, limits: Limits | None = None) -> None:
        self.text, self.source = text, source
        self.special_tokens = dict(special_tokens or {})
        self.limits = limits or Limits()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        arguments: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> str:
        """Return the prompt; `origin_runs` tells its template's text from that of the messages.

        Tools and documents are arguments.
        """
        from .evaluate_template import Evaluator

        if not messages:
            raise LlamathError("the conversation is empty", hint="a chat template needs at least one message")
        characters = 0

        def copy(value: Any, depth: int = 0) -> Any:
            nonlocal characters
            if depth > _MAX_DEPTH:
                raise LlamathError(f"expected messages, tools and arguments at most {_MAX_DEPTH} levels deep, found more")
            characters += 1
            if value is None or isinstance(value, bool | int | float):
                return value
            if isinstance(value, str):
                characters += len(value)
                return value if isinstance(value, TemplateText) else str(value)  # what the model itself wrote
            if isinstance(value, Mapping):
                return {copy(key, depth + 1): copy(x, depth + 1) for key, x in value.items()}
            if isinstance(value, list | tuple):
                return [copy(x, depth + 1) for x in value]
            raise LlamathError(f"expected messages, tools and arguments of JSON values, found {type(value).__name__}")

        variables = {
            **{name: TemplateText(text) for name, text in self.special_tokens.items()},
            **copy(dict(arguments or {})),
            "messages": [_prepare_message(copy({k: v for k, v in x.items() if v is not None})) for x in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        variables.setdefault("tools", None)
        variables.setdefault("documents", None)
        run = Evaluator(Budget(self.limits, characters), variables, now or datetime.now())
        tree = self._tree
        try:
            return run.render(tree)
        except BudgetExceeded as error:
            raise self._error(f"line {run.line}: {error}", hint=f"compare the template with the publisher's; {_HINT}") from None
        except TemplateError as error:
            raise self._error(f"line {run.line}: {safe(str(error), 400)}") from None
        except RecursionError:
            raise self._error(f"line {run.line}: it is nested too deeply") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._error(f"line {run.line}: {safe(str(error) or type(error).__name__, 400)}") from None

    @cached_property
    def _tree(self) -> nodes.Template:
        if len(self.text) > MAX_TEMPLATE_CHARACTERS:
            raise self._error(f"expected at most {MAX_TEMPLATE_CHARACTERS:,} characters, found {len(self.text):,}")
        try:
            return _parse(self.text)
        except _syntax_error() as error:
            raise self._error(f"line {error.lineno}: {safe(str(error.message), 400)}") from None
        except RecursionError:
            raise self._error("it is nested too deeply") from None

    def _error(self, problem: str, hint: str = _HINT) -> LlamathError:
        return LlamathError(f"{safe(self.source)}: chat template: {problem}", hint=hint)


def _prepare_message(message: dict[str, Any]) -> dict[str, Any]:
    """Take the role as text of the template, and give reasoning the names that templates read."""
    if isinstance(role := message.get("role"), str) and role in _ROLES:
        message["role"] = TemplateText(role)
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _syntax_error() -> type[Any]:
    try:
        from jinja2 import TemplateSyntaxError
    except ImportError:
        raise MissingExtra("jinja2", "run") from None
    return TemplateSyntaxError


@lru_cache(maxsize=8)
def _parse(text: str) -> nodes.Template:
    """Return the tree of a template. Jinja only parses: it neither compiles nor evaluates anything."""
    from jinja2 import Environment, ext, nodes

    class Generation(ext.Extension):
        """`{% generation %}`: marks an answer in a conversation for training, and is a scope of its own."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)

    return Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]).parse(text)
