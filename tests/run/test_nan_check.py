"""A NaN or infinite weight is named, of every kind and wherever a pass would hide it; finite weights are checked once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import llamath
from llamath.cli import main
from llamath.core.tree import walk
from llamath.torch import Decoder, Generation, GenerationLimits, Sampling, build, initialize
from llamath.torch import load_weights as give
from llamath.torch.debug.nan_check import has_nonfinite, nonfinite_check
from llamath.utils.errors import LlamathError
from support.each_case import each
from support.tiny_checkpoint import CONFIG, tiny_checkpoint

TINY = Path(__file__).parents[1] / "tiny"
MODELS = (
    "qwen3/plain",
    "gpt_oss/plain",
    "deepseek_v3/plain",
    "qwen3_next/plain",
    "nemotron_h/latent experts, biased",
    "mamba/plain",
    "gpt2/plain",
)
PROMPT = [5, 6, 7, 9]


def known(name: str) -> llamath.Model:
    family, label = name.split("/")
    return llamath.load(json.loads((TINY / f"{family}.json").read_text())[label])


def tiny(name: str, dtype: torch.dtype = torch.float32) -> Decoder:
    return initialize(build(known(name), dtype), 1, 0.2)


def kinds() -> Iterator[Any]:
    """Every kind of weight of these models."""
    for name in MODELS:
        for pattern in dict.fromkeys(
            x.pattern for x in walk(known(name).tree) if not x.weight.tied
        ):
            yield pytest.param(name, pattern, id=f"{name.partition('/')[0]} {pattern}")


def spoil(module: Decoder, pattern: str, number: float) -> str:
    """Set one value of each weight of this kind in the last layer that has it; return the first path."""
    paths = [x.path for x in walk(module.spec) if x.pattern == pattern]
    last = ".".join(paths[-1].split(".")[:2]) if pattern.startswith("layers.") else ""
    mine = [path for path in paths if path.startswith(last)]
    with torch.no_grad():
        for path in mine:
            owner, _, name = path.rpartition(".")
            getattr(module.get_submodule(owner), name).view(-1)[-1] = number
    return mine[0]


def report_of(module: Decoder, tokens: int = 3) -> str:
    try:
        for _ in Generation(module, [PROMPT], Sampling(), GenerationLimits(max_tokens=tokens)):
            pass
    except LlamathError as error:
        return str(error)
    return ""


@each(("name", "pattern"), list(kinds()))
def test_every_kind_of_weight_is_checked(name: str, pattern: str) -> None:
    module = tiny(name)
    first = spoil(module, pattern, float("nan"))
    message, before = (
        report_of(module, 12),
        first.partition(".experts.")[0] + (".experts." if ".experts." in first else ""),
    )
    assert message.startswith(f"the weight {before}") and " is NaN in 1 of its " in message
    assert message.split()[2].endswith(pattern.rpartition("}")[2])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_is_checked(number: float, dtype: torch.dtype) -> None:
    module = tiny("qwen3/plain", dtype)
    path = spoil(module, "layers.{l}.attn.k.weight", number)
    assert report_of(module).startswith(
        f"the weight {path} is {'NaN' if number != number else 'infinite'} in 1 of its"
    )


def test_unused_embedding_row_is_checked() -> None:
    module = tiny("gpt2/plain")
    assert spoil(module, "embed.weight", float("nan")) == "embed.weight"  # in its last row
    assert max(PROMPT) < len(module.embed.weight) - 1
    assert report_of(module).startswith("the weight embed.weight is NaN")


def test_unused_expert_is_not_read() -> None:
    module = tiny("deepseek_v3/plain")
    met: set[str] = set()
    inside = [
        (path, part)
        for path, part in module.named_modules()
        if path.rpartition(".")[0].endswith(".experts")
    ]
    handles = [
        part.register_forward_hook(lambda *_, path=path: met.add(path)) for path, part in inside
    ]
    assert report_of(module, 1) == ""
    for handle in handles:
        handle.remove()
    unmet = [path for path, _ in inside if path not in met]
    assert met and unmet
    for path in (unmet[0], sorted(met)[0]):
        again = tiny("deepseek_v3/plain")
        with torch.no_grad():
            again.get_parameter(f"{path}.up.weight")[0, 0] = float("nan")
        message = report_of(again, 1)
        assert (
            message.startswith(f"the weight {path}.up.weight is NaN")
            if path in met
            else message == ""
        )


def test_overflowing_sum_is_not_an_error() -> None:
    large = torch.full((300,), 60_000.0, dtype=torch.float16)
    assert not torch.isfinite(large.sum()) and not has_nonfinite(large)
    module = tiny("qwen3/plain", torch.float16)
    with torch.no_grad():
        module.layers[0].attn_norm.weight.fill_(60_000.0)
    nonfinite_check(module)
    with torch.inference_mode():
        module(torch.tensor([PROMPT]))
    assert not nonfinite_check(module).is_clean
    nonfinite_check(module).raise_if_bad()


def test_checked_weights_are_not_checked_again() -> None:
    module = tiny("qwen3/plain")
    assert report_of(module) == ""
    known = nonfinite_check(module)
    assert not any(x._forward_pre_hooks for x in module.modules())
    assert report_of(module) == "" and nonfinite_check(module) is known
    with torch.no_grad():
        module.embed.weight[PROMPT[0] - 1] = float("nan")  # a row that the prompt does not read
    with torch.inference_mode():
        module(torch.tensor([PROMPT]))
    known.raise_if_bad()


def test_replaced_weights_are_checked() -> None:
    module, other = tiny("qwen3/plain"), tiny("qwen3/plain")
    assert report_of(module) == ""
    path = spoil(other, "layers.{l}.attn_norm.weight", float("nan"))
    give(module, [(x, other.get_parameter(x).detach()) for x in dict(other.named_parameters())])
    assert report_of(module).startswith(f"the weight {path} is NaN")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checkpoints with NaN in a weight that every token uses, and in an embedding row that no token uses."""
    found = {}
    for word, name in (
        ("READ", "model.layers.1.self_attn.v_proj.weight"),
        ("UNREAD", "model.embed_tokens.weight"),
    ):
        checkpoint = tiny_checkpoint(tmp_path_factory.mktemp(word), vocab_size=CONFIG["vocab_size"])
        numbers = load_file(checkpoint / "model.safetensors")
        numbers[name][-1, 1] = float("nan")
        save_file(numbers, checkpoint / "model.safetensors", {"format": "pt"})
        found[word] = str(checkpoint)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["run", "READ", "The cat", "--engine", "native"],
        ["run", "READ", "The cat", "--engine", "torch"],
        ["run", "UNREAD", "The cat", "--engine", "torch"],
        ["run", "READ", "--chat", "--chat-template", "chatml", "--engine", "native"],
        ["run", "UNREAD", "--chat", "--chat-template", "chatml", "--engine", "torch"],
        ["trace", "READ", "The cat"],
        ["trace", "UNREAD", "The cat"],
        ["same", "READ", "READ", "--logits"],
    ],
    ids=" ".join,
)
def test_commands_name_the_weight_and_exit_with_2(
    words: list[str],
    folders: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import io

    monkeypatch.setattr(sys, "argv", ["llamath", *(folders.get(x, x) for x in words)])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    path, size = (
        ("layers.1.attn.v.weight", "512") if "READ" in words else ("embed.weight", "10,240")
    )
    assert f"the weight {path} is NaN in 1 of its {size} values" in err
    assert end.value.code == 2 and "Traceback" not in out + err
