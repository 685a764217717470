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
from ..tokenizers import Tokenizer, tokenizer
from ..tokenizers import chat_prompt as chats
from ..tokenizers.chat_formats import Format
from ..tokenizers.find_tokenizer import FILES
from ..tokenizers.template_lookup import settings, template
from .batch import CHUNK, Batch
from .cpu.optimize_for_cpu import hasten, quicken
from .cpu.weight_packing import LONG
from .generate import Generation, Limits, Piece
from .layers import Decoder
from .memory_budget import WORDS, afford, afford_part
from .module import Place
from .sampling import Sampling
from .weights.open_model import Opened, everywhere, opened

MOST = 256
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
        agree(words, module.embed.weight.shape[0])
        self.module, self.tokenizer, self.model = module, words, model
        self.context = module.spec.context
        self.sampling = Sampling()
        self.form: Format | None = None  # of a conversation
        self.template: str | None = None  # for conversations, as its file has it; empty where there might be one and is none
        self.notes: tuple[str, ...] = ()
        self._forget: Callable[[], object] = lambda: None  # the pages of its files

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None = None, dtype: Any = None, device: Any = "cpu", **how: Any) -> Llama:
        """The model in this folder or file, or without one the small model that the package brings; `how` goes to `run.opened`.

        With dtype "int8" its matrices are kept in eight bits, and computed with in the type that the file has.
        """
        place = embedded.path() if path is None else os.fspath(path)
        if dtype != "int8":
            return cls.of(opened(place, dtype, device, **how))
        found = opened(place, None, device, **how)
        if found.place.dtype not in (torch.float32, torch.bfloat16):
            found = opened(place, torch.bfloat16, device, **how)
        made = cls.of(found)
        quicken(made.module, "int8", made._forget)
        return made

    @classmethod
    def of(cls, found: Opened) -> Llama:
        """A checkpoint that is open already."""
        made = cls(found.module, _words(found.folder), found.model)
        said, usual = template(found.folder), found.model.family.chat
        made.template = said
        made.form = None if said == "" else chats.recognise(made.tokenizer, said or "", "" if said else usual)
        made.notes = found.notes
        made.sampling = _wanted(found.folder)
        made._forget = found.files.forget
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
        return self.tokenizer.encode(prompt, marks=True)

    def begin(self, prompts: Sequence[Sequence[int]], sampling: Sampling | None = None, limits: Limits | None = None) -> Generation:
        """Go on from these ids; what there is no memory for is refused first."""
        limits = Limits(max_tokens=MOST) if limits is None else limits
        context = self.context if limits.context is None else limits.context
        limits = limits.replace(context=context, stop=limits.stop | self.tokenizer.stop)
        made = Generation(self.module, prompts, self.sampling if sampling is None else sampling, limits)
        tokens = max(LONG if row.most is None else row.most for row in made.rows)
        hasten(self.module, tokens, len(made.rows), self._forget)
        made.batch.afford = partial(self._afford, made.batch)
        return made

    def stream(self, prompt: str, *, sampling: Sampling | None = None, **limits: Any) -> Generation:
        """How a plain text goes on, piece by piece; `limits` are those of `Limits`."""
        ids = self.encode(prompt)
        return self.begin([ids], sampling, Limits(**{"max_tokens": MOST} | limits)).speak(self.tokenizer, [ids])

    @overload
    def generate(self, prompt: str, *, sampling: Sampling | None = None, **limits: Any) -> Completion: ...

    @overload
    def generate(self, prompt: Sequence[str], *, sampling: Sampling | None = None, **limits: Any) -> list[Completion]: ...

    def generate(self, prompt: str | Sequence[str], *, sampling: Sampling | None = None, **limits: Any) -> Completion | list[Completion]:
        """How a plain text goes on, or several do."""
        several = [prompt] if isinstance(prompt, str) else list(prompt)
        ids = [self.encode(x) for x in several]
        found = self.begin(ids, sampling, Limits(**{"max_tokens": MOST} | limits)).speak(self.tokenizer, ids)
        made = completions(found)
        return made[0] if isinstance(prompt, str) else made

    def chat(
        self, turns: Sequence[tuple[str, str] | Mapping[str, str]], *, form: str = "", sampling: Sampling | None = None, **limits: Any
    ) -> Completion:
        """The answer to a conversation: (role, text) each, or {"role", "content"}."""
        made = self.reply([turned(x) for x in turns], self.format(form), sampling, Limits(**{"max_tokens": MOST} | limits))
        return completions(made)[0]

    def reply(self, turns: Sequence[chats.Turn], form: Format, sampling: Sampling | None, limits: Limits) -> Generation:
        """The answer to a conversation, piece by piece."""
        limits = limits.replace(stop=limits.stop | chats.stops(form, self.tokenizer))
        return self.begin([chats.ids(form, self.tokenizer, turns)], sampling, limits).speak(self.tokenizer)

    def format(self, name: str = "") -> Format:
        """The chat format of this name, or the model's own."""
        if name or self.form is not None:
            return chats.find(name) if name or self.form is None else self.form
        near = chats.recognise(self.tokenizer, "", self.model.family.chat if self.model else "")
        why = "a base model, it seems: it has no chat template" if self.template == "" else "its chat template is none that is known here"
        hint = (
            f"--format {near.name} would be likely" if near else "llamath run goes on from a plain text; --format NAME talks all the same"
        )
        raise LlamathError(f"{safe(self.model.name) if self.model else 'the model'} has no format for conversations: {why}", hint=hint)

    def _afford(self, batch: Batch, rows: int, room: int) -> None:
        """Refuse what there is no memory for; prompts are read whole where angles depend on how long they are."""
        if self.model is None:
            return
        first, mesh = next(self.module.parameters()), self.module.mesh
        chunk = rows * room if batch.stretching else CHUNK
        asked = MemoryRequest(context=room, batch=rows, kv_dtype=WORDS[first.dtype], chunk=chunk)
        place = Place(first.dtype, first.device)
        if mesh is None:
            afford(self.model, asked, place, loaded=True)
        else:
            everywhere(mesh, partial(afford_part, self.model, asked, place, self.module))


