"""`verify`: each cause of a mismatch is one finding, and cases from issue reports have their right answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_codec import WRITERS

import llamath
from llamath.analysis.check.verify.check_checkpoint import VerifyReport, verify_checkpoint
from llamath.checkpoint.naming.scheme import canonical_scheme, fused_scheme
from llamath.cli import cli
from support import quantized_headers as make
from support.sparse_checkpoints import (
    Header,
    header_of,
    write_config,
    write_safetensors,
    write_sharded,
)

SMALL = "smollm-135m"


def write_and_verify(
    folder: Path, model: llamath.Model, header: Header, **changes: Any
) -> VerifyReport:
    write_config(folder, model, **changes)
    write_safetensors(folder / "model.safetensors", header)
    return verify_checkpoint(str(folder))


def codes(result: VerifyReport) -> dict[str, str]:
    return {x.code: x.severity for x in result.verdict.findings}


def messages(result: VerifyReport) -> str:
    return "\n".join(f"{x.message} | {x.hint}" for x in result.verdict.findings)


@pytest.mark.parametrize(
    "slug",
    [
        "llama-3-8b",
        "mixtral-8x7b",
        "gpt2",
        "gemma-2-2b",
        "deepseek-v2-lite",
        "gpt-oss-20b",
        "llama-4-scout",
        "falcon-7b",
    ],
)
def test_intact_checkpoint_matches(slug: str, tmp_path: Path) -> None:
    model = llamath.load(dict(llamath.load(slug).config.data))  # the text model alone
    result = write_and_verify(tmp_path, model, header_of(model))
    has_recipe = slug == "gpt-oss-20b"  # whose config declares MXFP4, and these tensors are plain
    assert codes(result) == ({"recipe_unused": "warning"} if has_recipe else {})
    assert result.verdict.ok is not has_recipe and result.verdict.scheme == "hf"
    assert result.verdict.matched == result.verdict.expected


def test_naming_scheme_is_detected(tmp_path: Path) -> None:
    model, mixture = llamath.load("llama-3-8b"), llamath.load("mixtral-8x7b")
    meta = write_and_verify(tmp_path, model, header_of(model, "meta"))
    assert (meta.verdict.scheme, meta.verdict.ok) == ("meta", True)
    bare = {
        name.removeprefix("model."): x
        for name, x in header_of(model).items()
        if not name.startswith("lm_head")
    }
    headless = write_and_verify(tmp_path, model, bare)
    assert headless.verdict.scheme == "hf-bare" and codes(headless) == {"missing": "error"}
    for scheme in (fused_scheme(mixture.family.hf), canonical_scheme(mixture.tree)):
        assert scheme is not None
        header = {x.name: ("BF16", tuple(map(int, x.shape))) for x in scheme.tensors(mixture.tree)}
        other = write_and_verify(tmp_path, mixture, header)
        assert (other.verdict.scheme, other.verdict.ok) == (scheme.name, True)


def test_wrong_kv_heads_are_one_finding(tmp_path: Path) -> None:
    """meta-llama/llama#427, transformers#30381."""
    model = llamath.load("llama-2-7b")
    result = write_and_verify(tmp_path, model, header_of(model), num_key_value_heads=8)
    (finding,) = result.verdict.findings
    assert "k_proj and v_proj of all 32 layers are [4096, 4096]" in finding.message
    assert (
        "(K·h, d) = (1024, 4096)" in finding.message
        and "num_key_value_heads should be 32" in finding.message
    )
    assert len(finding.tensors) == 64 and finding.code == "shape"


@pytest.mark.parametrize(
    ("key", "value", "truth"),
    [
        ("vocab_size", 32003, 32000),
        ("intermediate_size", 11264, 11008),
        ("num_key_value_heads", 1, 32),
        ("hidden_size", 4608, 4096),
    ],
)
def test_wrong_config_key_is_named(key: str, value: int, truth: int, tmp_path: Path) -> None:
    model = llamath.load("llama-2-7b")
    result = write_and_verify(tmp_path, model, header_of(model), **{key: value}, head_dim=128)
    assert [x.code for x in result.verdict.findings] == ["shape"]
    assert f"{key} should be {truth}" in messages(result)


def test_two_wrong_keys_are_two_findings(tmp_path: Path) -> None:
    model = llamath.load("llama-3-8b")
    result = write_and_verify(
        tmp_path, model, header_of(model), num_key_value_heads=4, intermediate_size=11008
    )
    text = messages(result)
    assert "num_key_value_heads should be 8" in text and "intermediate_size should be 14336" in text
    assert len(result.verdict.findings) == 2


