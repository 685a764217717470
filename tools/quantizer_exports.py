"""Write tests/truth/quantizer_exports.jsonl: the tensors that auto-round and Quark store for small
models, with their quantization configs.

Needs auto-round, amd-quark, torch and transformers, no GPU. Left out: FP8 that auto-round saves for
llm_compressor, whose config lists no exceptions though the head is one; blocks of FP8, which it
does not save without a GPU; and mixtures of experts of Quark, which does not quantize the fused
experts of transformers 5.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

OUTPUT = (
    Path(sys.argv[1])
    if sys.argv[1:]
    else Path(__file__).parents[1] / "tests" / "truth" / "quantizer_exports.jsonl"
)
SHAPE = {
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        **SHAPE,
        "num_hidden_layers": 2,
        "head_dim": 64,
        "tie_word_embeddings": False,
        "max_position_embeddings": 128,
    },
    "qwen3_moe": {
        **SHAPE,
        "num_hidden_layers": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "head_dim": 64,
        "max_position_embeddings": 128,
    },
}
OVERRIDES = {
    "model.layers.0.self_attn.q_proj": {"bits": 8},
    "model.layers.1.mlp.down_proj": {"bits": 16},
}
AUTO_ROUND: dict[str, dict[str, Any]] = {
    **{
        f"{scheme}, {form}": {"scheme": scheme, "form": form}
        for scheme in ("W2A16", "W4A16", "W8A16")
        for form in ("auto_round",)
    },
    "W3A16": {"scheme": "W3A16", "form": "auto_round"},
    "W4A16, asymmetric": {"scheme": "W4A16", "form": "auto_round", "sym": False},
    "W4A16, groups of 32": {"scheme": "W4A16", "form": "auto_round", "group_size": 32},
    "W4A16, a group for each row": {"scheme": "W4A16", "form": "auto_round", "group_size": -1},
    "W4A16, packed as AWQ": {"scheme": "W4A16", "form": "auto_round:auto_awq", "sym": False},
    "W4A16, saved as GPTQ": {"scheme": "W4A16", "form": "auto_gptq"},
    "W4A16, saved as AWQ": {"scheme": "W4A16", "form": "auto_awq", "sym": False},
    "W4A16, other bits for some": {
        "scheme": "W4A16",
        "form": "auto_round",
        "layer_config": OVERRIDES,
    },
    **{
        f"{scheme}": {"scheme": scheme, "form": "auto_round"}
        for scheme in ("MXFP4", "MXFP8", "FP8_STATIC", "NVFP4")
    },
    **{
        f"{scheme}, saved by llm_compressor": {"scheme": scheme, "form": "llm_compressor"}
        for scheme in ("MXFP4", "NVFP4")
    },
}


def new_model(model_type: str, keys: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    own = transformers.AutoConfig.for_model(model_type, **keys)
    model = transformers.AutoModelForCausalLM.from_config(own, dtype=torch.bfloat16)
    model.config.architectures = [type(model).__name__]
    return model


def tokenizer() -> Any:
    """Return a tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(letters)}, merges=[]))
    made.pre_tokenizer, made.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=letters[0], eos_token=letters[1]
    )


def auto_round(model: Any, folder: str, scheme: str, form: str, **options: Any) -> None:
    """Round to nearest, without tuning, and save."""
    from auto_round import AutoRound

    data = [
        {
            "input_ids": torch.randint(0, 256, (1, 64)),
            "attention_mask": torch.ones(1, 64, dtype=torch.long),
        }
        for _ in range(4)
    ]
    rounding = AutoRound(
        model,
        tokenizer=tokenizer(),
        scheme=scheme,
        iters=0,
        dataset=data,
        seqlen=64,
        nsamples=4,
        **options,
    )
    rounding.quantize_and_save(folder, format=form)


QUARK = """int4_wo_32 int4_wo_128 int4_wo_per_channel uint4_wo_32 uint4_wo_128 int8 fp8 ptpc_fp8
mxfp4 mxfp4_weight_only mxfp6_e3m2 mxfp6_e2m3 mxfp4_fp8 int4_fp8 nvfp4""".split()


def quark(model: Any, folder: str, scheme: str, **options: Any) -> None:
    """Quantize by a scheme of Quark's templates, and save."""
    from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors

    options.setdefault("exclude_layers", ["lm_head", "*.gate"])
    config = LLMTemplate.get(model.config.model_type).get_config(scheme, **options)
    data = torch.utils.data.DataLoader(
        [torch.randint(0, 256, (32,)) for _ in range(4)], batch_size=2
    )
    quantizer = ModelQuantizer(config)
    quantized = quantizer.freeze(quantizer.quantize_model(model, data))
    export_safetensors(quantized, folder)


def exports() -> Iterator[tuple[str, Callable[[Any, str], None]]]:
    for name, options in AUTO_ROUND.items():
        yield (
            f"auto-round, {name}",
            lambda model, folder, options=options: auto_round(model, folder, **options),
        )  # type: ignore[misc]
    for scheme in QUARK:
        yield f"Quark, {scheme}", lambda model, folder, scheme=scheme: quark(model, folder, scheme)  # type: ignore[misc]
    layers = {"*.q_proj": "fp8", "*.down_proj": "int8"}
    yield (
        "Quark, fp8 and others",
        lambda model, folder: quark(model, folder, "mxfp4", layer_config=layers),
    )
    yield (
        "Quark, cache in FP8",
        lambda model, folder: quark(model, folder, "fp8", kv_cache_scheme="fp8"),
    )


def facts_of(folder: Path) -> dict[str, Any]:
    """Return the quantization config of a saved model, and the facts on its tensors."""
    found: dict[str, tuple[str, list[int]]] = {}
    for path in folder.rglob("*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        found |= {
            name: (x["dtype"], x["shape"]) for name, x in header.items() if name != "__metadata__"
        }
    (config,) = folder.rglob("config.json")
    section = json.loads(config.read_text())["quantization_config"]
    lines = [
        f"{name}\t{dtype}\t{'x'.join(map(str, shape))}"
        for name, (dtype, shape) in sorted(found.items())
    ]
    digest = hashlib.sha256("".join(f"{x}\n" for x in lines).encode()).hexdigest()
    return {"quantization_config": section, "tensors": len(found), "tensors_sha256": digest}


def main() -> None:
    lines: list[str] = []
    for name, export in exports():
        if sys.argv[2:] and not any(x in name for x in sys.argv[2:]):
            continue
        for model_type, keys in MODELS.items():
            if name.startswith("Quark") and model_type != "llama":
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    export(new_model(model_type, keys), folder)
                    facts = facts_of(Path(folder))
                except Exception as error:
                    print(f"{name}, {model_type}: {type(error).__name__}: {error}")
                    continue
            print(f"{name}, {model_type}: {facts['tensors']} tensors")
            lines.append(
                json.dumps(
                    {
                        "name": f"{name}, {model_type}",
                        "config": {"model_type": model_type, **keys},
                        **facts,
                    }
                )
            )
            OUTPUT.write_text("".join(f"{x}\n" for x in lines))


if __name__ == "__main__":
    main()
