"""A head that is stored although the config ties it to the embedding: every command takes it as transformers does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file
from torch import Tensor

import llamath
from llamath.analysis.check.verify.verified_checkpoint import open_verified
from llamath.checkpoint import tensor_reader
from llamath.cli import cli
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.loading import STORED_INSTEAD
from llamath.native.native_session import load_native
from llamath.torch import open_model
from support.gguf_files import TINY, load_tiny_configs
from support.native_models import native_logits
from support.planted_checkpoints import random_tensors, save_folder
from support.small_llama import IDS, copy_checkpoint, save_llama
from support.transformers_pair import logits, relative_difference

pytestmark = pytest.mark.transformers

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
EMBEDDING = 97 * 48
OTHER = torch.randn(97, 48, generator=torch.Generator().manual_seed(7)) * 0.1
Numbers = dict[str, Tensor]


def put(numbers: Numbers, **stored: Tensor) -> None:
    numbers |= {{"embed": EMBED, "head": HEAD}[name]: x for name, x in stored.items()}


def last_value(numbers: Numbers) -> None:
    put(numbers, head=numbers[EMBED].clone())
    numbers[HEAD][-1, -1] += 0.25


VARIANTS: dict[str, Callable[[Numbers], object]] = {
    "not stored": lambda _: None,
    "equal": lambda x: put(x, head=x[EMBED].clone()),
    "equal in another dtype": lambda x: put(
        x, head=x[EMBED].bfloat16().float(), embed=x[EMBED].bfloat16()
    ),
    "head alone": lambda x: put(x, head=x.pop(EMBED)),
    "differs": lambda x: put(x, head=OTHER.clone()),
    "differs in the last value": last_value,
    "differs in another dtype": lambda x: put(x, head=OTHER.bfloat16()),
    "differs by rounding": lambda x: put(x, head=x[EMBED].clone(), embed=x[EMBED].bfloat16()),
}


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama whose config ties its head."""
    return save_llama(tmp_path_factory.mktemp("hf"), "F32", tie_word_embeddings=True)


@torch.no_grad()
def engine_logits(path: Path) -> dict[str, Tensor]:
    """The logits of both engines."""
    native, _, _ = load_native(open_verified(str(path)), "float32")
    return {
        "torch": open_model(str(path), "float32").module(IDS),
        "native": torch.stack([native_logits(native, ids) for ids in IDS.tolist()]),
    }


@torch.no_grad()
def test_stored_heads_are_taken_as_transformers_takes_them(tied: Path, tmp_path: Path) -> None:
    import transformers

    for name, change in VARIANTS.items():
        folder = copy_checkpoint(tied, tmp_path / name, change)
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32
        )
        is_tied = theirs.lm_head.weight is theirs.model.embed_tokens.weight
        assert is_tied is not name.startswith("differs"), name
        total = sum(x.numel() for x in theirs.parameters())
        model = llamath.load(str(folder))
        assert model.parameters.total == total == llamath.count(str(folder)).total, name
        assert any(x.startswith(STORED_INSTEAD) for x in model.notes) is not is_tied, name
        assert [HEAD in str(x.names) for x in llamath.names(str(folder)).weights].count(True) == (
            0 if is_tied else 1
        ), name
        assert llamath.memory(str(folder), dtype="fp32").contexts[0].weights == 4 * total, name
        expected = logits(theirs, IDS)
        for engine, found in engine_logits(folder).items():
            assert relative_difference(found, expected) < 1e-5, (name, engine)
        report = llamath.verify(str(folder))
        codes = {x.code for x in report.findings if x.tensors == (HEAD,)}
        assert codes == (
            {"untied_copy"} if not is_tied else set() if name == "not stored" else {"tied_copy"}
        ), (name, report.findings)
        assert report.ok is (is_tied and "dtype" not in name), (name, report.findings)
        assert CliRunner().invoke(cli, ["verify", str(folder)]).exit_code == (
            0 if report.ok else 1
        ), name


