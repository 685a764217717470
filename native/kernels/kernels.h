// The compute kernels of the native engine: plain C functions on plain pointers, computed by the
// threads of a pool.
//
// Activations are float32 everywhere; weights stay in the type in which they are stored, and KV
// caches are float32, bfloat16 or float16. Vectors of weights (norms, biases, scales, sinks, a_log
// ...) are float32: the caller converts them once when it loads them. All sums are float32. "Row"
// is one token of one sequence: x of n rows and `cols` channels is row-major, and consecutive rows
// are `stride` floats apart. A stride of 0 means contiguous. An output may be its own input only
// where "in place" is written. Nothing here allocates per call: scratch memory belongs to the pool
// and grows to the largest request. Structs must be zero-initialised (`Attention a = {};`): new
// fields default to 0.
//
// Every function is computed by one of several paths: `reference` (plain loops), `generic` (the
// compiler's baseline), `avx2`, `avx512`, `avx512_bf16`, `neon`, `neon_dot`, `neon_bf16`. The best
// path that the processor has is taken unless llamath_set_path or the environment variable
// LLAMATH_NATIVE_PATH names another. NaN and Inf propagate as IEEE arithmetic has them.

#ifndef LLAMATH_KERNELS_H
#define LLAMATH_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// ---- Paths

// Name of the path in use, for example "avx512_bf16".
const char* llamath_path(void);
// Number of compiled paths, their names, and whether this processor can run them.
int32_t llamath_num_paths(void);
const char* llamath_path_name(int32_t i);
int32_t llamath_path_supported(int32_t i);
// Take this path; returns 0, or -1 if it is not compiled or not supported, and nothing changes.
int32_t llamath_set_path(const char* name);

// ---- Thread pool

typedef struct Pool Pool;

// `threads` in all, the calling thread included; at least 1. Helpers start at the first parallel
// call. One thread at a time may call kernels with a pool. Helpers spin for some microseconds for
// the next call and then sleep. After fork() the child starts helpers of its own.
Pool* llamath_pool_create(int32_t threads);
// Ends the helpers and frees all scratch memory.
void llamath_pool_destroy(Pool*);
int32_t llamath_pool_threads(const Pool*);
// Helpers that another process delays may still *read* the inputs of an earlier call, whose results
// are complete; they never write late. Call this before freeing or unmapping anything that kernels
// read. It returns when no helper is inside a call.
void llamath_pool_wait(Pool*);
// Ask running and later calls to stop early; their outputs are then undefined. Async-signal-safe: a
// signal handler may call it. Pieces of work take less than about 2 ms each. Check
// llamath_pool_cancelled after a pass, and llamath_pool_resume before the next.
void llamath_pool_cancel(Pool*);
int32_t llamath_pool_cancelled(const Pool*);
void llamath_pool_resume(Pool*);
// Bytes of scratch memory that the pool holds.
int64_t llamath_pool_scratch(const Pool*);

// Read all bytes with all threads and return the sum of their 8-byte words: the memory bandwidth to
// compare kernels with.
uint64_t llamath_read(Pool*, const void* data, int64_t bytes);

// ---- Matrices

// Numbers are those of GGUF (ggml_type).
typedef enum LlamathType {
    LLAMATH_F32 = 0,
    LLAMATH_F16 = 1,
    LLAMATH_Q4_0 = 2,
    LLAMATH_Q8_0 = 8,
    LLAMATH_Q4_K = 12,
    LLAMATH_Q5_K = 13,
    LLAMATH_Q6_K = 14,
    LLAMATH_I8 = 24,  // one signed byte a weight, with one float32 scale for each row in `scales`
    LLAMATH_BF16 = 30,
    LLAMATH_MXFP4 = 39,  // GGUF's blocks: 17 bytes for 32 weights
} LlamathType;

// A stored matrix W [rows, cols]; row r begins at data + r * row_stride bytes (0: rows are
// contiguous). `data` need not be aligned beyond the element (2 bytes for F16, BF16 and the
// blocks). cols must be a multiple of llamath_block_size(type): 1, 32 or 256.
typedef struct Matrix {
    const void* data;
    const float* scales;  // I8 only
    int64_t rows, cols, row_stride;
    int32_t type;
    int32_t layout;  // 0: rows as in the file, the only layout
    int64_t bytes;   // of memory from `data` on, and numbers from `scales` on, as whoever allocated
                     // or mapped them knows
    int64_t num_scales;
} Matrix;

// Whether all rows of a matrix of a known type are in its memory. Functions that read a matrix
// return -1 for one that does not fit.
int32_t llamath_fits(const Matrix* w);

