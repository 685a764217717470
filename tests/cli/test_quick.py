"""The plain forms that are understood without click: what they print and how they end is what click's way prints and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import llamath
from llamath.cli import COMMANDS
from llamath.cli.command_group import cli
from llamath.cli.quick import OPTIONS, quick
from support.headers import header_of, write_config, write_safetensors, write_sharded

BOTH = """
import sys
from llamath.cli import main, quick
if sys.argv.pop(1) == "click":
    sys.modules["llamath.cli"].quick = lambda args: None
main()
"""
"""The command line; told `click`, without the short way."""


def run(way: str, *args: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-c", BOTH, way, *args], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("quick")
    model = llamath.load("smollm-135m")
    whole = write_sharded(root / "whole", header_of(model), 3)
    write_config(whole, model)
    wrong = write_sharded(root / "wrong", header_of(model), 2)
    write_config(wrong, model, num_key_value_heads=9)
    (root / "unknown").mkdir()
    write_safetensors(root / "unknown" / "model.safetensors", {"w.0.weight": ("F32", (2, 2)), "w.1.weight": ("F32", (2, 2))})
    (root / "broken.safetensors").write_bytes(b"no checkpoint")
    names = {x: str(root / x) for x in ("whole", "wrong", "unknown", "broken.safetensors", "nowhere")}
    return names | {"preset": "llama-3-8b", "no preset": "llama-9-9b"}


FORMS = [(command, *([option] if option else [])) for command, options in OPTIONS.items() for option in ("", *options)]


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_both_ways_say_the_same(form: tuple[str, ...], places: dict[str, str]) -> None:
    some = ["whole", "wrong", "unknown", "broken.safetensors"] if form[1:] in ((), ("--json",)) else ["whole"]
    for place in [*some, *(["preset", "no preset", "nowhere"] if form == ("count",) else [])]:
        assert run("quick", *form, places[place]) == run("click", *form, places[place])


def test_what_they_end_with(places: dict[str, str]) -> None:
    assert [run("quick", "verify", places[x])[0] for x in ("whole", "wrong", "broken.safetensors")] == [0, 1, 2]
    assert json.loads(run("quick", "verify", places["wrong"], "--json")[1])["ok"] is False


def test_the_table_is_of_options_that_the_commands_have() -> None:
    for name, options in OPTIONS.items():
        assert name in COMMANDS
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        known = {y: x for x in command.params for y in x.opts}
        for option, meaning in options.items():
            ((key, value),) = meaning.items()
            assert known[option].name == key
            assert known[option].is_flag and (value is True or known[option].flag_value == value)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "args",
    [
        [], ["ls"], ["ls", ""], ["ls", "a", "b"], ["ls", "-h"], ["ls", "a", "--help"], ["ls", "a", "--jso"], ["ls", "a", "--json", "--csv"],
        ["verify", "a", "--as", "b"], ["verify", "a", "--as=b"], ["verify", "--", "a"], ["count", "-"], ["count", "a", "--tree"],
        ["diff", "a", "b"], ["--version"], ["ls", "--json"], ["models", "a"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_all_else_is_left_to_click(args: list[str]) -> None:
    assert quick(args) is None


def test_completion_is_left_to_click(monkeypatch: pytest.MonkeyPatch, places: dict[str, str]) -> None:
    monkeypatch.setenv("_LLAMATH_COMPLETE", "bash_source")
    assert quick(["ls", places["whole"]]) is None


def test_the_short_way_does_not_import_click(places: dict[str, str]) -> None:
    code = "import sys; from llamath.cli.quick import quick; quick(sys.argv[1:]); assert 'click' not in sys.modules"
    for args in (["ls", places["whole"]], ["verify", places["whole"], "--json"], ["count", places["preset"]]):
        subprocess.run([sys.executable, "-c", code, *args], capture_output=True, check=True, timeout=300)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_another_encoding_is_no_traceback(encoding: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    monkeypatch.setenv("PYTHONUTF8", "0")
    done = subprocess.run([sys.executable, "-m", "llamath", "ls", places["whole"]], capture_output=True, timeout=300)
    assert done.returncode == 0 and not done.stderr and b"134,515,008" in done.stdout


def test_an_output_that_closes_is_no_error(places: dict[str, str]) -> None:
    command = f"{sys.executable} -m llamath ls --json {places['whole']} | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"{", b"")
