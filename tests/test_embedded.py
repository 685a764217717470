"""The model that the package brings: what its files say, that transformers computes the same, and that it knows its little world."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
import train_tiny
from llamath import embedded, run
from llamath.check import check
from llamath.text import chat
from llamath.text import tokenizer as words
from tiny.measure import Known, known, openings, stories
from tiny.reader import read, sentences
from tiny.stories import story
from tiny.talk import exchanges
from tiny.texts import rows, spoken, texts, tokenizer

FOLDER = Path(embedded.path())


INTERIM = "the weights that are shipped are of an earlier state of the training script, and too weak: see LOG.md"


@pytest.fixture(scope="module")
def model() -> Known:
    return known(FOLDER)


def test_it_is_what_its_configuration_says_and_small() -> None:
    assert check("embedded").verdict.ok
    assert sum(x.stat().st_size for x in FOLDER.iterdir() if x.is_file()) <= 4_000_000
    assert llamath.load("embedded").parameters.total == llamath.load(FOLDER).parameters.total


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "embedded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert embedded.named("embedded") == "embedded"
    with pytest.raises(llamath.LlamathError, match="neither"):
        llamath.load("embedded")


def test_conversations_are_recognised_as_chatml() -> None:
    found = words(embedded.path())
    form = chat.recognise(found)
    assert form is not None and form.name == "chatml"
    assert {found.mark("</s>"), found.mark("<|im_end|>")} <= chat.stops(form, found)


@pytest.mark.transformers
def test_transformers_computes_the_same() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager").eval()
    split = AutoTokenizer.from_pretrained(FOLDER)
    ours, text = run.opened("embedded", "float32").module, "Anna was in the garden. She had a red ball. Ünknown 17 wörds!"
    ids = words(embedded.path()).encode(text)
    assert split(text)["input_ids"] == ids
    with torch.inference_mode():
        expected, found = theirs(torch.tensor([ids])).logits, ours(torch.tensor([ids]))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        begun = torch.tensor([ids[:12]])
        long = theirs.generate(begun, attention_mask=torch.ones_like(begun), max_new_tokens=24, do_sample=False, pad_token_id=0)
        mine = begun
        for _ in range(long.shape[1] - 12):
            mine = torch.cat((mine, ours(mine)[:, -1].argmax(-1, keepdim=True)), 1)
    assert mine.tolist() == long.tolist()
    talk = [{"role": "user", "content": "Hello!"}]
    form = chat.find("chatml")
    prompt = split.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    assert prompt == chat.ids(form, words(embedded.path()), [chat.Turn("user", "Hello!")])


@pytest.mark.xfail(strict=True, reason=INTERIM)
def test_its_stories_are_consistent(model: Known) -> None:
    told, texts = stories(model, openings(20), 0.0)
    assert told.known >= 0.98 and told.true >= 0.9, texts


def test_the_reader_believes_every_story_of_the_teller() -> None:
    dice = random.Random(3)
    for _ in range(200):
        assert all(x.known and x.true for x in read(story(dice)))


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
    ],
)  # fmt: skip
def test_the_reader_finds_what_cannot_be(text: str, wrong: int) -> None:
    verdicts = list(read(text))
    assert [i for i, x in enumerate(verdicts) if not x.true] == [wrong]
    assert [x.sentence for x in verdicts] == sentences(text)


def test_nothing_that_is_held_out_is_trained_on() -> None:
    held = set(islice(texts(7, held=True), 300))
    assert not held & set(islice(texts(7), 3000))
    dice = random.Random(5)
    assert any(x.held for _ in range(300) for x in exchanges(dice))


@pytest.mark.xfail(strict=True, reason=INTERIM)
def test_the_tokenizer_is_made_again_the_same() -> None:
    made = tokenizer(train_tiny.CONFIG["vocab_size"])
    assert made.to_str() == words(embedded.path()).engine.to_str()
    text = "Anna met an owl at the well. Grüße, 世界! 7 + 13 = 20."
    assert made.decode(made.encode(text).ids) == text


def test_training_is_reproducible_and_learns() -> None:
    runs: list[Any] = []
    for _ in range(2):
        training = train_tiny.Training()
        losses = [training.step(8) for _ in range(8)]
        runs.append((losses, training.module.state_dict()))
    (first, numbers), (second, others) = runs
    assert first == second and all(torch.equal(numbers[x], others[x]) for x in numbers)
    assert first[-1] < first[0]


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole, half = train_tiny.Training(), train_tiny.Training()
    losses = [whole.step(4) for _ in range(4)]
    half.step(4), half.step(4)
    half.save(tmp_path / "state")
    again = train_tiny.Training()
    again.resume(tmp_path / "state", 4)
    assert [again.step(4), again.step(4)] == losses[2:]


def test_rows_are_whole_texts_and_questions_are_not_learned() -> None:
    made = tokenizer(train_tiny.CONFIG["vocab_size"])
    for row, _ in islice(rows(texts(2), made, 64), 20):
        assert len(row) == 64 and made.id_to_token(row[0]) in ("<s>", "<|im_start|>")
    talk = "<|im_start|>user\n1 + 1 =<|im_end|>\n<|im_start|>assistant\n1 + 1 = 2.<|im_end|>\n</s><s>The end.</s>"
    kept = [x for x in spoken(made.encode(talk, add_special_tokens=False).ids, made) if x >= 0]
    assert made.decode(kept, skip_special_tokens=False) == "1 + 1 = 2.<|im_end|><s>The end.</s>"
