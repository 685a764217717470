// The blocks of GGUF in 64 weights at a time: registers of bytes, and the scales that belong to
// them.
//
// Layouts as in ggml-common.h and gguf/quants.py. A type has SUPER weights in `BYTES_EACH` bytes
// for its loop (two blocks where a block has 32 weights), scales for each PER weights, and either
// SIGNED bytes, of at least -BIAS, or unsigned ones with a minimum for each 32 weights.

#ifndef LLAMATH_BLOCKS_H
#define LLAMATH_BLOCKS_H

#include "simd.h"

namespace {

typedef uint8_t B16 __attribute__((vector_size(16)));
typedef uint8_t B32 __attribute__((vector_size(32)));
typedef float F8 __attribute__((vector_size(32)));

constexpr int PARTS = 64 / BYTES;  // registers of 64 bytes

struct Bytes64 {
    U8 part[PARTS];
};

INLINE Bytes64 join(B32 low, B32 high) {
    Bytes64 all;
#if defined(__AVX512F__)
    all.part[0] = (U8)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)low), (__m256i)high, 1);
#else
    memcpy(&all.part[0], &low, 32);
    memcpy(&all.part[PARTS / 2], &high, 32);
#endif
    return all;
}

// 16 bytes of two nibbles each: the low ones, then the high ones
INLINE B32 nibbles(const uint8_t* p) {
#if defined(__AVX2__)
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)p));
    return (B32)_mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)),
                                 _mm256_set1_epi8(15));
#else
    const B16 q = load_as<B16>(p), low = q & 15, high = q >> 4;
    B32 both;
    memcpy(&both, &low, 16);
    memcpy(reinterpret_cast<char*>(&both) + 16, &high, 16);
    return both;
#endif
}

INLINE float half_at(const uint8_t* p) { return to_float(load_as<f16>(p)); }

struct Scales {
    float of[16];       // each PER weights
    float minimums[8];  // each 32 weights: a weight is scale * byte - minimum
};

struct Q8_0 {
    static constexpr int SUPER = 64, PER = 32, BLOCK = 32, BLOCK_BYTES = 34, BYTES_EACH = 68;
    static constexpr bool SIGNED = true;
    static constexpr int BIAS = 128;
    static INLINE void scales(const uint8_t* b, Scales& s) {
        s.of[0] = half_at(b), s.of[1] = half_at(b + 34);
    }
    static INLINE Bytes64 unpack(const uint8_t* b, int) {
        return join(load_as<B32>(b + 2), load_as<B32>(b + 36));
    }
};

struct Q4_0 {
    static constexpr int SUPER = 64, PER = 32, BLOCK = 32, BLOCK_BYTES = 18, BYTES_EACH = 36;
    static constexpr bool SIGNED = true;
    static constexpr int BIAS = 8;
    static INLINE void scales(const uint8_t* b, Scales& s) {
        s.of[0] = half_at(b), s.of[1] = half_at(b + 18);
    }
    static INLINE Bytes64 unpack(const uint8_t* b, int) {
        return join(nibbles(b + 2) - 8, nibbles(b + 20) - 8);
    }
};

struct MXFP4 {  // E2M1 values times 2, and 2^(e - 128)
    static constexpr int SUPER = 64, PER = 32, BLOCK = 32, BLOCK_BYTES = 17, BYTES_EACH = 34;
    static constexpr bool SIGNED = true;
    static constexpr int BIAS = 16;
    static INLINE float power(uint8_t e) {
        return bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
    }
    static INLINE void scales(const uint8_t* b, Scales& s) {
        s.of[0] = power(b[0]), s.of[1] = power(b[17]);
    }
    static INLINE B32 values(const uint8_t* p) {
        const B32 code = nibbles(p);
#if defined(__AVX2__)
        const __m128i table =
            _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
        return (B32)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), (__m256i)code);
#else
        const int8_t table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        B32 out;
        for (int i = 0; i < 32; i++) out[i] = static_cast<uint8_t>(table[code[i]]);
        return out;
#endif
    }
    static INLINE Bytes64 unpack(const uint8_t* b, int) {
        return join(values(b + 1), values(b + 18));
    }
};

// Q4_K and Q5_K: eight scales and minimums of 6 bits in 12 bytes
INLINE void scales_k(const uint8_t* b, Scales& s) {
    const float d = half_at(b), d_min = half_at(b + 2);
    const uint32_t u0 = load_as<uint32_t>(b + 4), u1 = load_as<uint32_t>(b + 8),
                   u2 = load_as<uint32_t>(b + 12);
    const uint32_t scale[2] = {u0 & 0x3f3f3f3f, (u2 & 0x0f0f0f0f) | ((u0 >> 6) & 0x03030303) << 4};
    const uint32_t minimum[2] = {u1 & 0x3f3f3f3f,
                                 ((u2 >> 4) & 0x0f0f0f0f) | ((u1 >> 6) & 0x03030303) << 4};
#if defined(__AVX2__)
    _mm256_storeu_ps(
        s.of, _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
                                                   _mm_loadl_epi64((const __m128i*)scale)))));
    _mm256_storeu_ps(s.minimums, _mm256_mul_ps(_mm256_set1_ps(d_min),
                                               _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
                                                   _mm_loadl_epi64((const __m128i*)minimum)))));
