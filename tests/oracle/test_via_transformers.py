"""Models without a family: totals, names and shapes compared with the classes of transformers, in a process that runs no other code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import llamath
from llamath.cli import cli
from llamath.core.parameter_count import sections_of
from llamath.generic import transformers_process, transformers_script
from support.release import usual

pytestmark = pytest.mark.transformers
pytest.importorskip("transformers")
pytest.importorskip("torch")

CONFIGS: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": {
        "model_type": "bert", "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 36, "vocab_size": 70,
    },
    "BertForSequenceClassification": {
        "model_type": "bert", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36, "vocab_size": 70,
        "architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"},
    },
    "T5ForConditionalGeneration": {
        "model_type": "t5", "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 4, "vocab_size": 90,
    },
    "BartForConditionalGeneration": {
        "model_type": "bart", "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "vocab_size": 90, "max_position_embeddings": 32,
    },
    "WhisperForConditionalGeneration": {
        "model_type": "whisper", "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28, "vocab_size": 90, "pad_token_id": 3,
        "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 16,
    },
    "ResNetForImageClassification": {
        "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1], "layer_type": "basic",
    },
    "MixtralForCausalLM": {
        "model_type": "mixtral", "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 36, "vocab_size": 70, "num_local_experts": 4,
    },
}  # fmt: skip
"""Class → a small configuration of it; without `architectures`, it is the class that an auto class chooses."""


@pytest.fixture(autouse=True)
def in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the script's function here instead of in a process that imports transformers anew, except in tests of that process."""

    def answer(question: bytes, _source: str) -> bytes:
        asked = json.loads(question)
        try:
            return json.dumps(transformers_script.build(asked["config"], asked["changed"])).encode()
        except transformers_script.CannotBuild as error:
            return json.dumps({"error": str(error)}).encode()

    if request.node.get_closest_marker("own_process") is None:
        monkeypatch.setattr(transformers_process, "_run", answer)


def save(
    config: dict[str, Any], class_name: str, folder: Path
) -> tuple[int, dict[str, tuple[int, ...]]]:
    """Save the class with random weights; return its number of parameters, and the tensors of the file."""
    import transformers
    from safetensors import safe_open

    model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(**config))
    model.save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return model.num_parameters(), shapes


def run(*args: object) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, list(map(str, args)))


@pytest.mark.parametrize("class_name", CONFIGS)
def test_total_names_and_shapes_equal_the_saved_class(class_name: str, tmp_path: Path) -> None:
    parameters, shapes = save(CONFIGS[class_name], class_name, tmp_path)
    model = llamath.load(CONFIGS[class_name], via="transformers")
    assert model.claim.endswith(f"builds {class_name}") and model.parameters.total == parameters
    assert {x.name: x.shape for x in model.tensors if not x.tied} == shapes
    assert (
        sum(x.parameters for x in model.weights)
        - sum(int(x.weight.size) for x in model.weights if x.weight.buffer)
        == parameters
    )
    assert (
        sum(model.groups.values())
        == parameters
        == sum(x.each * x.times for x in sections_of(model.tree))
        - model.parameters.extras.get("buffers", 0)
    )
    assert llamath.verify(tmp_path, via="transformers").ok


def test_the_first_line_says_whose_count_it_is(tmp_path: Path) -> None:
    import transformers

    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["BertForMaskedLM"]))
    claim = f"as transformers {transformers.__version__} builds BertForMaskedLM"
    for command in (
        ["count"],
        ["count", "--brief"],
        ["count", "--format", "tree"],
        ["names"],
        ["memory"],
        ["memory", "--brief"],
    ):
        done = run(command[0], tmp_path, "--via", "transformers", *command[1:])
        assert done.exit_code == 0 and claim in " ".join(done.stdout.split("\n\n")[0].split()), (
            command
        )
    document = json.loads(run("count", tmp_path, "--via", "transformers", "--json").stdout)
    known = json.loads(run("count", "llama-3-8b", "--json").stdout)
    assert (
        set(known) < set(document)
        and set(known["parameters"]) == set(document["parameters"])
        and document["counted_by"] == claim
    )
    assert document["family"] is document["formula"] is None and set(known["weights"][0]) < set(
        document["weights"][0]
    )
    memory = json.loads(run("memory", tmp_path, "--via", "transformers", "--json").stdout)
    assert memory["weights"] == 4 * document["parameters"]["total"] and memory["kv_cache"] is None