// Weights in a block, bytes of a block; 0 for an unknown type.
int64_t llamath_block_size(int32_t type);
int64_t llamath_block_bytes(int32_t type);
// Bytes of a contiguous row; -1 if cols does not fit the type.
int64_t llamath_row_bytes(int32_t type, int64_t cols);
// row r of w in float32. Returns 0, or -1 if there is no such row.
int32_t llamath_dequantize_row(float* out, const Matrix* w, int64_t r);

// out[i] = W[ids[i] + offset] * factor, n rows. An id outside of the table writes NaN to its row
// (never reads outside).
void llamath_lookup(Pool*, float* out, int64_t out_stride, const int32_t* ids, int64_t n,
                    const Matrix* w, int32_t offset, float factor);

// ---- Comparing stored weights

// Groups of quantized weights beside the numbers that they may be rounded from, and what was found.
// The value of a weight is scale * level - minimum.
typedef struct GroupComparison {
    const void* levels;        // signed or unsigned bytes; those of a group are contiguous
    int64_t level_stride;      // bytes from group to group
    const float* scales;       // [groups]
    const float* minimums;     // [groups] or NULL
    const float* reciprocals;  // [groups] 1 / the largest difference that counts as rounding
    const void* numbers;       // [groups, size] in LLAMATH_F32, LLAMATH_F16 or LLAMATH_BF16
    int64_t groups, size;      // size: weights of a group, a multiple of 16
    int32_t is_signed, type;
    int32_t* beyond;  // room for groups * size places: those whose difference is larger than it
                      // counts as rounding
    int64_t num_beyond, num_differing, first_differing;  // -1: none
    double square_difference, square_value,
        square_number;  // sums; NaN or Inf if something is not finite, and the rest is undefined
    float largest_difference, largest_share;  // of what counts as rounding
} GroupComparison;

// Computed by the calling thread alone; several threads may call it at once. Returns 0, or -1 if
// `size` is no multiple of 16, there are 2^31 weights or more, or the type of the numbers is
// another one.
int32_t llamath_compare_groups(GroupComparison*);

// How activations meet the weights of matrix products.
enum {
    // The default. F32, F16 and I8: float32. BF16: x is rounded to bfloat16 from LLAMATH_TILE_ROWS
    // rows on if the path multiplies bfloat16
    // (as torch does for every row), else float32. Blocks of GGUF: x is quantized to int8 in groups
    // of 32 with one float32 scale each
    // (llama.cpp rounds x to int8 in groups of 32 or 256), about 0.4 % of the largest |x| of a
    // group.
    LLAMATH_FAST = 0,
    // x is used in float32, weights are dequantized exactly. Slower for quantized weights and for
    // prompts in bfloat16.
    LLAMATH_EXACT = 1,
};
#define LLAMATH_TILE_ROWS 4

typedef struct Product {
    Matrix w;
    float* out;          // n rows of w.rows
    int64_t out_stride;  // 0: w.rows
    const float* bias;   // [w.rows] or NULL
    int32_t accumulate;  // 1: out += W x + bias, for residual streams
    int32_t reserved;
} Product;

// For each of `count` products: out = W x + bias for n rows of x. All have the same x and the same
// w.cols (fused q, k, v or gate, up); one call is faster than several. n may be any number; 1 to 8
// rows run at memory bandwidth. Outputs must not overlap x or each other. Returns 0, or -1 if a
// matrix does not fit its memory or the numbers of columns differ.
int32_t llamath_matmul(Pool*, const Product* products, int32_t count, const float* x,
                       int64_t x_stride, int64_t n, int32_t precision);

// One matrix for each head: out row i, head h = W_h x[i, h], or W_h^T x[i, h] if `transposed`, with
// W_h the `size` rows of w that begin at h * size: x `[n, H, cols]` -> `[n, H, size]`, or `[n, H,
// size]` -> `[n, H, cols]`. Contiguous. (Latent attention's absorbed products.)
int32_t llamath_per_head_matmul(Pool*, float* out, const float* x, int64_t n, const Matrix* w,
                                int64_t size, int32_t transposed, int32_t precision);

typedef struct ExpertProduct {
    const Matrix* experts;       // [num_experts] matrices of one shape
    float* out;                  // `pairs` rows of experts[0].rows, contiguous
    const float* const* biases;  // [num_experts] pointers (an entry may be NULL), or NULL
} ExpertProduct;

