"""Conversions: bit-identical round trips, files that other packages read, and the same logits by an independent forward pass."""

from __future__ import annotations

import json
import pickle
import pickletools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
from safetensors.torch import load_file, save_file  # noqa: E402

import llamath  # noqa: E402
from llamath.checkpoint.formats import checkpoint_files as checkpoint  # noqa: E402
from llamath.checkpoint.meta_args import LLAMA3_ROPE_SCALING  # noqa: E402
from llamath.cli import cli  # noqa: E402
from llamath.conversion.convert_checkpoint import (  # noqa: E402
    ConversionReport,
    ConvertOptions,
    convert_checkpoint,
)
from llamath.conversion.float_cast import cast_floats  # noqa: E402
from llamath.conversion.tensor_plan import OutputTensor  # noqa: E402
from llamath.conversion.write.write_meta import pickle_tensors  # noqa: E402
from llamath.utils.errors import ConvertError, LlamathError  # noqa: E402

pytestmark = pytest.mark.transformers
SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip
LLAMA3_ROPE = {"rope_theta": 500000.0, **LLAMA3_ROPE_SCALING}
MODELS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "tied": {"tie_word_embeddings": True},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "one key head": {"num_key_value_heads": 1},
    "Llama 3.1's positions": {
        "rope_parameters": LLAMA3_ROPE,
        "hidden_size": 96,
        "max_position_embeddings": 131072,
    },
}
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
Make = Callable[..., Path]


