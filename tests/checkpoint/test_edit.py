"""`convert` with edits of checkpoints written by hand: arguments, config files, names, quantized weights, killed runs, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import llamath
from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.cli import cli
from llamath.conversion.edit.layer_selection import select_layers
from llamath.utils.errors import LlamathError
from support import kill_conversions, quantized_headers
from support.cost_limits import peak_bytes
from support.edited_checkpoints import edit
from support.quantized_headers import Header, packed, plain
from support.release import usual
from support.sparse_checkpoints import write_safetensors

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2, 70],
}  # fmt: skip
MOE = {
    **LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4,
    "topk_group": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 2, "kv_lora_rank": 16, "q_lora_rank": None,
    "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "num_nextn_predict_layers": 1,
}  # fmt: skip
CHUNK = 1 << 20


def write_checkpoint(
    folder: Path,
    config: dict[str, Any],
    extra: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> Path:
    """Write a checkpoint in which the bytes of each tensor begin with its name, so that each can be recognized."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = llamath.load(str(folder))
    scheme = model.scheme("hf")
    stored = [
        (x.name, tuple(map(int, x.shape)))
        for x in (*scheme.tensors(model.tree), *scheme.mtp_tensors(model.tree))
    ]
    stored += extra.items()
    path = write_safetensors(
        folder / "model.safetensors", {name: ("BF16", shape) for name, shape in stored}
    )
    tensors = read_checkpoint(str(path)).tensors
    with path.open("r+b") as file:
        for i, x in enumerate(tensors):
            file.seek(x.start)
            file.write(bytes((7 * i + j) % 61 for j in range(x.bytes)))
    return folder


def tensor_bytes(folder: Path) -> dict[str, bytes]:
    """The bytes of every tensor."""
    manifest = read_checkpoint(str(folder))
    files = [Path(x.name).read_bytes() for x in manifest.files]
    return {x.name: files[x.file][x.start : x.end] for x in manifest.tensors}


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "tiny", LLAMA)


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("moe") / "tiny-moe", MOE)


def refused(source: Path, target: Path, match: str, **edits: Any) -> None:
    """An edit is refused, and nothing is written."""
    with pytest.raises(LlamathError, match=match):
        edit(source, target, **edits)
    assert not target.exists()


def run(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, list(map(str, args)))


# ── arguments ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 40), st.integers(-45, 45), st.integers(-45, 45), st.integers(1, 5))
def test_ranges_select_what_python_slices_do(count: int, first: int, last: int, step: int) -> None:
    numbers = list(range(count))
    try:
        found = select_layers(f"{first}:{last}:{step}", count)
    except LlamathError as error:
        assert (
            not -count <= first <= count
            or not -count <= last <= count
            or not numbers[first:last:step]
        ), error
    else:
        assert list(found) == numbers[first:last:step]


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("3", [3]),
        ("-1", [9]),
        ("7:", [7, 8, 9]),
        (":2,9", [0, 1, 9]),
        ("::4", [0, 4, 8]),
        (" 9 , 1", [1, 9]),
    ],
)
def test_numbers_and_open_ranges_are_selected(text: str, selected: list[int]) -> None:
    assert list(select_layers(text, 10)) == selected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--names: expected hf, hf-fused, meta or gguf, found none"),
        (["--layers", "1:x"], "--layers should be numbers and half-open ranges"),
        (["--layers", ""], "--layers is empty"),
        (["--layers", "3,,4"], "--layers should be numbers"),
        (["--layers", "1e1"], "--layers should be numbers"),
        (["--layers", "²"], "--layers should be numbers"),
        (["--layers", "4"], "--layers: expected layers from 0 to 3, found 4"),
        (["--layers", "2:9"], "expected layers from 0 to 3, found 9"),
        (["--layers", "-5"], "expected layers from 0 to 3, found -5"),
        (["--layers", "2:2"], "--layers selects no layer"),
        (["--layers", "0:4:0"], "the step should be at least 1"),
        (["--layers", "0:4"], "--layers keeps all 4 layers"),
        (["--layers", "0:2,-3"], "--layers: layer 1 is selected twice"),
        (["--layers", "9" * 400], "--layers should be numbers"),
        (["--vocab-size", "0"], "--vocab-size should be an integer from 1 to"),
        (["--vocab-size", "-3"], "--vocab-size should be an integer from 1 to"),
        (["--vocab-size", "1e3"], "--vocab-size should be an integer from 1 to"),
        (["--vocab-size", "100"], "--vocab-size 100: the vocabulary has this size already"),
        (["--vocab-size", "70"], "eos_token_id is 70, which needs at least 71 rows"),
        (["--tp-shards", "1"], "--tp-shards should be an integer from 2 to 4,096, found '1'"),
        (["--tp-shards", "0/2"], "--tp-shards should be an integer from 2 to 4,096"),
        (["--tp-shards", "8"], "TP 8: 4 heads"),
        *(
            (["--tp-shards", "2", *x], "--tp-shards cuts a checkpoint as it is stored")
            for x in (
                ["--names", "hf"],
                ["--dtype", "fp16"],
                ["--part", "main"],
                ["--set", "rope_theta=1e6"],
            )
        ),
        (["--layers", "0", "--dtype", "fp16"], "--names: expected hf, hf-fused, meta or gguf"),
        (
            ["--layers", "0", "--vocab-size", "90", "--adapter", "x"],
            "--layers and --vocab-size cannot be used with --adapter",
        ),
        (["--keep-experts", "0:2"], "No such option"),
        (["--untie"], "No such option"),
        (["--join-shards"], "has no subfolder with one rank"),
    ],
)
def test_wrong_options_are_refused(
    options: list[str], message: str, source: Path, tmp_path: Path
) -> None:
    done = run("convert", source, tmp_path / "out", *options)
    assert done.exit_code == 2 and message in " ".join(done.stderr.split()) and not done.stdout
    assert not (tmp_path / "out").exists()


