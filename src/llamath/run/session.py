"""`Llama`: a model with its tokenizer, ready to go on from a text and to hold a conversation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

import torch
from torch.distributed.device_mesh import DeviceMesh

from .. import embedded
from ..analysis.inference.inference_memory import MemoryRequest
from ..core.errors import LlamathError, safe
from ..core.record_type import Record
from ..model import Model
from ..tokenizers import Tokenizer, load_tokenizer
from ..tokenizers import chat_prompt as chats
from ..tokenizers.chat_formats import ChatFormat
from ..tokenizers.find_tokenizer import TOKENIZER_FILES
from ..tokenizers.template_lookup import find_chat_template, read_sampling_settings
from .batch import PREFILL_CHUNK, Batch
from .cpu.optimize_for_cpu import maybe_pack, optimize_for_cpu
from .cpu.weight_packing import LONG_GENERATION
from .generate import GeneratedPiece, Generation, GenerationLimits
from .layers import Decoder
from .memory_budget import MEMORY_DTYPES, check_memory_for, check_memory_for_rank
from .module import TensorOptions
from .sampling import Sampling
from .weights.open_model import LoadedModel, on_all_ranks, open_model

DEFAULT_MAX_TOKENS = 256
"""Tokens of a text, unless it is said."""


class Completion(Record):
    """How a prompt went on."""

    text: str
    ids: tuple[int, ...]  # the one that ended it included
    finish: str  # stop, length, string or interrupted
    prompt_tokens: int
    tokens_per_second: float  # after the first token; of a batch, all texts together
    logprobs: tuple[float, ...] = ()  # by the model itself, before temperature and the rest, if they were asked for
    top: tuple[tuple[tuple[int, float], ...], ...] = ()  # the likeliest tokens at each place


class Llama:
    """An open model. `module` computes, `tokenizer` knows its words, `sampling` is how its publisher would draw tokens."""

    def __init__(self, module: Decoder, words: Tokenizer, model: Model | None = None) -> None:
        check_tokenizer(words, module.embed.weight.shape[0])
        self.module, self.tokenizer, self.model = module, words, model
        self.context = module.spec.context
        self.sampling = Sampling()
        self.chat_format: ChatFormat | None = None  # of a conversation
        self.chat_template: str | None = None  # for conversations, as its file has it; empty where there might be one and is none
        self.notes: tuple[str, ...] = ()
        self._release_pages: Callable[[], object] = lambda: None  # the pages of its files

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None, dtype: Any = None, device: Any = "cpu", **how: Any) -> Llama:
        """The model in this folder or file, or without one the small model that the package brings; `how` goes to `run.opened`.

        With dtype "int8" its matrices are kept in eight bits, and computed with in the type that the file has.
        """
        place = embedded.path() if path is None else os.fspath(path)
        if dtype != "int8":
            return cls.from_loaded(open_model(place, dtype, device, **how))
        found = open_model(place, None, device, **how)
        if found.options.dtype not in (torch.float32, torch.bfloat16):
            found = open_model(place, torch.bfloat16, device, **how)
        made = cls.from_loaded(found)
        optimize_for_cpu(made.module, "int8", made._release_pages)
        return made

    @classmethod
    def from_loaded(cls, found: LoadedModel) -> Llama:
        """A checkpoint that is open already."""
        made = cls(found.module, _find_tokenizer(found.folder), found.model)
        said, usual = find_chat_template(found.folder), found.model.family.chat
        made.chat_template = said
        made.chat_format = None if said == "" else chats.detect_chat_format(made.tokenizer, said or "", "" if said else usual)
        made.notes = found.notes
        made.sampling = _publisher_sampling(found.folder)
        made._release_pages = found.files.release_pages
        return made

    def parallelize(self, mesh: DeviceMesh) -> Llama:
        """Compute with the other processes of a mesh, each with its part; `open(path, device=mesh)` reads no more than that part."""
        from .distributed.tensor_parallel import parallelize

        parallelize(self.module, mesh)
        return self

    def encode(self, prompt: str) -> list[int]:
        """The ids of a plain text, special tokens in it read as such, with what begins a text."""
        if not prompt:
            raise LlamathError("the prompt is empty", hint="a model goes on from some text: llamath run MODEL PROMPT")
        return self.tokenizer.encode(prompt, parse_special_tokens=True)

    def start(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling | None = None, limits: GenerationLimits | None = None
    ) -> Generation:
        """Go on from these ids; what there is no memory for is refused first."""
        limits = GenerationLimits(max_tokens=DEFAULT_MAX_TOKENS) if limits is None else limits
        context = self.context if limits.context is None else limits.context
        limits = limits.replace(context=context, stop_ids=limits.stop_ids | self.tokenizer.stop_ids)
        made = Generation(self.module, prompts, self.sampling if sampling is None else sampling, limits)
        tokens = max(LONG_GENERATION if row.max_new_tokens is None else row.max_new_tokens for row in made.rows)
        maybe_pack(self.module, tokens, len(made.rows), self._release_pages)
        made.batch.check_memory = partial(self._check_memory, made.batch)
        return made

    def stream(self, prompt: str, *, sampling: Sampling | None = None, **limits: Any) -> Generation:
        """How a plain text goes on, piece by piece; `limits` are those of `Limits`."""
        ids = self.encode(prompt)
        return self.start([ids], sampling, GenerationLimits(**{"max_tokens": DEFAULT_MAX_TOKENS} | limits)).attach_tokenizer(
            self.tokenizer, [ids]
        )

    @overload
    def generate(self, prompt: str, *, sampling: Sampling | None = None, **limits: Any) -> Completion: ...

    @overload
    def generate(self, prompt: Sequence[str], *, sampling: Sampling | None = None, **limits: Any) -> list[Completion]: ...

    def generate(self, prompt: str | Sequence[str], *, sampling: Sampling | None = None, **limits: Any) -> Completion | list[Completion]:
        """How a plain text goes on, or several do."""
        several = [prompt] if isinstance(prompt, str) else list(prompt)
        ids = [self.encode(x) for x in several]
        found = self.start(ids, sampling, GenerationLimits(**{"max_tokens": DEFAULT_MAX_TOKENS} | limits)).attach_tokenizer(
            self.tokenizer, ids
        )
        made = collect_completions(found)
        return made[0] if isinstance(prompt, str) else made

    def chat(
        self, turns: Sequence[tuple[str, str] | Mapping[str, str]], *, form: str = "", sampling: Sampling | None = None, **limits: Any
    ) -> Completion:
        """The answer to a conversation: (role, text) each, or {"role", "content"}."""
        made = self.reply(
            [parse_turn(x) for x in turns],
            self.find_format(form),
            sampling,
            GenerationLimits(**{"max_tokens": DEFAULT_MAX_TOKENS} | limits),
        )
        return collect_completions(made)[0]

    def reply(
        self, turns: Sequence[chats.ChatMessage], form: ChatFormat, sampling: Sampling | None, limits: GenerationLimits
    ) -> Generation:
        """The answer to a conversation, piece by piece."""
        limits = limits.replace(stop_ids=limits.stop_ids | chats.chat_stop_ids(form, self.tokenizer))
        return self.start([chats.encode_chat(form, self.tokenizer, turns)], sampling, limits).attach_tokenizer(self.tokenizer)

    def find_format(self, name: str = "") -> ChatFormat:
        """The chat format of this name, or the model's own."""
        if name or self.chat_format is not None:
            return chats.find_chat_format(name) if name or self.chat_format is None else self.chat_format
        near = chats.detect_chat_format(self.tokenizer, "", self.model.family.chat if self.model else "")
        why = (
            "a base model, it seems: it has no chat template"
            if self.chat_template == ""
            else "its chat template is none that is known here"
        )
        hint = (
            f"--format {near.name} would be likely" if near else "llamath run goes on from a plain text; --format NAME talks all the same"
        )
        raise LlamathError(f"{safe(self.model.name) if self.model else 'the model'} has no format for conversations: {why}", hint=hint)

    def _check_memory(self, batch: Batch, rows: int, room: int) -> None:
        """Refuse what there is no memory for; prompts are read whole where angles depend on how long they are."""
        if self.model is None:
            return
        first, mesh = next(self.module.parameters()), self.module.mesh
        chunk = rows * room if batch.has_length_dependent_rope else PREFILL_CHUNK
        asked = MemoryRequest(context=room, batch=rows, kv_dtype=MEMORY_DTYPES[first.dtype], chunk=chunk)
        place = TensorOptions(first.dtype, first.device)
        if mesh is None:
            check_memory_for(self.model, asked, place, loaded=True)
        else:
            on_all_ranks(mesh, partial(check_memory_for_rank, self.model, asked, place, self.module))


