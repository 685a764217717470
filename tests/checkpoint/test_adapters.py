"""Adapters: what the reader finds gives the weights that peft merges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llamath.checkpoint.adapters import Adapter, AdapterTarget, Factor, open_adapter
from llamath.utils.errors import ConfigError, FormatError

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytest.importorskip("transformers")
from safetensors.torch import load_file, save_file  # noqa: E402

from support.peft_adapters import CASES, SavedAdapter, save_adapter  # noqa: E402


@pytest.fixture(scope="module", params=CASES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SavedAdapter:
    return save_adapter(request.param, tmp_path_factory.mktemp("adapter"))


def base_weights(saved: SavedAdapter) -> dict[str, Any]:
    """The base model's weights under the names that its module has, with fused experts."""
    from transformers import AutoModelForCausalLM

    return dict(AutoModelForCausalLM.from_pretrained(saved.base).state_dict())


def merge(target: AdapterTarget, weight: Any, values: dict[str, Any], is_transposed: bool) -> Any:
    """The changed weight, computed from the reader's description alone."""

    def factor(x: Factor) -> Any:
        value = values[x.tensor.name]
        return value.T if x.is_transposed else value

    if target.kind == "replacement":
        return values[target.tensor.name]
    if target.kind == "rows":
        return weight.index_copy(0, torch.tensor(target.indices), values[target.tensor.name])
    if target.kind == "scaling":
        scaling = values[target.tensor.name]
        return weight * (scaling.T if is_transposed else scaling)
    assert target.a and target.b
    a, b = factor(target.a), factor(target.b)
    if target.kind == "experts":
        a = a.reshape(target.experts, target.rank, -1)
        b = b.reshape(b.shape[0], target.rank, target.experts).permute(2, 0, 1)
        update = b @ a
        return weight + target.scale * (
            update if update.shape == weight.shape and not is_transposed else update.transpose(1, 2)
        )
    update = target.scale * (b @ a)
    changed = weight + (update.T if is_transposed or target.kind == "embedding" else update)
    if target.magnitude is None:
        return changed
    return changed * (values[target.magnitude.name] / changed.norm(dim=1))[:, None]


def merged_weights(
    adapter: Adapter, folder: Path, weights: dict[str, Any], is_transposed: bool
) -> dict[str, Any]:
    values = load_file(folder / "adapter_model.safetensors")
    for target in adapter.targets:
        weights[target.name] = merge(target, weights[target.name], values, is_transposed)
        bias = f"{target.module}.bias"
        if target.bias is not None:
            weights[bias] = weights[bias] + target.scale * values[target.bias.name]
        if target.kind == "scaling" and bias in weights and target.tensor.shape[0] > 1:
            weights[bias] = weights[bias] * values[target.tensor.name].flatten()
    return weights


def test_targets_give_the_weights_that_peft_merges(saved: SavedAdapter) -> None:
    adapter = open_adapter(str(saved.folder))
    assert (
        not adapter.unread
        and not adapter.incomplete
        and not adapter.unsupported
        and adapter.targets
    )
    model = json.loads((saved.base / "config.json").read_text())["model_type"]
    weights = merged_weights(
        adapter, saved.folder, base_weights(saved), model in ("gpt2", "gpt_oss")
    )
    changed = 0
    for name, value in saved.merged.items():
        torch.testing.assert_close(
            weights[name],
            value,
            atol=1e-5,
            rtol=1e-5,
            msg=lambda text, name=name: f"{name}: {text}",
        )
        changed += name in {x.name for x in adapter.targets}
    assert changed == len({x.name for x in adapter.targets})


def test_every_tensor_of_an_adapter_is_read(saved: SavedAdapter) -> None:
    adapter = open_adapter(str(saved.folder))
    assert sorted(x.name for target in adapter.targets for x in target.tensors) == sorted(
        x.name for x in adapter.manifest.tensors
    )
    assert adapter.parameters == sum(
        x.numel() for x in load_file(saved.folder / "adapter_model.safetensors").values()
    )


def test_torch_file_of_an_adapter_reads_the_same(saved: SavedAdapter, tmp_path: Path) -> None:
    torch.save(
        load_file(saved.folder / "adapter_model.safetensors"), tmp_path / "adapter_model.bin"
    )
    (tmp_path / "adapter_config.json").write_bytes(
        (saved.folder / "adapter_config.json").read_bytes()
    )
    ours, theirs = open_adapter(str(tmp_path)), open_adapter(str(saved.folder))
    described = [(x.name, x.kind, x.rank, x.scale, x.experts) for x in ours.targets]
    assert sorted(described) == sorted(
        (x.name, x.kind, x.rank, x.scale, x.experts) for x in theirs.targets
    )


def write(
    folder: Path,
    config: dict[str, Any] | None,
    shapes: dict[str, tuple[int, ...]],
    file: str = "adapter_model.safetensors",
) -> str:
    save_file({name: torch.zeros(shape) for name, shape in shapes.items()}, folder / file)
    if config is not None:
        (folder / "adapter_config.json").write_text(json.dumps(config))
    return str(folder)


Q = "base_model.model.model.layers.0.self_attn.q_proj"
PLAIN = {f"{Q}.lora_A.weight": (4, 16), f"{Q}.lora_B.weight": (16, 4)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "LORA", "r": 0, "lora_alpha": 8}, "r should be a positive number"),
        ({"peft_type": "LORA", "r": 2.5, "lora_alpha": 8}, "a rank should be an integer"),
        ({"peft_type": "LORA", "r": 4}, "lora_alpha should be a positive number"),
        (
            {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "rank_pattern": {"(?>a)q": 4}},
            "cannot be matched",
        ),
        (
            {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "rank_pattern": {"q": "x"}},
            "q should be a positive number",
        ),
        (
            {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_parameters": "x"},
            "should be a list of names",
        ),
        ({"peft_type": 3}, "peft_type should be a name"),
        ({"fine_tune_type": "x"}, "fine_tune_type should be"),
        ({}, "expected peft_type"),
    ],
)
def test_wrong_configs_of_adapters_are_refused(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        open_adapter(write(tmp_path, config, PLAIN))


def test_adapter_without_its_config_is_refused(tmp_path: Path) -> None:
    write(tmp_path, None, PLAIN)
    with pytest.raises(
        FormatError, match=r"expected adapter_config\.json next to the adapter's weights"
    ):
        open_adapter(str(tmp_path / "adapter_model.safetensors"))


def test_other_methods_and_lone_factors_are_named(tmp_path: Path) -> None:
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_qalora": True}
    shapes = {
        **PLAIN,
        f"{Q[:-6]}k_proj.lora_A.weight": (4, 16),
        f"{Q}.hada_w1_a": (4, 4),
        f"{Q}.lora_A.default.weight": (4, 16),
        "x": (1,),
    }
    adapter = open_adapter(write(tmp_path, config, shapes))
    assert adapter.incomplete == ("model.layers.0.self_attn.k_proj",) and len(adapter.targets) == 1
    assert sorted(adapter.unread) == sorted([f"{Q}.hada_w1_a", f"{Q}.lora_A.default.weight", "x"])
    assert "use_qalora" in adapter.unsupported[0]


def test_trainer_folder_reads_the_adapter(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": "x/y"},
        PLAIN,
    )
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin"):
        (tmp_path / name).write_bytes(b"not read")
    adapter = open_adapter(folder)
    assert (adapter.base, adapter.method, adapter.ranks, adapter.title) == (
        "x/y",
        "lora",
        (4,),
        "LoRA adapter of rank 4 (peft)",
    )
