"""`explain` on recipes: printed counts, adapters as peft counts them, scales of quantized headers, vision towers, and its confidence."""

from __future__ import annotations

import json
import random
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.training.lora_adapters import build_adapters, module_names
from llamath.analysis.understand.explain import explain_number
from llamath.analysis.understand.explain.explain_base import BaseModel
from llamath.analysis.understand.explain.explanation import (
    Candidate,
    known_vocab_sizes,
    merge_equal_bases,
)
from llamath.analysis.understand.explain.known_numbers import known_numbers
from llamath.analysis.understand.explain.priors import evidence_bits, excess_bits
from llamath.analysis.understand.explain.vision_towers import VISION_TOWERS
from llamath.catalog import presets
from llamath.cli import cli
from support import quantized_headers as make

TRUTH = Path(__file__).parents[1] / "truth"
MOST_FALSE = 1
"""The most false first claims among the printed counts."""


def base_model(source: Any) -> BaseModel:
    model = llamath.load(source)
    return BaseModel(
        name=model.name,
        tree=model.tree,
        scheme=model.family.hf,
        named=True,
        family=model.family.name,
    )


def explain_with(source: Any, number: int) -> tuple[Candidate, ...]:
    return tuple(
        x for x in explain_number(number, [base_model(source)], 220, {}).candidates if x.exact
    )


@cache
def catalog() -> tuple[list[BaseModel], dict[int, str], int]:
    order = sorted(presets(), key=lambda x: -len(x.ids) - len(x.aliases))
    return merge_equal_bases(iter(order)), known_vocab_sizes(order), len(order)


def first_claims(counts: Any) -> list[tuple[int, str, bool, Candidate | None]]:
    """The first explanation of each count, and whether it is right; one that is a guess claims nothing where nothing may be found."""
    bases, known, models = catalog()
    claims = []
    for number, what, words in counts:
        report = explain_number(number, [x for x in bases if number < 4 * x.total], models, known)
        first = next((x for x in report.candidates if x.exact), None)
        if words is None:
            is_right = first is None or first.is_guess
        else:
            is_right = first is not None and all(
                word in " ".join((first.summary, *first.also)) for word in words
            )
        claims.append((number, what, is_right, first))
    return claims


def some_of(rows: list[Any], request: pytest.FixtureRequest) -> list[Any]:
    """All rows before a release, else every fifteenth."""
    return rows if request.config.getoption("--all") else rows[::15]


@pytest.mark.release
@pytest.mark.slow
def test_printed_counts_have_at_most_one_false_first_claim(request: pytest.FixtureRequest) -> None:
    counts = json.loads((TRUTH / "printed_counts.json").read_text())["counts"]
    assert len(counts) >= 130
    claims = first_claims(some_of(counts, request))
    false = [
        (number, what, first and first.summary)
        for number, what, is_right, first in claims
        if not is_right
    ]
    assert len(false) <= MOST_FALSE, false


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "per_false"), [("counts", 60), ("made_up", 20)])
def test_few_first_claims_of_a_second_sample_are_false(
    kind: str, per_false: int, request: pytest.FixtureRequest
) -> None:
    """A claim is a first explanation that is at least likely. Counts that no program printed have no explanation."""
    table = json.loads((TRUTH / "printed_counts_2.json").read_text())
    rows = [row for sample in (table, table["held_out"]) for row in sample[kind]]
    assert len(rows) > 80
    rows = some_of(rows, request)
    claims = first_claims(
        [(x, "no program printed it", None) for x in rows] if kind == "made_up" else rows
    )
    false = [
        (number, what, x.summary)
        for number, what, is_right, x in claims
        if x and not is_right and not x.is_guess
    ]
    assert per_false * len(false) <= max(len(claims), per_false), false


@pytest.mark.release
@pytest.mark.slow
def test_parts_and_mistakes_are_rarely_found_by_chance() -> None:
    """A multiple of 2²⁰ is what matrices have, so a few are some."""
    bases, _, models = catalog()
    rng = random.Random(1)
    samples = {
        "any": (lambda: rng.randrange(10**7, 10**11), 0),
        "multiples of 4,096": (lambda: 4096 * rng.randrange(2500, 25 * 10**6), 0),
        "multiples of 1,000": (lambda: 1000 * rng.randrange(10**4, 10**8), 0),
        "multiples of 2^20": (lambda: 2**20 * rng.randrange(10, 10**5), 5),
    }
    for what, (draw, most) in samples.items():
        numbers = [draw() for _ in range(300)]
        found = [
            x for x in numbers if known_numbers(x, [y for y in bases if x < 4 * y.total], models)
        ]
        assert len(found) <= most, (what, found)


