"""The blocks that read images: towers and the projectors of their outputs.

Letters: d_v width, L_v layers, H_v heads, h_v head size, F_v MLP width, N_v positions of a vision tower (d_a, L_a, … of an audio tower);
C_v channels and p_v side of a patch; N patches of an image.
"""

from __future__ import annotations

from typing import ClassVar

from .blocks import MLP, Attention, Layer, Linear, Norm, PostNormLayer, apply_optional, norm_and_rotate, norm_heads_of, project_heads
from .expr import Expr, product
from .image_sizes import ImageSizes
from .machine import Machine, X
from .multimodal import CrossAttention
from .tree import Block, Stack, Weight


class PatchEmbedding(Linear):
    """A convolution whose stride is its kernel, which is a linear layer on the pixels of a patch: W `[d_v, C_v, p_v, p_v]`."""


class EncoderAttention(Attention):
    """Attention of every token to all tokens of its image or sound, or of its window; nothing is kept for later passes."""

    window_side: int | None = None  # patches on a side of the windows that an image is cut into
    padded: tuple[int, int] | None = None  # (n, m): of every m tokens those after the first n are padding

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.k is not None and self.v is not None
        q = norm_and_rotate(self, m, self.q_norm, project_heads(self, m, self.q, x))  # (B, N, H, h)
        k = norm_and_rotate(self, m, self.k_norm, project_heads(self, m, self.k, x))
        v = norm_heads_of(self, m, self.v_norm, project_heads(self, m, self.v, x))
        return self.o(m, m.merge_heads(m.encoder_attention(q, k, v, self.score_transform.scale, self.window_side, self.padded)))


class ClippedLinear(Linear):
    """A linear layer whose inputs and outputs are clamped to stored numbers (Gemma 4)."""

    input_min: Weight
    input_max: Weight
    output_min: Weight
    output_max: Weight

    def forward(self, m: Machine[X], x: X) -> X:
        return m.clip(Linear.forward(self, m, m.clip(x, self.input_min, self.input_max)), self.output_min, self.output_max)


class AttentionPooling(Block):
    """One learned query reads all patches, then x += mlp(norm x) (SigLIP's head); no multimodal model uses its result."""

    probe: Weight
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    norm: Norm
    mlp: MLP
    heads: int
    head_dim: int

    def forward(self, m: Machine[X], x: X) -> X:
        probe = m.first_tokens(m.prepend(x, self.probe), 1)
        q, k, v = (m.split_heads(y, self.head_dim) for y in (self.q(m, probe), self.k(m, x), self.v(m, x)))
        y = self.o(m, m.merge_heads(m.encoder_attention(q, k, v)))
        return m.add(y, self.mlp(m, self.norm(m, y)))


class VisionTower(Block):
    """A vision transformer: embedded patches, positions, layers; the result is the features of the patches."""

    group: ClassVar[str] = "vision"
    excluded: ClassVar[frozenset[str]] = frozenset()
    class_token: Weight | None = None  # a learned token before the patches
    patches: PatchEmbedding
    positions: Weight | None = None  # a row for each place of a square image, of the class token first
    norm_before: Norm | None = None
    layers: Stack
    norm_after: Norm | None = None
    pooling: AttentionPooling | None = None  # stored, but never read for the features of patches
    unread: Block | None = None  # the same of other modules
    patch_size: int
    image_sizes: ImageSizes
    feature_layers: tuple[int, ...] = ()  # numbers of the hidden states that are the features, joined; empty: the last, after norm_after
    drops_class_token: bool = False  # from the features
    resizing: str = ""  # how the positions are interpolated to the shape of an image; empty: they are not
    patch_norm: Norm | None = None  # before the positions are added
    class_token_last: bool = False  # after the patches
    tokens: int = 0  # of the patches of an image, where the class token comes last

    @property
    def numbers(self) -> Expr:
        """The numbers that the tower reads of each patch."""
        return product(self.patches.weight.shape[1:])

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = apply_optional(self.patch_norm, m, self.patches(m, pixels))  # (B, N, d_v)
        if self.class_token is not None:
            x = m.append(x, self.class_token) if self.class_token_last else m.prepend(x, self.class_token)
        if self.positions is not None:
            x = m.add_resized_positions(x, self.positions, self.resizing) if self.resizing else m.add_positions(x, self.positions)
        x = apply_optional(self.norm_before, m, x)
        if self.feature_layers:
            x = m.layer_outputs(self.layers, x, self.feature_layers)
        else:
            x = apply_optional(self.norm_after, m, m.layers(self.layers, x))
        if not self.drops_class_token:
            return x
        return m.first_tokens(x, self.tokens) if self.class_token_last else m.drop_tokens(x, 1)