def test_existing_files_and_the_source_are_kept(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (source, source / "inside", tmp_path / "file", tmp_path):
        done = run("convert", source, target, "--layers", "1:")
        assert done.exit_code == 2, target
    assert (tmp_path / "file").read_text() == "x" and not (source / "inside").exists()
    assert run("convert", source, tmp_path, "--layers", "1:", "--force").exit_code == 0
    assert {x.name for x in tmp_path.iterdir()} == {"file", "model.safetensors", "config.json"}


def test_text_and_json_report_the_same_change(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("convert", source, out, "--layers", "0,3", "--vocab-size", 128, "--dry-run")
    text, found = run(*options).stdout, json.loads(run(*options, "--json").stdout)
    before, after = (
        llamath.load(LLAMA, changes=x) for x in ({}, {"num_hidden_layers": 2, "vocab_size": 128})
    )
    totals = before.parameters.total, after.parameters.total
    assert found["parameters"] == {
        "before": totals[0],
        "after": totals[1],
        "change": totals[1] - totals[0],
    }
    assert found["config"] == {"vocab_size": 128, "num_hidden_layers": 2}
    assert 0 < found["files"][0]["bytes"] - 2 * totals[1] < 3000  # the header
    assert f"{totals[0]:,} → {totals[1]:,} parameters" in " ".join(text.split())
    assert "rows 100–127 are the mean" in text
    edits = llamath.Edit(layers=[0, 3], vocab_size=128)
    for form in ("layers=0,3,vocab_size=128", edits):
        assert found == llamath.convert(source, out, edit=form, dry_run=True).to_json()
    assert not out.exists()


@pytest.mark.parametrize("width", [60, 80])
def test_text_fits_the_terminal(width: int, source: Path, tmp_path: Path) -> None:
    paths = (str(source), str(tmp_path / "o"))
    options = ["convert", *paths, "--layers", "0,3", "--vocab-size", "128", "--dry-run"]
    done = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1"}).invoke(cli, options)
    long = [x for x in done.stdout.splitlines() if len(x) > width and str(tmp_path) not in x]
    assert done.exit_code == 0 and not long


# ── tensors and configs ─────────────────────────────────────────────────────────────────────────────────────────────


def test_layers_are_renumbered_and_their_bytes_copied(source: Path, tmp_path: Path) -> None:
    edit(source, tmp_path / "out", layers=[0, 3])
    old, new = tensor_bytes(source), tensor_bytes(tmp_path / "out")
    expected = {x: data for x, data in old.items() if ".layers." not in x or ".0." in x}
    expected |= {x.replace(".3.", ".1."): data for x, data in old.items() if ".layers.3." in x}
    assert new == expected and llamath.verify(tmp_path / "out").ok


def test_vocabulary_rows_are_kept_and_the_mean_appended(source: Path, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    edit(source, tmp_path / "more", vocab_size=103)
    edit(source, tmp_path / "less", vocab_size=71)
    old = tensor_bytes(source)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        more, less = (tensor_bytes(tmp_path / x)[name] for x in ("more", "less"))
        assert less == old[name][: 71 * 64] and more[: 100 * 64] == old[name]
        rows = (numpy.frombuffer(old[name], "<u2").astype("<u4") << 16).view("<f4").reshape(100, 32)
        mean = rows.astype("f8").mean(0).astype("<f4").view("<u4")
        rounded = (mean + 0x7FFF + (mean >> 16 & 1)) >> 16
        assert more[100 * 64 :] == rounded.astype("<u2").tobytes() * 3
    assert all(
        old[x] == data for x, data in tensor_bytes(tmp_path / "less").items() if ".layers." in x
    )


def test_prediction_layers_are_renumbered(moe: Path, tmp_path: Path) -> None:
    edit(moe, tmp_path / "out", layers="0,2:")
    old, new = tensor_bytes(moe), tensor_bytes(tmp_path / "out")
    assert config_of(tmp_path / "out") == {
        **MOE,
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
    }
    expected = {x: data for x, data in old.items() if ".layers." not in x or ".layers.0." in x}
    for before, after in ((2, 1), (3, 2), (4, 3)):  # 4 predicts further tokens
        prefix = f"model.layers.{before}."
        expected |= {
            x.replace(prefix, f"model.layers.{after}."): data
            for x, data in old.items()
            if x.startswith(prefix)
        }
    assert new == expected and llamath.verify(tmp_path / "out").ok


PATTERNS: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (
        {
            "model_type": "gemma3_text",
            "num_hidden_layers": 6,
            "sliding_window_pattern": 3,
            "head_dim": 8,
            "sliding_window": 16,
        },
        "0,2:",
        {"layer_types": [f"{x}_attention" for x in "sliding full sliding sliding full".split()]},
    ),
    (
        {
            "model_type": "gemma3_text",
            "num_hidden_layers": 6,
            "sliding_window_pattern": 3,
            "head_dim": 8,
        },
        ":3",
        {},
    ),
    (
        {
            "model_type": "qwen2",
            "num_hidden_layers": 6,
            "use_sliding_window": True,
            "max_window_layers": 3,
            "sliding_window": 16,
        },
        "1:5",
        {"max_window_layers": 2},
    ),
    (
        {
            "model_type": "qwen3_moe",
            "num_hidden_layers": 6,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [3],
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "head_dim": 8,
            "norm_topk_prob": True,
        },
        "1:",
        {"decoder_sparse_step": 1, "mlp_only_layers": [1, 2, 3]},
    ),
    (
        {"model_type": "smollm3", "num_hidden_layers": 6, "no_rope_layer_interval": 3},
        "1:",
        {"no_rope_layers": [1, 0, 1, 1, 0]},
    ),
    (
        {
            "model_type": "nemotron_h",
            "hybrid_override_pattern": "M*-M",
            "mamba_num_heads": 4,
            "mamba_head_dim": 8,
            "n_groups": 2,
            "ssm_state_size": 4,
            "conv_kernel": 4,
            "head_dim": 8,
            "mlp_hidden_act": "relu2",
            "num_hidden_layers": 4,
        },
        "0,2:",
        {"hybrid_override_pattern": "M-M"},
    ),
    (
        {
            "model_type": "gpt2",
            "n_embd": 32,
            "n_head": 4,
            "n_layer": 4,
            "n_positions": 64,
            "vocab_size": 100,
        },
        ":2,3",
        {"n_layer": 3},
    ),
    (
        {"model_type": "lfm2", "num_hidden_layers": 5, "full_attn_idxs": [1, 4], "conv_L_cache": 3},
        "2:",
        {"full_attn_idxs": [2]},
    ),
]


@pytest.mark.parametrize(("keys", "kept", "changed"), PATTERNS)
def test_layer_patterns_are_rewritten(
    keys: dict[str, Any], kept: str, changed: dict[str, Any], tmp_path: Path
) -> None:
    config = keys if "n_layer" in keys else {**LLAMA, "architectures": None, **keys}
    source = write_checkpoint(tmp_path / "source", config)
    report = edit(source, tmp_path / "out", layers=kept)
    chosen = select_layers(kept, int(llamath.load(config).tree.layers.n))
    old, new = llamath.load(config).tree, llamath.load(str(tmp_path / "out")).tree
    assert list(new.layers) == [x for i, x in enumerate(old.layers) if i in chosen]
    number = {} if "n_layer" in changed else {"num_hidden_layers": len(new.layers)}
    assert report.config == {**number, **changed} and config_of(tmp_path / "out") == {
        **config,
        **number,
        **changed,
    }
    assert llamath.verify(tmp_path / "out").ok


def test_inexpressible_layers_are_refused_by_name(tmp_path: Path) -> None:
    keys = {
        "model_type": "gpt2",
        "n_embd": 32,
        "n_head": 4,
        "n_layer": 4,
        "vocab_size": 100,
        "scale_attn_by_inverse_layer_idx": True,
    }
    source = write_checkpoint(tmp_path / "source", {**keys, "n_positions": 64})
    refused(
        source,
        tmp_path / "out",
        "layer 1, layer 2 of the original, would have another attn.score_transform",
        layers="0,2:",
    )
    edit(source, tmp_path / "out", layers=":-1")
    assert config_of(tmp_path / "out")["n_layer"] == 3


def test_multimodal_checkpoints_keep_their_other_parts(tmp_path: Path) -> None:
    text = {
        **LLAMA,
        "model_type": "qwen3_5_text",
        "head_dim": 8,
        "num_hidden_layers": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    text |= {
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "tie_word_embeddings": True,
    }
    config = {
        "model_type": "qwen3_5",
        "tie_word_embeddings": True,
        "image_token_id": 99,
        "text_config": text,
        "vision_config": {
            "depth": 1,
            "hidden_size": 8,
            "intermediate_size": 12,
            "num_heads": 2,
            "num_position_embeddings": 4,
        },
    }
    source = write_checkpoint(tmp_path / "source", config)
    (source / "preprocessor_config.json").write_text("{}")
    refused(source, tmp_path / "out", "image_token_id is 99", vocab_size=99)
    edit(source, tmp_path / "out", layers="2:", vocab_size=110)
    old, new, keys = (
        tensor_bytes(source),
        tensor_bytes(tmp_path / "out"),
        config_of(tmp_path / "out"),
    )
    assert (
        new["model.visual.blocks.0.attn.qkv.weight"] == old["model.visual.blocks.0.attn.qkv.weight"]
    )
    changed = {
        "num_hidden_layers": 2,
        "vocab_size": 110,
        "layer_types": ["linear_attention", "full_attention"],
    }
    assert "lm_head.weight" not in new and keys["text_config"] == {**text, **changed}
    assert (tmp_path / "out" / "preprocessor_config.json").exists() and llamath.verify(
        tmp_path / "out"
    ).ok
    edit(cut(source, tmp_path / "ranks", 2), tmp_path / "joined", join_shards=True)
    assert tensor_bytes(tmp_path / "joined") == old and llamath.verify(tmp_path / "ranks" / "1").ok


def test_packed_embedding_is_cut_with_its_scales(tmp_path: Path) -> None:
    config = {
        **LLAMA,
        "hidden_size": 128,
        "intermediate_size": 128,
        "tie_word_embeddings": True,
        "quantization": {"group_size": 64, "bits": 4},
    }
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "config.json").write_text(json.dumps(config))
    model = llamath.load(config)
    headers: list[Header] = [
        (x.name, "BF16", tuple(map(int, x.shape))) for x in model.scheme("hf").tensors(model.tree)
    ]
    stored = packed(headers, quantized_headers.mlx(4, 64), include_embeddings=True)
    write_safetensors(
        tmp_path / "source" / "model.safetensors",
        {name: (dtype, shape) for name, dtype, shape in stored},
    )
    edit(tmp_path / "source", tmp_path / "out", vocab_size=80)
    names = {x.name: x.shape for x in read_checkpoint(str(tmp_path / "out")).tensors}
    assert [names[f"model.embed_tokens.{x}"] for x in ("weight", "scales", "biases")] == [
        (80, 16),
        (80, 2),
        (80, 2),
    ]
    assert llamath.verify(tmp_path / "out").ok
    refused(tmp_path / "source", tmp_path / "more", "rows cannot be appended", vocab_size=101)


def test_stored_copies_of_a_tied_head_are_resized_with_it(tmp_path: Path) -> None:
    """A stored head that differs is refused, since loaders do not agree about it; a copy is edited as the embedding is."""
    source = write_checkpoint(
        tmp_path / "source", {**LLAMA, "tie_word_embeddings": True}, {"lm_head.weight": (100, 32)}
    )
    refused(
        source,
        tmp_path / "out",
        "lm_head.weight differs from model.embed_tokens.weight",
        vocab_size=80,
    )
    at = {x.name: slice(x.start, x.end) for x in read_checkpoint(str(source)).tensors}
    data = bytearray((source / "model.safetensors").read_bytes())
    data[at["lm_head.weight"]] = data[at["model.embed_tokens.weight"]]
    (source / "model.safetensors").write_bytes(data)
    edit(source, tmp_path / "out", vocab_size=80)
    new = tensor_bytes(tmp_path / "out")
    assert (
        new["lm_head.weight"]
        == new["model.embed_tokens.weight"]
        == tensor_bytes(source)["model.embed_tokens.weight"][: 80 * 64]
    )
    assert llamath.verify(tmp_path / "out").ok


# ── files next to the weights ───────────────────────────────────────────────────────────────────────────────────────


def test_tokenizer_and_generation_config_are_kept(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("model.safetensors", "config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    vocabulary = {f"t{i}": i for i in range(90)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "generation_config.json").write_text('{"eos_token_id": 85}')
    (tmp_path / "tokenizer.model").write_text("of another model")
    refused(folder, tmp_path / "out", "generation_config.json: eos_token_id is 85", vocab_size=85)
    refused(
        folder, tmp_path / "out", "the tokenizer has 90 tokens, the matrix 86 rows", vocab_size=86
    )
    edit(folder, tmp_path / "out", layers="1:")
    names = {"model.safetensors", "config.json", "tokenizer.json", "generation_config.json"}
    assert {x.name for x in (tmp_path / "out").iterdir()} == names
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (
        folder / "tokenizer.json"
    ).read_bytes()


def test_links_out_of_the_folder_are_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("private key")
    for name in (
        "tokenizer_config.json",
        "preprocessor_config.json",
        "hf_quant_config.json",
        "generation_config.json",
    ):
        folder = tmp_path / f"source-{name}"
        folder.mkdir()
        for file in ("model.safetensors", "config.json"):
            (folder / file).write_bytes((source / file).read_bytes())
        (folder / name).symlink_to(tmp_path / "secret")
        refused(folder, tmp_path / "out", "is a symbolic link out of", layers="1:")


def test_other_formats_and_broken_checkpoints_are_refused(source: Path, tmp_path: Path) -> None:
    llamath.convert(source, tmp_path / "model.gguf", names="gguf")
    refused(tmp_path / "model.gguf", tmp_path / "out", "found a GGUF file", layers="1:")
    llamath.convert(source, tmp_path / "meta", names="meta")
    refused(
        tmp_path / "meta",
        tmp_path / "out",
        "found a checkpoint without config.json",
        layers="1:",
    )
    refused(tmp_path / "absent", tmp_path / "out", "absent", layers="1:")
    wrong = write_checkpoint(tmp_path / "wrong", LLAMA)
    (wrong / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 5}))
    refused(
        wrong,
        tmp_path / "out",
        "does not match its config: the file has layers 0–3",
        layers="1:",
    )


def test_large_checkpoints_are_edited_in_little_memory(tmp_path: Path) -> None:
    config = {
        **LLAMA,
        "vocab_size": 60_000,
        "hidden_size": 512,
        "intermediate_size": 4096,
        "num_hidden_layers": 2,
    }
    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "config.json").write_text(json.dumps(config))
    model = llamath.load(config)
    shapes = {
        x.name: ("BF16", tuple(map(int, x.shape))) for x in model.scheme("hf").tensors(model.tree)
    }
    write_safetensors(tmp_path / "big" / "model.safetensors", shapes)
    edit(
        tmp_path / "big", tmp_path / "out", layers="1:", vocab_size=60_010, dry_run=True
    )  # imports what it needs
    for edits in ({"layers": "1:"}, {"vocab_size": 60_010}, {"tp_shards": 2}):
        out = tmp_path / "-".join(edits)
        peak = peak_bytes(lambda edits=edits, out=out: edit(tmp_path / "big", out, **edits))  # type: ignore[misc]
        assert peak < 40 * CHUNK, edits  # 32 MiB are the limit of a config, which is read at once
        written = out / "1" if "tp_shards" in edits else out
        assert (written / "model.safetensors").stat().st_size > 60 * CHUNK


def test_interrupted_cut_shows_nothing_and_continues(source: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > 0.7 * total:  # in the second rank
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        llamath.convert(source, tmp_path / "out", edit="tp_shards=2", progress=stop)
    assert "2 of 4 files are complete" in stopped.value.__notes__[0]
    assert not list((tmp_path / "out").glob("?/[!.]*"))
    done = edit(source, tmp_path / "out", tp_shards=2)
    assert done.kept == ("0/model.safetensors", "0/config.json")
    assert "2 of them from an earlier run" in done.headline
    edit(tmp_path / "out", tmp_path / "joined", join_shards=True)
    assert tensor_bytes(tmp_path / "joined") == tensor_bytes(source)


# ── conversions of edited checkpoints ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("x.gguf", {}),
        ("x.gguf", {"dtype": "q8_0"}),
        ("x", {"names": "meta"}),
        ("x", {"names": "hf", "dtype": "float32"}),
    ],
)
def test_edited_source_is_converted_like_an_edited_checkpoint(
    target: str, options: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    edits = "layers=0,2:4,vocab_size=103"
    edit(source, tmp_path / "edited", layers="0,2:4", vocab_size=103)
    for folder, path, edited in (("two", tmp_path / "edited", None), ("one", source, edits)):
        (tmp_path / folder).mkdir()
        llamath.convert(path, tmp_path / folder / target, edit=edited, **options)
    one, two = (tmp_path / x / target for x in ("one", "two"))
    for x in [two] if two.is_file() else list(two.iterdir()):
        other = one / x.name if two.is_dir() else one
        assert readable(other) == readable(x), x.name


def readable(path: Path) -> object:
    """What a file says: all bytes, or, of an archive with dates, its tensors."""
    if path.suffix == ".gguf":  # its name is in the metadata
        return tensor_bytes(path)
    return tensor_bytes(path) if path.suffix == ".pth" else path.read_bytes()


def test_experts_of_an_edited_checkpoint_are_fused(moe: Path, tmp_path: Path) -> None:
    edit(moe, tmp_path / "edited", layers="1:")
    for part in ("text", "main"):
        one, two = tmp_path / f"one-{part}", tmp_path / f"two-{part}"
        asked = llamath.Edit(layers="1:", part=part)
        done = llamath.convert(moe, one, names="hf-fused", edit=asked)
        llamath.convert(tmp_path / "edited", two, names="hf-fused", edit=llamath.Edit(part=part))
        assert tensor_bytes(one) == tensor_bytes(two) and config_of(one) == config_of(two)
        assert done.edits == ("kept layers 1–3 (3 of 4)",)
        assert any("kept" in x if part == "text" else "left out" in x for x in done.notes)


def test_joined_ranks_are_edited_converted_and_cut_anew(source: Path, tmp_path: Path) -> None:
    ranks = cut(source, tmp_path / "ranks", 4)
    edit(ranks, tmp_path / "two", join_shards=True, tp_shards=2)
    for rank in ("0", "1"):
        expected = tensor_bytes(cut(source, tmp_path / f"other-{rank}", 2) / rank)
        assert tensor_bytes(tmp_path / "two" / rank) == expected
    llamath.convert(
        ranks, tmp_path / "one" / "x.gguf", edit="join_shards=yes,layers=2:,vocab_size=90"
    )
    llamath.convert(source, tmp_path / "two" / "x.gguf", edit="layers=2:,vocab_size=90")
    assert tensor_bytes(tmp_path / "one" / "x.gguf") == tensor_bytes(tmp_path / "two" / "x.gguf")
    edit(source, tmp_path / "pruned", layers="2:", tp_shards=2)
    edit(tmp_path / "pruned", tmp_path / "joined", join_shards=True)
    edit(source, tmp_path / "expected", layers="2:")
    assert tensor_bytes(tmp_path / "joined") == tensor_bytes(tmp_path / "expected")


def test_ranks_of_another_cut_are_not_left_beside_new_ones(source: Path, tmp_path: Path) -> None:
    ranks = cut(source, tmp_path / "ranks", 4)
    before = tensor_bytes(ranks / "0")
    for force in (False, True):
        with pytest.raises(LlamathError, match="already contains 2"):
            edit(source, ranks, tp_shards=2, force=force)
    with pytest.raises(LlamathError, match="0 already contains config"):
        edit(source, ranks, tp_shards=4)
    assert tensor_bytes(ranks / "0") == before
    edit(source, ranks, tp_shards=4, force=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(LlamathError, match="file"):
        edit(source, tmp_path / "file", tp_shards=2)
    with pytest.raises(LlamathError, match="inside the source folder"):
        edit(ranks, ranks / "joined", join_shards=True)


# ── quantized checkpoints ───────────────────────────────────────────────────────────────────────────────────────────

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
FP8 = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
}


def sparse_checkpoint(
    folder: Path, model: str, headers: Any, quantization: dict[str, Any], **keys: Any
) -> Path:
    """A checkpoint of a preset's real shapes that takes no space on disk."""
    folder.mkdir()
    config = {**llamath.load(model).config.data, **keys, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    stored: dict[str, tuple[str, tuple[int, ...]]] = {
        name: (dtype, shape) for name, dtype, shape in headers
    }
    write_safetensors(folder / "model.safetensors", stored)
    return folder


def edited_headers(source: Path, **edits: Any) -> dict[str, Any]:
    """The report of a dry run, whose planned tensors verify has accepted."""
    return edit(source, source.parent / "out", dry_run=True, **edits).to_json()


def test_layers_of_packed_checkpoints_can_be_dropped(tmp_path: Path) -> None:
    source = sparse_checkpoint(
        tmp_path / "awq",
        "llama-3-8b",
        packed(plain("llama-3-8b", "F16"), quantized_headers.awq),
        AWQ,
        torch_dtype="float16",
    )
    found = edited_headers(source, layers=":20,28:", vocab_size=128_512)
    assert found["config"] == {"num_hidden_layers": 24, "vocab_size": 128_512} and found[
        "tensors"
    ] == 3 + 24 * (2 + 7 * 3)
    refused(
        source, tmp_path / "out", "packed as awq, in groups that a cut would split", tp_shards=32
    )


def test_modules_in_recipes_follow_the_layers(tmp_path: Path) -> None:
    """Layer 1 is not quantized; when layer 0 is dropped, it becomes layer 0 in the tensors and in the recipe."""
    recipe = {
        **FP8,
        "modules_to_not_convert": [
            "lm_head",
            *(f"model.layers.1.mlp.{x}_proj" for x in ("gate", "up", "down")),
        ],
    }
    headers = [
        x
        for name, dtype, shape in plain("llama-3-8b")
        for x in (
            quantized_headers.fp8_blocks(name.removesuffix(".weight"), *shape)
            if "_proj" in name and ".1.mlp." not in name
            else [(name, dtype, shape)]
        )
    ]
    source = sparse_checkpoint(tmp_path / "fp8", "llama-3-8b", headers, recipe)
    assert llamath.verify(source).ok
    found = edited_headers(source, layers="1:")["config"][
        "quantization_config.modules_to_not_convert"
    ]
    assert found == ["lm_head", *(f"model.layers.0.mlp.{x}_proj" for x in ("gate", "up", "down"))]
    assert edited_headers(source, layers="0,2:")["config"][
        "quantization_config.modules_to_not_convert"
    ] == ["lm_head"]


def test_patterns_that_cannot_follow_are_refused(tmp_path: Path) -> None:
    group = {
        "targets": ["Linear"],
        "weights": {
            "num_bits": 8,
            "type": "float",
            "strategy": "block",
            "block_structure": [128, 128],
        },
    }
    recipe = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*layers[.]1[.]mlp.*"],
    }
    headers = [
        x
        for name, dtype, shape in plain("llama-3-8b")
        for x in (
            [(name, "F8_E4M3", shape), (f"{name}_scale", "BF16", tuple(n // 128 for n in shape))]
            if "_proj" in name and ".1.mlp." not in name
            else [(name, dtype, shape)]
        )
    ]
    source = sparse_checkpoint(tmp_path / "ct", "llama-3-8b", headers, recipe)
    assert llamath.verify(source).ok
    refused(source, tmp_path / "out", "would not match its config", layers="1:")
    assert edited_headers(source, layers=":5,6:")["config"] == {"num_hidden_layers": 31}


# ── shards ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def cut(source: Path, folder: Path, ranks: int) -> Path:
    edit(source, folder, tp_shards=ranks)
    return folder


def test_ranks_hold_rows_columns_and_copies(source: Path, tmp_path: Path) -> None:
    cut(source, tmp_path / "ranks", 4)
    whole = tensor_bytes(source)
    for rank in range(4):
        folder = tmp_path / "ranks" / str(rank)
        part, verified = tensor_bytes(folder), llamath.verify(folder)
        assert verified.ok and any(x.code == "tensor_parallel_shard" for x in verified.findings)
        q, k, o, down = (
            f"model.layers.2.{x}.weight"
            for x in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj")
        )
        assert part[q] == whole[q][rank * 8 * 64 : (rank + 1) * 8 * 64]
        assert (
            part[k] == whole[k][rank // 2 * 8 * 64 : (rank // 2 + 1) * 8 * 64]
        )  # 2 heads on 4 ranks
        assert part[o] == b"".join(
            whole[o][i * 64 + rank * 16 : i * 64 + (rank + 1) * 16] for i in range(32)
        )
        assert part[down] == b"".join(
            whole[down][i * 96 + rank * 24 : i * 96 + (rank + 1) * 24] for i in range(32)
        )
        assert part["model.norm.weight"] == whole["model.norm.weight"]
        assert (
            part["lm_head.weight"] == whole["lm_head.weight"][rank * 25 * 64 : (rank + 1) * 25 * 64]
        )
        assert config_of(folder) == {
            **LLAMA,
            "tensor_parallel_shard": {"rank": rank, "world_size": 4},
        }


def test_indivisible_vocabulary_is_padded_with_zeros(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", {**LLAMA, "vocab_size": 99, "eos_token_id": 2})
    cut(source, tmp_path / "ranks", 2)
    last = tensor_bytes(tmp_path / "ranks" / "1")["lm_head.weight"]
    assert len(last) == 50 * 64 and last == tensor_bytes(source)["lm_head.weight"][
        50 * 64 :
    ] + bytes(64)
    edit(tmp_path / "ranks", tmp_path / "joined", join_shards=True)
    assert tensor_bytes(tmp_path / "joined") == tensor_bytes(source)


def test_joined_ranks_have_the_bytes_of_the_original(moe: Path, tmp_path: Path) -> None:
    edit(cut(moe, tmp_path / "ranks", 2), tmp_path / "joined", join_shards=True)
    assert tensor_bytes(tmp_path / "joined") == tensor_bytes(moe)
    assert (tmp_path / "joined" / "config.json").read_bytes() == (moe / "config.json").read_bytes()


def test_ranks_of_different_checkpoints_are_not_joined(source: Path, tmp_path: Path) -> None:
    ranks = cut(source, tmp_path / "ranks", 2)
    config, weights = ranks / "1" / "config.json", ranks / "1" / "model.safetensors"
    good, text = weights.read_bytes(), config.read_text()

    def refuse(match: str) -> None:
        refused(ranks, tmp_path / "out", match, join_shards=True)
        config.write_text(text)
        weights.write_bytes(good)

    norm = next(x for x in read_checkpoint(str(weights)).tensors if x.name == "model.norm.weight")
    weights.write_bytes(good[: norm.start] + b"\x01" + good[norm.start + 1 :])
    refuse("model.norm.weight should be equal on every rank, and differs")
    config.write_text(text.replace('"rope_theta": 10000.0', '"rope_theta": 1e6'))
    refuse("different values of rope_theta")
    config.write_text(text.replace('"rank": 1', '"rank": 0'))
    refuse("0 and 1 are both rank 0")
    config.write_text(text.replace('"world_size": 2', '"world_size": 3'))
    refuse("found ranks of 2 and of 3")
    config.write_text(text.replace('"rank": 1', '"rank": 2'))
    refuse("should be a rank and a world_size")
    config.write_text(text.replace('"rank": 1', '"rank": true'))
    refuse("should be a rank and a world_size")
    config.unlink()
    refuse("rank 1 of 2 is missing")
    refused(ranks / "0", tmp_path / "out", "has no subfolder with one rank", join_shards=True)
    refused(ranks / "0", tmp_path / "out", "is one rank's part", layers="1:")
    refused(ranks / "0", tmp_path / "out", "is one rank's part", tp_shards=2)
    with pytest.raises(LlamathError, match="rank 0 of 2 of a checkpoint"):
        llamath.convert(ranks / "0", tmp_path / "out", names="gguf")
    (tmp_path / "linked").mkdir()
    for rank in ("0", "1"):
        (tmp_path / "linked" / rank).symlink_to(ranks / rank)
    refused(
        tmp_path / "linked", tmp_path / "out", "has no subfolder with one rank", join_shards=True
    )


def test_shards_of_wrong_shape_fail_verify(source: Path, tmp_path: Path) -> None:
    folder = cut(source, tmp_path / "ranks", 2) / "0"
    (folder / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    assert not llamath.verify(folder).ok
    (folder / "config.json").write_text(
        json.dumps({**LLAMA, "tensor_parallel_shard": {"rank": 0, "world_size": 3}})
    )
    assert run("verify", folder).exit_code == 2


# ── killed and failing edits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("to", "force", "error"),
    usual(
        ("edit", "force", 0),
        ("ranks", "", errno.EIO),
        release=(
            *(("edit", *x) for x in (("", 0), ("force", errno.EIO), ("", errno.ENOSPC))),
            *(("ranks", *x) for x in (("", 0), ("force", 0), ("force", errno.EIO))),
        ),
    ),
)
def test_edit_killed_at_any_system_call_can_be_repeated(
    to: str, force: str, error: int, request: pytest.FixtureRequest
) -> None:
    """Of calls from the same lines the first and the last, or all with `--all`."""
    every = request.config.getoption("all")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as home:
        source = write_checkpoint(
            Path(home) / "source",
            {**LLAMA, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2},
        )
        report = kill_conversions.report(source, Path(home), to, "out", force, error, every)
        assert report["calls"] > 20


def packed_checkpoint(folder: Path, writer: Any, quantization: dict[str, Any], **keys: Any) -> Path:
    """A checkpoint with packed matrices of 256 and 512 rows and columns, and bytes that differ."""
    sizes = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 1,
        "head_dim": 128,
        "num_attention_heads": 4,
    }
    config = {
        **LLAMA,
        **sizes,
        "num_key_value_heads": 2,
        "quantization_config": quantization,
        **keys,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = llamath.load(config)
    headers = [
        (x.name, "BF16", tuple(map(int, x.shape))) for x in model.scheme("hf").tensors(model.tree)
    ]
    path = write_safetensors(
        folder / "model.safetensors",
        {name: (dtype, shape) for name, dtype, shape in packed(headers, writer)},
    )
    start = min(x.start for x in read_checkpoint(str(path)).tensors)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(i * i % 251 for i in range(path.stat().st_size - start)))
    return folder


@pytest.mark.parametrize(
    ("writer", "quantization"),
    [
        (quantized_headers.fp8_blocks, FP8),
        (
            quantized_headers.fp8_channels,
            {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]},
        ),
        (
            quantized_headers.nvfp4,
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "group_size": 16,
                "ignore": ["lm_head"],
            },
        ),
        (quantized_headers.mlx(4, 64), {"group_size": 64, "bits": 4, "mode": "affine"}),
    ],
)
def test_packed_shards_are_cut_between_groups(
    writer: Any, quantization: dict[str, Any], tmp_path: Path
) -> None:
    source = packed_checkpoint(tmp_path / "source", writer, quantization)
    assert llamath.verify(source).ok
    cut(source, tmp_path / "ranks", 2)
    for rank in range(2):
        assert llamath.verify(tmp_path / "ranks" / str(rank)).ok
    edit(tmp_path / "ranks", tmp_path / "joined", join_shards=True)
    assert tensor_bytes(tmp_path / "joined") == tensor_bytes(source)
    whole, part = (
        tensor_bytes(x)["model.layers.0.mlp.up_proj.weight"]
        for x in (source, tmp_path / "ranks" / "1")
    )
    assert part == whole[len(whole) // 2 :]
    if quantization is FP8:
        scales = "model.layers.0.mlp.down_proj.weight_scale_inv"
        whole, part = (tensor_bytes(x)[scales] for x in (source, tmp_path / "ranks" / "1"))
        assert part == whole[8:16] + whole[24:32]  # 2 by 4 blocks, cut by columns
        odd = packed_checkpoint(tmp_path / "odd", writer, quantization, intermediate_size=384)
        refused(odd, tmp_path / "out", "groups that a cut would split", tp_shards=2)