// Products by chosen experts, of which only the chosen are read, each once for all of its rows:
// pair p is row x[p / rows_per_x] and expert chosen[p]. For gate and up: rows_per_x = top_k, pairs
// = n * top_k; for down: rows_per_x = 1. A chosen number outside of 0 ... num_experts - 1 gives a
// row of zeros.
int32_t llamath_expert_matmul(Pool*, const ExpertProduct* products, int32_t count, const float* x,
                              int64_t x_stride, const int32_t* chosen, int64_t pairs,
                              int32_t rows_per_x, int32_t num_experts, int32_t precision);
// out[t] (+= if accumulate) the sum over j of weights[t, j] * y[t * top_k + j]; a chosen number
// outside of 0 ... num_experts - 1 stands for an expert without weights, which returns its input
// x[t] if x is given, and else for nothing.
void llamath_combine_experts(Pool*, float* out, const float* y, const float* weights,
                             const int32_t* chosen, const float* x, int64_t n, int32_t top_k,
                             int32_t num_experts, int64_t cols, int32_t accumulate);

// ---- Norms (in place allowed)

// x / sqrt(mean(x^2) + eps) * (offset + weight), for n rows; weight [weight_rows, cols] or NULL:
// row i takes weight row i % weight_rows (1 for an ordinary norm; H for one norm for each head of
// rows (n = tokens * H); G for grouped norms).
void llamath_rms_norm(Pool*, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                      int64_t n, int64_t cols, const float* weight, int64_t weight_rows, float eps,
                      float offset);
// (x - mean) / sqrt(var + eps) * (offset + weight) + bias; bias has as many rows as weight.
void llamath_layer_norm(Pool*, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                        int64_t n, int64_t cols, const float* weight, const float* bias,
                        int64_t weight_rows, float eps, float offset);
// x / sqrt(sum(x^2) + eps).
void llamath_l2_norm(Pool*, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                     int64_t n, int64_t cols, float eps);

// ---- Elementwise (in place allowed)

typedef enum LlamathAct {
    LLAMATH_IDENTITY = 0,
    LLAMATH_SILU,
    LLAMATH_GELU,       // with erf
    LLAMATH_GELU_TANH,  // gelu_new, gelu_fast, gelu_pytorch_tanh
    LLAMATH_QUICK_GELU,
    LLAMATH_RELU,
    LLAMATH_RELU2,
    LLAMATH_SIGMOID,
    LLAMATH_SOFTPLUS,
    LLAMATH_TANH,
} LlamathAct;

void llamath_act(Pool*, float* out, const float* x, int64_t count, int32_t act);
// act(gate) * up for n rows.
void llamath_gated(Pool*, float* out, int64_t out_stride, const float* gate, int64_t gate_stride,
                   const float* up, int64_t up_stride, int64_t n, int64_t cols, int32_t act);
// (clamp(up, -limit, limit) + 1) * g * sigmoid(alpha * g) with g = min(gate, limit). Elements of
// gate and up are `step` floats apart (2 for gpt-oss's interleaved gate and up, with up = gate + 1;
// else 1). Not in place if step is 2.
void llamath_clamped_gated(Pool*, float* out, int64_t out_stride, const float* gate,
                           int64_t gate_stride, const float* up, int64_t up_stride, int64_t n,
                           int64_t cols, int32_t step, float limit, float alpha);
void llamath_add(Pool*, float* out, const float* x, const float* y, int64_t count);
// out[i, j] = x[i, j] + y[j].
void llamath_add_row(Pool*, float* out, const float* x, const float* y, int64_t n, int64_t cols);
// out = x * y: y has the shape of x (y_cols = cols), or one number a row (y_cols = 1); y_rows is n,
// or fewer: row i takes row i % y_rows.
void llamath_multiply(Pool*, float* out, const float* x, const float* y, int64_t n, int64_t cols,
                      int64_t y_rows, int64_t y_cols);
// x * factor + amount.
void llamath_scale(Pool*, float* out, const float* x, int64_t count, float factor, float amount);
// cap * tanh(x / cap).
void llamath_softcap(Pool*, float* out, const float* x, int64_t count, float cap);
// x limited to low ... high; NaN stays.
void llamath_clamp(Pool*, float* out, const float* x, int64_t count, float low, float high);
// softplus(x + bias[j]) limited to low ... high: n rows of cols.
void llamath_softplus_bias(Pool*, float* out, const float* x, const float* bias, int64_t n,
                           int64_t cols, float low, float high);
// -exp(a_log[h]) * dt: dt [n, heads, cols] (cols = 1 for one decay a head).
void llamath_decay(Pool*, float* out, const float* dt, const float* a_log, int64_t n, int64_t heads,
                   int64_t cols);
