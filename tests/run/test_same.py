"""`same`: equal weights across formats, the bounds of rounding, and the cause of each planted difference."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import llamath
from llamath.analysis.check.same.compare_checkpoints import compare_checkpoints
from llamath.analysis.check.same.same_report import SameReport
from llamath.cli import cli
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from support.hub_server import Site
from support.planted_checkpoints import (
    LLAMA,
    Tensors,
    fuse_experts,
    plant,
    quantize_gguf,
    random_tensors,
    save_folder,
)

torch.set_num_threads(1)
LAYER = "model.layers.1."
Q, K, V, O = (f"{LAYER}self_attn.{x}_proj.weight" for x in "qkvo")  # noqa: E741
GATE, UP, DOWN = (f"{LAYER}mlp.{x}_proj.weight" for x in ("gate", "up", "down"))
NORM = f"{LAYER}input_layernorm.weight"
CONVERTED = {**LLAMA, "tie_word_embeddings": False}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("base") / "a")


def same(a: Path, b: Path) -> SameReport:
    return compare_checkpoints(str(a), str(b))


def permute(x: torch.Tensor, heads: int, inverse: bool = False) -> torch.Tensor:
    """Rows of heads from halves to interleaved pairs, as transformers' conversion script does it, or back."""
    shape = (
        (heads, 2, x.shape[0] // heads // 2, x.shape[1])
        if not inverse
        else (heads, x.shape[0] // heads // 2, 2, x.shape[1])
    )
    return x.view(shape).transpose(1, 2).reshape(x.shape)


def convert(source: Path, target: Path, to: str, dtype: str = "") -> Path:
    convert_checkpoint(str(source), str(target), ConvertOptions(to=to, dtype=dtype, force=True))
    return target


# Equal


@pytest.mark.parametrize(
    ("to", "dtype"),
    [("meta", ""), ("gguf", ""), ("gguf", "fp32"), ("hf", "fp32"), ("meta", "fp32")],
)
def test_lossless_conversions_are_identical(
    base: Path, tmp_path: Path, to: str, dtype: str
) -> None:
    report = same(base, convert(base, tmp_path / "b", to, dtype))
    assert (report.verdict, report.identical, report.differences) == ("identical", 30, ())
    assert report.b.names == to


def test_shards_are_identical_to_one_file(base: Path, tmp_path: Path) -> None:
    convert_checkpoint(
        str(base), str(tmp_path / "b"), ConvertOptions(to="hf", max_shard_size=20_000)
    )
    assert len(list((tmp_path / "b").glob("*.safetensors"))) > 3
    assert same(base, tmp_path / "b").verdict == "identical"


@pytest.mark.parametrize(("dtype", "to"), [("fp16", "F16"), ("bf16", "BF16")])
def test_rounded_copies_are_within_bounds(tmp_path: Path, dtype: str, to: str) -> None:
    model = llamath.load(LLAMA)
    source = save_folder(
        tmp_path / "a", LLAMA, random_tensors(model, model.scheme("hf")), torch.float32
    )
    report = same(source, convert(source, tmp_path / "b", "hf", dtype))
    assert (report.verdict, report.identical, report.different) == ("rounding", 0, 0)
    (rounded,) = report.rounded_types
    assert (rounded.dtype_a, rounded.dtype_b) == ("F32", to) and 0.9 < rounded.share_of_bound <= 1


def test_one_bit_beyond_the_bound_is_found(tmp_path: Path) -> None:
    model = llamath.load(LLAMA)
    tensors = random_tensors(model, model.scheme("hf"))
    source = save_folder(tmp_path / "a", LLAMA, tensors, torch.float32)
    rounded = {name: x.bfloat16() for name, x in tensors.items()}
    row = rounded[DOWN][5]
    truncated = (tensors[DOWN][5].view(torch.int32) & -65536).view(torch.float32).bfloat16()
    column = int((truncated != row).nonzero()[0])
    row[column] = truncated[column]
    report = same(source, save_folder(tmp_path / "b", LLAMA, rounded, None))
    (wrong,) = [x for x in report.differences if x.verdict == "different"]
    assert (wrong.path, wrong.beyond, wrong.first, report.verdict) == (
        "layers.1.mlp.down.weight",
        1,
        (5, column),
        "different",
    )
    assert 1 < wrong.share_of_bound <= 2


def test_one_step_between_copies_of_one_dtype_is_different(base: Path, tmp_path: Path) -> None:
    def change(x: Tensors) -> None:
        x[UP][3, 4] *= 1 + 2**-7

    report = same(base, plant(tmp_path / "b", change))
    assert (report.verdict, report.different, report.identical) == ("different", 1, 29)
    assert (report.differences[0].first, report.differences[0].cause) == ((3, 4), "rows")


@pytest.mark.parametrize("dtype", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_quantized_files_are_within_their_bounds(base: Path, tmp_path: Path, dtype: str) -> None:
    pytest.importorskip("gguf")
    source = convert(base, tmp_path / "f32.gguf", "gguf", "fp32")
    report = same(base, quantize_gguf(source, tmp_path / "b.gguf", dtype))
    assert report.verdict == "rounding", report.summary
    assert {x.dtype_b for x in report.rounded_types} == {dtype}
    assert report.within_rounding == 23 and report.identical == 7


@pytest.mark.parametrize("dtype", ["Q4_0", "Q8_0"])
def test_a_small_change_below_a_quantization_step_is_found(
    base: Path, tmp_path: Path, dtype: str
) -> None:
    pytest.importorskip("gguf")

    def change(x: Tensors) -> None:
        x[V] += (
            0.1
            * x[V].abs().mean()
            / (1 if dtype == "Q4_0" else 16)
            * torch.randn(x[V].shape, generator=torch.Generator().manual_seed(1))
        )

    changed = convert(
        plant(tmp_path / "changed", change, dtype=torch.float32),
        tmp_path / "f32.gguf",
        "gguf",
        "fp32",
    )
    report = same(base, quantize_gguf(changed, tmp_path / "b.gguf", dtype))
    assert [x.path for x in report.differences if x.verdict == "different"] == [
        "layers.1.attn.v.weight"
    ]


def test_fused_experts_are_identical_to_single_ones(tmp_path: Path) -> None:
    config = json.loads((Path(__file__).parents[1] / "tiny" / "mixtral.json").read_text())["plain"]
    model = llamath.load(config)
    tensors = random_tensors(model, model.scheme("hf"))
    a, b = (
        save_folder(tmp_path / "a", config, tensors),
        save_folder(tmp_path / "b", config, fuse_experts(model, tensors)),
    )
    assert {x.stored for x in llamath_weights(b)} != {x.stored for x in llamath_weights(a)}
    assert same(a, b).verdict == "identical"


def llamath_weights(folder: Path) -> Any:
    from llamath.analysis.check.same.adapted_side import open_side

    with open_side(str(folder)) as side:
        return list(side.weights.values())


def test_a_tied_head_equals_a_stored_copy(tmp_path: Path) -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}

    def copy_embedding(x: Tensors) -> None:
        x["lm_head.weight"] = x["model.embed_tokens.weight"]

    a = plant(tmp_path / "a", config=tied)
    assert same(a, plant(tmp_path / "b", copy_embedding)).verdict == "identical"


# Different


def swap(x: Tensors, one: str, other: str) -> None:
    x[one], x[other] = x[other], x[one]


def lora(x: Tensors, name: str, rank: int, size: float = 0.02) -> None:
    generator = torch.Generator().manual_seed(rank)
    rows, columns = x[name].shape
    x[name] += (
        size
        * torch.randn((rows, rank), generator=generator)
        @ torch.randn((rank, columns), generator=generator)
    )


CAUSES: dict[str, tuple[Callable[[Tensors], object], list[str], str, str]] = {
    "permuted once too often": (
        lambda x: x.update({Q: permute(x[Q], 4), K: permute(x[K], 2)}),
        ["attn.q", "attn.k"], "permuted", "attn.q, attn.k of layer 1: the rows of each head are in the other order of rotary pairs",
    ),
    "unpermuted once too often": (
        lambda x: x.update({Q: permute(x[Q], 4, inverse=True)}), ["attn.q"], "permuted", "permuted twice in B",
    ),
    "gate and up swapped": (lambda x: swap(x, GATE, UP), ["mlp.gate", "mlp.up"], "swapped", "mlp.gate and mlp.up are swapped"),
    "k and v swapped": (lambda x: swap(x, K, V), ["attn.k", "attn.v"], "swapped", "attn.k and attn.v are swapped"),
    "norm plus one": (lambda x: x[NORM].add_(1), ["attn_norm"], "norm + 1", "1 is added in B"),
    "norm minus one": (lambda x: x[NORM].sub_(1), ["attn_norm"], "norm + 1", "1 is added in A"),
    "stale layer": (
        lambda x: x.update({name: x[name.replace("layers.1.", "layers.0.")].clone() for name in x if name.startswith(LAYER)}),
        ["attn_norm", "attn.q", "attn.k", "attn.v", "attn.o", "mlp_norm", "mlp.gate", "mlp.up", "mlp.down"], "stale",
        "layer 1 of B has the values of layer 0 of A",
    ),
    "transposed": (lambda x: x.update({O: x[O].T.clone()}), ["attn.o"], "transposed", "attn.o of layer 1: transposed"),
    "scaled": (lambda x: x[DOWN].mul_(2), ["mlp.down"], "scaled", "B is A times 2"),
    "zero": (lambda x: x[DOWN].zero_(), ["mlp.down"], "zero", "all zero in B"),
    "not a number": (lambda x: x[DOWN][2, 3].fill_(float("nan")), ["mlp.down"], "not finite", "first at [2, 3]"),
    "other rows": (lambda x: x["model.embed_tokens.weight"][[7, 9]].neg_() is x or x["model.embed_tokens.weight"][7].neg_(), ["embed"], "rows",
                   "1 row of 96"),
    "unrelated": (lambda x: x[UP].normal_(0, 0.05), ["mlp.up"], "unrelated", "unrelated values"),
    "fine-tuned": (lambda x: x[UP].add_(0.02 * torch.randn(x[UP].shape)), ["mlp.up"], "trained", "full rank"),
    "LoRA": (lambda x: (lora(x, Q, 4), lora(x, V, 4)), ["attn.q", "attn.v"], "low rank", "the differences have rank 4, as a merged LoRA has"),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_planted_causes_are_named(base: Path, tmp_path: Path, cause: str) -> None:
    change, paths, code, text = CAUSES[cause]
    torch.manual_seed(0)
    report = same(base, plant(tmp_path / "b", change))
    assert report.verdict == "different"
    expected = {"embed.weight"} if paths == ["embed"] else {f"layers.1.{x}.weight" for x in paths}
    assert {x.path for x in report.differences} == expected
    assert {x.cause for x in report.differences} == {code}, report.summary
    assert text in " | ".join(x.message for x in report.causes)


@pytest.mark.parametrize("rank", [1, 3, 8, 16])
def test_the_rank_of_a_merged_lora_is_found(base: Path, tmp_path: Path, rank: int) -> None:
    report = same(base, plant(tmp_path / "b", lambda x: lora(x, DOWN, rank)))
    assert [x.rank for x in report.differences] == [rank]
    assert report.differences[0].rank_limit == 64


def test_the_rank_is_found_through_quantization(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    changed = convert(
        plant(tmp_path / "changed", lambda x: lora(x, DOWN, 2)),
        tmp_path / "f32.gguf",
        "gguf",
        "fp32",
    )
    report = same(base, quantize_gguf(changed, tmp_path / "b.gguf", "Q8_0"))
    (wrong,) = [x for x in report.differences if x.verdict == "different"]
    assert (wrong.cause, wrong.rank) == ("low rank", 2)


def test_an_unpermuted_meta_file_is_named(base: Path, tmp_path: Path) -> None:
    folder = convert(base, tmp_path / "meta", "meta")
    tensors = torch.load(folder / "consolidated.00.pth")
    for i in range(3):
        for name, heads in (("wq", 4), ("wk", 2)):
            key = f"layers.{i}.attention.{name}.weight"
            tensors[key] = permute(tensors[key], heads, inverse=True)
    torch.save(tensors, folder / "consolidated.00.pth")
    report = same(base, folder)
    assert report.causes[0].message == (
        "attn.q, attn.k of 3 layers: the rows of each head are in the other order of rotary pairs: not permuted in B, or not permuted in A"
    )


def test_a_resized_vocabulary_is_named(base: Path, tmp_path: Path) -> None:
    config = {**LLAMA, "vocab_size": 100}

    def pad(x: Tensors) -> None:
        tensors = plant_tensors()
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            x[name][:96] = tensors[name]
        x.update(
            {
                name: y
                for name, y in tensors.items()
                if "layers" in name or name == "model.norm.weight"
            }
        )

    report = same(base, plant(tmp_path / "b", pad, config))
    assert {x.path for x in report.differences} == {"embed.weight", "head.weight"}
    assert report.causes[0].message == "embed, head: B has 4 rows more than A; the others are equal"


def plant_tensors() -> Tensors:
    model = llamath.load(LLAMA)
    return {
        name: x.bfloat16().float() for name, x in random_tensors(model, model.scheme("hf")).items()
    }


def test_missing_layers_are_listed(base: Path, tmp_path: Path) -> None:
    def shorten(x: Tensors) -> None:
        x.update({name: y for name, y in plant_tensors().items() if name in x})

    report = same(base, plant(tmp_path / "b", shorten, {**LLAMA, "num_hidden_layers": 2}))
    assert report.verdict == "different" and not report.differences
    assert len(report.only_in_a) == 9 and all(x.startswith("layers.2.") for x in report.only_in_a)
    assert report.answer == "different: 9 weights only in A"


def test_models_of_other_families_are_compared_where_they_meet(base: Path, tmp_path: Path) -> None:
    config = json.loads((Path(__file__).parents[1] / "tiny" / "mamba.json").read_text())
    other = plant(tmp_path / "b", config=next(iter(config.values())))
    report = same(base, other)
    assert report.verdict == "different" and report.only_in_a and report.only_in_b


# Adapters


def merged_folder(saved: Any, folder: Path) -> Path:
    config = json.loads((saved.base / "config.json").read_text())
    return save_folder(
        folder,
        config,
        {
            name: x
            for name, x in saved.merged.items()
            if name != "lm_head.weight" or not is_tied(config)
        },
        None,
    )


def is_tied(config: dict[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", config["model_type"] == "gpt2"))


peft_adapters = pytest.importorskip("support.peft_adapters")


@pytest.mark.transformers
@pytest.mark.parametrize("case", peft_adapters.CASES)
def test_an_adapter_equals_what_peft_merges(case: str, tmp_path: Path) -> None:
    saved = peft_adapters.save_adapter(case, tmp_path)
    report = compare_checkpoints(
        str(saved.folder), str(merged_folder(saved, tmp_path / "merged")), str(saved.base)
    )
    assert report.same, report.summary
    assert report.a.adapter and all(x.share_of_bound <= 1 for x in report.differences)
    assert same(saved.base, tmp_path / "merged").verdict == "different"


@pytest.mark.transformers
@pytest.mark.filterwarnings("ignore")  # of peft and transformers
@pytest.mark.parametrize(
    "case", ["LoRA", "DoRA", "all linear layers, rsLoRA", "embedding", "experts"]
)
def test_an_adapter_equals_what_peft_merges_in_bfloat16(case: str, tmp_path: Path) -> None:
    import peft
    import transformers

    saved = peft_adapters.save_adapter(case, tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(saved.base, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "base16")
    merged = peft.PeftModel.from_pretrained(model, saved.folder).merge_and_unload().state_dict()
    folder = merged_folder(
        saved._replace(merged={name: x.bfloat16() for name, x in merged.items()}),
        tmp_path / "merged",
    )
    report = compare_checkpoints(str(saved.folder), str(folder), str(tmp_path / "base16"))
    assert report.same and report.within_rounding, report.summary


def test_an_adapter_without_its_base_is_refused(tmp_path: Path) -> None:
    saved = peft_adapters.save_adapter("LoRA", tmp_path)
    config = json.loads((saved.folder / "adapter_config.json").read_text())
    (saved.folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": ""})
    )
    with pytest.raises(llamath.LlamathError, match="an adapter that names no base model"):
        same(saved.folder, saved.base)


def test_an_adapter_never_causes_the_download_of_its_base(
    pair: tuple[Site, Site], tmp_path: Path
) -> None:
    saved = peft_adapters.save_adapter("LoRA", tmp_path)
    config = json.loads((saved.folder / "adapter_config.json").read_text())
    (saved.folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": "org/name"})
    )
    with pytest.raises(
        llamath.LlamathError, match="org/name, which is not in the Hugging Face cache"
    ) as error:
        same(saved.folder, saved.base)
    call = f"llamath.same('org/name', b, adapter={str(saved.folder)!r})"
    assert error.value.hint == f"{call} downloads it" and not pair[0].seen
    llamath.verify(saved.folder)
    assert not pair[0].seen


# Every family, and packed weights


def test_fp8_equals_its_dequantized_values(tmp_path: Path) -> None:
    model = llamath.load(LLAMA)
    tensors = random_tensors(model, model.scheme("hf"))
    packed, plain = {}, {}
    for name, x in tensors.items():
        if name.endswith("_proj.weight"):
            rows, columns = (-(-n // 32) for n in x.shape)
            scale = x.abs().max() / 448 * (1 + torch.rand((rows, columns)))
            wide = scale.repeat_interleave(32, 0)[: x.shape[0]].repeat_interleave(32, 1)[
                :, : x.shape[1]
            ]
            packed[name] = (x / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
            packed[f"{name}_scale_inv"] = scale
            plain[name] = packed[name].float() * wide
        else:
            packed[name] = plain[name] = x.bfloat16()
    config = {
        **LLAMA,
        "quantization_config": {
            "quant_method": "fp8",
            "weight_block_size": [32, 32],
            "activation_scheme": "dynamic",
        },
    }
    a = save_folder(tmp_path / "a", config, packed, None)
    assert same(a, save_folder(tmp_path / "b", LLAMA, plain, None)).verdict == "identical"
    rounded = same(
        a,
        save_folder(tmp_path / "c", LLAMA, {name: x.bfloat16() for name, x in plain.items()}, None),
    )
    assert rounded.verdict == "rounding" and {x.dtype_a for x in rounded.differences} == {"fp8"}
    original = save_folder(tmp_path / "d", LLAMA, tensors, torch.bfloat16)
    report = same(original, a)
    assert report.verdict == "rounding" and {x.dtype_b for x in report.rounded_types} == {"fp8"}
    assert 0.9 < report.rounded_types[0].share_of_bound <= 1
    tensors[DOWN][0, 0] += 0.02
    (wrong,) = [
        x
        for x in same(a, save_folder(tmp_path / "e", LLAMA, tensors, torch.float32)).differences
        if x.verdict == "different"
    ]
    assert (wrong.path, wrong.first) == ("layers.1.mlp.down.weight", (0, 0))


def test_packed_experts_equal_plain_transposed_ones(tmp_path: Path) -> None:
    config = json.loads((Path(__file__).parents[1] / "tiny" / "gpt_oss.json").read_text())["plain"]
    config = {**config, "hidden_size": 64, "intermediate_size": 96}
    model = llamath.load(config)
    tensors = random_tensors(model, model.scheme("hf"))
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed, plain = {}, {}
    for name, x in tensors.items():
        if not name.endswith("_proj") or "experts" not in name:
            packed[name] = plain[name] = x.bfloat16()
            continue
        experts, inputs, outputs = x.shape
        codes = torch.randint(0, 16, (experts, outputs, inputs // 32, 32))
        exponents = torch.randint(115, 125, (experts, outputs, inputs // 32))
        packed[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
        packed[f"{name}_scales"] = exponents.to(torch.uint8)
        plain[name] = (
            (values[codes] * torch.exp2(exponents - 127.0)[..., None])
            .reshape(experts, outputs, inputs)
            .mT.contiguous()
        )
    recipe = {
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    }
    a = save_folder(tmp_path / "a", {**config, **recipe}, packed, None)
    b = save_folder(tmp_path / "b", config, {name: x.bfloat16() for name, x in plain.items()}, None)
    assert same(a, b).verdict == "identical"


# The command


def run(*args: object, **options: Any) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, [str(x) for x in args], **options
    )


def test_exit_codes_and_forms_of_the_command(base: Path, tmp_path: Path) -> None:
    other = plant(tmp_path / "b", lambda x: swap(x, GATE, UP))
    equal, different = run("same", base, base), run("same", base, other)
    assert (
        equal.exit_code,
        different.exit_code,
        run("same", base, tmp_path / "none").exit_code,
    ) == (0, 1, 2)
    assert equal.stdout.startswith("identical: 30 weights have the same values\nA  ")
    assert "mlp.gate, mlp.up of layer 1: mlp.gate and mlp.up are swapped" in different.stdout
    brief = run("same", base, other, "--brief").stdout
    assert brief.count("\n") == 1 and "different: 2 of 30 weights differ" in brief
    data = json.loads(run("same", base, other, "--json").stdout)
    assert (data["verdict"], data["different"], data["identical"]) == ("different", 2, 28)
    assert [x["code"] for x in data["causes"]] == ["swapped"]
    assert {x["path"] for x in data["differences"]} == {
        "layers.1.mlp.gate.weight",
        "layers.1.mlp.up.weight",
    }


@pytest.mark.parametrize("width", [60, 80])
def test_the_text_fits_the_terminal(
    base: Path, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = llamath.load(LLAMA)
    save_folder(tmp_path / "a", LLAMA, random_tensors(model, model.scheme("hf")), torch.float32)
    convert(Path("a"), Path("b"), "hf", "fp16")
    plant(tmp_path / "c", lambda x: [x[name].normal_(0, 0.05) for name in x])
    for other in ("b", "c"):
        done = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1"}).invoke(
            cli, ["same", "a", other]
        )
        assert done.exit_code == (other == "c")
        assert max(map(len, done.stdout.splitlines())) <= width, done.stdout


def test_the_progress_covers_all_bytes(base: Path) -> None:
    seen: list[tuple[int, int]] = []
    llamath.same(base, base, progress=lambda done, total: seen.append((done, total)))
    llamath.hash_weights(base, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, total in seen if done == total] and all(
        done <= total for done, total in seen
    )


def test_the_hash_command_prints_one_line(base: Path) -> None:
    done = run("same", base)
    assert (done.exit_code, done.stdout) == (0, f"{llamath.hash_weights(base).hash}  {base}\n")
    assert run("same", base, "--brief").stdout == f"{llamath.hash_weights(base).hash}\n"
    data = json.loads(run("same", base, "--json").stdout)
    assert len(data["weights"]) == 30 and data["definition"] == "llamath-hash-1"


def test_a_truncated_file_is_refused(base: Path, tmp_path: Path) -> None:
    folder = plant(tmp_path / "b")
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(2000)
    done = run("same", base, folder)
    assert done.exit_code == 2 and "Traceback" not in done.output


def test_numpy_is_asked_for_by_name(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    done = run("same", base, base)
    assert (
        done.exit_code == 2 and "needs numpy" in done.stderr and "llamath[convert]" in done.stderr
    )


def test_memory_does_not_grow_with_the_weights(tmp_path: Path) -> None:
    config = {**LLAMA, "vocab_size": 60_000, "hidden_size": 256, "num_hidden_layers": 1}
    a = plant(tmp_path / "a", config=config)
    b = convert(a, tmp_path / "b", "hf", "fp16")
    tracemalloc.start()
    try:
        llamath.same(a, b)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (a / "model.safetensors").stat().st_size > 60_000_000
    assert peak < 100_000_000  # values in float32 alone would have 122 MB in each


# Multi-token prediction layers


def mtp_config(name: str) -> dict[str, Any]:
    """A tiny model with two multi-token prediction layers: numbered after the others, or with names of their own."""
    tiny = json.loads((Path(__file__).parents[1] / "tiny" / f"{name}.json").read_text())
    key = "num_nextn_predict_layers" if name == "deepseek_v3" else "mtp_num_hidden_layers"
    return {**tiny.get("yarn", tiny["plain"]), key: 2 if name == "deepseek_v3" else 1}


def with_mtp(config: dict[str, Any]) -> Tensors:
    """Random tensors of the model and of its multi-token prediction layers."""
    model = llamath.load(config)
    tensors = {name: x.bfloat16() for name, x in random_tensors(model, model.scheme("hf")).items()}
    generator = torch.Generator().manual_seed(9)
    for x in model.family.hf.mtp_tensors(model.tree):
        tensors[x.name] = (
            torch.randn(tuple(map(int, x.shape)), generator=generator) * 0.02
        ).bfloat16()
    return tensors


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_5", "qwen3_5_moe"])
def test_mtp_layers_are_compared_by_their_values(name: str, tmp_path: Path) -> None:
    config = mtp_config(name)
    model, tensors = llamath.load(config), with_mtp(config)
    mtp = [x.name for x in model.family.hf.mtp_tensors(model.tree)]
    a = save_folder(tmp_path / "a", config, tensors, torch.bfloat16)
    assert len(mtp) >= 15 and model.tree.mtp is not None
    wide = same(a, save_folder(tmp_path / "b", config, tensors, torch.float32))
    assert (wide.verdict, wide.others_compared) == ("identical", 0)
    coarse = {
        k: x.to(torch.float8_e4m3fn).bfloat16() if k in mtp and x.ndim > 1 else x
        for k, x in tensors.items()
    }
    small = {
        k: x.to(torch.float8_e4m3fn) if k in mtp and x.ndim > 1 else x for k, x in tensors.items()
    }
    rounded = save_folder(tmp_path / "c", config, small, None)
    assert same(a, rounded).verdict == "rounding"
    assert (
        same(save_folder(tmp_path / "d", config, coarse, torch.bfloat16), rounded).verdict
        == "identical"
    )
    gate = next(x for x in mtp if x.endswith(("q_proj.weight", "q_a_proj.weight")))
    wrong = same(
        a, save_folder(tmp_path / "e", config, {**tensors, gate: tensors[gate] * 2}, torch.bfloat16)
    )
    assert {(x.stored_a, x.verdict) for x in wrong.differences} == {(gate, "different")}
    assert (
        wrong.differences[0].path.startswith("mtp.0.")
        and "B is A times 2" in wrong.causes[0].message
    )


def test_dropped_mtp_layers_are_named_and_unfused_ones_compared(tmp_path: Path) -> None:
    config = mtp_config("deepseek_v3")
    tensors = with_mtp(config)
    a = save_folder(tmp_path / "a", config, tensors, torch.bfloat16)
    plain = {
        k: x for k, x in tensors.items() if not k.startswith(("model.layers.2.", "model.layers.3."))
    }
    report = same(a, save_folder(tmp_path / "b", config, plain, torch.bfloat16))
    assert report.verdict == "identical" and any(
        "only in A" in x and "not compared" in x for x in report.notes
    )
    fused = same(a, convert(a, tmp_path / "c", "hf-fused"))
    assert (fused.verdict, fused.others_compared, fused.only_in_a) == ("identical", 0, ())
    assert run("same", a).stdout.split()[0] == run("same", tmp_path / "b").stdout.split()[0]


def test_packed_mtp_layers_are_compared(tmp_path: Path) -> None:
    config = mtp_config("deepseek_v3")
    tensors = with_mtp(config)
    recipe = {"quant_method": "fp8", "weight_block_size": [32, 32], "activation_scheme": "dynamic"}
    packed = dict(tensors)
    for name in [x for x in tensors if x.endswith("_proj.weight")]:
        packed[name] = tensors[name].to(torch.float8_e4m3fn)
        packed[f"{name}_scale_inv"] = torch.ones(tuple(-(-n // 32) for n in tensors[name].shape))
    a = save_folder(tmp_path / "a", config, tensors, torch.bfloat16)
    b = save_folder(tmp_path / "b", {**config, "quantization_config": recipe}, packed, None)
    assert (same(a, b).verdict, same(a, b).others_compared) == ("rounding", 0)
    packed["model.layers.3.self_attn.o_proj.weight_scale_inv"] += 1
    c = save_folder(tmp_path / "c", {**config, "quantization_config": recipe}, packed, None)
    for other in (a, b):
        assert [x.path for x in same(other, c).differences if x.verdict == "different"] == [
            "mtp.1.attn.o.weight"
        ]


def test_declared_mtp_layers_are_bounded_by_those_in_files(tmp_path: Path) -> None:
    config = mtp_config("deepseek_v3")
    tensors = with_mtp(config)
    a = save_folder(tmp_path / "a", config, tensors, torch.bfloat16)
    b = save_folder(
        tmp_path / "b", {**config, "num_nextn_predict_layers": 10**9}, tensors, torch.bfloat16
    )
    assert (same(a, b).verdict, same(a, b).others_compared) == ("identical", 0)
    fused = convert(b, tmp_path / "c", "hf-fused")
    assert (
        llamath.verify(str(fused)).ok
        and llamath.hash_weights(fused).hash == llamath.hash_weights(a).hash
    )
    with pytest.raises(llamath.LlamathError, match="too many to list"):
        llamath.convert(b, tmp_path / "d", edit="layers=0")
