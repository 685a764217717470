"""The contract of each tiny configuration: all checks in `checks/` hold for it."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.contract import Contract, checks, configurations, failures, plain_names

ALL = configurations()


def is_fast(config: pytest.Config) -> bool:
    """Whether `make test-fast` runs: the first configuration of each family, without torch."""
    return config.option.markexpr == "not slow"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize(
        "name", [x for x in ALL if x in plain_names() or not is_fast(metafunc.config)]
    )


def test_configuration(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # files of a test outlive no crash
    kind, config = ALL[name]
    chosen = checks(kind, fast=is_fast(request.config), word=request.config.getoption("--check"))
    if not chosen:
        pytest.skip("no check has this name")
    with TemporaryDirectory(prefix="contract-") as folder:
        everything = request.config.getoption("--all")
        text = failures(Contract(name, kind, config, Path(folder), everything), chosen)
    if text:
        pytest.fail(text, pytrace=False)
