"""Adapters of llama.cpp and MLX, against the layouts of their public code; and what `ls` and `count` say of adapters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath import verify
from llamath.checkpoint.adapters import open_adapter
from llamath.cli import cli
from llamath.utils.errors import ConfigError, FormatError

gguf = pytest.importorskip("gguf")
numpy = pytest.importorskip("numpy")
save_file = pytest.importorskip("safetensors.numpy").save_file

LLAMA = {
    "model_type": "llama", "hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 50,
}  # fmt: skip
MOE = {
    "model_type": "qwen3_moe", "hidden_size": 16, "intermediate_size": 40, "moe_intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 50,
}  # fmt: skip


def write_gguf(
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    arch: str = "llama",
    kind: str = "lora",
    alpha: float = 8.0,
) -> str:
    """An adapter as llama.cpp's convert_lora_to_gguf.py writes it."""
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", alpha)
    writer.add_base_model_count(1)
    writer.add_base_model_repo_url(0, "https://huggingface.co/nobody/nothing")
    for name, shape in shapes.items():
        writer.add_tensor(name, numpy.zeros(shape, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def pair(
    name: str, out: int, width: int, rank: int = 4, *experts: int
) -> dict[str, tuple[int, ...]]:
    return {f"{name}.lora_a": (*experts, rank, width), f"{name}.lora_b": (*experts, out, rank)}


def write_mlx(folder: Path, shapes: dict[str, tuple[int, ...]], **config: Any) -> str:
    """An adapter as mlx-lm writes it: A is [in, r], B is [r, out]."""
    save_file(
        {name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()},
        folder / "adapters.safetensors",
    )
    parameters = {"rank": 4, "scale": 20.0, "dropout": 0.0, **config.pop("lora_parameters", {})}
    keys = {
        "fine_tune_type": "lora",
        "num_layers": -1,
        "model": "nobody/nothing",
        "lora_parameters": parameters,
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(keys))
    return str(folder)


def findings(path: str, config: dict[str, Any]) -> dict[str, str]:
    return {x.code: f"{x.message} ({x.hint})" for x in verify(path, against=config).findings}


def test_gguf_adapter_fits_its_base(tmp_path: Path) -> None:
    embedding = {"token_embd.weight.lora_a": (50, 4), "token_embd.weight.lora_b": (16, 4)}
    path = write_gguf(
        tmp_path / "x.gguf",
        {**pair("blk.2.attn_k.weight", 8, 16), **embedding, "output_norm.weight": (16,)},
    )
    adapter = open_adapter(path)
    assert (adapter.base, adapter.architecture, adapter.ranks) == ("nobody/nothing", "llama", (4,))
    assert [(x.name, x.kind, x.scale) for x in adapter.targets] == [
        ("blk.2.attn_k.weight", "linear", 2.0),
        ("token_embd.weight", "embedding", 2.0),
    ]
    assert adapter.targets[1].a and adapter.targets[1].a.shape == (4, 50)
    assert list(findings(path, LLAMA)) == ["norms"]


def test_gguf_adapter_of_experts_fits_its_base(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "x.gguf", pair("blk.1.ffn_gate_exps.weight", 12, 16, 3, 4), "qwen3moe", alpha=0.0
    )
    (target,) = open_adapter(path).targets
    assert (target.kind, target.experts, target.rank, target.scale) == ("experts", 4, 3, 1.0)
    assert findings(path, MOE) == {}
    assert "4 experts of [12, 16]" in findings(path, MOE | {"num_experts": 8})["shape"]


@pytest.mark.parametrize(
    ("shapes", "arch", "code", "text"),
    [
        (
            pair("blk.9.attn_k.weight", 8, 16),
            "llama",
            "target",
            "has layer 9, the base model layers 0–2",
        ),
        (
            pair("blk.0.attn_k.weight", 16, 16),
            "llama",
            "shape",
            "update of [16, 16]; the weight in llama is [8, 16]",
        ),
        (
            pair("blk.0.attn_k.weight", 8, 16),
            "qwen2",
            "architecture",
            "architecture qwen2; llama is llama",
        ),
        (
            {**pair("blk.0.attn_k.weight", 8, 16), "x": (2,)},
            "llama",
            "unexpected",
            "neither lora_a nor lora_b: x",
        ),
        ({"blk.0.attn_k.weight.lora_a": (4, 16)}, "llama", "factor", "only one of the two factors"),
        (
            {"blk.0.attn_k.weight.lora_a": (4, 16), "blk.0.attn_k.weight.lora_b": (8, 3)},
            "llama",
            "rank",
            "different ranks",
        ),
        (
            {"token_embd.weight.lora_a": (60, 4), "token_embd.weight.lora_b": (16, 4)},
            "llama",
            "vocabulary",
            "60 vocabulary rows; llama has 50",
        ),
    ],
)
def test_gguf_adapters_that_do_not_fit_are_named(
    shapes: dict[str, tuple[int, ...]], arch: str, code: str, text: str, tmp_path: Path
) -> None:
    found = findings(write_gguf(tmp_path / "x.gguf", shapes, arch), LLAMA)
    assert text in found.get(code, ""), found


def test_gguf_adapter_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"expected adapter\.type lora, found 'control'"):
        open_adapter(
            write_gguf(tmp_path / "x.gguf", pair("blk.0.attn_k.weight", 8, 16), kind="control")
        )


def test_mlx_adapters_fit_their_bases(tmp_path: Path) -> None:
    q = "model.layers.2.self_attn.q_proj"
    path = write_mlx(
        tmp_path,
        {f"{q}.lora_a": (16, 4), f"{q}.lora_b": (4, 16)},
        lora_parameters={"keys": ["self_attn.q_proj"], "alpha": 8},
    )
    (target,) = open_adapter(path).targets
    assert (target.name, target.kind, target.rank, target.scale) == (
        f"{q}.weight",
        "linear",
        4,
        20.0,
    )
    assert target.a and target.b and (target.a.shape, target.b.shape) == ((4, 16), (16, 4))
    assert list(findings(path, LLAMA)) == ["note"]
    gate = "model.layers.1.mlp.switch_mlp.gate_proj"
    path = write_mlx(tmp_path, {f"{gate}.lora_a": (4, 4, 16), f"{gate}.lora_b": (4, 12, 4)})
    assert open_adapter(path).targets[0].kind == "experts" and findings(path, MOE) == {}
    path = write_mlx(
        tmp_path,
        {f"{q}.lora_a": (16, 4), f"{q}.lora_b": (4, 16), f"{q}.m": (16,)},
        fine_tune_type="dora",
    )
    assert open_adapter(path).method == "dora" and findings(path, LLAMA) == {}
    path = write_mlx(tmp_path, {f"{q}.weight": (16, 16)}, fine_tune_type="full")
    assert open_adapter(path).targets[0].kind == "replacement" and findings(path, LLAMA) == {}


def test_what_mlx_would_not_load_is_named(tmp_path: Path) -> None:
    q = "model.layers.0.self_attn.q_proj"
    path = write_mlx(
        tmp_path,
        {f"{q}.lora_a": (16, 4), f"{q}.lora_b": (4, 16)},
        num_layers=1,
        lora_parameters={"keys": ["wq"]},
    )
    found = findings(path, LLAMA)
    assert "num_layers is 1" in found["unselected"] and "keys names 'wq'" in found["target"]
    with pytest.raises(ConfigError, match="scale should be a positive number"):
        open_adapter(
            write_mlx(
                tmp_path,
                {f"{q}.lora_a": (16, 4), f"{q}.lora_b": (4, 16)},
                lora_parameters={"scale": "x"},
            )
        )


def test_commands_say_what_an_adapter_is(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", pair("blk.2.attn_k.weight", 8, 16))

    def run(*args: str) -> str:
        done = CliRunner().invoke(cli, [*args], catch_exceptions=False)
        return " ".join(done.stdout.split())

    for command in ("ls", "count"):
        assert "LoRA adapter of rank 4 (gguf) of nobody/nothing" in run(command, path)
        assert json.loads(run(command, path, "--json"))["notes"]
    assert "the adapter names 'nobody/nothing'" in run("verify", path)
    report = json.loads(run("verify", path, "llama-3-8b", "--json"))
    assert report["model"] == "Llama 3 8B" and report["kind"] == "adapter" and not report["ok"]


def test_adapters_without_weights_or_base_are_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    done = CliRunner().invoke(cli, ["verify", str(tmp_path)])
    assert (
        done.exit_code == 2
        and "expected the weights of an adapter" in done.stderr
        and "adapter_model.safetensors" in done.stderr
    )
    write_mlx(tmp_path, {"a.lora_a": (2, 1), "a.lora_b": (1, 2)})
    for command in (["config"], ["names"], ["fit"]):
        done = CliRunner().invoke(cli, [*command, str(tmp_path)])
        assert (
            done.exit_code == 2
            and "an adapter, which changes weights of another model" in done.stderr
        )


def test_config_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    q = "model.layers.0.self_attn.q_proj"
    folder = tmp_path / "x"
    folder.mkdir()
    write_mlx(folder, {f"{q}.lora_a": (16, 4), f"{q}.lora_b": (4, 16)})
    (folder / "adapter_config.json").rename(tmp_path / "elsewhere.json")
    (folder / "adapter_config.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(FormatError, match="symbolic link out of"):
        open_adapter(str(folder))
