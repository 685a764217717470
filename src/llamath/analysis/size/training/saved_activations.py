"""The activations that a forward pass saves for the backward pass, from the recorded graph and
the rules of its operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from ....core.blocks import Decoder
from ....core.expr import Expr, product
from ....core.tree import Block
from ...graph.node import FLOAT32, INT64, Node
from ...graph.operations import shape_operations
from ...graph.operations.attention_operations import attention
from ...graph.operations.projection_operations import linear
from ...graph.operations.saved_tensors import (
    Kernels,
    Saved,
    SavedTensor,
    elements_per_token,
    saved_sharding,
    stored_tensor,
)
from ...graph.recorder import Graph, record

COMPARED = frozenset(
    """bloom deepseek_v3 deepseek_v32 gemma gemma2 gpt_neox gpt_oss granite lfm2 llama mistral
    mixtral olmo opt phi3 qwen2 qwen2_moe qwen3 qwen3_moe smollm3 starcoder2""".split()
)
"""The families whose classes in transformers save what the rules say, in float32 and in bfloat16;
tests compare each.

Others differ: the rules give 10% less than OLMo 2 saves, which scales a norm before it rounds, and
up to 28% less than Cohere.
"""
_COMPARED_WITH_FLASH = frozenset({"gpt2"})


def is_compared(family: str, flash: bool, fused: bool) -> bool:
    """Return whether the rules are exact for the implementation of a family; with fused kernels,
    the rules define it.
    """
    return fused or family in COMPARED or (flash and family in _COMPARED_WITH_FLASH)


class SavedActivations:
    """What a forward pass of a model saves: in each kind of layer, around the layers, and in the
    loss. Every storage counts once.
    """

    def __init__(self, tree: Decoder, kernels: Kernels) -> None:
        self.tree = tree
        self.kernels = kernels
        self._layers: dict[int, tuple[SavedTensor, ...]] = {}
        self._variants: dict[Kernels, SavedActivations] = {kernels: self}

    def with_kernels(self, kernels: Kernels) -> SavedActivations:
        """Return what a pass of the same model with other kernels saves."""
        if kernels not in self._variants:
            self._variants[kernels] = other = SavedActivations(self.tree, kernels)
            other._variants = self._variants
        return self._variants[kernels]

    @cached_property
    def _graph(self) -> Graph:
        return record(self.tree, dropout=self.kernels.dropout, activation_bytes=self.kernels.width)

    def layer(self, block: Block) -> tuple[SavedTensor, ...]:
        """What a layer of this kind saves."""
        if id(block) not in self._layers:
            (region,) = (x for x in self._graph.layers if x.block is block)
            self._layers[id(block)] = tuple(
                x for x in self._saved(region.nodes) if not x.shared_by_batch
            )
        return self._layers[id(block)]

    def kept_products(self, block: Block) -> frozenset[str]:
        """The weights whose products are kept under recomputation by operation, as the layer
        names them.
        """
        return frozenset(
            x.weights[0].path.split(".", 2)[2] for x in self._kept_nodes(block) if x.op is linear
        )

    def kept_by_operation(self, block: Block) -> tuple[SavedTensor, ...]:
        """What a layer of this kind keeps under recomputation by operation: the results of
        attention and of every second product.
        """
        found = [self.input_of_layer]
        for x in self._kept_nodes(block):
            found.append(
                SavedTensor(
                    "kept results",
                    elements_per_token(x.size),
                    self.kernels.width,
                    saved_sharding(x),
                    x.max_parts,
                )
            )
            if x.op is not linear:
                rows = elements_per_token(product(x.shape[:-1]))
                found.append(
                    SavedTensor("sums of softmax", rows, FLOAT32, saved_sharding(x), x.max_parts)
                )
        return tuple(found)

    def recomputed_by_operation(self, block: Block) -> tuple[SavedTensor, ...]:
        """What a layer of this kind saves again under recomputation by operation."""
        (region,) = (x for x in self._graph.layers if x.block is block)
        kept = {id(stored_tensor(x, self.kernels)) for x in self._kept_nodes(block)}
        found = self._by_storage(region.nodes)
        return tuple(
            x
            for storage, x in found.items()
            if not x.shared_by_batch and id(storage) not in kept and x.what != "sums of softmax"
        )

    def _kept_nodes(self, block: Block) -> list[Node]:
        """The first, third, … product of a layer, without routers and experts, and attention:
        torchtitan's policy `op`.
        """
        (region,) = (x for x in self._graph.layers if x.block is block)
        products = [
            x
            for x in region.nodes
            if x.op is linear and not x.in_expert and not x.path.endswith(".router")
        ]
        return [*products[::2], *(x for x in region.nodes if x.op is attention)]

    @cached_property
    def input_of_layer(self) -> SavedTensor:
        """The input of a layer, which a recomputed layer starts from."""
        return SavedTensor(
            "inputs of layers", Expr.const(self.tree.width), self.kernels.width, "sequence"
        )

    @cached_property
    def embedding(self) -> tuple[SavedTensor, ...]:
        """What the embedding saves."""
        return tuple(self._saved(self._outside[0]))

    @cached_property
    def head(self) -> tuple[SavedTensor, ...]:
        """What the final norm and the head save, and the labels."""
        labels = SavedTensor("token ids", Expr.const(1), INT64, "sequence")
        return (
            (*self._saved(self._outside[1]), labels)
            if self.tree.head is not None
            else tuple(self._saved(self._outside[1]))
        )

    @cached_property
    def loss(self) -> tuple[SavedTensor, ...]:
        """What cross-entropy saves: the log-probabilities in float32; and what the operations
        after the head save.
        """
        logits = self._graph.regions[0].output
        if self.tree.head is None or logits is None:
            return ()
        each = SavedTensor("logarithms of probabilities", elements_per_token(logits.size), FLOAT32)
        return (each, *self._saved(self._outside[2]))

    @cached_property
    def shared_tables(self) -> tuple[SavedTensor, ...]:
        """What all layers and all sequences share: the rotary tables."""
        found = dict(
            x
            for region in self._graph.layers
            for node in region.nodes
            for x in self._rule(node)
            if x[1].shared_by_batch
        )
        return tuple(found.values())

    @cached_property
    def _outside(self) -> tuple[list[Node], list[Node], list[Node]]:
        """The operations before the layers, those up to the head, and those on logits."""
        nodes = self._graph.regions[0].nodes
        layers = next(i for i, x in enumerate(nodes) if x.op is shape_operations.layers)
        head = max(
            (i for i, x in enumerate(nodes) if x.op is linear and i > layers), default=len(nodes)
        )
        return nodes[:layers], nodes[layers : head + 1], nodes[head + 1 :]

    def _rule(self, node: Node) -> Iterable[Saved]:
        rule = node.op.saved
        return () if rule is None or node.without_gradient else rule(node, self.kernels)

    def _saved(self, nodes: list[Node]) -> Iterable[SavedTensor]:
        """Return what these operations save."""
        return self._by_storage(nodes).values()

    def _by_storage(self, nodes: list[Node]) -> dict[object, SavedTensor]:
        """Return what these operations save; the first operation that saves a storage gives it
        its name.
        """
        found: dict[object, SavedTensor] = {}
        for rule in (self._rule, self._saved_by_adapters):
            for node in nodes:
                for storage, tensor in rule(node):
                    if not (tensor.for_weight_gradient and self.kernels.adapter_paths):
                        found.setdefault(
                            storage,
                            tensor if self.kernels.compared else tensor._replace(estimated=True),
                        )
        return found

    def _saved_by_adapters(self, node: Node) -> Iterator[Saved]:
        """Yield what the adapters of a matrix save: the inputs of A, of which float32 adapters
        of a 16-bit model have a copy, and of B.
        """
        k = self.kernels
        if (
            not k.adapter_paths
            or node.op is not linear
            or node.weights[0].path.removesuffix(".weight") not in k.adapter_paths
        ):
            return
        x = stored_tensor(node.inputs[0], k)
        elements = elements_per_token(x.size)
        copied = object() if x.width < k.adapter_width else x
        yield (
            copied,
            SavedTensor(
                "inputs of adapters",
                elements,
                max(k.adapter_width, x.width),
                saved_sharding(x),
                x.max_parts,
            ),
        )
        rows = elements_per_token(product(node.shape[:-1]))
        yield (
            object(),
            SavedTensor("inputs of adapters", rows * k.rank, k.adapter_width, "sequence"),
        )
