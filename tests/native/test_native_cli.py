"""`run` and `same --logits` on the native engine: without torch, with a note where torch has to compute, and interrupted at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llamath.native import library, library_cache
from llamath_native import build
from support.tiny_checkpoint import CHATML, tiny_checkpoint
from support.typed_commands import Typed

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from llamath.cli import main
try:
    main()
finally:
    loaded = {x.partition(".")[0] for x in sys.modules if sys.modules[x] is not None} | {x for x in sys.modules if x == "llamath.torch"}
    print(*sorted(loaded & {"torch", "transformers", "numpy", "llamath.torch"}), file=sys.stderr)
"""


ANNOUNCING_PASSES = """
import signal
from contextlib import contextmanager
from llamath.native import engine

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
interruptible = engine._interruptible

@contextmanager
def announced(model):
    with interruptible(model):
        print("pass", flush=True)
        yield

engine._interruptible = announced
from llamath.cli import main
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny chat model."""
    return tiny_checkpoint(tmp_path_factory.mktemp("native"), template=CHATML)


def start(
    *words: object, stdin: bytes = b"", code: str = WITHOUT_TORCH, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(
        command, input=stdin, capture_output=True, check=False, env=os.environ | environment
    )


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{}", "The cat", "--max-tokens", 4),
        ("run", "{}", "--chat", "--max-tokens", 4),
        ("same", "{}", "{}", "--logits"),
    ],
    ids=["run", "chat", "same"],
)
def test_commands_need_no_torch(words: tuple[object, ...], folder: Path) -> None:
    done = start(*[folder if x == "{}" else x for x in words], stdin=b"hello\n")
    assert done.returncode == 0, done.stderr
    assert done.stderr.split(b"\n")[-2] == (b"numpy" if words[0] == "same" else b"")


def test_statistics_name_the_instruction_set(folder: Path) -> None:
    done = start(
        "run",
        folder,
        "The cat",
        "--max-tokens",
        2,
        LLAMATH_NATIVE_PATH="generic",
        OMP_NUM_THREADS="2",
    )
    assert b"native engine (generic, fp32, 2 threads)" in done.stderr


def test_engine_can_be_chosen(folder: Path, typed: Typed) -> None:
    ours, theirs = (
        typed("run", folder, "The cat", "--max-tokens", 8, "--engine", x)
        for x in ("native", "torch")
    )
    assert ours.out == theirs.out
    assert "; native engine (" in ours.err
    assert "; torch engine (" in theirs.err


def test_model_beyond_the_engine_runs_on_torch(tmp_path: Path, typed: Typed) -> None:
    other = tiny_checkpoint(
        tmp_path,
        model_type="falcon",
        alibi=True,
        new_decoder_architecture=False,
        multi_query=False,
        parallel_attn=False,
        bias=True,
    )
    result = typed("run", other, "The cat", "--max-tokens", 2)
    assert result.status == 0
    assert "note: using torch: the native engine has no ALiBi with rounded biases" in result.err
    assert "; torch engine (" in result.err
    assert typed("run", other, "The cat", "--engine", "native").status == 2


def test_missing_library_is_explained(
    folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.load_library.cache_clear()
    monkeypatch.setattr(library_cache, "find_cached", lambda *_: (None, ""))
    monkeypatch.setattr(build, "find_compiler", lambda: None)
    try:
        result = typed("run", folder, "The cat", "--max-tokens", 2)
        assert result.status == 0
        assert (
            "using torch: the native engine is not compiled, as no C++ compiler was found (install "
            "g++ or clang++)" in " ".join(result.err.split())
        )
        assert typed("run", folder, "The cat", "--engine", "native").status == 2
    finally:
        library.load_library.cache_clear()


def test_engines_that_cannot_be_loaded_say_what_builds_them(
    folder: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name, value, message in (
        (sys.modules, "llamath_native.build", None, "the native engine is not installed"),
        (vars(library), "VERSION", -1, "belongs to another version of llamath"),
    ):
        library.load_library.cache_clear()
        try:
            with monkeypatch.context() as patch:
                patch.setitem(place, name, value)
                refused = typed("run", folder, "The cat", "--engine", "native")
                said = " ".join(refused.err.split())
                assert refused.status == 2 and message in said and "pip install ./native" in said
                on_torch = typed("run", folder, "The cat", "--max-tokens", 2)
                assert on_torch.status == 0 and message in " ".join(on_torch.err.split())
        finally:
            library.load_library.cache_clear()


def test_int8_and_device_are_refused_elsewhere(folder: Path, typed: Typed) -> None:
    assert typed("run", folder, "The cat", "--max-tokens", 4, "--dtype", "int8").status == 0
    refused = typed("run", folder, "The cat", "--dtype", "int8", "--engine", "torch")
    assert refused.status == 2
    assert "int8 is computed by the native engine" in refused.err
    assert typed("run", folder, "The cat", "--device", "meta", "--engine", "native").status == 2


def test_interrupt_during_a_long_prompt_ends_at_once(tmp_path: Path) -> None:
    wide = {
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 24,
        "max_position_embeddings": 100_000,
    }
    large = tiny_checkpoint(
        tmp_path, std=0.02, num_attention_heads=8, num_key_value_heads=8, **wide
    )
    command = [
        sys.executable,
        "-c",
        ANNOUNCING_PASSES,
        "run",
        str(large),
        "-",
        *("--chat-template", "none"),
        "--max-tokens",
        "9",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert (
            process.stdin is not None and process.stdout is not None and process.stderr is not None
        )
        process.stdin.write(b"The cat sat on the mat. " * 4000)
        process.stdin.close()
        assert [process.stdout.readline() for _ in range(2)] == [b"pass\n"] * 2
        process.send_signal(
            signal.SIGINT
        )  # in one of the first passes of the prompt, which takes minutes
        assert process.wait() == 130
        assert set(process.stdout.read().split()) <= {b"pass"}
        figures = process.stderr.read()
        assert figures.startswith(b"0 tokens, ")
        assert b"; interrupted; " in figures