def test_diff_compares_names_and_shapes(tmp_path: Path) -> None:
    for name, layers in (("a", 2), ("b", 3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(
            json.dumps(CONFIGS["BertForMaskedLM"] | {"num_hidden_layers": layers})
        )
    report = llamath.diff(tmp_path / "a", tmp_path / "b", via="transformers")
    each = llamath.load(tmp_path / "a", via="transformers").groups["bert.encoder"] // 2
    assert isinstance(report, llamath.DiffReport) and report.delta == each == sum(
        x.delta for x in report.weights
    )
    assert {x.copies for x in report.weights} == {(2, 3)} and not report.causes
    assert (
        "encoder.layer.#"
        in run("diff", tmp_path / "a", tmp_path / "b", "--via", "transformers").stdout
    )
    several = run("diff", tmp_path / "a", "llama-3-8b", tmp_path / "b", "--via", "transformers")
    assert several.exit_code == 0 and "+8,030,237,898" in several.stdout


def test_verify_finds_missing_wrong_and_unexpected_tensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save(CONFIGS["BertForMaskedLM"], "BertForMaskedLM", tmp_path)
    file = str(tmp_path / "model.safetensors")
    whole = load_file(file)
    name = "bert.encoder.layer.1.output.dense.weight"
    for changed, code in (
        ({x: y for x, y in whole.items() if x != name}, "missing"),
        ({**whole, name: whole[name][:, :-1].contiguous()}, "shape"),
        ({**whole, "bert.extra.weight": whole[name].clone()}, "unexpected"),
    ):
        save_file(changed, file, {"format": "pt"})
        report = llamath.verify(tmp_path, via="transformers")
        assert [x.code for x in report.findings if x.severity != "info"] == [code] and not report.ok
        assert run("verify", tmp_path, "--via", "transformers").exit_code == 1


CODE = "from pathlib import Path\nPath({marker!r}).write_text('executed')\n"


@pytest.mark.own_process
@pytest.mark.parametrize("model_type", usual("strange", release=["bert"]))
def test_code_of_a_repository_is_never_executed(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "marker"
    (folder := tmp_path / "repository").mkdir()
    for name in (
        "modeling_strange",
        "configuration_strange",
        "torch",
        "transformers",
        "sitecustomize",
        "usercustomize",
        "json",
    ):
        (folder / f"{name}.py").write_text(CODE.format(marker=str(marker)))
    code = {
        "AutoConfig": "configuration_strange.C",
        "AutoModelForMaskedLM": "modeling_strange.M",
        "AutoModel": "modeling_strange.M",
    }
    config = CONFIGS["BertForMaskedLM"] | {
        "model_type": model_type,
        "auto_map": code,
        "architectures": ["StrangeModel"],
    }
    config["_attn_implementation"] = config["attn_implementation"] = "someone/kernel"
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PYTHONSTARTUP", str(folder / "json.py"))
    done = run("count", folder, "--via", "transformers")
    assert not marker.exists()
    if model_type == "strange":
        assert (
            done.exit_code == 2
            and "has no class for model_type 'strange'" in done.stderr
            and "never executed" in done.stderr
        )
    else:
        assert done.exit_code == 0 and "was not executed" in " ".join(done.stdout.split())
        assert "no class 'StrangeModel'" in " ".join(done.stdout.split())


def test_commands_that_need_formulas_refuse_by_name() -> None:
    model = llamath.load(CONFIGS["BertForMaskedLM"], via="transformers")
    calls: dict[str, Any] = {
        "flops": lambda: llamath.flops(model),
        "fit": lambda: llamath.fit(model, on="h100"),
        "plan": lambda: llamath.plan(model, on="8xh100", tokens="1B"),
        "train": lambda: llamath.training_memory(model),
        "context": lambda: llamath.memory(model, context=8192),
        "gguf": lambda: llamath.stored_names(model, names="gguf"),
        "changes": lambda: llamath.load(model, changes={"hidden_size": 48}),
        "explain": lambda: llamath.explain(1000, like=model),
    }
    for name, call in calls.items():
        with pytest.raises(llamath.LlamathError, match="as transformers"):
            call()
            pytest.fail(name)
    done = run("flops", "bert-base", "--via", "transformers")
    assert done.exit_code == 2 and " flops` needs the formulas of a family" in done.stderr


def test_refusals_suggest_transformers_if_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["BartForConditionalGeneration"]))
    assert "`llamath count MODEL --via transformers`" in run("count", tmp_path).stderr
    encoder = {**CONFIGS["MixtralForCausalLM"], "is_encoder_decoder": True}
    with pytest.raises(llamath.ConfigError) as found:
        llamath.load(encoder)
    assert "via='transformers'" in found.value.hint
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "--via" not in run("count", tmp_path).stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_sise": 5}, "does not know the config key 'hidden_sise'"),
        ({"num_attention_heads": 7}, "cannot build it"),
        ({"model_type": ""}, "needs a model_type"),
    ],
)
def test_what_transformers_refuses_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.LlamathError, match=message):
        llamath.load(CONFIGS["BertForMaskedLM"], changes=changes, via="transformers")


def test_memory_of_the_process_is_limited() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import transformers_script as s; s._limit_resources(); bytearray(s.MEMORY_LIMIT)"
    folder = Path(llamath.__file__).parent / "generic"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert done.returncode and "MemoryError" in done.stderr


def test_quantization_of_a_config_is_named_and_not_applied() -> None:
    config = CONFIGS["MixtralForCausalLM"] | {
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}
    }
    model = llamath.load(config, via="transformers")
    assert model.parameters.total == llamath.load(CONFIGS["MixtralForCausalLM"]).parameters.total
    assert any("quantization" in x for x in model.notes)
