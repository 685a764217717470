"""`PromptJob`: a model that answers prompts, or continues them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..generation.free_memory import peak_process_bytes
from ..generation.generation import GeneratedPiece, Generation, GenerationLimits
from ..generation.sampling_parameters import Sampling
from ..generation.session import LlamaBase, collect_completions
from ..render.text.generation_text import finish_text, sampling_text, speed_text
from ..tokenizers import chat_prompt as chats
from ..tokenizers.thinking import ReplyReader
from ..utils.errors import ArgumentError
from ..utils.number_format import short_bytes
from .reply import Reply

_LARGE = 2**26
"""Parameters of a model that is read from memory, not from the caches of a processor."""
_NARROWING = ("top_k", "top_p", "min_p")


def choose_sampling(llama: LlamaBase, settings: Mapping[str, Any]) -> Sampling:
    """Return the sampling parameters: those that are set, else the model's generation_config, else
    greedy.
    """
    new = dict(settings)
    narrows = any(name in settings for name in _NARROWING)
    if llama.sampling.temperature == 0 and "temperature" not in settings and narrows:
        new["temperature"] = 1.0
    return llama.sampling.replace(**new)


class PromptJob:
    """A model, and how it generates: with `chat` it answers by its chat template, else it continues
    a text; None: as it was trained.
    """

    def __init__(
        self,
        llama: LlamaBase,
        sampling: Sampling,
        limits: GenerationLimits,
        *,
        chat: bool | None = None,
        system: str = "",
        template: str = "",
        template_args: Mapping[str, Any] | None = None,
        hides_thinking: bool = False,
    ) -> None:
        self.llama, self.sampling, self.limits, self.system = llama, sampling, limits, system
        named = "system" if system else "chat_template" if template else ""
        if named and chat is False:
            raise ArgumentError(named, " is for an answer, and the prompt is continued as it is")
        chats_by_default = chat is None and bool(llama.chat_template)
        answers = bool(chat or named or chats_by_default)
        if template_args and not answers:
            raise ArgumentError("template_args", " is for a chat template, and none is used")
        self.form = llama.find_format(template, template_args) if answers else None
        self.hides_thinking = hides_thinking and answers

    def ids(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt, with the chat template if there is one."""
        if self.form is None or not prompt:
            return self.llama.encode(prompt)
        turns = [
            *([chats.ChatMessage("system", self.system)] if self.system else []),
            chats.ChatMessage("user", prompt),
        ]
        return chats.encode_chat(self.form, self.llama.tokenizer, turns)

    def begin(
        self, prompts: Sequence[str], sampling: Sampling | None = None, first_row: int = 0
    ) -> Generation:
        """Start generating from these prompts."""
        ids = [self.ids(x) for x in prompts]
        ends = self.limits
        if self.form is not None:
            ends = ends.replace(stop_ids=chats.chat_stop_ids(self.form, self.llama.tokenizer))
        generation = self.llama.start(ids, sampling or self.sampling, ends, first_row)
        return generation.attach_tokenizer(self.llama.tokenizer, ids if self.form is None else None)

    def complete(self, generation: Generation, prompts: Sequence[str]) -> list[Reply]:
        """Run the generation of these prompts to its end."""
        pieces: list[GeneratedPiece] = []
        completions = collect_completions(generation, pieces.append)
        if self.hides_thinking:
            texts = _visible_texts(self.llama, generation, pieces)
            pairs = zip(completions, texts, strict=True)
            completions = [x.replace(text=text) for x, text in pairs]
        return [
            Reply(
                model=self.llama.name,
                prompt=prompt,
                completion=x,
                statistics=self.statistics(generation, row),
                token_texts={
                    i: self.token(i) for i in {*x.ids, *(i for top in x.top for i, _ in top)}
                },
            )
            for row, (prompt, x) in enumerate(zip(prompts, completions, strict=True))
        ]

    def token(self, token: int) -> str:
        """Return the text of a token."""
        return self.llama.tokenizer.decode([token], keep_special_tokens=True)

    def statistics(self, generation: Generation, row: int = 0) -> tuple[str, ...]:
        """Return the speed, the engine, the reason why a row ended, and the sampling."""
        state = generation.rows[row]
        theirs = self.sampling.replace(seed=None) == self.llama.sampling
        settings = {name: getattr(self.sampling, name) for name in self.sampling.fields}
        figures = speed_text(
            len(state.ids),
            state.prompt_length,
            generation.first_token_at - generation.started_at,
            generation.tokens_per_second,
        )
        return (
            figures,
            self.llama.describe_engine(),
            finish_text(state.finish),
            sampling_text(settings, generation.seed, theirs),
            *([f"chat template {self.form.name}"] if self.form else []),
        )

    def use(self, generation: Generation) -> tuple[str, ...]:
        """Return the memory that this process has had, and what decoding took of its bandwidth, as
        far as they are known.
        """
        peak, model = peak_process_bytes(), self.llama.model
        memory = "" if peak is None else f"at most {short_bytes(peak)} of memory"
        share = ""
        if self.llama.engine == "native" and model and model.parameters.total > _LARGE:
            from ..native.measure import describe_bandwidth
            from ..native.native_session import NativeLlama

            assert isinstance(self.llama, NativeLlama)
            share = describe_bandwidth(self.llama, generation)
        return tuple(filter(None, (memory, share)))


def _visible_texts(
    llama: LlamaBase, generation: Generation, pieces: Sequence[GeneratedPiece]
) -> list[str]:
    """Return the text of each row without its reasoning."""
    readers = [ReplyReader(llama.tokenizer, row.prompt) for row in generation.rows]
    texts = [""] * len(readers)
    for piece in pieces:
        reader = readers[piece.row]
        parts = reader.add(piece.token, piece.text) + (reader.flush() if piece.finish else [])
        texts[piece.row] += "".join(x.text for x in parts if not x.is_reasoning)
    return texts
