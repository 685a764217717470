// Path: the kernels that are compiled once for each instruction set. They compute whole pieces on one thread; `api.cpp` cuts the pieces.

#ifndef LLAMATH_PATH_H
#define LLAMATH_PATH_H

#include <stdint.h>

#include "kernels.h"

// How a product meets its activations.
enum ProductMode {
    FLOAT_PRODUCT,  // x in float32, weights converted in registers or, for blocks, row by row
    BF16_PRODUCT,   // x rounded to bfloat16
    INT8_PRODUCT,   // x quantized to int8 in groups of 32
};

constexpr int64_t GROUP = 32;        // activations with one scale
constexpr int64_t GROUP_LANES = 8;   // copies of a group's scale, so that a vector of them is one load
constexpr int64_t PADDING = 64;      // prepared rows are zero-padded to a multiple of this

// n rows of inputs, and what was prepared from them
struct Activations {
    const float* x;
    int64_t stride, n, cols;
    int64_t padded;           // cols rounded up to PADDING
    uint16_t* rounded;        // BF16_PRODUCT: [n, padded]
    int8_t* quantized;        // INT8_PRODUCT: [n, padded]
    float* scales;            // [n, padded / GROUP, GROUP_LANES]
    float* sums;              // [n, padded / GROUP]: of the quantized values, times their scale
    int32_t* integer_sums;    // [n, padded / GROUP]
};

// y[i, r] = the product of row `first + r` of w with row `x_first + i` of the inputs
struct ProductPiece {
    const Matrix* w;
    const Activations* x;
    int64_t first, last, x_first, x_last;
    float* y;
    char* memory;  // of product_memory bytes
};

struct AttentionPiece {
    const Attention* a;
    int32_t sequence, kv_head, first_query, last_query;  // all heads of the group, queries of this pass
    int64_t first_key, last_key;
    float* out;      // [queries * group, v_dim], weighted sums of values, not divided
    float* largest;  // [queries * group] largest score, and the sum of e^(score - largest)
    float* total;
    char* memory;
};

struct Path {
    const char* name;
    int32_t (*supported)();

    int32_t multiplies_bf16;
    int32_t (*multiplies_int8)(int32_t type);
    void (*round_rows)(const Activations*, int64_t first, int64_t last);
    void (*quantize_rows)(const Activations*, int64_t first, int64_t last);
    int64_t (*product_memory)(const Matrix*, int32_t mode, int64_t n);
    void (*product)(const ProductPiece*, int32_t mode);
    void (*transposed_product)(const ProductPiece*);  // y[i, c] = sum over rows of W[r, c] x[i, r]: rows first ... last are all, y [n, cols]
    void (*dequantize_row)(float* out, const Matrix*, int64_t r);

    void (*rms_norm)(float* out, const float* x, int64_t cols, const float* weight, float eps, float offset);
    void (*layer_norm)(float* out, const float* x, int64_t cols, const float* weight, const float* bias, float eps, float offset);
    void (*l2_norm)(float* out, const float* x, int64_t cols, float eps);
    void (*act)(float* out, const float* x, int64_t count, int32_t act);
    void (*gated)(float* out, const float* gate, const float* up, int64_t count, int32_t act);
    void (*clamped_gated)(float* out, const float* gate, const float* up, int64_t count, int64_t step, float limit, float alpha);
    void (*multiply_add)(float* out, const float* x, const float* y, int64_t count, float factor);  // x + y * factor
    void (*multiply)(float* out, const float* x, const float* y, int64_t count);
    void (*scale)(float* out, const float* x, int64_t count, float factor, float amount);
    void (*softcap)(float* out, const float* x, int64_t count, float cap);
    void (*clamp)(float* out, const float* x, int64_t count, float low, float high);
    void (*softplus_bias)(float* out, const float* x, const float* bias, int64_t cols, float low, float high);
    void (*softmax)(float* out, const float* x, int64_t cols);
    int64_t (*first_nonfinite)(const float* x, int64_t count);
    int64_t (*argmax)(const float* x, int64_t count);
    double (*sum_exp)(const float* x, int64_t count, float largest, float factor);  // sum of e^((x - largest) * factor)
    void (*rope)(float* out, const float* x, int64_t heads, int64_t head_dim, int64_t half, int32_t interleaved, const float* cos, const float* sin);
    void (*store_row)(void* cache, int32_t type, const float* x, int64_t cols);

    int64_t (*attention_memory)(const Attention*, int64_t queries);
    void (*attention)(const AttentionPiece*);

    void (*causal_conv)(float* out, int64_t out_stride, const float* x, int64_t x_stride, float* state, const float* weight, const float* bias,
                        int64_t tokens, int64_t channels, int64_t first, int64_t last, int64_t taps, int32_t act, int64_t pad);
    void (*delta_rule)(const DeltaRule*, int32_t sequence, int32_t head);
    void (*ssm_scan)(const StateScan*, int32_t sequence, int32_t head);
    void (*selective_scan)(const StateScan*, int32_t sequence, int32_t first, int32_t last);
};

// From the slowest to the fastest; build.py has the compiler's flags for each
#if defined(__x86_64__)
#define LLAMATH_PATHS(EACH) EACH(reference) EACH(generic) EACH(avx2) EACH(avx512) EACH(avx512_bf16)
#elif defined(__aarch64__)
#define LLAMATH_PATHS(EACH) EACH(reference) EACH(neon) EACH(neon_dot) EACH(neon_bf16)
#else
#define LLAMATH_PATHS(EACH) EACH(reference) EACH(generic)
#endif

#define LLAMATH_DECLARE_PATH(NAME) extern "C" const Path llamath_path_##NAME;
LLAMATH_PATHS(LLAMATH_DECLARE_PATH)

#endif
