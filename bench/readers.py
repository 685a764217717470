"""Engines without a generation loop of their own, llama.cpp and OpenVINO, and the conversion of
checkpoints for them."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Rows = list[list[int]]
"""Token ids of several sequences of the same length."""


class Task(NamedTuple):
    """The measurement, and the start time of the process (monotonic clock)."""

    engine: str
    folder: str
    dtype: str
    threads: int
    tokens: int
    began: float
    context: int = 4096  # tokens before those that are decoded in a long context; 0: none are


class Reader(Protocol):
    """An engine that processes given tokens and returns logits."""

    def reset(self) -> None: ...

    def logits_after(self, rows: Rows, past: int) -> list[Any]:
        """Return the logits after these tokens of each row, which follow `past` earlier ones."""


class LlamaCpp:
    """llama.cpp through its C API, on the GGUF file next to the folder.

    Its KV cache is in float16, the default.
    """

    def __init__(self, task: Task) -> None:
        self.api: Any = importlib.import_module("llama_cpp")
        self.quiet = self.api.llama_log_callback(lambda *_: None)
        self.api.llama_log_set(self.quiet, None)
        load, self.kept = (
            self.api.llama_model_default_params(),
            self.no_vocab_overrides(self.api, task.folder),
        )
        load.kv_overrides = self.kept
        self.model = self.api.llama_model_load_from_file(file(task.folder), load)
        how = self.api.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch, how.n_seq_max, how.kv_unified = (
            8192,
            8192,
            512,
            8,
            True,
        )
        how.n_threads = how.n_threads_batch = task.threads
        self.context = self.api.llama_init_from_model(self.model, how)
        self.words = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))

    @staticmethod
    def no_vocab_overrides(api: Any, folder: str) -> Any:
        """Metadata overrides for a file without a tokenizer."""
        kept = (api.llama_model_kv_override * 3)()
        kept[0].key, kept[0].tag, kept[0].value.val_str = (
            b"tokenizer.ggml.model",
            api.LLAMA_KV_OVERRIDE_TYPE_STR,
            b"no_vocab",
        )
        words = json.loads(Path(folder, "config.json").read_text())["vocab_size"]
        kept[1].key, kept[1].tag, kept[1].value.val_i64 = (
            b"llama.vocab_size",
            api.LLAMA_KV_OVERRIDE_TYPE_INT,
            words,
        )
        return kept

    def reset(self) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def logits_after(self, rows: Rows, past: int) -> list[Any]:
        batch, n = self.api.llama_batch_init(sum(map(len, rows)), 0, 1), 0
        ends = []
        for row, tokens in enumerate(rows):
            for i, token in enumerate(tokens):
                batch.token[n], batch.pos[n], batch.n_seq_id[n] = token, past + i, 1
                batch.seq_id[n][0], batch.logits[n] = row, i == len(tokens) - 1
                n += 1
            ends.append(n - 1)
        batch.n_tokens = n
        if self.api.llama_decode(self.context, batch):
            raise SystemExit("llama.cpp could not process these tokens")
        self.api.llama_batch_free(batch)
        numpy: Any = importlib.import_module("numpy")
        return [
            numpy.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, x), (self.words,))
            for x in ends
        ]


class OpenVino:
    """OpenVINO's runtime on the model that `export` wrote next to the folder, compiled anew each
    time, without a cache.

    Products and the KV cache are in the dtype of the weights; with int8 weights in bfloat16, so
    that only weights are rounded to eight bits. Threads are not pinned, as for the other engines.
    """

    def __init__(self, task: Task) -> None:
        library: Any = importlib.import_module("openvino")
        self.numpy: Any = importlib.import_module("numpy")
        kind = library.Type.f32 if task.dtype == "float32" else library.Type.bf16
        how = {
            "INFERENCE_PRECISION_HINT": kind,
            "KV_CACHE_PRECISION": kind,
            "INFERENCE_NUM_THREADS": task.threads,
        }
        how |= {
            "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        model = library.Core().compile_model(f"{task.folder}.xml", "CPU", how)
        for name, value in how.items():
            if name != "PERFORMANCE_HINT" and model.get_property(name) != value:
                raise SystemExit(
                    f"OpenVINO's {name} is {model.get_property(name)}, expected {value}"
                )
        self.request = model.create_infer_request()

    def reset(self) -> None:
        self.request.reset_state()

    def logits_after(self, rows: Rows, past: int) -> list[Any]:
        x = self.numpy.array(rows, dtype="int64")
        many, end = len(rows), past + x.shape[1]
        given = {
            "input_ids": x,
            "attention_mask": self.numpy.ones((many, end), "int64"),
            "position_ids": self.numpy.tile(self.numpy.arange(past, end), (many, 1)),
            "beam_idx": self.numpy.arange(many, dtype="int32"),
        }
        self.request.infer(given, share_inputs=True)
        return list(self.request.get_output_tensor().data[:, -1])


def export(task: Task) -> dict[str, float]:
    """Export the folder for OpenVINO with optimum-intel; int8 with nncf, one scale per row.

    The head computes the last token's logits only, as openvino-genai and the other engines do.
    """
    library: Any = importlib.import_module("openvino")
    opset: Any = importlib.import_module("openvino.opset13")
    exporter: Any = importlib.import_module("optimum.exporters.openvino")
    # the default config would quantize models larger than 1B to int8
    plain = importlib.import_module("optimum.intel").OVConfig()
    with tempfile.TemporaryDirectory() as place:
        exporter.main_export(
            task.folder, place, task="text-generation-with-past", ov_config=plain, device="cpu"
        )
        model = library.Core().read_model(f"{place}/openvino_model.xml")
        head = model.output("logits").node.input_value(0).node.input(0)
        head.replace_source_output(opset.gather(head.get_source_output(), [-1], 1).output(0))
        model.validate_nodes_and_infer_types()
        if task.dtype == "int8":
            nncf: Any = importlib.import_module("nncf")
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        library.save_model(model, f"{task.folder}.xml", compress_to_fp16=False)
    return {}


def file(folder: str) -> bytes:
    """Path of the GGUF file."""
    return f"{folder}.gguf".encode()
