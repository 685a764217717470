"""What an agent may read: presets and the files under one folder, of which an answer quotes nothing that is no model."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamath.cli.report_tools import TOOLS, parameters, required
from llamath.cli.tool_process import Answer, ToolRunner, agent_access, answer_question
from llamath.utils.access import only
from llamath.utils.errors import LlamathError
from support.hub_server import CONFIG, file, safetensors, sites
from support.planted_secrets import SECRET, plant

HANG_S = 120
KEYS = [
    f"{key}={CONFIG[key]}"
    for key in (
        "model_type",
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    )
]
NEEDED = {
    "models": "gpt2",
    "model": "gpt2",
    "path": "gpt2",
    "target": "1000000",
    "number": "1234567",
    "on": "h100",
    "ram": "64GiB",
}
PATHS = [
    *(
        ("count", "model"),
        ("config", "model"),
        ("facts", "model"),
        ("names", "model"),
        ("diff", "models"),
    ),
    *(
        ("ls", "path"),
        ("verify", "path"),
        ("verify", "against"),
        ("explain", "like"),
        ("design", "like"),
    ),
    ("fit", "on"),
]
"""Each parameter that is a path, or might be taken for one."""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The folder that may be read, which is the current one, and another whose name begins alike."""
    inside, outside = tmp_path / "models", tmp_path / "models-private"
    inside.mkdir()
    outside.mkdir()
    monkeypatch.chdir(inside)
    with only(agent_access(None)):
        yield inside, outside


def asked(tool: str, form: str = "json", **values: Any) -> Answer:
    pairs = [
        (name, x)
        for name, value in values.items()
        for x in (value if isinstance(value, list) else [value])
    ]
    return answer_question({"tool": tool, "form": form, "values": pairs})


def text_of(answer: Answer) -> str:
    return "\n".join((answer.text, *answer.notes))


def test_parameters_that_take_a_model_are_all_checked() -> None:
    from llamath.cli.model_options import ModelName, SeriesName

    found = {
        (tool, name)
        for tool in TOOLS
        for name, x in parameters(TOOLS[tool]).items()
        if isinstance(x.type, SeriesName)
    }
    found |= {
        ("count", name)
        for x in TOOLS.values()
        for name, y in parameters(x).items()
        if isinstance(y.type, ModelName)
    }
    assert {name for _, name in found} == {
        "model",
        "models",
        "path",
        "against",
        "like",
    }
    assert not any("via" in parameters(x) for x in TOOLS.values())