def save_model(
    path: Path, dtype: str = "BF16", shard: str = "5GB", kind: str = "Llama", **changes: Any
) -> Path:
    """Save a tiny random model with transformers."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    for x in model.parameters():
        torch.nn.init.normal_(x, std=0.3)
    model.to(TYPES[dtype]).save_pretrained(path, max_shard_size=shard)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Make:
    known: dict[str, Path] = {}

    def get(name: str = "grouped", dtype: str = "BF16") -> Path:
        key = f"{name} {dtype}"
        if key not in known:
            known[key] = save_model(tmp_path_factory.mktemp("hf") / "hf", dtype, **MODELS[name])
        return known[key]

    return get


def convert_to(kind: str, source: Path, target: Path, **order: Any) -> Path:
    convert_checkpoint(str(source), str(target), ConvertOptions(to=kind, **order))
    return target


def load_weights(path: Path) -> dict[str, Any]:
    """Load every tensor of a folder with the safetensors package."""
    return {
        name: x
        for file in sorted(path.glob("*.safetensors"))
        for name, x in load_file(file).items()
    }


def bits(x: Any) -> Any:
    return x.contiguous().view(torch.int16 if x.element_size() == 2 else torch.int32)


def are_identical(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(
        x.dtype == b[name].dtype and torch.equal(bits(x), bits(b[name])) for name, x in a.items()
    )


def load_meta(path: Path) -> dict[str, Any]:
    """Load `consolidated.00.pth` with torch, mapped or not and with `weights_only` or not, which must agree."""
    file = path / "consolidated.00.pth"
    ways = [
        torch.load(file, weights_only=safe, mmap=mapped)
        for safe in (True, False)
        for mapped in (True, False)
    ]
    assert all(are_identical(ways[0], x) for x in ways)
    first: dict[str, Any] = ways[0]
    return first


# ── round trips ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("kind", ["meta", "gguf", "hf"])
def test_round_trips_are_bit_identical(
    kind: str, name: str, dtype: str, model: Make, tmp_path: Path
) -> None:
    source = model(name, dtype)
    converted = convert_to(kind, source, tmp_path / ("there.gguf" if kind == "gguf" else "there"))
    context = (
        {}
        if kind != "meta"
        else {"max_position_embeddings": MODELS[name].get("max_position_embeddings", 64)}
    )
    back = convert_to("hf", converted, tmp_path / "back", changes=context)
    assert are_identical(load_weights(back), load_weights(source))
    a, b = (json.loads((x / "config.json").read_text()) for x in (source, back))
    for config in (a, b):
        config |= config.pop("rope_parameters", {})
        config["dtype"] = config.pop("torch_dtype", config.get("dtype"))
        if scaling := config.pop("rope_scaling", None):
            config |= scaling
    differing = {key for key in a.keys() & b.keys() if a[key] != b[key]}
    assert not differing, {key: (a[key], b[key]) for key in differing}
    assert (
        b["architectures"] == ["LlamaForCausalLM"]
        and llamath.load(str(back)).parameters.total == llamath.load(str(source)).parameters.total
    )
    if name.startswith("Llama"):
        assert {key: b[key] for key in LLAMA3_ROPE} == LLAMA3_ROPE


@pytest.mark.parametrize("name", list(MODELS))
def test_transformers_gives_the_same_logits_after_round_trips(
    name: str, model: Make, tmp_path: Path
) -> None:
    source = model(name, "F32")
    converted = convert_to("gguf", source, tmp_path / "there.gguf")
    back = convert_to("hf", convert_to("meta", source, tmp_path / "meta"), tmp_path / "back")
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokens = torch.arange(24)[None] * 3 % 97
    with torch.no_grad():
        right = load(source, dtype=torch.float32)(tokens).logits
        assert torch.equal(load(back, dtype=torch.float32)(tokens).logits, right)
        if not name.startswith(
            "Llama"
        ):  # whose scaling transformers' GGUF reader does not take from rope_freqs.weight
            assert torch.equal(
                load(tmp_path, gguf_file=converted.name, dtype=torch.float32)(tokens).logits, right
            )


def test_meta_and_hf_sources_give_the_same_gguf(model: Make, tmp_path: Path) -> None:
    for name in MODELS:
        source = model(name)
        context = {"max_position_embeddings": MODELS[name].get("max_position_embeddings", 64)}
        converted = convert_to("meta", source, tmp_path / name / "meta")
        (a, b) = (
            gguf.GGUFReader(
                convert_to("gguf", x, tmp_path / name / f"{x.name}.gguf", changes=context)
            )
            for x in (source, converted)
        )
        assert [(x.name, x.tensor_type, x.data_offset, x.data.tobytes()) for x in a.tensors] == [
            (x.name, x.tensor_type, x.data_offset, x.data.tobytes()) for x in b.tensors
        ] or [x.data.tobytes() for x in a.tensors] == [x.data.tobytes() for x in b.tensors]
        facts = [
            {f.name: f.contents() for f in x.fields.values() if f.name.startswith("llama.")}
            for x in (a, b)
        ]
        assert {key: facts[0][key] for key in facts[1]} == facts[1]
        assert facts[0].keys() - facts[1].keys() <= {
            "llama.attention.key_length",
            "llama.attention.value_length",
        }


@pytest.mark.parametrize("kind", ["Mixtral", "Qwen2"])
def test_mixtral_and_qwen2_round_trip_through_gguf(kind: str, tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "hf",
        kind=kind,
        **({"num_local_experts": 3, "num_experts_per_tok": 2} if kind == "Mixtral" else {}),
    )
    converted = convert_to("gguf", source, tmp_path / "there.gguf")
    back = convert_to("hf", converted, tmp_path / "back", changes={"rope_theta": 10000.0})
    assert are_identical(load_weights(back), load_weights(source))
    load = transformers.AutoModelForCausalLM.from_pretrained
    tokens = torch.arange(24)[None]
    with torch.no_grad():
        right = load(source, dtype=torch.float32)(tokens).logits
        assert torch.equal(load(back, dtype=torch.float32)(tokens).logits, right)
        if kind == "Qwen2":
            assert torch.equal(
                load(tmp_path, gguf_file=converted.name, dtype=torch.float32)(tokens).logits, right
            )
    with pytest.raises(ConvertError, match="only the llama family"):
        convert_to("meta", source, tmp_path / "meta")


# ── an independent forward pass over Meta's files ───────────────────────────────────────────────────────────────────


def apply_rope(x: Any, theta: float, scaled: bool) -> Any:
    """Rotate interleaved pairs of a head by position, as Meta's reference does."""
    n, _, h = x.shape
    freqs = 1.0 / theta ** (torch.arange(0, h, 2).float() / h)
    if scaled:
        waves = 2 * torch.pi / freqs
        smooth = (8192 / waves - 1) / 3
        middle = (1 - smooth) * freqs / 8 + smooth * freqs
        freqs = torch.where(waves > 8192, freqs / 8, torch.where(waves < 2048, freqs, middle))
    angle = torch.outer(torch.arange(n).float(), freqs)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack(
        [even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], -1
    ).flatten(-2)