class RegisterTower(VisionTower):
    """A vision transformer with learned tokens before the patches, which get no positions and are left out of the result (RADIO)."""

    class_token: Weight
    positions: Weight
    registers: int  # learned tokens

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = m.add_resized_positions(self.patches(m, pixels), self.positions, self.resizing)
        x = m.layers(self.layers, m.prepend(x, self.class_token))
        return apply_optional(self.norm_after, m, m.drop_tokens(x, self.registers))


class PooledVisionTower(VisionTower):
    """A vision transformer with positions by column and row, whose result are averages of pool × pool features (Gemma 4)."""

    axial_positions: Weight  # [2, places, d_v]
    std_bias: Weight | None = None
    std_scale: Weight | None = None
    pool: int
    factor: float  # of the averages

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = m.add_axial_positions(self.patches(m, pixels), self.axial_positions)
        x = m.scale(m.pool_patches(m.layers(self.layers, x), self.pool), self.factor)
        if self.std_bias is None or self.std_scale is None:
            return x
        return m.standardize(x, self.std_bias, self.std_scale)


class PatchEmbedder(VisionTower):
    """Normalized pixels of large patches, projected, with positions by column and row; there are no layers (Gemma 4 12B)."""

    pixel_norm: Norm
    axial_positions: Weight  # [places, 2, d_v]

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = apply_optional(self.norm_before, m, self.patches(m, self.pixel_norm(m, pixels)))
        return apply_optional(self.norm_after, m, m.add_axial_positions(x, self.axial_positions, places_first=True))


class GatedLayer(Layer):
    """x += tanh(attn_gate) · attn(norm x); x += tanh(mlp_gate) · mlp(norm x) (Llama 3.2 Vision's tower)."""

    attn_gate: Weight
    mlp_gate: Weight

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn_norm is not None and self.attn is not None and self.mlp_norm is not None and self.mlp is not None
        x = m.add(x, m.scale_by_tanh(self.attn(m, self.attn_norm(m, x)), self.attn_gate))
        return m.add(x, m.scale_by_tanh(self.mlp(m, self.mlp_norm(m, x)), self.mlp_gate))


class TiledVisionTower(VisionTower):
    """A tower that reads all tiles of an image together, and returns several hidden states joined (Llama 3.2 Vision)."""

    position_gate: Weight
    position_rows: Weight  # for each arrangement of the tiles: a row for each token of each tile
    rows_before: Weight  # for each arrangement of the tiles: a row for each tile
    gate_before: Weight
    rows_after: Weight
    gate_after: Weight
    global_layers: Stack
    tiles: int
    multiple: int  # of tokens of a tile, up to which they are padded
    width: int
    states: tuple[int, ...]  # numbers of the hidden states that follow the result of the global layers
    num_states: int

    def forward(self, m: Machine[X], pixels: X) -> X:
        assert self.class_token is not None and self.positions is not None and self.norm_before is not None and self.norm_after is not None
        x = m.add_tile_rows(self.patches(m, pixels), self.rows_before, self.gate_before, self.tiles)  # (B · tiles, N, d_v)
        x = m.add_gated_positions(m.prepend(x, self.class_token), self.positions, self.position_gate)
        x = self.norm_before(m, m.add_tile_rows(x, self.position_rows, self.position_gate, self.tiles))
        x = m.join_tiles(m.pad_tokens(x, self.multiple), self.tiles)
        earlier, last = m.split(m.layer_outputs(self.layers, x, (*self.states, -1)), self.num_states * self.width, self.width)
        y = m.split_tiles(self.norm_after(m, last), self.tiles)
        y = m.join_tiles(m.add_tile_rows(y, self.rows_after, self.gate_after, self.tiles), self.tiles)
        y = m.concat(m.layers(self.global_layers, y), m.interleave(earlier, self.num_states))
        return m.first_tokens(m.split_tiles(y, self.tiles), self.tokens)


class LayerScale(Norm):
    """w · x, one factor for each channel of a branch (InternViT)."""

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.weight is not None
        return m.scale_by_weight(x, self.weight)