@torch.no_grad()
def test_conversion_keeps_a_stored_head(tied: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(tied, tmp_path / "hf", VARIANTS["differs"])
    expected = engine_logits(folder)["torch"]
    source = folder
    for kind in ("gguf", "hf", "meta"):
        report = (
            convert_checkpoint(str(source), str(tmp_path / kind), ConvertOptions(to=kind))
            if kind != "hf"
            else None
        )
        if kind == "hf":
            report = convert_checkpoint(
                str(source), str(tmp_path / "again"), ConvertOptions(to="hf")
            )
            assert (
                json.loads((tmp_path / "again" / "config.json").read_text())["tie_word_embeddings"]
                is False
            )
        source = tmp_path / ("again" if kind == "hf" else kind)
        assert report is not None and llamath.verify(str(source)).ok, kind
        assert (
            llamath.load(str(source)).parameters.total == llamath.load(str(folder)).parameters.total
        ), kind
        for engine, found in engine_logits(source).items():
            assert relative_difference(found, expected) < 1e-5, (kind, engine)


def test_other_shape_of_a_stored_head_is_refused(tied: Path, tmp_path: Path) -> None:
    import transformers

    folder = copy_checkpoint(tied, tmp_path / "wide", lambda x: put(x, head=torch.ones(103, 48)))
    with pytest.raises(RuntimeError):
        transformers.AutoModelForCausalLM.from_pretrained(folder)
    report = llamath.verify(str(folder))
    assert [(x.code, "[103, 48], not [97, 48]" in x.message) for x in report.findings] == [
        ("untied_copy", True)
    ]
    for open_it in (
        open_verified,
        lambda x: convert_checkpoint(x, str(tmp_path / "new"), ConvertOptions(to="gguf")),
    ):
        with pytest.raises(llamath.LlamathError, match=r"lm_head.weight is \[103, 48\]"):
            open_it(str(folder))


def test_changes_of_the_config_decide_over_files(tied: Path, tmp_path: Path) -> None:
    folder = copy_checkpoint(tied, tmp_path / "hf", VARIANTS["differs"])
    total = llamath.load(str(folder)).parameters.total
    assert (
        llamath.load(str(folder), changes={"tie_word_embeddings": True}).parameters.total
        == total - EMBEDDING
    )
    with pytest.raises(
        llamath.LlamathError, match=r"lm_head\.weight differs from model\.embed_tokens\.weight"
    ):
        open_verified(str(folder), {"tie_word_embeddings": True})
    assert llamath.verify(str(folder), changes={"tie_word_embeddings": False}).ok


def test_values_are_read_once_and_only_up_to_a_difference(
    tied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal heads are read once by a command that opens them several times; a checkpoint without a second head is not read."""
    rows = list[tuple[str, int]]()
    read_rows = tensor_reader.TensorReader.read_rows

    def counted(self: Any, tensor: Any, first: int, last: int) -> bytes:
        rows.append((tensor.name, last - first))
        return read_rows(self, tensor, first, last)

    monkeypatch.setattr(tensor_reader.TensorReader, "read_rows", counted)
    monkeypatch.setattr(tensor_reader, "CHUNK_BYTES", 48 * 4 * 10)
    for name, expected in (
        ("not stored", 0),
        ("equal", 2 * 97),
        ("differs", 2 * 10),
        ("differs in the last value", 2 * 97),
    ):
        folder = copy_checkpoint(tied, tmp_path / name, VARIANTS[name])
        rows.clear()
        llamath.verify(str(folder))
        llamath.count(str(folder))
        llamath.memory(str(folder))
        assert sum(n for _, n in rows) == expected, name


def test_families_without_a_head_of_their_own_refuse(tmp_path: Path) -> None:
    """Zamba's blocks are shared by the key that ties its head; OpenELM has another key."""
    refused = set()
    for label, config in load_tiny_configs().items():
        model = llamath.load(dict(config))
        if (names := next(iter(model.tied_names), None)) is None or "," in label:
            continue
        tensors = random_tensors(model, model.family.hf, std=0.3)
        folder = save_folder(
            tmp_path / label,
            config,
            tensors | {names.copy: torch.randn(names.shape)},
            torch.float32,
        )
        assert {x.code for x in llamath.verify(str(folder)).findings if x.severity != "info"} == {
            "untied_copy"
        }, label
        try:
            untied = llamath.load(str(folder))
        except llamath.ConfigError as error:
            assert "has no head of its own" in str(error), label
            refused.add(model.family.name)
        else:
            rows, width = names.shape
            assert untied.parameters.total == model.parameters.total + rows * width, label
    assert refused == {"zamba", "zamba2", "openelm"}


@pytest.mark.usefixtures("classes_built_here")
def test_stored_copies_of_models_without_a_family(tmp_path: Path) -> None:
    """T5 ties three matrices to one."""
    import transformers

    sizes = {
        "vocab_size": 64,
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 24,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 4,
    }
    torch.manual_seed(0)
    model = transformers.AutoModelForSeq2SeqLM.from_config(
        transformers.AutoConfig.for_model("t5", **sizes)
    )
    model.save_pretrained(tmp_path / "t5")
    shared, copy = "shared.weight", "decoder.embed_tokens.weight"
    for name, change, ok in (
        ("equal", lambda x: x.__setitem__(copy, x[shared].clone()), True),
        ("copy alone", lambda x: x.__setitem__(copy, x.pop(shared)), True),
        ("differs", lambda x: x.__setitem__(copy, torch.ones(64, 16)), False),
    ):
        folder = copy_checkpoint(tmp_path / "t5", tmp_path / name, change)
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        report = llamath.verify(str(folder), via="transformers")
        assert report.ok is ok and (ok or [x.code for x in report.findings] == ["untied_copy"]), (
            name,
            report.findings,
        )
        assert llamath.count(str(folder), via="transformers").total == sum(
            x.numel() for x in theirs.parameters()
        ), name


def test_text_model_of_a_multimodal_model(tmp_path: Path) -> None:
    """The head of a tied Gemma 3 with images, whose config has the key outside of the text model's section."""
    (config,) = [
        x
        for name, x in json.loads(
            (TINY.parent / "tiny_multimodal" / "gemma3.json").read_text()
        ).items()
        if name == "plain"
    ]
    model = llamath.load(config)
    names = next(iter(model.tied_names))
    tensors = random_tensors(model, model.family.hf, std=0.3)
    folder = save_folder(
        tmp_path / "hf", config, tensors | {names.copy: torch.randn(names.shape)}, torch.float32
    )
    untied = llamath.load(str(folder))
    assert (
        untied.is_multimodal
        and untied.parameters.total == model.parameters.total + torch.Size(names.shape).numel()
    )
    assert torch.equal(
        dict(open_model(str(folder)).module.named_parameters())["head.weight"],
        read_tensor(folder, names.copy),
    )


def read_tensor(folder: Path, name: str) -> Tensor:
    return load_file(folder / "model.safetensors")[name]
