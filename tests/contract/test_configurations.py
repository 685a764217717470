"""The contract of each tiny configuration: all checks in `checks/` hold for it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.contract import Contract, checks, configurations, failures

ALL = configurations()


@pytest.mark.parametrize("name", ALL)
def test_configuration(name: str, request: pytest.FixtureRequest) -> None:
    kind, config = ALL[name]
    fast = request.config.option.markexpr == "not slow"
    chosen = checks(kind, fast=fast, word=request.config.getoption("--check"))
    if not chosen:
        pytest.skip("no check has this name")
    with TemporaryDirectory(prefix="contract-") as folder:
        text = failures(Contract(name, kind, config, Path(folder)), chosen)
    if text:
        pytest.fail(text, pytrace=False)
