// Products of blocks with one to three rows of inputs for AVX-512: 256 weights at a time in four
// registers of unsigned bytes.
//
// Bytes are taken as they lie in the blocks, with nibbles split across whole registers, so inputs
// are permuted instead: ORDER is the place in a block of 256 of each 16 inputs. Signed values are
// offset, and what the offset adds is subtracted with the minimums.

#ifndef LLAMATH_BLOCKS512_H
#define LLAMATH_BLOCKS512_H

#include "blocks.h"

#if defined(__AVX512VNNI__)

namespace {

struct Weights256 {
    __m512i bytes[4];
    __m512 scales;    // of 16 groups of 16, or of 8 groups of 32 in the low half
    __m512 minimums;  // what a byte of 0 stands for, negated: alike
};

INLINE __m256 halves_at(const uint8_t* b, int stride) {
    uint16_t all[8];
    UNROLL for (int i = 0; i < 8; i++) memcpy(all + i, b + i * stride, 2);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)all));
}
INLINE __m512i load64(const uint8_t* p) { return _mm512_loadu_si512(p); }
INLINE __m512i four(const uint8_t* p, int stride) {  // 16 bytes of four blocks
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(p + stride)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(p + 2 * stride)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i*)(p + 3 * stride)), 3);
}
INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
INLINE __m512i high_nibbles(__m512i v) {
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}

// ORDER[i]: which 16 of 256 inputs the i-th 16 bytes of the registers multiply
template <class B>
struct Wide;

template <>
struct Wide<Q8_0> {
    static constexpr uint8_t ORDER[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static INLINE Weights256 load(const uint8_t* b) {
        Weights256 w;
        UNROLL for (int j = 0; j < 4; j++) {
            const __m512i v = _mm512_inserti64x4(
                _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)(b + 68 * j + 2))),
                _mm256_loadu_si256((const __m256i*)(b + 68 * j + 36)), 1);
            w.bytes[j] = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
        }
        w.scales = _mm512_castps256_ps512(halves_at(b, 34));
        w.minimums = _mm512_mul_ps(w.scales, _mm512_set1_ps(128.0f));
        return w;
    }
};

template <>
struct Wide<Q4_0> {
    static constexpr uint8_t ORDER[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    static INLINE Weights256 load(const uint8_t* b) {
        Weights256 w;
        UNROLL for (int j = 0; j < 2; j++) {
            const __m512i v = four(b + 72 * j + 2, 18);
            w.bytes[2 * j] = low_nibbles(v), w.bytes[2 * j + 1] = high_nibbles(v);
        }
        w.scales = _mm512_castps256_ps512(halves_at(b, 18));
        w.minimums = _mm512_mul_ps(w.scales, _mm512_set1_ps(8.0f));
        return w;
    }
};

template <>
struct Wide<MXFP4> {
    static constexpr uint8_t ORDER[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
    static INLINE Weights256 load(const uint8_t* b) {
        const __m512i table = _mm512_broadcast_i32x4(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        Weights256 w;
        UNROLL for (int j = 0; j < 2; j++) {
            const __m512i v = four(b + 68 * j + 1, 17);
            w.bytes[2 * j] = _mm512_shuffle_epi8(table, low_nibbles(v)),
                        w.bytes[2 * j + 1] = _mm512_shuffle_epi8(table, high_nibbles(v));
        }
        uint8_t exponents[8];
        UNROLL for (int i = 0; i < 8; i++) exponents[i] = b[17 * i];
        const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)exponents));
        const __m256i usual = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23),
                      small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
        w.scales = _mm512_castps256_ps512(_mm256_castsi256_ps(
            _mm256_blendv_epi8(usual, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e))));
        w.minimums = _mm512_mul_ps(w.scales, _mm512_set1_ps(12.0f));
        return w;
    }
};

INLINE void load_scales_k(const uint8_t* b, Weights256& w) {
    Scales s;
    scales_k(b, s);
    w.scales = _mm512_castps256_ps512(_mm256_loadu_ps(s.of));
    w.minimums = _mm512_castps256_ps512(_mm256_loadu_ps(s.minimums));
}

