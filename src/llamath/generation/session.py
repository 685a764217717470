"""`LlamaBase`: an open model with its tokenizer, for text generation and chat on any engine;
`ChatSession`: a conversation with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypedDict, Unpack, overload

from .. import embedded
from ..checkpoint.open import tokenizer_files
from ..model import FamilyModel
from ..tokenizers import Tokenizer, load_tokenizer
from ..tokenizers import chat_prompt as chats
from ..tokenizers.chat_formats import CHAT_FORMATS
from ..tokenizers.chat_template import (
    find_chat_templates,
    read_sampling_settings,
    read_special_tokens,
    read_template_file,
)
from ..tokenizers.model_template import ModelTemplate
from ..tokenizers.template_process import OwnTemplates, TemplateProcess
from ..utils.errors import LlamathError, safe
from ..utils.record_type import Record
from .generation import GeneratedPiece, Generation, GenerationLimits
from .sampling_parameters import DEFAULT_MAX_TOKENS, Sampling


class _LimitOptions(TypedDict, total=False):
    """The fields of `GenerationLimits` as keyword arguments; `max_tokens` is 256 by default."""

    max_tokens: int | None
    context: int | None
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    logprobs: int | None


class Completion(Record):
    """The text generated from one prompt."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "text",
        "tokens",
        "finish",
        "prompt_tokens",
        "tokens_per_second=rounded_speed",
        "ids",
    )

    text: str
    ids: tuple[int, ...]  # including the stop token
    finish: str  # stop, length, string or interrupted
    prompt_tokens: int
    tokens_per_second: float  # after the first token; of a batch, all sequences together
    # of the model itself, before temperature and filters, if requested
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[tuple[int, float], ...], ...] = ()  # the most likely tokens at each position

    @property
    def tokens(self) -> int:
        """The number of generated tokens."""
        return len(self.ids)

    @property
    def rounded_speed(self) -> float:
        """Tokens per second, to three decimals."""
        return round(self.tokens_per_second, 3)


