"""A checkpoint as MODEL: its config, its GGUF metadata or, without a family, its header is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.understand.count.header_count import count_header
from llamath.cli import cli
from llamath.utils.errors import ConfigError, FormatError, LlamathError, UnknownModel
from support.gguf_files import CONVERTED, gguf_shapes, tensor_shapes, write_gguf, write_gguf_header
from support.hub_server import COMMIT, Hub
from support.sparse_checkpoints import header_of, write_safetensors, write_sharded

CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 99, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4,
}  # fmt: skip
PARAMS = {
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "vocab_size": 99,
    "multiple_of": 8,
    "norm_eps": 1e-5,
}
MODEL = llamath.load(CONFIG)
TOTAL = MODEL.parameters.total
MARTIAN = {"model_type": "martian", "hidden_size": 32, "wings": 4}


def run(*args: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and the error."""
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, args, standalone_mode=False
    )
    if done.exception and not isinstance(done.exception, (LlamathError, SystemExit)):
        if not type(done.exception).__module__.startswith("click"):
            raise done.exception
        return 2, done.stdout, str(getattr(done.exception, "message", ""))
    return (2 if done.exception else done.exit_code), done.stdout, str(done.exception or "")


def count_as_json(path: Path, *options: str) -> dict[str, Any]:
    code, out, stderr = run("count", str(path), "--json", *options)
    assert code == 0, stderr
    report: dict[str, Any] = json.loads(out)
    return report


def config(folder: Path, data: dict[str, Any] = CONFIG, name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(data))
    return folder


def tiny_gguf(path: Path) -> Path:
    entry = CONVERTED["llama-plain"]
    return write_gguf(path, entry["arch"], entry["keys"], tensor_shapes(entry), entry["tokens"])


def single(folder: Path) -> Path:
    return write_safetensors(config(folder) / "model.safetensors", header_of(MODEL))


def sharded(folder: Path) -> Path:
    write_sharded(config(folder), header_of(MODEL), 3)
    return folder / "model.safetensors.index.json"


def meta(folder: Path) -> Path:
    import torch

    config(folder, PARAMS, "params.json")
    model = llamath.load(PARAMS)
    tensors = {
        x.name: torch.zeros(tuple(map(int, x.shape)))
        for x in model.scheme("meta").tensors(model.tree)
    }
    torch.save(tensors, folder / "consolidated.00.pth")
    return folder / "consolidated.00.pth"


def of_gguf(folder: Path) -> Path:
    folder.mkdir()
    return tiny_gguf(folder / "tiny.gguf")


def blob(folder: Path) -> Path:
    return of_gguf(folder).rename(folder / "sha256-0123")


def gguf_beside_another_config(folder: Path) -> Path:
    config(folder, CONFIG | {"num_hidden_layers": 7})
    return tiny_gguf(folder / "tiny.gguf")


def gguf_folder(folder: Path) -> Path:
    return of_gguf(folder).parent


def gguf_folder_with_a_stub(folder: Path) -> Path:
    tiny_gguf(config(folder, {"model_type": "llama"}) / "tiny.gguf")
    return folder


def folder_with_config(folder: Path) -> Path:
    return single(folder).parent


def split_gguf(folder: Path) -> Path:
    entry = CONVERTED["llama-plain"]
    folder.mkdir()
    names = list(tensor_shapes(entry))
    for i, part in enumerate((names[:9], names[9:])):
        path = folder / f"tiny-{i + 1:05}-of-00002.gguf"
        _split(
            path,
            entry["keys"] if i == 0 else {},
            {name: tensor_shapes(entry)[name] for name in part},
            i,
            len(names),
        )
    return folder / "tiny-00001-of-00002.gguf"


def _split(
    path: Path, keys: dict[str, Any], tensors: dict[str, list[int]], number: int, total: int
) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(
            f"llama.{key}", value
        )
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", 2)
    writer.add_int32("split.tensors.count", total)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


