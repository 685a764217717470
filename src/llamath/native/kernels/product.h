// Matrix products: tiles of R rows of weights and N rows of inputs, summed along the columns in vectors.

#ifndef LLAMATH_PRODUCT_H
#define LLAMATH_PRODUCT_H

#include "blocks.h"
#include "path.h"

namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr bool MANY_REGISTERS = true;  // 32 vector registers, otherwise 16
#else
constexpr bool MANY_REGISTERS = false;
#endif
constexpr int64_t AHEAD = 1024;  // bytes that weights are prefetched ahead; rows follow each other, so this helps at the end of a row as well

INLINE void prefetch(const void* p) { __builtin_prefetch(static_cast<const char*>(p) + AHEAD, 0, 3); }

// Weights and inputs in float32

template <class T, int R, int N>
INLINE void float_tile(const T* w, int64_t w_stride, const float* x, int64_t x_stride, int64_t cols, float* y, int64_t y_stride, const float* scales) {
    constexpr int UNROLL = R * N <= 2 ? 4 : R * N <= 4 ? 2 : 1;  // enough sums to hide the latency of a multiply-add
    F sums[UNROLL][R][N] = {};
    const char* base = reinterpret_cast<const char*>(w);
    const T* row[R];
    for (int r = 0; r < R; r++) row[r] = reinterpret_cast<const T*>(base + r * w_stride);
    int64_t k = 0;
    for (; k + UNROLL * W <= cols; k += UNROLL * W) {
        for (int u = 0; u < UNROLL; u++) {
            F wv[R];
            for (int r = 0; r < R; r++) {
                wv[r] = load(row[r] + k + u * W);
                if ((u * W * sizeof(T)) % 64 == 0) prefetch(row[r] + k + u * W);
            }
            for (int n = 0; n < N; n++) {
                const F xv = load(x + n * x_stride + k + u * W);
                for (int r = 0; r < R; r++) sums[u][r][n] += wv[r] * xv;
            }
        }
    }
    for (; k < cols; k += W) {
        const int64_t left = min_of(W, cols - k);
        for (int n = 0; n < N; n++) {
            const F xv = left == W ? load(x + n * x_stride + k) : load_part(x + n * x_stride + k, left);
            for (int r = 0; r < R; r++) sums[0][r][n] += (left == W ? load(row[r] + k) : load_part(row[r] + k, left)) * xv;
        }
    }
    for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) {
            F total = sums[0][r][n];
            for (int u = 1; u < UNROLL; u++) total += sums[u][r][n];
            y[n * y_stride + r] = sum(total) * (scales ? scales[r] : 1.0f);
        }
}

template <class T, int R, int N>
INLINE void float_rows(const ProductPiece& p, int64_t i, int64_t r, int64_t row_bytes) {
    const Activations& a = *p.x;
    float_tile<T, R, N>(reinterpret_cast<const T*>(static_cast<const char*>(p.w->data) + (p.first + r) * row_bytes), row_bytes,
                        a.x + (p.x_first + i) * a.stride, a.stride, a.cols, p.y + i * (p.last - p.first) + r, p.last - p.first,
                        p.w->scales ? p.w->scales + p.first + r : nullptr);
}

// all rows of weights with N rows of inputs
template <class T, int N>
INLINE void float_column(const ProductPiece& p, int64_t i, int64_t first, int64_t last, int64_t row_bytes) {
    constexpr int R = N == 1 ? 1 : MANY_REGISTERS ? (N <= 6 ? 4 : 2) : N <= 2 ? 4 : N <= 4 ? 3 : 1;
    int64_t r = first;
    for (; r + R <= last; r += R) float_rows<T, R, N>(p, i, r, row_bytes);
    for (; r < last; r++) float_rows<T, 1, N>(p, i, r, row_bytes);
}