class FolderTemplates:
    """The chat templates in a folder or GGUF file, and the process that renders them; the
    package's own need none.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.texts = folder, find_chat_templates(folder)
        self.choice = (
            next(iter(self.texts), "") if self.texts and "default" not in self.texts else ""
        )
        self.process = (
            OwnTemplates() if os.path.abspath(folder) == embedded.path() else TemplateProcess()
        )

    def default(self, token_text: Callable[[int], str | None]) -> ModelTemplate | None:
        """Return the template that a reply is made with; `token_text` finds a token by its id."""
        if not self.texts:
            return None
        tokens = read_special_tokens(self.folder, token_text)
        return ModelTemplate(
            self.texts, self.folder, tokens, choice=self.choice, process=self.process
        )

    def prepare(self) -> None:
        """Let the process start and parse the template while this one loads weights."""
        if self.texts:
            self.process.prepare(self.texts[self.choice or "default"])


class LlamaBase:
    """An open model on an engine: `tokenizer` encodes and decodes, `sampling` has the
    publisher's sampling parameters.
    """

    engine = ""  # native or torch

    def __init__(
        self, tokenizer: Tokenizer, rows: int, context: int | None, model: FamilyModel | None = None
    ) -> None:
        check_tokenizer(tokenizer, rows)
        self.tokenizer, self.model, self.context = tokenizer, model, context
        self.sampling = Sampling()
        # its own template, or a format that its files suggest
        self.chat_format: chats.Prompting | None = None
        # the Jinja template; empty if there is a place for one, but none
        self.chat_template: str | None = None
        self.notes: tuple[str, ...] = ()

    @property
    def name(self) -> str | None:
        """The name of the model."""
        return None if self.model is None else self.model.name

    def describe_engine(self) -> str:
        """Name the engine, and what it computes with."""
        return f"{self.engine} engine"

    def read_folder(
        self, folder: str, default_format: str, templates: FolderTemplates | None = None
    ) -> None:
        """Take the chat template and the sampling parameters that a folder or GGUF file has."""
        templates = templates or FolderTemplates(folder)
        own = templates.default(self.tokenizer.engine.id_to_token)
        if own is not None:
            self.chat_format, self.chat_template = own, own.text
        elif templates.texts is None:
            self.chat_format = chats.detect_chat_format(self.tokenizer, default_format)
        else:
            self.chat_template = ""
        self.sampling = _publisher_sampling(folder)

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a text after the BOS token; special tokens in the text are
        parsed.
        """
        if not prompt:
            raise LlamathError("the prompt is empty", hint="a model needs at least one token")
        return self.tokenizer.encode(prompt, parse_special_tokens=True)

    def start(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling | None = None,
        limits: GenerationLimits | None = None,
        first_row: int = 0,
    ) -> Generation:
        """Start a generation from token ids; memory is checked before it is allocated.

        Random numbers depend on the seed and on a prompt's row, counted from `first_row`.
        """
        limits = _limits({}) if limits is None else limits
        context = self.context if limits.context is None else limits.context
        limits = limits.replace(context=context, stop_ids=limits.stop_ids | self.tokenizer.stop_ids)
        return self.start_generation(
            prompts, self.sampling if sampling is None else sampling, limits, first_row
        )

    def start_generation(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        limits: GenerationLimits,
        first_row: int,
    ) -> Generation:
        """Start a generation on the engine."""
        raise NotImplementedError

    def stream(
        self, prompt: str, *, sampling: Sampling | None = None, **limits: Unpack[_LimitOptions]
    ) -> Generation:
        """Start a generation that continues a text."""
        ids = self.encode(prompt)
        return self.start([ids], sampling, _limits(limits)).attach_tokenizer(self.tokenizer, [ids])

    @overload
    def generate(  # type: ignore[overload-overlap]  # a str is a Sequence[str]; the first overload wins
        self, prompt: str, *, sampling: Sampling | None = None, **limits: Unpack[_LimitOptions]
    ) -> Completion: ...

    @overload
    def generate(
        self,
        prompt: Sequence[str],
        *,
        sampling: Sampling | None = None,
        **limits: Unpack[_LimitOptions],
    ) -> list[Completion]: ...

    def generate(
        self,
        prompt: str | Sequence[str],
        *,
        sampling: Sampling | None = None,
        **limits: Unpack[_LimitOptions],
    ) -> Completion | list[Completion]:
        """Continue a text, or several texts in one batch."""
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        ids = [self.encode(x) for x in prompts]
        completions = collect_completions(
            self.start(ids, sampling, _limits(limits)).attach_tokenizer(self.tokenizer, ids)
        )
        return completions[0] if isinstance(prompt, str) else completions

    def chat(
        self,
        messages: Sequence[tuple[str, str] | Mapping[str, Any]],
        *,
        chat_format: str = "",
        template_args: Mapping[str, Any] | None = None,
        sampling: Sampling | None = None,
        **limits: Unpack[_LimitOptions],
    ) -> Completion:
        """Answer a conversation of (role, text) pairs or {"role", "content"} mappings.

        `template_args` are variables of the model's own chat template: `tools`, `documents`,
        `enable_thinking` and the like.
        """
        parsed = [parse_message(x) for x in messages]
        return collect_completions(
            self.reply(
                parsed, self.find_format(chat_format, template_args), sampling, _limits(limits)
            )
        )[0]

    def reply(
        self,
        messages: Sequence[chats.Message],
        chat_format: chats.Prompting,
        sampling: Sampling | None,
        limits: GenerationLimits,
        first_row: int = 0,
    ) -> Generation:
        """Start a generation that answers a conversation."""
        limits = limits.replace(
            stop_ids=limits.stop_ids | chats.chat_stop_ids(chat_format, self.tokenizer)
        )
        ids = chats.encode_chat(chat_format, self.tokenizer, messages)
        return self.start([ids], sampling, limits, first_row).attach_tokenizer(self.tokenizer)

    def find_format(
        self, name: str = "", template_args: Mapping[str, Any] | None = None
    ) -> chats.Prompting:
        """Return the model's own chat template or format, or another: a named format, one of the
        model's templates, or a file.
        """
        form = self._choose_format(name)
        if not template_args:
            return form
        if not isinstance(form, ModelTemplate):
            first = safe(next(iter(template_args)), 40)
            raise LlamathError(
                f"the chat format {form.name} has no arguments, found {first}",
                hint="arguments are for a model's own template",
            )
        return form.with_arguments(template_args)

    def _choose_format(self, name: str) -> chats.Prompting:
        own = self.chat_format
        if name and (name.endswith(".jinja") or os.path.sep in name):
            special_tokens = own.special_tokens if isinstance(own, ModelTemplate) else {}
            return ModelTemplate({"default": read_template_file(name)}, name, special_tokens)
        if (
            name
            and isinstance(own, ModelTemplate)
            and name in own.templates
            and name not in CHAT_FORMATS
        ):
            return own.choose(name)
        if name:
            return chats.find_chat_format(name)
        if own is not None:
            return own
        near = chats.detect_chat_format(
            self.tokenizer, self.model.family.chat if self.model else ""
        )
        why = (
            "it has no chat template (a base model?)"
            if self.chat_template == ""
            else ("its files name none")
        )
        hint = (
            f"the chat template {near.name} is likely"
            if near
            else ("continue a text without a chat template, or name a template")
        )
        raise LlamathError(
            f"{safe(self.model.name) if self.model else 'the model'} has no chat format: {why}",
            hint=hint,
        )