def rms_norm(x: Any, weight: Any, eps: float) -> Any:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def logits(folder: Path, tokens: Any) -> Any:
    """Compute Llama's logits from `params.json` and `consolidated.00.pth` alone."""
    p, w = (
        json.loads((folder / "params.json").read_text()),
        {name: x.float() for name, x in load_meta(folder).items()},
    )
    heads, kv = p["n_heads"], p["n_kv_heads"]
    size, n, eps = p["dim"] // heads, len(tokens), p["norm_eps"]
    x = w["tok_embeddings.weight"][tokens]
    for i in range(p["n_layers"]):
        own = {
            name.removeprefix(f"layers.{i}."): value
            for name, value in w.items()
            if name.startswith(f"layers.{i}.")
        }
        y = rms_norm(x, own["attention_norm.weight"], eps)
        q, k, v = (
            (y @ own[f"attention.{name}.weight"].T).view(n, -1, size) for name in ("wq", "wk", "wv")
        )
        q, k = (apply_rope(z, p["rope_theta"], p.get("use_scaled_rope", False)) for z in (q, k))
        k, v = (z.repeat_interleave(heads // kv, 1) for z in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / size**0.5 + torch.full(
            (n, n), -torch.inf
        ).triu(1)
        x = (
            x
            + torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(n, -1)
            @ own["attention.wo.weight"].T
        )
        y = rms_norm(x, own["ffn_norm.weight"], eps)
        gate, up = (y @ own[f"feed_forward.{name}.weight"].T for name in ("w1", "w3"))
        x = x + (torch.nn.functional.silu(gate) * up) @ own["feed_forward.w2.weight"].T
    return rms_norm(x, w["norm.weight"], eps) @ w["output.weight"].T


@pytest.mark.parametrize("name", list(MODELS))
def test_independent_forward_pass_over_meta_files_agrees(
    name: str, model: Make, tmp_path: Path
) -> None:
    source = model(name, "F32")
    tokens = torch.arange(40) * 7 % 97
    with torch.no_grad():
        right = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)(
            tokens[None]
        ).logits[0]
        actual = logits(convert_to("meta", source, tmp_path / "meta"), tokens)
    assert right.abs().max() > 1 and (actual - right).abs().max() < 1e-4 * right.abs().max()


