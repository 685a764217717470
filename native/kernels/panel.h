// Products of nine or more rows of inputs: W rows of weights are laid side by side in a small
// panel, once for all rows of inputs.
//
// A panel has PANEL_COLS columns of W rows: [k][W] float32, [k / 2][W] pairs of bfloat16 or [k /
// 4][W] groups of four bytes. Inputs are packed alike, TILE rows side by side, so that a
// multiply-add reads one vector of weights and one repeated input. Sums stay in registers for a
// panel.

#ifndef LLAMATH_PANEL_H
#define LLAMATH_PANEL_H

#include "blocks.h"
#include "path.h"

namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr bool MANY_REGISTERS = true;  // 32 vector registers, otherwise 16
#else
constexpr bool MANY_REGISTERS = false;
#endif

constexpr int64_t PANEL_COLS = 512;
constexpr int TILE = PACKED_ROWS;
constexpr int MOST_TILES =
    MANY_REGISTERS ? 3 : 2;  // of inputs that one pass over a panel multiplies

// W rows of dwords -> [dword][W]; `ahead` are prefetched
INLINE void transpose_square(const char* const* rows, int64_t at, uint32_t* out) {
#if defined(__AVX512F__)
    __m512i r[16], t[16];
    UNROLL for (int i = 0; i < 16; i++) {
        r[i] = _mm512_loadu_si512(rows[i] + at);
        asm("" : "+v"(r[i]));  // GCC would load it twice, as an operand of two instructions
    }
    UNROLL for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        const __m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88),
                      b = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88),
                      d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
        _mm512_storeu_si512(out + j * 16, _mm512_shuffle_i32x4(a, c, 0x88));
        _mm512_storeu_si512(out + (4 + j) * 16, _mm512_shuffle_i32x4(b, d, 0x88));
        _mm512_storeu_si512(out + (8 + j) * 16, _mm512_shuffle_i32x4(a, c, 0xdd));
        _mm512_storeu_si512(out + (12 + j) * 16, _mm512_shuffle_i32x4(b, d, 0xdd));
    }
#elif defined(__AVX2__)
    __m256i r[8], t[8];
    UNROLL for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_si256((const __m256i*)(rows[i] + at));
    UNROLL for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        _mm256_storeu_si256((__m256i*)(out + j * 8),
                            _mm256_permute2x128_si256(r[j], r[4 + j], 0x20));
        _mm256_storeu_si256((__m256i*)(out + (4 + j) * 8),
                            _mm256_permute2x128_si256(r[j], r[4 + j], 0x31));
    }
#else
    for (int c = 0; c < W; c++)
        for (int r = 0; r < W; r++) out[c * W + r] = load_as<uint32_t>(rows[r] + at + 4 * c);
#endif
}

// dwords 0 ... count of W rows; the last ones, beyond a multiple of W, one by one
INLINE void transpose_rows(const char* const* rows, const char* const* ahead, int64_t count,
                           uint32_t* out) {
    int64_t c = 0;
    for (; c + W <= count; c += W) {
        if (c * 4 % 64 == 0 && ahead)
            for (int r = 0; r < W; r++) __builtin_prefetch(ahead[r] + c * 4, 0, 2);
        transpose_square(rows, c * 4, out + c * W);
    }
    for (; c < count; c++)
        for (int r = 0; r < W; r++) out[c * W + r] = load_as<uint32_t>(rows[r] + 4 * c);
}

// Inputs: TILE rows of dwords side by side; rows beyond the last are zeros

void interleave_rows(const char* const* rows, int64_t count, uint32_t* out) {
    typedef uint32_t D __attribute__((vector_size(16)));
    int64_t c = 0;
    for (; c + 4 <= count; c += 4) {
        const D a = load_as<D>(rows[0] + c * 4), b = load_as<D>(rows[1] + c * 4),
                d = load_as<D>(rows[2] + c * 4), e = load_as<D>(rows[3] + c * 4);
        const D ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        const D de0 = __builtin_shufflevector(d, e, 0, 4, 1, 5),
                de1 = __builtin_shufflevector(d, e, 2, 6, 3, 7);
        const D columns[4] = {__builtin_shufflevector(ab0, de0, 0, 1, 4, 5),
                              __builtin_shufflevector(ab0, de0, 2, 3, 6, 7),
                              __builtin_shufflevector(ab1, de1, 0, 1, 4, 5),
                              __builtin_shufflevector(ab1, de1, 2, 3, 6, 7)};
        memcpy(out + c * TILE, columns, sizeof columns);
    }
    for (; c < count; c++)
        for (int r = 0; r < TILE; r++) out[c * TILE + r] = load_as<uint32_t>(rows[r] + 4 * c);
}