class LinearProjector(Block):
    """A linear layer on the features of each patch, or of side × side patches joined."""

    group: ClassVar[str] = "projector"
    norm: Norm | None = None
    linear: Linear
    out_norm: Norm | None = None
    newline: Weight | None = None  # a learned token after each row of an image that is cut into tiles
    separator: Weight | None = None  # and one after all of them
    unread: Block | None = None
    merge: int = 1

    def forward(self, m: Machine[X], x: X) -> X:
        if self.merge > 1:
            x = m.merge_patches(x, self.merge)
        return apply_optional(self.out_norm, m, self.linear(m, apply_optional(self.norm, m, x)))


class MLPProjector(Block):
    """linear_2(act(linear_1 x)), or linear_2(linear_1 x · act(gate x)), on the features of each patch, or of side × side patches joined."""

    group: ClassVar[str] = "projector"
    patch_norm: Norm | None = None  # before patches are joined
    merger: Linear | None = None  # W `[d_v, side² d_v]`, on the joined features
    norm: Norm | None = None
    linear_1: Linear
    gate: Linear | None = None
    linear_2: Linear
    out_norm: Norm | None = None
    newline: Weight | None = None  # a learned token after each row of an image that is cut into tiles
    separator: Weight | None = None  # and one between the whole image and its tiles
    activation: str
    merge: int = 1  # patches on a side of the square that becomes one token
    by_channel: bool = False  # the joined features are ordered by channel, then by patch
    padded: bool = False  # with zeros, where squares are not full; otherwise what is left over is left out

    def forward(self, m: Machine[X], x: X) -> X:
        x = apply_optional(self.patch_norm, m, x)
        if self.merge > 1:
            x = m.merge_patches(x, self.merge, by_channel=self.by_channel, padded=self.padded)
        x = apply_optional(self.norm, m, apply_optional(self.merger, m, x))
        y = self.linear_1(m, x)
        y = m.act(y, self.activation) if self.gate is None else m.gated(self.gate(m, x), y, self.activation)
        return apply_optional(self.out_norm, m, self.linear_2(m, y))


class FramedProjector(MLPProjector):
    """[begin; features with a learned token after each row; end] (DeepSeek-V4.1)."""

    begin: Weight
    end: Weight
    row_end: Weight

    def forward(self, m: Machine[X], x: X) -> X:
        rows = m.end_rows(MLPProjector.forward(self, m, x), self.row_end, self.merge)
        return m.append(m.prepend(rows, self.begin), self.end)


class ArrangedProjector(Block):
    """linear_2(act(linear_1 x)) on squares of patches of all tiles, arranged in rows that end with a learned token (Phi-3 Vision)."""

    group: ClassVar[str] = "projector"
    separator: Weight  # between the tiles and the whole image
    newline: Weight
    linear_1: Linear
    linear_2: Linear
    activation: str
    merge: int
    tiles: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.arrange_tiles(m.merge_patches(x, self.merge), self.tiles, self.newline, self.separator)
        return self.linear_2(m, m.act(self.linear_1(m, x), self.activation))


class StitchedProjector(Block):
    """linear_2(act(linear_1 x)) on the features of each patch of the whole image, joined with those of its tiles there (Moondream)."""

    group: ClassVar[str] = "projector"
    linear_1: Linear
    linear_2: Linear
    unread: Block | None = None
    activation: str
    margin: int

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear_2(m, m.act(self.linear_1(m, m.stitch_tiles(x, self.margin)), self.activation))


class SquareAttentionProjector(Block):
    """down(act(gate y) · up y), with y the attention of the average of each square of patches to its patches (Molmo 2)."""

    group: ClassVar[str] = "projector"
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    mlp: MLP
    head_dim: int
    side: int  # patches on a side of a square
    margin: int  # patches on each side of a tile that its neighbor has, too

    def forward(self, m: Machine[X], x: X) -> X:
        squares = m.gather_squares(x, self.side, self.margin)  # (B, n, side², d)
        queries = m.average_squares(squares, x, self.side, self.margin)
        q, k, v = (m.split_heads(y, self.head_dim) for y in (self.q(m, queries), self.k(m, squares), self.v(m, squares)))
        return self.mlp(m, self.o(m, m.merge_heads(m.square_attention(q, k, v, x, self.side, self.margin))))