def test_vocabulary_shard_is_recognized(tmp_path: Path) -> None:
    """optimum-neuron#368."""
    model = llamath.load("llama-2-7b")
    header = header_of(model) | {"model.embed_tokens.weight": ("F16", (4000, 4096))}
    result = write_and_verify(tmp_path, model, header)
    assert "embed_tokens has 4,000 rows = one of 8 shards of 32,000" in messages(result)
    assert codes(result)["shard"] == "error"


def test_half_a_matrix_is_one_of_two_shards(tmp_path: Path) -> None:
    """slowllama#16."""
    model = llamath.load("llama-2-13b")
    header: Header = {"layers.0.attention.wq.weight": ("F16", (2560, 5120))}
    write_config(tmp_path, model)
    write_safetensors(tmp_path / "model.safetensors", header)
    assert "wq has 2,560 rows = one of 2 shards of 5,120" in messages(
        verify_checkpoint(str(tmp_path))
    )


RANK = {
    "q_proj": 0,
    "k_proj": 0,
    "v_proj": 0,
    "gate_proj": 0,
    "up_proj": 0,
    "embed_tokens": 0,
    "lm_head": 0,
    "o_proj": 1,
    "down_proj": 1,
}
"""The axes along which tensor parallelism splits Llama's matrices."""


