"""`llamath run`, with a prompt and as a chat: text on stdout, statistics on stderr, and an interrupt at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from llamath import embedded
from llamath.native.engine import NativeSession
from llamath.render.text.generation_text import printable
from llamath.torch import Decoder
from llamath.torch.torch_session import Llama, parse_message
from support.tiny_checkpoint import CHATML, tiny_checkpoint
from support.typed_commands import Typed


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("models") / "plain")


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("models") / "talker", template=CHATML)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The environment of the first of two ranks under torchrun; the devices that process groups were requested for."""
    met: list[str] = []
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("os._exit", sys.exit)  # how such a process ends
    monkeypatch.setattr(
        "llamath.torch.distributed.process_group.process_group",
        lambda device: met.append(device) or nullcontext(),
    )
    monkeypatch.setattr(
        "llamath.torch.torch_session.open_model", lambda *_, **__: pytest.fail("a model was opened")
    )
    return met


def test_run_continues_a_text(typed: Typed, plain: Path) -> None:
    result = typed("run", plain, "The cat", "--max-tokens", 12)
    assert result.status == 0
    assert result.out == Llama.open(plain).generate("The cat", max_tokens=12).text + "\n"
    assert result.err.startswith("12 tokens, ")
    assert result.err.endswith("maximum length; greedy\n")


def test_json_output(typed: Typed, plain: Path) -> None:
    data = json.loads(
        typed("run", plain, "The cat", "--max-tokens", 5, "--json", "--logprobs", 2).out
    )
    assert {
        "model",
        "text",
        "tokens",
        "finish",
        "prompt_tokens",
        "tokens_per_second",
        "ids",
        "logprobs",
    } == data.keys()
    whole = Llama.open(plain).generate("The cat", max_tokens=5, logprobs=2)
    assert (data["text"], data["tokens"], data["finish"], data["prompt_tokens"]) == (
        whole.text,
        5,
        "length",
        whole.prompt_tokens,
    )
    assert data["tokens_per_second"] > 0
    assert [x["id"] for x in data["logprobs"]] == data["ids"] == list(whole.ids)
    assert all(
        x["top"][0]["id"] == x["id"] and x["top"][0]["logprob"] == x["logprob"]
        for x in data["logprobs"]
    )


def test_seed_reproduces_a_sample(typed: Typed, plain: Path) -> None:
    how = (
        "--max-tokens",
        20,
        "--temperature",
        1,
        *("--top-k", 50, "--min-p", 0.01, "--repetition-penalty", 1.1),
    )
    first = typed("run", plain, "The cat", *how, "--json")
    second = typed("run", plain, "The cat", *how)
    seed = second.err.split("seed ")[1].strip()
    assert typed("run", plain, "The cat", *how, "--seed", seed).out == second.out
    assert (
        json.loads(first.out)["ids"]
        != json.loads(typed("run", plain, "The cat", *how, "--seed", 1, "--json").out)["ids"]
    )
    assert "no effect" in typed("run", plain, "The cat", "--seed", 1, "--max-tokens", 1).err
    assert (
        "temperature 1, top-p 0.5, seed"
        in typed("run", plain, "The cat", "--top-p", 0.5, "--max-tokens", 1).err
    )


def test_generation_config_sets_sampling_defaults(typed: Typed, tmp_path: Path) -> None:
    place = tiny_checkpoint(tmp_path)
    (place / "generation_config.json").write_text(
        '{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": 1}'
    )
    assert (
        "temperature 0.6, top-p 0.9 (generation_config.json), seed"
        in typed("run", place, "The cat", "--max-tokens", 2).err
    )
    assert (
        "temperature 0.9, top-p 0.9, seed 4"
        in typed("run", place, "The cat", "--max-tokens", 2, "--temperature", 0.9, "--seed", 4).err
    )
    assert "greedy" in typed("run", place, "The cat", "--max-tokens", 2, "--temperature", 0).err
    (place / "generation_config.json").write_text('{"do_sample": true, "top_p": 9}')
    assert (
        "generation_config.json: top_p must be from 0 to 1, found 9"
        in typed("run", place, "The cat").err
    )


def test_quiet_prints_only_the_text(typed: Typed, plain: Path) -> None:
    result = typed("run", plain, "The cat", "--max-tokens", 3, "--brief")
    assert result.err == ""
    assert result.out == typed("run", plain, "The cat", "--max-tokens", 3).out


