"""`verify --full`: planted defects are found and named in every format, and sound checkpoints have no finding."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("gguf")
pytest.importorskip("safetensors")
import torch

import llamath
from llamath.analysis.check.verify.check_checkpoint import VerifyReport
from llamath.analysis.check.verify.verify_tensors import Finding
from llamath.analysis.check.verify_path import verify_path
from llamath.cli import cli
from llamath.utils.errors import LlamathError
from support.planted_defects import (
    DENSE,
    QUANTIZED,
    SPARSE,
    Weights,
    random_weights,
    write_checkpoint,
    write_packed,
)

PLAIN_KINDS = (
    *(
        "safetensors-BF16",
        "safetensors-F16",
        "safetensors-F32",
        "safetensors-F64",
        "torch-BF16",
        "torch-F32",
        "legacy-F16",
    ),
    *("gguf-F32", "gguf-F16", "gguf-BF16"),
)
UP = {"hf": "model.layers.3.mlp.up_proj.weight", "gguf": "blk.3.ffn_up.weight"}


def names_of(kind: str) -> str:
    return "gguf" if kind.startswith("gguf") else "hf"


def check(path: Path, **options: Any) -> VerifyReport:
    report = verify_path(str(path), full=True, **options)
    assert isinstance(report, VerifyReport)
    return report


def of_values(report: VerifyReport, *severities: str) -> list[Finding]:
    assert report.full is not None
    return [x for x in report.full.findings if x.severity in (severities or ("error", "warning"))]


@pytest.mark.parametrize("kind", [*PLAIN_KINDS, *(f"gguf-{x}" for x in QUANTIZED)])
def test_sound_weights_have_no_finding(kind: str, tmp_path: Path) -> None:
    config = (
        DENSE | {"hidden_size": 256, "intermediate_size": 256}
        if kind.split("-")[1] in QUANTIZED
        else DENSE
    )
    report = check(write_checkpoint(tmp_path / "x", kind, config=config))
    assert report.ok and report.findings == () and report.full is not None
    assert report.full.tensors == len(report.manifest.tensors) and report.full.values_checked


def test_values_are_checked_without_a_config_too(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights[UP["hf"]][17, 5] = float("nan")

    path = write_checkpoint(tmp_path / "x", "safetensors-BF16", change)
    config = path / "config.json"
    done = {}
    for text in (config.read_text(), None, "{"):
        config.unlink(missing_ok=True)
        if text is not None:
            config.write_text(text)
        done[text] = CliRunner().invoke(cli, ["verify", str(path), "--full"])
    whole, without, broken = done.values()
    assert whole.exit_code == without.exit_code == 1 and broken.exit_code == 2
    texts = [" ".join(x.stdout.split()) for x in (whole, without)]
    assert all("values that are not finite: 1 NaN" in x for x in texts)
    assert "there is no config.json or params.json" in texts[1]


@pytest.mark.parametrize("kind", PLAIN_KINDS)
def test_values_that_are_not_finite_are_named(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights[UP[names_of(kind)]][17, 5] = float("nan")
        weights[UP[names_of(kind)]][18, 6:8] = float("-inf")

    report = check(write_checkpoint(tmp_path / "x", kind, change))
    (finding,) = of_values(report)
    assert not report.ok and finding.code == "not_finite" and finding.severity == "error"
    assert (
        f"{UP[names_of(kind)]} (layer 3) has values that are not finite: 1 NaN and 2 infinite, in row 17, row 18"
        in finding.message
    )


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_scales_of_blocks_that_are_not_finite_are_named(dtype: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        at = {"Q6_K": 208}.get(dtype, 0)
        weights["blk.3.ffn_up.weight"][17, at : at + 2] = torch.tensor(
            [0xFF, 0x7F], dtype=torch.uint8
        )

    config = DENSE | {"hidden_size": 256, "intermediate_size": 256}
    (finding,) = of_values(check(write_checkpoint(tmp_path / "x", f"gguf-{dtype}", change, config)))
    assert (
        finding.message
        == "blk.3.ffn_up.weight (layer 3) has scales of blocks that are not finite: 1 NaN, in row 17"
    )


@pytest.mark.parametrize("kind", [*PLAIN_KINDS, "gguf-Q8_0"])
def test_zero_rows_are_named(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights[UP[names_of(kind)]][[3, 100]] = 0

    report = check(write_checkpoint(tmp_path / "x", kind, change))
    (finding,) = of_values(report)
    assert report.ok and finding.severity == "warning"
    assert finding.message == f"2 rows of {UP[names_of(kind)]} (layer 3) are all zero: 3, 100"


@pytest.mark.parametrize("kind", PLAIN_KINDS)
def test_constant_rows_and_matrices_are_named(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights[UP[names_of(kind)]][7] = 0.25
        weights[UP[names_of(kind)].replace("3", "5")][:] = 0

    findings = of_values(check(write_checkpoint(tmp_path / "x", kind, change)))
    assert {x.message for x in findings} == {
        f"{UP[names_of(kind)].replace('3', '5')} (layer 5) is all zero",
        f"1 row of {UP[names_of(kind)]} (layer 3) is constant: 7",
    }


def test_untrained_adapters_are_one_warning(tmp_path: Path) -> None:
    """Their B matrices are zero, as peft initializes them."""
    weights = random_weights(DENSE)
    write_packed(tmp_path / "base", DENSE, weights)
    adapter: Weights = {}
    for i in range(6):
        name = f"base_model.model.model.layers.{i}.self_attn.q_proj"
        adapter |= {
            f"{name}.lora_A.weight": torch.randn(8, 64),
            f"{name}.lora_B.weight": torch.zeros(64, 8),
        }
    folder = tmp_path / "adapter"
    write_packed(folder, {}, adapter)
    (folder / "config.json").unlink()
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": 8,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        "base_model_name_or_path": "x",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    report = verify_path(str(folder), str(tmp_path / "base"), full=True)
    assert report.ok and report.full is not None
    (finding,) = [x for x in report.full.findings if x.severity != "info"]
    assert (
        finding.message.startswith("6 matrices are all zero: ")
        and "B matrix" in finding.hint
        and len(finding.tensors) == 6
    )


def test_zero_rows_of_the_vocabulary_are_a_remark(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights["model.embed_tokens.weight"][90:] = 0
        weights["lm_head.weight"][90:] = 0

    report = check(write_checkpoint(tmp_path / "x", "safetensors-BF16", change))
    assert (
        report.ok and [(x.code, x.severity) for x in report.findings] == [("zero_rows", "info")] * 2
    )
    assert "6 rows of model.embed_tokens.weight are all zero: 90, 91" in " ".join(
        x.message for x in report.findings
    )


def test_zero_biases_and_constant_norms_are_one_remark(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        for name, x in weights.items():
            if name.endswith("bias"):
                x[:] = 0
            elif x.dim() == 1:
                x[:] = 1

    report = check(
        write_checkpoint(
            tmp_path / "x", "safetensors-BF16", change, DENSE | {"attention_bias": True}
        )
    )
    assert report.ok and [(x.code, x.severity) for x in report.findings] == [
        ("zero_vectors", "info"),
        ("constant_vectors", "info"),
    ]


@pytest.mark.parametrize("kind", [*PLAIN_KINDS, "gguf-Q8_0"])
def test_copied_layers_are_one_finding(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        for name in [x for x in weights if ".2." in x]:
            weights[name.replace(".2.", ".4.")][:] = weights[name]

    report = check(write_checkpoint(tmp_path / "x", kind, change))
    (finding,) = of_values(report)
    assert (
        report.ok
        and finding.code == "duplicate_values"
        and finding.message.startswith("layers 2, 4 have 7 matrices in common: ")
    )
    assert len(finding.tensors) == 14


def test_equal_matrices_of_different_kinds_are_named(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights["model.layers.1.mlp.up_proj.weight"][:] = weights[
            "model.layers.1.mlp.gate_proj.weight"
        ]

    (finding,) = of_values(check(write_checkpoint(tmp_path / "x", "safetensors-BF16", change)))
    gate, up = "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"
    assert finding.message == f"the same matrix is stored more than once: {gate} = {up}"


@pytest.mark.parametrize("kind", ["torch-BF16", "legacy-F16"])
def test_tied_tensors_of_torch_files_are_no_duplicates(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]

    assert not check(write_checkpoint(tmp_path / "x", kind, change)).findings


def test_untied_head_that_equals_the_embedding_is_a_remark(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights["lm_head.weight"][:] = weights["model.embed_tokens.weight"]

    report = check(write_checkpoint(tmp_path / "x", "safetensors-BF16", change))
    assert report.ok and [(x.code, x.severity) for x in report.findings] == [
        ("duplicate_values", "info")
    ]
    assert "tie_word_embeddings" in report.findings[0].hint


def expert(form: str, layer: int, number: int, part: str, weights: Weights) -> torch.Tensor:
    """A matrix of an expert in either format."""
    if form == "gguf":
        return weights[f"blk.{layer}.ffn_{part}_exps.weight"][number]
    name = {"up": "w3", "gate": "w1", "down": "w2"}[part]
    return weights[f"model.layers.{layer}.block_sparse_moe.experts.{number}.{name}.weight"]


@pytest.mark.parametrize("kind", ["safetensors-BF16", "torch-F32", "gguf-F16", "gguf-Q8_0"])
def test_dead_experts_are_named(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        for part in ("up", "gate", "down"):
            expert(names_of(kind), 2, 4, part, weights)[:] = 0

    report = check(write_checkpoint(tmp_path / "x", kind, change, SPARSE))
    (finding,) = of_values(report)
    assert (
        report.ok
        and finding.code == "dead_expert"
        and "expert 4 of layer 2 is dead" in finding.message
    )
    assert (
        "ffn_up_exps" in finding.message
        if kind.startswith("gguf")
        else "w1, w2, w3" in finding.message
    )


@pytest.mark.parametrize("kind", ["safetensors-BF16", "gguf-F32", "gguf-Q8_0"])
def test_copied_experts_are_named(kind: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        expert(names_of(kind), 1, 3, "down", weights)[:] = expert(
            names_of(kind), 1, 5, "down", weights
        )

    (finding,) = of_values(check(write_checkpoint(tmp_path / "x", kind, change, SPARSE)))
    assert "1 matrix of layer 1 is the same for several experts" in finding.message
    assert (
        "[3] = blk.1.ffn_down_exps.weight[5]" in finding.message
        or "experts.3.w2.weight = " in finding.message
    )


def test_nan_of_a_stacked_expert_has_its_number(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        expert("gguf", 1, 3, "up", weights)[9, 9] = float("nan")

    (finding,) = of_values(check(write_checkpoint(tmp_path / "x", "gguf-F32", change, SPARSE)))
    assert finding.message.endswith("1 NaN, in row 9 of expert 3")


@pytest.mark.parametrize("kind", PLAIN_KINDS)
@pytest.mark.parametrize("factor", [100, 0.01])
def test_norms_far_from_neighboring_layers_are_named(
    kind: str, factor: float, tmp_path: Path
) -> None:
    def change(weights: Weights) -> None:
        weights[UP[names_of(kind)]].mul_(factor)

    report = check(write_checkpoint(tmp_path / "x", kind, change))
    (finding,) = of_values(report)
    assert (
        report.ok
        and finding.code == "far_norm"
        and finding.message.startswith(f"{UP[names_of(kind)]} (layer 3) has the norm ")
    )


def test_experts_far_from_the_others_are_named(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        expert("hf", 0, 2, "gate", weights).mul_(0.02)

    (finding,) = of_values(
        check(write_checkpoint(tmp_path / "x", "safetensors-BF16", change, SPARSE))
    )
    assert finding.code == "far_norm" and "layer 0: the norm of w1 of expert 2 (" in finding.message


@pytest.mark.parametrize(
    ("form", "dtype"), [("safetensors", "bfloat16"), ("torch", "bfloat16"), ("gguf", "float16")]
)
def test_16_bit_values_in_float32_are_a_remark(form: str, dtype: str, tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        for x in weights.values():
            x[:] = (x * 1e-3).to(getattr(torch, dtype))

    report = check(write_checkpoint(tmp_path / "x", f"{form}-F32", change))
    (finding,) = report.findings
    assert report.ok and finding.severity == "info" and finding.code == f"{dtype}_in_float32"
    size = sum(x.bytes for x in report.manifest.tensors if len(x.shape) > 1)
    assert (
        f"44 float32 matrices hold nothing but {dtype} values" in finding.message
        and f"{size // 2:,} fewer bytes" in finding.hint
    )


# packed weights


def fp8_tensors() -> tuple[dict[str, Any], Weights]:
    """FP8 with a scale per block, as DeepSeek stores it."""
    tensors: Weights = {}
    for name, x in random_weights(DENSE).items():
        if "_proj" in name:
            tensors[name] = x.to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.rand(1, 1) + 0.5
        else:
            tensors[name] = x.bfloat16()
    recipe = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "activation_scheme": "dynamic",
    }
    return DENSE | {"quantization_config": recipe}, tensors


def gptq_tensors() -> tuple[dict[str, Any], Weights]:
    tensors: Weights = {}
    for name, x in random_weights(DENSE).items():
        if "_proj" not in name:
            tensors[name] = x.half()
            continue
        base, (out, into) = name.removesuffix("weight"), x.shape
        tensors[f"{base}qweight"] = torch.randint(
            -(2**31), 2**31 - 1, (into // 8, out), dtype=torch.int32
        )
        tensors[f"{base}qzeros"] = torch.randint(
            -(2**31), 2**31 - 1, (into // 32, out // 8), dtype=torch.int32
        )
        tensors[f"{base}scales"] = (torch.rand(into // 32, out) * 0.01 + 0.01).half()
        tensors[f"{base}g_idx"] = torch.arange(into, dtype=torch.int32) // 32
    return DENSE | {
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32},
        "torch_dtype": "float16",
    }, tensors


def nf4_tensors() -> tuple[dict[str, Any], Weights]:
    """NF4 whose packed values are stored as bfloat16, where any bits are possible."""
    tensors: Weights = {}
    for name, x in random_weights(DENSE).items():
        tensors[name] = x.bfloat16()
        if "_proj" in name:
            packed = torch.randint(0, 256, (x.numel() // 2,), dtype=torch.uint8)
            packed[:64] = 0xFF
            tensors[name] = packed.view(torch.bfloat16).reshape(-1, 1)
            tensors[f"{name}.absmax"] = torch.rand(x.numel() // 64) + 0.5
            tensors[f"{name}.quant_map"] = torch.linspace(-1, 1, 16)
            tensors[f"{name}.quant_state.bitsandbytes__nf4"] = torch.randint(
                0, 256, (81,), dtype=torch.uint8
            )
    return DENSE | {
        "quantization_config": {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
        }
    }, tensors


PACKED = {"fp8": fp8_tensors, "gptq": gptq_tensors, "nf4": nf4_tensors}


@pytest.mark.parametrize("kind", PACKED)
def test_sound_packed_weights_have_no_finding(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    assert not of_values(
        check(write_packed(tmp_path / "x", *PACKED[kind]())), "error", "warning", "info"
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("fp8", "model.layers.2.self_attn.k_proj.weight_scale_inv"),
        ("gptq", "model.layers.2.self_attn.k_proj.scales"),
        ("nf4", "model.layers.2.self_attn.k_proj.weight.absmax"),
    ],
)
def test_bad_scales_of_packed_weights_are_named(kind: str, name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config, tensors = PACKED[kind]()
    tensors[name].view(-1)[0] = float("inf")
    (finding,) = of_values(check(write_packed(tmp_path / "x", config, tensors)))
    assert (
        finding.severity == "error"
        and f"{name} (layer 2) has scales that are not finite: 1 infinite" in finding.message
    )


def test_nan_of_fp8_is_found(tmp_path: Path) -> None:
    config, tensors = fp8_tensors()
    tensors[UP["hf"]].view(torch.uint8)[17, 3] = 0xFF
    (finding,) = of_values(check(write_packed(tmp_path / "x", config, tensors)))
    assert (
        "up_proj.weight (layer 3) has values that are not finite: 1 NaN, in row 17"
        in finding.message
    )


def test_copied_packed_weights_are_found(tmp_path: Path) -> None:
    config, tensors = gptq_tensors()
    for name in [x for x in tensors if ".2." in x]:
        tensors[name.replace(".2.", ".4.")] = tensors[name].clone()
    (finding,) = of_values(check(write_packed(tmp_path / "x", config, tensors)))
    assert finding.message.startswith("layers 2, 4 have 7 matrices in common")


def test_nan_exponents_of_mxfp4_are_found(tmp_path: Path) -> None:
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 64,
        "vocab_size": 64,
        "num_local_experts": 4,
    }
    changes = sizes | {"num_attention_heads": 2, "num_key_value_heads": 1, "layer_types": None}
    model = llamath.load("gpt-oss-20b", changes=changes)
    tensors: Weights = {}
    for x in model.scheme("hf").tensors(model.tree):
        shape = tuple(map(int, x.shape))
        if x.name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = shape
            tensors[f"{x.name}_blocks"] = torch.randint(
                0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8
            )
            tensors[f"{x.name}_scales"] = torch.randint(
                100, 130, (experts, outputs, inputs // 32), dtype=torch.uint8
            )
        else:
            tensors[x.name] = torch.randn(shape).bfloat16()
    config = {**model.config.data, "quantization_config": {"quant_method": "mxfp4"}}
    folder = write_packed(tmp_path / "x", config, tensors)
    assert not of_values(check(folder))
    name = "model.layers.1.mlp.experts.down_proj_scales"
    tensors[name][2, 5, 1] = 255
    (finding,) = of_values(check(write_packed(tmp_path / "x", config, tensors)))
    assert f"{name} (layer 1) has scales that are not finite: 1 NaN" in finding.message


# files


def test_permuted_torch_tensors_are_examined(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights[UP["hf"]] = weights[UP["hf"]].T.contiguous().T
        weights[UP["hf"]][17, 5] = float("nan")

    (finding,) = of_values(check(write_checkpoint(tmp_path / "x", "torch-F32", change)))
    assert finding.message.endswith("has values that are not finite: 1 NaN")


def test_tensors_with_gaps_are_named_as_not_examined(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        weights[UP["hf"]] = torch.randn(128, 128)[:, ::2]

    report = check(write_checkpoint(tmp_path / "x", "torch-F32", change))
    assert [x.code for x in of_values(report)] == ["not_examined"] and UP["hf"] in of_values(
        report
    )[0].message


@pytest.mark.parametrize("name", ["embedded", "examples/tiny-llama"])
def test_bundled_models_are_sound(name: str) -> None:
    assert not of_values(check(Path(name)))


def test_many_damaged_tensors_are_counted(tmp_path: Path) -> None:
    def change(weights: Weights) -> None:
        for x in weights.values():
            x.view(-1)[0] = float("nan")

    report = check(write_checkpoint(tmp_path / "x", "safetensors-BF16", change))
    assert len(of_values(report)) == 9 and of_values(report)[-1].message.startswith(
        f"{len(random_weights(DENSE)) - 8} more tensors with"
    )


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "x", "safetensors-F32")

    from llamath.checkpoint.file_stream import FileTask, stream_files
    from llamath.utils.errors import FormatError

    path = folder / "model.safetensors"
    task = FileTask(path=str(path), size=path.stat().st_size, algorithms=("sha256",))
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(FormatError, match="has changed since its header was read"):
        stream_files([task])


def test_object_stores_are_not_read_in_full() -> None:
    from support.hub_server import DATA

    store = pytest.importorskip("fsspec").filesystem("memory")
    store.pipe("/bucket/model/config.json", json.dumps(DENSE).encode())
    store.pipe("/bucket/model/model.safetensors", DATA)
    with pytest.raises(LlamathError, match="expected local files to read in full") as caught:
        verify_path("memory://bucket/model", full=True)
    assert "download the files first" in caught.value.hint


# the command


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, ["verify", *args])


def test_exit_code_is_1_for_errors_only(tmp_path: Path) -> None:
    def zero_row(weights: Weights) -> None:
        weights[UP["hf"]][3] = 0

    def nan(weights: Weights) -> None:
        weights[UP["hf"]][3, 3] = float("nan")

    unusual = str(write_checkpoint(tmp_path / "unusual", "safetensors-BF16", zero_row))
    damaged = str(write_checkpoint(tmp_path / "damaged", "safetensors-BF16", nan))
    assert (
        run(unusual, "--full").exit_code,
        run(damaged, "--full").exit_code,
        run(damaged).exit_code,
    ) == (0, 1, 0)
    full = " ".join(run(unusual, "--full").stdout.split())
    assert (
        "names and shapes match its config; values: 1 warning" in full
        and "swapped or permuted weights cannot be found" in full
    )
    assert all(
        "; values were not read (--full)" in " ".join(run(damaged, *x).stdout.split())
        for x in ((), ("--brief",))
    ), "it has NaN"
    found = json.loads(run(damaged, "--full", "--json").stdout)
    assert (found["ok"], found["full"]["values_checked"], found["findings"][0]["code"]) == (
        False,
        True,
        "not_finite",
    )
    assert json.loads(run(damaged, "--json").stdout)["full"] is None
    assert run(damaged, "--full", "--brief").stdout.endswith("; values: 1 error\n")


def test_python_function_reads_in_full(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    folder = write_checkpoint(tmp_path / "x", "safetensors-BF16")
    report = llamath.verify(
        folder, full=True, progress=lambda done, total: seen.append((done, total))
    )
    assert report.ok and seen[-1] == (report.full.bytes_read, report.full.bytes_read)  # type: ignore[union-attr]
    assert llamath.verify(folder).full is None


def test_without_numpy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "llamath.checkpoint.tensor_stats", raising=False)
    done = run("embedded", "--full")
    assert (
        done.exit_code == 2
        and "this needs numpy" in done.stderr
        and "pip install 'llamath[convert]'" in done.stderr
    )


def test_sums_are_written_without_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    shutil.copytree("examples/tiny-llama", tmp_path / "x")
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert (
        run(str(tmp_path / "x"), "-o", str(tmp_path / "x" / "SHA256SUMS")).exit_code == 0
        and (tmp_path / "x" / "SHA256SUMS").exists()
    )