// bound * sigmoid(exp(a_log[h]) * (x + bias[h, j])): x [n, heads, cols], bias [heads, cols].
void llamath_bounded_decay(Pool*, float* out, const float* x, const float* bias, const float* a_log,
                           int64_t n, int64_t heads, int64_t cols, float bound);
// Copy n rows of cols floats between strided places, for split, concat and reshapes.
void llamath_copy_rows(Pool*, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                       int64_t n, int64_t cols);
// softmax of n rows, in place allowed.
void llamath_softmax(Pool*, float* out, const float* x, int64_t n, int64_t cols);
// Index of the first NaN or Inf, or -1.
int64_t llamath_first_nonfinite(Pool*, const float* x, int64_t count);

// ---- Rotary positions (in place allowed)

// Tables for n tokens: cos and sin [n, half] of float(positions[i]) * frequencies[j], times factor
// (a negative sin_sign reverses).
void llamath_rope_tables(float* cos, float* sin, const int32_t* positions, int64_t n,
                         const float* frequencies, int64_t half, float factor, float sin_sign);
// Rotate the first 2 * half channels of every head: x [n, heads, head_dim], token i by row i of cos
// and sin; pairs (j, j + half), or (2j, 2j + 1) if interleaved; the other channels are copied.
// Strides are those of tokens (0: heads * head_dim); heads are contiguous. Returns 0, or -1 if a
// head has fewer than 2 * half channels.
int32_t llamath_rope(Pool*, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                     int64_t n, int64_t heads, int64_t head_dim, int64_t half, int32_t interleaved,
                     const float* cos, const float* sin);

// ---- KV cache and attention

// Write n rows of cols floats to a cache of type F32, BF16 or F16 (round to nearest even): row i to
// cache + i * cache_stride elements.
void llamath_store_rows(Pool*, void* cache, int32_t type, int64_t cache_stride, const float* x,
                        int64_t x_stride, int64_t n, int64_t cols);

// softmax(q k^T * scale, masked) v. Query t of sequence b has index past + t, key j has index j;
// the index of a token counts from the first slot of its (left-padded) row. A key j is visible if
// start[b] <= j <= past + t (any j < past + tokens if not causal), past + t - j < window if window
// > 0, and both positions (index - start[b]) are in the same chunk if chunk > 0. A query that sees
// no key (padding) gets zeros.
typedef struct Attention {
    float* out;      // [batch, tokens, heads, v_dim]
    const float* q;  // [batch, tokens, heads, k_dim]
    const void* k;  // key j of sequence b, head g: k + b * k_batch + slot(j) * k_token + g * k_head
                    // elements
    const void* v;  // likewise; may point into k (latent attention)
    int64_t out_batch, out_token, q_batch,
        q_token;  // strides in floats; heads are contiguous; 0: contiguous
    int64_t k_batch, k_token, k_head, v_batch, v_token,
        v_head;    // strides in elements; 0: the same for each
    int32_t type;  // of k and v: LLAMATH_F32, LLAMATH_BF16 or LLAMATH_F16
    int32_t batch, tokens, heads, kv_heads, k_dim, v_dim;
    int32_t past;  // tokens in the cache before this pass; keys 0 ... past + tokens - 1 are stored
    const int32_t* start;  // [batch] padding before each sequence, or NULL
    int32_t ring;  // 0: slot(j) = j - first_slot; else slot(j) = j % ring, with ring >= window +
                   // tokens - 1
    int32_t first_slot;
    int32_t causal;           // 1 for decoders
    int32_t window, chunk;    // 0: none
    float scale, softcap;     // softcap 0: none
    const float* sinks;       // [heads] or NULL: one more logit in each softmax, without a value
    const float* slopes;      // [heads] or NULL: ALiBi adds slopes[h] * (key's position - query's
                              // position) to the scaled scores
    const int32_t* selected;  // [batch, tokens, num_selected] indices of keys (-1: none) or NULL:
                              // only these, of those that are visible
    int32_t num_selected;
    const float* distance_bias;  // [batch, tokens, heads, num_distances] or NULL: added to the
                                 // score of the key at that distance, 0 beyond
    int32_t num_distances;
} Attention;

// Returns 0, or -1 if the heads do not share the kv_heads evenly.
int32_t llamath_attention(Pool*, const Attention*);

// ---- Recurrences. `pad[b]`: leading tokens of this pass that are padding in sequence b (they
// leave states as they are and give zeros), or NULL.

