"""`Llama`: a model on torch with its tokenizer, for text generation and chat."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from .. import embedded
from ..analysis.size.memory.inference_memory import MemoryRequest
from ..generation.generation import GenerationLimits
from ..generation.sampling_parameters import Sampling
from ..generation.session import (
    ChatSession,
    Completion,
    LlamaBase,
    check_tokenizer,
    collect_completions,
    find_tokenizer,
    parse_message,
)
from ..model import FamilyModel
from ..tokenizers import Tokenizer
from ..utils.errors import Argument, LlamathError
from .batch import Batch
from .memory_budget import MEMORY_DTYPES, check_memory_for, check_memory_for_rank
from .module import Decoder, TensorOptions
from .torch_generation import Generation
from .weights.open_model import Device, LoadedModel, Progress, no_progress, on_all_ranks, open_model

__all__ = [
    "ChatSession",
    "Completion",
    "Llama",
    "check_tokenizer",
    "collect_completions",
    "parse_message",
]


class Llama(LlamaBase):
    """An open model on torch: `module` computes."""

    engine = "torch"

    def __init__(
        self, module: Decoder, tokenizer: Tokenizer, model: FamilyModel | None = None
    ) -> None:
        super().__init__(tokenizer, module.embed.weight.shape[0], module.spec.context, model)
        self.module = module
        self._check_files: Callable[[], object] = lambda: None  # that none has become shorter

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        dtype: str | torch.dtype | None = None,
        device: Device = "cpu",
        *,
        progress: Progress = no_progress,
        changes: Mapping[str, Any] | None = None,
    ) -> Llama:
        """Open the model in this folder or file, or without a path the model bundled with the
        package.
        """
        location = embedded.path() if path is None else os.fspath(path)
        if dtype == "int8":
            raise LlamathError(
                "int8 is computed by the native engine on a CPU",
                hint=f"give {Argument('engine', 'native')}, or {Argument('dtype', 'bf16')}",
            )
        return cls.from_loaded(open_model(location, dtype, device, progress, changes))

    @classmethod
    def from_loaded(cls, loaded: LoadedModel) -> Llama:
        """Combine a loaded checkpoint with its tokenizer, chat format and sampling parameters."""
        llama = cls(loaded.module, find_tokenizer(loaded.folder), loaded.model)
        llama.read_folder(loaded.folder, loaded.model.family.chat)
        llama.notes = loaded.notes
        llama._check_files = loaded.files.check_sizes
        return llama

    def parallelize(self, mesh: DeviceMesh) -> Llama:
        """Shard the model over the ranks of a mesh; `open(path, device=mesh)` reads only this
        rank's shard.
        """
        from .distributed.tensor_parallel import parallelize

        parallelize(self.module, mesh)
        return self

    def describe_engine(self) -> str:
        first, threads = next(self.module.parameters()), torch.get_num_threads()
        where = (
            f"{threads} thread{'s' if threads != 1 else ''}"
            if first.device.type == "cpu"
            else str(first.device)
        )
        return (
            f"torch engine ({torch.__version__}, {str(first.dtype).removeprefix('torch.')}, "
            f"{where})"
        )

    def start_generation(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        limits: GenerationLimits,
        first_row: int,
    ) -> Generation:
        self._check_files()
        generation = Generation(self.module, prompts, sampling, limits, first_row=first_row)
        generation.batch.check_memory = partial(self._check_memory, generation.batch)
        return generation

    def _check_memory(self, batch: Batch, rows: int, capacity: int) -> None:
        """Raise an error if memory does not suffice for a cache of this capacity and the
        activations of a prefill chunk.
        """
        if self.model is None:
            return
        first, mesh = next(self.module.parameters()), self.module.mesh
        chunk = rows * capacity if batch.reads_prompt_at_once else batch.prefill_chunk
        request = MemoryRequest(
            context=capacity, batch=rows, kv_dtype=MEMORY_DTYPES[first.dtype], chunk=chunk
        )
        options = TensorOptions(first.dtype, first.device)
        if mesh is None:
            check_memory_for(self.model, request, options, loaded=True)
        else:
            on_all_ranks(
                mesh, partial(check_memory_for_rank, self.model, request, options, self.module)
            )
