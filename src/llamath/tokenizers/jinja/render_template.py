"""`JinjaTemplate`: renders a chat template as transformers does, within limits, and says where each
character comes from.

The text of a stranger's file is rendered by `TemplateProcess`, in a process that does the same;
here, nothing but the counter protects this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...utils.errors import MissingExtra, safe
from .template_request import MAX_TEMPLATE_CHARACTERS, make_request, pack_text, read_answer, unpack
from .template_text import TemplateText
from .template_values import Budget, BudgetExceeded, Limits, TemplateError

if TYPE_CHECKING:
    from jinja2 import nodes

_ROLES = frozenset(
    "assistant context control developer document documents environment function ipython "
    "observation system tool user".split()
)
"""Roles that a template may put together with text of its own to a control token, such as
`<|user|>`."""
_REASONING = ("reasoning_content", "thinking", "reasoning")


class JinjaTemplate:
    """A chat template, and the special tokens that it refers to."""

    def __init__(
        self,
        text: str,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
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
        request = make_request(
            self.text,
            self.special_tokens,
            messages,
            add_generation_prompt=add_generation_prompt,
            arguments=arguments,
            now=now,
        )
        return read_answer(answer_request(request, self.limits), self.source)


def answer_request(request: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Return the text of a rendering with its origins, or the problem of the template."""
    try:
        return {**pack_text(_render(request, limits))}
    except BudgetExceeded as error:
        return _problem(str(error), exceeded=True)
    except MemoryError:
        return _problem("it needs too much memory", exceeded=True)
    except TemplateError as error:
        return _problem(str(error))


def parse_template(text: str) -> nodes.Template:
    """Return the tree of a template, or raise `TemplateError`."""
    if len(text) > MAX_TEMPLATE_CHARACTERS:
        raise TemplateError(
            f"expected at most {MAX_TEMPLATE_CHARACTERS:,} characters, found {len(text):,}"
        )
    try:
        return _parse(text)
    except _syntax_error() as error:
        raise TemplateError(f"line {error.lineno}: {safe(str(error.message), 400)}") from None
    except RecursionError:
        raise TemplateError("it is nested too deeply") from None
    except ValueError as error:  # a number that Python does not read
        raise TemplateError(safe(str(error).partition(";")[0], 400)) from None


def _problem(text: str, *, exceeded: bool = False) -> dict[str, Any]:
    return {"problem": text, "exceeded": exceeded}


def _render(request: Mapping[str, Any], limits: Limits) -> str:
    tree = parse_template(request["template"])
    from .evaluate_template import Evaluator

    arguments, characters = unpack(request["arguments"])
    messages, more = unpack(request["messages"])
    variables = {
        **{name: TemplateText(text) for name, text in request["special_tokens"].items()},
        **arguments,
        "messages": [_prepare_message(x) for x in messages],
        "add_generation_prompt": request["add_generation_prompt"],
    }
    variables.setdefault("tools", None)
    variables.setdefault("documents", None)
    run = Evaluator(
        Budget(limits, characters + more), variables, datetime.fromisoformat(request["now"])
    )
    try:
        return run.render(tree)
    except BudgetExceeded as error:
        raise BudgetExceeded(f"line {run.line}: {error}") from None
    except TemplateError as error:
        raise TemplateError(f"line {run.line}: {safe(str(error), 400)}") from None
    except RecursionError:
        raise TemplateError(f"line {run.line}: it is nested too deeply") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TemplateError(
            f"line {run.line}: {safe(str(error) or type(error).__name__, 400)}"
        ) from None


def _prepare_message(message: dict[str, Any]) -> dict[str, Any]:
    """Take the role as text of the template, and give reasoning the names that templates read."""
    if isinstance(role := message.get("role"), str) and role in _ROLES:
        message["role"] = TemplateText(role)
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    return (
        message
        if reasoning is None
        else {"thinking": reasoning, **message, "reasoning_content": reasoning}
    )


def _syntax_error() -> type[Any]:
    try:
        from jinja2 import TemplateSyntaxError
    except ImportError:
        raise MissingExtra("jinja2", "run") from None
    return TemplateSyntaxError


@lru_cache(maxsize=8)
def _parse(text: str) -> nodes.Template:
    """Return the tree of a template. Jinja only parses: it neither compiles nor evaluates
    anything.
    """
    from jinja2 import Environment, ext, nodes

    class Generation(ext.Extension):
        """`{% generation %}`: marks an answer in a conversation for training, and is a scope of
        its own.
        """

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True)
            ).set_lineno(line)

    return Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    ).parse(text)
