"""Configs that are sent to `llamath serve`: answered as the command answers them on standard input, bounded, and shown as any model."""

from __future__ import annotations

import builtins
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.cli.report_tools import TOOLS, parameter_of_models
from llamath.web.server import posted_configs
from llamath.web.server.posted_configs import MAX_POSTED, PostedConfig, PostedConfigs
from support.browser_page import page_data
from support.page_models import page_of
from support.serving import Place, served
from support.typed_commands import Typed

pytest.importorskip("uvicorn")
PARAMS = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 128256,
    "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3,
}
CONFIGS = [
    "llama-3-8b",
    "qwen2.5-7b",
    "deepseek-v3",
    "qwen3.5-4b",
    "qwen3-next-80b-a3b",
    "gpt-oss-20b",
    "falcon-mamba-7b",
    "gpt2",
]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with served([llamath.load("gpt2")]) as found:
        yield found


def config_of(slug: str) -> dict[str, Any]:
    model = llamath.load(slug)
    return dict((model.outer or model.config).data)


def send(
    place: Place, path: str, config: object, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    body = config if isinstance(config, bytes) else json.dumps(config).encode()
    return place.ask_bytes(
        f"{place.path}api/{path}", "POST", body, **{"Content_Type": "application/json", **headers}
    )


@pytest.mark.parametrize("slug", [*CONFIGS, "params.json"])
@pytest.mark.parametrize("name", ["count", "memory", "config"])
def test_sent_config_is_answered_as_on_standard_input(
    typed: Typed, place: Place, slug: str, name: str
) -> None:
    data = json.dumps(PARAMS if slug == "params.json" else config_of(slug)).encode()
    status, headers, answer = send(place, name, data)
    printed = typed(name, "-", "--json", stdin=data)
    assert (status, printed.status) == (200, 0) and answer == printed.out.encode()
    assert headers["llamath-model"].startswith("~") and headers["cache-control"] == "no-store"


def test_sent_config_is_compared_with_named_models(place: Place) -> None:
    config = config_of("llama-3-8b")
    for path in ("diff?models=llama-2-7b", "diff?models=llama-2-7b&models=-"):
        assert json.loads(send(place, path, config)[2])["total"]["delta"] == 1_291_845_632
    turned = json.loads(send(place, "diff?models=-&models=llama-2-7b", config)[2])
    assert turned["total"]["delta"] == -1_291_845_632
    assert (
        json.loads(send(place, "count?set=num_hidden_layers=31", config)[2])["parameters"]["total"]
        == 8_030_261_248 - 218_112_000
    )
    status, _, text = send(place, "count?model=gpt2", config)
    assert status == 400 and json.loads(text)["error"]["code"] == "usage"


def test_sent_config_gets_a_page_and_a_name(place: Place) -> None:
    config = config_of("qwen2.5-7b")
    status, headers, _ = send(place, "count", config, Llamath_Name="my%20%3Cmodel%3E.json")
    model_id = headers["llamath-model"]
    assert status == 200
    text = place.ask(f"{place.path}model/{model_id}")[2]
    page = page_data(text)
    assert page["models"][0]["name"] == "my <model>.json" and "7,615,616,512 parameters" in str(
        text
    )
    assert page["served"] == {"up": "../", "ids": [model_id]}
    pair = page_data(place.ask(f"{place.path}models/~1/{model_id}")[2])
    assert pair["difference"]["delta"] == str(7_615_616_512 - 124_439_808)
    assert (
        json.loads(place.ask(f"{place.path}api/count?model={model_id}")[2])["parameters"]["total"]
        == 7_615_616_512
    )
    listed = page_data(place.ask(f"{place.path}choose")[2])["models"]
    assert [x["id"] for x in listed[:2]] == ["~1", model_id]
    assert send(place, "count", config, Llamath_Name="config.json")[1]["llamath-model"] != model_id
    assert (
        place.ask(f"{place.path}model/~0123456789ab")[0] == 404
        and "open it again" in place.ask(f"{place.path}model/~0123456789ab")[2]
    )
    unnamed = send(place, "count", config_of("qwen2.5-0.5b"))[1]["llamath-model"]
    listed = page_data(place.ask(f"{place.path}choose")[2])["models"]
    (name,) = (x["name"] for x in listed if x["id"] == unnamed)
    page = page_data(place.ask(f"{place.path}model/{unnamed}")[2])
    assert name == page["models"][0]["name"] == "your config (qwen2)"


def test_pages_of_the_server_may_ask_only_itself(place: Place) -> None:
    for path in ("", "choose", "model/gpt2", "models/gpt2/~1"):
        assert "connect-src 'self';" in place.ask(place.path + path)[2]
    assert "connect-src" not in page_of("gpt2")


JSON_TYPE = {"Content_Type": "application/json"}
REFUSED: list[tuple[dict[str, Any], int]] = [
    ({}, 415),
    ({"Content_Type": "text/plain"}, 415),
    ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
    ({"Content_Type": "multipart/form-data"}, 415),
    ({**JSON_TYPE, "Content_Encoding": "gzip"}, 415),
    ({**JSON_TYPE, "Host": "x.invalid"}, 421),
    ({**JSON_TYPE, "Origin": "http://x.invalid"}, 403),
    ({**JSON_TYPE, "Origin": "null"}, 403),
    ({**JSON_TYPE, "Sec_Fetch_Site": "cross-site"}, 403),
    ({**JSON_TYPE, "Sec_Fetch_Site": "same-site"}, 403),
    ({**JSON_TYPE, "Content_Length": str(MAX_POSTED + 1)}, 413),
    ({**JSON_TYPE, "Content_Length": "9" * 4000}, 413),
    ({**JSON_TYPE, "Transfer_Encoding": "chunked"}, 411),
]


@pytest.mark.parametrize(("headers", "status"), REFUSED)
def test_the_access_policy_holds_for_configs(
    place: Place, headers: dict[str, str], status: int
) -> None:
    found, answered, text = send_raw(place, f"{place.path}api/count", headers)
    assert found in (
        status,
        400 if "9" * 4000 in headers.values() else status,
    ) and "refused" in text + "refused" * (found == 400)
    assert not [x for x in answered.splitlines() if x.lower().startswith("access-control")]


def send_raw(
    place: Place, path: str, headers: dict[str, str], body: bytes = b"{}"
) -> tuple[int, str, str]:
    """Send a POST with exactly these headers; return the status, the headers and the body of the answer."""
    lines = {
        "Host": f"127.0.0.1:{place.port}",
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines |= {key.replace("_", "-"): value for key, value in headers.items()}
    if "Transfer-Encoding" in lines:
        del lines["Content-Length"]
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
    with socket.create_connection(("127.0.0.1", place.port), timeout=120) as wire:
        wire.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = b""
        while piece := wire.recv(65536):
            answer += piece
    first, _, text = answer.decode().partition("\r\n\r\n")
    return int(first.split()[1]), first, text


def test_configs_need_the_token_and_a_route_that_takes_them(place: Place) -> None:
    assert send_raw(place, "/api/count", JSON_TYPE)[0] == 405
    for path in ("/x/api/count", "api/", "api/none", "", "choose", "model/gpt2", "openapi.json"):
        assert (
            send_raw(place, path if path[:1] == "/" else place.path + path, JSON_TYPE)[0] == 405
        ), path
    for tool in TOOLS.values():
        if not tool.local:
            status = send_raw(place, f"{place.path}api/{tool.name}", JSON_TYPE)[0]
            assert status == (422 if parameter_of_models(tool) else 405), tool.name


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 99,
}
HOSTILE: list[tuple[object, str]] = [
    (LLAMA | {"num_hidden_layers": 10**9}, "1,000,000,000 layers, and pages are limited to 1,000"),
    (LLAMA | {"num_hidden_layers": 10**39}, "layers"),
    (config_of("deepseek-v3") | {"n_routed_experts": 10**9}, "weights, and pages are limited"),
    (
        config_of("qwen3.5-4b")
        | {"vision_config": config_of("qwen3.5-4b")["vision_config"] | {"depth": 10**9}},
        "limited",
    ),
    (
        {"model_type": "florence2", "text_config": {"model_type": "bart", "encoder_layers": 10**9}},
        "tensors",
    ),
    (b'{"a":' * 200_000, "nested too deeply"),
    (b"[" * 1_000_000, ""),
    (b'{"model_type":"llama","num_hidden_layers":' + b"9" * 1_000_000 + b"}", "digits"),
    (b'{"model_type":"llama","hidden_size":1e999}', "out of the range"),
    (b'{"model_type":"llama","model_type":"gpt2"}', "twice"),
    (b'{"a":0' + b',"":0' * 700_000 + b"}", "values"),
    (b"\xff\xfe{\x00}\x00 \x00 \x00 \x00", "UTF-16"),
    (b"", "empty"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    (b"<!doctype html><title>Sign in</title>", "an HTML page"),
    (b"null", "null"),
    (b"[]", "an array"),
    ({}, "model_type"),
    ({"peft_type": "LORA"}, "adapter"),
    ({"model_type": "\x1b[31m<img src=x>"}, "model_type"),
    ({"model_type": "x" * 100_000}, "model_type"),
    ({"weight_map": {}}, "an index of weight files"),
    (LLAMA | {"hidden_size": -1}, "hidden_size"),
    (LLAMA | {"vocab_size": "1; rm -rf /"}, "vocab_size"),
    (PARAMS | {"vocab_size": -1}, "vocab_size"),
]


@pytest.mark.parametrize(("config", "words"), HOSTILE, ids=[str(i) for i in range(len(HOSTILE))])
def test_hostile_configs_are_refused_with_a_reason(
    place: Place, config: object, words: str
) -> None:
    status, headers, data = send(place, "count", config, Llamath_Name="x%1B%5B31m%2F..%2Fy.json")
    error = json.loads(data)["error"]
    assert status == 422 and words in error["message"] and len(error["message"]) < 2000
    assert "llamath-model" not in headers and not [
        x for x in error["message"] + error["hint"] if ord(x) < 32
    ]
    assert place.ask(f"{place.path}api/count?model=gpt2")[0] == 200


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "none"},
        {"model_type": "bert"},
        LLAMA | {"model_type": "gemma3n", "vision_config": {"model_type": "x"}},
    ],
)
def test_unsupported_configs_are_found_but_refused(
    typed: Typed, place: Place, config: dict[str, Any]
) -> None:
    for name in ("count", "memory", "names", "diff?models=gpt2"):
        status, _, answer = send(place, name, config)
        assert status == 422, name
        printed = typed(
            name.partition("?")[0],
            *(["gpt2"] if "?" in name else []),
            "-",
            "--json",
            stdin=json.dumps(config).encode(),
        )
        assert (
            printed.status == 2
            and answer == printed.out.encode()
            and json.loads(answer)["error"]["code"] == "unknown_model"
        )
    assert send(place, "diff?models=no-such-model", LLAMA)[0] == 404


