"""The bundled model: its files, its agreement with transformers, and the quality of its stories and answers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
import train_tiny
from llamath import embedded
from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
from llamath.tokenizers import chat_prompt as chat
from llamath.tokenizers import load_tokenizer
from llamath.torch import open_model
from tiny.measure import (
    TinyModel,
    count_correct,
    loss,
    measure_requests,
    open_tiny,
    openings,
    questions,
    stories,
)
from tiny.reader import read, sentences
from tiny.stories import story
from tiny.talk import exchanges
from tiny.texts import POOL, batches, padded, texts, tokenizer

FOLDER = Path(embedded.path())
SHARES = {
    "what colour has it, held out": 0.95,
    "where is a thing, held out": 0.85,
    "who has it, held out": 0.95,
    "where is a person, held out": 0.9,
    "how many, held out": 0.95,
    "plus, seen": 0.95,
    "minus, seen": 0.95,
    "animals, seen": 0.95,
    "numbers, seen": 0.95,
    "words, seen": 0.95,
    "manners, seen": 0.95,
    "unknown words, sampled anew": 0.95,
}
"""Minimum number of correct answers; the model's README has the measured numbers."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, as it is faster for a model of this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> TinyModel:
    return open_tiny(FOLDER)


def test_embedded_model_verifies_and_is_small() -> None:
    assert verify_checkpoint("embedded").verdict.ok
    assert sum(x.stat().st_size for x in FOLDER.iterdir() if x.is_file()) <= 4_000_000
    assert llamath.load("embedded").parameters.total == llamath.load(FOLDER).parameters.total


def test_local_folder_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "embedded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert embedded.resolve_name("embedded") == "embedded"
    with pytest.raises(llamath.LlamathError, match="neither"):
        llamath.load("embedded")


def test_chat_format_is_chatml() -> None:
    tokenizer = load_tokenizer(embedded.path())
    form = chat.detect_chat_format(tokenizer)
    assert form is not None and form.name == "chatml"
    assert {tokenizer.token_id("</s>"), tokenizer.token_id("<|im_end|>")} <= chat.chat_stop_ids(
        form, tokenizer
    )


@pytest.mark.transformers
def test_logits_match_transformers() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(
        FOLDER, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    split = AutoTokenizer.from_pretrained(FOLDER)
    ours, text = (
        open_model("embedded", "float32").module,
        "Anna was in the garden. She had a red ball. Ünknown 17 wörds!",
    )
    ids = load_tokenizer(embedded.path()).encode(text)
    assert split(text)["input_ids"] == ids
    with torch.inference_mode():
        expected, actual = theirs(torch.tensor([ids])).logits, ours(torch.tensor([ids]))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
        begun = torch.tensor([ids[:12]])
        long = theirs.generate(
            begun,
            attention_mask=torch.ones_like(begun),
            max_new_tokens=24,
            do_sample=False,
            pad_token_id=0,
        )
        mine = begun
        for _ in range(long.shape[1] - 12):
            mine = torch.cat((mine, ours(mine)[:, -1].argmax(-1, keepdim=True)), 1)
    assert mine.tolist() == long.tolist()
    talk = [{"role": "user", "content": "Hello!"}]
    form = chat.find_chat_format("chatml")
    prompt = split.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    assert prompt == chat.encode_chat(
        form, load_tokenizer(embedded.path()), [chat.ChatMessage("user", "Hello!")]
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_generated_stories_are_consistent(model: TinyModel, temperature: float) -> None:
    scores, texts = stories(model, openings(40), temperature)
    assert scores.known >= 0.98 and scores.true >= 0.95 and scores.whole >= 0.85, texts


def test_generated_stories_match_the_request(model: TinyModel) -> None:
    assert measure_requests(model, 40) >= 0.9


def test_answers_are_right(model: TinyModel) -> None:
    shares = {
        kind: count_correct(model, pairs[:60]) / len(pairs[:60])
        for kind, pairs in questions(300).items()
    }
    assert shares.keys() == SHARES.keys()
    assert not {kind: share for kind, share in shares.items() if share < SHARES[kind]}


@pytest.mark.release
def test_damaged_weights_lower_the_score() -> None:
    wrong = open_tiny(FOLDER)
    right = loss(wrong, 12)
    for x in (
        x
        for name, x in wrong.module.state_dict().items()
        if name.startswith("layers.1.") and x.dim() == 2
    ):
        kept = x.clone()
        x.copy_(kept.flip(0))
        assert loss(wrong, 12) > right + 0.03
        x.copy_(kept)
    assert loss(wrong, 12) == right


@pytest.mark.release
def test_permuted_rows_lower_the_score() -> None:
    wrong = open_tiny(FOLDER)
    q = wrong.module.state_dict()["layers.3.attn.q.weight"]
    q.copy_(q.flip(0))
    assert stories(wrong, openings(20), 0.0)[0].whole < 0.5


@pytest.mark.release
def test_reader_accepts_every_training_story() -> None:
    dice = random.Random(3)
    for _ in range(200):
        assert all(x.known and x.true for x in read(story(dice)))


def test_reader_accepts_any_text() -> None:
    dice = random.Random(4)
    for _ in range(200):
        lines = [x for _ in range(3) for x in sentences(story(dice))]
        dice.shuffle(lines)
        assert [x.sentence for x in read(" ".join(lines))] == lines


def test_requested_names_are_in_the_story() -> None:
    dice = random.Random(6)
    for wish in (
        {"p": "Ida"},
        {"q": "Ben"},
        {"o": "hat"},
        {"a": "hen"},
        {"p": "Max", "a": "owl"},
        {"p": "Max", "q": "Ida"},
    ):
        assert all(
            {*wish.values()} <= {*re.findall("[A-Za-z]+", story(dice, wish))} for _ in range(20)
        )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Anna was in the garden. Ben was in the kitchen. Ben had a red ball. Ben gave Anna the ball.", 3),
        ("Anna was in the garden. She had a red ball. He was still in the garden.", 2),
        ("Anna was in the garden. She had a red ball. She put down the blue ball.", 2),
        ("Anna was in the garden. She was still in the park.", 1),
        ("Anna was on the garden.", 0),
        ("Anna was in the barn. Anna met a cow there. The cow said, \"Woof!\"", 2),
        ("Anna was in the barn. The red ball sang.", 1),
        ("Anna was in the barn. Ben was in the barn. Ben said, \"Thank you, Anna!\"", 2),
        ("Anna and Ben were in the barn. Anna had a red key. They played with the key.", 2),
        ("Anna and Ben were in the barn. Anna had a red key. Ben found the key.", 2),
        ("Anna and Ben were in the barn. Anna had a red key. The dog took the key.", 2),
        ("Anna and Ben were in the barn. Ben was sad.", 1),
        ("Anna and Ben were in the barn. Anna heard, \"Oink!\" Ben said, \"It is only a cow.\"", 2),
        ("Anna was in the barn. They laughed.", 1),
        ("Anna and Ben were on the hill. There they saw a frog.", 1),
    ],
)  # fmt: skip
def test_reader_finds_contradictions(text: str, wrong: int) -> None:
    verdicts = list(read(text))
    assert [i for i, x in enumerate(verdicts) if not x.true] == [wrong]
    assert [x.sentence for x in verdicts] == sentences(text)


