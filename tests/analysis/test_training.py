"""Training memory matches ZeRO's figure, torch's optimizers, peft's adapters, and Llama 3's published layouts."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_activations import CASES, LLAMA

import llamath
from llamath.analysis.size.training.optimizers import OPTIMIZERS
from llamath.analysis.size.training.pipeline_schedule import stage_activations, total_bytes
from llamath.analysis.size.training.training_memory import TrainingJob, TrainRequest, training
from llamath.analysis.size.training.zero_states import PersistentState, persistent_lines
from llamath.analysis.storage.parallel_layout import WeightShard, pipeline_stages, weight_shards
from llamath.cli import cli
from llamath.questions.layout import Layout
from llamath.utils.errors import LlamathError
from support.reference_data import published

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing`:FutureWarning"
)  # peft's own


def adamw_state(numbers: int, optimizer: str = "adamw") -> PersistentState:
    piece = WeightShard("layers.{l}.mlp.up.weight", (numbers,), 1, "matmul", "mlp", False)
    return PersistentState(
        [piece],
        None,
        {piece.pattern: (2, 1)},
        gradient_bytes=2,
        master=True,
        optimizer=OPTIMIZERS[optimizer],
    )


def state_bytes(numbers: int, zero: int, ranks: int) -> int:
    lines_by_kind = persistent_lines(adamw_state(numbers), Layout(dp=ranks, zero=zero))
    return sum(x.bytes for lines in lines_by_kind.values() for x in lines)


def round_like(value: int, like: float) -> float:
    places = Decimal("1") if float(like).is_integer() else Decimal("0.1")
    return float((Decimal(value) / 10**9).quantize(places, ROUND_HALF_UP))


def test_zero_figure_1() -> None:
    figure = published("zero_fig1")
    for zero, name in enumerate(("baseline", "Pos", "Pos+g", "Pos+g+p")):
        assert (
            round_like(state_bytes(int(figure["psi"]), zero, figure["Nd"]), figure["GB"][name])
            == figure["GB"][name]
        )
    for ranks, row in figure["table1_rows"].items():
        for zero, value in enumerate(row, 1):
            assert round_like(state_bytes(int(figure["psi"]), zero, int(ranks)), value) == value


@pytest.mark.parametrize("slug", ["llama-3-8b", "llama-3-70b", "mixtral-8x7b"])
def test_sixteen_bytes_per_parameter(slug: str) -> None:
    model = llamath.load(slug)
    (stage,) = training(model).stages
    assert (
        stage.weights + stage.gradients + stage.master + stage.optimizer
        == 16 * model.parameters.total
    )
    (shared,) = training(model, TrainRequest(layout=Layout(dp=8, zero=3))).stages
    assert shared.weights + shared.gradients + shared.master + shared.optimizer == pytest.approx(
        2 * model.parameters.total, rel=1e-9
    )


def test_zero_3_keeps_the_root_group_gathered() -> None:
    """FSDP's root module holds what no layer does: embedding, last norm and head."""
    model = llamath.load("llama-3-8b")
    sizes = {
        x.what: int(x.bytes)
        for x in training(model, TrainRequest(layout=Layout(dp=8, zero=3))).largest_stage.lines
    }
    assert sizes["gathered root group"] == 2 * (2 * 128_256 * 4096 + 4096)
    assert sizes["gathered weights"] == 2 * 2 * 218_112_000
    alone = training(model, TrainRequest(layout=Layout(zero=3))).largest_stage
    assert not [x for x in alone.lines if x.what.startswith("gathered")]


def test_one_microbatch_holds_gradients_in_place_of_activations() -> None:
    model = llamath.load("llama-3.2-1b")
    for context, late in ((512, True), (8192, False)):
        request = TrainRequest(context=context, layout=Layout(microbatches=1))
        both, one = (
            training(model, request.replace(accumulate=x)).largest_stage for x in (True, False)
        )
        held = next(
            int(x.bytes) for x in both.lines if x.what == "logits"
        )  # the model's output is referenced to the end
        assert one.gradients == max(both.gradients - (both.activations + both.logits - held), 0)
        assert (one.gradients > 0) == late and one.total < both.total


def test_offloaded_inputs_are_on_the_host() -> None:
    model = llamath.load("llama-3.2-1b")
    request = TrainRequest(context=4096, layout=Layout(recompute="full"))
    here, there = (training(model, request.replace(offload=x)).largest_stage for x in (False, True))
    assert (
        there.host == 16 * 4096 * 2048 * 2 == here.activations - there.activations
        and here.host == 0
    )