// The scale of a group, its bytes, and minus the sums of its two halves
INLINE void quantize_group(const float* x, int64_t left, int8_t* q, float* scale_out,
                           int32_t* negative_sums) {
    float part[GROUP] = {};
    if (left < GROUP) {
        if (left > 0) memcpy(part, x, static_cast<size_t>(left) * sizeof(float));
        x = part;
    }
    F high = {}, zero = {};
    UNROLL for (int k = 0; k < GROUP; k += W) {
        const F v = load(x + k);
        high = vmax(vabs(v), high);
        zero += v * 0.0f;
    }
    const float most = largest(high), not_finite = sum(zero);
    const float inverse = most > 1e-35f && not_finite == 0 ? 127.0f / most : 0.0f;
    *scale_out = not_finite != 0 ? __builtin_nanf("") : inverse == 0.0f ? 0.0f : most / 127.0f;
    I sums[2] = {};
    UNROLL for (int k = 0; k < GROUP; k += W) {
        const I rounded = round_to_int(load(x + k) * inverse) &
                          (inverse == 0.0f ? 0 : -1);  // Inf * 0 is no integer
        sums[k / 16] += rounded;
        const Q bytes = __builtin_convertvector(rounded, Q);
        memcpy(q + k, &bytes, sizeof bytes);
    }
    negative_sums[0] = -sum_of(sums[0]), negative_sums[1] = -sum_of(sums[1]);
}

void round_row(const float* x, int64_t cols, int64_t padded, uint16_t* out) {
    int64_t k = 0;
    for (; k + W <= cols; k += W) {
        const H rounded = float_to_bf16(load(x + k));
        memcpy(out + k, &rounded, sizeof rounded);
    }
    for (; k < padded; k++) out[k] = k < cols ? to_bf16(x[k]).bits : 0;
}

// Rows first ... last of tiles of inputs; `memory` is for TILE rows of `padded` floats
void pack_rows(const Activations* a, int64_t first, int64_t last, char* memory) {
    const int64_t groups = a->padded / GROUP;
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t rows = min_of(TILE, a->n - tile * TILE);
        const float* x[TILE];
        for (int r = 0; r < TILE; r++)
            x[r] = a->x + (tile * TILE + min_of(r, rows - 1)) *
                              a->stride;  // those beyond the last repeat it
        const char* from[TILE];
        if (a->packed_floats) {
            for (int r = 0; r < TILE; r++) from[r] = reinterpret_cast<const char*>(x[r]);
            interleave_rows(from, a->cols,
                            reinterpret_cast<uint32_t*>(a->packed_floats) + tile * a->cols * TILE);
        }
        if (a->packed_bf16) {
            auto* rounded = reinterpret_cast<uint16_t*>(memory);
            for (int r = 0; r < TILE; r++) {
                round_row(x[r], a->cols, a->padded, rounded + r * a->padded);
                from[r] = reinterpret_cast<const char*>(rounded + r * a->padded);
            }
            interleave_rows(from, a->padded / 2, a->packed_bf16 + tile * a->padded / 2 * TILE);
        }
        if (a->packed_int8) {
            auto* bytes = reinterpret_cast<int8_t*>(memory);
            for (int r = 0; r < TILE; r++) {
                int8_t* q = bytes + r * a->padded;
                from[r] = reinterpret_cast<const char*>(q);
                for (int64_t g = 0; g < groups; g++) {
                    const int64_t at = (tile * groups + g) * TILE + r,
                                  half = (tile * groups + g) * 2 * TILE + r;
                    int32_t sums[2];
                    quantize_group(x[r] + g * GROUP, a->cols - g * GROUP, q + g * GROUP,
                                   a->packed_scales + at, sums);
                    a->packed_half_sums[half] = sums[0], a->packed_half_sums[half + TILE] = sums[1];
                    a->packed_sums[at] =
                        a->packed_scales[at] * -static_cast<float>(sums[0] + sums[1]);
                }
            }
            interleave_rows(from, a->padded / 4, a->packed_int8 + tile * a->padded / 4 * TILE);
        }
    }
}