class ChatSession:
    """A conversation whose KV cache is kept between turns: `send` a message, read the answer,
    then `commit` or `rollback`.
    """

    def __init__(self, llama: LlamaBase, chat_format: chats.Prompting, system: str = "") -> None:
        self.llama, self.chat_format = llama, chat_format
        self.messages: list[chats.Message] = []
        self._prefix: Any = None
        self._answer: Generation | None = None
        self.set_system_prompt(system)

    def set_system_prompt(self, system: str) -> None:
        """Start a new conversation with this system prompt; none if it is empty."""
        self.messages = [chats.ChatMessage("system", system)] if system else []

    @property
    def system_prompt(self) -> str:
        """The system prompt, or an empty string."""
        first = self.messages[0] if self.messages else None
        return (
            first.content if isinstance(first, chats.ChatMessage) and first.role == "system" else ""
        )

    def send(
        self, text: str, sampling: Sampling | None, limits: GenerationLimits, first_row: int = 0
    ) -> Generation:
        """Add a user message and start generating the answer; the conversation is unchanged if the
        prompt is invalid.

        Random numbers depend on the seed and on `first_row`, the number of answers before this one.
        """
        messages = [*self.messages, chats.ChatMessage("user", text)]
        answer = self.llama.reply(messages, self.chat_format, sampling, limits, first_row)
        if self._prefix is not None:
            answer.resume(self._prefix)
        self.messages, self._answer = messages, answer
        return answer

    def commit(self, text: str, reasoning: str = "") -> None:
        """Add the answer, or the part of it that was generated, to the conversation, with
        reasoning that is not part of its text.
        """
        answer = chats.ChatMessage("assistant", text)
        self.messages.append(
            {**answer._asdict(), "reasoning_content": reasoning} if reasoning else answer
        )
        if self._answer is not None:
            self._prefix, self._answer = self._answer.prefix_cache, None

    def rollback(self) -> None:
        """Remove a user message that was not answered."""
        if self.messages and _role(self.messages[-1]) == "user":
            self.messages.pop()
        self._prefix = self._answer = None

    def regenerate(self) -> str:
        """Remove the last user message and its answer; return the message, to be sent again."""
        question = (
            self.messages[-2]
            if len(self.messages) > 1 and _role(self.messages[-1]) == "assistant"
            else None
        )
        if not isinstance(question, chats.ChatMessage):
            raise LlamathError("there is no answer to regenerate yet")
        self.messages = self.messages[:-2]
        return question.content