def test_adapters_in_16_bits_are_half_as_large() -> None:
    model = llamath.load("llama-3.2-1b")
    request = TrainRequest(context=1024, rank=16, targets=("all",))
    wide, narrow = (training(model, request.replace(adapter_dtype=x)) for x in ("fp32", "bf16"))
    assert (
        wide.adapter_totals
        and narrow.adapter_totals
        and wide.adapter_totals.bytes == 2 * narrow.adapter_totals.bytes
    )
    a, b = wide.largest_stage, narrow.largest_stage
    assert (a.gradients, a.optimizer) == (2 * b.gradients, 2 * b.optimizer)
    assert b.activations < a.activations  # without float32 copies of the inputs


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"offload": True}, "recomputed layers on the host"),
        (
            {"accumulate": False, "layout": Layout(microbatches=4)},
            "one microbatch per step, found 4",
        ),
        (
            {"adapter_dtype": "q4_k", "rank": 4, "targets": ("all",)},
            "adapters cannot be trained in",
        ),
    ],
)
def test_options_that_contradict_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(LlamathError, match=message):
        training(llamath.load("llama-3.2-1b"), TrainRequest(**changes))


def test_buffers_are_not_trained() -> None:
    model = llamath.load("deepseek-v3")
    (stage,) = training(model).stages
    assert (
        stage.gradients == 2 * (model.parameters.total - 14_848)
        and stage.weights == 2 * model.parameters.total
    )


def test_packed_model_trains_in_compute_dtype() -> None:
    assert "training in bf16" in run("gpt-oss-20b", "--training").stdout


def test_lines_sum_to_totals() -> None:
    for slug in ("llama-3-8b", "deepseek-v3", "gemma-2-2b", "gpt2"):
        for layout in (
            Layout(),
            Layout(pp=2, dp=2, zero=3, recompute="full"),
            Layout(pp=2, dp=4, zero=1, flash=False, recompute="selective"),
        ):
            job = TrainingJob(llamath.load(slug), TrainRequest(layout=layout))
            for x in job.report().stages:
                assert x.activations + x.logits == job.activation_bytes(x.stage)
                kinds = (
                    x.weights
                    + x.gradients
                    + x.master
                    + x.optimizer
                    + x.activations
                    + x.logits
                    + x.overhead
                )
                assert x.total == kinds and min(line.bytes for line in x.lines) > 0


def shards_of(config: Any) -> list[WeightShard]:
    tree = llamath.load(config).tree
    return weight_shards(tree, pipeline_stages(tree, Layout())[0], Layout())


@pytest.mark.transformers
@pytest.mark.parametrize("name", [x for x in OPTIMIZERS if x != "adamw8bit"])
def test_optimizer_states_match_torch(name: str) -> None:
    import torch

    from support.saved_tensors import causal_lm

    model = causal_lm(LLAMA, "sdpa", torch.float32)
    matrices = {id(x) for key, x in model.named_parameters() if x.ndim == 2 and ".layers." in key}
    optimizer_factories: dict[str, Any] = {
        "adamw": lambda xs: [torch.optim.AdamW(xs)],
        "sgd": lambda xs: [torch.optim.SGD(xs)],
        "momentum": lambda xs: [torch.optim.SGD(xs, momentum=0.9)],
        "adafactor": lambda xs: [torch.optim.Adafactor(xs)],
        "muon": lambda xs: [
            torch.optim.Muon([x for x in xs if id(x) in matrices]),
            torch.optim.AdamW([x for x in xs if id(x) not in matrices]),
        ],
    }
    optimizers = optimizer_factories[name](list(model.parameters()))
    model(
        input_ids=torch.zeros(1, 4, dtype=torch.int64), labels=torch.zeros(1, 4, dtype=torch.int64)
    ).loss.backward()
    for x in optimizers:
        x.step()
    kept = [
        y
        for o in optimizers
        for state in o.state.values()
        for key, y in state.items()
        if key != "step" and y is not None
    ]
    measured = sum(x.numel() * x.element_size() for x in kept)
    assert sum(OPTIMIZERS[name].states(x, 4) * x.copies for x in shards_of(LLAMA)) == measured


