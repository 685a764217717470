"""The recorded graph of a configuration: rules, letters, and sums over its steps, without torch."""

from __future__ import annotations

from llamath.analysis.graph.flop_count import forward_flops, layer_flops, list_flops
from llamath.analysis.graph.recorder import record
from llamath.analysis.graph.walkthrough import decode_graph, prompt_graph, reads_on, walkthrough
from llamath.analysis.size.flops.flops_report import FlopsRequest, count_model_flops
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.core.blocks import Decoder
from llamath.core.parameter_count import count_parameters
from llamath.core.tree import Block, fold
from llamath.families.mllama import CrossAttentionLayer
from support.contract import Contract, check


@check("text", computed=True)
def masked_flops_are_positive_and_at_most_all(case: Contract) -> None:
    for graph in (
        record(case.tree, batch=2, new_tokens=3, past_tokens=4),
        record(case.tree, batch=2, past_tokens=4, decode=True),
    ):
        for _, node in graph.nodes():
            assert (
                node.op.flops is None
                or int(node.op.flops(node, False)) >= int(node.op.flops(node, True)) > 0
            )


@check("text", computed=True)
def letters_of_flops_do_not_collide(case: Contract) -> None:
    graph, values = record(case.tree, batch=3, new_tokens=5003, past_tokens=107), dict[str, int]()
    for region in graph.regions:
        for letters in (region.times.atoms, *(x.flops.atoms for x in list_flops(region))):
            assert all(values.setdefault(letter, n) == n for letter, n in letters.items())


def crossing_layers(tree: Decoder) -> list[tuple[Block, int]]:
    """The layers that a pass over text alone skips, with their numbers."""
    return [(x, int(n)) for x, n in tree.layers.distinct() if isinstance(x, CrossAttentionLayer)]


@check("text", computed=True)
def flops_parts_sum_to_the_total(case: Contract) -> None:
    tree, tokens = case.model.text.tree, 57 * 3
    counted = count_model_flops(case.model, FlopsRequest(context=57, batch=3))
    assert sum(x.forward for x in counted.products) == counted.forward.total
    assert sum(x.decode for x in counted.products) == counted.decode.total
    assert sum(x.train for x in counted.products) == counted.training.model
    without_gradient = sum(int(x.forward) for x in counted.products if x.without_gradient)
    assert counted.training.model + 2 * without_gradient == 3 * counted.forward.total
    graph = record(tree, batch=3, new_tokens=57)
    by_layer = sum(
        int(x.flops) * int(region.times) for region in graph.layers for x in list_flops(region)
    )
    assert layer_flops(graph).total == by_layer <= counted.forward.total
    if (
        type(tree) is not Decoder
    ):  # several residual streams: weights are used twice, and the last token's streams joined
        return
    if any(
        x.weight.tied.startswith("layers.") for x in fold(tree)
    ):  # a layer uses one of the adapters of its shared block
        return
    skipped = sum(
        int(y.weight.size) * n
        for x, n in crossing_layers(tree)
        for y in fold(x)
        if y.weight.role == "matmul"
    )
    matrices = (
        sum(int(x.weight.size) * int(x.active) for x in fold(tree) if x.weight.role == "matmul")
        - skipped
    )
    assert counted.forward.total - counted.forward.mixing_total == 2 * tokens * matrices
    head = sum(
        int(x.weight.size) * int(x.active)
        for x in fold(tree)
        if x.weight.role == "matmul" and x.group == "head"
    )
    assert counted.forward.total - counted.prefill.total == 2 * 3 * 56 * head
    assert (
        counted.prefill_intensity[-1].flops == counted.prefill.total
        and counted.decode_intensity[-1].flops == counted.decode.total
    )


def of_images(tree: Decoder) -> int:
    """The parameters of text layers that only tokens of images read."""
    return sum(
        int(x.weight.parameters) * int(x.copies)
        for x in fold(tree)
        if x.pattern.endswith("mlp.image_correction")
    )


def without_effect(tree: Decoder) -> int:
    """The parameters of Kimi K3's first attention to earlier layers: there is one layer, so that
    its weight is 1 whatever they are.
    """
    first = getattr(tree.layers[0], "attn_depth", None)
    return sum(int(x.weight.parameters) for x in fold(first)) if first is not None else 0


def of_exits(tree: Decoder) -> int:
    """The parameters of Ouro's gate, which says when a token has had enough passes, where each gets all of them."""
    gate = getattr(tree, "exit_gate", None)
    return sum(int(x.weight.parameters) for x in fold(gate)) if gate is not None else 0


def sums_are_exact(tree: Decoder, batch: int, *prompts: int) -> None:
    """Compare the sums over the steps of these prompts, and of a token after nine, with the model."""
    skipped = sum(
        int(x.weight.parameters) * int(x.copies) * n
        for block, n in crossing_layers(tree)
        for x in fold(block)
    )
    unread = skipped + of_images(tree) + without_effect(tree) + of_exits(tree)
    graphs = [prompt_graph(tree, tokens, batch) for tokens in prompts]
    for graph in (*graphs, *([decode_graph(tree, 9, batch)] if reads_on(tree) else [])):
        result = walkthrough(graph)
        assert result.parameters + unread == count_parameters(tree).parameters.total
        assert result.flops == forward_flops(graph).total
        assert result.cached == kv_cache_size(tree, int(result.context), batch).elements
        assert sum(x.times for x in result.layers) == tree.layers.n


@check("text", "unproven", computed=True, new=True)
def steps_sum_to_the_model(case: Contract) -> None:
    sums_are_exact(case.tree, 2, 9)


@check("text", "unproven", computed=True)
def inputs_of_steps_exist(case: Contract) -> None:
    for stage in walkthrough(prompt_graph(case.tree, 5)).stages:
        known = {"x", "per_layer_inputs", "embeddings"}
        for x in stage.steps:
            assert set(x.inputs) <= known, x.name
            assert x.name not in known
            known.add(x.name)
