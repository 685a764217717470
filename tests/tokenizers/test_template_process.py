"""The process that renders chat templates is a boundary: it has limits, can be killed, keeps nothing of this process, and is not believed."""

from __future__ import annotations

import copy
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from llamath import embedded
from llamath.generation.session import FolderTemplates
from llamath.tokenizers import template_process
from llamath.tokenizers.jinja import JinjaTemplate, origin_runs, template_text
from llamath.tokenizers.jinja.template_messages import ProcessLimits
from llamath.tokenizers.model_template import ModelTemplate
from llamath.tokenizers.template_process import TemplateProcess
from llamath.utils.errors import LlamathError
from support.chat_templates import TEMPLATES
from support.conversations import CONVERSATIONS, TOKENS, TOOLS

HANG = 120
"""Seconds after which something that should have ended hangs."""
PLAIN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
MESSAGES = [{"role": "user", "content": "hi"}]
ENDLESS = "{% for k in range(9) %}{{ {}.fromkeys(range(0, 2305843009213693951 * 100000, 2305843009213693951))|length }}{% endfor %}"
"""Keys of equal hashes: work in C that the counter does not foresee, and that takes many minutes."""
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")

_NESTED = "{% set ns = namespace(t=(), u=()) %}{% for i in range(999) %}{% set ns.t = (ns.t,) %}{% set ns.u = (ns.u,) %}{% endfor %}"
_DEEP = (
    "{% set ns = namespace(t=()) %}"
    + "{% for i in range(99999) %}{% set ns.t = (ns.t,) %}{% endfor %}" * 2
)
ATTACKS = {
    "a deep tuple as a key": (_DEEP + "{% set d = {ns.t: 1} %}", "nested too deeply"),
    "a deep tuple looked up": (_NESTED + "{{ {}[ns.t] }}", "nested too deeply"),
    "a deep tuple in a dict": (_NESTED + "{{ ns.t in {} }}", "nested too deeply"),
    "a deep tuple made unique": (_NESTED + "{{ [ns.t]|unique|list|length }}", "nested too deeply"),
    "deep tuples compared": (_NESTED + "{{ ns.t == ns.u }}", "nested too deeply"),
    "an indentation for each level": (
        "{% set ns = namespace(t=[1]*200000) %}{% for i in range(90) %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.t|tojson(indent=1000) }}",
        "operations, found more",
    ),
    "long separators": ("{{ ([1]*1000000)|tojson(separators=['x'*100000, ':']) }}", "operations, found more"),
    "separators that are lists": (
        "{% set ns = namespace(t=[1]) %}{% for i in range(90) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ 1|tojson(separators=[ns.t, ':']) }}",
        "expected two separators, texts",
    ),
    "a macro in a loop": (
        "{% for i in range(100000) %}{% macro m() %}" + "{{ a.b.c.d }}" * 4000 + "{% endmacro %}{% endfor %}{{ 'a' * 10**9 }}", "operations, found more",
    ),
    "widths of percents": ("{{ ('%(a)999d' * 600000) % {'a': 1} }}", "operations, found more"),
    "widths in braces": ("{{ ('{a:999}' * 600000).format(a=1) }}", "operations, found more"),
    "padding that is kept": ("{% set ns = namespace(l=[]) %}{% for k in range(8) %}{% set ns.l = ns.l + [range(100000)|map('center', 1000)|list] %}{% endfor %}", "operations, found more"),
    "a format in a test": ("{{ '%999999999d' is odd }}", "a field width of at most 3 digits"),
    "indented returns": ("{{ ('\\r' * 50000)|indent(1000)|length }}", "operations, found more"),
    "one tuple of many affixes": ("{% set x = 'a' * 1000000 %}{{ x.startswith((x ~ 'b',) * 100000) }}", "operations, found more"),
    "a long text that is stripped": ("{{ ('a'*5000000).strip('b'*5000000 + 'a')|length }}", "operations, found more"),
    "a number in a range": ("{% for i in range(100000) %}{% if 1.5 in range(100000) %}{% endif %}{% endfor %}", "operations, found more"),
}  # fmt: skip
"""Each of these crashed, hung or filled the memory once; the counter names the reason."""
HARMLESS = {
    "characters that are stripped": ("{{ ('a'*500000).strip('b'*500000 + 'a')|length }}", "0"),
    "a needle from the end": ("{{ ('a' * 500000).rfind('ab' + 'a' * 250000) }}", "-1"),
    "a separator from the end": ("{{ ('a' * 500000).rsplit('ab' + 'a' * 250000)|length }}", "1"),
    "a part from the end": ("{{ ('a' * 500000).rpartition('ab' + 'a' * 250000)[2]|length }}", "500000"),
}  # fmt: skip
"""Each of these took minutes to hours."""


