"""`Contract`: a tiny configuration with all that is built of it, once, and the named checks that run on it.

A check is a function of the modules in `tests/contract/checks`, marked by `@check`. The test of a configuration runs all of them and
names those that fail. `pytest -k FAMILY` chooses configurations, `--check WORD` checks whose names contain it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import llamath
from llamath.core.multimodal import is_computed
from llamath.core.tree import Block, Stack
from support.reference_data import TINY

if TYPE_CHECKING:
    import torch

    from llamath.native.engine import NativeModel
    from llamath.torch import Decoder
    from support.transformers_pair import Pair

FOLDERS = {
    "text": TINY,
    "unproven": TINY.with_name("tiny_unproven"),
    "multimodal": TINY.with_name("tiny_multimodal"),
}
"""Where configurations are: of text models, of those without a class in transformers, and of whole multimodal models."""
FAST = ("counted", "shards", "graphs")
"""Modules of checks that need neither torch nor transformers; `make test-fast` runs these alone."""
SLOW = (
    "reports",
    "modules",
    "lockstep",
    "native",
    "layouts",
    "conversion",
    "names",
    "logits",
    "flops",
    "multimodal",
)


class Contract:
    """A tiny configuration, and what is built of it when a check first asks; checks leave it as it was."""

    def __init__(
        self,
        name: str,
        kind: str,
        config: dict[str, Any],
        folder: Path,
        everything: bool = False,
    ) -> None:
        self.name, self.kind, self.config, self._folder = name, kind, config, folder
        self._everything = everything

    @property
    def model_type(self) -> str:
        return str(self.config["model_type"])

    @property
    def is_first(self) -> bool:
        """Whether this is the first configuration of its model type."""
        return self.name in plain_names()

    @property
    def has_new_block(self) -> bool:
        """Whether a block of this configuration is in none before it; with `--all`, True."""
        return self._everything or self.name in new_names()

    @property
    def is_new(self) -> bool:
        """Whether this is the first configuration of its model type, and has a new block."""
        return self.is_first and self.has_new_block

    @property
    def is_thorough(self) -> bool:
        """Whether checks repeat themselves in other ways here: for new ones, with `--all` for each."""
        return self._everything or self.is_new

    @cached_property
    def model(self) -> llamath.Model:
        return llamath.load(dict(self.config))

    @property
    def tree(self) -> Any:
        """The tree of the text model, or of the whole multimodal one."""
        return self.model.tree

    @cached_property
    def is_computed(self) -> bool:
        """Whether the text model has a forward pass, and is not counted only."""
        return is_computed(self.model.text.tree)

    @cached_property
    def module(self) -> Decoder:
        """The torch module of the text model with random weights in float32."""
        from llamath.torch import build, initialize

        return initialize(build(self.tree), std=0.1)

    @cached_property
    def pair(self) -> Pair:
        """The model in transformers, and the torch module with its weights."""
        from support.transformers_pair import make_pair

        return make_pair(self.config)

    @cached_property
    def bfloat16_pair(self) -> Pair:
        """The same in bfloat16."""
        import torch

        from support.transformers_pair import copy_pair

        return copy_pair(self.pair, torch.bfloat16)

    @cached_property
    def random_module(self) -> Decoder:
        """A torch module whose weights, norms and biases are all random."""
        from support.native_models import random_module

        return random_module(self.config)

    @cached_property
    def native(self) -> NativeModel:
        """The same on the native engine."""
        from support.native_models import native_model

        return native_model(self.random_module)

    @cached_property
    def published(self) -> dict[str, torch.Tensor]:
        """Random tensors with the names and shapes of a published checkpoint, the same each time."""
        import torch

        generator = torch.Generator().manual_seed(0)
        shapes = {
            x.name: tuple(map(int, x.shape)) for x in self.model.scheme("hf").tensors(self.tree)
        }
        return {
            name: (torch.randn(shape, generator=generator) / 10).bfloat16()
            for name, shape in shapes.items()
        }

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder for one check."""
        with TemporaryDirectory(dir=self._folder) as folder:
            yield Path(folder)


