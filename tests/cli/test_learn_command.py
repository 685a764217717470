"""`llamath learn`: a learner at a pseudo-terminal, worksheets, grading, and bad input."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.learn.course import LESSONS
from llamath.analysis.learn.learner_progress import LearnerProgress
from llamath.cli import cli


def learn(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(cli, ["learn", *words])
    assert done.exit_code == code, (done.output, done.stderr)
    return done


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "llamath" / "learn.json"


class Learner:
    """A learner at a pseudo-terminal."""

    def __init__(self, *words: str, **environment: str) -> None:
        self.terminal, other = pty.openpty()
        env = {**os.environ, "COLUMNS": "60", "NO_COLOR": "1", "TERM": "dumb", **environment}
        command = [sys.executable, "-m", "llamath", "learn", *words]
        self.process = subprocess.Popen(
            command,
            stdin=other,
            stdout=other,
            stderr=other,
            env=env,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a terminal
        )
        os.close(other)
        self.text = self.read()

    def read(self) -> str:
        """Everything until the prompt, or the end."""
        found = b""
        while not found.endswith(b"> "):
            assert select.select([self.terminal], [], [], 120)[0], found
            try:
                more = os.read(self.terminal, 4096)
            except OSError:
                break
            if not more:
                break
            found += more
        return found.decode().replace("\r\n", "\n")

    def say(self, line: str) -> str:
        os.write(self.terminal, f"{line}\n".encode())
        return self.read()

    def end(self, *, interrupt: bool = False) -> tuple[int, str]:
        """The exit code and the last output, if need be after Ctrl-C, which is typed again where it
        came between the prompt and readline's wait, and was not seen.
        """
        for _ in range(240 if interrupt else 0):
            self.process.send_signal(signal.SIGINT)
            if select.select([self.terminal], [], [], 0.5)[0]:
                break
        rest = self.read()
        code = self.process.wait(120)
        os.close(self.terminal)
        return code, rest


@pytest.mark.slow
def test_a_learner_goes_through_a_lesson(state: Path) -> None:
    learner = Learner("attention")
    assert "Attention and grouped heads: Llama 3 8B" in learner.text and "1/5" in learner.text
    assert "Hint: H / K." in learner.say("?")
    assert "these are the heads of K and V" in learner.say("8").replace("\n", " ").replace(
        "These", "these"
    )
    assert "2/5" in learner.say("H/K")
    wrong = learner.say("4096*4096")
    assert (
        "Not right. All 32 heads have their own K and V here; Llama 3 8B has 8."
        in wrong.replace("\n", " ")
    )
    assert "Right, rounded; exactly 4,194,304." in learner.say("4.19M")
    solution = learner.say("!")
    assert (
        "H·h·d + 2·K·h·d" in solution
        and "= 25,165,824 parameters" in solution
        and "4/5" in solution
    )
    assert "5/5" in learner.say("")  # left for later
    assert "Not a number" in learner.say("__import__('os')")
    last = learner.say("25165824")
    code, rest = learner.end()
    assert (
        code == 0 and "3 of 5 answered, 1 shown." in last + rest and "goes on here" in last + rest
    )
    assert all(len(x) <= 60 for x in (learner.text + wrong + solution).splitlines())
    kept = json.loads(state.read_text())["done"]["attention llama-3-8b"]
    assert sorted(kept.values()) == ["right", "right", "right", "shown"]
    again = Learner("attention")
    assert "4 of 5 questions are done already." in again.text and "4/5" in again.text
    last = again.say("41,943,040")
    code, rest = again.end()
    assert code == 0 and "Next: llamath learn mlp" in last + rest
    assert [
        x["answered"]
        for x in json.loads(learn("--json").stdout)["lessons"]
        if x["name"] == "attention"
    ] == [5]


def test_interrupting_keeps_the_progress(state: Path) -> None:
    learner = Learner("norms")
    learner.say("d")
    code, rest = learner.end(interrupt=True)
    assert code == 130 and "1 of 3 answered." in rest and "Traceback" not in rest
    assert json.loads(state.read_text())["done"] == {"norms llama-3-8b": {"norms/one": "right"}}


def test_an_unwritable_folder_and_ascii_are_notes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    learner = Learner(
        "norms", XDG_STATE_HOME=str(tmp_path / "file"), PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )
    answer = learner.say("d")
    assert "progress cannot be read" in learner.text.replace("\n", " ") and "Right." in answer
    code, rest = learner.end(interrupt=True)
    assert code == 130 and (learner.text + answer + rest).isascii()


def test_progress_that_cannot_be_written_is_a_reason(state: Path) -> None:
    state.mkdir(parents=True)
    progress = LearnerProgress()
    assert "cannot be read" in progress.problem
    assert "progress is not kept" in progress.keep("norms", "gpt2", "norms/one", "right")


def test_two_learners_keep_both_answers(state: Path) -> None:
    one, two = LearnerProgress(), LearnerProgress()
    assert one.keep("norms", "gpt2", "norms/one", "right") == ""
    assert two.keep("norms", "gpt2", "norms/all", "shown") == ""
    assert LearnerProgress().of("norms", "gpt2") == {"norms/one": "right", "norms/all": "shown"}
    assert one.forget("norms", "gpt2") == "" and LearnerProgress().of("norms", "gpt2") == {}
    for broken in ("", "[]", '{"schema": "other"}', "x" * 100, "[" * 100_000, "1" * 2**21):
        state.write_text(broken)
        progress = LearnerProgress()
        assert progress.done == {} and "starts anew" in progress.problem
    state.write_text(
        json.dumps(
            {
                "schema": "llamath-progress-1",
                "done": {"a b": {"x": 1, "y": "right"}, "c": 3, "": {}},
            }
        )
    )
    assert LearnerProgress().done == {"a b": {"y": "right"}}


def test_without_a_terminal_lessons_and_questions_are_printed() -> None:
    listed = learn().stdout
    assert "One matrix" in listed and "recurrence" in listed
    printed = learn("cache", "gemma-3-12b").stdout
    assert "1. cache/token" in printed and "= 8.93 GB" not in printed
    assert "= 8.93 GB" in learn("cache", "gemma-3-12b", "--solutions").stdout
    assert learn("norms", "--brief").stdout == "Norms: Llama 3 8B, 3 questions\n"


def test_a_worksheet_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    texts = []
    for name in ("a.md", "b.md"):
        learn("matrix", "-o", str(tmp_path / name), "--questions", "6", "--seed", "7")
        texts.append((tmp_path / name).read_text())
    assert (
        texts[0] == texts[1] and texts[0].count("Answer: ___") == 6 and "Solutions" not in texts[0]
    )
    sheet = llamath.lesson("matrix", questions=6, seed=7)
    other = llamath.lesson("matrix", questions=6, seed=8)
    assert len(sheet) == 6 and [x.id for x in sheet] != [x.id for x in other]
    shown = json.loads(learn("matrix", "--questions", "6", "--seed", "7", "--json").stdout)
    assert shown == sheet.to_json() and shown["schema"] == "llamath-worksheet-1"
    assert not any("answer" in x for x in shown["questions"])
    solved = json.loads(
        learn("matrix", "--questions", "6", "--seed", "7", "--json", "--solutions").stdout
    )
    assert [x["answer"] for x in solved["questions"]] == [int(x.answer) for x in sheet]
    many = learn("norms", "--questions", "100", "--json")
    assert "has 3 questions about Llama 3 8B, not 100" in json.loads(many.stdout)["notes"][0]


@pytest.mark.parametrize("ending", ["md", "html", "ipynb"])
def test_worksheets_are_valid_files_with_every_question(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"sheet.{ending}"
    learn("attention", "-o", str(path), "--solutions")
    text = path.read_text()
    assert "25,165,824" in text
    if ending == "ipynb":
        book = json.loads(text)
        assert book["nbformat"] == 4 and len({x["id"] for x in book["cells"]}) == len(book["cells"])
        code = ["".join(x["source"]) for x in book["cells"] if x["cell_type"] == "code"]
        names: dict[str, Any] = {}
        for cell in code:
            exec(cell, names)  # the cells of the notebook, as a kernel runs them
        assert len(names["sheet"]) == len(code) - 1 == 5
    if ending == "html":
        assert text.startswith("<!doctype html>") and "<script" not in text and "http" not in text
    again = learn("attention", "-o", str(path), code=2)
    assert "already exists" in again.stderr
    learn("attention", "-o", str(path), "--force")
    assert "25,165,824" not in path.read_text()


@pytest.mark.parametrize("ending", ["md", "html", "ipynb"])
def test_sheet_about_a_file_shows_its_name_and_opens_it(ending: str, tmp_path: Path) -> None:
    folder, path = tmp_path / "<img src=x>", tmp_path / f"sheet.{ending}"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "tiny-llama", folder)
    learn("matrix", str(folder), "-o", str(path))
    text = path.read_text()
    assert "img src=x" in text and not re.search(
        r"(?<!\\)<img", text.replace(repr(str(folder)), "")
    )
    if ending == "ipynb":
        names: dict[str, Any] = {}
        exec("".join(json.loads(text)["cells"][1]["source"]), names)
        assert names["sheet"].study.name == "<img src=x>"


def graded(tmp_path: Path, document: Any, *words: str, code: int) -> Any:
    path = tmp_path / "answers.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return learn(str(path), *words, code=code)


def answers(**changes: Any) -> dict[str, Any]:
    right = {"total/total": "8.03B", "total/blocks": 6979588096}
    return {
        "schema": "llamath-answers-1",
        "lesson": "total",
        "preset": "llama-3-8b",
        "answers": right,
    } | changes


def test_answers_are_graded_with_an_exit_code(tmp_path: Path) -> None:
    assert "2 of 2 right" in graded(tmp_path, answers(), code=0).stdout
    wrong = graded(
        tmp_path,
        answers(answers={"total/total": "8835567616", "total/blocks": "many"}),
        "--json",
        code=1,
    )
    found = json.loads(wrong.stdout)
    assert (found["right"], found["of"]) == (0, 2)
    assert found["answers"][0]["findings"][0]["mistakes"] == ["no grouped heads"]
    assert "Not a number" in found["answers"][1]["verdict"]
    assert (
        "0 of 1 right"
        in graded(tmp_path, answers(answers={"total/total": "8.03B"}), "gpt2", code=1).stdout
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "empty"), ("[]", "object"), ("{", "JSON"), (answers(schema="llamath-answers-9"), "this version"),
        (answers(schema=None), "schema"), (answers(lesson="nothing"), "no lesson"), (answers(lesson=3), "lesson"),
        (answers(preset="/etc/passwd"), "no preset"), (answers(preset="owner/name"), "no preset"),
        (answers(preset=[]), "preset"), (answers(answers={}), "answers"), (answers(answers={"total/x": "1"}), "no question"),
        (answers(answers={"total/total": None}), "expected text"), (answers(answers={"total/total": True}), "expected text"),
        (answers(answers={str(i): "1" for i in range(501)}), "500"), ("9" * 2**21, "bytes"),
    ],
)  # fmt: skip
def test_bad_answer_files_are_refused(document: Any, words: str, tmp_path: Path) -> None:
    assert words in graded(tmp_path, document, code=2).stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["matrix", "-o"], "-o"), (["nothing"], "no lesson"),
        (["matrix", "-o", "x.pdf"], ".md, .ipynb or .html"), (["-o", "x.md"], "which lesson"),
        (["experts", "gpt2"], "no experts"), (["matrix", "--questions", "0"], "from 1 to 500"),
        (["matrix", "--seed", "x"], "integer"), (["none.json"], "is no file"),
        (["none.json", "-o", "x.md"], "without other options"), (["x.json", "--seed", "1"], "without other options"),
        (["--solutions"], "which lesson"), (["matrix", "nothing"], "nothing"),
    ],
)  # fmt: skip
def test_bad_input_is_an_error_with_a_hint(typed: list[str], words: str) -> None:
    done = learn(*typed, code=2)
    assert words in done.stderr.replace("\n", " ") and "Traceback" not in done.stderr


def test_python_lists_the_lessons_as_the_command_does() -> None:
    lessons = llamath.lesson()
    assert [x.name for x in lessons] == [x.name for x in LESSONS]
    assert str(lessons) == CliRunner().invoke(cli, ["learn"]).stdout.strip()
    with pytest.raises(llamath.LlamathError, match="which lesson"):
        llamath.lesson(seed=7)  # type: ignore[call-overload]


def test_python_has_lessons_and_checks() -> None:
    sheet = llamath.lesson("total", model="llama-3.2-1b")
    assert sheet["total/total"] is sheet[0] and not llamath.check(sheet[0], 1498482688)
    assert "tied" in str(llamath.check(sheet["total/total"], "1,498,482,688"))
    assert llamath.check(sheet[0], "1.24B")
    with pytest.raises(llamath.LlamathError, match="no question"):
        sheet["total/x"]