# adapters, as peft counts them

SMALL = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
ADAPTERS = [
    ("LoraConfig", {"r": 8, "target_modules": ["q_proj"]}, "LoRA of rank 8 on q"),
    ("LoraConfig", {"r": 16, "target_modules": ["down_proj"]}, "LoRA of rank 16 on down"),
    ("LoraConfig", {"r": 8, "target_modules": ["q_proj", "v_proj"], "use_dora": True}, "DoRA of rank 8 on q and v"),
    ("LoraConfig", {"r": 16, "target_modules": "all-linear", "use_dora": True}, "DoRA of rank 16 on all linear layers"),
    ("IA3Config", {}, "IA³ on k, v and down"),
    ("PromptTuningConfig", {"num_virtual_tokens": 20}, "prompt tuning with 20 virtual tokens"),
    ("PrefixTuningConfig", {"num_virtual_tokens": 30}, "prefix tuning with 30 virtual tokens"),
    ("PromptEncoderConfig", {"num_virtual_tokens": 20, "encoder_hidden_size": 128}, "p-tuning with 20 virtual tokens and an encoder of width 128"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("kind", "settings", "words"), ADAPTERS)
def test_adapters_are_counted_as_peft_counts_them(
    kind: str, settings: dict[str, Any], words: str
) -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**SMALL)
    )
    trainable, total = peft.get_peft_model(
        model, getattr(peft, kind)(task_type="CAUSAL_LM", **settings)
    ).get_nb_trainable_parameters()
    assert total > trainable
    assert any(words in x.summary for x in explain_with(SMALL, total)), [
        x.summary for x in explain_with(SMALL, total)
    ]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["experts"], "the experts"),
        (["router"], "the routers"),
        (["all", "router"], "all linear layers and routers"),
    ],
)
def test_lora_on_experts_and_routers_is_found(targets: list[str], words: str) -> None:
    """The counts are those of the matrices, as peft adapts them one by one."""
    base = base_model("mixtral-8x7b")
    groups = {"experts": ("experts",), "router": ("router",), "all": ("attention", "experts")}
    wanted = {group for x in targets for group in groups[x]}
    matrices = [x for x in base.matrices if x.paths[0].startswith("layers.") and x.group in wanted]
    number = base.total + 16 * sum((x.out_features + x.in_features) * x.copies for x in matrices)
    assert f"LoRA of rank 16 on {words}" in explain_with("mixtral-8x7b", number)[0].summary


# scales, from headers of published layouts


def elements_of(writer: Any, source: str) -> int:
    """The stored elements of a model whose linear layers are written by `writer`, without what no program counts."""
    model = llamath.load(source)
    total = 0
    for x in model.scheme("hf").tensors(model.tree):
        shape = tuple(map(int, x.shape))
        if x.parts[0].weight.role == "matmul" and x.parts[0].pattern.startswith("layers."):
            total += sum(
                prod(shape) for _, _, shape in writer(x.name.removesuffix(".weight"), *shape)
            )
        else:
            total += prod(shape)
    return total