@pytest.mark.parametrize("name", ["a b", "../x", "a/b", "%zz", "ä", "x" * 961])
def test_names_that_are_not_encoded_are_refused(place: Place, name: str) -> None:
    status, _, data = send(place, "count", LLAMA, Llamath_Name=name)
    assert status == 400 and json.loads(data)["error"]["code"] == "usage"


def test_long_lists_of_unknown_keys_are_answered(place: Place) -> None:
    many = LLAMA | {f"key_{i}": [i] * 3 for i in range(60_000)}
    status, headers, _ = send(place, "count", many)
    assert status == 200 and len(headers.get("llamath-notes", "")) < 12_000
    text = place.ask(f"{place.path}model/{headers['llamath-model']}")[2]
    assert len(text) < 4_000_000


PATHS = {
    "_name_or_path": "/etc/passwd",
    "auto_map": {"AutoConfig": "/etc/passwd--x.X"},
    "base_model_name_or_path": "/etc/passwd",
}
FILES = {
    "tokenizer_file": "/etc/passwd",
    "vocab_file": "../../etc/passwd",
    "custom_pipelines": {"x": {"impl": "os.system"}},
}


@pytest.mark.parametrize(
    "config", [LLAMA | PATHS | FILES, PARAMS | PATHS, config_of("qwen3.5-4b") | PATHS | FILES]
)
def test_no_key_of_a_config_opens_a_file(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in (LLAMA, PARAMS, config_of("qwen3.5-4b")):
        assert PostedConfig(
            json.dumps(part).encode()
        ).model.parameters.total  # imports what the families need
    opened: list[object] = []

    def refuse(path: object, *_: Any, **__: Any) -> Any:
        opened.append(path)
        raise AssertionError(path)

    with monkeypatch.context() as patch:
        for where, name in (
            (builtins, "open"),
            (os, "open"),
            (os, "listdir"),
            (os, "stat"),
            (os, "lstat"),
            (socket, "create_connection"),
        ):
            patch.setattr(where, name, refuse)
        posted = PostedConfig(json.dumps(config).encode(), "/etc/passwd")
        total = posted.model.parameters.total
    assert total and not opened


def test_messages_do_not_depend_on_files_here(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("version https://git-lfs")
    monkeypatch.chdir(tmp_path)
    for name in (
        "config.json",
        "no-such-file.json",
        str(tmp_path / "config.json").replace("/", "%2F"),
        "",
    ):
        error = json.loads(
            send(
                place, "count", b"version https://git-lfs.github.com/spec/v1\n", Llamath_Name=name
            )[2]
        )["error"]
        assert "hf download" not in error["hint"] and "/resolve/" in error["hint"]


def test_only_the_newest_configs_are_kept() -> None:
    kept = PostedConfigs()
    configs = [
        PostedConfig(json.dumps(LLAMA | {"vocab_size": 100 + i}).encode()) for i in range(20)
    ]
    for x in configs:
        kept.keep(x, {"id": x.id})
    kept.keep(configs[5], {"id": configs[5].id})
    assert [x["id"] for x in kept.newest_entries] == list(kept.configs)[::-1]
    assert (
        list(kept.configs)
        == [x.id for x in (*configs[4:5], *configs[6:], configs[5])][-posted_configs._MAX_KEPT :]
    )
    assert len({x.id for x in configs}) == 20
    for i in range(6):
        kept.keep(PostedConfig(bytes(MAX_POSTED - 1), str(i)), {})
    assert len(kept.configs) == len(kept.entries) == 4


def test_slow_body_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posted_configs, "_SECONDS", 0.2)
    with (
        served([]) as slow,
        socket.create_connection(("127.0.0.1", slow.port), timeout=120) as wire,
    ):
        head = f"POST {slow.path}api/count HTTP/1.1\r\nHost: 127.0.0.1:{slow.port}\r\nContent-Type: application/json\r\n"
        wire.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert wire.recv(1000).startswith(b"HTTP/1.1 408")
        assert slow.ask(f"{slow.path}api/count?model=gpt2")[0] == 200


def test_models_that_are_only_counted_have_no_page(place: Place) -> None:
    status, headers, data = send(place, "count", {"model_type": "florence2"})
    assert status == 200 and b'"total": ' in data and "llamath-model" not in headers