def _publisher_sampling(place: str) -> Sampling:
    """How the publisher would have tokens drawn."""
    try:
        return Sampling(**read_sampling_settings(place)) if os.path.isdir(place) else Sampling()
    except LlamathError as error:
        raise LlamathError(f"{safe(place)}: generation_config.json: {error}", hint=error.hint) from None


def _find_tokenizer(place: str) -> Tokenizer:
    """The tokenizer of a folder or a GGUF file; one beside the file, where its own vocabulary cannot be used."""
    try:
        return load_tokenizer(place)
    except LlamathError:
        folder = os.path.dirname(place) or "."
        if os.path.isdir(place) or not any(os.path.lexists(os.path.join(folder, name)) for name in TOKENIZER_FILES):
            raise
        return load_tokenizer(folder)


def check_tokenizer(words: Tokenizer, rows: int) -> None:
    """Refuse a tokenizer that is not the model's: it has more words than the embedding has rows, or not half as many."""
    own = words.engine.get_vocab_size(with_added_tokens=False)
    if own > rows or 2 * words.vocab_size < rows:
        found = own if own > rows else words.vocab_size
        raise LlamathError(
            f"{safe(words.source)}: the tokenizer has {found:,} tokens, and the model's embedding {rows:,} rows",
            hint="is the tokenizer of this model?",
        )


