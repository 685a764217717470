"""Encoders, diffusers pipelines and folders of several GGUF files: their files are checked, or a choice is offered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath import StructureReport, verify
from llamath.checkpoint.formats.gguf_choices import FILE_TYPES
from llamath.cli import cli
from llamath.utils.errors import FormatError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
from safetensors.torch import load_file, save_file  # noqa: E402

TINY = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 50,
}
VISION = {**TINY, "image_size": 16, "patch_size": 8}
VISION.pop("vocab_size")
WHISPER = {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20, "vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "num_mel_bins": 8,
}  # fmt: skip


def encoder(name: str) -> Any:
    t = transformers
    return {
        "bert": lambda: t.BertModel(t.BertConfig(**TINY)),
        "t5": lambda: t.T5ForConditionalGeneration(
            t.T5Config(d_model=16, d_kv=8, d_ff=20, num_layers=2, num_heads=2, vocab_size=50)
        ),
        "clip": lambda: t.CLIPModel(
            t.CLIPConfig(text_config=dict(TINY), vision_config=dict(VISION), projection_dim=8)
        ),
        "whisper": lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(**WHISPER)),
    }[name]()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder of each kind; BERT's is sharded."""
    folder = tmp_path_factory.mktemp("encoders")
    for name in ("bert", "t5", "clip", "whisper"):
        encoder(name).save_pretrained(
            folder / name, max_shard_size="8KB" if name == "bert" else "5GB"
        )
    return folder


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


def findings(path: Path) -> dict[str, str]:
    report = verify(path)
    assert isinstance(report, StructureReport)
    return {x.code: x.message for x in report.findings}


@pytest.mark.parametrize("name", ["bert", "t5", "clip", "whisper"])
def test_encoders_files_are_checked(name: str, saved: Path) -> None:
    stored = [load_file(x) for x in (saved / name).glob("*.safetensors")]
    report = verify(saved / name)
    assert (
        isinstance(report, StructureReport)
        and report.ok
        and report.kind == "files"
        and report.facts["model_type"] == name
    )
    assert report.facts["elements"] == sum(x.numel() for file in stored for x in file.values())
    assert report.matched == report.expected == sum(map(len, stored))
    done = run("verify", str(saved / name))
    words = " ".join(done.stdout.split())
    assert (
        done.exit_code == 0
        and "names and shapes are not compared with the config" in words
        and "its files are whole" in words
    )
    assert (
        json.loads(run("count", str(saved / name), "--json").stdout)["parameters"]["total"]
        == report.facts["elements"]
    )


def test_damaged_encoders_are_named(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved / "bert", tmp_path / "missing"))
    sorted(folder.glob("*.safetensors"))[1].unlink()
    assert "named in the index is missing" in findings(folder)["missing_shard"]
    assert run("verify", str(folder)).exit_code == 1
    folder = Path(shutil.copytree(saved / "t5", tmp_path / "cut"))
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-100])
    assert run("verify", str(folder)).exit_code in (1, 2)
    folder = Path(shutil.copytree(saved / "clip", tmp_path / "dtype"))
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"dtype": "bfloat16"})
    )
    assert "of another dtype than BF16" in findings(folder)["dtype"]


def write_pipeline(folder: Path, saved: Path) -> Path:
    """A pipeline like those of Stable Diffusion, with transformers' CLIP as the text encoder."""
    folder.mkdir()
    index = {
        "_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0", "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"], "scheduler": ["diffusers", "PNDMScheduler"], "unet": ["diffusers", "UNet2DConditionModel"],
        "safety_checker": [None, None], "requires_safety_checker": False,
    }  # fmt: skip
    (folder / "model_index.json").write_text(json.dumps(index))
    shutil.copytree(saved / "clip", folder / "text_encoder")
    for part, config in (
        ("tokenizer", "tokenizer_config.json"),
        ("scheduler", "scheduler_config.json"),
        ("unet", "config.json"),
    ):
        (folder / part).mkdir()
        (folder / part / config).write_text("{}")
    weights = {"conv_in.weight": torch.zeros(4, 3, 3, 3), "conv_in.bias": torch.zeros(4)}
    save_file(weights, folder / "unet" / "diffusion_pytorch_model.safetensors")
    save_file(
        {name: x.half() for name, x in weights.items()},
        folder / "unet" / "diffusion_pytorch_model.fp16.safetensors",
    )
    return folder


def test_pipelines_parts_are_checked_and_listed(saved: Path, tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "x", saved)
    report = verify(folder)
    assert (
        isinstance(report, StructureReport)
        and report.ok
        and report.kind == "diffusers"
        and report.expected == report.matched == 4
    )
    assert "2 tensors, 112 elements, F32; also as fp16 safetensors" in report.facts["unet"]
    assert list(findings(folder)) == ["optional"]
    clip = sum(x.numel() for x in load_file(saved / "clip" / "model.safetensors").values())
    listed = json.loads(run("ls", str(folder), "--json").stdout)
    assert listed["parameters"] == clip + 112 and {
        x["name"].split(".")[0] for x in listed["tensors"]
    } == {"text_encoder", "unet"}
    assert (
        json.loads(run("count", str(folder), "--json").stdout)["parameters"]["total"] == clip + 112
    )