def run_python(
    code: str, *arguments: str, memory: int = 3 << 30, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python with a limit of memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=5 * HANG,
        check=False,
        preexec_fn=limit,
        **options,
    )


@pytest.mark.slow
def test_attacks_end_with_an_error_and_in_little_memory() -> None:
    code = """
        import json, resource, sys
        from llamath.tokenizers.model_template import ModelTemplate
        from llamath.utils.errors import LlamathError
        process = None
        for name, text in json.load(sys.stdin).items():
            try:
                template = ModelTemplate({"default": text}, "model")
                template._process = process = process or getattr(template, "_process", None)
                answer = "= " + template.render([{"role": "user", "content": "hi"}])
            except LlamathError as error:
                answer = str(error)
            print(json.dumps([name, answer]), flush=True)
        own = [int(x.split()[1]) for x in open("/proc/self/status") if x.startswith("VmHWM")]  # ru_maxrss is also that of the tests
        print(json.dumps(["", max(*own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)]))
    """
    texts = {name: text for name, (text, _) in (ATTACKS | HARMLESS).items()}
    done = run_python(code, input=json.dumps(texts))
    answers = dict(map(json.loads, done.stdout.splitlines()))
    assert done.returncode == 0, (done.returncode, done.stderr[-500:], answers)
    assert answers.pop("") < 400_000  # KB
    wrong = {
        x: answers[x]
        for x, (_, expected) in ATTACKS.items()
        if not answers[x].startswith("model: chat template: ") or expected not in answers[x]
    }
    assert not wrong
    assert {x: answers[x] for x in HARMLESS} == {
        x: f"= {expected}" for x, (_, expected) in HARMLESS.items()
    }


OPERATIONS_ON_TEXT = """
x.split('\\n')|length ## x.split()|length ## x.rsplit('\\n')|length ## x.splitlines()|length ## x|list|length ## x|indent|length ## x.partition('\\n')|length
x.replace('\\n', '-')|length ## x.strip('a\\n')|length ## x|title|length ## x.split('\\n')|map('trim')|join('\\n')|length
"""


def test_work_on_a_text_of_a_user_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    origins_of = template_text.origins_of

    def count(text: str) -> bytes:
        nonlocal made
        made += 0 if isinstance(text, template_text.TemplateText) else len(text)
        return origins_of(text)

    monkeypatch.setattr(template_text, "origins_of", count)
    for operation in (
        x for line in OPERATIONS_ON_TEXT.strip().splitlines() for x in line.split(" ## ")
    ):
        found = []
        for n in (1000, 2000):
            made = 0
            JinjaTemplate(
                "{% set x = messages[0].content %}{{ " + operation + " }}", "test"
            ).render([{"role": "user", "content": "ab \n" * n}])
            found.append(made)
        assert found[1] <= 2 * found[0] + 100, (operation, found)
        assert found[1] <= 10 * 8000, (operation, found)


def outcome(render: Callable[[], str]) -> list[Any]:
    try:
        return list(origin_runs(render()))
    except LlamathError as error:
        return [str(error), error.hint]


@pytest.mark.slow
def test_process_renders_what_this_process_would() -> None:
    process, compared = TemplateProcess(), 0
    texts = {
        **TEMPLATES,
        "an error of syntax": "{% if",
        "an error": "{{ 1 / 0 }}",
        "of its own": "{{ raise_exception('no') }}",
        "too much": "{{ 'a' * 10**9 }}",
    }
    for (name, text), messages in product(texts.items(), islice(CONVERSATIONS.values(), 4)):
        marked = [
            {
                **messages[0],
                "name": template_text.TemplateText("ab", b"\1\0"),
                "rare": ["\ud83d\ude00", {1: 2.5, "x": None}],
            },
            *messages[1:],
        ]
        given: dict[str, Any] = {"arguments": {"tools": TOOLS}}
        here = outcome(partial(JinjaTemplate(text, name, TOKENS).render, marked, **given))
        assert here == outcome(partial(process.render, text, name, TOKENS, marked, **given))
        compared += 1
    assert compared > 40


