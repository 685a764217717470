"""`live_parts`: what a page needs to run a checkpoint itself: its program, the bytes of its
weights, its tokenizer, and where its heads and rotations are among the results of a pass.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ....analysis.check.verify.verified_checkpoint import VerifiedCheckpoint, open_verified
from ....checkpoint.open import tokenizer_files
from ....embedded import path as embedded_path
from ....generation.rope_frequencies import rope_frequencies
from ....generation.session import FolderTemplates
from ....model import FamilyModel
from ....native import native_operations as ops
from ....native.live.plain_weights import plain_weights
from ....native.live.program_bytes import PlacedWeight, placed_weights, program_bytes
from ....native.lowering import lower
from ....native.native_operations import Op, View
from ....native.program import Program
from ....tokenizers.chat_prompt import chat_stop_names, question_frame
from ....tokenizers.read_tokenizer import load_tokenizer, read_tokenizer_file, stop_ids
from ....utils.errors import LlamathError, safe
from ....utils.strict_json import parse_tokenizer
from ..checkpoint_data import CheckpointModel
from .page_tokenizer import page_tokenizer

MAX_BYTES = 64 << 20
"""The most bytes of weights in a page."""
Kind = TypeVar("Kind", bound=Op)
_MAX_TOKENS = 512
"""Tokens that a model reads in the page: every number of all of them is kept."""
_TOKENIZER = "tokenizer.json"
_PROMPTS = (
    {
        "text": "Ben was in the park. He had a red ball. He played with the",
        "says": "The next word is Ben's toy: after layer 2 the model would say red; layer 3, head "
        "0 finds the ball.",
        "layer": 3,
        "head": 0,
    },
    {
        "text": "Ida and Finn were in the park. Ida had a red lamp. Then a dog came.",
        "says": "Write on: the lamp is taken, and found again. Layer 1, head 0 reads the dog.",
        "layer": 1,
        "head": 0,
    },
    {
        "text": "Anna and Ben were in the park. Anna had a red kite. Anna lost the kite. "
        "Anna was sad.",
        "says": "Write on: the sad story ends well. Layer 3, head 1 reads Anna, the first name.",
        "layer": 3,
        "head": 1,
    },
    {
        "text": "Ben had a red ball. Ben went to the barn. Where is the ball?",
        "says": "Asked in its chat template. Write on, then choose the token before barn: layer 3, "
        "head 3 reads barn.",
        "layer": 3,
        "head": 3,
        "chat": True,
    },
)
"""Texts to try with the bundled model, what they show, and the head that shows it; `chat`: in its
chat template."""
_TITLE = "A toy Llama"
_ORIGIN = "embedded, part of llamath"
_ABOUT = "Trained on children's stories, and small enough to run in this page."
_KNOWS = (
    "It was trained on stories of Anna, Clara, Emma, Grace, Ida, Lena, Ben, David, Finn, Hugo, "
    "Jack and Max, with a ball, book, kite, hat, lamp, drum, cup, key, basket, coin, rope or doll "
    "that is red, blue, green, yellow, white or black; other names are split into letters."
)
"""The names, things and colours of tools/tiny/words.py."""


class LiveParts(NamedTuple):
    """The parts of a page that runs its model."""

    data: dict[str, Any]  # for the page's data: `LiveData` in web/src/live/live_model.ts
    program: bytes
    weights: bytes


def live_parts(path: str | os.PathLike[str]) -> LiveParts:
    """Return what a page needs to run the checkpoint in this folder or file."""
    checkpoint = open_verified(os.fspath(path))
    tree = checkpoint.model.tree
    program = lower(tree, keep=True)
    placed = list(placed_weights(program))
    tokenizer = _tokenizer(checkpoint.folder)
    vocabulary, rows = len(tokenizer["texts"]), int(tree.embed.weight.shape[0])
    if vocabulary > rows:
        raise LlamathError(
            f"{safe(checkpoint.folder)}: expected a tokenizer of at most the {rows:,} tokens of "
            f"the embedding, found {vocabulary:,}"
        )
    weights, places = _weights(checkpoint, program)
    context = _MAX_TOKENS if tree.context is None else min(int(tree.context), _MAX_TOKENS)
    ids = {text: i for i, text in enumerate(tokenizer["texts"])}
    stops = set(stop_ids(checkpoint.folder, ids.get)) if os.path.isdir(checkpoint.folder) else set()
    is_bundled = _is_bundled(checkpoint.folder)
    chat = _chat(checkpoint.folder, tokenizer, stops)
    data = {
        "prompts": [x for x in _PROMPTS if is_bundled and (chat or "chat" not in x)],
        "title": _TITLE if is_bundled else "",
        "origin": _ORIGIN if is_bundled else "",
        "about": _ABOUT if is_bundled else "",
        "knows": _KNOWS if is_bundled else "",
        "chat": chat,
        "context": context,
        "stop": sorted(stops),
        "results": [x.name for x in program.results if x.view != program.logits],
        "rotations": list(_rotations(program)),
        "attention": list(_attention(program)),
        "lens": _lens(program, placed),
        "tokenizer": tokenizer,
        "weights": places,
    }
    return LiveParts(data, program_bytes(program), weights)


def _is_bundled(path: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(embedded_path())


def bundled_live_parts(models: Sequence[FamilyModel]) -> LiveParts | None:
    """Return what the page of the bundled model needs to run it; None for other pages."""
    if len(models) == 1 and isinstance(models[0], CheckpointModel):
        folder = os.path.dirname(models[0].report.manifest.files[0].name)
        return live_parts(folder) if _is_bundled(folder) else None
    return None


def _tokenizer(folder: str) -> dict[str, Any]:
    """Return the tokenizer; of any other file than tokenizer.json, as the `tokenizers` package
    reads it.
    """
    files = tokenizer_files(folder) if os.path.isdir(folder) else ()
    if files and os.path.basename(files[0]) == _TOKENIZER:
        data = parse_tokenizer(read_tokenizer_file(files[0]), _TOKENIZER)
        return page_tokenizer(data, _TOKENIZER)
    tokenizer = load_tokenizer(folder)
    return page_tokenizer(json.loads(tokenizer.engine.to_str()), tokenizer.source)


def _chat(folder: str, tokenizer: Mapping[str, Any], stops: set[int]) -> dict[str, Any] | None:
    """Return what the model's own template writes around a question, and the ids that end the
    answer; None without a template, or with one that cannot be rendered here or changes questions.
    """
    texts: Sequence[str] = tokenizer["texts"]
    control = {
        text: i for text, i in tokenizer["added"] if i in tokenizer["special"] or text.strip()
    }
    try:
        template = FolderTemplates(folder).default(dict(enumerate(texts)).get)
        frame = None if template is None else question_frame(template)
        if template is None or frame is None:
            return None
        ends = chat_stop_names(template, control)
    except LlamathError:
        return None
    return {
        **frame._asdict(),
        "stop": sorted(stops.union(control[x] for x in ends if x in control)),
    }


def _weights(
    checkpoint: VerifiedCheckpoint, program: Program
) -> tuple[bytes, list[tuple[str, str, int, int]]]:
    """Return the weights as they are stored, and for each its path, type, start and size."""
    places: list[tuple[str, str, int, int]] = []
    blocks: list[bytes] = []
    size = 0
    for x in plain_weights(checkpoint, program):
        if size + len(x.values) > MAX_BYTES:
            raise LlamathError(
                f"a page runs models of at most {MAX_BYTES:,} bytes, found more in "
                f"{safe(checkpoint.path)}",
                hint="a page of its numbers alone has no such limit",
            )
        places.append((x.path, x.dtype, size, len(x.values)))
        blocks.append(bytes(x.values))
        size += len(x.values)
    return b"".join(blocks), places


def _rotations(program: Program) -> Iterator[dict[str, Any]]:
    """Yield the rotations by position, with the steps before and after each."""
    names = _names_by_place(program)
    for op in _ops(program, ops.Rope):
        step, before = names.get(_place(op.out)), names.get(_place(op.x))
        if step is None or before is None:
            continue
        rope = program.ropes[op.rope]
        angles = rope_frequencies(rope, rope.angle_length(1, 1)).angles
        yield {
            "step": step,
            "from": before,
            "heads": op.out.heads,
            "frequencies": list(angles),
            "interleaved": op.interleaved,
        }


def _attention(program: Program) -> Iterator[dict[str, Any]]:
    """Yield the operations of attention whose queries, keys and values are results."""
    names = _names_by_place(program)
    stored = {op.cache: op.x for op in _ops(program, ops.Store)}
    for result in program.results:
        if not result.weights:
            continue
        op = program.ops[result.op]
        assert isinstance(op, ops.Attention)
        places = (op.q, stored.get(op.key_cache), stored.get(op.value_cache))
        named = [names.get(_place(x)) for x in places if x]
        if len(named) < 3 or None in named:
            continue
        masked = op.window or op.chunk or op.has_alibi or op.softcap or op.sinks is not None
        queries, key_step, value_step = named
        yield {
            "step": result.weights,
            "queries": queries,
            "keys": key_step,
            "values": value_step,
            "heads": op.q.heads,
            "kvHeads": program.caches[op.key_cache].heads,
            "scale": op.scale,
            "isPlain": not (masked or op.first_key or op.first_value) and op.q.dim == op.key_dim,
        }


def _lens(program: Program, placed: list[PlacedWeight]) -> dict[str, Any] | None:
    """Return the final norm and head by their weights, if they are an RMSNorm and a matrix that
    read the residual stream as the last layer leaves it.
    """
    head, product = next(
        (
            (op, x)
            for op in _ops(program, ops.Linear)
            for x in op.products
            if _place(x.out) == _place(program.logits) and x.bias is None
        ),
        (None, None),
    )
    if head is None or product is None:
        return None
    norm = next((x for x in _ops(program, ops.RMSNorm) if _place(x.out) == _place(head.x)), None)
    last = next((x.view for x in reversed(program.results) if x.name.startswith("layers.")), View())
    if norm is None or norm.weight is None or norm.weight_rows != 1:
        return None
    passed = {_place(x.out): _place(x.x) for x in _ops(program, ops.LastToken)}
    read = _place(norm.x)
    if passed.get(read, read) != _place(last):
        return None
    (norm_path,), (head_path,) = placed[norm.weight].paths, placed[product.weight].paths
    tied = any(placed[x.table].paths == (head_path,) for x in _ops(program, ops.Lookup))
    return {
        "norm": norm_path,
        "head": head_path,
        "isTied": tied,
        "eps": norm.eps,
        "offset": norm.offset,
    }


def _ops(program: Program, kind: type[Kind]) -> Iterator[Kind]:
    return (x for x in program.ops if isinstance(x, kind))


def _place(view: View) -> tuple[int, int, int]:
    """Return the floats of a view, however they are split into heads."""
    return view.buffer, view.offset, view.size


def _names_by_place(program: Program) -> Mapping[tuple[int, int, int], str]:
    """Return the first result at each place: later ones are views of it."""
    return {_place(x.view): x.name for x in reversed(program.results) if x.view.has_joined_heads}