class VisualTokenProjector(Block):
    """Σ softmax(norm(linear x))ᵢ · row i of a table: weighted sums of the embeddings of visual tokens (Ovis 2).

    The last rows of the table are those of tokens that mark the places of images.
    """

    group: ClassVar[str] = "projector"
    linear: Linear
    norm: Norm
    table: Weight
    merge: int
    hard: bool = False  # the most probable token alone

    def forward(self, m: Machine[X], x: X) -> X:
        if self.merge > 1:
            x = m.merge_patches(x, self.merge, padded=True)
        return m.mix_rows(self.norm(m, self.linear(m, x)), self.table, self.hard)


class AdapterProjector(Block):
    """linear(act(linear_2(act(linear_1 x)))) on the features of side × side patches joined, and perhaps a norm (Llama 4, Muse Glimmer)."""

    group: ClassVar[str] = "projector"
    linear_1: Linear
    linear_2: Linear
    linear: Linear
    norm: Norm | None = None
    activation: str
    merge: int
    by_channel: bool = False  # the joined features are ordered by channel, then by patch

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.act(self.linear_1(m, m.merge_patches(x, self.merge, by_channel=self.by_channel)), self.activation)
        return apply_optional(self.norm, m, self.linear(m, m.act(self.linear_2(m, x), self.activation)))


class ChainedProjector(Block):
    """linear(merger x): a projector, then a linear layer on its tokens (HyperCLOVA X Vision)."""

    group: ClassVar[str] = "projector"
    merger: Block
    linear: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear(m, self.merger(m, x))


class QueryProjector(Block):
    """mlp(norm(linear(attention))): learned queries read the features of all patches (Aria)."""

    group: ClassVar[str] = "projector"
    query: Weight  # of which an image has the first `queries`
    query_norm: Norm
    norm: Norm
    q: Linear
    k: Linear
    v: Linear
    inner_q: Linear
    inner_k: Linear
    inner_v: Linear
    o: Linear
    linear: Linear
    out_norm: Norm
    mlp: MLP
    heads: int
    head_dim: int
    queries: int

    def forward(self, m: Machine[X], x: X) -> X:
        query = self.query_norm(m, m.first_tokens(m.prepend(x, self.query), self.queries))
        x = self.norm(m, x)
        q, k, v = self.inner_q(m, self.q(m, query)), self.inner_k(m, self.k(m, x)), self.inner_v(m, self.v(m, x))
        q, k, v = m.split_heads(q, self.head_dim), m.split_heads(k, self.head_dim), m.split_heads(v, self.head_dim)
        y = self.linear(m, self.o(m, m.merge_heads(m.encoder_attention(q, k, v))))
        return self.mlp(m, self.out_norm(m, y))


class PerceiverLayer(Layer):
    """z += attn(z', [x'; z']) with norms z' and x'; z += mlp(norm z): latents z read the features x and themselves (arXiv:2103.03206)."""

    attn: CrossAttention
    feature_norm: Norm

    def forward(self, m: Machine[X], z: X, *features: X) -> X:
        assert self.attn_norm is not None and self.mlp_norm is not None and self.mlp is not None
        (x,) = features
        queries = self.attn_norm(m, z)
        z = m.add(z, self.attn(m, queries, m.concat_tokens(self.feature_norm(m, x), queries)))
        return m.add(z, self.mlp(m, self.mlp_norm(m, z)))


class QueryLayer(PostNormLayer):
    """z = attn_norm(z + attn z); z = cross_norm(z + cross_attn(z, x)) in some layers; z = mlp_norm(z + mlp z) (arXiv:2301.12597)."""

    cross_attn: CrossAttention | None = None
    cross_norm: Norm | None = None
    unread: Block | None = None  # the MLP of tokens of text

    def forward(self, m: Machine[X], z: X, *features: X) -> X:
        assert self.attn is not None and self.mlp is not None
        z = apply_optional(self.attn_norm, m, m.add(z, self.attn(m, z)))
        if self.cross_attn is not None:
            z = apply_optional(self.cross_norm, m, m.add(z, self.cross_attn(m, z, *features)))
        return apply_optional(self.mlp_norm, m, m.add(z, self.mlp(m, z)))