@needs_proc
def test_process_has_nothing_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jinja2.py", "json.py", "llamath.py", "markupsafe.py"):
        (tmp_path / name).write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend("")
    monkeypatch.setenv("HF_TOKEN", "secret")
    with (tmp_path / "jinja2.py").open() as file:
        os.set_inheritable(file.fileno(), True)
        process = TemplateProcess()
        assert process.render(PLAIN, "test", {}, MESSAGES) == "<|user|>hi"
        assert process._kept is not None
        place = Path(f"/proc/{process._kept.process.pid}")
        opened = sorted(os.readlink(x).partition(":")[0] for x in (place / "fd").iterdir())
    assert opened == ["/dev/null"] * 3 + ["pipe"] * 2
    names = {x.partition("=")[0] for x in (place / "environ").read_text().split("\0") if x}
    assert names <= {*template_process._KEPT_VARIABLES, "LC_CTYPE"}
    assert os.readlink(place / "cwd") == "/"
    assert os.getsid(process._kept.process.pid) != os.getsid(0)
    limits = {
        x[:26].strip(): x[26:].split()[:2] for x in (place / "limits").read_text().splitlines()
    }
    assert limits["Max address space"] == [str(1 << 30)] * 2
    assert (
        limits["Max open files"]
        == limits["Max file size"]
        == limits["Max core file size"]
        == ["0", "0"]
    )
    assert limits["Max cpu time"][0] != "unlimited"


@needs_proc
@pytest.mark.slow
def test_process_is_kept_and_replaced() -> None:
    template = ModelTemplate({"default": PLAIN, "other": "{{ x }}"}, "test")

    def pid(template: ModelTemplate) -> int:
        assert template.render(MESSAGES) == "<|user|>hi"
        assert template._process._kept is not None
        return template._process._kept.process.pid

    template._process.prepare(PLAIN)
    first = pid(template)
    assert pid(template) == first
    assert template.choose("other").with_arguments({"x": 5}).render(MESSAGES) == "5"
    assert pid(template) == first
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: is_gone(first))
    second = pid(template)
    assert second != first
    assert pid(copy.deepcopy(template)) != second
    with pytest.raises(LlamathError, match="operations"):
        template._process.render("{{ 'a' * 10**9 }}", "test", {}, MESSAGES)
    third = pid(template)
    assert third != second
    if (child := os.fork()) == 0:
        with suppress(BaseException):
            os._exit(
                0 if pid(template) != third else 1
            )  # a process of its own, and that of its parent is left alone
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pid(template) == third
    del template
    with pytest.raises(ProcessLookupError):
        os.kill(third, 0)


LIES = {
    "nothing": b"", "no JSON": b"x", "not UTF-8": b"\xff", "a list": b"[]", "a number": b"1", "lists": b"[" * 100_000, "digits": b"9" * 5000, "an empty object": b"{}",
    "no origins": b'{"text": "a"}', "too few origins": b'{"text": "ab", "origins": "1"}', "too many origins": b'{"text": "a", "origins": "11"}',
    "other origins": b'{"text": "a", "origins": "2"}', "another digit": '{"text": "a", "origins": "\u0661"}'.encode(), "a list of origins": b'{"text": "a", "origins": [1]}',
    "no text": b'{"text": 1, "origins": "1"}', "more keys": b'{"text": "a", "origins": "1", "x": 1}', "a problem that is no text": b'{"problem": [], "exceeded": false}',
    "null": b'{"text": null, "origins": null}',
}  # fmt: skip


def pretending(answer: bytes, length: int | None = None) -> str:
    """A program that answers so, whatever it is asked."""
    code = """
        import sys
        def read(): return sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "big"))
        read(); read()
        sys.stdout.buffer.write((LENGTH).to_bytes(8, "big") + ANSWER); sys.stdout.flush(); read()
    """
    return (
        textwrap.dedent(code)
        .replace("LENGTH", str(len(answer) if length is None else length))
        .replace("ANSWER", repr(answer))
    )


@pytest.mark.slow
def test_answers_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def render(program: str, limits: ProcessLimits | None = None) -> str:
        monkeypatch.setattr(template_process, "_START", program)
        process = TemplateProcess(limits)
        try:
            return process.render(PLAIN, "test", {}, MESSAGES)
        finally:
            started.append(process)

    assert render(pretending(b'{"text": "a", "origins": "1"}')) == "a"
    for lie in LIES.values():
        with pytest.raises(
            LlamathError, match=r"test: chat template: (expected a|its answer is not complete)"
        ):
            render(pretending(lie))
    with pytest.raises(
        LlamathError, match=r"expected an answer of at most 67,1.* bytes, found 1,000,000,000,000"
    ):
        render(pretending(b"", 10**12))
    with pytest.raises(LlamathError, match=r"a\\u\{1b\}b"):
        render(pretending(json.dumps({"problem": "a\x1bb", "exceeded": False}).encode()))
    for ending, reason in (("sys.exit(3)", "exit code 3"), ("os.kill(os.getpid(), 11)", "SIGSEGV")):
        with pytest.raises(LlamathError, match=f"its process ended with {reason}"):
            render(f"import os, sys; {ending}")
    with pytest.raises(
        LlamathError, match="it was stopped after 0 seconds"
    ):  # it works in C, and ignores signals
        render(
            "import signal; signal.signal(2, signal.SIG_IGN); 'a'.join('b' for _ in iter(int, 1))",
            ProcessLimits(cpu_seconds=0.0, cpu_seconds_per_megabyte=0.0),
        )
    assert started[-1]._kept is None