def cut_for_rank(header: Header, n: int, axes: dict[str, int] = RANK) -> Header:
    """The header of one of n ranks."""
    cut = {}
    for name, (dtype, shape) in header.items():
        axis = axes.get(name.split(".")[-2]) if len(shape) > 1 else None
        cut[name] = (dtype, tuple(size // n if i == axis else size for i, size in enumerate(shape)))
    return cut


def test_rank_of_a_parallel_run_is_recognized(tmp_path: Path) -> None:
    for slug, n, axes in (
        ("llama-2-7b", 4, RANK),
        (
            "llama-2-7b",
            2,
            {x: axis for x, axis in RANK.items() if x not in ("embed_tokens", "lm_head")},
        ),
        ("llama-2-7b", 2, RANK | {"embed_tokens": 1}),  # as Llama 2's own files
        ("gpt2", 2, {"c_attn": 1, "c_fc": 1, "c_proj": 0}),  # whose matrices are stored transposed
    ):
        model = llamath.load(slug)
        header = cut_for_rank(header_of(model), n, axes)
        if slug == "gpt2":
            header |= {
                x: (dtype, (shape[0] // n,))
                for x, (dtype, shape) in header.items()
                if x.endswith(("c_attn.bias", "c_fc.bias"))
            }
        result = write_and_verify(tmp_path, model, header)
        assert codes(result) == {"shard": "error"} and f"one of {n} shards" in messages(result), (
            slug,
            n,
            messages(result),
        )


def test_other_width_is_not_taken_for_a_shard(tmp_path: Path) -> None:
    """Every rank of a tensor-parallel run holds the norms and the width of the residual stream whole."""
    sizes = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
    }
    config = llamath.load(
        {"model_type": "llama", "vocab_size": 320, "num_hidden_layers": 2, **sizes}
    )
    for changes in (
        {"hidden_size": 64},
        {"intermediate_size": 128},
        {"hidden_size": 64, "intermediate_size": 128},
        {"hidden_size": 32, "num_key_value_heads": 1},
    ):
        header = header_of(llamath.load(config, changes=changes))
        result = write_and_verify(tmp_path, config, header)
        assert {x.code for x in result.verdict.findings} == {"shape"} and len(
            result.verdict.findings
        ) == len(changes), changes
        assert all(
            f"{key} should be {value}" in messages(result) for key, value in changes.items()
        ), messages(result)
        both = write_and_verify(tmp_path, config, cut_for_rank(header, 2))
        assert "shard" not in codes(both) or "hidden_size" not in changes, messages(both)


@pytest.mark.slow
def test_padded_vocabulary_is_an_info(tmp_path: Path) -> None:
    """peft#2415: 151,665 tokens, 151,936 rows."""
    model = llamath.load("qwen2.5-0.5b")
    vocab = {f"t{i}": i for i in range(151_643)}
    added = [{"content": f"<|{i}|>", "id": 151_643 + i} for i in range(22)]
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": vocab}, "added_tokens": added})
    )
    result = write_and_verify(tmp_path, model, header_of(model))
    assert result.verdict.ok and codes(result) == {"padded_vocabulary": "info"}
    assert "271 padded vocabulary rows" in messages(result)


def test_fewer_layers_than_in_the_config(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    header = {
        name: x
        for name, x in header_of(model).items()
        if not any(f".{i}." in name for i in range(24, 30))
    }
    result = write_and_verify(tmp_path, model, header)
    assert codes(result) == {"layers": "error"} and "num_hidden_layers should be 24" in messages(
        result
    )


def test_missing_and_unexpected_tensors_are_listed(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    header = header_of(model)
    del header["model.layers.3.mlp.up_proj.weight"]
    header["model.layers.0.self_attn.q_proj.lora_A.weight"] = ("BF16", (8, 576))
    header["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", (32,))
    header["lm_head.weight"] = ("BF16", (49152, 576))
    result = write_and_verify(tmp_path, model, header)
    assert codes(result) == {
        "missing": "error",
        "unexpected": "warning",
        "buffer": "info",
        "tied_copy": "info",
    }
    assert "model.layers.3.mlp.up_proj.weight" in messages(
        result
    ) and "884,736 parameters" in messages(result)


def replaced(**words: str) -> Callable[[str], str]:
    def rename(name: str) -> str:
        return ".".join(words.get(x, x) for x in name.split("."))

    return rename


@pytest.mark.parametrize(
    ("rename", "cause"),
    [
        (lambda x: f"foo.{x}", "every name begins with `foo.`: without it, 272 of 272"),
        (lambda x: f"base_model.model.{x}", "every name begins with `base_model.model.`"),
        (replaced(q_proj="wq", k_proj="wk", v_proj="wv", o_proj="wo"), "as in Meta's files"),
        (replaced(gate_proj="gate_projection"), "gate_projection is gate_proj"),
        (replaced(mlp="ffn"), "ffn is mlp"),
        (replaced(input_layernorm="norm1", post_attention_layernorm="norm2"), ""),
    ],
    ids=["prefix", "peft", "meta", "word", "module", "undecided"],
)
def test_renamed_tensors_have_their_cause(
    rename: Callable[[str], str], cause: str, tmp_path: Path
) -> None:
    """Two norms of one shape under foreign names are not told apart."""
    model = llamath.load(SMALL)
    header = {rename(name): x for name, x in header_of(model).items()}
    result = write_and_verify(tmp_path, model, header)
    first = result.verdict.findings[0]
    assert not result.ok and (first.code == "renamed") == bool(cause)
    assert cause in first.message


def test_fused_and_split_matrices_have_their_cause(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    header = header_of(model)
    fused = {x: y for x, y in header.items() if not any(z in x for z in ("q_pr", "k_pr", "v_pr"))}
    names = [x for x in header if "q_proj" in x]
    for x in names:
        parts = [header[x.replace("q_proj", f"{y}_proj")] for y in "qkv"]
        rows = sum(shape[0] for _, shape in parts)
        fused[x.replace("q_proj", "qkv_proj")] = (parts[0][0], (rows, parts[0][1][1]))
    result = write_and_verify(tmp_path / "a", model, fused)
    assert "q_proj, k_proj and v_proj are fused in qkv_proj" in messages(result)
    assert len(result.verdict.findings[0].tensors) == 3 * len(names)
    (dtype, (rows, columns)) = fused[names[0].replace("q_proj", "qkv_proj")]
    fused[names[0].replace("q_proj", "qkv_proj")] = (dtype, (rows - 1, columns))
    assert "renamed" not in codes(write_and_verify(tmp_path / "b", model, fused))
    phi = llamath.load("phi-3-mini")
    split = header_of(phi)
    for x in [x for x in split if "gate_up_proj" in x]:
        dtype, (rows, columns) = split.pop(x)
        for part in ("gate", "up"):
            split[x.replace("gate_up_proj", f"{part}_proj")] = (dtype, (rows // 2, columns))
    assert "gate_up_proj is stored in parts: gate_proj and up_proj" in messages(
        write_and_verify(tmp_path / "c", phi, split)
    )


def test_renamed_matrix_of_another_shape_is_no_renaming(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    header = {
        x.replace("gate_proj", "gate_projection"): (y[0], y[1][::-1] if "gate_proj" in x else y[1])
        for x, y in header_of(model).items()
    }
    assert "renamed" not in codes(write_and_verify(tmp_path, model, header))


def test_wrong_dtype_is_a_warning(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    result = write_and_verify(
        tmp_path, model, header_of(model, dtype="F32"), torch_dtype="bfloat16"
    )
    assert codes(result) == {"dtype": "warning"} and "2 times the memory" in messages(result)


def test_truncated_file_finding_has_the_missing_bytes(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_safetensors(tmp_path / "model.safetensors", header_of(model), short=1234)
    result = verify_checkpoint(str(tmp_path))
    assert codes(result) == {"truncated": "error"} and "1,234 bytes short" in messages(result)


def test_half_a_file_does_not_look_whole(tmp_path: Path) -> None:
    """Tensors whose bytes are missing are not there, whatever the header says, and the verdict says it first."""
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_safetensors(
        tmp_path / "model.safetensors",
        header_of(model),
        short=sum(map(size_of, header_of(model).values())) // 2,
    )
    result = verify_checkpoint(str(tmp_path))
    assert (
        codes(result) == {"truncated": "error"}
        and 0 < result.verdict.matched < result.verdict.expected
    )
    counted = (
        f": incomplete, {result.verdict.matched} of {result.verdict.expected} tensors are there"
    )
    assert counted in result.summary
    text = CliRunner().invoke(cli, ["verify", str(tmp_path)]).stdout
    assert (
        counted in " ".join(text.splitlines()[:2])
        and f"of the {result.verdict.expected} tensors" not in text
    )
    (tmp_path / "model.safetensors").unlink()
    write_sharded(tmp_path, header_of(model), 4)
    (tmp_path / "model-00002-of-00004.safetensors").unlink()
    assert ": incomplete, " in verify_checkpoint(str(tmp_path)).summary


def size_of(tensor: tuple[str, tuple[int, ...]]) -> int:
    return 2 * prod(tensor[1])


def test_verdict_says_that_values_were_not_read(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    for changes, compared in (
        ({"torch_dtype": None}, "names and shapes match"),
        ({"torch_dtype": "bfloat16"}, "names, shapes and dtypes match"),
    ):
        result = write_and_verify(tmp_path, model, header_of(model), **changes)
        assert f"{compared} {result.model.name}; values were not read (--full)" in result.summary
        text = " ".join(CliRunner().invoke(cli, ["verify", str(tmp_path)]).stdout.split())
        assert f"{compared} its config; values were not read (--full)" in text


def test_an_unknown_dtype_is_an_error(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    result = write_and_verify(tmp_path, model, header_of(model), torch_dtype="float7")
    assert codes(result) == {"config_dtype": "error"} and "float7" in result.findings[0].message


def test_index_is_checked_against_shards(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_sharded(tmp_path, header_of(model), 4)
    assert verify_checkpoint(str(tmp_path)).verdict.ok
    write_sharded(tmp_path, header_of(model), 4, total_size=7)
    report = verify_checkpoint(str(tmp_path))
    assert codes(report) == {"total_size": "info"} and report.ok
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.norm.weight"] = "model-00001-of-00004.safetensors"
    index["metadata"] = {}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    report = verify_checkpoint(str(tmp_path))
    assert codes(report) == {"index": "error"}
    assert "match its config; its index does not match its files" in report.headline
    (tmp_path / "model-00002-of-00004.safetensors").unlink()
    assert codes(verify_checkpoint(str(tmp_path)))[
        "missing_shard"
    ] == "error" and "missing" not in codes(verify_checkpoint(str(tmp_path)))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "lfs_pointer"),
        (b"<!DOCTYPE html>\n<html>", "html_page"),
    ],
)
@pytest.mark.parametrize(
    "shard", ["model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors"]
)
def test_unreadable_shard_is_not_blamed_on_the_index(
    tmp_path: Path, data: bytes, code: str, shard: str
) -> None:
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_sharded(tmp_path, header_of(model), 4)
    (tmp_path / shard).write_bytes(data)
    result = verify_checkpoint(str(tmp_path))
    assert codes(result) == {code: "error"}
    assert all("index" not in x.hint for x in result.verdict.findings)


def test_duplicate_name_is_an_error(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_sharded(tmp_path, header_of(model), 2)
    header = dict(list(header_of(model).items())[-5:]) | {
        "model.embed_tokens.weight": ("BF16", (49152, 576))
    }
    shard = tmp_path / "model-00002-of-00002.safetensors"
    write_safetensors(
        shard, dict(list(header_of(model).items())[len(header_of(model)) // 2 :]) | header
    )
    assert codes(verify_checkpoint(str(tmp_path)))["duplicate"] == "error"


def test_packed_weights_match_their_logical_shapes(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    header: Header = {}
    for name, (dtype, shape) in header_of(model).items():
        if "_proj" in name:
            header[name] = ("U8", (shape[0] * shape[1] // 2, 1))
            header[f"{name}.absmax"] = ("U8", (shape[0] * shape[1] // 64,))
            header[f"{name}.quant_map"] = ("F32", (16,))
            header[f"{name}.quant_state.bitsandbytes__nf4"] = ("U8", (180,))
        else:
            header[name] = (dtype, shape)
    result = write_and_verify(tmp_path, model, header)
    assert result.verdict.matched == result.verdict.expected and codes(result) == {
        "packed": "info",
        "recipe_missing": "warning",
    }


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.slow
def test_quantized_checkpoint_matches_its_config(name: str, tmp_path: Path) -> None:
    writer, kind, declared = WRITERS[name]
    model = llamath.load("llama-3.1-8b")
    header = {
        x: (dtype, shape) for x, dtype, shape in make.packed(make.plain("llama-3.1-8b"), writer)
    }
    result = write_and_verify(
        tmp_path, model, header, **({"quantization_config": declared} if declared else {})
    )
    assert result.verdict.matched == 291 and f"stored as {kind}" in messages(result)
    assert result.verdict.ok == bool(declared), "loaders need the recipe in the config"
    assert codes(result) == {"packed": "info"} | ({} if declared else {"recipe_missing": "warning"})
    write_config(
        tmp_path,
        model,
        num_key_value_heads=4,
        **({"quantization_config": declared} if declared else {}),
    )
    assert not verify_checkpoint(str(tmp_path)).verdict.ok


def test_packing_is_read_from_the_config(tmp_path: Path) -> None:
    model = llamath.load("llama-3.1-8b")
    writer, _, declared = WRITERS["gptq-declared"]
    header = {
        x: (dtype, shape) for x, dtype, shape in make.packed(make.plain("llama-3.1-8b"), writer)
    }
    assert (
        declared
        and write_and_verify(tmp_path, model, header, quantization_config=declared).verdict.ok
    )
    result = write_and_verify(tmp_path, model, header, quantization_config={**declared, "bits": 8})
    assert codes(result)[
        "shape"
    ] == "error" and "q_proj.weight and 31 other tensors are [4096, 2048]" in messages(result)


def test_transposed_experts_of_gpt_oss_match(tmp_path: Path) -> None:
    header = {x: (dtype, shape) for x, dtype, shape in make.gpt_oss("gpt-oss-20b")}
    result = write_and_verify(tmp_path, llamath.load("gpt-oss-20b"), header)
    assert result.verdict.ok and codes(result) == {"packed": "info"}


def test_unreadable_tokenizer_is_an_info(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    (tmp_path / "tokenizer.json").write_bytes(
        b'{"model":{"vocab":[' + b"[]," * (1 << 20) + b"[]]}}"
    )
    result = write_and_verify(tmp_path, model, header_of(model))
    assert (
        result.verdict.ok
        and codes(result) == {"tokenizer": "info"}
        and "more than 1,048,576 values" in messages(result)
    )


def test_verify_against_another_model(tmp_path: Path) -> None:
    model = llamath.load("llama-2-7b")
    write_config(tmp_path, model)
    write_safetensors(tmp_path / "model.safetensors", header_of(model))
    assert verify_checkpoint(str(tmp_path), "llama-2-7b").verdict.ok
    assert not verify_checkpoint(str(tmp_path), "llama-3-8b").verdict.ok
    assert verify_checkpoint(
        str(tmp_path), "llama-2-7b", {"num_key_value_heads": 8}
    ).verdict.findings


def test_exit_codes_and_json_keys(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_safetensors(tmp_path / "model.safetensors", header_of(model))
    run = CliRunner().invoke
    whole = run(cli, ["verify", str(tmp_path), "--json"])
    assert whole.exit_code == 0
    assert json.loads(whole.stdout) == verify_checkpoint(str(tmp_path)).to_json()
    write_config(tmp_path, model, num_key_value_heads=9)
    findings = run(cli, ["verify", str(tmp_path), "--json"])
    assert findings.exit_code == 1
    report = json.loads(findings.stdout)
    assert report.keys() >= {"ok", "scheme", "findings"} and report["ok"] is False
    assert all(
        x.keys() == {"code", "severity", "message", "hint", "tensors"} for x in report["findings"]
    )
    (tmp_path / "model.safetensors").write_bytes(b"no checkpoint")
    assert isinstance(
        run(cli, ["verify", str(tmp_path)]).exception, (llamath.FormatError, SystemExit)
    )


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    model = llamath.load(SMALL)
    write_config(tmp_path, model)
    write_safetensors(
        tmp_path / "model.safetensors",
        header_of(model) | {"\x1b[2Jmodel\u202e.layers": ("BF16", (1,))},
    )
    text = CliRunner().invoke(cli, ["verify", str(tmp_path)]).stdout
    assert "\x1b" not in text and "\u202e" not in text and "\\u{1b}" in text
