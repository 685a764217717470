"""Fixtures that the tests share, the `slow` marker, and the report of skipped tests."""

from __future__ import annotations

import gc
import inspect
import io
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import settings

from support.each_case import chosen
from support.typed_commands import Answer, Typed

# gguf imports it where it is installed, which takes half a second
sys.modules["mistral_common"] = None  # type: ignore[assignment]
gc.set_threshold(20_000, 20, 50)  # most garbage of tests is in no cycle

settings.register_profile("llamath", deadline=None)  # no test depends on seconds
settings.load_profile("llamath")

with suppress(
    ValueError
):  # a shell that starts the tests in the background ignores Ctrl-C, and so would the commands that get it here
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW_FOLDERS = {"run", "native", "page", "oracle"}
SLOW_FILES = {
    "test_adapter_check.py",
    "test_adapters.py",
    "test_architecture.py",
    "test_articles.py",
    "test_checkpoint.py",
    "test_codec.py",
    "test_config_keys.py",
    "test_convert.py",
    "test_convert_files.py",
    "test_cost.py",
    "test_count_checkpoint.py",
    "test_design.py",
    "test_edit.py",
    "test_embedded.py",
    "test_engine_arguments.py",
    "test_engine_comparison.py",
    "test_engines.py",
    "test_explain_recipes.py",
    "test_file_sums.py",
    "test_folding.py",
    "test_fuzz.py",
    "test_gguf_config.py",
    "test_hardware.py",
    "test_hub.py",
    "test_hub_hostile.py",
    "test_hub_names.py",
    "test_kinship.py",
    "test_learn.py",
    "test_learn_command.py",
    "test_loss_memory.py",
    "test_meta_args.py",
    "test_ollama.py",
    "test_place.py",
    "test_plan.py",
    "test_poster.py",
    "test_pth.py",
    "test_published_recipes.py",
    "test_publishing.py",
    "test_quants.py",
    "test_recipes.py",
    "test_reports.py",
    "test_run.py",
    "test_scaling.py",
    "test_storage.py",
    "test_tokenizers.py",
    "test_tour.py",
    "test_training.py",
    "test_training_configs.py",
    "test_typing.py",
    "test_units.py",
    "test_upstream_texts.py",
    "test_user_defaults.py",
    "test_width.py",
    "test_wording.py",
    "modules.md",
    "python.md",
}
"""Modules that `make test-fast` skips, in addition to tests marked as slow: Chromium, mypy, many
processes, and what few changes reach. Modules that import torch or transformers, directly or through another module of the
tests, are skipped without being listed."""
HEAVY = frozenset(
    {"accelerate", "compressed_tensors", "peft", "safetensors.torch", "torch", "transformers"}
)
TESTS = Path(__file__).parent
_IMPORT = re.compile(
    r"^(?:import|from) ([\w.]+)(?: import ([^#\n(]*|\([^)]*\)))?|^(?:\w+ = )?pytest\.importorskip\(\"(\w+)",
    re.MULTILINE,
)


@cache
def is_heavy(path: Path) -> bool:
    """Whether a module of the tests imports torch or transformers when it is imported."""
    for module, names, optional in _IMPORT.findall(path.read_text(encoding="utf-8")):
        if optional in HEAVY or module.partition(".")[0] in HEAVY:
            return True
        if not module:
            continue
        place = TESTS.joinpath(*module.split("."))
        inside = (place / f"{x}.py" for x in re.findall(r"\w+", names))
        if any(is_heavy(x) for x in (place.with_suffix(".py"), *inside) if x.is_file()):
            return True
    return False


@cache
def is_in_slow_file(path: Path) -> bool:
    """Whether all tests of a file are slow."""
    listed = path.parent.name in SLOW_FOLDERS or path.name in SLOW_FILES
    return listed or (path.suffix == ".py" and is_heavy(path))


@cache
def uses_heavy(code: CodeType) -> bool:
    """Whether a test imports torch or transformers itself."""
    return not HEAVY.isdisjoint((*code.co_names, *(x for x in code.co_consts if type(x) is str)))


