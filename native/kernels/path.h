// Path: the kernels that are compiled once for each instruction set. They compute whole pieces on
// one thread; `api.cpp` cuts the pieces.

#ifndef LLAMATH_PATH_H
#define LLAMATH_PATH_H

#include <stdint.h>

#include "kernels.h"

// How a product meets its activations
enum ProductMode {
    FLOAT_PRODUCT,  // x in float32, weights converted in registers or, for blocks, row by row
    BF16_PRODUCT,   // x rounded to bfloat16
    INT8_PRODUCT,   // x quantized to int8 in groups of 32
};

constexpr int64_t GROUP = 32;  // activations with one scale
constexpr int64_t GROUP_LANES =
    8;                            // copies of a group's scale, so that a vector of them is one load
constexpr int64_t PADDING = 256;  // prepared rows are zero-padded to a multiple of this
constexpr int64_t ORDERS = 3;     // in which a path may hold quantized rows

constexpr int PACKED_ROWS = 4;  // rows of inputs that are packed side by side
// products of up to this many rows read their inputs as they are, those of more rows read them
// packed; it depends on the type
constexpr int64_t FEW_ROWS = 6, MOST_FEW_ROWS = 8;

// n rows of inputs, and what was prepared from them; what a product does not need is NULL
struct Activations {
    const float* x;
    int64_t stride, n, cols;
    int64_t padded;     // cols rounded up to PADDING
    uint16_t* rounded;  // BF16_PRODUCT of few rows: [n, padded]
    int8_t* quantized;  // INT8_PRODUCT of few rows: [n, ORDERS, padded]
    float* scales;      // [n, padded / GROUP, GROUP_LANES], as the path arranges them
    float* sums;  // [n, padded / GROUP, ORDERS]: of the quantized values, times their scale, alike
    float* packed_floats;   // [n / PACKED_ROWS, cols, PACKED_ROWS]
    uint32_t* packed_bf16;  // [n / PACKED_ROWS, padded / 2, PACKED_ROWS], pairs of columns
    uint32_t* packed_int8;  // [n / PACKED_ROWS, padded / 4, PACKED_ROWS], four columns each
    float *packed_scales, *packed_sums;  // [n / PACKED_ROWS, padded / GROUP, PACKED_ROWS]
    int32_t* packed_half_sums;  // [n / PACKED_ROWS, padded / 16, PACKED_ROWS]: minus the sums of 16
                                // quantized values
};

// y[i, r] = the product of row `first + r` of w with row `x_first + i` of the inputs. With packed
// inputs, x_first is a multiple of PACKED_ROWS, and y has room for a multiple of PACKED_ROWS rows.
struct ProductPiece {
    const Matrix* w;
    const Activations* x;
    int64_t first, last, x_first, x_last;
    float* y;
    int64_t y_stride;  // at least last - first, rounded up to ROW_GROUP
    char* memory;      // of product_memory bytes
};
constexpr int64_t ROW_GROUP = 16;

struct AttentionPiece {
    const Attention* a;
    int32_t sequence, kv_head, first_query,
        last_query;  // all heads of the group, queries of this pass
    int64_t first_key, last_key;
    float* out;      // [queries * group, v_dim], weighted sums of values, not divided
    float* largest;  // [queries * group] largest score, and the sum of e^(score - largest)
    float* total;
    char* memory;
};