def test_published_chat_template_is_rendered(typed: Typed, tmp_path: Path) -> None:
    template = "<<{{ messages[-1].content }}{% if enable_thinking is defined %}|{{ enable_thinking }}|{{ tools|length }}{% endif %}>>"
    place = tiny_checkpoint(tmp_path, template=template)
    result = typed("run", place, "The cat", "--max-tokens", 3)
    assert result.err.endswith("; chat template the model's own\n")
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "f"}, {"name": "g"}]')
    given = ("--template-arg", "enable_thinking=false", "--template-arg", f"tools=@{tools}")
    tokens = json.loads(typed("run", place, "The cat", "--max-tokens", 3, "--json", *given).out)[
        "prompt_tokens"
    ]
    llama = Llama.open(place)
    assert tokens == len(llama.tokenizer.encode("<<The cat|False|2>>", add_special_tokens=False))
    asked = llama.chat(
        [("user", "The cat")],
        template_args={"enable_thinking": False, "tools": [{}, {}]},
        max_tokens=3,
    )
    assert asked.prompt_tokens == tokens
    other = tmp_path / "other.jinja"
    other.write_text("{{ messages[-1].content * 3 }}")
    longer = json.loads(
        typed("run", place, "The cat", "--max-tokens", 3, "--json", "--chat-template", other).out
    )["prompt_tokens"]
    assert longer == len(llama.tokenizer.encode("The cat" * 3, add_special_tokens=False))


def test_chat_template_that_refuses_exits_with_2(typed: Typed, tmp_path: Path) -> None:
    place = tiny_checkpoint(tmp_path, template="{{ raise_exception('System role not supported') }}")
    for words in (("run", place, "The cat"), ("run", place, "--chat")):
        result = typed(*words, stdin=b"hi\n")
        assert result.status == 2
        assert "the template refuses the conversation: System role not supported" in result.err
        assert "--chat-template NAME` uses a named format" in result.err


THINKING = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}"


def test_thinking_is_hidden_on_request(typed: Typed, tmp_path: Path) -> None:
    place = tiny_checkpoint(tmp_path, template=THINKING)
    shown = typed("run", place, "The cat", "--max-tokens", 6)
    assert shown.out.strip()
    assert typed("run", place, "The cat", "--max-tokens", 6, "--hide-thinking").out == "\n"
    assert (
        json.loads(
            typed("run", place, "The cat", "--max-tokens", 6, "--hide-thinking", "--json").out
        )["text"]
        == ""
    )
    answers = [
        json.loads(x)
        for x in typed(
            "run",
            place,
            "--chat",
            "--max-tokens",
            6,
            "--hide-thinking",
            "--json",
            stdin=b"The cat\n",
        ).out.splitlines()
    ]
    assert [x["text"] for x in answers] == [""]


def test_message_of_several_lines_and_aliases(typed: Typed, talker: Path) -> None:
    quoted = typed(
        "run",
        talker,
        "--chat",
        "--max-tokens",
        3,
        "--json",
        stdin=b'"""The\ncat"""\n/clear\n/bye\nnever\n',
    )
    assert [json.loads(x)["prompt"] for x in quoted.out.splitlines()] == ["The\ncat"]
    assert quoted.status == 0


def test_stop_string_ends_generation(typed: Typed, plain: Path) -> None:
    whole = typed("run", plain, "The cat", "--max-tokens", 12).out
    result = typed(
        "run", plain, "The cat", "--max-tokens", 12, "--stop", whole[2:5], "--stop", "never"
    )
    assert result.out == whole[:2] + "\n"
    assert "stop string" in result.err


def test_prompts_from_stdin_and_batch_file(typed: Typed, plain: Path, tmp_path: Path) -> None:
    alone = [typed("run", plain, x, "--max-tokens", 6, "--json") for x in ("The cat", "A dog ran")]
    assert (
        typed("run", plain, "-", "--max-tokens", 6, stdin=b"The cat\n").out
        == json.loads(alone[0].out)["text"] + "\n"
    )
    lines, objects = tmp_path / "prompts.txt", tmp_path / "prompts.jsonl"
    lines.write_text("The cat\n\nA dog ran\r\n")
    objects.write_text('{"prompt": "The cat", "id": 1}\n"A dog ran"\n')
    for file in (lines, objects):
        for batch in (1, 8):
            result = typed("run", plain, "--batch-file", file, "--max-tokens", 6, "--batch", batch)
            rows = [json.loads(x) for x in result.out.splitlines()]
            assert [x["prompt"] for x in rows] == ["The cat", "A dog ran"]
            assert [x["ids"] for x in rows] == [json.loads(x.out)["ids"] for x in alone]
    drawn = [
        typed(
            "run",
            plain,
            "--batch-file",
            lines,
            "--max-tokens",
            6,
            "--temperature",
            1,
            "--seed",
            3,
            "--batch",
            n,
        ).out
        for n in (1, 2)
    ]
    one, two = ([json.loads(x)["ids"] for x in part.splitlines()] for part in drawn)
    assert one == two


