"""Models: what `load` accepts, and that models compare, hash, copy and pickle."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import llamath
from llamath.catalog import read_preset
from llamath.checkpoint.meta_args import ModelArgs
from llamath.families.registry import find_family
from support.reference_data import unproven_configs

SLUGS = ("llama-3-8b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b", "gpt2")


@pytest.mark.parametrize("slug", SLUGS)
def test_equal_models_are_equal_and_hash_alike(slug: str) -> None:
    a, b = llamath.load(slug), llamath.load(slug)
    assert a == b and hash(a) == hash(b) and len({a, b}) == 1
    assert a.tree == b.tree and a.family == b.family and a.config == b.config


def test_different_models_are_unequal() -> None:
    a, b = llamath.load("llama-3-8b"), llamath.load("llama-3-8b", changes={"num_hidden_layers": 31})
    assert a != b and a.tree != b.tree and a.family == b.family


@pytest.mark.parametrize("slug", SLUGS)
def test_models_survive_pickling_and_copying(slug: str) -> None:
    model = llamath.load(slug)
    total = model.parameters.total
    for item in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert item == model and item.parameters.total == total
        assert [x.path for _, x in zip(range(20), item.weights, strict=False)] == [
            x.path for _, x in zip(range(20), model.weights, strict=False)
        ]


def test_text_model_of_a_wrapper_survives_pickling() -> None:
    text = dict(read_preset("gemma-3-27b").config["text_config"])
    model = llamath.load(
        {
            "model_type": "gemma3",
            "text_config": {**text, "model_type": "gemma3_text"},
            "vision_config": {"image_size": 896},
        }
    )
    assert (
        model.is_multimodal
        and model.family != find_family("gemma3_text")
        and pickle.loads(pickle.dumps(model)) == model
    )


def test_pickle_of_a_large_model_is_small() -> None:
    assert len(pickle.dumps(llamath.load("llama-3.1-405b"))) < 20_000


def test_repr_is_one_short_line() -> None:
    assert (
        repr(llamath.load("llama-3-8b"))
        == "FamilyModel('Llama 3 8B', llama family, 8,030,261,248 parameters)"
    )


@pytest.mark.slow
def test_transformers_config_is_accepted() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(num_hidden_layers=2, vocab_size=1000)
    assert llamath.load(config).parameters == llamath.load(config.to_dict()).parameters


def test_model_is_accepted_and_can_be_changed() -> None:
    model = llamath.load("llama-3-8b")
    assert llamath.load(model) is model
    changed = llamath.load(model, changes={"num_hidden_layers": 2})
    assert (changed.name, changed.tree.layers.n) == ("Llama 3 8B", 2)


def test_model_of_model_args_can_be_changed_by_their_names() -> None:
    model = llamath.load(ModelArgs(vocab_size=32000))
    assert llamath.load(model, changes={"n_layers": 2}).args == ModelArgs(
        vocab_size=32000, n_layers=2
    )


@pytest.mark.parametrize("source", [b"llama-3-8b", 3, None, ["llama-3-8b"]])
def test_other_python_objects_are_refused_by_type(source: Any) -> None:
    with pytest.raises(
        llamath.ConfigError, match=f"cannot load an object of type {type(source).__name__}"
    ):
        llamath.load(source)


def test_unknown_config_key_is_named_with_its_family() -> None:
    with pytest.raises(
        llamath.ConfigError, match="unknown config key 'hiden_size' for the llama family"
    ) as caught:
        llamath.load("llama-3-8b", changes={"hiden_size": 1})
    assert "did you mean hidden_size" in caught.value.hint


@pytest.mark.parametrize(
    ("model", "word", "key"),
    [
        ("llama-3-8b", "heads", "num_attention_heads"),
        ("llama-3-8b", "width", "hidden_size"),
        ("llama-3-8b", "layers", "num_hidden_layers"),
        ("llama-3-8b", "tied", "tie_word_embeddings"),
        ("gpt2", "width", "n_embd"),
        ("mixtral-8x7b", "experts", "num_local_experts"),
        ("mixtral-8x7b", "top_k", "num_experts_per_tok"),
    ],
)
def test_words_for_dimensions_are_told_their_config_key(model: str, word: str, key: str) -> None:
    with pytest.raises(llamath.ConfigError, match=f"unknown config key '{word}'") as caught:
        llamath.load(model, changes={word: 1})
    assert caught.value.hint == f"did you mean {key}?"


def test_derived_defaults_are_not_noted() -> None:
    assert llamath.load("llama-3-8b").notes == ()
    config = dict(read_preset("qwen3-8b").config)
    del config["head_dim"]
    assert "head_dim not in config; using 128" in llamath.load(config).notes


def test_first_phi_files_number_all_modules_in_one_sequence() -> None:
    (config,) = (x.values[0] for x in unproven_configs() if x.id == "mixformer-first")
    model = llamath.load(config)
    names = [x.name for x in model.scheme("hf").tensors(model.tree)]
    assert (names[0], names[1], names[-1]) == (
        "layers.0.wte.weight",
        "layers.1.ln.weight",
        "layers.4.linear.bias",
    )
    assert {int(x.split(".")[1]) for x in names} == set(range(5))
