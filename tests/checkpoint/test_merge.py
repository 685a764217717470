"""`llamath convert --adapter`: the weights are those of peft's merge_and_unload, and files are written as convert writes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli
from llamath.conversion.merge_adapter import merge_adapter
from llamath.utils.errors import ConvertError, LlamathError

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
from safetensors.torch import load_file, save_file  # noqa: E402

from support.peft_adapters import CASES, SavedAdapter, save_adapter  # noqa: E402

DORA = 2.0**-17
"""Relative difference of DoRA's weights: peft computes norms in float32."""


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> SavedAdapter:
    return save_adapter("LoRA", tmp_path_factory.mktemp("adapter"))


def loaded(folder: Path) -> dict[str, Any]:
    """The weights as transformers loads them, all of them from the file."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(info.values())
    return dict(model.state_dict())


@pytest.mark.parametrize("case", CASES)
def test_merged_weights_are_those_of_peft(case: str, tmp_path: Path) -> None:
    saved = save_adapter(case, tmp_path)
    merge_adapter(str(saved.base), str(saved.folder), str(tmp_path / "merged"))
    found, base = loaded(tmp_path / "merged"), loaded(saved.base)
    assert found.keys() == saved.merged.keys()
    changed = 0
    for name, expected in saved.merged.items():
        if torch.equal(expected, base[name]):
            assert torch.equal(found[name], expected), name
            continue
        changed += 1
        bound = (expected.abs() + (expected - base[name]).abs()) * (
            DORA if case == "DoRA" else 2.0**-20
        ) + 2.0**-24
        assert ((found[name] - expected).abs() <= bound).all(), name
    assert changed
    assert (
        llamath.same(str(saved.base), str(tmp_path / "merged"), adapter=str(saved.folder)).verdict
        != "different"
    )
    assert (
        llamath.same(str(saved.base), str(saved.base), adapter=str(saved.folder)).verdict
        == "different"
    )


def test_unchanged_tensors_are_copied_bit_for_bit(lora: SavedAdapter, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(lora.base, base)
    tensors = load_file(base / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.arange(4.0)
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    report = merge_adapter(str(base), str(lora.folder), str(tmp_path / "merged"))
    found = load_file(tmp_path / "merged" / "model.safetensors")
    assert found.keys() == tensors.keys()
    changed = {name for name, x in tensors.items() if not torch.equal(found[name], x)}
    assert changed == {
        f"model.layers.{i}.self_attn.{x}_proj.weight" for i in range(3) for x in "qv"
    }
    assert "LoRA adapter of rank 4 (peft): changed 6 weights" in report.notes
    assert json.loads((tmp_path / "merged" / "config.json").read_text()) == json.loads(
        (base / "config.json").read_text()
    )


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_merged_weights_are_rounded_once(dtype: str, lora: SavedAdapter, tmp_path: Path) -> None:
    merge_adapter(str(lora.base), str(lora.folder), str(tmp_path / "f32"))
    merge_adapter(str(lora.base), str(lora.folder), str(tmp_path / "merged"), dtype=dtype)
    found, wide = (load_file(tmp_path / name / "model.safetensors") for name in ("merged", "f32"))
    to = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    assert all(torch.equal(found[name], x.to(to)) for name, x in wide.items())
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["dtype"] == str(to)[6:]


def test_rest_of_a_multimodal_model_is_kept(lora: SavedAdapter, tmp_path: Path) -> None:
    text = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=50,
    )
    vision = transformers.CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=8,
    )
    config = transformers.LlavaConfig(text_config=text, vision_config=vision, image_token_index=3)
    transformers.LlavaForConditionalGeneration(config).save_pretrained(tmp_path / "base")
    names = {
        x: f"base_model.model.language_model.{x.removeprefix('base_model.model.')}"
        for x in load_file(lora.folder / "adapter_model.safetensors")
    }
    shutil.copytree(lora.folder, tmp_path / "adapter")
    save_file(
        {new: load_file(lora.folder / "adapter_model.safetensors")[x] for x, new in names.items()},
        tmp_path / "adapter" / "adapter_model.safetensors",
    )
    merge_adapter(str(tmp_path / "base"), str(tmp_path / "adapter"), str(tmp_path / "merged"))
    before, after = (
        load_file(tmp_path / name / "model.safetensors") for name in ("base", "merged")
    )
    assert before.keys() == after.keys()
    assert len({name for name, x in before.items() if not torch.equal(after[name], x)}) == 6
    config_files = [
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("base", "merged")
    ]
    assert config_files[0] == config_files[1]


def test_faults_of_the_user_are_named(lora: SavedAdapter, tmp_path: Path) -> None:
    with pytest.raises(LlamathError, match="expected an adapter"):
        merge_adapter(str(lora.base), str(lora.base), str(tmp_path / "x"))
    with pytest.raises(ConvertError, match="inside the adapter's folder"):
        merge_adapter(str(lora.base), str(lora.folder), str(lora.folder / "merged"))
    with pytest.raises(ConvertError, match="inside the source folder"):
        merge_adapter(str(lora.base), str(lora.folder), str(lora.base / "merged"))
    other = save_adapter("transposed layers", tmp_path)
    with pytest.raises(LlamathError, match=r"changes .*c_attn"):
        merge_adapter(str(lora.base), str(other.folder), str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    merge_adapter(str(lora.base), str(lora.folder), str(tmp_path / "y"))
    with pytest.raises(ConvertError, match="already contains"):
        merge_adapter(str(lora.base), str(lora.folder), str(tmp_path / "y"))


@pytest.mark.parametrize("where", ["base", "adapter"])
def test_links_out_of_either_folder_are_not_copied(
    where: str, lora: SavedAdapter, tmp_path: Path
) -> None:
    folders = {"base": tmp_path / "base", "adapter": tmp_path / "adapter"}
    for name, original in (("base", lora.base), ("adapter", lora.folder)):
        shutil.copytree(original, folders[name])
    (tmp_path / "private_key").write_text("a secret")
    (folders[where] / "merges.txt").symlink_to("../private_key")
    with pytest.raises(LlamathError, match=r"merges\.txt is a symbolic link out of"):
        merge_adapter(str(folders["base"]), str(folders["adapter"]), str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_another_adapter_is_not_resumed(lora: SavedAdapter, tmp_path: Path) -> None:
    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_adapter(str(lora.base), str(lora.folder), str(tmp_path / "x"), progress=stop)
    other = tmp_path / "other"
    shutil.copytree(lora.folder, other)
    tensors = {name: x * 2 for name, x in load_file(other / "adapter_model.safetensors").items()}
    save_file(tensors, other / "adapter_model.safetensors")
    report = merge_adapter(str(lora.base), str(other), str(tmp_path / "x"))
    assert report.kept == ()


def test_command_merges_an_adapter_and_nothing_else(lora: SavedAdapter, tmp_path: Path) -> None:
    words = ["convert", str(lora.base), str(tmp_path / "merged"), "--adapter", str(lora.folder)]
    done = CliRunner().invoke(cli, [*words, "--json"])
    found = json.loads(done.stdout)
    assert (found["model"], found["adapter"]) == (str(lora.base), str(lora.folder))
    merge_adapter(str(lora.base), str(lora.folder), str(tmp_path / "again"))
    assert (tmp_path / "merged" / "model.safetensors").read_bytes() == (
        tmp_path / "again" / "model.safetensors"
    ).read_bytes()
    done = CliRunner().invoke(cli, [*words, "--names", "gguf", "--part", "main"])
    assert done.exit_code == 2
    assert "--names and --part cannot be used with --adapter" in done.stderr