@pytest.mark.slow
def test_no_answer_quotes_a_file_that_is_no_model(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    names = plant(inside)
    plant(outside)
    (inside / "link").symlink_to(outside)
    (inside / "link.json").symlink_to(outside / "token")
    (inside / "weights-link.safetensors").symlink_to(outside / "key.pem")
    names += [
        "link",
        "link.json",
        "link/docker.json",
        "weights-link.safetensors",
        str(outside),
        str(outside / "token"),
        "../private/env",
    ]
    leaks, errors = [], 0
    for tool, parameter in PATHS:
        known = parameters(TOOLS[tool])
        needed = {x: NEEDED[x] for x, y in known.items() if required(x, y) and x != parameter}
        for i, name in enumerate(names):
            values: dict[str, Any] = {
                parameter: [name, "gpt2"] if parameter == "models" else name,
                **needed,
            }
            for more in ({}, {"set": KEYS}) if tool in ("config", "count") else ({},):
                answer = asked(tool, ("json", "text", "brief")[i % 3], **values, **more)
                errors += answer.is_error
                if SECRET in text_of(answer):
                    leaks.append((tool, parameter, name, text_of(answer)[:300]))
    assert not leaks and errors > 400


def test_values_of_unknown_keys_are_not_shown(folders: tuple[Path, Path]) -> None:
    inside, _ = folders
    plant(inside)
    answer = asked("config", model="own-keys")
    data = json.loads(answer.text)
    assert (
        data["hf"]["hidden_size"] == CONFIG["hidden_size"]
        and data["hf"]["api_key"] == "(not shown)"
    )
    assert not answer.is_error and {"api_key", "aws", "list"} <= {x["key"] for x in data["keys"]}
    refused = asked("config", model="docker.json", set=KEYS)
    assert refused.is_error and "no configuration of a model" in refused.text


def test_paths_outside_of_the_root_are_refused_alike(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    (outside / "there").write_text("{}")
    (outside / "folder").mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "dangling").symlink_to(outside / "absent")
    os.mkfifo(outside / "pipe")
    (inside / "here.json").write_text(json.dumps(CONFIG))
    kinds = ["there", "absent", "folder", "folder/", "there/x", "absent/x", "pipe"]
    for tool, parameter in PATHS:
        known = parameters(TOOLS[tool])
        needed = {x: NEEDED[x] for x, y in known.items() if required(x, y) and x != parameter}
        if tool == "design":
            continue  # a series is never a path
        for start in (f"{outside}/", "../private/", "link/"):
            texts = set()
            for kind in kinds:
                name = start + kind
                answer = asked(
                    tool, **{parameter: [name, "gpt2"] if parameter == "models" else name}, **needed
                )
                error = json.loads(answer.text)["error"]
                assert (
                    answer.is_error and error["code"] == "not_allowed" and "--root" in error["hint"]
                )
                texts.add(answer.text.replace(json.dumps(name)[1:-1], "NAME"))
            assert len(texts) == 1
    assert json.loads(asked("ls", path="dangling").text)["error"]["code"] == "not_allowed"
    assert not asked("count", model=str(inside / "here.json")).is_error
    assert not asked("count", model="../models/here.json").is_error
    assert asked("count", model="-").is_error


def test_files_that_files_name_are_refused_alike(folders: tuple[Path, Path]) -> None:
    inside, outside = folders
    weights = safetensors({"a": (2,)})
    for folder in (inside / "model", outside):
        folder.mkdir(exist_ok=True)
        (folder / "model-00001-of-00001.safetensors").write_bytes(weights)
        (folder / "config.json").write_text(json.dumps(CONFIG))
    (inside / "linked").mkdir()
    (inside / "linked" / "model.safetensors").symlink_to(
        outside / "model-00001-of-00001.safetensors"
    )
    (inside / "linked" / "config.json").symlink_to(outside / "config.json")
    for name in ("ls", "verify"):
        assert asked(name, path="linked").is_error and not asked(name, path="model").is_error
    # a cache of the Hub, whose snapshots may link to its blobs, does not widen the folder
    snapshot = inside / "models--a--b" / "snapshots" / "0000"
    snapshot.mkdir(parents=True)
    (inside / "models--a--b" / "blobs").symlink_to(outside)
    (snapshot / "model.safetensors").symlink_to("../../blobs/model-00001-of-00001.safetensors")
    assert json.loads(asked("ls", path=str(snapshot)).text)["error"]["code"] in (
        "not_allowed",
        "link",
    )
    adapter = inside / "adapter"
    adapter.mkdir()
    factors = {
        f"base_model.model.model.layers.0.self_attn.q_proj.lora_{x}.weight": (2, 2) for x in "AB"
    }
    (adapter / "adapter_model.safetensors").write_bytes(safetensors(factors))
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}
    texts = set()
    for base in (str(outside), str(outside / "absent")):
        (adapter / "adapter_config.json").write_text(
            json.dumps({**settings, "base_model_name_or_path": base})
        )
        found = text_of(asked("verify", path="adapter"))
        assert "its base model is not checked" in found
        texts.add(found.replace(base, "BASE"))
    assert len(texts) == 1


