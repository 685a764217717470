// Matrix products: tiles of R rows of weights and N rows of inputs, summed along the columns in
// vectors.

#ifndef LLAMATH_PRODUCT_H
#define LLAMATH_PRODUCT_H

#include "blocks512.h"
#include "panel.h"
#include "stored_rows.h"

namespace {

constexpr int64_t AHEAD = 1024;  // bytes that weights are prefetched ahead; rows follow each other,
                                 // so this helps at the end of a row as well

INLINE void prefetch(const void* p, int64_t ahead = AHEAD) {
    __builtin_prefetch(static_cast<const char*>(p) + ahead, 0, 3);
}

// R rows of weights with N rows of inputs in float32, columns first ... last, added to y unless the
// first is 0
template <class T, int R, int N>
INLINE void float_tile(const char* w, int64_t w_stride, const float* x, int64_t x_stride,
                       int64_t first, int64_t last, float* y, int64_t y_stride, const float* scales,
                       int64_t ahead) {
    constexpr int STEPS = R * N <= 2   ? 4
                          : R * N <= 4 ? 2
                                       : 1;  // enough sums to hide the latency of a multiply-add
    F sums[STEPS][R][N] = {};
    const T* row[R];
    UNROLL for (int r = 0; r < R; r++) row[r] = reinterpret_cast<const T*>(w + r * w_stride);
    int64_t k = first;
    for (; k + STEPS * W <= last; k += STEPS * W) {
        UNROLL for (int u = 0; u < STEPS; u++) {
            F wv[R];
            UNROLL for (int r = 0; r < R; r++) {
                wv[r] = load(row[r] + k + u * W);
                if ((u * W * sizeof(T)) % 64 == 0) prefetch(row[r] + k + u * W, ahead);
            }
            UNROLL for (int n = 0; n < N; n++) {
                const F xv = load(x + n * x_stride + k + u * W);
                UNROLL for (int r = 0; r < R; r++) sums[u][r][n] += wv[r] * xv;
            }
        }
    }
    for (; k < last; k += W) {
        const int64_t left = min_of(W, last - k);
        UNROLL for (int n = 0; n < N; n++) {
            const F xv =
                left == W ? load(x + n * x_stride + k) : load_part(x + n * x_stride + k, left);
            UNROLL for (int r = 0; r < R; r++) sums[0][r][n] +=
                (left == W ? load(row[r] + k) : load_part(row[r] + k, left)) * xv;
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) {
        F total = sums[0][r][n];
        for (int u = 1; u < STEPS; u++) total += sums[u][r][n];
        const float value = sum(total) * (scales ? scales[r] : 1.0f);
        y[n * y_stride + r] = first ? y[n * y_stride + r] + value : value;
    }
}

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
// The same with both in bfloat16; rows of inputs are padded with zeros
template <int R, int N>
INLINE void bf16_tile(const char* w, int64_t w_stride, const uint16_t* x, int64_t x_stride,
                      int64_t first, int64_t last, float* y, int64_t y_stride, int64_t ahead) {
    F sums[R][N] = {};
    for (int64_t k = first; k < last; k += 2 * W) {
        U wv[R];
        UNROLL for (int r = 0; r < R; r++) {
            if (last - k >= 2 * W)
                wv[r] = load_as<U>(w + r * w_stride + k * 2);
            else
                memcpy(&(wv[r] = U{}), w + r * w_stride + k * 2, static_cast<size_t>(last - k) * 2);
            prefetch(w + r * w_stride + k * 2, ahead);
        }
        UNROLL for (int n = 0; n < N; n++) {
            const U xv = load_as<U>(x + n * x_stride + k);
            UNROLL for (int r = 0; r < R; r++) sums[r][n] = dot_bf16(sums[r][n], wv[r], xv);
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) y[n * y_stride + r] =
        (first ? y[n * y_stride + r] : 0.0f) + sum(sums[r][n]);
}
#endif

constexpr int64_t CACHED_INPUTS =
    24576;  // bytes of inputs that stay in the first cache while all rows of a piece pass

// `tile(r, first, last, ahead)` for pairs of rows of weights, or one if R is 1, and blocks of
// columns of N rows of inputs
template <int R, class Tile, class Single>
INLINE void for_tiles(const ProductPiece& p, int64_t block, int64_t row_bytes, Tile tile,
                      Single single) {
    const int64_t rows = p.last - p.first, cols = p.x->cols;
    for (int64_t first = 0; first < cols; first += block) {
        const int64_t last = min_of(first + block, cols),
                      ahead = block >= cols && R == 1 ? AHEAD : R * row_bytes;
        int64_t r = 0;
        for (; r + R <= rows; r += R) tile(r, first, last, ahead);
        for (; r < rows; r++) single(r, first, last, ahead);
    }
}

template <class T, int N>
void float_rows(const ProductPiece& p, int64_t row_bytes, int64_t i) {
    constexpr int R = N <= 3 || !MANY_REGISTERS ? 1 : 2;
    const Activations& a = *p.x;
    const float* x = a.x + (p.x_first + i) * a.stride;
    const char* w = static_cast<const char*>(p.w->data) + p.first * row_bytes;
    const float* scales = p.w->scales ? p.w->scales + p.first : nullptr;
    float* y = p.y + i * p.y_stride;
    const auto tile = [&](auto height, int64_t r, int64_t first, int64_t last, int64_t ahead)
                          INLINE_LAMBDA {
                              float_tile<T, decltype(height)::value, N>(
                                  w + r * row_bytes, row_bytes, x, a.stride, first, last, y + r,
                                  p.y_stride, scales ? scales + r : nullptr, ahead);
                          };
    for_tiles<R>(
        p, N <= 3 ? a.cols : CACHED_INPUTS / 4 / N / 64 * 64, row_bytes,
        [&](int64_t r, int64_t first, int64_t last, int64_t ahead)
            INLINE_LAMBDA { tile(Constant<R>(), r, first, last, ahead); },
        [&](int64_t r, int64_t first, int64_t last, int64_t ahead)
            INLINE_LAMBDA { tile(Constant<1>(), r, first, last, ahead); });
}

// Calls f(Constant<N>(), i) for tiles of at most 8 rows of inputs from i on
template <class Function>
INLINE void for_inputs(int64_t n, Function f) {
    int64_t i = 0;
    for (; n - i >= 8; i += 8) f(Constant<8>(), i);
    switch (n - i) {
        case 1:
            return f(Constant<1>(), i);
        case 2:
            return f(Constant<2>(), i);
        case 3:
            return f(Constant<3>(), i);
        case 4:
            return f(Constant<4>(), i);
        case 5:
            return f(Constant<5>(), i);
        case 6:
            return f(Constant<6>(), i);
        case 7:
            return f(Constant<7>(), i);
        default:
            return;
    }
}

#ifdef LLAMATH_SMALL  // a browser compiles a function when it is first called
#define LLAMATH_APART __attribute__((noinline))
#else
#define LLAMATH_APART
#endif

template <class T>
LLAMATH_APART void float_product(const ProductPiece& p, int64_t row_bytes) {
    for_inputs(p.x_last - p.x_first, [&](auto rows, int64_t i) INLINE_LAMBDA {
        float_rows<T, decltype(rows)::value>(p, row_bytes, i);
    });
}

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
template <int N>
void bf16_rows(const ProductPiece& p, int64_t row_bytes, int64_t i) {
    const Activations& a = *p.x;
    const uint16_t* x = a.rounded + (p.x_first + i) * a.padded;
    const char* w = static_cast<const char*>(p.w->data) + p.first * row_bytes;
    float* y = p.y + i * p.y_stride;
    for_tiles<2>(
        p, CACHED_INPUTS / 2 / N / 64 * 64, row_bytes,
        [&](int64_t r, int64_t first, int64_t last, int64_t ahead) INLINE_LAMBDA {
            bf16_tile<2, N>(w + r * row_bytes, row_bytes, x, a.padded, first, last, y + r,
                            p.y_stride, ahead);
        },
        [&](int64_t r, int64_t first, int64_t last, int64_t ahead) INLINE_LAMBDA {
            bf16_tile<1, N>(w + r * row_bytes, row_bytes, x, a.padded, first, last, y + r,
                            p.y_stride, ahead);
        });
}
#endif

void round_rows(const Activations* a, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++)
        round_row(a->x + i * a->stride, a->cols, a->padded, a->rounded + i * a->padded);
}

// Blocks of weights and inputs in int8

#if defined(__AVX512VNNI__)
// The bytes of a row in the orders of Q8_0, Q4_0 and Q4_K; scales and sums [padded / 32] of 32 and
// then [padded / 16] of 16
void quantize_rows(const Activations* a, int64_t first, int64_t last) {
    const int64_t groups = a->padded / GROUP;
    for (int64_t i = first; i < last; i++) {
        int8_t* q = a->quantized + i * ORDERS * a->padded;
        float *scales = a->scales + i * groups * ORDERS, *sums = a->sums + i * groups * ORDERS;
        for (int64_t g = 0; g < groups; g++) {
            int32_t negative_sums[2];
            quantize_group(a->x + i * a->stride + g * GROUP, a->cols - g * GROUP, q + g * GROUP,
                           scales + g, negative_sums);
            sums[g] = scales[g] * -static_cast<float>(negative_sums[0] + negative_sums[1]);
            for (int half = 0; half < 2; half++) {
                scales[groups + 2 * g + half] = scales[g];
                sums[groups + 2 * g + half] = scales[g] * -static_cast<float>(negative_sums[half]);
            }
        }
        for (int64_t k = 0; k < a->padded; k += 256) UNROLL for (int part = 0; part < 16; part++) {
                memcpy(q + a->padded + k + 16 * part, q + k + 16 * Wide<Q4_0>::ORDER[part], 16);
                memcpy(q + 2 * a->padded + k + 16 * part, q + k + 16 * Wide<Q4_K>::ORDER[part], 16);
            }
    }
}

template <class B, int N>
INLINE void int8_row(const uint8_t* w, const Activations& a, int64_t i, float* y,
                     int64_t y_stride) {
    constexpr int ORDER = Wide<B>::ORDER[1] == 1 ? Wide<B>::ORDER[2] == 2 ? 0 : 2 : 1;
    const int64_t groups = a.padded / GROUP, at = i * groups * ORDERS + (B::PER == 16 ? groups : 0);
    wide_row<B, N>(w, a.cols, a.quantized + (i * ORDERS + ORDER) * a.padded, ORDERS * a.padded,
                   a.scales + at, a.sums + at, groups * ORDERS, y, y_stride, AHEAD);
}
#else
void quantize_rows(const Activations* a, int64_t first, int64_t last) {
    const int64_t groups = a->padded / GROUP;
    for (int64_t i = first; i < last; i++)
        for (int64_t g = 0; g < groups; g++) {
            float scale;
            int32_t negative_sums[2];
            quantize_group(a->x + i * a->stride + g * GROUP, a->cols - g * GROUP,
                           a->quantized + i * a->padded + g * GROUP, &scale, negative_sums);
            for (int l = 0; l < GROUP_LANES; l++)
                a->scales[(i * groups + g) * GROUP_LANES + l] = scale;
            a->sums[i * groups + g] =
                scale * -static_cast<float>(negative_sums[0] + negative_sums[1]);
        }
}

// the scale of part p of the 64 inputs whose expanded scales begin at s
INLINE F input_scale(const float* s, int p) {
#if defined(__AVX512F__)
    (void)p;
    return load(s);
#else
    return load(s + p * (64 / PARTS) / GROUP * GROUP_LANES);
#endif
}

template <class B, int N>
INLINE void int8_super(const uint8_t* b, const int8_t* x, int64_t padded, const float* x_scales,
                       const float* x_sums, F (&sums)[N], F8 (&minimums)[N]) {
    Scales s;
    B::scales(b, s);
    const int64_t groups = padded / GROUP;
    if (!B::SIGNED) {
        const F8 m = load_as<F8>(s.minimums);
        UNROLL for (int n = 0; n < N; n++) minimums[n] += m * load_as<F8>(x_sums + n * groups);
    }
    UNROLL for (int j = 0; j < B::SUPER / 64; j++) {
        const Bytes64 bytes = B::unpack(b, j);
        UNROLL for (int p = 0; p < PARTS; p++) {
            const F scale = scale_part<B::PER>(s.of + j * (64 / B::PER), p);
            const Signed with_sign(bit_cast<S8>(bytes.part[p]));
            UNROLL for (int n = 0; n < N; n++) {
                const S8 xv = load_as<S8>(x + n * padded + j * 64 + p * BYTES);
                const I products =
                    B::SIGNED ? with_sign.dot((I){}, xv) : dot_unsigned((I){}, bytes.part[p], xv);
                sums[n] += to_floats(products) *
                           (scale * input_scale(x_scales + (n * groups + 2 * j) * GROUP_LANES, p));
            }
        }
    }
}

template <class B, int N>
INLINE void int8_row(const uint8_t* w, const Activations& a, int64_t i, float* y,
                     int64_t y_stride) {
    F sums[N] = {};
    F8 minimums[N] = {};
    const int64_t groups = a.padded / GROUP;
    const int8_t* x = a.quantized + i * a.padded;
    const float *x_scales = a.scales + i * groups * GROUP_LANES, *x_sums = a.sums + i * groups;
    int64_t k = 0;
    for (; k + B::SUPER <= a.cols; k += B::SUPER, w += B::BYTES_EACH) {
        for (int at = 0; at < B::BYTES_EACH; at += 64) prefetch(w + at);
        int8_super<B, N>(w, x + k, a.padded, x_scales + k / GROUP * GROUP_LANES, x_sums + k / GROUP,
                         sums, minimums);
    }
    if (k < a.cols) {  // one block of a pair
        uint8_t pair[B::BYTES_EACH] = {};
        memcpy(pair, w, B::BLOCK_BYTES);
        int8_super<B, N>(pair, x + k, a.padded, x_scales + k / GROUP * GROUP_LANES,
                         x_sums + k / GROUP, sums, minimums);
    }
    UNROLL for (int n = 0; n < N; n++) {
        float total = sum(sums[n]);
        if (!B::SIGNED)
            for (int l = 0; l < 8; l++) total -= minimums[n][l];
        y[n * y_stride] = total;
    }
}

#endif

template <class B>
void int8_product(const ProductPiece& p, int64_t row_bytes) {
    const char* w = static_cast<const char*>(p.w->data) + p.first * row_bytes;
    for (int64_t r = 0; r < p.last - p.first; r++)
        for_inputs(p.x_last - p.x_first, [&](auto rows, int64_t i) INLINE_LAMBDA {
            int8_row<B, decltype(rows)::value>(reinterpret_cast<const uint8_t*>(w + r * row_bytes),
                                               *p.x, p.x_first + i, p.y + i * p.y_stride + r,
                                               p.y_stride);
        });
}

int32_t multiplies_int8(int32_t type) {
    return type == LLAMATH_Q8_0 || type == LLAMATH_Q4_0 || type == LLAMATH_Q4_K ||
           type == LLAMATH_Q5_K || type == LLAMATH_Q6_K || type == LLAMATH_MXFP4;
}

int64_t product_memory(const Matrix* w) {
    return max_of(3 * PANEL_COLS * W, w->cols) * static_cast<int64_t>(sizeof(float)) + 64;
}

void product(const ProductPiece* p, int32_t mode, int32_t packed) {
    const int64_t row_bytes = stride_of(p->w);
#ifndef LLAMATH_SMALL
    if (packed) return LLAMATH_IN_PATH(packed_product)(p, mode, row_bytes);
#endif
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (mode == BF16_PRODUCT)
        return for_inputs(p->x_last - p->x_first, [&](auto rows, int64_t i) INLINE_LAMBDA {
            bf16_rows<decltype(rows)::value>(*p, row_bytes, i);
        });
#endif
#ifndef LLAMATH_SMALL
    if (mode == INT8_PRODUCT) {
        switch (p->w->type) {
            case LLAMATH_Q8_0:
                return int8_product<Q8_0>(*p, row_bytes);
            case LLAMATH_Q4_0:
                return int8_product<Q4_0>(*p, row_bytes);
            case LLAMATH_Q4_K:
                return int8_product<Q4_K>(*p, row_bytes);
            case LLAMATH_Q5_K:
                return int8_product<Q5_K>(*p, row_bytes);
            case LLAMATH_Q6_K:
                return int8_product<Q6_K>(*p, row_bytes);
            case LLAMATH_MXFP4:
                return int8_product<MXFP4>(*p, row_bytes);
        }
    }
#endif
    switch (p->w->type) {
        case LLAMATH_F32:
            return float_product<float>(*p, row_bytes);
        case LLAMATH_BF16:
            return float_product<bf16>(*p, row_bytes);
        case LLAMATH_F16:
            return float_product<f16>(*p, row_bytes);
        case LLAMATH_I8:
            return float_product<int8_t>(*p, row_bytes);
    }
    auto* row = reinterpret_cast<float*>(p->memory);  // of blocks, one row at a time
    for (int64_t r = p->first; r < p->last; r++) {
        dequantize_row(row, p->w, r);
        for (int64_t i = p->x_first; i < p->x_last; i++)
            float_tile<float, 1, 1>(p->memory, 0, p->x->x + i * p->x->stride, 0, 0, p->w->cols,
                                    p->y + (i - p->x_first) * p->y_stride + r - p->first, 0,
                                    nullptr, 0);
    }
}

// y[i, c] = sum over rows of W[r, c] * x[i, r]
void transposed_product(const ProductPiece* p) {
    const int64_t cols = p->w->cols;
    auto* row = reinterpret_cast<float*>(p->memory);
    for (int64_t i = p->x_first; i < p->x_last; i++)
        memset(p->y + (i - p->x_first) * cols, 0, static_cast<size_t>(cols) * sizeof(float));
    for (int64_t r = p->first; r < p->last; r++) {
        const float* values = row;
        if (p->w->type == LLAMATH_F32)
            values = reinterpret_cast<const float*>(static_cast<const char*>(p->w->data) +
                                                    r * stride_of(p->w));
        else
            dequantize_row(row, p->w, r);
        for (int64_t i = p->x_first; i < p->x_last; i++) {
            const float factor = p->x->x[i * p->x->stride + r - p->first];
            float* y = p->y + (i - p->x_first) * cols;
            int64_t k = 0;
            for (; k + W <= cols; k += W) store(y + k, load(y + k) + load(values + k) * factor);
            for (; k < cols; k++) y[k] += values[k] * factor;
        }
    }
}

}  // namespace

#endif
