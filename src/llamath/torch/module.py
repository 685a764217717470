"""`Module`: the torch module of a block. Its parameters, their shapes and names come from the tree,
its forward pass from the block.

Letters in shapes: B rows of a batch, T tokens of this pass, S keys that they attend to, d the
hidden size, H heads, K key/value heads, h the head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from ..core import blocks
from ..core.blocks import AttentionBase
from ..core.expr import Expr
from ..core.extensions.compressed_attention import Compressor
from ..core.latent_attention import IndexedAttention, WindowKeys
from ..core.mixers import RecurrentMixer
from ..core.multimodal import CountedBlock
from ..core.positions import Rope
from ..core.tree import Block, Stack, Weight, walk, weight_at
from ..utils.errors import LlamathError
from .forward_context import AttentionPattern, shared_pattern
from .kv_cache import Cache, KVCache, LayerCache, RecurrentState, WindowCache
from .torch_machine import TorchMachine, local_tensor


class TensorOptions(NamedTuple):
    """The dtype and device of a module's parameters."""

    dtype: torch.dtype
    device: torch.device
    # build one of identical experts, which stands for all of them on the meta device
    one_expert: bool = False


class Module(nn.Module):
    """A Parameter for each Weight of a block, a Module for each Block, a ModuleList for each Stack,
    all named as the block's fields.

    Plain values of the block are attributes, too; an optional child that the block does not have is
    None. `forward(m, x)` computes the block on a `TorchMachine`.
    """

    spec: Any
    pattern: AttentionPattern  # of a mixer with attention
    shares_kv: bool = False  # whether other layers read the keys and values of this mixer
    shares_selection: bool = False  # whether later layers use the selection of this indexer
    selecting_layer: int  # of attention to selected keys: the layer whose indexer selects them

    def __init__(self, spec: Block, options: TensorOptions, layer: int = -1) -> None:
        super().__init__()
        sizes = {name: int(x) for name in spec.fields if isinstance(x := getattr(spec, name), Expr)}
        self.spec = spec.replace(**sizes) if sizes else spec
        self.layer = layer  # index of the decoder layer that it is part of
        self.cache_layer = layer  # index of the cache that its mixer uses
        self._forward: Callable[..., Tensor] = type(spec).forward
        counted = dict(spec.children) if isinstance(spec, CountedBlock) else {}
        for name in (*spec.fields, *counted):
            field = counted[name] if name in counted else getattr(self.spec, name)
            if name in spec.excluded:
                setattr(self, name, None)
            elif isinstance(field, Weight):
                self._add_weight(name, field, options)
            elif isinstance(field, Block):
                setattr(self, name, Module(field, options, layer))
            elif isinstance(field, Stack):
                one = options.one_expert and field.active is not None and len(field.distinct()) == 1
                modules = [
                    Module(x, options, i if layer < 0 else layer)
                    for i, x in enumerate(field[:1] if one else field)
                ]
                numbered = {str(i): x for i, x in enumerate(modules, field.first)}
                setattr(
                    self, name, nn.ModuleDict(numbered) if field.first else nn.ModuleList(modules)
                )
            else:
                setattr(self, name, field)
        if isinstance(spec, AttentionBase):
            self.cache_layer = layer if spec.kv_layer is None else spec.kv_layer
            alibi = spec.score_transform.alibi
            self.pattern = shared_pattern(
                AttentionPattern(spec.window, alibi, self.spec.heads if alibi else 0)
            )

    def _add_weight(self, name: str, weight: Weight, options: TensorOptions) -> None:
        """Allocate a weight. Tied weights are set by `tie_weights`; buffers, which break
        near-ties, stay in float32, or are integers.
        """
        if weight.tied:
            self.register_parameter(name, None)
        elif weight.buffer:
            dtype = torch.int64 if weight.dtype == "I64" else torch.float32
            self.register_buffer(
                name, torch.empty(weight.shape, dtype=dtype, device=options.device)
            )
        else:
            self.register_parameter(
                name,
                nn.Parameter(torch.empty(weight.shape, dtype=options.dtype, device=options.device)),
            )

    def forward(self, m: TorchMachine, *inputs: Tensor) -> Tensor:
        if self.spec.without_gradient and torch.is_grad_enabled():
            with torch.no_grad():
                return self._forward(self, m, *inputs)
        return self._forward(self, m, *inputs)

    def compute(self, m: TorchMachine, *inputs: Tensor) -> Tensor:
        """Run the forward pass of the block, not a fused form of it."""
        return self._forward(self, m, *inputs)

    def new_cache(self, capacity: int) -> LayerCache:
        """Return an empty cache of a mixer for at most `capacity` tokens; None where it reads
        another layer's or keeps no state.
        """
        if isinstance(self.spec, RecurrentMixer):
            return RecurrentState() if capacity else None
        if isinstance(self.spec, Compressor | WindowKeys):
            return (
                WindowCache(self.spec.ratio * (2 if self.spec.overlap else 1) - 1)
                if capacity
                else None
            )
        if capacity and not self.pattern.window.causal:
            raise LlamathError(
                "attention in this model is bidirectional, so it cannot generate with a KV cache"
            )
        return (
            KVCache(min(capacity, self.pattern.span or capacity))
            if self.spec.kv_layer in (None, self.layer)
            else None
        )

    def extra_repr(self) -> str:
        fields = ((name, getattr(self.spec, name)) for name, _ in self.spec.children)
        return ", ".join(
            f"{name} {_format_shape(x)}" for name, x in fields if isinstance(x, Weight)
        )

    def _get_name(self) -> str:
        return type(self.spec).__name__

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def _format_shape(weight: Weight) -> str:
    """A shape as symbols and numbers, `(V, d) = (32000, 4096)`; for a tied weight, the weight it
    is tied to.
    """
    if weight.tied:
        return f"is {weight.tied}"
    letters, numbers = ", ".join(x.symbol for x in weight.shape), ", ".join(map(str, weight.shape))
    return f"({letters}) = ({numbers})" if letters != numbers else f"({numbers})"