@pytest.mark.slow
def test_memory_and_time_are_limited() -> None:
    small = TemplateProcess(ProcessLimits(memory=128 << 20))
    with pytest.raises(
        LlamathError, match=r"it needs too much memory|its process ended with"
    ) as error:
        small.render("{% set x = '😀' * 11000000 %}{{ x[1:] }}", "test", {}, MESSAGES)
    assert "compare the template" in error.value.hint
    short = TemplateProcess(ProcessLimits(cpu_seconds=0.0, clock=1e9))
    with pytest.raises(LlamathError, match="it was stopped, because it took too long"):
        short.render(ENDLESS, "test", {}, MESSAGES)
    assert short.render(PLAIN, "test", {}, MESSAGES) == "<|user|>hi"


def test_nothing_is_rendered_where_no_process_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        with pytest.raises(
            LlamathError,
            match="the process that renders it cannot be started: Operation not permitted",
        ) as error:
            TemplateProcess().render(PLAIN, "test", {}, MESSAGES)
        assert "--chat-template NAME" in error.value.hint
    for name, value in (("executable", None), ("frozen", True)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, value, raising=False)
            with pytest.raises(LlamathError, match="no Python interpreter"):
                TemplateProcess().render(PLAIN, "test", {}, MESSAGES)


@pytest.fixture(scope="module")
def hostile_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with a template that does not end."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in (
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        shutil.copy(Path(embedded.path()) / name, folder / name)
    (folder / "chat_template.jinja").write_text(ENDLESS)
    return folder


def wait_until(what: Callable[[], Any]) -> Any:
    """Wait for something to happen, and return it."""
    until = time.monotonic() + HANG
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def children(pid: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ticks(pid: int) -> int:
    """The time that a process has worked."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def is_gone(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@needs_proc
@pytest.mark.parametrize("command", [["run", "--chat"], ["run"]])
@pytest.mark.slow
def test_interrupt_ends_a_rendering_and_its_process(
    command: list[str], hostile_model: Path
) -> None:
    words = [*command, str(hostile_model), *(["hi"] if command == ["run"] else [])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "llamath", *words], text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdin is not None
            process.stdin.write("hi\n")
            process.stdin.flush()
            child = wait_until(lambda: children(process.pid))[0]
            wait_until(
                lambda: ticks(child) > 100
            )  # more than it needs to start and to parse: it renders
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANG)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):  # it is gone when the command ends
        os.kill(child, 0)


@needs_proc
def test_process_ends_with_its_parent() -> None:
    code = f"""
        from llamath.tokenizers.jinja.template_messages import ProcessLimits
        from llamath.tokenizers.template_process import TemplateProcess
        TemplateProcess(ProcessLimits(cpu_seconds=1e6)).render({ENDLESS!r}, "test", {{}}, {MESSAGES!r})
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as process:
        child = wait_until(lambda: children(process.pid))[0]
        wait_until(lambda: ticks(child) > 100)
        process.kill()
    wait_until(lambda: is_gone(child))


@pytest.mark.slow
def test_hostile_template_is_an_error_of_the_command(hostile_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(hostile_model, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(ATTACKS["a deep tuple as a key"][0])
    done = run_python("from llamath.cli import main; main()", "run", str(folder), "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert "chat template: line 1: a value is nested too deeply" in done.stderr
    assert "Traceback" not in done.stderr


def test_own_template_needs_no_process_and_others_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    shutil.copytree(embedded.path(), theirs)
    own, other = (FolderTemplates(str(x)) for x in (embedded.path(), theirs))
    expected = other.process.render(other.texts["default"], "test", {}, MESSAGES)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    own.prepare()
    text = own.process.render(own.texts["default"], "test", {}, MESSAGES)
    assert list(origin_runs(text)) == list(origin_runs(expected))
    assert isinstance(other.process, TemplateProcess)