class Resampler(Block):
    """Learned latents, which read the features of an image in each layer; they, not the features, are the result (Idefics 2, BLIP-2)."""

    group: ClassVar[str] = "projector"
    inner: Block | None = None  # on the features, before
    latents: Weight
    norm_before: Norm | None = None
    layers: Stack
    norm: Norm | None = None
    linear: Linear | None = None
    unread: Block | None = None

    def forward(self, m: Machine[X], x: X) -> X:
        x = apply_optional(self.inner, m, x)
        z = apply_optional(self.norm_before, m, m.repeat_rows(x, self.latents))
        for layer in self.layers:
            z = layer(m, z, x)
        return apply_optional(self.linear, m, apply_optional(self.norm, m, z))


class LatentProjector(Block):
    """attn(z, [x'; z]) with x' = linear(x / |x|): learned latents z read the features and themselves, once (Kosmos-2)."""

    group: ClassVar[str] = "projector"
    latents: Weight
    linear: Linear
    attn: CrossAttention

    def forward(self, m: Machine[X], x: X) -> X:
        x, z = self.linear(m, m.l2_norm(x, _TINY)), m.repeat_rows(x, self.latents)
        return self.attn(m, z, m.concat_tokens(x, z))


_TINY = 1e-24
"""Under the root of a length that is divided by."""


class DeepMLPProjector(Block):
    """A linear layer, then others, each after an activation (Janus)."""

    group: ClassVar[str] = "projector"
    linear: Linear
    hidden: Stack
    activation: str
    unread: Block | None = None  # of the model's other direction, which makes images

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.linear(m, x)
        for layer in self.hidden:
            x = layer(m, m.act(x, self.activation))
        return x


class TwoStepProjector(Block):
    """An MLP of two layers on the features of each patch, then another on those of side × side patches joined (MiniMax-M3)."""

    group: ClassVar[str] = "projector"
    linear_1: Linear
    linear_2: Linear
    joined_1: Linear
    joined_2: Linear
    activation: str
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.linear_2(m, m.act(self.linear_1(m, x), self.activation))
        x = m.act(self.joined_1(m, m.merge_patches(x, self.merge)), self.activation)
        return self.joined_2(m, x)


class FramesProjector(Block):
    """norm(linear(temporal [y; y])) with y = spatial x, an MLP and a norm each: features of squares, then of two frames (ERNIE 4.5 VL).

    Both frames of an image are the image.
    """

    group: ClassVar[str] = "projector"
    spatial_first: Linear
    spatial_second: Linear
    spatial_norm: Norm
    temporal_first: Linear
    temporal_second: Linear
    temporal_norm: Norm
    linear: Linear
    norm: Norm
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.act(self.spatial_first(m, m.merge_patches(x, self.merge)), "gelu")
        x = self.spatial_norm(m, self.spatial_second(m, x))
        x = self.temporal_second(m, m.act(self.temporal_first(m, m.concat(x, x)), "gelu"))
        return self.norm(m, self.linear(m, self.temporal_norm(m, x)))


class DownsampleProjector(Block):
    """mlp(gelu(norm(linear x))) on features of side × side patches, of which a convolution makes one before (GLM-4V)."""

    group: ClassVar[str] = "projector"
    downsample: PatchEmbedding
    linear: Linear
    norm: Norm
    mlp: MLP
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.downsample(m, m.merge_patches(x, self.merge, by_channel=True))
        return self.mlp(m, m.act(self.norm(m, self.linear(m, x)), "gelu"))


class DeepstackProjector(Block):
    """One projector for the last hidden states of a tower, others for earlier ones; the text model adds their results to early layers."""

    group: ClassVar[str] = "projector"
    merger: MLPProjector
    deepstack: Stack
    feature_width: int  # of one of the hidden states that are joined in the features
    states: int  # number of hidden states

    def forward(self, m: Machine[X], x: X) -> X:
        *earlier, last = m.split(x, *[self.feature_width] * self.states)
        return m.concat(self.merger(m, last), *m.each(self.deepstack, *earlier))


class PooledProjector(Block):
    """A linear layer on the averages of k × k features, normalized (Gemma 3)."""

    group: ClassVar[str] = "projector"
    linear: Linear
    norm: Norm
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear(m, self.norm(m, m.pool_patches(x, self.merge)))


class GridConvolution(Linear):
    """A convolution over the patches of a square image: W `[out, in, k, k]`."""

    stride: int = 1

    def forward(self, m: Machine[X], x: X) -> X:
        return m.convolve(x, self.weight, self.bias, self.stride)