template <class T>
void float_product(const ProductPiece& p, int64_t row_bytes) {
    constexpr int N = MANY_REGISTERS ? 6 : 4;
    constexpr int64_t BLOCK = 4 * N;  // rows of inputs that stay in the cache beside a group of weights
    const int64_t rows = p.last - p.first, n = p.x_last - p.x_first;
    if (n == 1) return float_column<T, 1>(p, 0, 0, rows, row_bytes);
    if (MANY_REGISTERS && n == 8) return float_column<T, 8>(p, 0, 0, rows, row_bytes);
    if (MANY_REGISTERS && n == 7) return float_column<T, 7>(p, 0, 0, rows, row_bytes);
    for (int64_t block = 0; block < n; block += BLOCK) {
        const int64_t end = min_of(block + BLOCK, n);
        for (int64_t r = 0; r < rows; r += 4) {
            const int64_t r_end = n > 8 ? min_of(r + (N == 6 ? 4 : 3), rows) : rows;
            int64_t i = block;
            for (; i + N <= end; i += N) float_column<T, N>(p, i, r, r_end, row_bytes);
            if (end - i == 5) float_column<T, 5>(p, i, r, r_end, row_bytes);
            if (end - i == 4) float_column<T, 4>(p, i, r, r_end, row_bytes);
            if (end - i == 3) float_column<T, 3>(p, i, r, r_end, row_bytes);
            if (end - i == 2) float_column<T, 2>(p, i, r, r_end, row_bytes);
            if (end - i == 1) float_column<T, 1>(p, i, r, r_end, row_bytes);
            r = r_end - 4;
        }
    }
}

// Weights and inputs in bfloat16

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr bool HAS_BF16_PRODUCT = true;
typedef uint16_t HH __attribute__((vector_size(BYTES)));

INLINE F dot_bf16(F sums, HH a, HH b) {
#if defined(__AVX512BF16__)
    return (F)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#else
    return (F)vbfdotq_f32((float32x4_t)sums, (bfloat16x8_t)a, (bfloat16x8_t)b);
#endif
}

template <int R, int N>
INLINE void bf16_tile(const char* w, int64_t w_stride, const uint16_t* x, int64_t x_stride, int64_t cols, float* y, int64_t y_stride) {
    F sums[R][N] = {};
    int64_t k = 0;
    for (; k + 2 * W <= cols; k += 2 * W) {
        HH wv[R];
        for (int r = 0; r < R; r++) wv[r] = load_as<HH>(w + r * w_stride + k * 2);
        for (int n = 0; n < N; n++) {
            const HH xv = load_as<HH>(x + n * x_stride + k);
            for (int r = 0; r < R; r++) sums[r][n] = dot_bf16(sums[r][n], wv[r], xv);
        }
    }
    if (k < cols) {
        HH wv[R] = {};
        for (int r = 0; r < R; r++) memcpy(&wv[r], w + r * w_stride + k * 2, static_cast<size_t>(cols - k) * 2);
        for (int n = 0; n < N; n++) {
            const HH xv = load_as<HH>(x + n * x_stride + k);  // padded with zeros
            for (int r = 0; r < R; r++) sums[r][n] = dot_bf16(sums[r][n], wv[r], xv);
        }
    }
    for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) y[n * y_stride + r] = sum(sums[r][n]);
}

template <int R, int N>
INLINE void bf16_rows(const ProductPiece& p, int64_t i, int64_t r, int64_t row_bytes) {
    bf16_tile<R, N>(static_cast<const char*>(p.w->data) + (p.first + r) * row_bytes, row_bytes, p.x->rounded + (p.x_first + i) * p.x->padded,
                    p.x->padded, p.x->cols, p.y + i * (p.last - p.first) + r, p.last - p.first);
}

void bf16_product(const ProductPiece& p, int64_t row_bytes) {
    constexpr int64_t N = 6, R = 4, BLOCK = 8 * N;
    const int64_t rows = p.last - p.first, n = p.x_last - p.x_first;
    for (int64_t block = 0; block < n; block += BLOCK) {
        const int64_t end = min_of(block + BLOCK, n);
        for (int64_t r = 0; r < rows;) {
            if (r + R <= rows) {
                int64_t i = block;
                for (; i + N <= end; i += N) bf16_rows<R, N>(p, i, r, row_bytes);
                for (; i + 2 <= end; i += 2) bf16_rows<R, 2>(p, i, r, row_bytes);
                if (i < end) bf16_rows<R, 1>(p, i, r, row_bytes);
                r += R;
            } else {
                for (int64_t i = block; i < end; i++) bf16_rows<1, 1>(p, i, r, row_bytes);
                r++;
            }
        }
    }
}
#else
constexpr bool HAS_BF16_PRODUCT = false;
#endif