// What a pass over a panel adds to: sums[t][n] of tile t and row n, W rows of weights each
template <int T>
struct Sums {
    F of[T][TILE];
    INLINE void load_from(const float* y, int64_t stride, bool first) {
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) of[t][n] =
            first ? (F){} : load(y + (t * TILE + n) * stride);
    }
    INLINE void add(const Sums& other) {
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) of[t][n] +=
            other.of[t][n];
    }
    INLINE void store_to(float* y, int64_t stride) const {
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++)
            store(y + (t * TILE + n) * stride, of[t][n]);
    }
};

// Few tiles have two sums for each row, to hide the latency of a multiply-add

// panel: [k][W] float32
struct FloatPanel {
    const float* weights;
    template <int T>
    INLINE void multiply(Sums<T>& s, const Activations& a, int64_t tile, int64_t k0,
                         int64_t count) const {
        const float* x = a.packed_floats + (tile * a.cols + k0) * TILE;
        Sums<T> odds = {};
        int64_t k = 0;
        for (; k + 2 <= count; k += 2) {
            const F even = load(weights + k * W), odd = load(weights + (k + 1) * W);
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) {
                s.of[t][n] += even * x[(t * a.cols + k) * TILE + n];
                (T <= 2 ? odds : s).of[t][n] += odd * x[(t * a.cols + k + 1) * TILE + n];
            }
        }
        if (k < count)
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) s.of[t][n] +=
                load(weights + k * W) * x[(t * a.cols + k) * TILE + n];
        if (T <= 2) s.add(odds);
    }
};

// panel: [k / 2][W] pairs of bfloat16, and inputs in float32
struct PairPanel {
    const uint32_t* weights;
    template <int T>
    INLINE void multiply(Sums<T>& s, const Activations& a, int64_t tile, int64_t k0,
                         int64_t count) const {
        const float* x = a.packed_floats + (tile * a.cols + k0) * TILE;
        int64_t k = 0;
        Sums<T> odds = {};
        for (; k + 2 <= count; k += 2) {
            const U pair = load_as<U>(weights + k / 2 * W);
            const F even = bit_cast<F>(pair << 16), odd = bit_cast<F>(pair & 0xffff0000u);
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) {
                s.of[t][n] += even * x[(t * a.cols + k) * TILE + n];
                (T <= 2 ? odds : s).of[t][n] += odd * x[(t * a.cols + k + 1) * TILE + n];
            }
        }
        if (T <= 2) s.add(odds);
        if (k < count) {
            const F even = bit_cast<F>(load_as<U>(weights + k / 2 * W) << 16);
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) s.of[t][n] +=
                even * x[(t * a.cols + k) * TILE + n];
        }
    }
};

#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
constexpr bool HAS_BF16_PRODUCT = true;

// Sums of products of pairs of bfloat16
INLINE F dot_bf16(F sums, U a, U b) {
#if defined(__AVX512BF16__)
    return (F)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#else
    return (F)vbfdotq_f32((float32x4_t)sums, (bfloat16x8_t)a, (bfloat16x8_t)b);
#endif
}

// panel: [k / 2][W] pairs of bfloat16, and inputs in bfloat16
struct Bf16Panel {
    const uint32_t* weights;
    template <int T>
    INLINE void multiply(Sums<T>& s, const Activations& a, int64_t tile, int64_t k0,
                         int64_t count) const {
        const int64_t dwords = a.padded / 2;
        const uint32_t* x = a.packed_bf16 + (tile * dwords + k0 / 2) * TILE;
        for (int64_t k = 0; k < (count + 1) / 2; k++) {
            const U w = load_as<U>(weights + k * W);
            UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) s.of[t][n] =
                dot_bf16(s.of[t][n], w, x[(t * dwords + k) * TILE + n] - (U){});
        }
    }
};
#else
constexpr bool HAS_BF16_PRODUCT = false;
#endif

// panel: [k / 4][W] groups of four bytes, scales [k / PER][W], minimums [k / 32][W], and inputs in
// int8. Signed bytes are stored with BIAS added where the processor multiplies unsigned bytes with
// signed ones.
#if defined(__AVX512VNNI__)
constexpr bool BIASED = true;
#else
constexpr bool BIASED = false;
#endif

