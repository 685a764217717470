"""Stored layouts of a configuration, value by value, split with torch and read by rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from llamath.checkpoint import canonical_reader
from llamath.checkpoint.canonical_reader import CanonicalReader
from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.naming.stored_layouts import (
    apply_layout,
    group_by_stored_name,
    join_tensors,
    layout_params_at,
    split_tensor,
    undo_layout,
)
from llamath.checkpoint.tensor_reader import MergedTensor, TensorReader
from llamath.torch import canonical_weights
from support.contract import Contract, check


@check("text")
def every_stored_value_is_used_once(case: Contract) -> None:
    for scheme in case.model.family.schemes.values():
        count, tensors = 0, {}
        for x in scheme.tensors(case.tree):
            size = torch.Size(x.shape).numel()
            tensors[x.name] = torch.arange(count, count + size, dtype=torch.float64).view(
                tuple(x.shape)
            )
            count += size
        result = dict(canonical_weights(case.tree, scheme, tensors))
        assert {path: tuple(x.shape) for path, x in result.items()} == {
            x.path: x.shape for x in case.model.weights if not x.weight.tied
        }
        if not {"shifted", "decay"} & {
            word for layout in scheme.layouts.values() for word in layout.split()
        }:
            assert torch.equal(
                torch.cat([x.flatten() for x in result.values()]).sort().values,
                torch.arange(count, dtype=torch.float64),
            )


@check("text")
def layouts_are_applied_and_undone(case: Contract) -> None:
    for scheme in case.model.family.schemes.values():
        shapes = {x.name: tuple(map(int, x.shape)) for x in scheme.tensors(case.tree)}
        for name, leaves in group_by_stored_name(case.tree, scheme).items():
            own = [x for x in leaves if x.indices == leaves[0].indices]
            shape = shapes[name] if len(own) == len(leaves) else shapes[name][1:]
            if len(own) < len(leaves) and "below" in scheme.layout_of(own[0].pattern):
                experts = len({x.indices for x in leaves if x.indices[0] == leaves[0].indices[0]})
                shape = (shapes[name][0] // experts, *shape)
            layout, params = scheme.layout_of(own[0].pattern), layout_params_at(case.tree, own[0])
            stored = torch.rand(shape, dtype=torch.float64) - (1.0 if "decay" in layout else 0.0)
            parts = split_tensor(stored, [tuple(map(int, x.shape)) for x in own], layout, params)
            weights, again = [], []
            for x, leaf in zip(parts, own, strict=True):
                each, module = scheme.layout_of(leaf.pattern), leaf.path.split(".", 3)[-1]
                weights.append(undo_layout(x, each, params, module, torch))
                again.append(apply_layout(weights[-1], each, params, module, torch))
            result = join_tensors(again, layout, params, torch, shape)
            assert result.shape == shape and torch.allclose(
                result, stored, rtol=1e-14, atol=1e-14
            ), name


@check("text", new=True)
def rows_equal_whole_tensors_split_by_torch(case: Contract) -> None:
    generator = torch.Generator().manual_seed(0)
    with case.folder() as folder:
        for scheme in case.model.family.schemes.values():
            tensors = {
                x.name: -torch.rand(tuple(map(int, x.shape)), generator=generator) - 0.1
                for x in scheme.tensors(case.tree)
            }
            path = folder / f"{scheme.name}.safetensors"
            save_file(tensors, path)
            expected = dict(canonical_weights(case.tree, scheme, tensors))
            manifest = read_checkpoint(str(path))
            merged = {
                x.name: MergedTensor(x.name, x.dtype, x.shape, (x,)) for x in manifest.tensors
            }
            whole = [(1 << 19, 1 << 26)] if case.is_new else []
            for chunk, flipped in ((100 if case.is_thorough else 700, 64), *whole):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(canonical_reader, "CHUNK_VALUES", chunk)
                    patch.setattr(canonical_reader, "_MAX_FLIPPED_BYTES", flipped)
                    reader = CanonicalReader(case.tree, scheme, merged, TensorReader(manifest))
                    assert reader.weights.keys() == expected.keys()
                    for name, x in expected.items():
                        weight = reader.weights[name]
                        spans = [
                            reader.read(weight, first, last).values
                            for first, last in weight.spans()
                        ]
                        assert np.allclose(
                            np.concatenate(spans).reshape(weight.shape),
                            x.numpy(),
                            rtol=0,
                            atol=1e-6,
                        ), name