@pytest.mark.release
def test_held_out_stories_are_not_trained_on() -> None:
    held_out = set(islice(texts(7, held=True), 100))
    assert not held_out & set(islice(texts(7), 2000))
    dice = random.Random(5)
    assert any(x.held for _ in range(300) for x in exchanges(dice))


@pytest.mark.release
def test_tokenizer_is_reproducible() -> None:
    trained = tokenizer(train_tiny.CONFIG["vocab_size"])
    assert trained.to_str() == load_tokenizer(embedded.path()).engine.to_str()
    text = "Anna met an owl at the well. Grüße, 世界! 7 + 13 = 20."
    assert trained.decode(trained.encode(text).ids) == text


def training() -> train_tiny.Training:
    """Training of a smaller model with a smaller vocabulary."""
    small = {
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
    }
    return train_tiny.Training({**train_tiny.CONFIG, **small}, tokenizer(300, 100), 256)


def test_training_is_reproducible_and_reduces_loss() -> None:
    runs: list[Any] = []
    for _ in range(2):
        trainer = training()
        losses = [trainer.step(40) for _ in range(20)]
        runs.append((losses, trainer.module.state_dict()))
    (first, numbers), (second, others) = runs
    assert first == second and all(torch.equal(numbers[x], others[x]) for x in numbers)
    assert max(first[-3:]) < min(first[:3])


@pytest.mark.release
def test_training_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    whole, half = training(), training()
    losses = [whole.step(4) for _ in range(4)]
    half.step(4), half.step(4)
    half.save(tmp_path / "state")
    again = training()
    again.resume(tmp_path / "state")
    assert [again.step(4), again.step(4)] == losses[2:]


@pytest.mark.release
def test_batches_group_similar_lengths_without_loss() -> None:
    trained, seen = tokenizer(300, 100), list(islice(texts(2), POOL))
    all_batches: list[list[int]] = []
    for batch in batches(iter([*seen, *seen]), trained, 600, 10_000):
        assert len(batch) == 1 or len(batch) * max(map(len, batch)) <= 600
        ids, following = padded(batch)
        assert all(len(x) == len(y) == len(ids[0]) for x, y in zip(ids, following, strict=True))
        for text, row, later in zip(batch, ids, following, strict=True):
            assert row[: len(text)] == text and [x for x in later if x >= 0] == text[1:]
        all_batches += batch
        if len(all_batches) == POOL:
            break
    assert sorted(trained.decode(x, skip_special_tokens=False) for x in all_batches) == sorted(seen)