pytest.register_assert_rewrite("contract.checks")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of checks of configurations, and that of the whole product of cases."""
    parser.addoption("--all", action="store_true", help="run the whole product, before a release")
    parser.addoption(
        "--check",
        default="",
        metavar="WORD",
        help="of each configuration, run the checks whose names contain WORD",
    )
    parser.addoption(
        "--case",
        metavar="WORD",
        help="of tests with many small cases, run those whose names contain WORD",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Leave out the small cases that were not asked for. Without the slow tests, nothing may
    import torch or transformers.
    """
    chosen[:] = filter(None, [config.getoption("--case")])
    if config.option.markexpr == "not slow":
        sys.modules.update(dict.fromkeys(HEAVY, None))  # type: ignore[arg-type]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the slow files for `-m "not slow"`: torch and transformers take seconds."""
    if config.option.markexpr != "not slow":
        return None
    slow = collection_path.name in SLOW_FOLDERS | SLOW_FILES
    return True if slow or (collection_path.suffix == ".py" and is_heavy(collection_path)) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests: those of slow files, and those that import torch or transformers. Leave
    out the cases that only run before a release.
    """
    if not config.getoption("--all"):
        items[:] = [x for x in items if x.get_closest_marker("release") is None]
    for item in items:
        code = getattr(inspect.unwrap(getattr(item, "function", item)), "__code__", None)
        if (
            is_in_slow_file(item.path)
            or (code is not None and uses_heavy(code))
            or item.get_closest_marker("transformers")
        ):
            item.add_marker("slow")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Send what the process that prints needs, of five messages for a test that passes one: each
    costs as much as a small test.
    """
    options = session.config.option
    if options.xmlpath is None and options.durations is None:
        for plugin in session.config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":
                plugin.sendevent = partial(_send_needed, plugin.sendevent)


def _send_needed(send: Callable[..., None], name: str, **facts: Any) -> None:
    """Send neither that a test begins and ends, nor that its fixtures were made and taken down."""
    report = facts.get("data", {})
    passed = report.get("outcome") == "passed" and report.get("when") != "call"
    if name not in ("logstart", "logfinish") and not (name == "testreport" and passed):
        send(name, **facts)


_lasting: set[str] = set()
"""The libraries that the collector of garbage passes over."""


def pytest_runtest_logfinish() -> None:
    """Take what stays, of the collected tests and of large libraries, out of what the collector of
    garbage walks each time: that was a tenth of the processor time.
    """
    if imported := (HEAVY | {"pytest"}) & sys.modules.keys() - _lasting:
        _lasting.update(imported)
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _text_models_of_wrappers(request: pytest.FixtureRequest) -> None:
    """Let `AutoModelForCausalLM` find the classes of families that transformers lists under a wrapper, or not at all."""
    if request.node.get_closest_marker("transformers"):
        from support.transformers_pair import register_text_classes

        register_text_classes()


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what commands store for this user and read of it out of the user's home; name
    the folder that the processes of a run share."""
    base = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        patch.setenv("LLAMATH_TEST_RUN", str(run))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were skipped because a program or a package is missing."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
    )
    for reason, count in sorted(reasons.items()):
        if "not installed" in reason or "could not import" in reason:
            terminalreporter.write_line(f"{count} test{'s' * (count > 1)} skipped: {reason}")


os.environ.setdefault(
    "HF_HUB_OFFLINE", "1"
)  # unknown names are not looked up on the Hub; `alone` allows the servers of tests

SETTINGS = (
    *(
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_TOKEN_PATH",
        "HF_OIDC_RESOURCE",
        "XDG_CACHE_HOME",
    ),
    *(
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
    ),
    *(
        change(f"{kind}_proxy")
        for kind in ("http", "https", "all", "no")
        for change in (str.lower, str.upper)
    ),
)
"""Environment variables that change which hosts are asked, and which files are read first."""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ignore the user's network settings, cache and stored token, and fail if a host other than this machine is looked up."""
    import socket

    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))

    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    with suppress(ImportError):
        import huggingface_hub

        monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
        monkeypatch.setattr(
            huggingface_hub.constants, "HF_HUB_OFFLINE", False
        )  # read when it was imported
    found = socket.getaddrinfo

    def local(host: Any, *args: Any, **options: Any) -> Any:
        assert host in ("127.0.0.1", "localhost"), f"{host} was looked up"
        return found(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local)


@pytest.fixture
def site(alone: None) -> Iterator[Any]:
    """A web server on the loopback interface."""
    from support.hub_server import sites

    with sites(1) as (one,):
        yield one


@pytest.fixture
def pair(alone: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two web servers: the Hub's endpoint, and the storage that it redirects to."""
    from support.hub_server import sites

    with sites(2) as (endpoint, store):
        monkeypatch.setenv("HF_ENDPOINT", endpoint.url)
        yield endpoint, store


@pytest.fixture
def classes_built_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build classes of transformers in this process, which has imported it, instead of one of their own."""
    from llamath.generic import transformers_process, transformers_script

    def answer(question: bytes, source: str) -> bytes:
        asked = json.loads(question)
        return json.dumps(transformers_script.build(asked["config"], asked["changed"])).encode()

    monkeypatch.setattr(transformers_process, "_run", answer)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Runs the command line in this process."""
    from llamath.cli import main

    def answer(*words: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "argv", ["llamath", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        return Answer(status, *capsys.readouterr())

    return answer