@pytest.mark.parametrize(
    ("writer", "words"),
    [
        (make.nvfp4, "packed by NVFP4 (4-bit, two to a byte), with the scales"),
        (make.compressed_nvfp4, "packed by NVFP4 (4-bit, two to a byte), with the scales"),
        (make.compressed_mxfp4, "packed by MXFP4 (4-bit, two to a byte), with the scales"),
        (make.fp8_blocks, "FP8 scales of blocks of 128×128"),
    ],
)
def test_block_scales_of_headers_are_found(writer: Any, words: str) -> None:
    assert words in explain_with("llama-3.1-8b", elements_of(writer, "llama-3.1-8b"))[0].summary


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("kind", ["AWQ", "GPTQ"])
def test_groups_of_awq_and_gptq_are_found(kind: str, group: int) -> None:
    def write(_: str, out: int, into: int) -> list[tuple[str, str, tuple[int, ...]]]:
        parts = [
            ("qweight", "I32", (into, out // 8)),
            ("qzeros", "I32", (into // group, out // 8)),
            ("scales", "F16", (into // group, out)),
        ]
        return [*parts, ("g_idx", "I32", (into,))] if kind == "GPTQ" else parts

    first = explain_with("llama-2-7b", elements_of(write, "llama-2-7b"))[0]
    assert (
        f"packed by {kind} (4-bit, eight to a 32-bit number, in groups of {group})" in first.summary
    )


def test_mxfp4_scales_are_those_of_the_published_header() -> None:
    """The hub counts both numbers of a byte, and the scales."""
    sizes = {name: (dtype, prod(shape)) for name, dtype, shape in make.gpt_oss("gpt-oss-20b")}
    number = sum(n * (2 if name.endswith("_blocks") else 1) for name, (_, n) in sizes.items())
    assert number == 21_511_953_984
    assert (
        explain_with("gpt-oss-20b", number)[0].summary == "gpt-oss 20B, MXFP4 scales of the experts"
    )
    stored = sum(n for _, n in sizes.values())
    assert (
        "the experts packed by MXFP4 (4-bit, two to a byte), with the scales"
        in explain_with("gpt-oss-20b", stored)[0].summary
    )


# vision towers


PUBLISHED = {
    "gemma3": "Gemma 3",
    "gemma4": "Gemma 4",
    "qwen3_vl": "Qwen3-VL",
    "qwen3_5": "Qwen3.5",
    "mistral3": "Pixtral",
    "llama4": "Llama 4",
    "llava": "LLaVA",
}


@cache
def published_parts() -> dict[str, tuple[int, int]]:
    """Model type → width of the text model, and parameters beside it, by the counts of transformers."""
    parts = {}
    for line in (TRUTH / "configs.jsonl").read_text().splitlines():
        entry = json.loads(line)
        components = entry.get("components") or {}
        outside = {
            name: n
            for name, n in components.items()
            if not name.endswith(("language_model", "lm_head"))
        }
        kind = entry["config"].get("model_type")
        if kind in PUBLISHED and outside and kind not in parts:
            parts[kind] = base_model(entry["config"]).width, sum(outside.values())
    return parts


@pytest.mark.parametrize(("kind", "name"), PUBLISHED.items())
def test_vision_towers_have_the_published_parameters(kind: str, name: str) -> None:
    width, parameters = published_parts()[kind]
    (tower,) = [x for x in VISION_TOWERS if name in x.name]
    assert tower.parameters(width) == parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width"),
    [("Qwen2-VL's", 1536), ("Qwen2-VL's", 3584), ("Qwen2.5-VL's", 2048), ("Qwen2.5-VL's", 3584)],
)
def test_vision_towers_equal_those_of_transformers(name: str, width: int) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    (tower,) = [x for x in VISION_TOWERS if x.name.startswith(name)]
    with torch.device("meta"):
        if name == "Qwen2-VL's":
            config = transformers.Qwen2VLConfig(vision_config={"hidden_size": width}).vision_config
            model = transformers.models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel(
                config
            )
        else:
            sizes = {
                "out_hidden_size": width,
                "intermediate_size": 3420,
                "depth": 32,
                "hidden_size": 1280,
            }
            config = transformers.Qwen2_5_VLConfig(vision_config=sizes).vision_config
            model = transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel(
                config
            )
    assert sum(x.numel() for x in model.parameters()) == tower.parameters(width)
    linears = [x for x in model.modules() if isinstance(x, torch.nn.Linear)]
    assert sum(x.in_features + x.out_features for x in linears) == tower.adapter_parameters(width)


def test_lora_on_a_vision_tower_is_found() -> None:
    base = base_model("qwen2.5-7b")
    (tower,) = [x for x in VISION_TOWERS if x.name.startswith("Qwen2.5-VL's")]
    inside = sum(
        (x.out_features + x.in_features) * x.copies
        for x in base.matrices
        if x.paths[0].startswith("layers.")
    )
    number = (
        base.total
        + tower.parameters(base.width)
        + 8 * (inside + tower.adapter_parameters(base.width))
    )
    assert (
        "LoRA of rank 8 on all linear layers, and Qwen2.5-VL's vision tower"
        in explain_with("qwen2.5-7b", number)[0].summary
    )


# confidence


def test_total_of_a_model_is_very_likely() -> None:
    (first, *_) = explain_with("llama-3.1-8b", 8_030_261_248)
    assert (
        first.likelihood == "very likely"
        and first.confidence is not None
        and first.confidence > 0.99
    )


def test_round_numbers_and_multiples_of_1024_need_more_evidence() -> None:
    assert excess_bits(7_000_000_001) == excess_bits(7 * 2**9) == 0 < excess_bits(7 * 2**10)
    assert excess_bits(7_000_000_000) > 25 and excess_bits(684_531_386_000) == 0
    assert evidence_bits(6_738_415_617) > evidence_bits(6_738_415_616) > evidence_bits(7 * 2**30)


@pytest.mark.parametrize(
    "number", [10**9, 7 * 10**9, 13 * 10**9, 70 * 10**9, 125 * 10**6, 6_740_000_000]
)
def test_round_numbers_have_no_explanation(number: int) -> None:
    assert not explain_with("llama-2-7b", number)


@pytest.mark.release
@pytest.mark.parametrize("slug", ["llama-2-7b", "llama-3.2-1b", "qwen3-30b-a3b"])
@pytest.mark.slow
def test_random_multiples_of_1024_are_rarely_likely(slug: str) -> None:
    dice, base = random.Random(slug), base_model(slug)
    numbers = [1024 * int(base.total * 2 ** dice.uniform(-3, 1) / 1024) for _ in range(40)]
    first = [
        x[0]
        for number in numbers
        if (x := explain_number(number, [base], 220, {}).candidates) and x[0].exact
    ]
    assert sum(not x.is_guess for x in first) <= 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("8030261248",), 0),
        (("7000000000",), 1),
        (("8030257153",), 1),
        (("688B",), 1),
        (("8B",), 0),
    ],
)
def test_exit_code_is_1_if_nothing_was_found(args: tuple[str, ...], code: int) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(
        cli, ["explain", *args, "--like", "deepseek-v3" if args == ("688B",) else "llama-3-8b"]
    )
    assert done.exit_code == code


@pytest.mark.slow
def test_confidence_is_stated() -> None:
    run = lambda *args: CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["explain", *args]).stdout  # noqa: E731
    assert "8,030,261,248 (8.03B): very likely, 100%" in run("8030261248", "--like", "llama-3-8b")
    assert "4,194,304: a guess: " in run("4194304", "--brief")


@pytest.mark.slow
def test_the_size_of_a_matrix_hides_no_adapters() -> None:
    """What PEFT prints for Llama 2 7B by default, and k or v of a layer of Llama 3."""
    candidates = llamath.explain("4194304").candidates
    assert any("one matrix [1,024, 4,096]: k or v" in x.summary for x in candidates)
    assert any("Llama 2 7B, adapters alone: LoRA of rank 8" in x.summary for x in candidates)


@pytest.mark.release
@pytest.mark.slow
def test_wrong_explanations_of_random_adapters_are_guesses(
    request: pytest.FixtureRequest,
) -> None:
    """Settings that the bits were not set by; the counts are those of the trees. Different causes often give the same number."""
    dice, (bases, known, models) = random.Random(5), catalog()
    slugs = (
        "qwen2.5-14b",
        "qwen3-8b",
        "qwen3-32b",
        "llama-3.2-3b",
        "gemma-2-9b",
        "phi-4",
        "pythia-1.4b",
        "opt-1.3b",
        "qwen3-30b-a3b",
    )
    right = wrong = 0
    number_of_adapters = 30 if request.config.getoption("--all") else 9
    for _ in range(number_of_adapters):
        slug, rank, targets = (
            dice.choice(slugs),
            dice.choice((8, 16, 32, 64)),
            dice.choice(("qv", "attention", "all", "q", "mlp")),
        )
        model = llamath.load(slug)
        number = (
            model.parameters.total
            + build_adapters(model.tree, rank, [targets], module_names(model)).parameters
        )
        report = explain_number(number, [x for x in bases if number < 4 * x.total], models, known)
        first = next(x for x in report.candidates if x.exact)
        is_right = model.name in (first.base, *first.also) and f"rank {rank} on" in first.summary
        right += is_right
        wrong += not is_right and not first.is_guess
    assert wrong == 0 and right >= number_of_adapters * 2 // 3
