"""The command line as a whole: help, suggestions, errors, exit codes, closed outputs, encodings and completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import budgets
import llamath
from llamath.cli import cli
from llamath.cli.command_group import (
    COMMANDS,
    EXAMPLES,
    FIRST,
    MOVED,
    MOVED_OPTIONS,
    SHARED_OPTIONS,
    Command,
)

LLAMATH = [sys.executable, "-m", "llamath"]
MISMATCH = ["verify", "examples/tiny-llama", "--set", "num_key_value_heads=4"]
MODEL_ARGS = "dim=4096,n_layers=32,n_heads=32,n_kv_heads=8,vocab_size=128256,multiple_of=1024,ffn_dim_multiplier=1.3"

HELP = "--help"


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


def commands() -> dict[str, Command]:
    found = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    return {name: x for name, x in found.items() if isinstance(x, Command)}


def test_no_arguments_print_one_screen() -> None:
    done = run()
    assert done.exit_code == 0 and not done.stderr
    assert done.stdout == run("--help").stdout == run("-h").stdout == run("help").stdout
    assert len(done.stdout.splitlines()) <= 24
    assert all(example in done.stdout for example, _ in EXAMPLES)
    assert re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE) == list(FIRST)
    assert f"`llamath help all` lists all {len(COMMANDS)} commands" in done.stdout


def test_help_all_lists_every_command() -> None:
    done = run("help", "all")
    assert done.exit_code == 0 and not done.stderr
    assert re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE) == list(COMMANDS)
    assert all(
        f"{x}:" in done.stdout
        for x in ("Understand a model", "Check files", "Size hardware", "Run", "Look")
    )


@pytest.mark.parametrize("name", MOVED)
def test_old_names_answer_with_what_to_type(name: str) -> None:
    for words in ((name,), (name, "llama-3-8b", "--json"), (name, "--help"), ("help", name)):
        done = run(*words)
        assert done.exit_code == 2 and f"`llamath {name}` is now `llamath {MOVED[name]}`" in (
            done.stderr
        )
    command, *options = [x for x in MOVED[name].split() if x != "this"]
    assert set(options) <= {y for x in commands()[command].params for y in x.opts}
    assert name not in COMMANDS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b", "ids:1", "--engine", "torch"), "PROMPT and --engine are for --logits"),
        (("a", "b", "hello"), "PROMPT is for --logits"),
        (("a", "--logits"), "--logits needs A and B"),
        (("a", "--adapter", "b"), "--adapter needs A and B"),
        (
            ("a", "b", "--adapter", "c", "--logits"),
            "--adapter is for the weights, not for --logits",
        ),
    ],
)
def test_options_of_the_questions_of_same_are_told_apart(
    words: tuple[str, ...], message: str
) -> None:
    done = run("same", *words)
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mcp", "llama-3-8b"), "MODEL is for the page, not for --mcp"),
        (("--mcp", "--port", "3", "--no-browser"), "--port and --no-browser are for the page"),
        (("--root", "x"), "--root is for the tools of --mcp"),
        (("llama-3-8b", "--allow", "urls"), "--allow urls is for the tools of --mcp"),
    ],
)
def test_options_of_page_and_tools_exclude_each_other(words: tuple[str, ...], message: str) -> None:
    done = run("serve", *words)
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example_and_fits(name: str) -> None:
    done = run(name, "--help")
    assert done.exit_code == 0 and f"Examples:\n  llamath {name}" in done.stdout
    options = done.stdout.partition("Examples:")[0]
    assert max(map(len, options.splitlines())) <= 80
    assert run("help", name).stdout == done.stdout


def test_help_shows_own_options_and_names_the_shared_ones() -> None:
    names = re.compile(r"^  (?:-\w, )?(--?[a-z][\w-]*)", re.MULTILINE)
    listed = {
        name: names.findall(own.partition("Examples:")[0].partition("\nOptions")[2])
        for name in COMMANDS
        if (own := run(name, "--help").stdout)
    }
    shared = names.findall(run("help", "options").stdout)
    assert shared == [*SHARED_OPTIONS, "--help"]
    shown = [f"{name} {x}" for name, own in listed.items() for x in own]
    assert sorted([*shown, *SHARED_OPTIONS, "-h"]) == sorted(budgets.shown_options())


def test_names_of_options_include_their_keys() -> None:
    assert {"kv_dtype", "top_k", "zero", "no_browser", "serve"} <= budgets.distinct_names()


@pytest.mark.parametrize("old", MOVED_OPTIONS)
def test_old_options_answer_with_what_to_type(old: str) -> None:
    name, option = old.split()
    words = MOVED_OPTIONS[old].split() or [HELP]
    then = f"is now `{MOVED_OPTIONS[old]}`" if MOVED_OPTIONS[old] else "has gone: leave it out"
    command = words[1] if words[0] == "llamath" else name
    now = next((x for x in words if x.startswith("--")), HELP)
    for typed in (option, f"{option}=x"):
        done = run(name, "llama-3-8b", typed)
        assert done.exit_code == 2 and not done.stdout
        assert f"`{option}` of `llamath {name}` {then}" in done.stderr
    own, other = (
        {y for x in commands()[command].params for y in (*x.opts, *x.secondary_opts)}
        for command in (name, command)
    )
    assert now in {*other, HELP} and option not in own


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("export", "--json, -o, --force"),
        ("same", "--set, --json, --brief, --format csv|markdown, --device"),
        ("config", "--set, --json, --brief, --format params|csv|markdown"),
    ],
)
def test_help_ends_with_the_common_options(name: str, options: str) -> None:
    ending = " ".join(run(name, "--help").stdout.rpartition("\n\n")[2].split())
    assert ending == f"Common options: {options} (llamath help options)"


def test_misspelled_shared_options_get_a_suggestion() -> None:
    assert "Did you mean '--brief'?" in run("count", "gpt2", "--brif").stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json(name: str) -> None:
    assert any("--json" in x.opts for x in commands()[name].params)


@pytest.mark.parametrize(
    "args",
    [
        ("count", "llama-3-8b", "--json"),
        ("ls", "examples/tiny-llama"),
        ("verify", "examples/tiny-llama"),
    ],
)
@pytest.mark.slow
def test_frequent_commands_import_only_what_they_need(args: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "llamath", *args],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "llamath.cli.command_group" in imported
    assert not imported & {
        "dataclasses",
        "difflib",
        "fractions",
        "importlib.metadata",
        "llamath.api",
        "llamath.hardware",
        "torch",
    }
    if args[0] != "count":
        assert not imported & {
            "concurrent.futures",
            "hashlib",
            "logging",
            "llamath.checkpoint.quantization.registry",
        }


def test_misspelled_commands_get_a_suggestion() -> None:
    done = run("cuont", "llama-3-8b")
    assert done.exit_code == 2 and "did you mean count" in done.stderr and not done.stdout
    assert run("help", "cuont").exit_code == 2


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["count", "llama-9"], "unknown_model"),
        (["count"], "usage"),
        (["count", "llama-3-8b", "--all", "--brief"], "usage"),
        (["cuont"], "bad_input"),
        (["fit", "llama-3-8b", "--on", "h1000"], "bad_input"),
        (["models", "zzz"], "unknown_model"),
        (["gpus", "zzz"], "bad_input"),
        (["ls", "tests/cli"], "no_checkpoint"),
    ],
)
def test_errors_are_json_with_json(args: list[str], code: str) -> None:
    done = run(*args, "--json")
    error = json.loads(done.stdout)["error"]
    assert (
        done.exit_code == 2
        and error.keys() == {"message", "hint", "code"}
        and error["code"] == code
    )
    assert error["message"] in done.stderr and not run(*args).stdout


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["memory", "llama-3.1-70b", "--on", "mem=24GiB"], 1),
        (["memory", "llama-3-8b", "--on", "rtx-4090", "--context", "8k"], 0),
        (["fit", "llama-3.1-405b", "--on", "h100"], 1),
        (["explain", "123456789013", "--like", "llama-3-8b"], 1),
        (MISMATCH, 1),
        (["models", "zzz"], 2),
    ],
)
@pytest.mark.slow
def test_exit_code_is_the_verdict(args: list[str], code: int) -> None:
    assert run(*args).exit_code == code


@pytest.mark.parametrize(
    "args",
    [
        ["count", "llama-3-8b"],
        ["verify", "examples/tiny-llama"],
        ["fit", "llama-3-8b", "--on", "h100"],
        ["diff", "gpt2", "llama-2-7b"],
    ],
)
def test_brief_is_one_line(args: list[str]) -> None:
    done = run(*args, "--brief")
    assert done.exit_code == 0 and done.stdout.count("\n") == 1 and not done.stderr


def test_formats_exclude_each_other() -> None:
    done = run("count", "llama-3-8b", "--json", "--brief")
    assert done.exit_code == 2 and "choose one of --json and --brief" in done.stderr


@pytest.mark.parametrize("context", ["8k", "8192", "8,192"])
@pytest.mark.parametrize(
    "command",
    [["memory"], ["fit", "--on", "h100"], ["flops"], ["plan", "--on", "8xh100", "--serve"]],
)
def test_context_means_the_same_everywhere(command: list[str], context: str) -> None:
    name, *rest = command
    assert (
        json.loads(run(name, "llama-3-8b", *rest, "--context", context, "--json").stdout)["context"]
        == 8192
    )


def test_tensor_parallelism_over_different_gpus_is_limited_by_the_least() -> None:
    found = json.loads(
        run("fit", "llama-3-8b", "--on", "3060-12gb+4090", "--layout", "tp=2", "--json").stdout
    )
    least = json.loads(run("fit", "llama-3-8b", "--on", "2xrtx-3060-12gb", "--json").stdout)
    assert (
        found["count"] == 2
        and found["gpu"]["memory"] == least["gpu"]["memory"]
        and found["per_gpu"] == least["per_gpu"]
    )


@pytest.mark.slow
def test_several_machines_are_compared() -> None:
    done = run("fit", "llama-3.1-8b", "--on", "3060-12gb,4090,4090+3060-12gb", "--json")
    machines = json.loads(done.stdout)["machines"]
    assert done.exit_code == 0 and [x["fits"] for x in machines] == [False, True, True]
    for machine, on in zip(machines, ("3060-12gb", "4090", "4090+3060-12gb"), strict=True):
        assert machine == json.loads(run("fit", "llama-3.1-8b", "--on", on, "--json").stdout)
    assert run("fit", "llama-3.1-70b", "--on", "3060-12gb,4090").exit_code == 1
    assert "lists 2 machines" in run("memory", "llama-3.1-8b", "--on", "3060-12gb,4090").stderr


@pytest.mark.slow
def test_default_context_is_one_and_named() -> None:
    note = "note: 8,192 tokens; the model supports 131,072: --context max"
    for words in (
        ["fit"],
        ["fit", "--on", "rtx-4090"],
        ["memory"],
        ["memory", "--training"],
        ["plan", "--on", "8xh100"],
        ["plan", "--serve", "--on", "h100"],
    ):
        command, *options = words
        assert note in run(command, "llama-3.1-8b", *options).stderr
        assert (
            json.loads(run(command, "llama-3.1-8b", *options, "--json").stdout)["context"] == 8192
        )
        assert (
            json.loads(run(command, "llama-3.1-8b", *options, "--context", "max", "--json").stdout)[
                "context"
            ]
            == 131_072
        )
        assert json.loads(run(command, "llama-2-7b", *options, "--json").stdout)["context"] == 4096
    assert "--context max" not in run("fit", "llama-3.1-8b", "--on", "h100").stderr  # it fits, too


def test_a_gpu_can_be_its_memory_alone() -> None:
    done = run("fit", "llama-3-8b", "--on", "mem=24GiB", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["decode_ceiling"] is None


def test_model_args_are_a_model() -> None:
    assert llamath.load(MODEL_ARGS).parameters.total == 8_030_261_248
    for name in ("count", "config", "memory", "flops", "names", "fit"):
        assert (
            json.loads(run(name, MODEL_ARGS, "--json").stdout)["model"]
            == "dim=4096,n_layers=32,n_heads=32,n_kv_heads=8,…"
        )
    assert "1,291,845,632" in run("diff", "llama-2-7b", MODEL_ARGS, "--brief").stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (
            "flops llama-3-8b --on 8xh100 --mfu 100000tok/s",
            "MFU 65.03% at 100,000 tokens/s on 8 GPUs",
        ),
        ("flops llama-3-8b", "forward 140.6 TFLOPs"),
        pytest.param(
            "trace llama-3-8b --context 4k",
            "a prompt of 4,096 tokens, 65.88 TFLOPs",
            marks=pytest.mark.slow,  # it runs in torch, without values
        ),
        ("explain 685B --like deepseek-v3", "685B: DeepSeek V3"),
        ("ls examples/tiny-llama", "21 tensors in 1 safetensors file, 67,972 bytes"),
        ("models mixtral-8x7b", "Mixtral 8x7B: 46,702,792,704 parameters (46.7B), 12.9B active"),
        ("models qwen 3", "12 presets with 3.09B to 397B parameters"),
        ("gpus h100-sxm", "GiB, 3,350 GB/s, 989.4 bf16 TFLOP/s"),
        (
            "fit llama-3.1-8b --on rtx-4090",
            "Llama 3.1 8B, 8,192 tokens: fits, 16.71 of 23.99 GiB on rtx-4090",
        ),
    ],
)
def test_brief_answers_the_question(words: str, wanted: str) -> None:
    answer = run(*words.split(), "--brief").stdout
    assert wanted in answer and answer.count("\n") == 1


def test_verdict_names_the_model_given_with_as() -> None:
    done = run("verify", "examples/tiny-llama", "llama-3-8b")
    assert (
        "examples/tiny-llama: does not match Llama 3 8B\n" in done.stdout
        and "gate_proj, up_proj and down_proj" in done.stdout
    )


def test_one_token_is_singular() -> None:
    assert run("flops", "gpt2", "--context", "1").stdout.startswith(
        "GPT-2 small: 247.1 MFLOPs forward over 1 token, "
    )


def test_unquoted_prompt_gets_a_hint() -> None:
    assert (
        "hint: quote a prompt of several words: llamath run 'hello world'"
        in run("run", "hello", "world").stderr
    )


def test_unknown_gpus_are_reported_without_a_throughput_too() -> None:
    done = run("flops", "gpt2", "--on", "xyz")
    assert done.exit_code == 2 and "unknown GPU 'xyz'" in done.stderr


def test_stages_without_a_sequence_are_noted() -> None:
    done = run("plan", "llama-1-30b", "--on", "3xrtx3090", "--serve")
    assert (
        done.exit_code == 0
        and "2 sequences fit into a pipeline of 3 stages: the others idle"
        in " ".join(done.stdout.split())
    )
    assert run("fit", "llama-1-30b", "--on", "3xrtx3090", "--batch", "2").exit_code == 0
    assert run("fit", "llama-1-30b", "--on", "3xrtx3090", "--batch", "3").exit_code == 1


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sharded copy of a small model."""
    folder = tmp_path_factory.mktemp("sharded")
    assert (
        run(
            "convert",
            "examples/tiny-llama",
            str(folder / "model"),
            "--names",
            "hf",
            "--max-shard-size",
            "20KB",
        ).exit_code
        == 0
    )
    return folder / "model"