def test_prompt_is_answered_with_a_chat_template(typed: Typed, talker: Path) -> None:
    llama = Llama.open(talker)
    expected = llama.chat([("system", "Be brief."), ("user", "The cat")], max_tokens=6)
    data = json.loads(
        typed("run", talker, "The cat", "--max-tokens", 6, "--json", "--system", "Be brief.").out
    )
    assert (data["ids"], data["text"]) == (list(expected.ids), expected.text)
    assert typed("run", talker, "The cat", "--max-tokens", 6, "--system", "Be brief.").err.endswith(
        "; chat template the model's own\n"
    )
    asked = llama.chat([{"role": "user", "content": "The cat"}], max_tokens=6)
    assert json.loads(typed("run", talker, "The cat", "--max-tokens", 6, "--json").out)[
        "ids"
    ] == list(asked.ids)
    raw = json.loads(
        typed("run", talker, "The cat", "--max-tokens", 6, "--json", "--chat-template", "none").out
    )
    assert raw["ids"] == list(llama.generate("The cat", max_tokens=6).ids)
    assert (
        "--system is for an answer"
        in typed("run", talker, "The cat", "--chat-template", "none", "--system", "Be brief.").err
    )


def test_logprobs_print_one_line_per_token(typed: Typed, plain: Path) -> None:
    lines = typed("run", plain, "The cat", "--max-tokens", 4, "--logprobs", 2).out.splitlines()
    assert len(lines) == 4
    assert all(float(line.split()[0]) < 0 and '"' in line for line in lines)