void round_rows(const Activations* a, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        const float* x = a->x + i * a->stride;
        uint16_t* out = a->rounded + i * a->padded;
        int64_t k = 0;
        for (; k + W <= a->cols; k += W) {
            const H rounded = float_to_bf16(load(x + k));
            memcpy(out + k, &rounded, sizeof rounded);
        }
        for (; k < a->padded; k++) out[k] = k < a->cols ? to_bf16(x[k]).bits : 0;
    }
}

// Blocks of weights and inputs in int8

void quantize_rows(const Activations* a, int64_t first, int64_t last) {
    const int64_t groups = a->padded / GROUP;
    for (int64_t i = first; i < last; i++) {
        for (int64_t g = 0; g < groups; g++) {
            const float* x = a->x + i * a->stride + g * GROUP;
            float part[GROUP] = {};
            if ((g + 1) * GROUP > a->cols) {
                if (g * GROUP < a->cols) memcpy(part, x, static_cast<size_t>(a->cols - g * GROUP) * sizeof(float));
                x = part;
            }
            F high = {}, zero = {};
            for (int k = 0; k < GROUP; k += W) {
                const F v = load(x + k);
                high = vmax(vabs(v), high);
                zero += v * 0.0f;
            }
            const float most = largest(high), not_finite = sum(zero);
            float scale = most / 127.0f;
            const float inverse = most > 1e-35f && not_finite == 0 ? 127.0f / most : 0.0f;
            if (inverse == 0.0f) scale = 0.0f;
            if (not_finite != 0) scale = __builtin_nanf("");
            int8_t* q = a->quantized + i * a->padded + g * GROUP;
            I total = {};
            for (int k = 0; k < GROUP; k += W) {
                const I rounded = inverse == 0.0f ? (I){} : round_to_int(load(x + k) * inverse);
                total += rounded;
                const Q bytes = __builtin_convertvector(rounded, Q);
                memcpy(q + k, &bytes, sizeof bytes);
            }
            int32_t sum_of = 0;
            for (int l = 0; l < W; l++) sum_of += total[l];
            float* scales = a->scales + (i * groups + g) * GROUP_LANES;
            for (int l = 0; l < GROUP_LANES; l++) scales[l] = scale;
            a->sums[i * groups + g] = scale * static_cast<float>(sum_of);
            a->integer_sums[i * groups + g] = sum_of;
        }
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
INLINE void int8_super(const uint8_t* b, const int8_t* x, int64_t padded, const float* x_scales, const float* x_sums, F (&sums)[N], F8 (&minimums)[N]) {
    Scales s;
    B::scales(b, s);
    const int64_t groups = padded / GROUP;
    if (!B::SIGNED) {
        const F8 m = load_as<F8>(s.minimums);
        for (int n = 0; n < N; n++) minimums[n] += m * load_as<F8>(x_sums + n * groups);
    }
    for (int j = 0; j < B::SUPER / 64; j++) {
        const Bytes64 bytes = B::unpack(b, j);
        for (int p = 0; p < PARTS; p++) {
            const F scale = scale_part<B::PER>(s.of + j * (64 / B::PER), p);
            const Signed with_sign(bit_cast<S8>(bytes.part[p]));
            for (int n = 0; n < N; n++) {
                const S8 xv = load_as<S8>(x + n * padded + j * 64 + p * BYTES);
                const I products = B::SIGNED ? with_sign.dot((I){}, xv) : dot_unsigned((I){}, bytes.part[p], xv);
                sums[n] += to_floats(products) * (scale * input_scale(x_scales + (n * groups + 2 * j) * GROUP_LANES, p));
            }
        }
    }
}

template <class B, int N>
INLINE void int8_row(const uint8_t* w, const Activations& a, int64_t i, float* y, int64_t y_stride) {
    F sums[N] = {};
    F8 minimums[N] = {};
    const int64_t groups = a.padded / GROUP;
    const int8_t* x = a.quantized + i * a.padded;
    const float *x_scales = a.scales + i * groups * GROUP_LANES, *x_sums = a.sums + i * groups;
    int64_t k = 0;
    for (; k + B::SUPER <= a.cols; k += B::SUPER, w += B::BYTES_EACH) {
        for (int at = 0; at < B::BYTES_EACH; at += 64) prefetch(w + at);
        int8_super<B, N>(w, x + k, a.padded, x_scales + k / GROUP * GROUP_LANES, x_sums + k / GROUP, sums, minimums);
    }
    if (k < a.cols) {  // one block of a pair
        uint8_t pair[B::BYTES_EACH] = {};
        memcpy(pair, w, B::BLOCK_BYTES);
        int8_super<B, N>(pair, x + k, a.padded, x_scales + k / GROUP * GROUP_LANES, x_sums + k / GROUP, sums, minimums);
    }
    for (int n = 0; n < N; n++) {
        float total = sum(sums[n]);
        if (!B::SIGNED)
            for (int l = 0; l < 8; l++) total -= minimums[n][l];
        y[n * y_stride] = total;
    }
}

template <class B>
void int8_product(const ProductPiece& p, int64_t row_bytes) {
    constexpr int N = MANY_REGISTERS ? 8 : 4;
    const int64_t rows = p.last - p.first, n = p.x_last - p.x_first;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t* w = static_cast<const uint8_t*>(p.w->data) + (p.first + r) * row_bytes;
        int64_t i = 0;
        for (; i + N <= n; i += N) int8_row<B, N>(w, *p.x, p.x_first + i, p.y + i * rows + r, rows);
        for (; i + 4 <= n; i += 4) int8_row<B, 4>(w, *p.x, p.x_first + i, p.y + i * rows + r, rows);
        for (; i + 2 <= n; i += 2) int8_row<B, 2>(w, *p.x, p.x_first + i, p.y + i * rows + r, rows);
        for (; i < n; i++) int8_row<B, 1>(w, *p.x, p.x_first + i, p.y + i * rows + r, rows);
    }
}

// Any type

INLINE int64_t stride_of(const Matrix* w) { return w->row_stride ? w->row_stride : llamath_row_bytes(w->type, w->cols); }

template <class T>
void convert_row(float* out, const T* row, int64_t cols, float scale) {
    int64_t k = 0;
    for (; k + W <= cols; k += W) store(out + k, load(row + k) * scale);
    for (; k < cols; k++) out[k] = to_float(load_as<T>(row + k)) * scale;
}

void dequantize_row(float* out, const Matrix* w, int64_t r) {
    const auto* row = static_cast<const uint8_t*>(w->data) + r * stride_of(w);
    switch (w->type) {
        case LLAMATH_F32: return convert_row(out, reinterpret_cast<const float*>(row), w->cols, 1.0f);
        case LLAMATH_BF16: return convert_row(out, reinterpret_cast<const bf16*>(row), w->cols, 1.0f);
        case LLAMATH_F16: return convert_row(out, reinterpret_cast<const f16*>(row), w->cols, 1.0f);
        case LLAMATH_I8: return convert_row(out, reinterpret_cast<const int8_t*>(row), w->cols, w->scales[r]);
        case LLAMATH_Q8_0: return dequantize_blocks<Q8_0>(out, row, w->cols);
        case LLAMATH_Q4_0: return dequantize_blocks<Q4_0>(out, row, w->cols);
        case LLAMATH_Q4_K: return dequantize_blocks<Q4_K>(out, row, w->cols);
        case LLAMATH_Q5_K: return dequantize_blocks<Q5_K>(out, row, w->cols);
        case LLAMATH_Q6_K: return dequantize_blocks<Q6_K>(out, row, w->cols);
        case LLAMATH_MXFP4: return dequantize_blocks<MXFP4>(out, row, w->cols);
    }
}

int32_t multiplies_int8(int32_t type) {
    return type == LLAMATH_Q8_0 || type == LLAMATH_Q4_0 || type == LLAMATH_Q4_K || type == LLAMATH_Q5_K || type == LLAMATH_Q6_K || type == LLAMATH_MXFP4;
}

constexpr int64_t DEQUANTIZED_ROWS = 12;  // at once, for a tile: a multiple of 3 and 4

int64_t product_memory(const Matrix* w, int32_t mode, int64_t) {
    return mode == FLOAT_PRODUCT && llamath_block_size(w->type) > 1 ? DEQUANTIZED_ROWS * w->cols * static_cast<int64_t>(sizeof(float)) : 0;
}

void dequantized_product(const ProductPiece& p) {
    auto* rows = reinterpret_cast<float*>(p.memory);
    Matrix some = *p.w;
    some.data = rows;
    some.type = LLAMATH_F32;
    some.scales = nullptr;
    for (int64_t first = p.first; first < p.last; first += DEQUANTIZED_ROWS) {
        const int64_t count = min_of(DEQUANTIZED_ROWS, p.last - first), n = p.x_last - p.x_first;
        for (int64_t r = 0; r < count; r++) dequantize_row(rows + r * p.w->cols, p.w, first + r);
        ProductPiece part = p;
        float y[DEQUANTIZED_ROWS * 24];
        for (int64_t i = 0; i < n; i += 24) {
            part.w = &some, part.first = 0, part.last = count, part.y = y;
            part.x_first = p.x_first + i, part.x_last = min_of(p.x_first + i + 24, p.x_last);
            float_product<float>(part, p.w->cols * static_cast<int64_t>(sizeof(float)));
            for (int64_t l = 0; l < part.x_last - part.x_first; l++)
                memcpy(p.y + (i + l) * (p.last - p.first) + first - p.first, y + l * count, static_cast<size_t>(count) * sizeof(float));
        }
    }
}

void product(const ProductPiece* p, int32_t mode) {
    const int64_t row_bytes = stride_of(p->w);
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (mode == BF16_PRODUCT) return bf16_product(*p, row_bytes);
#endif
    if (mode == INT8_PRODUCT) {
        switch (p->w->type) {
            case LLAMATH_Q8_0: return int8_product<Q8_0>(*p, row_bytes);
            case LLAMATH_Q4_0: return int8_product<Q4_0>(*p, row_bytes);
            case LLAMATH_Q4_K: return int8_product<Q4_K>(*p, row_bytes);
            case LLAMATH_Q5_K: return int8_product<Q5_K>(*p, row_bytes);
            case LLAMATH_Q6_K: return int8_product<Q6_K>(*p, row_bytes);
            case LLAMATH_MXFP4: return int8_product<MXFP4>(*p, row_bytes);
        }
    }
    switch (p->w->type) {
        case LLAMATH_F32: return float_product<float>(*p, row_bytes);
        case LLAMATH_BF16: return float_product<bf16>(*p, row_bytes);
        case LLAMATH_F16: return float_product<f16>(*p, row_bytes);
        case LLAMATH_I8: return float_product<int8_t>(*p, row_bytes);
        default: return dequantized_product(*p);
    }
}

// y[i, c] = sum over rows of W[r, c] * x[i, r]
void transposed_product(const ProductPiece* p) {
    const int64_t cols = p->w->cols;
    auto* row = reinterpret_cast<float*>(p->memory);
    for (int64_t i = p->x_first; i < p->x_last; i++) memset(p->y + (i - p->x_first) * cols, 0, static_cast<size_t>(cols) * sizeof(float));
    for (int64_t r = p->first; r < p->last; r++) {
        const float* values = row;
        if (p->w->type == LLAMATH_F32)
            values = reinterpret_cast<const float*>(static_cast<const char*>(p->w->data) + r * stride_of(p->w));
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