class Check(NamedTuple):
    """A function that raises if something does not hold for a configuration, and the configurations that it is about."""

    run: Callable[[Contract], None]
    kinds: tuple[str, ...]
    computed: bool
    new: bool

    @property
    def name(self) -> str:
        return f"{self.run.__module__.rpartition('.')[2]}.{self.run.__name__}"


_FOUND: list[Check] = []


def check(
    *kinds: str, computed: bool = False, new: bool = False
) -> Callable[[Callable[[Contract], None]], Callable[[Contract], None]]:
    """Mark a function as a check of configurations of these kinds; if `computed`, of those that have a forward pass; if `new`, of those
    with a new block."""
    assert kinds and set(kinds) <= FOLDERS.keys()

    def add(function: Callable[[Contract], None]) -> Callable[[Contract], None]:
        _FOUND.append(Check(function, kinds, computed, new))
        return function

    return add


def checks(kind: str, *, fast: bool, word: str = "") -> list[Check]:
    """Return the checks of configurations of this kind whose names contain the word."""
    for name in FAST if fast else FAST + SLOW:
        import_module(f"contract.checks.{name}")
    modules = {f"contract.checks.{x}" for x in (FAST if fast else FAST + SLOW)}
    return [x for x in _FOUND if kind in x.kinds and word in x.name and x.run.__module__ in modules]


def configurations() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return each tiny configuration by its name, with its kind."""
    return {
        (name if kind == "text" else f"{kind}-{name}"): (kind, config)
        for kind, folder in FOLDERS.items()
        for name, config in _configurations_in(folder)
    }


@cache
def plain_names() -> frozenset[str]:
    """Return the name of the first configuration of each model type."""
    return frozenset(
        {
            config["model_type"]: name for name, (_, config) in reversed(configurations().items())
        }.values()
    )


@cache
def new_names() -> frozenset[str]:
    """Return the names of configurations that have a block which none before them has: of another
    class, or with another option, not another size. The first of each model type come first.
    """
    every, known, new = configurations(), set[tuple[object, ...]](), []
    for name in sorted(every, key=lambda x: x not in plain_names()):
        kinds = set(_kinds(llamath.load(dict(every[name][1])).tree))
        if not kinds <= known:
            new.append(name)
            known |= kinds
    return frozenset(new)


def _kinds(block: Block) -> Iterator[tuple[object, ...]]:
    """Yield the class and the options of a block and of those inside: words, and the classes of
    what is neither a word nor a number.
    """
    values = [(x, getattr(block, x)) for x in block.fields]
    yield (
        type(block),
        *(
            (name, x if x is None or isinstance(x, (bool, str)) else type(x))
            for name, x in values
            if isinstance(x, bool) or not isinstance(x, (int, float))
        ),
    )
    for _, x in block.children:
        for inner in x if isinstance(x, Stack) else (x,):
            if isinstance(inner, Block):
                yield from _kinds(inner)


def _configurations_in(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.json")):
        for label, config in json.loads(path.read_text()).items():
            yield f"{path.stem}-{label}", config


def failures(contract: Contract, chosen: Iterable[Check]) -> str:
    """Run checks; return what failed, each with its name and the end of its traceback."""
    texts, names, count = [], [], 0
    for one in chosen:
        if one.new and not contract.has_new_block:
            continue
        if one.computed and not contract.is_computed:
            continue
        count += 1
        try:
            one.run(contract)
        except (Exception, pytest.fail.Exception) as error:
            names.append(one.name)
            lines = traceback.format_exception(error, limit=-3)
            texts.append(f"{contract.name}: {one.name}\n{''.join(lines).rstrip()}")
    return (
        ""
        if not texts
        else f"{contract.name}: {', '.join(names)} ({len(texts)} of {count} checks fail)\n\n"
        + "\n\n".join(texts)
    )