def test_8bit_states_have_a_scale_per_block() -> None:
    states = OPTIMIZERS["adamw8bit"].states
    piece = adamw_state(1).shards[0]
    assert states(piece._replace(shape=(100, 130)), 2) == 2 * (
        13000 + 4 * 51
    )  # as bitsandbytes 0.50 allocates it
    assert states(piece._replace(shape=(4095,)), 2) == 8 * 4095  # too small


PEAK = LLAMA | {"vocab_size": 4000, "hidden_size": 128, "intermediate_size": 352, "head_dim": 32}


@pytest.mark.transformers
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "recompute, vocab, tolerance",
    [("none", 4000, 0.001), ("full", 4000, 0.001), ("full", 200, 0.03)],
)
def test_peak_memory_matches_torch(
    recompute: Any, vocab: int, tolerance: float, dtype: str
) -> None:
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    from support.saved_tensors import causal_lm

    config = PEAK | {"vocab_size": vocab}
    model: Any = causal_lm(config, "sdpa", getattr(torch, dtype))
    if recompute == "full":
        model.activation_checkpointing_enable({"use_reentrant": False})
    optimizer, ids = (
        torch.optim.AdamW(model.parameters(), foreach=False),
        torch.randint(0, vocab, (2, 128)),
    )
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):  # gradients stay, as between microbatches
            tracker.reset_mod_stats()
            outputs = model(input_ids=ids, labels=ids)
            outputs.loss.backward()
            optimizer.step()
    measured = next(iter(tracker.get_tracker_snapshot("peak").values()))["Total"]
    short = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    request = TrainRequest(
        dtype=short, context=128, layout=Layout(microbatch=2, recompute=recompute), master=False
    )
    (stage,) = training(llamath.load(config), request).stages
    overhead = next(x.bytes for x in stage.lines if x.what == "overhead")
    assert stage.total - overhead == pytest.approx(measured, rel=tolerance)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 64))
def test_zero_shards_cover_the_model(numbers: int, ranks: int) -> None:
    by_stage = [state_bytes(numbers, zero, ranks) for zero in range(4)]
    assert by_stage == sorted(by_stage, reverse=True) and by_stage[0] == 16 * numbers
    assert 0 <= by_stage[3] * ranks - by_stage[0] <= 5 * ranks


def test_llama_3_training_fits_its_gpus() -> None:
    paper, tree = published("llama3_paper")["table4"], llamath.load("llama-3.1-405b")
    for gpus, tp, cp, pp, dp, seq, batch, *_ in paper["rows"]:
        layout = Layout(
            tp=tp,
            cp=cp,
            pp=pp,
            dp=8 if gpus == 16384 and cp == 16 else dp,
            zero=2,
            microbatches=batch,
        )
        assert layout.gpus == gpus
        report = training(
            tree, TrainRequest(context=seq, layout=layout, gradients="fp32", fused=True)
        )
        assert 0.5 * 80 * 2**30 < report.largest_stage.total < 80 * 2**30


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3", "gemma-2-9b"])
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_context_ranks_share_weights_and_divide_sequences(slug: str, zero: int) -> None:
    """A rank holds the activations of its tokens; weights are copied or sharded over DP × CP, as in Megatron Core and torchtitan."""
    model = llamath.load(slug)
    divided, short = (
        training(model, TrainRequest(context=context, layout=layout, fused=True)).largest_stage
        for context, layout in (
            (8192, Layout(cp=4, dp=2, zero=zero)),
            (2048, Layout(dp=8, zero=zero)),
        )
    )
    for name in ("weights", "gradients", "master", "optimizer", "activations", "logits", "total"):
        assert getattr(divided, name) == getattr(short, name), name


@pytest.mark.parametrize("slug", ["llama-3.1-405b", "deepseek-v3", "gemma-2-9b", "mixtral-8x7b"])
@pytest.mark.parametrize(
    "layout",
    [
        Layout(pp=4),
        Layout(pp=8, dp=2, zero=1),
        Layout(pp=2, interleave=3, microbatches=8, recompute="full"),
    ],
)
@pytest.mark.slow
def test_largest_stage_agrees_with_brute_force(slug: str, layout: Layout) -> None:
    job = TrainingJob(llamath.load(slug), TrainRequest())
    some, every = (
        job.with_layout(layout).report(every=False),
        training(job.model, TrainRequest(layout=layout)),
    )
    assert some.largest_stage.total == every.largest_stage.total and len(some.stages) <= len(
        every.stages
    )


