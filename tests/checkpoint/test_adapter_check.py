"""`verify` of an adapter against its base model: accepts what peft saves, and names what peft would not load as it was trained."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamath import StructureReport, load, verify
from llamath.analysis.check.kinds.adapter_check import BaseModel, find_base, selected_modules
from llamath.checkpoint.adapters import open_adapter
from llamath.utils.errors import ConfigError

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytest.importorskip("transformers")
from safetensors.torch import load_file, save_file  # noqa: E402

from support.peft_adapters import CASES, SavedAdapter, llama, lora, save_adapter  # noqa: E402


@pytest.fixture(scope="module", params=CASES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SavedAdapter:
    return save_adapter(request.param, tmp_path_factory.mktemp("adapter"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> SavedAdapter:
    return save_adapter("LoRA", tmp_path_factory.mktemp("plain"))


def check(adapter: Path, base: Any) -> StructureReport:
    report = verify(adapter, against=base)
    assert isinstance(report, StructureReport)
    return report


def codes(report: StructureReport) -> list[str]:
    return sorted({x.code for x in report.findings if x.severity != "info"})


def messages(report: StructureReport) -> str:
    return "\n".join(f"{x.message} ({x.hint})" for x in report.findings)


def changed(
    saved: SavedAdapter,
    folder: Path,
    config: dict[str, Any] | None = None,
    tensors: Callable[[dict[str, Any]], object] | None = None,
) -> Path:
    """A copy of an adapter with other keys, or with changed tensors."""
    shutil.copytree(saved.folder, folder, dirs_exist_ok=True)
    keys = json.loads((folder / "adapter_config.json").read_text()) | (config or {})
    (folder / "adapter_config.json").write_text(json.dumps(keys))
    values = load_file(folder / "adapter_model.safetensors")
    if tensors is not None:
        tensors(values)
    save_file(values, folder / "adapter_model.safetensors")
    return folder


def test_adapters_that_peft_saves_fit_their_base(saved: SavedAdapter) -> None:
    for base in (str(saved.base), str(saved.base / "config.json")):
        report = check(saved.folder, base)
        assert report.ok and not report.findings, messages(report)
        assert report.matched == report.expected == len(open_adapter(str(saved.folder)).targets) > 0


def test_base_that_the_adapter_names_is_used(plain: SavedAdapter, tmp_path: Path) -> None:
    local = check(
        changed(plain, tmp_path / "local", {"base_model_name_or_path": str(plain.base)}), None
    )
    assert local.ok and local.model == "base"
    preset = check(
        changed(plain, tmp_path / "preset", {"base_model_name_or_path": "meta-llama/Llama-3.2-1B"}),
        None,
    )
    assert preset.model == "Llama 3.2 1B" and "shape" in codes(preset)
    unknown = check(
        changed(plain, tmp_path / "unknown", {"base_model_name_or_path": "nobody/nothing"}), None
    )
    assert unknown.ok and unknown.model is None and "nobody/nothing" in messages(unknown)


@pytest.mark.parametrize(
    ("config", "code", "text"),
    [
        (
            {"target_modules": ["q_proj", "v_proj", "c_attn"]},
            "target",
            "target_modules names 'c_attn'",
        ),
        ({"target_modules": ["q_proj", "v_proj", "qproj"]}, "target", "did you mean q_proj"),
        (
            {"target_modules": ["q_proj", "v_proj", "self_attn"]},
            "target",
            "'self_attn', which matches no linear layer",
        ),
        (
            {"target_modules": r".*\.h\.\d+\.attn"},
            "target",
            "matches no linear layer or embedding of base",
        ),
        (
            {"target_modules": ["q_proj", "v_proj", "k_proj"]},
            "untrained",
            "3 modules have no tensors",
        ),
        (
            {"target_modules": ["q_proj"]},
            "unselected",
            "3 modules with tensors that the configuration does not select",
        ),
        ({"layers_to_transform": [0, 1]}, "unselected", "model.layers.2.self_attn.q_proj"),
        (
            {"layers_to_transform": [0, 1, 2, 7]},
            "layers",
            "layers_to_transform names 7; base has layers 0–2",
        ),
        ({"exclude_modules": ["v_proj"]}, "unselected", "v_proj"),
        ({"r": 8}, "rank", "have rank 4; the configuration says 8"),
        ({"rank_pattern": {"q_proj": 2}}, "rank", "rank 4; the configuration says 2"),
        ({"rank_pattern": {"k_proj": 2}}, "pattern", "'k_proj', which matches no target"),
        ({"alpha_pattern": {"k_proj": 2}}, "pattern", "alpha_pattern has 'k_proj'"),
        ({"use_dora": True}, "dora", "no magnitude vector"),
        ({"modules_to_save": ["score"]}, "target", "modules_to_save names 'score'"),
        ({"modules_to_save": ["lm_head"]}, "untrained", "the file has no tensor of it"),
        ({"target_parameters": ["mlp.experts.down_proj"]}, "target", "matches no parameter"),
    ],
)
def test_configs_that_select_other_modules_are_named(
    config: dict[str, Any], code: str, text: str, plain: SavedAdapter, tmp_path: Path
) -> None:
    report = check(changed(plain, tmp_path, config), str(plain.base))
    assert not report.ok and code in codes(report) and text in messages(report), messages(report)


def test_new_head_of_a_classification_task_is_no_problem(
    plain: SavedAdapter, tmp_path: Path
) -> None:
    config = {"modules_to_save": ["classifier", "score"], "task_type": "SEQ_CLS"}
    adapter = changed(
        plain,
        tmp_path,
        config,
        lambda x: x.update({"base_model.model.score.weight": torch.zeros(2, 16)}),
    )
    report = check(adapter, str(plain.base))
    assert report.ok and "new head" in messages(report)


def test_invalid_layers_are_refused(plain: SavedAdapter, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="layers_to_transform should be a list of numbers"):
        check(changed(plain, tmp_path, {"layers_to_transform": ["a"]}), str(plain.base))


Q = "base_model.model.model.layers.1.self_attn.q_proj.lora_{}.weight"


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (lambda x: x.update({Q.format("A"): torch.zeros(4, 32)}), "shape", "update of [16, 32]; the weight in base is [16, 16]"),
        (lambda x: x.update({Q.format("B"): torch.zeros(16, 3)}), "rank", "different ranks: A [4, 16], B [16, 3]"),
        (lambda x: x.update({Q.format("B"): torch.zeros(0)}), "empty", "without gathering the parameters"),
        (lambda x: x.pop(Q.format("B")), "factor", "1 module has only one of the two factors"),
        (lambda x: x.update({Q.format("A").replace("A.", "A.default."): x[Q.format("A")].clone()}), "unexpected", "the adapter's own name"),
        (
            lambda x: x.update({k.replace("layers.1", "layers.9"): v.clone() for k, v in list(x.items()) if "layers.1" in k}),
            "target",
            "the adapter has layer 9, the base model layers 0–2",
        ),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_named(
    change: Callable[[dict[str, Any]], object],
    code: str,
    text: str,
    plain: SavedAdapter,
    tmp_path: Path,
) -> None:
    report = check(changed(plain, tmp_path, tensors=change), str(plain.base))
    assert code in codes(report) and text in messages(report), messages(report)


@pytest.mark.parametrize("case", ["saved modules", "embedding", "rows of the embedding"])
def test_other_vocabularies_are_named(case: str, tmp_path: Path) -> None:
    saved = save_adapter(case, tmp_path)
    for rows in (6, 44):
        report = check(saved.folder, load(str(saved.base), changes={"vocab_size": rows}))
        if case != "rows of the embedding" or rows == 6:
            assert (
                codes(report) == ["vocabulary"] and "resize" in messages(report)
            ) or "row for token 7" in messages(report)
    larger = check(saved.folder, load(str(saved.base), changes={"vocab_size": 60}))
    assert larger.ok == (case == "rows of the embedding")


@pytest.mark.parametrize("case", ["experts", "transposed experts", "IA³", "DoRA"])
def test_other_sizes_of_the_base_are_named(case: str, tmp_path: Path) -> None:
    saved = save_adapter(case, tmp_path)
    changes = (
        {"num_experts": 8, "num_local_experts": 8}
        if "experts" in case
        else {"intermediate_size": 36}
    )
    config = json.loads((saved.base / "config.json").read_text())
    report = check(
        saved.folder, load(config, changes={k: v for k, v in changes.items() if k in config})
    )
    assert "shape" in codes(report), messages(report)


TARGETS: tuple[Any, ...] = (
    ["q_proj"], ["self_attn.q_proj", "up_proj"], ["proj"], "all-linear", r".*\.mlp\..*_proj", r"model\.layers\.\d+\.self_attn\.[qk]_proj",
    ["model.layers.1.mlp.down_proj", "lm_head"], ["embed_tokens", "v_proj"], r".*(q|o)_proj|lm_head",
)  # fmt: skip
EXCLUDED: tuple[Any, ...] = (None, None, ["v_proj"], r".*\.1\..*", ["self_attn.q_proj"])
LAYERS: tuple[Any, ...] = (None, None, [0, 2], 1, [1])
PATTERNS: tuple[Any, ...] = (None, "layers", ["h", "layers"], ["blocks"])
SAVED: tuple[Any, ...] = (None, None, ["lm_head"], ["mlp.up_proj"])


def test_selected_modules_are_those_of_peft(plain: SavedAdapter) -> None:
    adapter = open_adapter(str(plain.folder))
    base = find_base(adapter, str(plain.base))
    assert isinstance(base, BaseModel)
    chance, compared = random.Random(1), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while compared < 60:
            options = {
                "target_modules": chance.choice(TARGETS), "exclude_modules": chance.choice(EXCLUDED), "layers_to_transform": chance.choice(LAYERS),
                "layers_pattern": chance.choice(PATTERNS), "modules_to_save": chance.choice(SAVED),
            }  # fmt: skip
            if options["layers_to_transform"] is None or isinstance(options["target_modules"], str):
                options["layers_pattern"] = options["layers_to_transform"] = None
            try:
                wrapped = peft.LoraModel(llama(), lora(**options)(), "default")
            except ValueError:
                theirs: set[str] = set()
            else:
                theirs = set(wrapped.targeted_module_names)
            assert selected_modules(options, base, "") == theirs, options
            compared += bool(theirs)


def test_adapters_of_multimodal_models_fit(tmp_path: Path) -> None:
    import transformers

    text = {
        "hidden_size": 16,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    vision = {
        "hidden_size": 16,
        "intermediate_size": 20,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
    }
    config = transformers.Gemma3Config(
        text_config={**text, "head_dim": 4, "vocab_size": 50},
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=49,
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    model.save_pretrained(tmp_path / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft.get_peft_model(model, lora(target_modules=["q_proj", "fc1"])()).save_pretrained(
            tmp_path / "adapter"
        )
    whole = check(tmp_path / "adapter", str(tmp_path / "base"))
    assert whole.ok and whole.matched == whole.expected == 5, messages(whole)
    alone = check(tmp_path / "adapter", str(tmp_path / "base" / "config.json"))
    assert alone.ok and alone.matched == alone.expected == 5, messages(alone)
