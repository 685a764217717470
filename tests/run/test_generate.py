"""Greedy generation matches transformers in any batch, and ends where and for the reason it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llamath.analysis.size.memory.cache_bytes import kv_cache_size as predicted
from llamath.core.config import Config
from llamath.families.registry import find_family
from llamath.tokenizers import Tokenizer
from llamath.torch import Decoder, Generation, GenerationLimits, Llama, Sampling, build, initialize
from llamath.torch.torch_session import check_tokenizer, collect_completions
from llamath.utils.errors import LlamathError
from support.tiny_checkpoint import CONFIG, tiny_checkpoint, train_tokenizer
from support.transformers_pair import generated_by_transformers, pair

NEW = 12


def tiny(std: float = 0.3, **config: Any) -> Decoder:
    keys = CONFIG | config
    return initialize(build(find_family(keys["model_type"])(Config(keys))), 0, std)


def ids(
    module: Decoder,
    prompts: list[list[int]],
    sampling: Sampling | None = None,
    *,
    batching: dict[str, int] | None = None,
    **limits: Any,
) -> list[list[int]]:
    """The generated tokens of each prompt; `batching` sets the prefill chunk, the initial margin of the cache, and the first row."""
    generation = Generation(
        module, prompts, sampling or Sampling(), GenerationLimits(**limits), **batching or {}
    )
    assert all(piece.row >= 0 for piece in generation)
    return [row.ids for row in generation.rows]


@pytest.mark.transformers
def test_longrope_switch_matches_transformers() -> None:
    long = {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.0, 2.0, 3.0, 6.0],
    }
    scaling = {
        "rope_scaling": long,
        "original_max_position_embeddings": 16,
        "max_position_embeddings": 64,
        "rope_theta": 500.0,
    }
    config = {
        "model_type": "phi3",
        "vocab_size": 99,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    both = pair(config | scaling | {"num_key_value_heads": 2, "pad_token_id": 0})
    first, second = both.ids(30).tolist()
    prompts = [first[:10], second[:14], first]
    assert ids(both.ours, prompts, max_tokens=20) == [
        generated_by_transformers(both.theirs, prompt, 20) for prompt in prompts
    ]


@pytest.mark.parametrize(
    "config", [{}, {"model_type": "mistral", "sliding_window": 6}], ids=["whole", "window"]
)
def test_long_prompts_are_prefilled_in_chunks(config: dict[str, Any]) -> None:
    module = tiny(**config)
    prompts = [list(range(5, 60)), [9, 8, 7], list(range(30, 50))]
    expected = ids(module, prompts, max_tokens=NEW)
    chunked = {"prefill_chunk": 20}
    assert ids(module, prompts, batching=chunked, max_tokens=NEW) == expected
    assert [
        ids(module, [prompt], batching=chunked, max_tokens=NEW)[0] for prompt in prompts
    ] == expected


@pytest.mark.parametrize(
    "config", [{}, {"model_type": "mistral", "sliding_window": 6}], ids=["whole", "window"]
)
def test_cache_grows_when_new_tokens_are_unlimited(config: dict[str, Any]) -> None:
    module = tiny(**config)
    expected = ids(module, [[5, 6, 7]], max_tokens=60)
    assert ids(module, [[5, 6, 7]], batching={"initial_margin": 2}, context=63) == expected


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "mistral", "sliding_window": 6},
        {"model_type": "gpt2", "tie_word_embeddings": True},
        {
            "model_type": "lfm2",
            "conv_L_cache": 3,
            "layer_types": ["conv", "full_attention"],
            "block_dim": 32,
            "num_hidden_layers": 2,
        },
    ],
    ids=["llama", "window", "learned positions", "states"],
)
def test_sequence_does_not_depend_on_its_batch(config: dict[str, Any]) -> None:
    module = tiny(**config)
    how = Sampling(temperature=1.0, top_k=40, repetition_penalty=1.2, seed=11)
    prompts = [[5, 6, 7], list(range(5, 45)), [8], [9, 10, 11, 12]]
    ends = frozenset(range(20, 60))
    together = ids(module, prompts, how, max_tokens=50, stop_ids=ends)
    assert len({len(x) for x in together}) > 2  # rows leave one by one
    for i, prompt in enumerate(prompts):
        assert ids(
            module, [prompt], how, batching={"first_row": i}, max_tokens=50, stop_ids=ends
        ) == [together[i]]
    assert ids(module, prompts, how, max_tokens=50, stop_ids=ends) == together


def test_rows_do_not_repeat_the_first_rows_of_other_seeds() -> None:
    module = tiny()
    how = Sampling(temperature=1.0, seed=11)
    rows = ids(module, [[5, 6, 7]] * 8, how, max_tokens=12)
    assert len({tuple(x) for x in rows}) == 8
    first = [ids(module, [[5, 6, 7]], how.replace(seed=11 + i), max_tokens=12)[0] for i in range(8)]
    assert rows[0] == first[0]
    assert all(row not in first for row in rows[1:])


def test_learned_positions_limit_each_row() -> None:
    module = tiny(model_type="gpt2", max_position_embeddings=32)
    generated = ids(module, [list(range(5, 34)), [5, 6]], context=32)
    assert [len(x) for x in generated] == [3, 30]


def test_finish_reasons(tmp_path: Path) -> None:
    llama = Llama.open(tiny_checkpoint(tmp_path))
    whole = llama.generate("The cat", max_tokens=20)
    assert whole.finish == "length"
    assert len(whole.ids) == 20
    ended = llama.start(
        [llama.encode("The cat")], limits=GenerationLimits(stop_ids=frozenset({whole.ids[3]}))
    ).attach_tokenizer(llama.tokenizer, [llama.encode("The cat")])
    (completion,) = collect_completions(ended)
    assert (completion.finish, completion.ids) == ("stop", whole.ids[:4])
    assert completion.text == llama.tokenizer.decode(whole.ids[:3])
    stop = whole.text[3:6]
    cut = llama.generate("The cat", max_tokens=20, stop_strings=(stop,))
    assert (cut.finish, cut.text) == ("string", whole.text[: whole.text.index(stop)])
    full = llama.generate("The cat", max_tokens=500)
    assert full.finish in ("length", "stop")
    assert full.prompt_tokens + len(full.ids) <= 128
    assert (
        llama.generate("The cat", max_tokens=500, context=10).ids
        == whole.ids[: 10 - whole.prompt_tokens]
    )
    assert full.tokens_per_second > 0


def test_streamed_pieces_make_up_the_text(tmp_path: Path) -> None:
    llama = Llama.open(tiny_checkpoint(tmp_path))
    for seed in range(5):
        how = Sampling(temperature=1.0, seed=seed)
        pieces = list(llama.stream("A dog", sampling=how, max_tokens=40, logprobs=2))
        whole = llama.generate("A dog", sampling=how, max_tokens=40, logprobs=0)
        assert "".join(x.text for x in pieces) == whole.text
        assert [x.token for x in pieces] == list(whole.ids)
        assert [x.finish for x in pieces[:-1]] == [""] * (len(pieces) - 1)
        assert pieces[-1].finish == whole.finish
        assert [x.logprob for x in pieces] == pytest.approx(whole.logprobs)
        assert all(len(x.top) == 2 for x in pieces)


def test_logprobs_match_a_single_pass() -> None:
    module = tiny()
    prompt = [5, 6, 7]
    pieces = list(
        Generation(
            module,
            [prompt],
            Sampling(temperature=1.0, seed=1),
            GenerationLimits(max_tokens=9, logprobs=0),
        )
    )
    text = [*prompt, *(x.token for x in pieces)]
    with torch.inference_mode():
        expected = module(torch.tensor([text[:-1]])).log_softmax(-1)[0, len(prompt) - 1 :]
    own = expected.gather(1, torch.tensor([[x.token] for x in pieces]))[:, 0].tolist()
    assert [x.logprob for x in pieces] == pytest.approx(own, abs=1e-4)


def test_interrupt_keeps_the_text_so_far(tmp_path: Path) -> None:
    llama = Llama.open(tiny_checkpoint(tmp_path))
    whole = llama.generate("The cat", max_tokens=20)
    calls = iter(range(9))

    def tired(*_: object) -> None:
        if next(calls) == 5:
            raise KeyboardInterrupt

    handle = llama.module.get_submodule("layers.1.mlp").register_forward_hook(tired)
    inside = llama.generate("The cat", max_tokens=20)
    handle.remove()
    assert (inside.finish, inside.ids) == ("interrupted", whole.ids[:5])
    assert whole.text.startswith(inside.text.rstrip("\ufffd"))
    generation = llama.stream("The cat", max_tokens=20)
    pieces = []
    for piece in generation:
        pieces.append(piece)
        if len(pieces) == 4:
            break
    pieces += generation.interrupt()
    assert pieces[-1].finish == "interrupted"
    assert list(generation.interrupt()) == []
    assert whole.text.startswith("".join(x.text for x in pieces).rstrip("\ufffd"))


@pytest.mark.parametrize(
    ("prompts", "limits", "message"),
    [
        ([], {}, "at least one prompt"),
        ([[]], {}, "empty"),
        ([[5], [320]], {}, "token 320, but the model's embedding has 320 rows"),
        ([[5] * 9], {"context": 8}, "9 tokens is longer than the context of 8"),
        ([[5] * 8], {"context": 8}, "fills the context"),
        ([[5]], {"max_tokens": 0}, "max_tokens must be at least 1"),
        ([[5]], {"logprobs": -1}, "logprobs must be 0 or more"),
    ],
)
def test_invalid_requests_are_rejected(
    prompts: list[list[int]], limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(LlamathError, match=message):
        ids(tiny(), prompts, **limits)


def test_model_without_head_cannot_generate() -> None:
    tree = find_family("llama")(Config(CONFIG)).replace(head=None)
    with pytest.raises(LlamathError, match="no output head"):
        ids(build(tree), [[5]])


def test_nonfinite_logits_are_explained() -> None:
    module = tiny()
    with torch.no_grad():
        module.get_parameter("layers.1.mlp.up.weight")[3, 4] = float("nan")
    with pytest.raises(
        LlamathError,
        match=r"^the weight layers\.1\.mlp\.up\.weight is NaN in 1 of its 1,536 values",
    ):
        ids(module, [[5, 6]], max_tokens=3)
    module = initialize(build(module.spec, torch.float16), 0, 30.0)
    with pytest.raises(
        LlamathError, match=r"the first output that is not is that of layers\.\d"
    ) as error:
        ids(module, [[5, 6]], max_tokens=3)
    assert "float16 ends" in error.value.hint


def test_batch_larger_than_memory_is_rejected(tmp_path: Path) -> None:
    llama = Llama.open(
        tiny_checkpoint(tmp_path, max_position_embeddings=4_100_000_000, num_key_value_heads=4)
    )
    assert llama.model is not None
    with pytest.raises(
        LlamathError,
        match=r"cache and activations for 3 sequences of 4,000,000,0\d\d tokens in float32 need [\d,]+ bytes",
    ) as error:
        llama.generate(["The cat", "A dog ran", "home"], max_tokens=4_000_000_000)
    need = int(str(error.value).split(" bytes")[0].split()[-1].replace(",", ""))
    assert need > predicted(llama.model.tree, 4_000_000_000, 3, "fp32").bytes


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("of cuda"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_is_an_error(error: Exception) -> None:
    def full(*_: object) -> None:
        raise error

    module = tiny()
    module.layers[1].register_forward_hook(full)
    with pytest.raises(LlamathError, match="out of memory on cpu after 0 tokens"):
        ids(module, [[5, 6]])


@pytest.mark.parametrize(
    ("rows", "fits"), [(316, True), (600, True), (315, False), (100, False), (700, False)]
)
def test_tokenizer_of_another_model_is_rejected(rows: int, fits: bool) -> None:
    ours = Tokenizer(train_tokenizer(), "tokenizer.json")
    assert ours.vocab_size == 316
    if fits:
        check_tokenizer(ours, rows)
    else:
        with pytest.raises(
            LlamathError, match=f"316 tokens, but the model's embedding has {rows} rows"
        ):
            check_tokenizer(ours, rows)


def test_generation_resumes_from_a_prefix(tmp_path: Path) -> None:
    llama = Llama.open(tiny_checkpoint(tmp_path))
    passes: list[int] = []
    llama.module.register_forward_pre_hook(lambda _, given: passes.append(given[0].shape[1]))
    first = llama.start([[5, 6, 7, 8]], limits=GenerationLimits(max_tokens=6))
    assert list(first)
    assert first.prefix_cache is not None
    known = first.prefix_cache.tokens
    longer = [*known, 9, 10]
    expected = collect_completions(llama.start([longer], limits=GenerationLimits(max_tokens=6)))
    passes.clear()
    assert (
        collect_completions(
            llama.start([longer], limits=GenerationLimits(max_tokens=6)).resume(first.prefix_cache)
        )[0].ids
        == expected[0].ids
    )
    assert passes[0] == 2
    other = [*known[:6], 99, 98, 97]
    expected = collect_completions(llama.start([other], limits=GenerationLimits(max_tokens=6)))
    second = llama.start([longer], limits=GenerationLimits(max_tokens=6))
    assert list(second)
    assert second.prefix_cache is not None
    passes.clear()
    assert (
        collect_completions(
            llama.start([other], limits=GenerationLimits(max_tokens=6)).resume(second.prefix_cache)
        )[0].ids
        == expected[0].ids
    )
    assert passes[0] == 3


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mistral", "sliding_window": 6},
        {
            "model_type": "lfm2",
            "conv_L_cache": 3,
            "block_dim": 32,
            "layer_types": ["conv", "full_attention"],
        },
    ],
)
def test_overwritten_prefix_is_recomputed(config: dict[str, Any]) -> None:
    module = tiny(**config)
    first = Generation(module, [[5, 6, 7, 8]], Sampling(), GenerationLimits(max_tokens=8))
    assert list(first)
    assert first.prefix_cache is not None
    other = [5, 6, 7, 9]
    again = Generation(module, [other], Sampling(), GenerationLimits(max_tokens=8)).resume(
        first.prefix_cache
    )
    assert [x.token for x in again] == ids(module, [other], max_tokens=8)[0]