template <>
struct Wide<Q4_K> {
    static constexpr uint8_t ORDER[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    static INLINE Weights256 load(const uint8_t* b) {
        Weights256 w;
        UNROLL for (int j = 0; j < 2; j++) {
            const __m512i v = load64(b + 16 + 64 * j);
            w.bytes[2 * j] = low_nibbles(v), w.bytes[2 * j + 1] = high_nibbles(v);
        }
        load_scales_k(b, w);
        return w;
    }
};

template <>
struct Wide<Q5_K> {
    static constexpr uint8_t ORDER[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    static INLINE Weights256 load(const uint8_t* b) {
        Weights256 w;
        const __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i*)(b + 16)));
        UNROLL for (int j = 0; j < 2; j++) {
            const __m512i v = load64(b + 48 + 64 * j),
                          nibbles[2] = {low_nibbles(v), high_nibbles(v)};
            UNROLL for (int i = 0; i < 2; i++) {
                const auto bit = [=](int half) {
                    return static_cast<char>(1 << (4 * j + 2 * half + i));
                };
                const __m512i bits =
                    _mm512_inserti64x4(_mm512_set1_epi8(bit(0)), _mm256_set1_epi8(bit(1)), 1);
                w.bytes[2 * j + i] =
                    _mm512_mask_add_epi8(nibbles[i], _mm512_test_epi8_mask(high, bits), nibbles[i],
                                         _mm512_set1_epi8(16));
            }
        }
        load_scales_k(b, w);
        return w;
    }
};

template <>
struct Wide<Q6_K> {
    static constexpr uint8_t ORDER[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static INLINE Weights256 load(const uint8_t* b) {
        Weights256 w;
        const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1),
                      right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
        const __m512i two = _mm512_set1_epi8(0x30);
        UNROLL for (int j = 0; j < 2; j++) {
            const __m512i v = load64(b + 64 * j), high = _mm512_broadcast_i64x4(_mm256_loadu_si256(
                                                      (const __m256i*)(b + 128 + 32 * j)));
            w.bytes[2 * j] = _mm512_or_si512(low_nibbles(v),
                                             _mm512_and_si512(_mm512_sllv_epi16(high, left), two));
            w.bytes[2 * j + 1] = _mm512_or_si512(
                high_nibbles(v), _mm512_and_si512(_mm512_srlv_epi16(high, right), two));
        }
        const __m512 scales =
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)(b + 192))));
        w.scales = _mm512_mul_ps(scales, _mm512_set1_ps(half_at(b + 208)));
        w.minimums = _mm512_mul_ps(w.scales, _mm512_set1_ps(32.0f));
        return w;
    }
};

// For each integer of register j: the scale of its four inputs
template <class B>
INLINE __m512i scale_lanes(int j) {
    int32_t lanes[16];
    for (int i = 0; i < 16; i++) lanes[i] = Wide<B>::ORDER[4 * j + i / 4] * 16 / B::PER;
    return _mm512_loadu_si512(lanes);
}

// x: inputs in the order of B; x_scales: [groups] of 32, or of 16 twice each; x_sums: alike
template <class B, int N>
INLINE void wide_row(const uint8_t* w, int64_t cols, const int8_t* x, int64_t x_stride,
                     const float* x_scales, const float* x_sums, int64_t x_groups, float* y,
                     int64_t y_stride, int64_t ahead) {
    constexpr int GROUPS = 256 / B::PER;
    constexpr int STEP = 256 / B::BLOCK * B::BLOCK_BYTES;
    constexpr __mmask16 USED = GROUPS == 16 ? 0xffff : 0xff;
    __m512 sums[N][2] = {}, minimums[N] = {};
    for (int64_t k = 0; k < cols; k += 256, w += STEP) {
        uint8_t padded[STEP];
        const uint8_t* b = w;
        if (k + 256 > cols) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, w, static_cast<size_t>((cols - k) / B::BLOCK * B::BLOCK_BYTES));
            b = padded;
        }
        UNROLL for (int l = 0; l < STEP; l += 64) __builtin_prefetch(w + ahead + l, 0, 3);
        const Weights256 v = Wide<B>::load(b);
        UNROLL for (int n = 0; n < N; n++) {
            const float *scales = x_scales + n * x_groups + k / B::PER,
                        *of_inputs = x_sums + n * x_groups + k / B::PER;
            const __m512 scale = _mm512_mul_ps(v.scales, _mm512_maskz_loadu_ps(USED, scales));
            minimums[n] =
                _mm512_fmadd_ps(v.minimums, _mm512_maskz_loadu_ps(USED, of_inputs), minimums[n]);
            UNROLL for (int j = 0; j < 4; j++) {
                const __m512i products =
                    _mm512_dpbusd_epi32(_mm512_setzero_si512(), v.bytes[j],
                                        _mm512_loadu_si512(x + n * x_stride + k + 64 * j));
                sums[n][j % 2] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products),
                                                 _mm512_permutexvar_ps(scale_lanes<B>(j), scale),
                                                 sums[n][j % 2]);
            }
        }
    }
    UNROLL for (int n = 0; n < N; n++) y[n * y_stride] = _mm512_reduce_add_ps(_mm512_sub_ps(
        _mm512_add_ps(sums[n][0], sums[n][1]), _mm512_maskz_mov_ps(USED, minimums[n])));
}

}  // namespace

#endif
#endif