TARGETS = {
    "llama": (LLAMA, [["q_proj", "v_proj"], ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]]),
    "gpt2": ({"model_type": "gpt2", "vocab_size": 97, "n_embd": 64, "n_layer": 2, "n_head": 4}, [["c_attn"], ["c_attn", "c_fc"]]),
    "phi3": (LLAMA | {"model_type": "phi3", "head_dim": 16, "num_key_value_heads": 2, "pad_token_id": 0}, [["qkv_proj"], ["gate_up_proj", "down_proj"]]),
    "falcon": ({"model_type": "falcon", "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}, [["query_key_value"]]),
    "gpt_neox": (LLAMA | {"model_type": "gpt_neox", "head_dim": 16}, [["query_key_value", "dense"]]),
    "qwen2": (LLAMA | {"model_type": "qwen2", "head_dim": 16, "num_key_value_heads": 2}, [["q_proj", "down_proj"], ["embed_tokens", "q_proj"]]),
    "head": (LLAMA, [["q_proj", "lm_head"]]),
}  # fmt: skip


@pytest.mark.transformers
@pytest.mark.parametrize(
    "name, targets", [(name, x) for name, (_, sets) in TARGETS.items() for x in sets]
)
def test_adapters_match_peft(name: str, targets: list[str]) -> None:
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    config = TARGETS[name][0]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config, use_cache=False)
        )
        adapted = peft.get_peft_model(
            model, peft.LoraConfig(r=8, target_modules=targets, fan_in_fan_out=name == "gpt2")
        )
    ours = llamath.load(config)
    report = training(ours, TrainRequest(rank=8, targets=tuple(targets))).adapter_totals
    assert report is not None
    trainable, everything = adapted.get_nb_trainable_parameters()
    assert report.trainable == trainable
    assert report.all_parameters == everything
    named = {
        key.removeprefix("base_model.model.").partition(".lora_")[0]
        for key, x in adapted.named_parameters()
        if x.requires_grad
    }
    stored = {part.pattern: x.name for x in ours.family.hf.tensors(ours.tree) for part in x.parts}
    spelled = {path for x in report.lora.targets for path in x.paths}
    layers = range(len(ours.tree.layers))
    expected = {
        (ours.family.hf.stored_name(f"{path}.weight").removesuffix(".weight")).replace(
            "{l}", str(i)
        )
        for path in spelled
        for i in layers
    }
    assert named == expected and stored


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(tp=4, pp=2), Layout(dp=4, zero=3)])
def test_adapters_are_sharded_like_their_matrices(layout: Layout) -> None:
    model = llamath.load("llama-3-8b")
    report = training(model, TrainRequest(rank=16, targets=("all",), layout=layout))
    assert report.adapter_totals is not None
    whole = 4 * report.adapter_totals.trainable
    adapters = [
        sum(x.bytes for x in stage.lines if x.what == "adapters") for stage in report.stages
    ]
    assert whole / layout.gpus <= max(adapters) < whole


def test_lora_on_llama_2_7b_matches_peft() -> None:
    report = training(
        llamath.load("llama-2-7b"), TrainRequest(rank=8, targets=("q", "v"))
    ).adapter_totals
    assert report is not None and report.trainable == 4_194_304
    assert f"{100 * report.trainable / report.all_parameters:.4f}" == "0.0622"


@pytest.mark.transformers
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "targets",
    [
        "q_proj v_proj",
        "q_proj k_proj v_proj o_proj",
        "gate_proj up_proj down_proj",
        "q_proj o_proj down_proj",
    ],
)
def test_saved_activations_with_adapters_match_torch(
    targets: str, attention: str, dtype: str
) -> None:
    peft = pytest.importorskip("peft")
    import torch

    from support.saved_tensors import causal_lm, count_step_bytes

    config, tokens = CASES["grouped"][0], 24
    plain: Any = causal_lm(config, attention, getattr(torch, dtype))
    plain.enable_input_require_grads()
    measured = count_step_bytes(
        peft.get_peft_model(plain, peft.LoraConfig(r=8, target_modules=targets.split())),
        2,
        tokens,
        97,
    )
    layout = Layout(microbatch=2, flash=attention == "sdpa")
    short = {"float32": "fp32", "bfloat16": "bf16"}[dtype]
    request = TrainRequest(
        dtype=short, context=tokens, rank=8, targets=tuple(targets.split()), layout=layout
    )
    job = TrainingJob(llamath.load(config), request)
    flow = stage_activations(job.saved, pipeline_stages(job.tree, layout)[0], layout)
    assert (
        total_bytes((*flow.kept, *flow.loss), layout, tokens) + 4 == measured
    )  # 4: the number of tokens, which the mean of the losses keeps


