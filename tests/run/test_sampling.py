"""Every filter matches transformers; samples follow their probabilities and are reproducible by seed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from llamath.generation.random_numbers import UniformNumbers
from llamath.torch import Sampling
from llamath.torch.sampling import (
    Sampler,
    apply_repetition_penalty,
    filter_logits,
    filter_min_p,
    filter_top_k,
    filter_top_p,
    sample,
)
from llamath.utils.errors import LlamathError

CPU = torch.device("cpu")


def scores(seed: int, rows: int = 3, vocab: int = 60, size: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * size


@pytest.mark.transformers
@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 70), st.sampled_from([0.3, 1.0, 4.0]))
def test_top_k_matches_transformers(seed: int, k: int, size: float) -> None:
    from transformers import TopKLogitsWarper

    x = scores(seed, size=size).bfloat16().float()  # so that some are alike
    assert torch.equal(filter_top_k(x, k), TopKLogitsWarper(k)(None, x))


@pytest.mark.transformers
@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10**6),
    st.floats(0.01, 0.999),
    st.sampled_from([0.01, 1.0, 5.0]),
    st.sampled_from([40, 3000, 20000]),
)
def test_top_p_matches_transformers(seed: int, p: float, size: float, vocab: int) -> None:
    from transformers import TopPLogitsWarper

    x = scores(seed, vocab=vocab, size=size)
    ours, theirs = filter_top_p(x, p), TopPLogitsWarper(p)(None, x)
    shares = x.softmax(-1).double()
    above = torch.stack(
        [
            shares[i, shares[i] > s].sum()
            for i, row in enumerate(shares)
            for s in row[ours[i].isinf() != theirs[i].isinf()]
        ]
        or [shares.new_tensor(p)]
    )
    rounding = max(1e-4, vocab * torch.finfo(torch.float32).eps)  # of a sum of so many
    assert ((above - p).abs() < rounding).all()  # they differ, if at all, where that decides
    assert (ours.isinf() != theirs.isinf()).sum() <= 3 * max(1, vocab // 1000)


@pytest.mark.transformers
def test_top_p_stops_at_an_exact_sum() -> None:
    from transformers import TopPLogitsWarper

    x = torch.tensor([[0.25, 0.5, 0.25]]).log()
    assert torch.equal(filter_top_p(x, 0.5), TopPLogitsWarper(0.5)(None, x))
    assert filter_top_p(x, 0.5).isfinite().tolist() == [[False, True, False]]


def test_numbers_of_each_row_depend_on_the_seed() -> None:
    firsts = {UniformNumbers(seed, row)() for seed in range(20) for row in range(20)}
    assert len(firsts) == 400
    assert UniformNumbers(3, 2)() == UniformNumbers(3, 2)()


@pytest.mark.transformers
@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 1.0), st.sampled_from([0.3, 1.0, 4.0]))
def test_min_p_matches_transformers(seed: int, p: float, size: float) -> None:
    from transformers import MinPLogitsWarper

    x = scores(seed, size=size)
    assert torch.equal(filter_min_p(x, p), MinPLogitsWarper(p)(None, x))


@pytest.mark.transformers
@settings(deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(0.5, 2.0),
    st.lists(st.integers(0, 59), min_size=1, max_size=30),
)
def test_repetition_penalty_matches_transformers(
    seed: int, penalty: float, used: list[int]
) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    x = scores(seed, rows=1)
    sampler = Sampler(Sampling(repetition_penalty=penalty), [UniformNumbers(0)])
    sampler.note_prompts([used], 60, CPU)
    seen = sampler.used if sampler.used is not None else torch.zeros(1, 60, dtype=torch.bool)
    assert torch.equal(
        apply_repetition_penalty(x, seen, penalty),
        RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([used]), x),
    )


@pytest.mark.transformers
def test_combined_filters_match_transformers() -> None:
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    theirs = LogitsProcessorList(
        [
            TemperatureLogitsWarper(0.7),
            TopKLogitsWarper(20),
            TopPLogitsWarper(0.8),
            MinPLogitsWarper(0.1),
        ]
    )
    x = scores(1, rows=50)
    assert torch.equal(
        filter_logits(x, Sampling(temperature=0.7, top_k=20, top_p=0.8, min_p=0.1)), theirs(None, x)
    )


def test_sample_inverts_the_cumulative_distribution() -> None:
    shares = torch.tensor([0.5, 0.0, 0.25, 0.25, 0.0])
    x = shares.log().expand(8, -1)
    ids, sound = sample(x, (torch.arange(8, dtype=torch.float64)[:, None] + 0.5) / 8)
    assert ids.tolist() == [0, 0, 0, 0, 2, 2, 3, 3]
    assert sound.all()
    assert sample(x[:1], torch.tensor([[1 - 2**-50]], dtype=torch.float64))[0].tolist() == [3]


def test_samples_follow_the_distribution() -> None:
    x = torch.tensor([[0.5, 0.2, 0.2, 0.1]]).log()
    sampler = Sampler(Sampling(temperature=1.0, seed=3), [UniformNumbers(3)])
    sampler.note_prompts([[0]], 4, CPU)
    result = torch.bincount(torch.cat([sampler(x).ids for _ in range(4000)]), minlength=4) / 4000
    assert (result - x.exp()[0]).abs().max() < 0.03


def test_row_samples_do_not_depend_on_the_batch() -> None:
    x = scores(5, rows=4)
    how = Sampling(temperature=1.0)
    together, alone = (
        Sampler(how, [UniformNumbers(7, i) for i in range(4)]),
        Sampler(how, [UniformNumbers(7, 2)]),
    )
    ids = [together(x).ids[2] for _ in range(3)]
    together.select_rows(torch.tensor([1, 2]))
    ids += [together(x[1:3]).ids[1] for _ in range(100)]
    assert ids == [alone(x[2:3]).ids[0] for _ in range(103)]


def test_logprobs_ignore_sampling_parameters() -> None:
    x = scores(2)
    sampler = Sampler(
        Sampling(temperature=0.5, top_k=2, repetition_penalty=1.3),
        [UniformNumbers(i) for i in (1, 2, 3)],
        num_logprobs=4,
    )
    sampler.note_prompts([[1], [2], [3]], 60, CPU)
    choice = sampler(x)
    expected = x.log_softmax(-1)
    assert choice.logprobs == expected.gather(1, choice.ids[:, None])[:, 0].tolist()
    assert choice.top is not None
    assert [[i for i, _ in row] for row in choice.top] == x.topk(4).indices.tolist()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 1.0},
        {"temperature": 1.0, "top_p": 0.5},
        {"temperature": 2.0, "top_k": 3},
    ],
)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_logits_give_no_token(how: dict[str, float], bad: float) -> None:
    x = scores(4, rows=2)
    x[1, 7] = bad
    ids = Sampler(Sampling(**how), [UniformNumbers(1), UniformNumbers(2)])(x).ids
    assert ids[0] >= 0
    assert ids[1] == -1


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"repetition_penalty": 0.0},
        {"seed": -1},
    ],
)
def test_invalid_parameters_are_rejected(how: dict[str, float]) -> None:
    with pytest.raises(LlamathError, match=f"{next(iter(how))} must be"):
        Sampling(**how)