PLACES: dict[str, Callable[[Path], Path]] = {
    "one file": single,
    "an index": sharded,
    "a folder": folder_with_config,
    "Meta's": meta,
    "GGUF": of_gguf,
    "GGUF under another name": blob,
    "GGUF beside another model's config": gguf_beside_another_config,
    "a folder with a GGUF": gguf_folder,
    "a folder with a GGUF and a stub of a config": gguf_folder_with_a_stub,
    "split GGUF": split_gguf,
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(x, marks=[pytest.mark.slow] * (x == "Meta's")) for x in PLACES],
)
def test_any_checkpoint_can_be_counted(case: str, tmp_path: Path) -> None:
    path = PLACES[case](tmp_path / "tiny")
    report = count_as_json(path)
    expected = llamath.load(PARAMS) if case == "Meta's" else MODEL
    assert report["family"] == "llama"
    assert (
        report["parameters"]["total"]
        == expected.parameters.total
        == llamath.load(path).parameters.total
    )
    assert report["model"] in (
        "tiny",
        "tiny.gguf",
        "sha256-0123",
        "tiny-00001-of-00002.gguf",
    ) and report["source"].startswith(str(tmp_path))


def test_a_relative_file_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    single(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path / "tiny")
    assert llamath.load("model.safetensors").name == "tiny"
    assert llamath.load(".").parameters.total == TOTAL


def test_set_applies_to_gguf_files(tmp_path: Path) -> None:
    path = of_gguf(tmp_path / "tiny")
    assert (
        count_as_json(path, "--set", "num_hidden_layers=30")["parameters"]["per_layer"]
        == MODEL.parameters.per_layer
    )
    code, _, stderr = run("count", str(path), "--set", "wings=4")
    assert code == 2 and "unknown config key 'wings' for the llama family" in stderr


def write_unknown_family(folder: Path) -> Path:
    write_safetensors(config(folder, MARTIAN) / "model.safetensors", header_of(MODEL))
    return folder


def no_config(folder: Path) -> Path:
    folder.mkdir()
    return write_safetensors(folder / "model.safetensors", header_of(MODEL))


def unknown_arch(folder: Path) -> Path:
    folder.mkdir()
    return write_gguf_header(
        folder / "model.gguf", "martian", {"block_count": 3}, gguf_shapes(MODEL)
    )


def contradiction(folder: Path) -> Path:
    entry = CONVERTED["llama-plain"]
    folder.mkdir()
    return write_gguf(
        folder / "model.gguf",
        "llama",
        entry["keys"] | {"feed_forward_length": 57},
        tensor_shapes(entry),
        99,
    )


UNKNOWN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a model type": (write_unknown_family, "unknown model_type 'martian'"),
    "no configuration": (
        no_config,
        "has neither config.json nor params.json, so its family is unknown",
    ),
    "an architecture": (unknown_arch, "unknown architecture 'martian'"),
    "metadata that are not borne out": (contradiction, "its tensors hold 34,976"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_family_is_counted_from_the_header(case: str, tmp_path: Path) -> None:
    make, reason = UNKNOWN[case]
    path = make(tmp_path / "unknown")
    report = count_as_json(path)
    assert report["family"] is report["formula"] is None and report["groups"] == {}
    assert report["parameters"]["total"] == TOTAL and report["parameters"]["active"] is None
    assert set(report["parameters"]) == set(count_as_json(single(tmp_path / "tiny"))["parameters"])
    assert set(report) >= set(count_as_json(tmp_path / "tiny")) - {"formula_numbers", "letters"}
    assert reason in report["notes"][0] and "counted from the header" in report["notes"][1]
    code, out, _ = run("count", str(path))
    assert (
        code == 0
        and f"{TOTAL:,} parameters" in out
        and "no family, from the header of" in " ".join(out.split())
    )
    with pytest.raises(UnknownModel, match=reason.partition(",")[0]) as caught:
        llamath.load(path)
    assert "header" in caught.value.hint


def test_header_weights_sum_and_keep_their_names(tmp_path: Path) -> None:
    report = count_as_json(write_unknown_family(tmp_path / "unknown"))
    assert sum(x["parameters"] for x in report["weights"]) == TOTAL
    assert {x["path"]: tuple(x["shape"]) for x in report["weights"]} == {
        name: shape for name, (_, shape) in header_of(MODEL).items()
    }
    assert all(
        x["names"] == {"hf": x["path"], "meta": None, "gguf": None} for x in report["weights"]
    )
    assert report["stored"] == {"elements": TOTAL, "bytes": 2 * TOTAL}


def test_packed_values_count_and_scales_do_not(tmp_path: Path) -> None:
    header = {
        "a.qweight": ("I32", (16, 256)), "a.qzeros": ("I32", (1, 32)), "a.scales": ("F16", (1, 256)), "a.g_idx": ("I32", (128,)),
        "b.weight": ("F8_E4M3", (128, 128)), "b.weight_scale_inv": ("F32", (1, 1)), "c.weight": ("BF16", (10, 8)),
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (64,)),
    }  # fmt: skip
    write_safetensors(config(tmp_path, MARTIAN) / "model.safetensors", header)
    report = count_as_json(tmp_path)
    assert report["parameters"]["total"] == 128 * 256 + 128 * 128 + 80
    assert [x["path"] for x in report["weights"]] == ["a.qweight", "b.weight", "c.weight"]
    assert "rotary factors, not counted: 64 elements" in " ".join(report["notes"])


