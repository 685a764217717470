"""`count`, `memory` and `fit` of a repository on the Hub compare its headers with its config, by a bounded number of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli
from support.hub_server import CONFIG, Hub, Site, indexed, safetensors, status

pytestmark = pytest.mark.usefixtures("alone")
Pair = tuple[Site, Site]
MODEL = llamath.load(CONFIG)
SHAPES = {x.name: tuple(map(int, x.shape)) for x in MODEL.scheme("hf").tensors(MODEL.tree)}
SOUND = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": safetensors(SHAPES)}
LARGER = SOUND | {"config.json": json.dumps(CONFIG | {"num_hidden_layers": 3}).encode()}


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def notes(*args: str) -> list[str]:
    code, out, err = run(*args, "--json")
    assert code == 0, err
    return list(json.loads(out)["notes"])


def requests_for_weights(pair: Pair) -> int:
    return sum(
        ".safetensors" in x.path and "index" not in x.path for site in pair for x in site.seen
    )


def shards(number: int) -> dict[str, bytes]:
    names = list(SHAPES)
    parts = {
        f"model-{i + 1:05}-of-{number:05}.safetensors": safetensors(
            {x: SHAPES[x] for x in names[i::number]} or {f"extra.{i}": (1,)}
        )
        for i in range(number)
    }
    return {"config.json": SOUND["config.json"], **indexed(parts)}


def test_differences_of_a_repository_are_noted(pair: Pair) -> None:
    Hub(*pair, LARGER)
    assert any(
        "the files do not match the config" in x and "layers 0–1" in x
        for x in notes("count", "org/name")
    ), notes("count", "org/name")
    assert (
        json.loads(run("count", "org/name", "--json")[1])["parameters"]["total"]
        == llamath.load(CONFIG | {"num_hidden_layers": 3}).parameters.total
    )
    code, out, err = run("count", "org/name", "--brief")
    assert code == 0 and len(out.splitlines()) == 1 and "do not match the config" in err
    assert any("do not match the config" in x for x in llamath.count("org/name").model.notes)
    for command in (["memory", "org/name"], ["fit", "org/name", "--on", "h100"]):
        assert any("do not match the config" in x for x in notes(*command))


def test_sound_repository_has_no_note_and_few_requests(pair: Pair) -> None:
    Hub(*pair, SOUND)
    assert not any("config" in x for x in notes("count", "org/name"))
    assert requests_for_weights(pair) <= 4 and len(pair[0].seen) <= 10


def test_many_headers_are_not_requested_for_a_count(pair: Pair) -> None:
    Hub(*pair, shards(33))
    (note,) = (x for x in notes("count", "org/name") if "compared" in x)
    assert (
        "expected at most 32 files to read, found 33" in note
        and "llamath verify hf://org/name" in note
    )
    assert requests_for_weights(pair) == 0


def test_as_many_headers_as_allowed_are_compared(pair: Pair) -> None:
    Hub(*pair, shards(12))
    assert not any("compared" in x for x in notes("count", "org/name"))
    assert 12 <= requests_for_weights(pair) <= 48


def test_missing_shard_of_a_repository_is_noted(pair: Pair) -> None:
    files = shards(3)
    del files["model-00002-of-00003.safetensors"]
    Hub(*pair, files)
    assert any("1 file named in the index is missing" in x for x in notes("count", "org/name"))


def test_headers_that_cannot_be_read_are_a_note(pair: Pair) -> None:
    hub = Hub(*pair, SOUND)
    pair[0].pages[hub.resolve("model.safetensors")] = status(404, {"X-Error-Code": "EntryNotFound"})
    assert any("config" in x for x in notes("count", "org/name"))
    pair[0].pages[hub.resolve("model.safetensors")] = status(403)
    assert any(
        x.startswith("the files were not compared with the config")
        for x in notes("count", "org/name")
    )


def test_repository_without_weights_is_counted_without_notes(pair: Pair) -> None:
    Hub(*pair, {"config.json": SOUND["config.json"]})
    assert not any("compared" in x for x in notes("count", "org/name"))


def test_nothing_is_requested_offline(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from llamath.checkpoint.hub_cache import cache_folder

    def store(files: dict[str, Any]) -> None:
        folder = Path(cache_folder()) / "models--org--name"
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text("a" * 40)
        (folder / "snapshots" / ("a" * 40)).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / "snapshots" / ("a" * 40) / name).write_bytes(data)

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    store({"config.json": LARGER["config.json"]})
    assert not any("compared" in x for x in notes("count", "org/name"))
    store(LARGER)
    assert any("do not match the config" in x for x in notes("count", "org/name"))
    assert not pair[0].seen and not pair[1].seen
