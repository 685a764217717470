"""`worked_steps`: what small models of a few numbers compute at each stop of the tour, computed by torch."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import llamath
from llamath.analysis.graph.operations import shape_operations
from llamath.analysis.graph.recorder import record
from llamath.analysis.graph.steps import Step
from llamath.analysis.graph.walkthrough import WalkthroughStage, walkthrough
from llamath.analysis.learn.tour.tour import Stop, tour_of
from llamath.core.expr import Expr
from llamath.torch import Decoder, build
from llamath.torch.debug.operation_log import OperationLog, match_operations
from llamath.torch.forward_context import _alibi_slopes
from llamath.torch.module import local_tensors
from llamath.torch.torch_machine import TorchMachine
from llamath.web.page_data.live.tour_example import bundled_kinds
from llamath.web.page_data.live.worked_steps import kind_of, leaf
from support.tiny_copies import MODELS, WIDTH

IDS = (1, 2, 3)
_HEAD = ("dim", "scale", "softcap", "slope", "sink", "window", "chunk")
_KEYS = ("products", "parts", *_HEAD)
HEADS = {
    **dict.fromkeys(("scores", "alibi", "window", "sinks", "no_positions"), _KEYS),
    "softmax": ("rows", *_HEAD),
    "mix": ("products", "values", "y", *_HEAD),
}
"""What is kept of the first head, by stop."""
_SLOW = {"alpha", "beta", "dt", "dt_down", "dt_up", "dt_bias", "a_log", "forget"}
_ROWS = [
    [0.5, 1.0, -1.0, 1.0],
    [1.0, 2.0, -0.5, -1.0],
    [-1.0, 0.5, 1.0, 2.0],
    [2.0, -1.0, 0.5, 1.0],
]
"""The embedding."""
_SEEDS = {"Qwen3 Next": 44, "Mamba": 23, "Mamba-2": 9, "MiniMax": 3, "Kimi Linear": 37}
_SEED = 34
"""Of those tried, with numbers in which most can be seen: groups, biases and states matter."""
_NUMBERS = (-1.0, 0.5, 1.0, -0.5)


def weight(seed: int, path: str, shape: Sequence[int]) -> Tensor:
    """Return the numbers of a weight: a short row for each token, ± 1 and ± ½, near 1 those of norms, and so that states fade
    slowly.
    """
    if path.startswith("embed") and tuple(shape) == (len(_ROWS), WIDTH):
        return torch.tensor(_ROWS)
    seed, numbers = zlib.crc32(f"{seed}{path}".encode()), []
    for _ in range(torch.Size(shape).numel()):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        numbers.append(_NUMBERS[(seed >> 16) % 4])
    found = torch.tensor(numbers).reshape(tuple(shape))
    if any(x in _SLOW for x in path.split(".")):
        return found / 2 if len(shape) > 1 else found / 2 - 1
    return found if len(shape) > 1 else found / 2 if path.endswith("bias") else 1 + found / 2


class _Recorder(OperationLog):
    """A torch machine that keeps every result, what routers choose, what experts return, what
    states are and what heads read.
    """

    def __init__(self, ids: Tensor, store: Any) -> None:
        self.results: dict[int, Tensor] = {}
        self.found: dict[int, dict[str, Any]] = {}
        super().__init__(ids, store)

    def _add(self, op: Any, y: Tensor, *rest: Any, **options: Any) -> None:
        super()._add(op, y, *rest, **options)
        self.results[id(self.log[-1])] = y

    def _keep(self, name: str, part: dict[str, Any]) -> None:
        assert self._layer is not None
        self.found.setdefault(self._layer, {})[name] = part

    def route(self, logits: Tensor, correction: Tensor | None, moe: Any) -> tuple[Tensor, Tensor]:
        chosen, weights = super().route(logits, correction, moe)
        self._keep(
            "router",
            {
                "logits": logits[0, -1].tolist(),
                "correction": None if correction is None else correction.tolist(),
                "scoring": moe.scoring,
                "groups": None if moe.expert_groups is None else list(moe.expert_groups[:2]),
                "normed": moe.norm_topk_prob and moe.routing != "input",
                "factor": moe.routed_scaling_factor,
                "chosen": chosen[0, -1].tolist(),
                "weights": weights[0, -1].tolist(),
            },
        )
        return chosen, weights

    def experts(self, moe: Any, experts: Any, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        y = super().experts(moe, experts, x, chosen, weights)
        plain = TorchMachine(self.ids, self.cache)
        pairs = zip(chosen[0, -1].tolist(), weights[0, -1].tolist(), strict=True)
        self._keep(
            "experts",
            {
                "x": x[0, -1].tolist(),
                "each": [[e, w, experts[e](plain, x[0, -1:])[0].tolist()] for e, w in pairs],
                "sum": y[0, -1].tolist(),
            },
        )
        return y

    def rope(self, x: Tensor, rope: Any) -> Tensor:
        y = super().rope(x, rope)
        rotation = self.rope_cos_sin(rope)
        if rotation is None or "rope" in self.found.get(self._layer or 0, {}):
            return y
        of_last = [x.reshape(-1, x.shape[-1])[-1] for x in (rotation.cos, rotation.sin)]
        count = len(of_last[0])
        pairs = [
            (2 * i, 2 * i + 1) if rotation.interleaved else (i, i + count) for i in range(count)
        ]
        turned = torch.atan2(*reversed(of_last)).rad2deg() % 360
        self._keep(
            "rope",
            {
                "position": x.shape[1] - 1,
                "scaling": rope.scaling,
                "theta": rope.theta,
                "dim": rope.dim,
                "pairs": [
                    [*pair, angle, *(z[0, -1, 0, list(pair)].tolist() for z in (x, y))]
                    for pair, angle in zip(pairs, turned.tolist(), strict=True)
                ],
            },
        )
        return y

    def attention(
        self, mixer: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **more: Any
    ) -> Tensor:
        y = super().attention(mixer, q, k, v, *rest, **more)
        sinks = more.get("sinks", rest[1] if len(rest) > 1 else None)
        transform = mixer.score_transform
        alibi = transform.alibi
        parts = [slice(None)]
        if getattr(mixer, "nope_dim", 0) and getattr(mixer, "rope_dim", 0):
            parts = [slice(0, mixer.nope_dim), slice(mixer.nope_dim, None)]
        self._keep(
            "heads",
            {
                "products": (k[0, :, 0] @ q[0, -1, 0]).tolist(),
                "rows": [(k[0, : t + 1, 0] @ q[0, t, 0]).tolist() for t in range(q.shape[1])],
                "values": v[0, :, 0].tolist(),
                "y": y[0, -1, 0].tolist(),
                "parts": [(k[0, :, 0, x] @ q[0, -1, 0, x]).tolist() for x in parts],
                "dim": q.shape[-1],
                "scale": transform.scale,
                "softcap": transform.softcap,
                "slope": float(_alibi_slopes(alibi, q.shape[2])[0]) if alibi else None,
                "sink": None if sinks is None else float(sinks[0]),
                "window": mixer.window.size,
                "chunk": mixer.window.chunk,
            },
        )
        return y


def _of_head(x: Tensor, is_shared: bool = False) -> Any:
    """Return the numbers of the last token and the first head, channel or group."""
    of_token = x[0, -1] if x.dim() > 2 else x
    return (of_token if is_shared else of_token[0]).tolist()


def _scan(name: str, letters: str) -> Callable[..., Any]:
    logged = getattr(OperationLog, name)

    def run(machine: _Recorder, mixer: Any, *inputs: Any) -> Tensor:
        before = machine._state(mixer).recurrent_state
        y: Tensor = logged(machine, mixer, *inputs)
        after = machine._state(mixer).recurrent_state
        assert after is not None
        states = torch.stack((after * 0 if before is None else before, after))[:, 0, 0]
        shared = {"b", "c"} if name == "selective_scan" else set()  # by all channels
        pairs = zip(letters.split(), inputs, strict=False)
        numbers = {key: _of_head(x, key in shared) for key, x in pairs}
        machine._keep(
            "state",
            {
                "scan": name,
                "before": states[0].tolist(),
                "after": states[1].tolist(),
                **numbers,
                "y": _of_head(y),
            },
        )
        return y

    return run


for _name, _letters in {
    "gated_delta_rule": "q k v g beta",
    "linear_attention": "q k v",
    "ssm_scan": "x b c dt a_log",
    "selective_scan": "x b c dt a_log skip",
}.items():
    setattr(_Recorder, _name, _scan(_name, _letters))


def modules() -> Iterator[tuple[str, Any, Decoder]]:
    """Yield the small models and their modules, by name."""
    for name, config in MODELS.items():
        model = llamath.load(dict(config))
        module = build(model.text.tree)
        with torch.no_grad():
            for path, x in local_tensors(module):
                x.copy_(weight(_SEEDS.get(name, _SEED), path, x.shape))
        yield name, model, module


def worked_steps() -> dict[str, dict[str, Any]]:
    """Return the type of each small model and the numbers of its stops, if they are others than
    those of a Llama.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, model, module in modules():
        stops = list(_Worked(model, module).stops())
        bundled = bundled_kinds()
        if any(bundled.get(x) != y["kind"] for x, y in stops):
            found[name] = {"type": model.config.data["model_type"], **dict(stops)}
    return found


