"""The steps of one image in the tower and the projector of a multimodal model; of parts without
known steps, why there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...analysis.graph.image_pass import ImagePass, Images, image_pass
from ...analysis.graph.node import Node
from ...analysis.graph.operations import shape_operations
from ...analysis.graph.operations.projection_operations import linear
from ...analysis.graph.operations.tower_operations import encoder_attention
from ...analysis.graph.recorder import Graph
from ...analysis.graph.steps import list_steps
from ...analysis.graph.walkthrough import WalkthroughStage, tower_stages
from ...analysis.understand.layer_pattern import describe_layer
from ...core.blocks import TOWER_FIELDS, Layer
from ...core.expr import product
from ...core.tree import LETTERS, Block, fold
from ...model import FamilyModel
from ...utils.errors import LlamathError, safe
from .block_data import encode_stage
from .plate_data import layer_sizes, layer_weights

_IMAGE = Images(count=1, width=1024, height=1024)
_UNKNOWN_SOUND = "no command takes sound: the weights of this part are counted, not computed"


def build_towers(model: FamilyModel) -> dict[str, Any]:
    """Return the parts of a model that read images or sound with their stages."""
    tree = model.tree
    images, unknown = None, ""
    try:
        images = image_pass(tree, _IMAGE) if tree.vision is not None else None
    except LlamathError as error:
        unknown = safe(str(error), 500)
    stages = [] if images is None else list(_stages(images.graph))
    return {
        "parts": [
            {
                "name": name,
                "image": "" if images is None or _reads_sound(name) else _describe(images),
                "unknown": _UNKNOWN_SOUND if _reads_sound(name) else unknown,
                "stages": (own := [stage for part, stage in stages if part == name]),
                "unread": _unread(getattr(tree, name), name, own) if own else [],
            }
            for name in TOWER_FIELDS
            if getattr(tree, name, None) is not None
        ],
    }


def _describe(images: ImagePass) -> str:
    """Return what becomes of an image, and which of its passes the stages are."""
    beside = images.beside
    return images.summary + (
        ""
        if beside is None
        else "; here, the pass of the whole image, whose steps its other tiles pass, too"
    )


def _unread(part: Block, name: str, stages: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the weights that are stored but in no step, with their parameters: such as the norm
    after the last layer of CLIP.
    """
    used = {
        stage["prefix"] + use["path"]
        for stage in stages
        for step in stage["steps"]
        for use in step["uses"]
    }
    leaves = ((f"{name}.{x.pattern}", product((x.weight.parameters, x.copies))) for x in fold(part))
    return [[path, str(n)] for path, n in leaves if path not in used]


def _reads_sound(name: str) -> bool:
    return name.startswith("audio")


def _stages(graph: Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each stage with its part: the operations outside of layers, in runs between the
    stacks, and each kind of layer.
    """
    layers: dict[str, list[WalkthroughStage]] = {}
    for x in tower_stages(graph):
        if x.name == "layers":
            layers.setdefault(_stack_path(x), []).append(x)
    leaves, given = fold(graph.tree), {graph.regions[0].nodes[0]: "pixels"}
    for stack, nodes in _runs(graph):
        for x in layers.get(stack, ()):
            yield _part(stack), _layer_stage(graph, x, stack, several=len(layers[stack]) > 1)
        given |= {
            x: f"output of the {_block_name(stack)}s"
            for x in nodes
            if x.op is shape_operations.layers
        }
        steps = list_steps(graph, nodes, leaves, "", given)
        if steps:
            part = _part(nodes[-1].path)
            stage = WalkthroughStage(name=part, steps=steps, nodes=tuple(nodes))
            yield (
                part,
                encode_stage(stage, nodes[-1].shape)
                | {"name": _run_title(part, stack, nodes), "prefix": "", "kind": None},
            )
        given |= dict.fromkeys(nodes, "features")


def _runs(graph: Graph) -> Iterator[tuple[str, list[Node]]]:
    """Yield the operations outside of layers in runs of one part, each with the path of the
    stack that it begins with.
    """
    stacks = iter(dict.fromkeys(x.path for x in graph.layers))
    stack, run = "", list[Node]()
    for node in graph.regions[0].nodes[1:]:
        last = run[-1] if run else None
        is_stack = node.op is shape_operations.layers and (
            last is None or last.op is not shape_operations.layers or last in node.inputs
        )
        if run and (is_stack or _part(node.path) != _part(run[-1].path)):
            yield stack, run
            stack, run = "", []
        stack = next(stacks, "") if is_stack else stack
        run.append(node)
    if run:
        yield stack, run


def _part(path: str) -> str:
    return path.partition(".")[0]


def _stack_path(stage: WalkthroughStage) -> str:
    return next(x.path for x in stage.nodes if LETTERS[0] in x.path).partition(f".{LETTERS[0]}")[0]


def _block_name(stack: str) -> str:
    *owners, field = stack.split(".")[1:] or [""]
    return " ".join([*owners, field.replace("_", " ").removesuffix("s")])


def _run_title(part: str, stack: str, nodes: Sequence[Node]) -> str:
    if part.endswith("projector"):
        return f"after the {_block_name(stack)}s" if stack else "projector"
    if stack:
        return f"after the {_block_name(stack)}s"
    return "patches and positions" if any(x.op is linear for x in nodes) else "before the layers"


def _layer_stage(
    graph: Graph, stage: WalkthroughStage, stack: str, several: bool
) -> dict[str, Any]:
    block = next(x.block for x in graph.layers if x.nodes[0] is stage.nodes[0])
    leaves = fold(block, 1)
    if not isinstance(block, Layer):  # without a residual stream
        steps = list_steps(graph, stage.nodes, leaves, stack, {stage.nodes[0]: "features"})
        stage = stage.replace(steps=steps)
    groups = {x.pattern: x.group for x in leaves}
    own = (
        x.replace(weights=tuple(y.replace(group=groups[y.path] or y.group) for y in x.weights))
        for x in stage.steps
    )
    # attention and FFN have their own colors inside a tower
    stage = stage.replace(steps=tuple(own))
    windows = [x.attributes["window"] for x in stage.nodes if x.op is encoder_attention]
    kind = (
        ""
        if not several or not windows
        else "full attention "
        if windows[0] is None
        else "window attention "
    ) + _block_name(stack)
    label = describe_layer(block) if isinstance(block, Layer) else kind
    return encode_stage(stage, stage.nodes[0].shape) | {
        "name": kind,
        "prefix": f"{stack}.{LETTERS[0]}.",
        "kind": {
            "label": label,
            "stage": None,
            "sizes": layer_sizes(leaves),
            "weights": list(layer_weights(block)),
        },
    }