def test_header_table_folds_and_unfolds(tmp_path: Path) -> None:
    path = str(write_unknown_family(tmp_path / "unknown"))
    _, folded, _ = run("count", path)
    _, unfolded, _ = run("count", path, "--all")
    assert (
        "model.layers.{0..2}.mlp.up_proj.weight" in folded
        and "model.layers.1.mlp.up_proj.weight" not in folded
    )
    assert "model.layers.1.mlp.up_proj.weight" in unfolded
    assert "model.layers.1.mlp.up_proj.weight," in run("count", path, "--all", "--format", "csv")[1]


@pytest.mark.parametrize("options", [("--format", "tree"), ("--part", "text"), ("-o", "x.svg")])
def test_options_that_need_a_family_are_rejected(options: tuple[str, ...], tmp_path: Path) -> None:
    code, out, stderr = run("count", str(write_unknown_family(tmp_path / "unknown")), *options)
    assert code == 2 and not out and "without a family" in stderr


def test_set_and_other_commands_need_a_family(tmp_path: Path) -> None:
    path = str(write_unknown_family(tmp_path / "unknown"))
    assert (
        run("count", path, "--set", "hidden_size=64")[0]
        == run("config", path)[0]
        == run("names", path)[0]
        == 2
    )


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    config(tmp_path, MARTIAN | {"model_type": "evil\x1b[31m"})
    write_safetensors(tmp_path / "model.safetensors", {"a\x1b[2Jb\u202e": ("F32", (2, 2))})
    for options in ((), ("--all",), ("--json",)):
        _, out, _ = run("count", str(tmp_path), *options)
        assert "\x1b" not in out and "\u202e" not in out


def test_a_folder_without_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"has neither config\.json nor params\.json, and no checkpoint"
    ):
        llamath.load(tmp_path)
    config(tmp_path, MARTIAN)
    assert run("count", str(tmp_path))[::2] == (2, run("count", str(tmp_path / "config.json"))[2])


def test_broken_checkpoint_error_has_the_reason(tmp_path: Path) -> None:
    write_safetensors(config(tmp_path, MARTIAN) / "model.safetensors", header_of(MODEL), short=8)
    code, out, stderr = run("count", str(tmp_path))
    assert code == 2 and not out and "model.safetensors" in stderr
    with pytest.raises(FormatError):
        count_header(str(tmp_path))


def test_remote_gguf_is_counted_from_its_metadata(pair: Any, tmp_path: Path) -> None:
    entry = CONVERTED["llama-grouped, biased, tied"]
    local = write_gguf(
        tmp_path / "tiny.gguf", "llama", entry["keys"], tensor_shapes(entry), 99, entry["values"]
    )
    Hub(*pair, {"tiny.gguf": local.read_bytes(), "config.json": json.dumps(MARTIAN).encode()})
    model, here = llamath.load("hf://org/name/tiny.gguf"), llamath.load(local)
    assert model.parameters == here.parameters and model.name == "tiny.gguf"
    assert f"is at commit {COMMIT}" in model.notes[0] and "could not be read" in model.notes[1], (
        "factors are not fetched"
    )


def test_remote_checkpoint_without_family_is_counted(pair: Any, tmp_path: Path) -> None:
    path = write_unknown_family(tmp_path / "unknown")
    Hub(*pair, {x.name: x.read_bytes() for x in path.iterdir()})
    report = json.loads(run("count", "hf://org/name", "--json")[1])
    assert report["parameters"]["total"] == TOTAL and f"is at commit {COMMIT}" in report["notes"][0]
    assert "martian" in report["notes"][0]