BAD: dict[str, tuple[tuple[object, ...], bytes, str]] = {
    "an empty prompt": ((".", ""), b"", "the prompt is empty"),
    "an empty pipe": ((".", "-"), b"\n", "the prompt is empty"),
    "a pipe that is not UTF-8": (
        (".", "-"),
        b"caf\xe9",
        "standard input is not UTF-8: byte 3 is 0xe9",
    ),
    "an argument that is not UTF-8": (
        (".", os.fsdecode(b"caf\xe9")),
        b"",
        "the prompt is not UTF-8: byte 3 is 0xe9",
    ),
    "no prompt": ((), b"", "expected a PROMPT, found neither"),
    "no prompt but a model": ((".",), b"", "is a MODEL"),
    "no prompt but the small model": (("embedded",), b"", "is a MODEL"),
    "no prompt but a preset": (("llama-3-8b",), b"", "is a MODEL"),
    "a preset has no weights": (("llama-3-8b", "hi"), b"", "has a configuration and no weights"),
    "a prompt unquoted": ((".", "The", "cat"), b"", "quote a prompt"),
    "a prompt beyond the context": (
        (".", "The cat " * 100),
        b"",
        "is longer than the context of 128",
    ),
    "a context of its own": ((".", "The cat", "--context", 3), b"", "fills the context of 3"),
    "no share": ((".", "The cat", "--top-p", 2), b"", "--top-p should be a number from 0 to 1"),
    "a type": ((".", "The cat", "--dtype", "bf17"), b"", "bf17"),
    "a device": ((".", "The cat", "--device", "tpu9"), b"", "tpu9"),
    "an empty stop string": ((".", "The cat", "--stop", ""), b"", "--stop is empty"),
    "no tokens": ((".", "The cat", "--max-tokens", 0), b"", "--max-tokens"),
    "a file of prompts that is not there": (
        (".", "--batch-file", "nowhere"),
        b"",
        "nowhere: No such file",
    ),
    "a pipe of no prompts": ((".", "--batch-file", "-"), b"\n\n", "has no prompts"),
    "a line that is no prompt": (
        (".", "--batch-file", "-"),
        b'{"prompt": "a"}\n{"text": "b"}\n',
        "line 2: expected",
    ),
    "a line too long": (
        (".", "--batch-file", "-"),
        b"a\n" + b"The cat " * 200,
        "prompt 2: the prompt of",
    ),
    "both": ((".", "The cat", "--batch-file", "-"), b"a", "not both"),
    "a format": ((".", "The cat", "--chat-template", "chatlm"), b"", "unknown chat format"),
    "an argument without a value": (
        (".", "The cat", "--template-arg", "x"),
        b"",
        "--template-arg: expected NAME=VALUE, found x",
    ),
    "an argument twice": (
        (
            ".",
            "The cat",
            "--template-arg",
            "x=1",
            "--template-arg",
            "x=2",
            "--chat-template",
            "chatml",
        ),
        b"",
        "x is given twice",
    ),
    "an argument of a named format": (
        (".", "The cat", "--template-arg", "x=1", "--chat-template", "chatml"),
        b"",
        "the chat format chatml has no arguments, found x",
    ),
    "an argument without a template": (
        (".", "The cat", "--template-arg", "x=1"),
        b"",
        "--template-arg is for a chat template",
    ),
    "a file for an argument": (
        (".", "The cat", "--template-arg", "x=@nowhere", "--chat-template", "chatml"),
        b"",
        "nowhere: No such file",
    ),
    "a file that is no template": (
        (".", "The cat", "--chat-template", "nowhere.jinja"),
        b"",
        "nowhere.jinja cannot be read: No such file",
    ),
    "a base model": (
        (".", "The cat", "--chat"),
        b"",
        "has no chat format: it has no chat template (a base model?)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_exits_with_2(case: str, typed: Typed, plain: Path) -> None:
    words, stdin, message = BAD[case]
    result = typed("run", *(plain if x == "." else x for x in words), stdin=stdin)
    assert result.status == 2
    assert result.err.startswith("error: ")
    assert message in result.err
    assert result.out == ""


def test_batch_larger_than_memory_exits_with_2(typed: Typed, tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path, max_position_embeddings=4_100_000_000)
    result = typed(
        "run",
        folder,
        "--batch-file",
        "-",
        "--max-tokens",
        4_000_000_000,
        "--batch",
        99,
        stdin=b"The cat\n" * 99,
    )
    assert result.status == 2
    assert "for 99 sequences of 4,000,000,003 tokens in float32" in result.err
    assert "are free on cpu" in result.err


def test_nonfinite_weight_is_named(typed: Typed, tmp_path: Path) -> None:
    place = tiny_checkpoint(tmp_path)
    weights = load_file(place / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(weights, place / "model.safetensors")
    result = typed("run", place, "The cat")
    assert result.status == 2
    assert "layers.1.mlp.up.weight" in result.err


def test_tokenizer_of_another_model(typed: Typed, tmp_path: Path) -> None:
    result = typed("run", tiny_checkpoint(tmp_path, vocab_size=1000), "The cat")
    assert result.status == 2
    assert "the tokenizer has 316 tokens, but the model's embedding has 1,000 rows" in result.err


def test_folder_without_a_tokenizer(typed: Typed, tmp_path: Path) -> None:
    place = tiny_checkpoint(tmp_path)
    (place / "tokenizer.json").unlink()
    result = typed("run", place, "The cat")
    assert result.status == 2
    assert "expected a tokenizer" in result.err


def test_gguf_without_vocabulary_uses_tokenizer_files(
    typed: Typed, plain: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.gguf"
    assert typed("convert", plain, file, "--names", "gguf").status == 0
    assert "put the model's tokenizer.json in the same folder" in typed("run", file, "The cat").err
    (tmp_path / "tokenizer.json").write_bytes((plain / "tokenizer.json").read_bytes())
    assert (
        typed("run", file, "The cat", "--max-tokens", 6).out
        == typed("run", plain, "The cat", "--max-tokens", 6).out
    )


def test_bundled_model_is_the_default(
    typed: Typed, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "path", lambda: str(plain))
    assert (
        typed("run", "The cat", "--max-tokens", 5).out
        == typed("run", plain, "The cat", "--max-tokens", 5).out
    )


def test_missing_torch_names_the_install_command(plain: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['llamath', 'run', sys.argv[1], 'hi', '--engine', 'torch']; from llamath.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(plain)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'llamath[torch]'" in done.stderr


TALK = """hi
/system Be brief.
Who?

/nonsense
/system
/help
/reset
hi
/regenerate
/quit
never read
"""


def test_chat_through_a_pipe(typed: Typed, talker: Path) -> None:
    llama = Llama.open(talker)
    actual = typed("run", talker, "--chat", "--max-tokens", 8, stdin=TALK.encode())
    assert actual.status == 0
    brief = ("system", "Be brief.")
    expected = [
        [("user", "hi")],
        [brief, ("user", "Who?")],
        [brief, ("user", "hi")],
        [brief, ("user", "hi")],
    ]
    assert actual.out == "".join(
        printable(llama.chat(x, max_tokens=8).text) + "\n" for x in expected
    )
    for message in (
        "unknown command /nonsense",
        "\nBe brief.\n",
        "/regenerate   generate the last answer",
        "4 answers, ",
        "the same answer again",
    ):
        assert message in actual.err


def test_chat_keeps_its_history(typed: Typed, talker: Path) -> None:
    llama = Llama.open(talker)
    result = typed("run", talker, "--chat", "--max-tokens", 8, stdin=b"hi\nWho are you?\n")
    first = llama.chat([("user", "hi")], max_tokens=8).text
    second = llama.chat(
        [("user", "hi"), ("assistant", first), ("user", "Who are you?")], max_tokens=8
    ).text
    assert result.out == f"{printable(first)}\n{printable(second)}\n"


def test_run_without_a_prompt_chats_on_a_terminal(talker: Path) -> None:
    import pty

    command = [sys.executable, "-m", "llamath", "run", str(talker), "--max-tokens", "3"]
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        command, stdin=its_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(its_end)
        os.write(terminal, b"hi\n/quit\n")
        out, err = process.communicate(timeout=300)
    os.close(terminal)
    assert process.returncode == 0 and b"/help lists the commands" in err and b"1 answer, " in err
    assert out.strip()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--brief",), "--brief needs a PROMPT: without one, `run` chats"),
        (("--logprobs", "2"), "--logprobs needs a PROMPT"),
    ],
)
def test_options_for_a_prompt_are_refused_in_a_chat(
    words: tuple[str, ...], message: str, typed: Typed, plain: Path
) -> None:
    result = typed("run", plain, "--chat", *words)
    assert result.status == 2 and message in result.err and not result.out


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        ((), b"", "has no chat format: it has no chat template (a base model?)"),
        (("--chat-template", "chatlm"), b"", "unknown chat format"),
        (("--chat-template", "chatml"), b"caf\xe9\n", "standard input is not UTF-8"),
        (("--chat-template", "chatml"), b"/regenerate\n", "no answer to regenerate yet"),
        (("--chat-template", "chatml"), b"The cat " * 100, "longer than the context of 128"),
    ],
)
def test_chat_errors(
    words: tuple[str, ...], stdin: bytes, message: str, typed: Typed, plain: Path
) -> None:
    result = typed("run", plain, "--chat", *words, stdin=stdin)
    assert result.status == 2
    assert message in result.err


def test_messages_as_pairs_and_mappings() -> None:
    assert parse_message({"role": "user", "content": "hi"}) == parse_message(("user", "hi"))


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_prints_the_text_so_far(tmp_path: Path) -> None:
    place = tiny_checkpoint(tmp_path, eos_token_id=None, max_position_embeddings=1 << 20)
    words = [
        sys.executable,
        "-m",
        "llamath",
        "run",
        str(place),
        "The cat",
        "--max-tokens",
        "500000",
    ]
    env: dict[str, Any] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    heard = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # what a shell starts in the background ignores it
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, preexec_fn=heard
    ) as process:
        assert process.stdout is not None
        head = process.stdout.read(40)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert (head + out).endswith(b"\n")
    assert b"Traceback" not in err
    assert b"interrupted; greedy" in err


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize(
    "words", [("The cat", "--json"), ("--batch-file", "-", "--batch", 2)], ids=["json", "batch"]
)
def test_interrupted_json_has_the_text_so_far(
    words: tuple[object, ...],
    engine: str,
    typed: Typed,
    plain: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, owner, method = (
        iter(range(99)),
        *((Decoder, "forward") if engine == "torch" else (NativeSession, "run")),
    )
    read = getattr(owner, method)

    def tired(*given: Any, **options: Any) -> Any:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return read(*given, **options)

    monkeypatch.setattr(owner, method, tired)
    result = typed("run", plain, *words, "--engine", engine, stdin=b"The cat\nA dog ran\nthe\n")
    assert result.status == 130
    rows = [json.loads(x) for x in result.out.splitlines()]
    assert [(x["finish"], x["tokens"]) for x in rows] == [("interrupted", 5)] * (
        2 if "--batch" in words else 1
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--chat"], "a chat runs in one process"),
        (["run", "-"], "standard input belongs to one process"),
        (["run", "--batch-file", "-"], "standard input belongs to one process"),
    ],
)
def test_torchrun_rejects_interactive_use(
    words: list[str], message: str, plain: Path, typed: Typed, started: list[str]
) -> None:
    result = typed(words[0], plain, *words[1:], stdin=b"hello\n")
    assert result.status == 2 and message in " ".join(result.err.split()) and not result.out
    assert started == ["cpu"]  # they meet first, so that only one of them says it