#else
    uint8_t a[8], m[8];
    memcpy(a, scale, 8);
    memcpy(m, minimum, 8);
    for (int i = 0; i < 8; i++) s.of[i] = d * a[i], s.minimums[i] = d_min * m[i];
#endif
}

struct Q4_K {
    static constexpr int SUPER = 256, PER = 32, BLOCK = 256, BLOCK_BYTES = 144, BYTES_EACH = 144;
    static constexpr bool SIGNED = false;
    static constexpr int BIAS = 0;
    static INLINE void scales(const uint8_t* b, Scales& s) { scales_k(b, s); }
    static INLINE Bytes64 unpack(const uint8_t* b, int j) {
        const B32 q = load_as<B32>(b + 16 + 32 * j);
        return join(q & 15, q >> 4);
    }
};

struct Q5_K {
    static constexpr int SUPER = 256, PER = 32, BLOCK = 256, BLOCK_BYTES = 176, BYTES_EACH = 176;
    static constexpr bool SIGNED = false;
    static constexpr int BIAS = 0;
    static INLINE void scales(const uint8_t* b, Scales& s) { scales_k(b, s); }
    static INLINE Bytes64 unpack(const uint8_t* b, int j) {
        const B32 high = load_as<B32>(b + 16) >> static_cast<uint8_t>(2 * j),
                  q = load_as<B32>(b + 48 + 32 * j);
        return join((q & 15) | ((high & 1) << 4), (q >> 4) | ((high & 2) << 3));
    }
};

struct Q6_K {
    static constexpr int SUPER = 256, PER = 16, BLOCK = 256, BLOCK_BYTES = 210, BYTES_EACH = 210;
    static constexpr bool SIGNED = true;
    static constexpr int BIAS = 32;
    static INLINE void scales(const uint8_t* b, Scales& s) {
        const float d = half_at(b + 208);
#if defined(__AVX512F__)
        _mm512_storeu_ps(s.of, _mm512_mul_ps(_mm512_set1_ps(d),
                                             _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
                                                 _mm_loadu_si128((const __m128i*)(b + 192))))));
#else
        for (int i = 0; i < 16; i++)
            s.of[i] = d * static_cast<float>(static_cast<int8_t>(b[192 + i]));
#endif
    }
    static INLINE Bytes64 unpack(const uint8_t* b, int j) {
        const uint8_t* low = b + 64 * (j / 2);
        const B32 q0 = load_as<B32>(low), q1 = load_as<B32>(low + 32),
                  high = load_as<B32>(b + 128 + 32 * (j / 2)) >> static_cast<uint8_t>(j % 2 * 4);
        const B32 first = j % 2 ? q0 >> 4 : q0 & 15, second = j % 2 ? q1 >> 4 : q1 & 15;
        return join((first | ((high & 3) << 4)) - 32, (second | ((high & 12) << 2)) - 32);
    }
};

// The scales of the weights in part p of the 64 that begin at scale s, one for each integer
template <int PER>
INLINE F scale_part(const float* s, int p) {
#if defined(__AVX512F__)
    (void)p;
    if (PER == 32) {
        const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        return (F)_mm512_permutexvar_ps(
            lanes, _mm512_castps128_ps512(_mm_castpd_ps(_mm_load_sd((const double*)s))));
    }
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return (F)_mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_loadu_ps(s)));
#else
    const int per_part =
        64 / PER / PARTS;  // scales in a part: 2, 1, or 0 where a scale is for more than a part
    if (per_part == 2) {
        F v;
        for (int i = 0; i < W; i++) v[i] = s[2 * p + i / (W / 2)];
        return v;
    }
    return set1(s[p * (64 / PARTS) / PER]);
#endif
}

// One row in float32
template <class B>
INLINE void dequantize_blocks(float* out, const uint8_t* row, int64_t cols) {
    uint8_t pair[B::BYTES_EACH];
    for (int64_t at = 0; at < cols; at += B::SUPER) {
        const uint8_t* b = row + at / B::BLOCK * B::BLOCK_BYTES;
        if (at + B::SUPER > cols) {
            memset(pair, 0, sizeof pair);
            memcpy(pair, b, B::BLOCK_BYTES);
            b = pair;
        }
        Scales s;
        B::scales(b, s);
        for (int j = 0; j < B::SUPER / 64; j++) {
            const Bytes64 bytes = B::unpack(b, j);
            uint8_t values[64];
            memcpy(values, &bytes, 64);
            const int64_t count = min_of(64, cols - at - 64 * j);
            for (int i = 0; i < count; i++) {
                const float scale = s.of[(64 * j + i) / B::PER];
                float* y = out + at + 64 * j + i;
                if (B::SIGNED)
                    *y = scale * static_cast<float>(static_cast<int8_t>(values[i]));
                else
                    *y = scale * static_cast<float>(values[i]) - s.minimums[(64 * j + i) / 32];
            }
        }
    }
}

}  // namespace

#endif