@pytest.mark.parametrize("command", [("memory",), ("fit",), ("fit", "--on", "t4")])
def test_brief_sizes_warn_of_missing_shards(
    sharded: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *options = command
    damaged = Path(shutil.copytree(sharded, tmp_path / "damaged"))
    next(damaged.glob("model-00002-of-*")).unlink()
    assert (
        "warning: 1 file named in the index is missing"
        in run(name, str(damaged), *options, "--brief").stderr
    )
    assert not run(name, str(sharded), *options, "--brief").stderr


@pytest.mark.parametrize("command", ["memory", "fit"])
def test_configs_of_other_files_are_noted(sharded: Path, tmp_path: Path, command: str) -> None:
    other = Path(shutil.copytree(sharded, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(
        json.dumps(config | {"num_hidden_layers": 4 * config["num_hidden_layers"]})
    )
    notes = json.loads(run(command, str(other), "--json").stdout)["notes"]
    assert any(
        "the weights are those of the files, KV cache and activations those of the config" in x
        for x in notes
    )
    assert not any(
        "the files hold" in x
        for x in json.loads(run(command, str(sharded), "--json").stdout)["notes"]
    )


@pytest.mark.parametrize("command", ["memory", "names", "flops"])
def test_models_of_a_single_shard_are_those_of_the_config(sharded: Path, command: str) -> None:
    shard = min(sharded.glob("*.safetensors"))
    output = json.loads(run(command, str(shard), "--json").stdout)
    assert command == "names" or any(
        f"`llamath count {shard}` counts the parameters" in x for x in output["notes"]
    )
    assert output["model"] == "model"


def test_int4_suggests_schemes_of_four_bits() -> None:
    assert (
        "did you mean q4_k_m, awq, gptq, bnb-nf4?"
        in run("memory", "gpt2", "--dtype", "int4").stderr
    )


def shell(command: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    line = command.replace("llamath", " ".join(LLAMATH))
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        timeout=300,
        env=os.environ | env,
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"llamath {' '.join(MISMATCH)} | head -1", 1),
        ("llamath count llama-3-8b | head -1", 0),
        ("llamath names gpt2 | true", 0),
    ],
)
@pytest.mark.slow
def test_exit_code_survives_a_closed_pipe(command: str, code: int) -> None:
    done = shell(command)
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize(
    ("command", "code"),
    [(f"llamath {' '.join(MISMATCH)} >&-", 1), ("llamath count llama-3-8b >&-", 0)],
)
@pytest.mark.slow
def test_closed_stdout_is_no_error(command: str, code: int) -> None:
    assert (shell(command).returncode, shell(command).stderr) == (code, b"")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1"])
@pytest.mark.slow
def test_outputs_without_utf8_get_ascii(encoding: str) -> None:
    done = shell("llamath diff llama-2-7b llama-3-8b", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    text = done.stdout.decode(encoding)
    assert (
        done.returncode == 0
        and "-805,306,368" in text
        and "->" in text
        and "#" in text
        and "?" not in text
    )


def test_help_of_a_stdout_without_utf8_is_ascii() -> None:
    done = shell("llamath run --help", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (
        done.returncode == 0
        and b"cumulative probability >= P" in done.stdout
        and done.stdout.isascii()
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["--help", "count --help", "--version", "count gpt2"])
@pytest.mark.slow
def test_full_disk_is_an_error(words: str) -> None:
    done = shell(f"llamath {words} > /dev/full")
    assert (
        done.returncode == 2
        and done.stderr == b"error: cannot write the output: No space left on device\n"
    )


@pytest.mark.parametrize(
    ("words", "wanted"), [("llamath co", "count"), ("llamath count llama-3-8", "llama-3-8b"), ("llamath fit gpt2 --on rtx-409", "rtx-4090"),
     ("llamath fit gpt2 --on 8xh100", "8xh100-sxm"), ("llamath memory gpt2 --dtype q4_k", "q4_k_m"),
     ("llamath count gpt2 --bri", "--brief")]
)  # fmt: skip
@pytest.mark.slow
def test_shell_completion(words: str, wanted: str) -> None:
    done = shell(
        "llamath",
        _LLAMATH_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert f"plain,{wanted}" in done.stdout.decode().splitlines()


@pytest.mark.parametrize(
    ("env", "styled"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
@pytest.mark.slow
def test_color_follows_the_environment(env: dict[str, str], styled: bool) -> None:
    assert (
        b"\x1b[1m" in shell("llamath count llama-3-8b", **({"NO_COLOR": ""} | env)).stdout
    ) is styled


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("fit gpt2 --gpus 2", "--on rtx-4090"),
        ("quants gpt2 --vram 24GiB", "--on 'mem=24GiB'"),
        ("memory gpt2 --ctx-size 4096", "--context 8k"),
        ("count gpt2 --csv", "--format csv"),
        ("fit gpt2 --precision fp8", "--dtype q4_k_m"),
    ],
)
def test_option_of_other_programs_names_the_one_here(words: str, meant: str) -> None:
    done = run_program(*words.split())
    assert done.returncode == 2 and f"did you mean {meant}?" in done.stderr
    assert "did you mean" not in run_program("count", "gpt2", "--gpus", "2").stderr


def run_program(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llamath", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("slug", ["gpt2", "llama-4-scout"])  # the second has a note
def test_plain_call_answers_like_the_command_without_click(slug: str) -> None:
    plain, command = run_program("code", slug), run_program("code", slug, "--form", "torch")
    assert (plain.stdout, plain.stderr) == (command.stdout, command.stderr)
    assert plain.returncode == 0 and "class Model" in plain.stdout
    code = f"""
import sys
from llamath.cli import main
sys.argv[1:] = ["code", "{slug}"]
try:
    main()
except SystemExit as ended:
    assert not ended.code and "click" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=600)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_plain_call_says_that_the_disk_is_full() -> None:
    command = [sys.executable, "-m", "llamath", "code", "gpt2"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=600)
    error = b"error: cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, error)


def test_plain_call_that_fails_is_that_of_the_command() -> None:
    plain, command = run_program("code", "grok-2"), run_program("code", "grok-2", "--form", "torch")
    assert plain.returncode == command.returncode == 2 and not plain.stdout
    assert plain.stderr == command.stderr and plain.stderr.startswith("error: ")


def test_file_with_the_name_of_a_preset_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not run_program("code", "gpt2").returncode
    Path("gpt2").write_text("{}")
    done = run_program("code", "gpt2")
    assert done.returncode == 2 and "gpt2" in done.stderr and not done.stdout
