"""Memory and speed on the page: training, layouts and speed under every slider equal the library's, also in the charts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from test_page import everything, models, random_settings

import llamath
from llamath.analysis.size.fit.fit_report import fit
from llamath.analysis.size.fit.serving_layouts import choose_layout
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.memory.speed_limits import speed_limits
from llamath.analysis.size.training.training_memory import TrainRequest, training
from llamath.hardware import find_device
from llamath.model import Model
from llamath.questions.layout import Layout
from llamath.web.page_data.sizing.inference_data import ROOF
from llamath.web.page_data.sizing.training_data import ATTENTION, KERNELS, PRECISIONS
from llamath.web.server.page_html import page_from_data
from support.browser_page import NARROW, Tab, browser, shown_text, wait_until_drawn
from support.page_expressions import evaluate
from support.page_models import data_of, page_of

STAYS = ("weights", "gradients", "master", "optimizer")
MOVES = ("activations", "logits", "overhead")
SPEEDS = ("decode", "prefill")
CARD = "h100-sxm"
Settings = dict[str, str]
__all__ = ["browser", "everything", "models"]


def random_training_settings(rng: random.Random, data: Mapping[str, Any]) -> Settings:
    """Return random training settings of this model."""
    found = data["sizes"]["training"]
    one = rng.choice(found["ranks"])
    return {
        "mode": "train",
        "context": str(min(int(2 ** rng.uniform(0, 22)), 2**22)),
        "batch": str(int(2 ** rng.uniform(0, 10))),
        "trainers": rng.choice([x for x in found["gpus"] if int(x) >= int(one)]),
        "tp": one,
    } | {x["name"]: rng.choice(x["options"])[0] for x in found["choices"]}


def random_inference_settings(rng: random.Random, data: Mapping[str, Any]) -> Settings:
    """Return random inference settings, including the layout."""
    sizes = data["sizes"]
    count, splits = rng.choice(
        [
            (x["count"], found)
            for x in sizes["gpus"]
            if (found := [i for i, replicas in x["splits"] if replicas == 1])
        ]
    )
    return random_settings(rng, dict(data)) | {
        "mode": "run",
        "gpus": count,
        "tp": sizes["layouts"][rng.choice(splits)]["tp"],
    }


def library_training_memory(model: Model, at: Settings) -> Settings:
    """Return the library's training memory, with tokens padded to divide evenly over the ranks."""
    precision = next(x for x in PRECISIONS if x.name == at["precision"])
    tp, context = int(at["tp"]), int(at["context"])
    layout = Layout(
        tp=tp,
        dp=int(at["trainers"]) // tp,
        zero=int(at["zero"]),
        microbatch=int(at["batch"]),
        recompute=at["recompute"],
        flash=ATTENTION[at["attention"]],
    )
    found = training(
        model,
        TrainRequest(
            dtype=precision.dtype,
            master=precision.master,
            gradients=precision.gradients,
            optimizer=at["optimizer"],
            context=-(-context // tp) * tp,
            layout=layout,
            fused=KERNELS[at["kernels"]],
        ),
    ).largest_stage
    return {part: str(getattr(found, part)) for part in (*STAYS, *MOVES, "total")}


def shards_of(model: Model, at: Settings) -> ShardedModel:
    count, ranks = int(at["gpus"]), int(at["tp"])
    return ShardedModel(
        MemoryCalculator(model, MemoryRequest(dtype=at["dtype"], kv_dtype=at["kv"])),
        choose_layout(model.tree, count, 8, ranks, count // ranks),
    )


def memory_of(shards: ShardedModel, at: Settings) -> Settings:
    """Return the library's memory of the most loaded GPU."""
    most_loaded = max(
        shards.stage_memory(int(at["context"]), int(at["batch"])), key=lambda x: x.total
    )
    names = {"cache": "kv_cache"}
    parts = ("weights", "cache", "activations", "logits", "overhead", "total")
    return {part: str(getattr(most_loaded, names.get(part, part))) for part in parts}


def library_speeds(shards: ShardedModel, at: Settings, card: str) -> dict[str, tuple[str, ...]]:
    """Return tokens, bytes, FLOPs and the bound of both passes."""
    found = speed_limits(shards, find_device(card), int(at["context"]), int(at["batch"]))
    passes = {"decode": found.decode, "prefill": found.prefill}
    return {
        name: (str(x.tokens), str(x.bytes), str(x.flops), x.bound)
        for name, x in passes.items()
        if x is not None
    }


def sum_lines(lines: list[dict[str, Any]], variables: Mapping[str, int]) -> int:
    return sum(evaluate(x["form"], variables) for x in lines)


def test_training_memory_equals_the_report(models: list[Model], everything: dict[str, Any]) -> None:
    rng = random.Random(11)
    for model, data in zip(models, everything["models"], strict=True):
        for _ in range(4):
            at, found = random_training_settings(rng, data), data["sizes"]["training"]
            variables = {"B": int(at["batch"]), "TP": int(at["tp"])}
            for name, stage in found["zero"].items():
                variables[name] = (
                    int(at["trainers"]) // int(at["tp"]) if int(at["zero"]) >= int(stage) else 1
                )
            variables["T"] = evaluate(found["tokens"], variables | {"T": int(at["context"])})
            kept = found["kept"][at["precision"]]
            static = found["static"][at["precision"]][at["tp"]]
            moving = found["moving"][f"{kept} {at['attention']} {at['kernels']}"]
            lines = static | {"optimizer": static["optimizer"][at["optimizer"]]}
            lines |= {"activations": moving[at["recompute"]], "logits": moving["logits"]}
            answers: dict[str, int] = {}
            for part in (*STAYS, *MOVES):
                answers[part] = sum_lines(
                    [found["lines"][i] for i in lines[part]], variables | answers
                )
            assert {k: str(n) for k, n in answers.items()} | {
                "total": str(sum(answers.values()))
            } == library_training_memory(model, at), (
                model.name,
                at,
            )


def test_speed_equals_the_report(models: list[Model], everything: dict[str, Any]) -> None:
    rng = random.Random(12)
    device = find_device(CARD)
    for model, data in zip(models, everything["models"], strict=True):
        for _ in range(4):
            at, sizes = random_inference_settings(rng, data), data["sizes"]
            split = next(
                x
                for x in sizes["layouts"]
                if (int(x["tp"]) * int(x["pp"]), x["tp"]) == (int(at["gpus"]), at["tp"])
            )
            shards = shards_of(model, at)
            variables = {
                "T": int(at["context"]),
                "B": int(at["batch"]),
                "TP": int(at["tp"]),
                "bandwidth": device.bandwidth,
            }
            dtype = next(x for x in sizes["dtypes"] if x["name"] == at["dtype"])
            kv = next(x for x in sizes["kvs"] if x["name"] == at["kv"])
            for found in (dtype["variables"], kv["variables"]):
                variables |= {k: int(v) for k, v in found.items()}
            for name, form in split["read"].items():
                more = form["more"].get(at["dtype"], 0) if isinstance(form, dict) else 0
                variables[name] = (
                    evaluate(form["form"] if isinstance(form, dict) else form, variables) + more
                )
            variables["peak"] = next(device.flops[x] for x in dtype["rates"] if x in device.flops)
            answers = {}
            for name, x in split["speed"].items():
                here = variables | {"work": evaluate(sizes["work"][name], variables)}
                here |= {key: evaluate(x[key], here) for key in ("tokens", "bytes", "FLOPs")}
                bound = ("compute", "memory")[evaluate(ROOF["bound"], here)]
                answers[name] = (str(here["tokens"]), str(here["bytes"]), str(here["FLOPs"]), bound)
            assert answers == library_speeds(shards, at, CARD), (model.name, at)


# what follows needs Chromium


def test_page_equals_library_in_every_mode(
    browser: Any, tmp_path: Path, models: list[Model], everything: dict[str, Any]
) -> None:
    rng = random.Random(13)
    asks: list[tuple[int, Settings]] = []
    for i, data in enumerate(everything["models"]):
        asks += [(i, random_training_settings(rng, data)) for _ in range(20)]
        kept = random_inference_settings(rng, data)
        asks += [
            (
                i,
                kept
                | {key: random_inference_settings(rng, data)[key] for key in ("context", "batch")},
            )
            for _ in range(20)
        ]
    assert len(asks) >= 500
    with Tab(browser, tmp_path, page_from_data(everything), width=NARROW) as tab:
        answers = tab.evaluate(
            "(asks) => asks.map(([i, at]) => [pageTest.memory(i, at), pageTest.speed(i, at, 'h100-sxm')])",
            asks,
        )
    made: dict[tuple[Any, ...], ShardedModel] = {}
    for (i, at), (memory, speed) in zip(asks, answers, strict=True):
        if at["mode"] == "train":
            assert memory == library_training_memory(models[i], at), (models[i].name, at)
            continue
        key = (i, *(at[x] for x in ("dtype", "kv", "gpus", "tp")))
        shards = made[key] = made.get(key) or shards_of(models[i], at)
        assert memory == memory_of(shards, at), (models[i].name, at)
        for name, (tokens, size, work, bound) in library_speeds(shards, at, CARD).items():
            assert speed[name][:3] == [tokens, size, work], (models[i].name, at)
            peak, bandwidth = speed_limits(
                shards, find_device(CARD), int(at["context"]), int(at["batch"])
            ).roof[1::-1]
            seconds = max(Fraction(int(size), bandwidth), Fraction(int(work), peak or 1))
            assert int(speed[name][3]) == int(tokens) * 10**9 // seconds and bool(
                int(speed[name][4] == "memory")
            ) == (bound == "memory")


def strip_separators(text: str) -> str:
    return text.replace(",", "")


def test_training_settings_are_applied_and_shown(browser: Any, tmp_path: Path) -> None:
    model = llamath.load("llama-3.1-8b")
    at = {
        "context": "4098",
        "batch": "3",
        "precision": "bf16",
        "optimizer": "adamw8bit",
        "zero": "3",
        "trainers": "16",
        "tp": "4",
    }
    at |= {"recompute": "full", "attention": "written", "kernels": "fused"}
    with Tab(browser, tmp_path, page_of("llama-3.1-8b")) as tab:
        tab.click("#mode [data-value=train]")
        assert (
            tab.evaluate("document.activeElement.dataset.value") == "train"
            and tab.input_value("#context") == "8,192"
        )
        tab.click("[aria-label='Settings of training']")
        for name in ("trainers", *(x for x in at if x not in ("context", "batch", "trainers"))):
            tab.select_option(f"#choice-{name}", at[name])
        for name in ("context", "batch"):
            tab.fill(f"#{name}", at[name])
        parts = (*STAYS, *MOVES, "total")
        assert {
            part: strip_separators(shown_text(tab, f"[data-part={part}]")) for part in parts
        } == library_training_memory(model, at)
        assert "4,100 tokens" in tab.text_content("#memory")
        for part in parts:
            tab.click(f"[data-part={part}]")
            assert (
                strip_separators(tab.text_content("dialog[open]")).count(
                    strip_separators(shown_text(tab, f"[data-part={part}]"))
                )
                >= 1
            )
            tab.keyboard.press("Escape")
        longest = int(strip_separators(shown_text(tab, "[data-card=h200]")).removesuffix(" tokens"))
        room = find_device("h200").memory
        assert (
            int(library_training_memory(model, at | {"context": str(longest)})["total"])
            <= room
            < int(library_training_memory(model, at | {"context": str(longest + 1)})["total"])
        )
        assert "mode=train" in tab.evaluate(
            "new Promise(done => requestAnimationFrame(() => done(location.hash)))"
        )


@pytest.mark.parametrize("slug", ["llama-3-8b", "llama-3.1-70b", "gpt-oss-20b"])
def test_training_begins_with_the_best_layout(browser: Any, tmp_path: Path, slug: str) -> None:
    parallel = data_of(slug)["models"][0]["parallel"]["training"]
    best, gpus = parallel["plans"][0], parallel["gpus"]
    with Tab(browser, tmp_path, page_of(slug), "#mode=train") as tab:
        assert f"{int(gpus):,} H100 SXM" in tab.text_content("#layouts-title")
        assert tab.input_value("#choice-trainers") == gpus
        assert tab.locator("#choice-gpus, #choice-card").count() == 0, "one number of GPUs"
        assert "fits" in tab.text_content(f".gpus tr:has([data-card={CARD}])")
        if all(best["axes"][x] == "1" for x in ("pp", "cp", "ep")):
            assert strip_separators(shown_text(tab, "[data-part=total]")) == best["memory"]
            assert all(
                strip_separators(shown_text(tab, f"[data-part={x}]")) == n
                for x, n in best["parts"].items()
                if int(n)
            )


@pytest.mark.parametrize("slug", ["llama-3-8b", "deepseek-v3", "gemma-3-27b"])
def test_crossings_and_speed_limits_equal_fit(browser: Any, tmp_path: Path, slug: str) -> None:
    model = llamath.load(slug)
    declared = (
        "quantization_config" in model.config.data
    )  # then the page's fp8 is the recipe of the config, to its last scale
    sizes = MemoryCalculator(
        model, MemoryRequest(dtype="" if declared else "fp8", kv_dtype="fp8", context=3000, batch=5)
    )
    with Tab(
        browser,
        tmp_path,
        page_of(slug),
        "#view=a&context=3000&batch=5&dtype=fp8&kv=fp8&gpus=8&tp=4&card=h200",
    ) as tab:
        for name in ("rtx-5090", "h200", "mi300x"):
            found = fit(sizes, find_device(name), 8, tp=4, pp=2)
            shown = {None: "any", 0: "none"}.get(found.max_context, f"{found.max_context:,} tokens")
            assert shown_text(tab, f"[data-card={name}]") == shown
            mark = tab.locator(f"[data-crossing={name}]")
            if mark.count():
                assert mark.get_attribute("aria-label").endswith(
                    f"is full at {found.max_context:,} tokens"
                )
        found = fit(sizes, find_device("h200"), 8, tp=4, pp=2)
        for name, speed in (("decode", found.ceilings.decode), ("prefill", found.ceilings.prefill)):
            assert speed is not None
            assert strip_separators(shown_text(tab, f"[data-speed={name}-bytes]")) == str(
                speed.bytes
            )
            assert strip_separators(shown_text(tab, f"[data-speed={name}-FLOPs]")) == str(
                speed.flops
            )
            rate = float(strip_separators(shown_text(tab, f"[data-speed={name}-rate]")))
            assert abs(rate / speed.tokens_per_second - 1) < 0.005
            for what in ("bytes", "FLOPs", "rate"):
                tab.click(f"[data-speed={name}-{what}]")
                assert "= " in tab.text_content("dialog[open] pre")
                tab.keyboard.press("Escape")
        label = tab.get_attribute("#speed svg[role=group]", "aria-label")
        assert "H200" in label and "decode is memory-bound" in label and "prefill is" in label


def test_two_models_share_one_chart(browser: Any, tmp_path: Path) -> None:
    models = [llamath.load("llama-2-7b"), llamath.load("llama-3-8b")]
    with Tab(browser, tmp_path, page_of("llama-2-7b", "llama-3-8b"), "#context=8192&kv=fp8") as tab:
        labels = [
            x.get_attribute("aria-label") for x in tab.locator("#memory .memory-chart svg").all()
        ]
        assert len(labels) == 2
        for model, label in zip(models, labels, strict=True):
            longest = fit(
                MemoryCalculator(model, MemoryRequest(kv_dtype="fp8")),
                find_device("rtx-4060-ti-16gb"),
            ).max_context
            assert (
                f"{find_device('rtx-4060-ti-16gb').title} at {longest:,} tokens" in label
                and model.name in label
            )
        tab.fill("#batch", "4")
        wait_until_drawn(tab)
        total = MemoryCalculator(models[0], MemoryRequest(kv_dtype="fp8")).at(8192, 4).total
        assert strip_separators(shown_text(tab, "[data-part=total]")) == str(total)