def _role(message: chats.Message) -> str:
    return message.role if isinstance(message, chats.ChatMessage) else str(message.get("role"))


def _limits(options: _LimitOptions) -> GenerationLimits:
    return GenerationLimits(**{"max_tokens": DEFAULT_MAX_TOKENS, **options})


def _publisher_sampling(location: str) -> Sampling:
    """Return the sampling parameters of generation_config.json."""
    try:
        return (
            Sampling(**read_sampling_settings(location)) if os.path.isdir(location) else Sampling()
        )
    except LlamathError as error:
        raise LlamathError(
            f"{safe(location)}: generation_config.json: {error}", hint=error.hint
        ) from None


def find_tokenizer(location: str) -> Tokenizer:
    """Return the tokenizer of a folder or GGUF file, or of the file's folder where its own
    vocabulary is missing or unusable.
    """
    try:
        return load_tokenizer(location)
    except LlamathError:
        folder = os.path.dirname(location) or "."
        if os.path.isdir(location) or not tokenizer_files(folder):
            raise
        return load_tokenizer(folder)


def check_tokenizer(tokenizer: Tokenizer, rows: int) -> None:
    """Raise an error if the tokenizer has more tokens than the embedding has rows, or less than
    half as many.
    """
    base = tokenizer.engine.get_vocab_size(with_added_tokens=False)
    if base > rows or 2 * tokenizer.vocab_size < rows:
        tokens = base if base > rows else tokenizer.vocab_size
        raise LlamathError(
            f"{safe(tokenizer.source)}: the tokenizer has {tokens:,} tokens, but the model's "
            f"embedding has {rows:,} rows",
            hint="is it the tokenizer of this model?",
        )


def parse_message(message: tuple[str, str] | Mapping[str, Any]) -> chats.Message:
    """Convert a (role, text) pair or a {"role", "content"} mapping; a mapping with more is for
    the model's own template.
    """
    if not isinstance(message, Mapping):
        return chats.ChatMessage(*message)
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(message.get("role"), str) or not (
        isinstance(content, str | list) or (content is None and calls)
    ):
        keys = ", ".join(map(str, message)) or "no keys"
        raise LlamathError(
            'expected a message with "role" and "content", a string or a list of '
            f"parts, found {keys}"
        )
    if isinstance(content, str) and message.keys() == {"role", "content"}:
        return chats.ChatMessage(message["role"], content)
    return message


def collect_completions(
    generation: Generation, on_piece: Callable[[GeneratedPiece], object] = lambda _piece: None
) -> list[Completion]:
    """Run a generation to its end, or until it is interrupted; `on_piece` is called with each
    piece.
    """
    pieces: list[list[GeneratedPiece]] = [[] for _ in generation.rows]

    def note(piece: GeneratedPiece) -> None:
        pieces[piece.row].append(piece)
        on_piece(piece)

    try:
        for piece in generation:
            note(piece)
    except KeyboardInterrupt:
        for piece in generation.interrupt():
            note(piece)
    completions = []
    for row, row_pieces in zip(generation.rows, pieces, strict=True):
        tokens = [x for x in row_pieces if x.token >= 0]
        completions.append(
            Completion(
                text="".join(x.text for x in row_pieces),
                ids=tuple(row.ids),
                finish=row.finish,
                prompt_tokens=row.prompt_length,
                tokens_per_second=generation.tokens_per_second,
                logprobs=tuple(x.logprob for x in tokens if x.logprob is not None),
                top=tuple(x.top for x in tokens if x.top),
            )
        )
    return completions
