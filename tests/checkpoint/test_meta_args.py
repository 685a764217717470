"""Meta's `params.json`: every published form, and the conversion to Hugging Face's keys and back."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.checkpoint.meta_args import args_to_config, config_to_args, ffn_width, ffn_width_args
from llamath.core.config import Config

LLAMA1 = {"multiple_of": 256, "norm_eps": 1e-06, "vocab_size": -1}
PUBLISHED: list[tuple[dict[str, Any], int, int]] = [  # params.json, vocabulary, total
    (LLAMA1 | {"dim": 4096, "n_heads": 32, "n_layers": 32}, 32000, 6_738_415_616),
    (LLAMA1 | {"dim": 5120, "n_heads": 40, "n_layers": 40}, 32000, 13_015_864_320),
    (LLAMA1 | {"dim": 6656, "n_heads": 52, "n_layers": 60}, 32000, 32_528_943_616),
    (LLAMA1 | {"dim": 8192, "n_heads": 64, "n_layers": 80}, 32000, 65_285_660_672),
    (
        LLAMA1 | {"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80},
        32000,
        68_976_648_192,
    ),
    ({"dim": 4096, "n_layers": 32, "n_heads": 32, "multiple_of": 256, "ffn_dim_multiplier": 1.0, "norm_eps": 1e-5, "rope_theta": 1000000}, 32016, 6_738_546_688),
    ({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256, "multiple_of": 1024, "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05, "rope_theta": 500000.0}, 128256, 8_030_261_248),
    ({"dim": 8192, "ffn_dim_multiplier": 1.3, "multiple_of": 4096, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True, "vocab_size": 128256}, 128256, 70_553_706_496),
    ({"dim": 16384, "ffn_dim_multiplier": 1.2, "multiple_of": 4096, "n_heads": 128, "n_kv_heads": 8, "n_layers": 126, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True, "vocab_size": 128256}, 128256, 405_853_388_800),
    ({"dim": 3072, "ffn_dim_multiplier": 1.0, "multiple_of": 256, "n_heads": 24, "n_kv_heads": 8, "n_layers": 28, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": True, "vocab_size": 128256}, 128256, 3_212_749_824 + 128256 * 3072),
]  # fmt: skip


@pytest.mark.parametrize(("params", "vocabulary", "total"), PUBLISHED)
def test_published_params_json(
    params: dict[str, Any], vocabulary: int, total: int, tmp_path: Path
) -> None:
    path = tmp_path / "params.json"
    path.write_text(json.dumps(params))
    model = llamath.load(
        path, vocab_size=vocabulary if params.get("vocab_size", -1) == -1 else None
    )
    assert model.parameters.total == total
    folder = llamath.load(
        tmp_path, vocab_size=vocabulary if params.get("vocab_size", -1) == -1 else None
    )
    assert folder.parameters == model.parameters


def test_tie_word_embeddings_can_be_set_for_params_json() -> None:
    model = llamath.load(PUBLISHED[-1][0], changes={"tie_word_embeddings": True})
    assert model.parameters.total == 3_212_749_824
    assert any("output matrix is tied" in note for note in model.notes)


def test_vocab_size_is_taken_from_tokenizer_model(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(PUBLISHED[0][0]))
    with pytest.raises(llamath.ConfigError, match="vocab_size is −1") as error:
        llamath.load(tmp_path)
    assert "set vocab_size" in error.value.hint
    pieces = b"".join(b"\n\x05\n\x03" + f"{i:03}".encode()[-3:] for i in range(32000))
    (tmp_path / "tokenizer.model").write_bytes(pieces + b"\x12\x02\x08\x01")
    assert llamath.load(tmp_path).parameters.total == 6_738_415_616
    (tmp_path / "tokenizer.model").write_bytes(
        b"".join(base64.b64encode(b"x%d" % i) + b" %d\n" % i for i in range(128000))
    )
    assert llamath.load(tmp_path).tree.vocab == 128256


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\n\xff\xff\xff\xff\xff\xff", b"\x08\x01", b"IQ== 1\n", b"\n\x05abc"]
)
def test_broken_tokenizer_model_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(PUBLISHED[0][0]))
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(llamath.FormatError):
        llamath.load(tmp_path)


@pytest.mark.parametrize(
    ("dim", "F", "first"),
    [
        (4096, 11008, (256, None)),
        (4096, 14336, (1024, 1.3)),
        (8192, 28672, (1024, 1.3)),
        (16384, 53248, (1024, 1.2)),
        (2048, 8192, (1024, 1.5)),
    ],
)
def test_arguments_are_inferred_from_ffn_width(
    dim: int, F: int, first: tuple[int, float | None]
) -> None:
    arguments = list(ffn_width_args(dim, F))
    assert arguments[0] == first
    assert all(ffn_width(dim, m, x) == F for m, x in arguments)


@pytest.mark.parametrize(("params", "vocabulary", "total"), PUBLISHED)
def test_conversion_to_hf_keys_and_back_is_exact(
    params: dict[str, Any], vocabulary: int, total: int
) -> None:
    model = llamath.load(params | {"vocab_size": vocabulary})
    args = config_to_args(model.config)
    assert args_to_config(args) == dict(model.config.data)
    assert llamath.load(args).parameters.total == total


@pytest.mark.parametrize(
    "key",
    [
        "dim",
        "n_layers",
        "n_heads",
        "multiple_of",
        "n_kv_heads",
        "ffn_dim_multiplier",
        "norm_eps",
        "rope_theta",
        "use_scaled_rope",
    ],
)
@pytest.mark.parametrize(
    "value",
    [0, -1, "x", [], {}, float("nan"), 10**400],
    ids=["0", "-1", "text", "list", "object", "nan", "huge"],
)
def test_invalid_arguments_are_errors(key: str, value: object) -> None:
    harmless = {"norm_eps": (0, -1), "rope_theta": (0, -1)}
    if value in harmless.get(key, ()):
        pytest.skip("changes no weight")
    with pytest.raises(llamath.LlamathError):
        llamath.load(PUBLISHED[7][0] | {key: value})


def test_features_missing_in_the_reference_are_named() -> None:
    base = args_to_config(llamath.ModelArgs(vocab_size=32000))
    for change, word in [
        ({"attention_bias": True}, "biases"),
        ({"head_dim": 64}, "dim / n_heads"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "scaling"),
    ]:
        with pytest.raises(llamath.ConfigError, match=word):
            config_to_args(Config(base | change))


def test_model_keeps_the_given_arguments() -> None:
    """70B: 1024 and 1.3 would give the same width, but the file has other values."""
    model = llamath.load(PUBLISHED[7][0])
    assert model.args is not None and (model.args.multiple_of, model.args.ffn_dim_multiplier) == (
        4096,
        1.3,
    )
    assert llamath.load(PUBLISHED[7][0], changes={"num_hidden_layers": 3}).args is None


MISTRAL = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-5,
    "vocab_size": 32000,
}


def test_mistral_params_json_gives_its_own_width() -> None:
    assert llamath.load(MISTRAL).parameters.total == 7_241_732_096


@pytest.mark.parametrize("key", ["moe", "moe_args", "ffn_exp", "vision_num_cross_attention_layers"])
def test_params_json_with_unsupported_keys_is_an_error(key: str) -> None:
    with pytest.raises(llamath.ConfigError, match=f"{key} needs experts or images") as error:
        llamath.load(MISTRAL | {key: {"num_experts": 8} if key.startswith("moe") else 8})
    assert "config.json" in error.value.hint


def test_errors_use_the_key_names_of_params_json() -> None:
    for change, word in [
        ({"n_kv_heads": 5}, "n_kv_heads is 5"),
        ({"n_heads": 33, "n_kv_heads": 33}, "n_heads is 33"),
    ]:
        with pytest.raises(llamath.ConfigError, match=word):
            llamath.load(PUBLISHED[6][0] | change)


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("ModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=None, vocab_size=32000, multiple_of=256, ffn_dim_multiplier=None, norm_eps=1e-05, rope_theta=10000.0)", 6_738_415_616),
        ("ModelArgs(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, vocab_size=128256, multiple_of=1024, ffn_dim_multiplier=1.3, rope_theta=500000, use_scaled_rope=True,)", 8_030_261_248),
        ("  ModelArgs(\n    vocab_size=32000,\n)\n", 6_738_415_616),
        ("dim=4096,n_layers=32,n_heads=32,n_kv_heads=None,vocab_size=32000", 6_738_415_616),
        (repr(llamath.ModelArgs(vocab_size=32000)), 6_738_415_616),
    ],
)  # fmt: skip
def test_printed_model_args_are_a_model(text: str, total: int) -> None:
    model = llamath.load(text)
    assert model.parameters.total == total
    if "rope_theta=500000" in text:
        assert model.tree.layers[0].attn.rope.theta == 500_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ModelArgs()", "vocab_size is absent"), ("ModelArgs(dim=4096", "no ModelArgs"), ("ModelArgs(dim=f(1))", "no ModelArgs"),
        ("ModelArgs(dim=None)", "dim=None"), ("ModelArgs(dim=4096, dim=2)", "twice"), ("ModelArgs(width=3)", "unknown key"),
        ("ModelArgs(4096)", "unknown key"), ("ModelArgs(" + "1" * 3000 + ")", "no ModelArgs"),
    ],
)  # fmt: skip
def test_broken_model_args_are_named(text: str, words: str) -> None:
    with pytest.raises(llamath.ConfigError, match=words):
        llamath.load(text)


LARGE_3: dict[str, Any] = {
    "dim": 7168, "head_dim": 192, "hidden_dim": 16384, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_heads": 128, "n_kv_heads": 128, "n_layers": 61, "norm_eps": 1e-06, "rope_theta": 10000.0, "tied_embeddings": False,
    "vocab_size": 131072, "max_position_embeddings": 294912, "max_seq_len": 262144,
    "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
    "moe": {
        "expert_hidden_dim": 4096, "expert_model_parallel": 1, "expert_parallel": 1, "first_k_dense_replace": 3, "num_expert_groups": 1,
        "num_expert_groups_per_tok": 1, "num_experts": 128, "num_experts_per_tok": 4, "num_shared_experts": 1, "route_every_n": 1, "routed_scale": 1.0,
    },
    "yarn": {"alpha": 1, "apply_scale": False, "beta": 32, "factor": 36, "original_max_position_embeddings": 8192},
    "vision_encoder": {
        "hidden_size": 1664, "image_size": 1540, "intermediate_size": 8192, "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 48,
        "patch_size": 14, "rope_theta": 10000.0,
    },
}  # fmt: skip
"""The published params.json of Mistral Large 3: 673B parameters of text, 675B in all."""


def test_params_json_with_latent_attention(tmp_path: Path) -> None:
    path = tmp_path / "params.json"
    path.write_text(json.dumps(LARGE_3))
    model = llamath.load(path)
    assert model.parameters.parts == {"text": 673_421_089_792, "vision": 2_570_087_168}
    assert model.tree.context == 262_144
    assert model.notes == (
        "tensors have the names of transformers' class; files of params.json have others",
    )
    assert model.parameters == llamath.load("mistral-large-3").parameters
    text = {key: x for key, x in LARGE_3.items() if key != "vision_encoder"}
    assert llamath.load(text, changes={"n_layers": 4}).tree.layers.n == 4
    assert llamath.load(text).family.name == "mistral4"


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("", "head_dim", 128, "head_dim should be 192, not 128"),
        ("", "n_kv_heads", 8, "n_kv_heads should be 128, not 8"),
        ("moe", "num_experts", "128", "moe.num_experts should be a positive integer"),
        ("moe", "num_experts", None, "moe.num_experts is missing"),
        ("llama_4_scaling", "original_max_position_embeddings", 4096, "should be 8192, not 4096"),
        ("vision_encoder", "mm_projector_id", "mlp", "should be patch_merge, not mlp"),
    ],
)
def test_broken_latent_params_name_the_key(
    section: str, key: str, value: object, message: str
) -> None:
    inner = {**LARGE_3.get(section, {}), key: value}
    with pytest.raises(llamath.ConfigError, match=message):
        llamath.load({**LARGE_3, **({section: inner} if section else {key: value})})


def test_unknown_latent_params_are_named() -> None:
    moe = {**LARGE_3["moe"], "gating": "noisy"}
    assert "ignored config keys: moe.gating" in llamath.load({**LARGE_3, "moe": moe}).notes


@pytest.mark.parametrize("value", ["36", "\x1b[31m", [], {}, True, -1, 10**30, 1e308])
def test_latent_params_of_other_types_are_read_or_refused(value: object) -> None:
    for section, keys in {
        "": LARGE_3,
        **{x: y for x, y in LARGE_3.items() if type(y) is dict},
    }.items():
        for key in keys:
            inner = {**keys, key: value}
            changed = {**LARGE_3, section: inner} if section else inner
            try:
                total = llamath.load(changed).parameters.total
            except llamath.LlamathError as error:
                assert "\x1b" not in str(error)
            else:
                assert total > 0