def test_a_link_after_the_check_is_not_followed(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = folders
    (outside / "config.json").write_text(json.dumps(CONFIG))
    (inside / "a").mkdir()
    (inside / "a" / "config.json").write_text(json.dumps(CONFIG))
    access = agent_access(None)
    real = os.path.realpath

    def swapped(path: Any, **more: Any) -> str:
        found = real(path, **more)
        (inside / "a").rename(inside / "b")
        (inside / "a").symlink_to(outside)
        return found

    monkeypatch.setattr(os.path, "realpath", swapped)
    with pytest.raises(OSError, match="a"):
        access.open("a/config.json", os.O_RDONLY)
    monkeypatch.undo()
    os.close(access.open(str(inside / "b" / "config.json"), os.O_RDONLY))


def test_addresses_and_repositories_are_off_unless_allowed(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with sites(1) as (site,):
        monkeypatch.setenv("HF_ENDPOINT", site.url)
        site.pages["/x.safetensors"] = file(safetensors({"a": (2,)}))
        names = [
            f"{site.url}/x.safetensors",
            "owner/name",
            "hf://owner/name",
            f"{site.url}/owner/name",
            "s3://bucket/x",
            "memory://x/y",
        ]
        for name in (
            *names,
            "file:///etc/passwd",
            "https://huggingface.co/owner/name",
            "owner/name@main",
            "owner/name/x.gguf",
        ):
            for tool, parameter in (("ls", "path"), ("verify", "path"), ("count", "model")):
                error = json.loads(asked(tool, **{parameter: name}).text)["error"]
                assert error["code"] == "not_allowed" and (
                    "--allow hub" in error["hint"] or "--allow urls" in error["hint"]
                ), name
        assert not asked(
            "count", model="meta-llama/Meta-Llama-3-8B"
        ).is_error  # the public id of a preset needs no request
        assert not site.seen
        with only(agent_access(None, hub=True)):
            pass  # rules add up: the first one still forbids
    assert json.loads(asked("ls", path="owner/name").text)["error"]["code"] == "not_allowed"


def test_only_the_host_of_the_endpoint_may_be_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with sites(2) as (endpoint, internal), only(agent_access(None, hub=True, urls=True)):
        monkeypatch.setenv("HF_ENDPOINT", endpoint.url)
        for site in (endpoint, internal):
            site.pages["/x.safetensors"] = file(safetensors({"a": (2,)}))
        assert not asked("ls", path=f"{endpoint.url}/x.safetensors").is_error
        error = json.loads(asked("ls", path=f"{internal.url}/x.safetensors").text)["error"]
        assert error["code"] == "private" and not internal.seen
        assert json.loads(asked("ls", path="s3://bucket/x").text)["error"]["code"] == "not_allowed"


def test_without_a_root_the_home_folder_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for here in (tmp_path, Path("/")):
        monkeypatch.chdir(here)
        assert not any(x.contains(str(tmp_path)) for x in (agent_access(None),))
    assert agent_access(str(tmp_path)).contains(str(tmp_path / "config.json"))
    with pytest.raises(LlamathError, match="--root expects a folder"):
        agent_access(str(tmp_path / "absent"))


# Processes


def run_tool(
    runner: ToolRunner, tool: str, values: list[tuple[str, str]], form: str = "json"
) -> Answer:
    async def ask() -> Answer:
        try:
            return await asyncio.wait_for(runner.run(tool, values, form), HANG_S)
        finally:
            await runner.close()

    return asyncio.run(ask())


@pytest.mark.slow
def test_a_call_that_hangs_delays_no_other_call(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep({2 * HANG_S})"

    async def ask() -> Answer:
        access = agent_access(str(tmp_path))
        hanging, other = (
            ToolRunner(access, seconds=2 * HANG_S),
            ToolRunner(access, seconds=2 * HANG_S),
        )
        hanging.command = [sys.executable, "-c", code]
        task = asyncio.create_task(hanging.run("count", [("model", "gpt2")], "json"))
        while not (note.exists() and note.read_text()):
            await asyncio.sleep(0.01)
        answer = await other.run("count", [("model", "gpt2")], "brief")
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await other.close()
        return answer

    assert "124,439,808" in asyncio.run(asyncio.wait_for(ask(), HANG_S)).text
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_a_call_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    runner = ToolRunner(agent_access(str(tmp_path)), seconds=0.1)
    runner.command = [sys.executable, "-c", f"import time; time.sleep({2 * HANG_S})"]
    answer = run_tool(runner, "count", [("model", "gpt2")])
    assert answer.is_error and json.loads(answer.text)["error"]["code"] == "too_slow"
    runner.command = [sys.executable, "-c", "import os; os.abort()"]
    crashed = ToolRunner(agent_access(str(tmp_path)))
    crashed.command = runner.command
    assert (
        json.loads(run_tool(crashed, "count", [("model", "gpt2")]).text)["error"]["code"] == "ended"
    )


@pytest.mark.slow
def test_a_process_imports_nothing_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "click", "sitecustomize", "llamath", "numpy"):
        (tmp_path / f"{name}.py").write_text(
            f"raise SystemExit('{name} of the folder was imported')"
        )
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    runner = ToolRunner(agent_access(str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", ".")
    assert json.loads(run_tool(runner, "count", [("model", "config.json")]).text)["model"]
    assert run_tool(runner, "ls", [("path", "/etc/passwd")]).is_error


@pytest.mark.slow
def test_calls_have_limits_of_size(tmp_path: Path) -> None:
    runner = ToolRunner(agent_access(str(tmp_path)))
    many = run_tool(runner, "diff", [("models", "gpt2")] * 10_000)
    assert many.is_error and "at most" in many.text
    assert "more than" in run_tool(runner, "count", [("model", "x" * 2_000_000)]).text