def test_qlora_base_weights_are_4bit() -> None:
    (stage,) = training(
        llamath.load("llama-2-7b"), TrainRequest(dtype="bnb-nf4", rank=8, targets=("qv",))
    ).stages
    packed, plain, tables = 6_476_005_376, 6_738_415_616 - 6_476_005_376, 7 * 32 * 64
    assert stage.weights == packed // 2 + packed // 64 * 4 + tables + 2 * plain + 4 * 4_194_304
    assert stage.master == 0
    assert stage.gradients == 4 * 4_194_304 and stage.optimizer == 8 * 4_194_304


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, ("memory", *args), standalone_mode=False
    )


@pytest.mark.parametrize(
    "args, message",
    [
        (("llama-3-8b", "--lora", "r=8,targets=qq_proj"), "unknown LoRA target"),
        (("llama-3-8b", "--lora", "targets=q"), "needs r, an integer from 1"),
        (("llama-3-8b", "--lora", "r=0"), "expected an integer from 1"),
        (("llama-3-8b", "--lora", "r=8,r=16"), "r is given twice"),
        (("llama-3-8b", "--lora", "r=٣"), "expected an integer from 1"),
        (("llama-3-8b", "--lora", "r=99999999999"), "expected an integer from 1"),
        (("llama-3-8b", "--training", "--layout", ""), "--layout is empty"),
        (("llama-3-8b", "--training", "--layout", "tp=٢"), "expected an integer from 1"),
        (("llama-3-8b", "--training", "--layout", "tp=2,tp=4"), "tp is given twice"),
        (("llama-3-8b", "--training", "--context", ""), "--context is empty"),
        (
            ("llama-3-8b", "--lora", "rank=8"),
            "--lora: unknown key 'rank'",
        ),
        (("llama-3-8b", "--training", "--layout", "tp=3"), "TP 3: 32 heads"),
        (("llama-3-8b", "--training", "--layout", "tpp=2"), "unknown key 'tpp'"),
        (("llama-3-8b", "--training", "--layout", "tp=-2"), "expected an integer from 1"),
        (("llama-3-8b", "--training", "--layout", "zero=4"), "expected an integer from 0 to 3"),
        (("llama-3-8b", "--training", "optimizer=adam"), "unknown optimizer"),
        (("llama-3-8b", "--training", "--dtype", "awq"), "cannot be trained directly"),
        (
            ("llama-3-8b", "--training", "--batch", "0"),
            "--batch should be a positive integer, found '0'",
        ),
        (("llama-3-8b", "--training", "--layout", "microbatches=0"), "expected an integer from 1"),
        (
            ("llama-3-8b", "--training", "--layout", "interleave=0,pp=2"),
            "expected an integer from 1",
        ),
        (("llama-3-8b", "--training", "grad_dtype=awq"), "cannot be stored in awq"),
        (("llama-3-8b", "--training", "--layout", "pp=999999999"), "more than 1,000 stages"),
        (("llama-3-8b", "--training", "--context", "0"), "too small"),
        (("llama-3-8b", "--training", "grad_dtype=fp5"), "fp5"),
        (("llama-3-8b", "--training", "--kv-dtype", "fp8"), "is for inference"),
        (("llama-3-8b", "--layout", "tp=2"), "add --training"),
        (("llama-3-8b", "--training", "--context", "4k", "--context", "8k"), "training takes one"),
        (("llama-1-30b", "--training", "--layout", "tp=3"), "TP 3: 52 heads"),
    ],
)
def test_invalid_requests_are_refused(args: tuple[str, ...], message: str) -> None:
    done = run(*args)
    assert done.exception is not None and message in str(
        getattr(done.exception, "message", done.exception)
    ) + str(done.exception)
    assert isinstance(done.exception, LlamathError) or hasattr(done.exception, "format_message")