def _wanted(place: str) -> Sampling:
    """How the publisher would have tokens drawn."""
    try:
        return Sampling(**settings(place)) if os.path.isdir(place) else Sampling()
    except LlamathError as error:
        raise LlamathError(f"{safe(place)}: generation_config.json: {error}", hint=error.hint) from None


def _words(place: str) -> Tokenizer:
    """The tokenizer of a folder or a GGUF file; one beside the file, where its own vocabulary cannot be used."""
    try:
        return tokenizer(place)
    except LlamathError:
        folder = os.path.dirname(place) or "."
        if os.path.isdir(place) or not any(os.path.lexists(os.path.join(folder, name)) for name in FILES):
            raise
        return tokenizer(folder)


def agree(words: Tokenizer, rows: int) -> None:
    """Refuse a tokenizer that is not the model's: it has more words than the embedding has rows, or not half as many."""
    own = words.engine.get_vocab_size(with_added_tokens=False)
    if own > rows or 2 * words.size < rows:
        found = own if own > rows else words.size
        raise LlamathError(
            f"{safe(words.source)}: the tokenizer has {found:,} tokens, and the model's embedding {rows:,} rows",
            hint="is the tokenizer of this model?",
        )


def turned(said: tuple[str, str] | Mapping[str, str]) -> chats.Turn:
    """A turn in any writing."""
    if isinstance(said, Mapping):
        if not isinstance(said.get("role"), str) or not isinstance(said.get("content"), str):
            raise LlamathError(f'expected a turn of "role" and "content", both text, found {", ".join(map(str, said)) or "neither"}')
        return chats.Turn(said["role"], said["content"])
    return chats.Turn(*said)


def completions(generation: Generation, each: Callable[[Piece], object] = lambda _piece: None) -> list[Completion]:
    """All the texts, when they are over; what there is of them, if somebody interrupts; `each` is given the pieces on the way."""
    pieces: list[list[Piece]] = [[] for _ in generation.rows]

    def note(piece: Piece) -> None:
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
                prompt_tokens=row.prompt,
                tokens_per_second=generation.rate,
                logprobs=tuple(x.logprob for x in tokens if x.logprob is not None),
                top=tuple(x.top for x in tokens if x.top),
            )
        )
    return made