def parse_turn(said: tuple[str, str] | Mapping[str, str]) -> chats.ChatMessage:
    """A turn in any writing."""
    if isinstance(said, Mapping):
        if not isinstance(said.get("role"), str) or not isinstance(said.get("content"), str):
            raise LlamathError(f'expected a turn of "role" and "content", both text, found {", ".join(map(str, said)) or "neither"}')
        return chats.ChatMessage(said["role"], said["content"])
    return chats.ChatMessage(*said)


def collect_completions(generation: Generation, each: Callable[[GeneratedPiece], object] = lambda _piece: None) -> list[Completion]:
    """All the texts, when they are over; what there is of them, if somebody interrupts; `each` is given the pieces on the way."""
    pieces: list[list[GeneratedPiece]] = [[] for _ in generation.rows]

    def note(piece: GeneratedPiece) -> None:
        pieces[piece.row].append(piece)
        each(piece)

    try:
        for piece in generation:
            note(piece)
    except KeyboardInterrupt:
        for piece in generation.interrupt():
            note(piece)
    made = []
    for row, own in zip(generation.rows, pieces, strict=True):
        tokens = [x for x in own if x.token >= 0]
        made.append(
            Completion(
                text="".join(x.text for x in own),
                ids=tuple(row.ids),
                finish=row.finish,
                prompt_tokens=row.prompt_length,
                tokens_per_second=generation.tokens_per_second,
                logprobs=tuple(x.logprob for x in tokens if x.logprob is not None),
                top=tuple(x.top for x in tokens if x.top),
            )
        )
    return made
