"""`Machine`: the operations that the `forward` of blocks is written in.

A machine stands for one pass over T new tokens of B sequences, which follow P tokens that were read
before. It knows the positions of the tokens, the attention masks, the caches, the dtype and the
device; a forward pass mentions none of them. There are two machines: `analysis.graph.GraphRecorder`
records a graph with symbolic shapes, by the rows in `analysis.graph.operations`, and
`torch.torch_machine.TorchMachine` computes tensors.

Letters in shapes: B sequences, T tokens of this pass, S keys that they attend to, d the hidden
size, H query heads, K key/value heads, h the head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol, TypeVar

from .positions import LogNScaling, Rope, TemperatureTuning
from .tree import Block, Stack, Weight

X = TypeVar("X")


class Machine(Protocol[X]):
    """One pass; X is what it computes with: tensors, or nodes of a graph."""

    @property
    def absorbs(self) -> bool:
        """Whether latent attention works on the latent vectors, as in decoding; otherwise it
        expands them to keys and values.
        """
        ...

    # Each token alone

    def token_positions(self) -> X:
        """The position of each new token in its sequence, `(T,)`, or `(B, T)` for sequences with
        padding.
        """
        ...

    def lookup(self, ids: X, weight: Weight, offset: int = 0) -> X:
        """Row `id + offset` of a table for each id."""
        ...

    def lookup_in_parts(self, ids: X, tables: Stack) -> X:
        """The row of each id in a table of which each block of the stack has as many rows as the
        first, the last one the rest.
        """
        ...

    def add_sinusoids(self, x: X, offset: int, steps: int) -> X:
        """x + [sin(t + offset) ω, cos(t + offset) ω], with t its position and ωᵢ = 10000^(−i
        / steps).
        """
        ...

    def linear(self, x: X, weight: Weight, bias: Weight | None = None) -> X:
        """W x + b, with W `[out, in]`."""
        ...

    def per_head_linear(self, x: X, weight: Weight, size: int, transposed: bool = False) -> X:
        """Apply to each head its own `size` rows of W: W x, or Wᵀ x if `transposed`."""
        ...

    def rms_norm(
        self, x: X, weight: Weight | None, eps: float, offset: float = 0.0, grouped: bool = False
    ) -> X:
        """x / rms(x) · (offset + w); `grouped`: over each group of channels; the weight has
        one row per group.
        """
        ...

    def layer_norm(
        self, x: X, weight: Weight | None, bias: Weight | None, eps: float, offset: float = 0.0
    ) -> X:
        """(x − mean) / std · (offset + w) + b."""
        ...

    def norm_heads(self, norm: Block | Stack, x: X) -> X:
        """Normalize each head of x; a Stack has one norm for each head."""
        ...

    def l2_norm(self, x: X, eps: float) -> X:
        """x / √(Σ x² + eps) in each head."""
        ...

    def act(self, x: X, activation: str) -> X:
        """An activation function, by its name in `config.json`."""
        ...

    def gated(self, gate: X, up: X, activation: str) -> X:
        """act(gate) · up."""
        ...

    def clamped_gated(self, gate: X, up: X, limit: float, alpha: float) -> X:
        """(up + 1) · g · sigmoid(alpha · g), with g = gate clamped from above to `limit`, and up
        clamped to ± limit.
        """
        ...

    def add(self, x: X, y: X) -> X:
        """x + y."""
        ...

    def multiply(self, x: X, y: X) -> X:
        """x · y, elementwise; the last dimension of y may be 1."""
        ...

    def dot(self, x: X, y: X) -> X:
        """Σ x · y over the last dimension, which becomes 1."""
        ...

    def signed_root(self, x: X, least: float) -> X:
        """sign(x) · √max(|x|, least)."""
        ...

    def scale(self, x: X, factor: float) -> X:
        """x · factor; x itself for a factor of 1."""
        ...

    def scale_by_weight(self, x: X, weight: Weight) -> X:
        """x · w, with one stored number w, one for each head of x `(B, T, H, h)`, or one for
        each channel of x `(B, T, d)`.
        """
        ...

    def scale_by_position(self, x: X, temperature: TemperatureTuning | LogNScaling | None) -> X:
        """Queries times a factor that depends on their positions."""
        ...

    def softcap(self, x: X, cap: float | None) -> X:
        """cap · tanh(x / cap); x itself without a cap."""
        ...

    def mix_streams(self, x: X, weights: X) -> X:
        """Σ over n of weights `(B, T, m, n)` · x `(B, T, n, d)`: for each token, m weighted sums
        of n vectors.
        """
        ...

    def sinkhorn(self, x: X, iterations: int, eps: float) -> X:
        """softmax(x) + eps with columns and rows divided by their sums + eps, in turn,
        transposed: `(B, T, n, n)`.
        """
        ...

    def offset(self, x: X, amount: float) -> X:
        """x + amount."""
        ...

    def softmax(self, x: X) -> X:
        """Softmax over the last dimension."""
        ...

    def normalize_sum(self, x: X) -> X:
        """x / Σ x over the last dimension."""
        ...

    def clamp(self, x: X, limit: float) -> X:
        """x clamped to ± limit."""
        ...

    def softplus(self, x: X, bias: Weight, minimum: float = 0.0, maximum: float = inf) -> X:
        """ln(1 + eˣ⁺ᵇ) in float32, clamped to the range from `minimum` to `maximum`."""
        ...

    def decay(self, dt: X, a_log: Weight) -> X:
        """−exp(a_log) · dt in float32: dt `(B, T, H)` and a_log `[H]`, or dt `(B, T, H, n)` and
        a_log `[H, 1]`.
        """
        ...

    def bounded_decay(self, x: X, a_log: Weight, bias: Weight, head_dim: int, bound: float) -> X:
        """bound · sigmoid(exp(a_log) · (x + bias)) in float32, `(B, T, H · n)` → `(B, T, H, n)`,
        with one number of a_log for each head.

        What a_log has after these numbers is not read.
        """
        ...

    def to_float32(self, x: X) -> X:
        """x in float32."""
        ...

    def to_model_dtype(self, x: X) -> X:
        """x in the dtype of the model."""
        ...

    def dropout(self, x: X) -> X:
        """Dropout, in training only."""
        ...

    # Shapes

    def split_heads(self, x: X, head_dim: int) -> X:
        """`(…, n · h)` → `(…, n, h)`."""
        ...

    def merge_heads(self, x: X) -> X:
        """`(…, n, h)` → `(…, n · h)`."""
        ...

    def split(self, x: X, *sizes: int) -> Sequence[X]:
        """Parts of the last dimension, with these sizes."""
        ...

    def concat(self, *parts: X) -> X:
        """Parts joined along the last dimension; a part with one head is repeated for every
        head.
        """
        ...

    def last_token(self, x: X) -> X:
        """The last token's x if only its logits are needed, otherwise x."""
        ...

    # Images and sound

    def prepend(self, x: X, *rows: Weight) -> X:
        """Learned tokens before those of x: `(B, N, d)` → `(B, n + N, d)`."""
        ...

    def drop_tokens(self, x: X, n: int) -> X:
        """x without its first n tokens."""
        ...

    def add_positions(self, x: X, table: Weight, method: str = "") -> X:
        """x + learned positions: a row of a table for each token, or, given a method, what it
        makes of the table for a grid of patches.

        `axial`: two rows of a table `[2, places, d]` for each patch, one for its column, one for
        its row; `axial_last` of one `[places, 2, d]`. The other methods interpolate between the
        rows of a square grid of patches: `bilinear` (the corners of both grids coincide), `centers`
        (bilinear, the edges coincide), `bicubic`, `antialias` (like `centers`, averaged where the
        grid shrinks), `zeros` (like `centers`, with zeros around the grid), `cropped` (like
        `centers`, to a square with the longer side of the image, of which the first rows and
        columns are used) or `transposed` (like `zeros`, for an image with rows and columns
        exchanged, whose rows are read one after the other for those of this one).
        """
        ...

    def merge_patches(self, x: X, side: int, by_channel: bool = False, padded: bool = False) -> X:
        """The features of side × side patches joined, `(B, N, d)` → `(B, N / side², side² · d)`;
        `by_channel`: each channel's together.

        What is left over at the end of rows and columns is left out, or `padded` with zeros.
        """
        ...

    def pool_patches(self, x: X, side: int) -> X:
        """The average of side × side patches: `(B, N, d)` → `(B, N / side², d)`."""
        ...

    def standardize(self, x: X, bias: Weight, scale: Weight) -> X:
        """(x − bias) · scale, with one number of each for each channel."""
        ...

    def clip(self, x: X, low: Weight, high: Weight) -> X:
        """x clamped to two stored numbers."""
        ...

    def encoder_attention(
        self, q: X, k: X, v: X, scale: float | None = None, window: int | None = None
    ) -> X:
        """softmax(q kᵀ · scale) v of every token of an image or sound with all of them, nothing
        cached: `(B, N, H, h)` each.

        The scale is 1 / √h unless it is given. Given a `window`, the image is cut into windows of
        that many patches a side, each by itself.
        """
        ...

    def encoder_tokens(self) -> tuple[X, X] | None:
        """The ids of the tokens that the encoder reads, `(B, E)`, and their positions; None
        where an earlier pass has read them.
        """
        ...

    def keep_encoded(self, mixer: Block, *rows: X) -> Sequence[X]:
        """Keep the keys and values of the encoder's tokens, or of images, for later passes: `(B,
        E, K, h)` each.
        """
        ...

    def read_encoded(self, mixer: Block) -> Sequence[X]:
        """The keys and values that the first pass kept."""
        ...

    def layer_outputs(self, layers: Stack, x: X, numbers: Sequence[int]) -> X:
        """Like `layers`, but the result is joined from the hidden states with these numbers: 0
        is x, −1 that of the last layer.
        """
        ...

    # Tokens meet

    def rope(self, x: X, rope: Rope | None) -> X:
        """Rotate pairs of channels of each head by its position; x itself without a rope."""
        ...

    def update_cache(self, mixer: Block, *rows: X) -> Sequence[X]:
        """Store rows of this mixer's new tokens in its cache; return those of all tokens that
        its queries attend to.
        """
        ...

    def read_cache(self, mixer: Block) -> Sequence[X]:
        """Return the keys and values, or latent vectors, of the layer `mixer.kv_layer`."""
        ...

    def select_keys(self, indexer: Block, q: X, k: X, weights: X | None) -> X:
        """The keys with the largest Σₕ weightsₕ · relu(qₕ · k / √head_dim) among those that a query
        sees, at most `indexer.top_k`.

        q `(B, T, H, n)`, k `(B, S, 1, n)`, weights `(B, T, H)` → indices `(B, T, min(S, top_k))`,
        of which the mask leaves out some. Without weights they are 1.
        """
        ...

    def select_blocks(self, indexer: Block, q: X, k: X) -> X:
        """The blocks with the largest q · k of any key that a query sees, `indexer.top_blocks` for
        each head, the nearest ones first.

        q `(B, T, H, n)`, k `(B, S, 1, n)` → numbers of blocks `(B, T, H, min(⌈S / block_size⌉,
        top_blocks))`, −1 where there are fewer.
        """
        ...

    def add_open_window(self, indexer: Block, selected: X) -> X:
        """The selected windows `(B, T, k)` and the one that the query is in, unless it is its
        last token (−1): `(B, T, 1, k + 1)`.
        """
        ...

    def compress(self, compressor: Block, kv: X, gate: X | None, bias: Weight | None) -> X:
        """One vector for each window of `ratio` tokens that ends in this pass, `(B, W, 1, h)`: Σ
        softmax(gate + bias) · kv over its tokens.

        With twice as many channels, the sum includes the tokens of the window before, with the
        first half of their channels. Without a gate it is the mean.
        """
        ...

    def rope_windows(self, compressor: Block, x: X, rope: Rope | None) -> X:
        """Rotate the vectors of windows by the positions of their first tokens."""
        ...

    def update_windows(self, compressor: Block, x: X) -> X:
        """Store the vectors of this pass's windows; return those of all windows, `(B, S / ratio,
        1, h)`.
        """
        ...

    def compressed_attention(
        self,
        mixer: Block,
        q: X,
        k: X,
        windows: X,
        head_dim: int,
        sinks: Weight | None = None,
        selected: X | None = None,
    ) -> X:
        """Attention with one head k `(B, S, 1, h)` of keys, which are the values, and to windows of
        tokens, all or the `selected` ones.

        A query sees a window after all of its tokens.
        """
        ...

    def reuse_selection(self, mixer: Block) -> X:
        """The keys that the nearest earlier layer with an indexer selected."""
        ...

    def attention(
        self,
        mixer: Block,
        q: X,
        k: X,
        v: X,
        head_dim: int,
        sinks: Weight | None = None,
        selected: X | None = None,
        bias: X | None = None,
    ) -> X:
        """softmax(q kᵀ · scale, masked) v: q `(B, T, H, n)`, k `(B, S, K, n)`, v `(B, S, K, m)` →
        `(B, T, H, m)`.

        The mixer's `window` and `score_transform` apply; without a scale of its own, scale = 1 /
        √head_dim. A query attends to the `selected` keys only, if there are any. `bias` `(B, T, H,
        D)` is added to the score of the key at each distance below D.
        """
        ...

    def hash_ngrams(self, mixer: Block, multipliers: Weight, sizes: Weight, offsets: Weight) -> X:
        """Rows of a table for the n-grams that end at each token: `mixer.heads_per_ngram` for each
        length from 2 to `mixer.ngram_size`.

        The hash of (…, t₁, t₀) is t₀ m₀ xor t₁ m₁ xor …, in integers of 64 bits; a row is the rest
        of its division by a size, plus an offset. Tokens before the last earlier `mixer.end_token`,
        and before the first, count as that token.
        """
        ...

    def causal_conv(
        self, mixer: Block, x: X, weight: Weight, bias: Weight | None, dilation: int = 1
    ) -> X:
        """Causal depthwise convolution over the last inputs of each channel, every
        `dilation`-th, those of earlier passes included.
        """
        ...

    def gated_delta_rule(self, mixer: Block, q: X, k: X, v: X, g: X, beta: X) -> X:
        """In each head S ← eᵍ S; S ← S + k ⊗ beta (v − Sᵀ k); y = Sᵀ q: g `(B, T, H)`, or `(B,
        T, H, n)` for each row of S by itself.
        """
        ...

    def linear_attention(self, mixer: Block, q: X, k: X, v: X, layers: int) -> X:
        """In each head S ← e⁻ˢ S + k ⊗ v; y = Sᵀ q: `(B, T, H, h)` each.

        In head i = 1 … H of layer l, s = 2^(−8 i / H) · (1 − l / (layers − 1 + 1e-5) + 1e-5).
        """
        ...

    def ssm_scan(self, mixer: Block, x: X, b: X, c: X, dt: X, a_log: Weight) -> X:
        """In each head S ← exp(−exp(a_log) dt) S + dt x ⊗ b; y = S c."""
        ...

    def selective_scan(
        self, mixer: Block, x: X, b: X, c: X, dt: X, a_log: Weight, skip: Weight
    ) -> X:
        """In each channel s ← exp(−exp(a_log) dt) s + dt x b; y = s · c + skip x: x and dt `(B,
        T, i)`, b and c `(B, T, N)`.
        """
        ...

    # One of many

    def route(self, logits: X, correction: Weight | None, moe: Block) -> tuple[X, X]:
        """The chosen experts of each token and their weights, `(B, T, k)` each."""
        ...

    def route_by_token(self, logits: X, table: Weight, moe: Block) -> tuple[X, X]:
        """The experts that a table gives for each token, and their weights, `(B, T, k)` each."""
        ...

    def scale_by_expert(self, weights: X, chosen: X, scale: Weight) -> X:
        """The experts' weights times a learned factor for each expert."""
        ...

    def experts(self, moe: Block, experts: Stack, x: X, chosen: X, weights: X) -> X:
        """The weighted sum of the chosen experts' outputs for each token."""
        ...

    def layers(self, layers: Stack, x: X, *extra: X) -> X:
        """All layers, one after the other; layer i also gets slice i of each extra `(B, T, L,
        p)`, and each extra `(B, T, d)` as it is.
        """
        ...