class GridAttention(Block):
    """Attention of the patches of a square grid, with learned vectors for the distances between their rows and columns."""

    group: ClassVar[str] = "attention"
    rows: Weight | None = None
    columns: Weight | None = None
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    heads: int
    head_dim: int

    def forward(self, m: Machine[X], x: X) -> X:
        q, k, v = (m.split_heads(y, self.head_dim) for y in (self.q(m, x), self.k(m, x), self.v(m, x)))
        if self.rows is None or self.columns is None:
            return self.o(m, m.merge_heads(m.encoder_attention(q, k, v)))
        return self.o(m, m.merge_heads(m.grid_attention(q, k, v, self.rows, self.columns)))


class WindowedLayer(Layer):
    """A layer whose attention sees windows of `window` × `window` patches of a square, the last ones padded."""

    window: int

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn_norm is not None and self.attn is not None and self.mlp_norm is not None and self.mlp is not None
        y = self.attn(m, m.to_windows(self.attn_norm(m, x), self.window))
        x = m.add(x, m.from_windows(y, self.window, x))
        return m.add(x, self.mlp(m, self.mlp_norm(m, x)))


class SamNeck(Block):
    """norm(mix(norm(reduce x))): two convolutions that bring features to fewer channels."""

    reduce: GridConvolution
    reduce_norm: Norm
    mix: GridConvolution
    mix_norm: Norm

    def forward(self, m: Machine[X], x: X) -> X:
        return self.mix_norm(m, self.mix(m, self.reduce_norm(m, self.reduce(m, x))))


class SamTower(VisionTower):
    """SAM's image encoder, whose result are features with few channels."""

    neck: SamNeck

    def forward(self, m: Machine[X], pixels: X) -> X:
        return self.neck(m, VisionTower.forward(self, m, pixels))


class FeatureEncoder(Block):
    """A vision transformer that reads the features of another tower in place of patches."""

    class_token: Weight
    positions: Weight  # a row for the class token, then one for each place of a square
    norm_before: Norm
    layers: Stack
    unread: Block | None = None  # its patches
    resizing: str

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.add_resized_positions(m.prepend(x, self.class_token), self.positions, self.resizing)
        return m.drop_tokens(m.layers(self.layers, self.norm_before(m, x)), 1)


class DeepTower(SamTower):
    """SAM's image encoder, two convolutions that halve the grid of its features each, and an encoder of these features; the result is that
    of the encoder joined with what it has read (DeepSeek-OCR).
    """

    first: GridConvolution
    second: GridConvolution
    encoder: FeatureEncoder

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = self.second(m, self.first(m, SamTower.forward(self, m, pixels)))
        return m.concat(self.encoder(m, x), x)


class ChannelConvolution(Linear):
    """A convolution of each channel by itself over the patches of an image: W `[d, 1, k, k]`."""

    def forward(self, m: Machine[X], x: X) -> X:
        return m.convolve_channels(x, self.weight, self.bias)


class GridShortConv(Block):
    """out(c · conv(b · y)), with b, c and y parts of a projection of the input, and a convolution over the grid of patches (LFM3-VL)."""

    group: ClassVar[str] = "attention"
    into: Linear
    conv: ChannelConvolution
    out: Linear
    width: int

    def forward(self, m: Machine[X], x: X) -> X:
        b, c, y = m.split(self.into(m, x), *[self.width] * 3)
        return self.out(m, m.multiply(c, self.conv(m, m.multiply(b, y))))


class ConvolutionProjector(Block):
    """linear(second(first x)): two convolutions that halve the grid of features, and a linear layer (GOT-OCR 2)."""

    group: ClassVar[str] = "projector"
    first: GridConvolution
    second: GridConvolution
    linear: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear(m, self.second(m, self.first(m, x)))


class RowProjector(Block):
    """norm([begin; linear(expand(act(downsample(norm x)))) with a token after each row; end]) (Hunyuan-VL).

    A convolution makes one feature of side × side patches.
    """

    group: ClassVar[str] = "projector"
    downsample: PatchEmbedding
    expand: PatchEmbedding
    linear: Linear
    newline: Weight  # after each row
    begin: Weight
    end: Weight
    separator: Weight  # not used
    norm: Norm
    out_norm: Norm
    activation: str
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.downsample(m, m.merge_patches(self.norm(m, x), self.merge, by_channel=True))
        x = m.end_rows(self.expand(m, m.act(x, self.activation)), self.newline, self.merge)
        return self.out_norm(m, m.append(m.prepend(self.linear(m, x), self.begin), self.end))