def test_the_json_contract() -> None:
    output = json.loads(run("llama-2-7b", "--lora", "r=8,targets=q,v", "--json").stdout)
    figures = (
        "weights",
        "kv_cache",
        "activations",
        "logits",
        "overhead",
        "gradients",
        "master",
        "optimizer",
    )
    assert (
        output["total"]
        == sum(output[x] for x in figures)
        == sum(x["bytes"] for x in output["lines"])
    )
    assert (
        output["lora"] | {"trainable": 4194304, "bytes": 16777216} == output["lora"]
        and round(output["lora"]["share"], 6) == 0.000622
    )
    assert all(set(x) == {"what", "bytes", "formula", "exact"} for x in output["lines"])


def test_training_fits_or_exits_with_1() -> None:
    output = json.loads(
        run(
            "llama-3-8b", "--lora", "r=8", "--on", "mem=80GiB", "--context", "2048", "--json"
        ).stdout
    )
    assert output["fits"] and output["max_batch"] >= 2
    text = run("llama-3-8b", "--training", "--on", "mem=80GB").stdout
    assert "does not fit in 80.00 GB" in text and "not even one sequence" in text


@pytest.mark.parametrize(
    "args",
    [
        ("llama-3-8b", "--training"),
        (
            "mixtral-8x7b",
            "--layout",
            "tp=2,pp=4,ep=4,dp=8,zero=1",
            "--training",
            "recompute=selective,attention=eager",
        ),
        ("llama-2-7b", "--lora", "r=8,targets=q,v", "--dtype", "bnb-nf4-dq"),
    ],
)
def test_tables_fit_the_terminal(args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.exception is None, done.exception
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    head = lines.index(next(x for x in lines if x.startswith("part ")))
    rows = [
        x.replace("≈", "").rsplit(maxsplit=3)
        for x in lines[head + 1 : lines.index("", head)]
        if x[0] not in " ≈"
    ]
    figures = {row[0].strip(): int(row[1].replace(",", "")) for row in rows}
    assert figures.pop("total") == sum(figures.values())


def test_several_gpus_hold_parts_of_the_states() -> None:
    """Without a layout ZeRO-3 over all of them, as FSDP; copies where adapters alone are trained."""
    on = llamath.training_memory("llama-3-8b", on="8xh100")
    assert on.request.layout == Layout(dp=8, zero=3, microbatch=1)
    asked = llamath.training_memory("llama-3-8b", on="8xh100", layout="dp=8,zero=3")
    assert on.to_json() == asked.to_json()
    adapters = llamath.training_memory("llama-3-8b", on="8xh100", lora="r=16")
    assert (adapters.request.layout.dp, adapters.request.layout.zero) == (8, 0)
    assert llamath.training_memory("llama-3-8b", on="h100").request.layout.gpus == 1


def test_adapters_recompute_unless_asked_otherwise() -> None:
    small = {"lora": "r=16,targets=attention", "dtype": "bnb-nf4", "context": 2048}
    usual = llamath.training_memory("llama-3-8b", **small)
    assert usual == llamath.training_memory("llama-3-8b", training="recompute=full", **small)
    assert usual.total < 12 * 10**9  # "QLoRA of 8B on 16 GB"
    none = llamath.training_memory("llama-3-8b", training="recompute=none", **small)
    assert none.request.layout.recompute == "none" and none.total > 2 * usual.total


@pytest.mark.parametrize(
    ("model", "on", "more", "values"),
    [
        ("llama-3-8b", "8xh100", {}, ["kernels=fused", "recompute=full"]),
        ("llama-3-8b", "h100", {}, ["r=16", "2xh100-sxm"]),
        ("llama-3.1-405b", "8xh100", {}, ["512xh100-sxm"]),
        ("llama-3-8b", "rtx-3060-12gb", {}, ["r=16"]),
        (
            *("llama-3-8b", "rtx-4060-ti-16gb"),
            {"lora": "r=16,targets=attention", "dtype": "bnb-nf4"},
            ["loss=liger", "4096"],
        ),
    ],
)
def test_refused_training_offers_what_fits(
    model: str, on: str, more: dict[str, str], values: list[str]
) -> None:
    report = llamath.training_memory(model, on=on, **more)
    assert not report and [x.more.get("on", x.value) for x in report.instead] == values
    for x in report.instead:
        change = {"on": on, x.argument: x.value, **x.more}
        with_it = llamath.training_memory(model, **{**more, **change})
        assert with_it and with_it.total == x.total