// The kernels: result, name and parameters. pack_rows packs tiles of PACKED_ROWS rows; a path that
// packs none has NULL. transposed_product: y[i, c] = sum over rows of W[r, c] x[i, r], where rows
// first ... last are all, and y is [n, cols]. multiply_add: x + y * factor. sum_exp: the sum of
// e^((x - largest) * factor).
#define LLAMATH_KERNELS(EACH)                                                                      \
    EACH(int32_t, multiplies_int8, (int32_t type))                                                 \
    EACH(void, quantize_rows, (const Activations*, int64_t first, int64_t last))                   \
    EACH(void, round_rows, (const Activations*, int64_t first, int64_t last))                      \
    EACH(void, pack_rows, (const Activations*, int64_t first, int64_t last, char* memory))         \
    EACH(int64_t, product_memory, (const Matrix*))                                                 \
    EACH(void, product, (const ProductPiece*, int32_t mode, int32_t packed))                       \
    EACH(void, transposed_product, (const ProductPiece*))                                          \
    EACH(void, dequantize_row, (float* out, const Matrix*, int64_t r))                             \
    EACH(void, compare_groups, (GroupComparison*))                                                 \
    EACH(void, rms_norm,                                                                           \
         (float* out, const float* x, int64_t cols, const float* weight, float eps, float offset)) \
    EACH(void, layer_norm,                                                                         \
         (float* out, const float* x, int64_t cols, const float* weight, const float* bias,        \
          float eps, float offset))                                                                \
    EACH(void, l2_norm, (float* out, const float* x, int64_t cols, float eps))                     \
    EACH(void, act, (float* out, const float* x, int64_t count, int32_t act))                      \
    EACH(void, gated,                                                                              \
         (float* out, const float* gate, const float* up, int64_t count, int32_t act))             \
    EACH(void, clamped_gated,                                                                      \
         (float* out, const float* gate, const float* up, int64_t count, int64_t step,             \
          float limit, float alpha))                                                               \
    EACH(void, multiply_add,                                                                       \
         (float* out, const float* x, const float* y, int64_t count, float factor))                \
    EACH(void, multiply, (float* out, const float* x, const float* y, int64_t count))              \
    EACH(void, scale, (float* out, const float* x, int64_t count, float factor, float amount))     \
    EACH(void, softcap, (float* out, const float* x, int64_t count, float cap))                    \
    EACH(void, clamp, (float* out, const float* x, int64_t count, float low, float high))          \
    EACH(void, softplus_bias,                                                                      \
         (float* out, const float* x, const float* bias, int64_t cols, float low, float high))     \
    EACH(void, softmax, (float* out, const float* x, int64_t cols))                                \
    EACH(int64_t, first_nonfinite, (const float* x, int64_t count))                                \
    EACH(int64_t, argmax, (const float* x, int64_t count))                                         \
    EACH(double, sum_exp, (const float* x, int64_t count, float largest, float factor))            \
    EACH(void, rope,                                                                               \
         (float* out, const float* x, int64_t heads, int64_t head_dim, int64_t half,               \
          int32_t interleaved, const float* cos, const float* sin))                                \
    EACH(void, store_row, (void* cache, int32_t type, const float* x, int64_t cols))               \
    EACH(int64_t, attention_memory, (const Attention*, int64_t queries))                           \
    EACH(void, attention, (const AttentionPiece*))                                                 \
    EACH(void, causal_conv,                                                                        \
         (float* out, int64_t out_stride, const float* x, int64_t x_stride, float* state,          \
          const float* weight, const float* bias, int64_t tokens, int64_t channels, int64_t first, \
          int64_t last, int64_t taps, int32_t act, int64_t pad))                                   \
    EACH(void, delta_rule, (const DeltaRule*, int32_t sequence, int32_t head))                     \
    EACH(void, ssm_scan, (const StateScan*, int32_t sequence, int32_t head))                       \
    EACH(void, selective_scan, (const StateScan*, int32_t sequence, int32_t first, int32_t last))

struct Path {
    const char* name;
    int32_t (*supported)();
    int32_t multiplies_bf16;
#define LLAMATH_MEMBER(RESULT, NAME, PARAMETERS) RESULT(*NAME) PARAMETERS;
    LLAMATH_KERNELS(LLAMATH_MEMBER)
#undef LLAMATH_MEMBER
};
// In the definition of a path: the function with the name of a kernel
#define LLAMATH_OWN_KERNEL(RESULT, NAME, PARAMETERS) NAME,

// From the slowest to the fastest; build.py has the compiler's flags for each, and may name fewer
#if defined(LLAMATH_PATHS)
#elif defined(__x86_64__)
#define LLAMATH_PATHS(EACH) EACH(reference) EACH(generic) EACH(avx2) EACH(avx512) EACH(avx512_bf16)
#elif defined(__aarch64__)
#define LLAMATH_PATHS(EACH) EACH(reference) EACH(neon) EACH(neon_dot) EACH(neon_bf16)
#else
#define LLAMATH_PATHS(EACH) EACH(reference) EACH(generic)
#endif

#define LLAMATH_DECLARE_PATH(NAME) extern "C" const Path llamath_path_##NAME;
LLAMATH_PATHS(LLAMATH_DECLARE_PATH)

#ifdef LLAMATH_PATH  // the name of the path that a file is compiled for
#define LLAMATH_JOINED_AS(A, B, C) A##B##_##C
#define LLAMATH_JOINED(A, B, C) LLAMATH_JOINED_AS(A, B, C)
#define LLAMATH_IN_PATH(NAME) LLAMATH_JOINED(llamath_, NAME, LLAMATH_PATH)

extern "C" void LLAMATH_IN_PATH(packed_product)(const ProductPiece*, int32_t mode,
                                                int64_t row_bytes);
#endif

#endif