class Decoder(Module):
    """The whole model: token ids `(B, T)` → logits `(B, T, V)`, or the last hidden state `(B, T,
    d)` of a model without a head.
    """

    spec: blocks.Decoder
    mesh: DeviceMesh | None = None  # of the ranks that share the model, set by `parallelize`

    def __init__(self, spec: blocks.Decoder, options: TensorOptions) -> None:
        super().__init__(spec, options)
        mixers = self._mixers()
        for mixer in mixers:
            if (
                mixer is not None
                and isinstance(mixer.spec, AttentionBase)
                and mixer.spec.kv_layer is not None
            ):
                self.layers[mixer.spec.kv_layer].attn.shares_kv = True
        for i, mixer in enumerate(mixers[len(self.layers) :], len(self.layers)):
            assert mixer is not None
            for module in mixer.modules():
                if isinstance(module, Module):  # a convolution inside of it has a state, too
                    module.cache_layer = i
        self._connect_indexers()

    def _connect_indexers(self) -> None:
        """Find the layer whose selection of keys each layer without an indexer uses."""
        last: Module | None = None
        for layer in self.layers:
            if layer.attn is None or not isinstance(layer.attn.spec, IndexedAttention):
                continue
            if layer.attn.indexer is not None:
                last = layer.attn.indexer
            elif last is not None:
                last.shares_selection = True
                layer.attn.selecting_layer = last.layer

    def forward(  # type: ignore[override]
        self,
        ids: Tensor,
        cache: Cache | None = None,
        padding: Tensor | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """Compute logits of these tokens, which follow those in `cache`; `padding` is the number of
        padding tokens on the left of each row.

        With `last_only` the logits are those of the last token, `(B, 1, V)`.
        """
        cache = self.new_cache(0) if cache is None else cache
        cache.reserve(ids.shape[1], padding)
        y = self.compute(self.machine(ids, cache, last_only), ids)
        cache.length += ids.shape[1]
        return y

    def machine(self, ids: Tensor, cache: Cache, last_only: bool = False) -> TorchMachine:
        """Return the machine for a pass over these tokens."""
        m = TorchMachine(ids, cache, last_only=last_only)
        if self.positions is not None:
            known = len(self.positions.weight) - self.positions.offset
            if m.max_length > known:
                raise LlamathError(
                    f"the model has position embeddings for {known} tokens, found {m.max_length} "
                    "tokens",
                    hint="use a shorter prompt",
                )
        return m

    def new_cache(self, capacity: int) -> Cache:  # type: ignore[override]
        """Return an empty cache for `capacity` tokens in each row."""
        return Cache(
            [None if x is None else x.new_cache(capacity) for x in self._mixers()], capacity
        )

    def caches_of_layer(self, cache: Cache, layer: int) -> list[LayerCache]:
        """Return the caches of a layer's mixers."""
        return [
            x
            for x, mixer in zip(cache.layers, self._mixers(), strict=True)
            if mixer is not None and mixer.layer == layer
        ]

    def _mixers(self) -> list[Module | None]:
        """The mixers in the order of their caches: the first of each layer, then all others."""
        by_layer = [list(_mixers_inside(layer)) for layer in self.layers]
        return [next(iter(x), None) for x in by_layer] + [y for x in by_layer for y in x[1:]]

    def ropes(self) -> list[Rope]:
        """The rotary embeddings of the layers, without repetition."""
        mixers = [x for x in self._mixers() if x is not None]
        ropes = [x.rope for x in mixers if isinstance(x.spec, AttentionBase) and x.rope is not None]
        return list({id(x): x for x in ropes}.values())

    @property
    def reads_prompt_at_once(self) -> bool:
        """Whether a prompt is read in one pass: rotary angles depend on its length, or which
        keys are seen after it.
        """
        mixers = (x.spec for x in self._mixers() if x is not None)
        has_window = any(
            x.window.after_prompt is not None for x in mixers if isinstance(x, AttentionBase)
        )
        return has_window or any(x.depends_on_length for x in self.ropes())

    def crosses_long_rope_switch(self, cache: Cache, new: int) -> bool:
        """Whether `new` more tokens change the rotary angles of cached tokens, so that all must
        be recomputed (LongRoPE).
        """
        paddings = [0] if cache.padding is None else cache.padding.tolist()
        lengths = [
            (cache.length - padding, cache.length + new - padding)
            for padding in paddings
            if cache.length > padding
        ]
        switches = [x.changes_after for x in self.ropes() if x.changes_after is not None]
        return any(before <= switch < after for switch in switches for before, after in lengths)

    def broadcast_int(self, number: int) -> int:
        """Return the first rank's number on every rank."""
        if self.mesh is None:
            return number
        from .distributed.collectives import broadcast

        return broadcast(self.mesh, number)

    def first_from_any_rank(self, text: str) -> str:
        """Return the text of the lowest rank whose text is not empty."""
        if self.mesh is None:
            return text
        from .distributed.collectives import all_gather_text

        return next((x for x in all_gather_text(self.mesh, text) if x), "")


def _mixers_inside(module: nn.Module) -> Iterator[Module]:
    """Yield the attention blocks and recurrent mixers of a layer, in the order of its fields;
    some are inside of others.
    """
    for child in module.children():
        if isinstance(child, Module) and isinstance(child.spec, AttentionBase | RecurrentMixer):
            yield child
        if isinstance(child, Module | nn.ModuleList):
            yield from _mixers_inside(child)


class _HasTree(Protocol):
    """A model, as `llamath.load` returns it."""

    @property
    def tree(self) -> blocks.Decoder: ...


def build(
    model: blocks.Decoder | _HasTree,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> Decoder:
    """Return the module of a model with uninitialized weights; on the meta device it takes no
    memory.
    """
    tree = model if isinstance(model, blocks.Decoder) else model.tree
    module = Decoder(tree, TensorOptions(dtype, torch.device(device)))
    tie_weights(module, tree)
    return module


@torch.no_grad()
def initialize(module: Decoder, seed: int = 0, std: float = 0.02) -> Decoder:
    """Set matrices from a normal distribution, norms to the identity and biases to zero."""
    generator = torch.Generator(next(module.parameters()).device).manual_seed(seed)
    weights = module.state_dict()
    for leaf in walk(module.spec):
        x = weights[leaf.path]
        if leaf.weight.role == "bias":
            x.zero_()
        elif leaf.weight.role == "scale":
            x.fill_(1.0)
        elif not x.is_floating_point():
            x.zero_()
        else:
            x.normal_(0.0, std, generator=generator)
    for child in module.modules():
        if (
            isinstance(child, Module)
            and isinstance(child.spec, blocks.RMSNorm)
            and child.weight is not None
        ):
            child.weight.fill_(1.0 - child.offset)
    return module


def local_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield this rank's shard of every parameter and buffer by path, tied weights once, by the path
    of the one with values of its own.
    """
    named = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    for path, x in named:
        weight = weight_at(module.spec, path) if isinstance(module, Module) else None
        if weight is None or not weight.tied:
            yield path, local_tensor(x)


def tie_weights(module: Module, spec: Block) -> None:
    """Make every tied weight the same Parameter as the one it is tied to."""
    for leaf in walk(spec):
        if leaf.weight.tied:
            set_weight(module, leaf.path, module.get_parameter(leaf.tied_path))


def set_weight(module: nn.Module, path: str, x: Tensor | nn.Parameter) -> None:
    """Replace the weight at this path."""
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, x)