// Depthwise causal convolution: out[t, c] = act(bias[c] + sum over j of weight[c, j] * x[t - taps +
// 1 + j, c]); x, out [batch, tokens, channels] with token strides; weight [channels, taps]; state
// [batch, taps - 1, channels] holds the last inputs, zeros at the beginning, and is updated.
void llamath_causal_conv(Pool*, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                         float* state, const float* weight, const float* bias, int64_t batch,
                         int64_t tokens, int64_t channels, int64_t taps, int32_t act,
                         const int32_t* pad);

// S <- e^g S; S <- S + k (x) beta (v - S^T k); y = S^T q in each of `heads` heads; q and k [batch,
// tokens, groups, n] (head h reads group h / (heads / groups)), v and out [batch, tokens, heads,
// m], g [batch, tokens, heads] or, if decay_per_row, [batch, tokens, heads, n], beta [batch,
// tokens, heads]; state [batch, heads, n, m] is updated. All contiguous but for token strides (0:
// contiguous).
typedef struct DeltaRule {
    float* out;
    const float *q, *k, *v, *g, *beta;
    float* state;
    int64_t out_token, q_token, k_token, v_token, g_token, beta_token;
    int32_t batch, tokens, heads, groups, n, m, decay_per_row;
    const int32_t* pad;
} DeltaRule;
void llamath_gated_delta_rule(Pool*, const DeltaRule*);

// S <- exp(-exp(a_log[h]) dt) S + dt x (x) b; y = S c: x and out [batch, tokens, heads, m], b and c
// [batch, tokens, groups, n], dt [batch, tokens, heads]; state [batch, heads, m, n] is updated.
// `skip` [heads] or NULL adds skip[h] * x.
typedef struct StateScan {
    float* out;
    const float *x, *b, *c, *dt, *a_log, *skip;
    float* state;
    int64_t out_token, x_token, b_token, c_token, dt_token;
    int32_t batch, tokens, heads, groups, m, n;
    const int32_t* pad;
} StateScan;
void llamath_ssm_scan(Pool*, const StateScan*);
// Mamba: in each channel s <- exp(-exp(a_log) dt) s + dt x b; y = s . c + skip x. heads = channels,
// m = groups = 1: x, dt, out [batch, tokens, channels], b, c [batch, tokens, n], a_log [channels,
// n], skip [channels] or NULL, state [batch, channels, n].
void llamath_selective_scan(Pool*, const StateScan*);

// ---- Routing

typedef enum LlamathScoring {
    LLAMATH_SCORE_SOFTMAX = 0,
    LLAMATH_SCORE_SIGMOID,
    LLAMATH_SCORE_SQRTSOFTPLUS
} LlamathScoring;

typedef struct Route {
    int32_t num_experts, top_k, scoring;
    int32_t choice_by_logits;  // rank by logits instead of scores
    int32_t normalize;         // weights divided by (their sum + 1e-20)
    const float* correction;   // [num_experts] added for the ranking only, or NULL
    int32_t groups, kept_groups,
        best_of_group;  // 0: no groups; a group ranks by the sum of its best scores
    float other;        // rank of the experts of all other groups
    float scaling;      // factor on the weights
} Route;
// logits [n, num_experts] -> chosen [n, top_k] best first (ties: the lower number), weights [n,
// top_k].
void llamath_route(Pool*, int32_t* chosen, float* weights, const float* logits, int64_t n,
                   const Route*);

// ---- Sampling

// Philox4x32-10 (Salmon et al. 2011) with key = seed and counter = (step, row): 53 random bits as a
// number in [0, 1). Streams of different (seed, row) are unrelated.
double llamath_uniform(uint64_t seed, uint64_t row, uint64_t step);

// Parameters as in torch/sampling.py, filters in the order of transformers: penalty, temperature,
// top-k, top-p, min-p.
typedef struct Sampling {
    float temperature;         // below 1e-6: greedy
    int32_t top_k;             // 0: all
    float top_p;               // 1: all
    float min_p;               // 0: all
    float repetition_penalty;  // 1: none
} Sampling;
// The next token of one row of logits [vocab], with u in [0, 1): -1 if the largest logit or the sum
// of probabilities is not finite. `used` [vocab] bytes marks tokens for the penalty, or NULL.
// Logits are not changed. Greedy: the first of the largest.
int32_t llamath_sample(Pool*, const float* logits, int64_t vocab, const Sampling*,
                       const uint8_t* used, double u);
// Index of the first largest number; a NaN counts as the largest.
int64_t llamath_argmax(Pool*, const float* x, int64_t count);
// ids and log-probabilities of the `count` most likely tokens, best first; returns ln of the sum of
// e^logits.
double llamath_top_logprobs(Pool*, const float* logits, int64_t vocab, int32_t count, int32_t* ids,
                            float* logprobs);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