def test_damaged_parts_of_a_pipeline_are_named(saved: Path, tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "x", saved)
    (folder / "unet" / "diffusion_pytorch_model.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    shutil.rmtree(folder / "scheduler")
    (folder / "text_encoder" / "model.safetensors").unlink()
    save_file(
        {"conv_in.weight": torch.zeros(4, 3, 3, 3)},
        folder / "unet" / "diffusion_pytorch_model.ema.safetensors",
    )
    found = findings(folder)
    assert "unet: " in found["lfs_pointer"] and "Git LFS pointer" in found["lfs_pointer"]
    assert found["missing_part"] == "scheduler: its folder is missing"
    assert found["missing_weights"] == "text_encoder: it has no weights in safetensors or .bin"
    assert "other tensors or shapes" in found["variant"]
    assert run("verify", str(folder)).exit_code == 1


def test_known_text_model_of_a_pipeline_is_verified(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**TINY)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "text_encoder")
    (tmp_path / "model_index.json").write_text(
        json.dumps({"_class_name": "P", "text_encoder": ["transformers", "LlamaForCausalLM"]})
    )
    assert findings(tmp_path) == {}
    (tmp_path / "text_encoder" / "config.json").write_text(
        json.dumps(config.to_dict() | {"intermediate_size": 24})
    )
    assert "intermediate_size should be 20" in findings(tmp_path)["shape"]


@pytest.mark.parametrize(
    "text",
    ['{"unet": ["diffusers", "X"], "../up": ["diffusers", "X"]}', '{"_class_name": "P"}', "[]"],
)
def test_hostile_model_indexes_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(text)
    assert run("verify", str(tmp_path)).exit_code == 2


def test_links_out_of_a_pipeline_are_not_followed(saved: Path, tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "x", saved)
    shutil.move(folder / "scheduler", tmp_path / "elsewhere")
    (folder / "scheduler").symlink_to(tmp_path / "elsewhere")
    assert "scheduler: its folder is missing" in findings(folder)["missing_part"]


def write_gguf(
    path: Path, file_type: int | None, kind: str = "", arch: str = "llama", width: int = 32
) -> None:
    writer = gguf.GGUFWriter(str(path), arch)
    if file_type is not None:
        writer.add_file_type(file_type)
    if kind:
        writer.add_type(kind)
    writer.add_tensor("a", torch.zeros(2, width).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_several_gguf_models_are_offered(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", 15)
    write_gguf(tmp_path / "m-large.gguf", 7, width=64)
    write_gguf(tmp_path / "x-bf16-00001-of-00002.gguf", 32)
    write_gguf(tmp_path / "x-bf16-00002-of-00002.gguf", 32)
    write_gguf(tmp_path / "mmproj.gguf", 1, "mmproj", "clip")
    for command in ("count", "ls", "verify"):
        done = run(command, str(tmp_path))
        assert (
            done.exit_code == 2
            and "contains 3 GGUF models: " in done.stderr
            and "mmproj" not in done.stderr
        )
        sizes = {x.name: x.stat().st_size for x in tmp_path.iterdir()}
        assert (
            f"m.gguf (Q4_K_M, {sizes['m.gguf']:,} bytes)" in done.stderr
            and f"(Q8_0, {sizes['m-large.gguf']:,} bytes)" in done.stderr
        )
        assert (
            f"x-bf16-00001-of-00002.gguf (BF16, 2 parts, {2 * sizes['x-bf16-00001-of-00002.gguf']:,} bytes)"
            in done.stderr
        )
        assert f"name one of them, such as {tmp_path}/m.gguf" in done.stderr
    with pytest.raises(FormatError) as caught:
        verify(tmp_path)
    assert str(caught.value).isprintable()


def test_one_gguf_model_beside_other_files_is_chosen(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", 15)
    write_gguf(tmp_path / "mmproj.gguf", 1, "mmproj", "clip")
    write_gguf(tmp_path / "lora.gguf", None, "adapter")
    done = run("ls", str(tmp_path))
    assert (
        done.exit_code == 0
        and "mmproj.gguf is left out: a vision encoder" in done.stdout + done.stderr
    )
    assert "lora.gguf is left out: an adapter" in done.stdout + done.stderr


def test_types_without_metadata_come_from_names(tmp_path: Path) -> None:
    for name in ("a-IQ3_XXS.gguf", "b.f16.gguf", "c.gguf"):
        write_gguf(tmp_path / name, None)
    message = run("ls", str(tmp_path)).stderr
    assert (
        "a-IQ3_XXS.gguf (IQ3_XXS, " in message
        and "b.f16.gguf (F16, " in message
        and "c.gguf (" in message
    )


def test_file_types_are_those_of_the_gguf_package() -> None:
    theirs = {
        x.value: x.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        for x in gguf.LlamaFileType
        if x.name != "GUESSED"
    }
    assert theirs == FILE_TYPES