template <class B>
struct BlockPanel {
    const uint32_t* weights;
    const float *scales, *minimums;
    template <int T>
    INLINE void multiply(Sums<T>& s, const Activations& a, int64_t tile, int64_t k0,
                         int64_t count) const {
        const int64_t dwords = a.padded / 4, groups = a.padded / GROUP;
        const uint32_t* x = a.packed_int8 + (tile * dwords + k0 / 4) * TILE;
        const int64_t at = (tile * groups + k0 / GROUP) * TILE;
        for (int64_t g = 0; g < (count + GROUP - 1) / GROUP; g++) {
            UNROLL for (int part = 0; part < 32 / B::PER; part++) {
                constexpr int D = B::PER / 4;
                U8 w[D];
                UNROLL for (int d = 0; d < D; d++) w[d] =
                    load_as<U8>(weights + ((g * 32 + part * B::PER) / 4 + d) * W);
                const F scale = load(scales + (g * (32 / B::PER) + part) * W);
                UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++) {
                    I products = {};
                    if (B::PER == 16 && BIASED)
                        products = set1i(a.packed_half_sums[((t * groups + g) * 2 + part) * TILE +
                                                            n + 2 * (at - at % TILE)] *
                                         B::BIAS);
                    UNROLL for (int d = 0; d < D; d++) {
                        const U repeated =
                            x[(t * dwords + (g * 32 + part * B::PER) / 4 + d) * TILE + n] - (U){};
                        if (B::SIGNED && !BIASED)
                            products =
                                Signed(bit_cast<S8>(w[d])).dot(products, bit_cast<S8>(repeated));
                        else
                            products = dot_unsigned(products, w[d], bit_cast<S8>(repeated));
                    }
                    s.of[t][n] += to_floats(products) *
                                  (scale * a.packed_scales[at + (t * groups + g) * TILE + n]);
                }
            }
            if (!B::SIGNED || (BIASED && B::PER == 32)) {
                const F minimum = load(minimums + g * W);
                UNROLL for (int t = 0; t < T; t++) UNROLL for (int n = 0; n < TILE; n++)
                    s.of[t][n] -= minimum * a.packed_sums[at + (t * groups + g) * TILE + n];
            }
        }
    }
};

template <class Panel>
INLINE void multiply_tiles(const Panel& panel, const ProductPiece& p, int64_t row, int64_t k0,
                           int64_t count, bool first) {
    const int64_t begin = p.x_first / TILE,
                  end = (p.x_last + TILE - 1) / TILE;  // x_first is a multiple of TILE
    for (int64_t tile = begin; tile < end;) {
        float* y = p.y + (tile - begin) * TILE * p.y_stride + row;
        const int64_t left = end - tile;
        if (MOST_TILES == 3 && left >= 3 && left != 4) {
            Sums<3> s;
            s.load_from(y, p.y_stride, first);
            panel.template multiply<3>(s, *p.x, tile, k0, count);
            s.store_to(y, p.y_stride);
            tile += 3;
        } else if (left >= 2) {
            Sums<2> s;
            s.load_from(y, p.y_stride, first);
            panel.template multiply<2>(s, *p.x, tile, k0, count);
            s.store_to(y, p.y_stride);
            tile += 2;
        } else {
            Sums<1> s;
            s.load_from(y, p.y_stride, first);
            panel.template multiply<1>(s, *p.x, tile, k0, count);
            s.store_to(y, p.y_stride);
            tile += 1;
        }
    }
}

// Calls f(row, k0, count, first) for each group of W rows and each STEP columns
template <int64_t STEP = PANEL_COLS, class Function>
INLINE void for_panels(const ProductPiece& p, Function f) {
    for (int64_t row = 0; row < p.last - p.first; row += W)
        for (int64_t k0 = 0; k0 < p.w->cols; k0 += STEP)
            f(row, k0, min_of(STEP, p.w->cols - k0), k0 == 0);
}

// Pointers to byte `offset` of W rows of weights, those after the last to the last, and to what is
// read next
struct PanelRows {
    const char *at[W], *ahead[W];
    INLINE PanelRows(const ProductPiece& p, int64_t row, int64_t row_bytes, int64_t offset,
                     int64_t next) {
        for (int r = 0; r < W; r++) {
            at[r] = static_cast<const char*>(p.w->data) +
                    min_of(p.first + row + r, p.last - 1) * row_bytes + offset;
            ahead[r] = next < row_bytes ? at[r] - offset + next : at[r] - offset + W * row_bytes;
        }
    }
};

}  // namespace

#endif
