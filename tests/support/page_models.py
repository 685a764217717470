"""Models of the page's tests: data of those of the catalog, made once in a run of the tests, and small checkpoints."""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.model import FamilyModel, Model
from llamath.web.forms.page_forms import with_family_forms
from llamath.web.page_data import page_data
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.live.live_data import bundled_live_parts
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import model_page, page_from_data

HOSTILE = (
    "<img src=x onerror=pwned()>",
    "\"'><script>pwned()</script>",
    "model.layers.9.__proto__",
    "javascript:pwned()",
    "\u202egnp",
)


WITH_VARIANTS = frozenset(
    {"llama-3-8b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt2", "gpt2-medium"}
)
"""Models whose pages may edit what is no dimension: a tied head, experts in the place of FFNs.
Those after the first are measured, or compared with what a server sends."""


@cache
def model_of(slug: str) -> Model:
    return llamath.load(slug)


def once_in_a_run(name: str, make: Callable[[], Any]) -> Any:
    """Return what the first process of a run of the tests has made, a copy for each call; the
    others wait for it.
    """
    kept = Path(os.environ["LLAMATH_TEST_RUN"]) / name
    with kept.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            part = kept.with_name(f"{name}.part")
            part.write_bytes(pickle.dumps(make()))
            part.replace(kept)
    return pickle.loads(kept.read_bytes())


@contextmanager
def made_once() -> Iterator[None]:
    """Make the data of each model of the catalog once in a run; those of most without their
    variants, each of which takes nearly as long again.
    """
    make = page_data._model

    def made(model: FamilyModel, variants: bool) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            if not variants:
                patch.setattr(page_data, "template_variants", lambda *_: iter(()))
            return make(model)

    def found(model: FamilyModel) -> dict[str, Any]:
        slug = model.preset.slug if model.preset is not None else ""
        if not slug or model != model_of(slug):
            return made(model, variants=False)
        data: dict[str, Any] = once_in_a_run(
            f"page-data-{slug}", lambda: made(model, slug in WITH_VARIANTS)
        )
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_data, "_model", found)
        yield


@cache
def data_of(*slugs: str) -> dict[str, Any]:
    """Return the data of a page of models of the catalog."""
    return build_page_data([model_of(x) for x in slugs])


def own_data(model: FamilyModel) -> dict[str, Any]:
    """Return the data of a model as the page makes them."""
    (data,) = as_made(build_page_data([model]))["models"]
    return data


def as_sent(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a page as they are in it: the templates of its models."""
    return {**page, "models": [x["template"] for x in page["models"]]}


def as_made(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a page as its script makes them: its models without templates."""
    models = [{k: v for k, v in x.items() if k != "template"} for x in page["models"]]
    return {**page, "models": models}


@cache
def page_of(*slugs: str) -> str:
    """Return the exported page of one or two models of the catalog."""
    return page_from_data(with_family_forms(data_of(*slugs)))


@cache
def live_page() -> str:
    """Return the page of the bundled model, which it runs."""
    models = [load_with_checkpoint("embedded")]
    return model_page(models, bundled_live_parts(models))


def write_checkpoint(folder: Path, hostile: bool = False) -> Path:
    """Write a small Llama as safetensors; the hostile one lacks a matrix, has a transposed one, and tensors whose names are markup."""
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
    }
    config = {
        "model_type": "llama",
        "vocab_size": 320,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-5,
        **sizes,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    model = llamath.load(config)
    names, tensors = model.scheme("hf").flat_tensors(model.tree)
    shapes = {name: [int(n) for n in x.shape] for name, x in zip(names, tensors, strict=True)}
    if hostile:
        del shapes["model.layers.1.mlp.down_proj.weight"]
        shapes["model.layers.0.self_attn.k_proj.weight"].reverse()
        shapes |= {name: [1] for name in HOSTILE}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    return folder