class _Worked:
    """A pass of a small model over three tokens, and the same in three passes."""

    @torch.inference_mode()
    def __init__(self, model: Any, module: Decoder) -> None:
        self.model, self.module = model, module
        tokens = Expr.variable("T", len(IDS))
        graph = record(model.text.tree, batch=1, new_tokens=tokens, past_tokens=Expr.const(0))
        walk = walkthrough(graph)
        prompt, _ = self._read(module.new_cache(len(IDS)), IDS)
        self.prompt = prompt.found
        self.steps = {(x.layer, y.name): y for x in walk.stages for y in x.steps}
        self.results = {
            (stage.layer, name): y
            for stage in walk.stages
            for name, y in _results(stage, prompt).items()
        }
        outs = [
            [y for y in _results(x, prompt).values() if y.shape[-1] == WIDTH][-1]
            for x in walk.stages
            if x.name != "head"
        ]
        self.streams = dict(enumerate(outs)) | {None: outs[-1]}
        store = module.new_cache(len(IDS))
        for token in IDS:
            last, logits = self._read(store, (token,))
        self.found, self.logits = last.found, logits

    def _read(self, store: Any, ids: Sequence[int]) -> tuple[_Recorder, list[float]]:
        rows = torch.tensor([list(ids)])
        store.reserve(len(ids), None)
        machine = _Recorder(rows, store)
        logits = self.module.compute(machine, rows)
        store.length += len(ids)
        return machine, logits[0, -1].tolist()

    def stops(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the numbers of each stop."""
        stops = tour_of(self.model, code=False).stops
        has_indexer = any(x.name == "indexer" for x in stops)
        for stop in stops:
            if stop.name in ("scores", "softmax", "mix") and has_indexer:
                continue  # the shares are those of the chosen keys alone
            found: dict[str, Any] = {"rows": list(self._rows(stop))}
            if (part := self._recorded(stop)) is not None:
                found = {"rows": [], "recorded": part}
            if product := self._product(stop):
                found["product"] = product
            if found["rows"] or "recorded" in found:
                said = {"kind": kind_of(stop), "steps": " ".join(map(leaf, stop.steps))}
                layer = {"layer": int(stop.place)} if stop.place.isdigit() else {}
                yield stop.name, said | layer | found

    def _recorded(self, stop: Stop) -> dict[str, Any] | None:
        if stop.name == "token":
            return {"ids": list(IDS)}
        if stop.name == "next_token":
            return {"logits": self.logits}
        if not stop.place.isdigit():
            return None
        of_prompt = self.prompt.get(int(stop.place), {})
        if stop.name == "rope":
            return of_prompt.get("rope")
        if stop.name in HEADS:
            heads = of_prompt.get("heads")
            return heads and {x: heads[x] for x in HEADS[stop.name]}
        return self.found.get(int(stop.place), {}).get(stop.name)

    def _result(self, stop: Stop, name: str, token: int = -1) -> Tensor | None:
        """Return the result of a step for a token, of its first head."""
        place = int(stop.place) if stop.place.isdigit() else None
        found = self.streams.get(place) if name == "x" else self.results.get((place, name))
        if found is None or found.dim() < 3:
            return None
        last = found[0, token]
        return last if last.dim() == 1 else last[0]

    def _step(self, stop: Stop, name: str) -> Step | None:
        return self.steps.get((int(stop.place) if stop.place.isdigit() else None, name))

    def _rows(self, stop: Stop) -> Iterator[tuple[str, list[float]]]:
        if stop.name == "cache":
            for t in range(len(IDS)):
                kept = [self._result(stop, x, t) for x in stop.steps]
                yield f"token {t}", [y for x in kept if x is not None for y in x.tolist()]
            return
        if stop.name == "biases":
            yield from self._biased(stop)
            return
        shown: set[str] = set()
        channels: int | None = None  # of a convolution, all of which have their inputs beside them
        for name in stop.steps:
            step, value = self._step(stop, name), self._result(stop, name)
            if step is None or value is None or step.kind in ("choice", "view") or "{e}" in name:
                continue
            if step.kind == "conv":
                source = step.inputs[0]
                for says, at in (("the token before", -2), ("this token", -1)):
                    yield f"{_named(source)}, {says}", self._result(stop, source, at).tolist()
                channels = len(self._result(stop, source))
                yield from self._taps(f"layers.{stop.place}.{name}", channels)
            elif not shown or step.kind in ("add", "sum", "multiply", "norm", "cache"):
                for x in step.inputs:
                    numbers = self._result(stop, x)
                    if x not in shown and numbers is not None:
                        yield _named(x), numbers.tolist()
                    shown.add(x)
            if stop.name in ("norm", "post_norm"):
                yield from _before_weight(self._result(stop, step.inputs[0]), step)
                yield "times the weight", value.tolist()
                return
            if stop.name == "positions":
                yield f"P[{len(IDS) - 1}]", (value - self._result(stop, step.inputs[0])).tolist()
            shown.add(name)
            yield _label(step), value.tolist()[:channels]

    def _taps(self, name: str, channels: int) -> Iterator[tuple[str, list[float]]]:
        """Yield the weights of a convolution of two taps by channel, and its biases."""
        weights = dict(local_tensors(self.module))
        before, now = weights[f"{name}.weight"].flatten(1).T.tolist()
        yield "weight of the token before", before[:channels]
        yield "weight of this token", now[:channels]
        if (bias := weights.get(f"{name}.bias")) is not None:
            yield "bias", bias.tolist()[:channels]

    def _biased(self, stop: Stop) -> Iterator[tuple[str, list[float]]]:
        name = stop.steps[0]
        step, y = self._step(stop, name), self._result(stop, name)
        weights = dict(local_tensors(self.module))
        bias = weights[f"layers.{stop.place}.{name}.bias"]
        x = self._result(stop, step.inputs[0])
        yield _named(step.inputs[0]), x.tolist()
        yield f"W {_named(step.inputs[0])}", (y - bias).tolist()
        yield "b", bias.tolist()
        yield f"{leaf(name)} = W x + b", y.tolist()

    def _product(self, stop: Stop) -> dict[str, Any] | None:
        """Return the first product with a matrix: its first row, what it reads and the result."""
        for name in stop.steps:
            step = self._step(stop, name)
            if step is None or step.kind != "linear" or "{e}" in name:
                continue
            place = f"layers.{stop.place}." if stop.place.isdigit() else ""
            weights = dict(local_tensors(self.module))
            path = place + step.weights[0].path
            matrix, bias = weights.get(path), weights.get(path.removesuffix("weight") + "bias")
            x, y = self._result(stop, step.inputs[0]), self._result(stop, name)
            if (
                matrix is not None
                and x is not None
                and y is not None
                and x.numel() == matrix.shape[1]
            ):
                return {
                    "of": leaf(name),
                    "in": _named(step.inputs[0]),
                    "row": matrix[0].tolist(),
                    "x": x.tolist(),
                    "bias": 0.0 if bias is None else bias[0].item(),
                    "y": float(y[0]),
                }
        return None


def _results(stage: WalkthroughStage, machine: _Recorder) -> dict[str, Tensor]:
    """Return the results of a stage's steps by name, from the operations that were executed."""
    names: dict[int, list[str]] = {}
    for x in stage.steps:
        names.setdefault(id(x.node), []).append(x.name)
    log = [x for x in machine.log if x.layer == stage.layer]
    if stage.layer is None:
        middle = next(i for i, x in enumerate(log) if x.op is shape_operations.layers)
        log = log[:middle] if stage.name == "embedding" else log[middle:]
    return {
        own[-1]: y
        for node, found in match_operations(stage.nodes, log)
        if (own := names.get(id(node))) and (y := machine.results.get(id(found))) is not None
    }


_NAMES = {
    **dict.fromkeys(("attn_norm", "mlp_norm", "embed", "attn_add", "scale", "embed_norm"), "x"),
    **dict.fromkeys(("concat", "mix"), "y"),
    **dict.fromkeys(("kv_norm", "latents"), "c"),
    "act": "a",
    "combine": "chosen experts",
    "shared_add": "experts",
}
"""Names of the tour's formulas."""


def _named(name: str) -> str:
    return _NAMES.get(leaf(name), leaf(name))


def _label(step: Step) -> str:
    name = _named(step.name)
    if step.kind == "linear":
        return f"{name} = W {_named(step.inputs[0])}"
    if step.kind in ("add", "sum"):
        return "their sum"
    says = {"norm": "normed", "conv": "mixed", "rope": "turned", "mix": "read"}.get(step.kind)
    if says is None:
        return step.description
    return says if name in ("norm", "conv") else f"{name}, {says}"


def _before_weight(x: Tensor, step: Step) -> Iterator[tuple[str, list[float]]]:
    assert step.node is not None
    if step.node.op.name == "rms_norm":
        yield "x / rms", (x / x.square().mean().sqrt()).tolist()
    else:
        yield "x − mean", (x - x.mean()).tolist()
        yield "/ deviation", ((x - x.mean()) / x.var(correction=0).sqrt()).tolist()
