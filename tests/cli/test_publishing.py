"""Where checkpoints are published: the card, the action, the hook of pre-commit, and the extension of hf."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from llamath.cli import cli, verify_files
from llamath.cli.model_card import BEGIN, END, card_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "publishing"
TOTAL = 32_928


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The example of a repository, with the weights of a small Llama."""
    folder = tmp_path / "my-model"
    shutil.copytree(EXAMPLE, folder)
    for x in (ROOT / "examples" / "tiny-llama").iterdir():
        shutil.copy(x, folder)
    return folder


def break_config(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))


def test_card_replaces_what_its_marks_enclose(repository: Path) -> None:
    readme = repository / "README.md"
    before, after = readme.read_text().split(f"{BEGIN}\n{END}")
    for _ in range(2):
        done = run("export", str(repository), "--card", "-o", str(readme))
        assert done.exit_code == 0, done.output
        text = readme.read_text()
        assert text.startswith(before + BEGIN) and text.endswith(END + after)
        assert f"| parameters | {TOTAL:,} |" in text and text.count(BEGIN) == 1
    hashed = run("same", str(repository), "--json")
    assert json.loads(hashed.stdout)["hash"] in text


def test_card_is_json_ld_by_its_ending(repository: Path) -> None:
    target = repository / "card.jsonld"
    assert run("export", str(repository), "--card", "-o", str(target)).exit_code == 0
    card = json.loads(target.read_text())
    values = {x["name"]: x["value"] for x in card["additionalProperty"]}
    assert card["@context"] == "https://schema.org" and values["parameters"] == TOTAL
    assert values["bytes of tensors"] == 2 * TOTAL and values["parameters in BF16"] == TOTAL
    assert json.loads(run("export", str(repository), "--card", "--json").stdout) == card
    again = run("export", str(repository), "--card", "-o", str(target))
    assert again.exit_code == 2 and json.loads(target.read_text()) == card


@pytest.mark.parametrize(
    "text", ["# mine\n", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"]
)
def test_readme_without_its_marks_is_not_touched(repository: Path, text: str) -> None:
    readme = repository / "README.md"
    readme.write_text(text)
    done = run("export", str(repository), "--card", "-o", str(readme))
    assert done.exit_code == 2 and BEGIN in done.output and readme.read_text() == text


def test_checkpoint_that_does_not_match_has_no_card(repository: Path) -> None:
    break_config(repository)
    readme = repository / "README.md"
    text = readme.read_text()
    done = run("export", str(repository), "--card", "-o", str(readme))
    assert done.exit_code == 1 and "no card" in done.output and readme.read_text() == text


def test_card_is_of_one_checkpoint(repository: Path) -> None:
    assert run("export", "--card").exit_code == 2
    assert run("export", str(repository), "--card", "--poster").exit_code == 2
    assert run("export", "llama-3-8b", "--card").exit_code == 2
    card = card_of(repository).replace(description=f"x|<img src=x>`_`{END}")
    assert "<img" not in card.markdown() and card.markdown().count(END) == 1


def test_hook_verifies_each_checkpoint_once(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (wanted,) = yaml.safe_load((EXAMPLE / ".pre-commit-config.yaml").read_text())["repos"]
    assert wanted["hooks"] == [{"id": hook["id"]}]
    scripts = (ROOT / "pyproject.toml").read_text()
    assert f'{hook["entry"]} = "llamath.cli.verify_files:main"' in scripts
    monkeypatch.chdir(repository)
    names = ["config.json", "model.safetensors"]
    assert verify_files.checkpoints(names) == ["."]
    assert verify_files.checkpoints([".github/workflows/config.json"]) == []

    def code() -> Any:
        monkeypatch.setattr(sys, "argv", ["llamath-verify-files", *names])
        with pytest.raises(SystemExit) as end:
            verify_files.main()
        return end.value.code

    assert code() == 0
    break_config(repository)
    assert code() == 1
    capfd.readouterr()


@pytest.mark.slow
def test_steps_of_the_action_run(repository: Path, tmp_path: Path) -> None:
    """The scripts of its steps, with a program that stands for the installed one."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    workflow = yaml.safe_load((EXAMPLE / ".github" / "workflows" / "verify.yml").read_text())
    given = workflow["jobs"]["verify"]["steps"][-1]["with"]
    assert set(given) <= set(action["inputs"])
    install, *steps = action["runs"]["steps"]
    assert "pip" in install["run"] and all(x["shell"] == "bash" for x in (install, *steps))
    program = tmp_path / "llamath" / "bin" / "llamath"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m llamath "$@"\n')
    program.chmod(0o755)
    summary = tmp_path / "summary.md"

    def outcome() -> list[int]:
        codes = []
        for step in steps:
            variables = {
                name: given.get(value.strip("${} ").removeprefix("inputs."), "")
                for name, value in step["env"].items()
            }
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", step["run"]],
                cwd=repository,
                env={
                    **os.environ,
                    **variables,
                    "RUNNER_TEMP": str(tmp_path),
                    "GITHUB_STEP_SUMMARY": str(summary),
                },
                capture_output=True,
                text=True,
                check=False,
            )
            codes.append(done.returncode)
            if done.returncode:
                break
        return codes

    assert outcome() == [0, 0] and f"{TOTAL:,}" in (repository / "README.md").read_text()
    assert "names, shapes and dtypes match" in " ".join(summary.read_text().split())
    summary.unlink()
    break_config(repository)
    assert outcome() == [1] and "does not match" in " ".join(summary.read_text().split())


def test_recipe_for_trainers_passes_and_fails(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import test_saved

    test_saved.test_saved_checkpoint(str(repository))
    break_config(repository)
    with pytest.raises(AssertionError, match="does not match"):
        test_saved.test_saved_checkpoint(str(repository))


def test_extension_of_hf_asks_the_hub(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "integrations" / "hf-llamath"))
    import hf_llamath

    monkeypatch.chdir(repository.parent)
    (repository / "sub").mkdir()
    for words, meant in (
        ("verify my-org/my-model --full", "verify hf://my-org/my-model --full"),
        ("count meta-llama/Meta-Llama-3-8B", "count meta-llama/Meta-Llama-3-8B"),
        (
            "export my-org/my-model -o site/page.html",
            "export hf://my-org/my-model -o site/page.html",
        ),
        ("verify my-model/sub", "verify my-model/sub"),
        ("fit a/b --context 8k", "fit hf://a/b --context 8k"),
        ("count a/b/c ../x/y", "count a/b/c ../x/y"),
        ("", ""),
    ):
        assert list(hf_llamath.with_addresses(words.split())) == meant.split()
    asked: list[list[str]] = []
    monkeypatch.setattr(hf_llamath, "llamath", lambda: asked.append(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["hf-llamath", "verify", "my-org/my-model", "--full"])
    hf_llamath.main()
    assert asked == [["verify", "hf://my-org/my-model", "--full"]]


def test_readme_of_other_bytes_is_not_touched(repository: Path) -> None:
    readme = repository / "README.md"
    readme.write_bytes(f"{BEGIN}\n\xe9\n{END}\n".encode("latin-1"))
    done = run("export", str(repository), "--card", "-o", str(readme))
    assert done.exit_code == 2 and "UTF-8" in done.output and b"\xe9" in readme.read_bytes()