# ── GGUF by the gguf package ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", list(TYPES))
def test_gguf_file_matches_the_gguf_package(dtype: str, model: Make, tmp_path: Path) -> None:
    source = model("Llama 3.1's positions", dtype)
    reader = gguf.GGUFReader(convert_to("gguf", source, tmp_path / "x.gguf"))
    remaining = {x.name: x for x in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    stored = load_weights(source)
    matrix = {"F32": 0, "F16": 1, "BF16": 30}[dtype]
    for name, x in stored.items():
        gguf_tensor = remaining.pop(names.get_name(name, try_suffixes=(".weight",)))
        assert list(gguf_tensor.shape[::-1]) == list(x.shape)
        assert (
            gguf_tensor.tensor_type == (0 if x.ndim == 1 else matrix)
            and gguf_tensor.data_offset % 32 == 0
        )
        if "q_proj" not in name and "k_proj" not in name:
            assert (
                gguf_tensor.data.tobytes()
                == (x.float() if x.ndim == 1 else x)
                .contiguous()
                .view(torch.uint8)
                .numpy()
                .tobytes()
            )
    q = stored[
        "model.layers.1.self_attn.q_proj.weight"
    ]  # llama.cpp's order: of each head's two halves, one row in turn
    order = [head * 16 + half * 8 + i for head in range(6) for i in range(8) for half in (0, 1)]
    again = {x.name: x for x in reader.tensors}["blk.1.attn_q.weight"]
    assert again.data.tobytes() == q[order].contiguous().view(torch.uint8).numpy().tobytes()
    divisors = remaining.pop("rope_freqs.weight")
    assert (
        not remaining
        and divisors.tensor_type == 0
        and np.allclose(divisors.data, expected_divisors(16), rtol=1e-6)
    )
    facts = {
        x.name: (x.contents(), x.types[0].name)
        for x in reader.fields.values()
        if "." in x.name and not x.name.startswith("GGUF")
    }
    assert facts.pop("llama.attention.layer_norm_rms_epsilon") == (
        struct.unpack("<f", struct.pack("<f", 1e-5))[0],
        "FLOAT32",
    )
    assert facts == {
        "general.architecture": ("llama", "STRING"),
        "general.type": ("model", "STRING"),
        "general.name": ("hf", "STRING"),
        "general.file_type": ({"F32": 0, "F16": 1, "BF16": 32}[dtype], "UINT32"),
        "general.quantization_version": (2, "UINT32"),
        "llama.block_count": (2, "UINT32"),
        "llama.context_length": (131072, "UINT32"),
        "llama.embedding_length": (96, "UINT32"),
        "llama.feed_forward_length": (112, "UINT32"),
        "llama.attention.head_count": (6, "UINT32"),
        "llama.attention.head_count_kv": (2, "UINT32"),
        "llama.attention.key_length": (16, "UINT32"),
        "llama.attention.value_length": (16, "UINT32"),
        "llama.vocab_size": (97, "UINT32"),
        "llama.rope.dimension_count": (16, "UINT32"),
        "llama.rope.freq_base": (500000.0, "FLOAT32"),
        "tokenizer.ggml.model": ("none", "STRING"),
    }


def expected_divisors(h: int) -> Any:
    """Return transformers' frequencies without scaling divided by those with it."""
    config = transformers.LlamaConfig(
        **{
            **SMALL,
            "hidden_size": 6 * h,
            "rope_parameters": LLAMA3_ROPE,
            "max_position_embeddings": 131072,
        }
    )
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    return 1 / (500000.0 ** (np.arange(0, h, 2) / h)) / scaled.numpy()


# ── Meta's sharded checkpoints ──────────────────────────────────────────────────────────────────────────────────────

SPLIT_AXES = {"wq": 0, "wk": 0, "wv": 0, "w1": 0, "w3": 0, "output": 0, "wo": 1, "w2": 1}
"""Name → the axis that the reference's parallel layers split; every file has the other tensors."""


def split_for_ranks(folder: Path, target: Path, n: int, embedding: int, copies: int = 1) -> Path:
    """Split a checkpoint for n ranks as the reference saves it."""
    target.mkdir()
    whole = load_meta(folder)
    for i in range(n):
        part = {}
        for name, x in whole.items():
            word = name.split(".")[-2]
            axis = embedding if word == "tok_embeddings" else SPLIT_AXES.get(word)
            times = copies if word in ("wk", "wv") else 1
            part[name] = (
                x.clone() if axis is None else x.chunk(n // times, axis)[i // times].clone()
            )
        part["rope.freqs"] = torch.ones(4)
        torch.save(part, target / f"consolidated.{i:02}.pth")
    (target / "params.json").write_bytes((folder / "params.json").read_bytes())
    return target


@pytest.mark.parametrize(
    "embedding", [0, 1], ids=["by rows (Llama 3)", "by columns (Llama 1 and 2)"]
)
@pytest.mark.parametrize("n", [2, 4])
def test_sharded_meta_checkpoints_are_merged(n: int, embedding: int, tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "hf", vocab_size=96, num_attention_heads=8, num_key_value_heads=4, hidden_size=64
    )
    whole = convert_to("meta", source, tmp_path / "meta")
    parts = split_for_ranks(whole, tmp_path / "parts", n, embedding)
    assert are_identical(
        load_meta(convert_to("meta", parts, tmp_path / "joined")), load_meta(whole)
    )
    assert are_identical(
        load_weights(convert_to("hf", parts, tmp_path / "back")), load_weights(source)
    )
    a, b = (
        convert_to("gguf", x, tmp_path / f"{x.name}.gguf", changes={"max_position_embeddings": 64})
        for x in (whole, parts)
    )
    assert [x.data.tobytes() for x in gguf.GGUFReader(a).tensors] == [
        x.data.tobytes() for x in gguf.GGUFReader(b).tensors
    ]


def test_repeated_key_value_heads_are_merged_once(tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "hf", vocab_size=96, num_attention_heads=8, num_key_value_heads=2, hidden_size=64
    )
    whole = convert_to("meta", source, tmp_path / "meta")
    parts = split_for_ranks(whole, tmp_path / "parts", 4, 0, copies=2)
    assert are_identical(
        load_weights(convert_to("hf", parts, tmp_path / "back")), load_weights(source)
    )


def change_shard(parts: Path, file: str, change: Callable[[dict[str, Any]], None]) -> None:
    tensors = torch.load(parts / file, weights_only=True)
    change(tensors)
    torch.save(tensors, parts / file)


def test_inconsistent_meta_shards_are_refused(tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "hf", vocab_size=96, num_attention_heads=8, num_key_value_heads=2, hidden_size=64
    )
    whole = convert_to("meta", source, tmp_path / "meta")

    def refused(change: Callable[[dict[str, Any]], None], message: str, copies: int = 1) -> None:
        parts = split_for_ranks(
            whole, tmp_path / message.replace(" ", "-")[:30], 4 if copies > 1 else 2, 0, copies
        )
        change_shard(parts, "consolidated.01.pth", change)
        with pytest.raises(LlamathError, match=message):
            convert_to("hf", parts, tmp_path / "never")
        assert not (tmp_path / "never").exists()

    refused(
        lambda x: x["norm.weight"].add_(1),
        r"norm.weight should be equal in consolidated.00.pth and consolidated.01.pth",
    )
    refused(
        lambda x: x["layers.1.attention.wk.weight"].add_(1),
        r"layers.1.attention.wk.weight should be equal",
        copies=2,
    )
    refused(lambda x: x.pop("layers.1.attention.wq.weight"), r"wq is|wq has|wq")
    refused(lambda x: x.update({"layers.0.feed_forward.w1.weight": torch.zeros(3, 64)}), r"w1")
    parts = split_for_ranks(whole, tmp_path / "hole", 4, 0, 2)
    (parts / "consolidated.02.pth").unlink()
    with pytest.raises(
        LlamathError, match=r"consolidated.02.pth is missing, though consolidated.03.pth exists"
    ):
        convert_to("hf", parts, tmp_path / "never")


def test_missing_vocab_size_is_taken_from_the_embedding(model: Make, tmp_path: Path) -> None:
    folder = convert_to("meta", model(), tmp_path / "meta")
    params = json.loads((folder / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps({**params, "vocab_size": -1}))
    back = convert_to("hf", folder, tmp_path / "back")
    assert json.loads((back / "config.json").read_text())["vocab_size"] == 97


def test_tied_matrix_is_stored_once_with_two_names(model: Make, tmp_path: Path) -> None:
    source = model("tied")
    folder = convert_to("meta", source, tmp_path / "meta")
    loaded = load_meta(folder)
    assert loaded["output.weight"].data_ptr() == loaded["tok_embeddings.weight"].data_ptr()
    names = {x.name: x.storage for x in checkpoint.read_checkpoint(str(folder)).tensors}
    assert names["output.weight"] == names["tok_embeddings.weight"]
    untied = {**load_file(source / "model.safetensors")}
    untied["lm_head.weight"] = untied["model.embed_tokens.weight"].clone()
    twice = tmp_path / "twice"
    twice.mkdir()
    (twice / "config.json").write_bytes((source / "config.json").read_bytes())
    save_file(untied, twice / "model.safetensors")
    assert are_identical(
        load_weights(convert_to("hf", twice, tmp_path / "once")), load_weights(source)
    )
    untied["lm_head.weight"][0, 0] += 1
    save_file(untied, twice / "model.safetensors")
    with pytest.raises(
        ConvertError,
        match=r"lm_head.weight differs from model.embed_tokens.weight, to which the config ties it",
    ):
        convert_to("gguf", twice, tmp_path / "never.gguf", changes={"tie_word_embeddings": True})
    for i, changes in enumerate(({}, {"tie_word_embeddings": False})):
        assert are_identical(
            load_weights(convert_to("hf", twice, tmp_path / f"both{i}", changes=changes)), untied
        )


# ── shards, .pth and .bin files, strides ────────────────────────────────────────────────────────────────────────────


def test_sharded_source_and_target(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", shard="40KB")
    assert len(list(source.glob("*.safetensors"))) > 2
    back = convert_to(
        "hf",
        convert_to("meta", source, tmp_path / "meta"),
        tmp_path / "back",
        max_shard_size=40_000,
    )
    files = sorted(back.glob("*.safetensors"))
    assert [x.name for x in files] == [
        f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))
    ] and len(files) > 2
    index = json.loads((back / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(
        x.numel() * 2 for x in load_weights(source).values()
    )
    assert all(name in load_file(back / file) for name, file in index["weight_map"].items())
    assert (
        are_identical(load_weights(back), load_weights(source))
        and index["weight_map"].keys() == load_weights(source).keys()
    )
    assert all(sum(x.numel() * 2 for x in load_file(file).values()) <= 40_000 for file in files)
    assert all(checkpoint.read_file(str(x)).metadata == {"format": "pt"} for x in files)
    with torch.no_grad():
        tokens = torch.arange(9)[None]
        a, b = (
            transformers.AutoModelForCausalLM.from_pretrained(x, dtype=torch.float32)(tokens).logits
            for x in (source, back)
        )
    assert torch.equal(a, b)
    assert len(
        list(convert_to("hf", source, tmp_path / "each", max_shard_size=1).glob("*.safetensors"))
    ) == len(load_weights(source))


def test_mixed_dtypes_are_kept_and_aligned(model: Make, tmp_path: Path) -> None:
    source = tmp_path / "mixed"
    source.mkdir()
    (source / "config.json").write_bytes((model() / "config.json").read_bytes())
    mixed = {name: x.float() if "norm" in name else x for name, x in load_weights(model()).items()}
    save_file(mixed, source / "model.safetensors")
    for kind in ("hf", "meta"):
        converted = convert_to(kind, source, tmp_path / kind)
        assert are_identical(
            load_weights(
                converted if kind == "hf" else convert_to("hf", converted, tmp_path / "back")
            ),
            mixed,
        )


def test_bin_file_with_strided_tensors(model: Make, tmp_path: Path) -> None:
    source = tmp_path / "bin"
    source.mkdir()
    (source / "config.json").write_bytes((model() / "config.json").read_bytes())
    odd = dict(load_weights(model()))
    for name, x in odd.items():
        if "q_proj" in name:
            odd[name] = x.T.contiguous().T  # columns lie together
        elif "k_proj" in name:
            odd[name] = torch.cat([x, x], 1)[:, : x.shape[1]]  # rows with a gap between
        elif "layernorm" in name:
            odd[name] = torch.stack([x, x], 1)[:, 0]
    odd["model.layers.0.mlp.up_proj.weight"] = torch.full((1, 1), 0.5).expand(112, 48).bfloat16()
    odd["model.layers.1.mlp.up_proj.weight"] = torch.arange(48.0).bfloat16().expand(112, 48)
    torch.save(odd, source / "pytorch_model.bin")
    assert any(x.strides for x in checkpoint.read_checkpoint(str(source)).tensors)
    assert are_identical(
        load_weights(convert_to("hf", source, tmp_path / "hf")),
        {name: x.contiguous() for name, x in odd.items()},
    )
    again = convert_to("meta", source, tmp_path / "meta")
    assert are_identical(
        load_weights(convert_to("hf", again, tmp_path / "back")),
        {name: x.contiguous() for name, x in odd.items()},
    )


def test_archive_has_the_layout_of_torch_save(model: Make, tmp_path: Path) -> None:
    import zipfile

    folder = convert_to("meta", model(), tmp_path / "meta")
    with zipfile.ZipFile(folder / "consolidated.00.pth") as archive:
        assert archive.testzip() is None  # every checksum
        names = [x.filename for x in archive.infolist()]
        stream = archive.read("consolidated.00/data.pkl")
        assert (
            archive.read("consolidated.00/version") == b"3\n"
            and archive.read("consolidated.00/byteorder") == b"little"
        )
    assert names[0] == "consolidated.00/data.pkl" and len(set(names)) == len(names)
    torch.save(load_meta(folder), tmp_path / "own.pth")
    with zipfile.ZipFile(tmp_path / "own.pth") as archive:
        own = archive.read("own/data.pkl")
    mine, theirs = (
        {(op.name, arg) for op, arg, _ in pickletools.genops(x) if op.name in ("GLOBAL", "PROTO")}
        for x in (stream, own)
    )
    assert mine == theirs
    assert all(x.start % 64 == 0 for x in checkpoint.read_checkpoint(str(folder)).tensors)


def test_large_integers_are_pickled() -> None:
    for size in (0, 255, 2**31 - 1, 2**31, 2**40):
        stream = pickle_tensors([(OutputTensor("x", "F32", (size,)), 0)])
        assert size in {
            argument for _, argument, _ in pickletools.genops(stream) if type(argument) is int
        }
    assert pickle.loads(pickle_tensors([])) == {}


# ── dtypes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def all_values(dtype: str) -> Any:
    return torch.arange(-32768, 32768, dtype=torch.int16).view(TYPES[dtype])


@pytest.mark.parametrize("source", ["F16", "BF16"])
def test_widening_equals_torch_for_every_number(source: str) -> None:
    x = all_values(source)
    assert (
        cast_floats(x.view(torch.uint8).numpy().tobytes(), source, "F32")
        == x.float().view(torch.uint8).numpy().tobytes()
    )


def float32_samples() -> Any:
    """Return every sign and exponent, both sides of every tie, and random values."""
    ties = torch.arange(0, 2**16, dtype=torch.int64)[:, None] * 65536 + torch.tensor(
        [0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    )
    chosen = torch.randint(0, 2**32, (300_000,), generator=torch.Generator().manual_seed(1))
    return (
        torch.cat([ties.flatten(), chosen])
        .to(torch.int64)
        .remainder(2**32)
        .sub(2**31)
        .to(torch.int32)
        .view(torch.float32)
    )


@pytest.mark.parametrize("target", ["F16", "BF16"])
@pytest.mark.parametrize("source", ["F32", "F16", "BF16"])
def test_narrowing_equals_torch_bit_for_bit(source: str, target: str) -> None:
    x = float32_samples() if source == "F32" else all_values(source)
    right = x.to(TYPES[target])
    is_finite = ~(right.isinf() & ~x.float().isinf())
    x, right = x[is_finite], right[is_finite]
    actual = torch.frombuffer(
        bytearray(cast_floats(x.contiguous().view(torch.uint8).numpy().tobytes(), source, target)),
        dtype=TYPES[target],
    )
    nan = x.isnan()
    assert torch.equal(actual.isnan(), nan) and torch.equal(bits(actual)[~nan], bits(right)[~nan])
    if target == "F16" and source != "BF16":
        assert torch.equal(bits(actual), bits(right))  # NaN's payload too


def test_overflow_is_refused_and_infinity_is_kept() -> None:
    for value, target in ((65520.0, "F16"), (-1e30, "F16"), (3.4e38, "BF16")):
        assert torch.tensor(value).to(TYPES[target]).isinf()
        with pytest.raises(ConvertError, match=f"{target} cannot represent"):
            cast_floats(struct.pack("<f", value), "F32", target)
    assert cast_floats(struct.pack("<f", 65519.0), "F32", "F16") == b"\xff\x7b"
    assert cast_floats(struct.pack("<2f", np.inf, -np.inf), "F32", "F16") == b"\x00\x7c\x00\xfc"


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("kind", ["hf", "meta", "gguf"])
def test_requested_dtype_is_written(kind: str, dtype: str, model: Make, tmp_path: Path) -> None:
    source = model("grouped", "F32")
    converted = convert_to(
        kind, source, tmp_path / ("x.gguf" if kind == "gguf" else "x"), dtype=dtype
    )
    back = (
        converted if kind == "hf" else convert_to("hf", converted, tmp_path / "back", dtype=dtype)
    )
    assert are_identical(
        load_weights(back), {name: x.to(TYPES[dtype]) for name, x in load_weights(source).items()}
    )
    name = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
    config = json.loads((back / "config.json").read_text())
    assert (config.get("dtype") or config.get("torch_dtype")) == name


def test_overflowing_tensor_is_named_and_nothing_is_written(model: Make, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.mkdir()
    (source / "config.json").write_bytes((model() / "config.json").read_bytes())
    large = {name: x.float() for name, x in load_weights(model()).items()}
    large["model.layers.1.mlp.down_proj.weight"][3, 3] = -1e6
    save_file(large, source / "model.safetensors")
    with pytest.raises(
        ConvertError, match=r"model.layers.1.mlp.down_proj.weight: F16 cannot represent -1e\+06"
    ):
        convert_to("hf", source, tmp_path / "never", dtype="F16")
    assert not (tmp_path / "never").exists()
    convert_to("hf", source, tmp_path / "fits", dtype="BF16")


def test_vectors_stay_f32_if_narrowing_would_change_them(model: Make, tmp_path: Path) -> None:
    source = tmp_path / "mixed"
    source.mkdir()
    (source / "config.json").write_bytes((model() / "config.json").read_bytes())
    mixed = {
        name: x.float() + 1e-7 if "norm" in name else x for name, x in load_weights(model()).items()
    }
    save_file(mixed, source / "model.safetensors")
    assert are_identical(
        load_weights(
            convert_to("hf", convert_to("gguf", source, tmp_path / "x.gguf"), tmp_path / "back")
        ),
        mixed,
    )


# ── refusals and notes ──────────────────────────────────────────────────────────────────────────────────────────────


def refusals() -> Iterator[Any]:
    def without(name: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        return lambda tensors, _: tensors.__delitem__(name)

    yield pytest.param(
        without("model.layers.1.mlp.up_proj.weight"),
        "hf",
        "does not match its config: .*missing",
        id="missing",
    )
    yield pytest.param(
        lambda t, _: t.update(extra=torch.zeros(3)),
        "hf",
        "does not match its config: 1 tensor",
        id="extra",
    )
    yield pytest.param(
        lambda _, c: c.update(num_key_value_heads=3),
        "gguf",
        "does not match its config",
        id="mis-shaped",
    )
    yield pytest.param(
        lambda t, _: t.update({"lm_head.weight": t["lm_head.weight"].to(torch.float8_e4m3fn)}),
        "hf",
        "expected F32, F16, BF16 or a quantization scheme",
        id="FP8",
    )
    yield pytest.param(
        lambda _, c: c.update(model_type="gemma", head_dim=8),
        "meta",
        "only the llama family",
        id="family",
    )
    yield pytest.param(
        lambda _, c: c.update(hidden_act="gelu"), "meta", "hidden_act is gelu", id="activation"
    )
    yield pytest.param(
        lambda _, c: c.update(hidden_act="gelu"),
        "gguf",
        "would compute another activation",
        id="activation in GGUF",
    )
    yield pytest.param(
        lambda _, c: c.update(rope_parameters={"rope_type": "linear", "factor": 2.0}),
        "meta",
        "only Llama 3.1",
        id="linear",
    )
    yield pytest.param(
        lambda _, c: c.update(rope_parameters={**LLAMA3_ROPE, "low_freq_factor": 2.0}),
        "meta",
        "cannot express .*low_freq",
        id="other ramp",
    )


@pytest.mark.parametrize(("change", "kind", "message"), list(refusals()))
def test_bad_sources_are_refused_before_anything_is_written(
    change: Callable[[dict[str, Any], dict[str, Any]], None],
    kind: str,
    message: str,
    model: Make,
    tmp_path: Path,
) -> None:
    source = tmp_path / "bad"
    source.mkdir()
    tensors, config = dict(load_weights(model())), json.loads((model() / "config.json").read_text())
    change(tensors, config)
    save_file(tensors, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(LlamathError, match=message):
        convert_to(kind, source, tmp_path / "out" / "x")
    assert not (tmp_path / "out").exists()


def test_limits_of_the_target_format_are_noted(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", kind="Mistral", sliding_window=16)
    done: list[ConversionReport] = [
        convert_checkpoint(str(source), str(tmp_path / kind), ConvertOptions(to=kind))
        for kind in ("meta", "gguf")
    ]
    assert all(
        any("no sliding window: up to 16 tokens the model is the same" in note for note in x.notes)
        for x in done
    )
    far = save_model(tmp_path / "far", rope_parameters={**LLAMA3_ROPE, "factor": 32.0})
    assert any(
        "scaling factor 32" in x
        for x in convert_checkpoint(
            str(far), str(tmp_path / "far-meta"), ConvertOptions(to="meta")
        ).notes
    )


def test_biases_and_head_dim_round_trip_through_gguf(tmp_path: Path) -> None:
    source = save_model(tmp_path / "hf", attention_bias=True, mlp_bias=True, head_dim=12)
    converted = convert_to("gguf", source, tmp_path / "x.gguf")
    assert are_identical(
        load_weights(convert_to("hf", converted, tmp_path / "back")), load_weights(source)
    )
    reader = gguf.GGUFReader(converted)
    bias = load_weights(source)["model.layers.0.self_attn.k_proj.bias"].float()
    order = [head * 12 + half * 6 + i for head in range(2) for i in range(6) for half in (0, 1)]
    assert np.array_equal(
        next(x.data for x in reader.tensors if x.name == "blk.0.attn_k.bias"), bias[order].numpy()
    )
    assert (
        reader.fields["llama.attention.key_length"].contents()
        == reader.fields["llama.rope.dimension_count"].contents()
        == 12
    )
    with pytest.raises(LlamathError, match="head_dim is 12"):
        convert_to("meta", source, tmp_path / "meta")


def test_rope_scalings_round_trip_through_gguf(tmp_path: Path) -> None:
    for i, scaling in enumerate(
        [
            {"rope_type": "linear", "factor": 2.0},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        ]
    ):
        source = save_model(tmp_path / f"hf{i}", rope_parameters={"rope_theta": 10000.0, **scaling})
        back = convert_to(
            "hf", convert_to("gguf", source, tmp_path / f"{i}.gguf"), tmp_path / f"back{i}"
        )
        a, b = (llamath.load(str(x)).tree.layers[0].attn.rope for x in (source, back))  # type: ignore[attr-defined]
        assert a == b


@pytest.mark.parametrize("dtype", ["f16", "fp16", "float16", "torch.float16", "half", "F16"])
def test_dtype_in_any_spelling(dtype: str, model: Make, tmp_path: Path) -> None:
    args = ["convert", str(model()), str(tmp_path / "out"), "--names", "hf", "--dtype", dtype]
    assert CliRunner().invoke(cli, args, standalone_mode=False).exception is None
    assert {x.dtype for x in load_weights(tmp_path / "out").values()} == {torch.float16}


def test_unsupported_dtype_is_refused(model: Make, tmp_path: Path) -> None:
    for dtype, message in (
        ("fp8", "dtype fp8 is not supported for convert"),
        ("bf17", "unknown dtype 'bf17'"),
    ):
        with pytest.raises(LlamathError, match=message):
            convert_to("hf", model(), tmp_path / "out", dtype=dtype)
    assert not (tmp_path / "out").exists()
