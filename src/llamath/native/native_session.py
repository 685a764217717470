"""`NativeLlama`: a checkpoint on the native engine with its tokenizer, for text generation and
chat.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import embedded
from ..analysis.check.verify.verified_checkpoint import VerifiedCheckpoint, open_verified
from ..checkpoint.formats.dtypes import parse_dtype
from ..generation.bus_error import watch_files
from ..generation.free_memory import check_free_memory, free_host_bytes
from ..generation.generation import GenerationLimits
from ..generation.mapped_files import MappedFiles
from ..generation.sampling_parameters import Sampling
from ..generation.session import FolderTemplates, LlamaBase, find_tokenizer
from ..generation.stored_dtypes import check_readable, count_dtypes
from ..tokenizers import Tokenizer
from ..utils.errors import LlamathError
from ..utils.number_format import format_count
from .engine import KV_TYPES, NativeModel
from .library import BF16, F16, F32, load_library
from .lowering import NotExpressible
from .native_generation import CHUNK, NativeGeneration
from .weights import WeightStore

_DTYPES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_MATRIX_TYPES = {"fp32": F32, "bf16": BF16, "fp16": F16}


class NativeLlama(LlamaBase):
    """An open model on the native engine."""

    engine = "native"
    converted_to = ""  # the dtype of matrices, if it is not that of the file

    def __init__(
        self,
        checkpoint: VerifiedCheckpoint,
        files: MappedFiles,
        native: NativeModel,
        tokenizer: Tokenizer,
    ) -> None:
        tree = checkpoint.model.tree
        super().__init__(
            tokenizer,
            int(tree.embed.weight.shape[0]),
            None if tree.context is None else int(tree.context),
            checkpoint.model,
        )
        self.native, self._files = native, files

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        dtype: str | None = None,
        *,
        changes: Mapping[str, Any] | None = None,
    ) -> NativeLlama:
        """Open the model in this folder or file, or without a path the model bundled with the
        package.

        With dtype "int8" matrices are stored in eight bits and computed with in the dtype of the
        file.
        """
        location = embedded.path() if path is None else os.fspath(path)
        load_library()
        return cls.from_verified(open_verified(location, changes or {}), dtype)

    @classmethod
    def from_verified(
        cls,
        checkpoint: VerifiedCheckpoint,
        dtype: str | None = None,
        *,
        will_chat: bool = False,
        keep: bool = False,
    ) -> NativeLlama:
        """Load the weights of a verified checkpoint; meanwhile, with `will_chat`, its chat
        template is parsed. With `keep` a pass leaves the result of every operation.
        """
        templates = FolderTemplates(checkpoint.folder)
        if will_chat:
            templates.prepare()
        native, files, store = load_native(checkpoint, dtype, stored_pairs=not keep, keep=keep)
        llama = cls(checkpoint, files, native, find_tokenizer(checkpoint.folder))
        if dtype is not None:
            llama.converted_to = "int8" if dtype == "int8" else native.dtype
        llama.read_folder(checkpoint.folder, checkpoint.model.family.chat, templates)
        converted = [
            f"{count:,} weights converted from {old} to {new}"
            for (old, new), count in store.conversions.items()
        ]
        llama.notes = (*checkpoint.notes, *converted)
        return llama

    def describe_engine(self) -> str:
        threads = format_count(self.native.threads, "thread")
        return f"native engine ({self.native.path}, {self.native.dtype}, {threads})"

    def start_generation(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        limits: GenerationLimits,
        first_row: int,
    ) -> NativeGeneration:
        self._files.check_sizes()
        generation = NativeGeneration(self.native, prompts, sampling, limits, first_row=first_row)
        generation.source.check_memory = self._check_memory
        return generation

    def _check_memory(self, rows: int, capacity: int) -> None:
        """Raise an error if memory does not suffice for a cache of this capacity and the
        activations of a chunk of the prompt.
        """
        program, each = self.native.program, 4 if self.native.dtype == "fp32" else 2
        vectors = sum(
            x.heads * x.dim * min(capacity, (x.lookback or capacity) + CHUNK - 1)
            for x in program.caches
        )
        chunk = rows * capacity if self.native.has_length_dependent_rope else CHUNK
        activations = sum(
            x.width * (x.rows_per_token * chunk if x.rows_per_token else rows)
            for x in program.buffers
        )
        need = rows * (vectors * each + 4 * sum(x.size for x in program.states)) + 4 * activations
        sequences = f"{rows:,} sequences" if rows > 1 else "a sequence"
        check_free_memory(
            need,
            f"cache and activations for {sequences} of {capacity:,} tokens in "
            f"{_NAMES[self.native.dtype]}",
            free_host_bytes(),
        )


def load_native(
    checkpoint: VerifiedCheckpoint,
    dtype: str | None = None,
    threads: int | None = None,
    stored_pairs: bool = True,
    keep: bool = False,
) -> tuple[NativeModel, MappedFiles, WeightStore]:
    """Map the weights of a verified checkpoint, and lower its model; `dtype` None: that of the
    file, or bfloat16 for quantized weights.

    `stored_pairs` False: rotary pairs in the order of the tree, so that the same weights in two
    formats have identical logits. `keep`: passes leave the result of every operation.
    """
    check_readable(checkpoint)
    if checkpoint.model.tree.head is None:
        raise LlamathError(
            "the model has no output head, so it predicts no next token",
            hint="use a checkpoint for causal language modeling",
        )
    counts = count_dtypes(checkpoint)
    stored = counts.most_common(1)[0][0]
    if stored == "F64" and dtype is None:
        raise NotExpressible("the native engine does not compute in float64")
    own = _DTYPES[stored] if set(counts) <= {*_DTYPES, "F64"} and stored in _DTYPES else "bf16"
    name = (
        None
        if dtype in (None, "int8")
        else parse_dtype(str(dtype), ("F32", "F16", "BF16"), "computation").short_name
    )
    files = MappedFiles(checkpoint.manifest)
    watch_files(files)
    store = WeightStore(
        checkpoint, files, None if name is None else _MATRIX_TYPES[name], stored_pairs
    )
    compute = own if name is None else name
    assert compute in KV_TYPES, compute
    native = NativeModel(
        checkpoint.model.tree,
        store.load(),
        compute,
        int8=dtype == "int8",
        threads=threads,
        interleaved=store.keeps_pairs,
        keep=keep,
    )
    return native, files, store
