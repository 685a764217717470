// Programs as `engine.py` passes them: what an operation reads, what it writes, and the sizes of
// buffers, weights, caches and states.

#ifndef LLAMATH_PROGRAM_H
#define LLAMATH_PROGRAM_H

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"

// The operations. Their numbers and names are known here only: Python asks for them by name
// (llamath_operation_code).
// clang-format off: one operation per line
#define LLAMATH_OPERATIONS(EACH) \
    EACH(LOOKUP, lookup) \
    EACH(LINEAR, linear) \
    EACH(EXPERT_LINEAR, expert_linear) \
    EACH(PER_HEAD, per_head) \
    EACH(RMS_NORM, rms_norm) \
    EACH(LAYER_NORM, layer_norm) \
    EACH(L2_NORM, l2_norm) \
    EACH(ACT, act) \
    EACH(GATED, gated) \
    EACH(CLAMPED_GATED, clamped_gated) \
    EACH(ADD, add) \
    EACH(MULTIPLY, multiply) \
    EACH(SCALE, scale) \
    EACH(SCALE_BY_WEIGHT, scale_by_weight) \
    EACH(SCALE_BY_POSITION, scale_by_position) \
    EACH(SOFTCAP, softcap) \
    EACH(CLAMP, clamp) \
    EACH(SOFTPLUS, softplus) \
    EACH(DECAY, decay) \
    EACH(BOUNDED_DECAY, bounded_decay) \
    EACH(COPY, copy) \
    EACH(LAST_TOKEN, last_token) \
    EACH(ROPE, rope) \
    EACH(STORE, store) \
    EACH(ATTENTION, attention) \
    EACH(CAUSAL_CONV, causal_conv) \
    EACH(DELTA_RULE, delta_rule) \
    EACH(SSM_SCAN, ssm_scan) \
    EACH(SELECTIVE_SCAN, selective_scan) \
    EACH(ROUTE, route) \
    EACH(ROUTE_BY_TOKEN, route_by_token) \
    EACH(DISPATCH, dispatch) \
    EACH(COMBINE, combine) \
    EACH(SCALE_BY_EXPERT, scale_by_expert) \
    EACH(ADD_SINUSOIDS, add_sinusoids) \
    EACH(MIX_STREAMS, mix_streams) \
    EACH(SINKHORN, sinkhorn) \
    EACH(NORMALIZE_SUM, normalize_sum) \
    EACH(LAYER_END, layer_end)
// clang-format on

enum Code : int64_t {
#define LLAMATH_CODE(CODE, NAME) CODE,
    LLAMATH_OPERATIONS(LLAMATH_CODE) NUM_CODES
#undef LLAMATH_CODE
};

constexpr int64_t MAX_OUTPUTS = 2, MAX_INPUTS = 5, MAX_WEIGHTS = 5, MAX_INTS = 10, MAX_FLOATS = 6,
                  MAX_PRODUCTS = 8;

struct View {
    int64_t buffer, offset, stride, heads, head_stride, dim;
    int64_t size() const { return heads * dim; }
    bool joined() const { return heads == 1 || head_stride == dim; }
};

struct OpSpec {
    int64_t code, num_inputs, first_product, num_products;
    View out[MAX_OUTPUTS];
    View in[MAX_INPUTS];
    int64_t w[MAX_WEIGHTS];
    int64_t i[MAX_INTS];
    double f[MAX_FLOATS];
};

struct ProductSpec {
    int64_t weight, bias;
    View out;
};

struct BufferSpec {
    int64_t width, rows_per_token;  // rows_per_token 0: one row for each sequence
};

struct CacheSpec {
    int64_t heads, dim, lookback;  // lookback 0: all tokens
};

struct ProgramSpec {
    const OpSpec* ops;
    const ProductSpec* products;
    const BufferSpec* buffers;
    const Matrix* weights;
    const CacheSpec* caches;
    const int64_t* state_sizes;
    const int64_t* rope_pairs;  // of each rotary embedding
    int64_t num_ops, num_products, num_buffers, num_weights, num_caches, num_states, num_ropes;
    View logits;
};

// What is wrong with a program, or empty: after this no pass reads or writes outside of the
// buffers, weights, caches and states that the program declares. `where` is the number of the
// operation, or -1.
std::string find_mistake(const ProgramSpec& program, int64_t* where);

// The ids and the positions that all lookups of a program have rows for: 0 ... the number of them
// - 1.
struct LookupLimits {
    int64_t ids, positions;
};
LookupLimits lookup_limits(const ProgramSpec& program);

#endif
