// Vectors of the widest registers of the target, from the compiler's vector extension; what it
// cannot express is here, once for each target.
//
// This file and those that include it are compiled once for each path, so everything is in an
// unnamed namespace, and nothing of the C++ library is used whose code the linker could share
// between paths.

#ifndef LLAMATH_SIMD_H
#define LLAMATH_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
// Before a loop of a constant number of turns, whose arrays then are registers
#define UNROLL _Pragma("GCC unroll 32")

namespace {

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
constexpr int BYTES = 64;
#elif defined(__AVX2__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
constexpr int W = BYTES / 4;  // floats in a vector

typedef float F __attribute__((vector_size(BYTES)));
typedef int32_t I __attribute__((vector_size(BYTES)));
typedef uint32_t U __attribute__((vector_size(BYTES)));
typedef uint16_t H __attribute__((vector_size(BYTES / 2)));
typedef int8_t Q __attribute__((vector_size(BYTES / 4)));  // W signed bytes
typedef int8_t S8 __attribute__((vector_size(BYTES)));     // a register of signed bytes
typedef uint8_t U8 __attribute__((vector_size(BYTES)));

template <int VALUE>
struct Constant {
    static constexpr int value = VALUE;
};

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

template <class V>
INLINE V load_as(const void* p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}
template <class To, class From>
INLINE To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
INLINE F set1(float x) { return x - (F){}; }
INLINE I set1i(int32_t x) { return x - (I){}; }
INLINE void store(float* p, F v) { memcpy(p, &v, sizeof v); }
INLINE F choose(I mask, F yes, F no) {
    return bit_cast<F>((bit_cast<I>(yes) & mask) | (bit_cast<I>(no) & ~mask));
}
INLINE F vmax(F a, F b) { return choose(a > b, a, b); }  // b where one is NaN
INLINE F vmin(F a, F b) { return choose(a < b, a, b); }
INLINE F vabs(F a) { return bit_cast<F>(bit_cast<I>(a) & 0x7fffffff); }

INLINE F half_to_float(H h) {
#if defined(__AVX512F__)
    return (F)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    return (F)_mm256_cvtph_ps((__m128i)h);
#elif defined(__aarch64__)
    return (F)vcvt_f32_f16((float16x4_t)h);
#else
    const U bits = __builtin_convertvector(h, U), magnitude = (bits & 0x7fff) << 13;
    const F scaled = bit_cast<F>(magnitude) * 0x1p112f;
    const I special = bit_cast<I>(bits & 0x7c00) == 0x7c00;
    const F value = choose(special, bit_cast<F>(magnitude | 0x7f800000), scaled);
    return bit_cast<F>(bit_cast<U>(value) | (bits & 0x8000) << 16);
#endif
}

INLINE F load(const float* p) { return load_as<F>(p); }
INLINE F load(const bf16* p) {
    return bit_cast<F>(__builtin_convertvector(load_as<H>(p), U) << 16);
}
INLINE F load(const f16* p) { return half_to_float(load_as<H>(p)); }
template <class Byte>
INLINE F load_bytes(const Byte* p) {
    constexpr bool negative = static_cast<Byte>(-1) < 0;
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128((const __m128i*)p);
    return (F)_mm512_cvtepi32_ps(negative ? _mm512_cvtepi8_epi32(bytes)
                                          : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i*)p);
    return (F)_mm256_cvtepi32_ps(negative ? _mm256_cvtepi8_epi32(bytes)
                                          : _mm256_cvtepu8_epi32(bytes));
#else
    typedef Byte Bytes __attribute__((vector_size(BYTES / 4)));
    return __builtin_convertvector(load_as<Bytes>(p), F);
#endif
}
INLINE F load(const int8_t* p) { return load_bytes(p); }
INLINE F load(const uint8_t* p) { return load_bytes(p); }

// n < W elements, zeros after them
template <class T>
INLINE F load_part(const T* p, int64_t n) {
    T padded[W] = {};
    memcpy(padded, p, static_cast<size_t>(n) * sizeof(T));
    return load(padded);
}

INLINE float to_float(float x) { return x; }
INLINE float to_float(bf16 x) { return bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
INLINE float to_float(int8_t x) { return x; }
INLINE float to_float(f16 x) {
#if defined(__F16C__)
    return _cvtsh_ss(x.bits);
#elif defined(__aarch64__)
    return static_cast<float>(bit_cast<__fp16>(x.bits));
#else
    const uint32_t magnitude = (x.bits & 0x7fffu) << 13, sign = (x.bits & 0x8000u) << 16;
    const float value = (x.bits & 0x7c00u) == 0x7c00u ? bit_cast<float>(magnitude | 0x7f800000u)
                                                      : bit_cast<float>(magnitude) * 0x1p112f;
    return bit_cast<float>(bit_cast<uint32_t>(value) | sign);
#endif
}

// to the nearest bfloat16, ties to even; NaN stays NaN
INLINE H float_to_bf16(F v) {
    const U bits = bit_cast<U>(v);
    const U rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, quiet = (bits >> 16) | 0x40;
    const U nan = bit_cast<U>(v != v);
    return __builtin_convertvector((rounded & ~nan) | (quiet & nan), H);
}
INLINE bf16 to_bf16(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x);
    return bf16{static_cast<uint16_t>(x != x ? (bits >> 16) | 0x40
                                             : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
INLINE f16 to_f16(float x) {
#if defined(__F16C__)
    return f16{static_cast<uint16_t>(_cvtss_sh(x, 0))};
#elif defined(__aarch64__)
    return f16{bit_cast<uint16_t>(static_cast<__fp16>(x))};
#else
    const uint32_t bits = bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
    uint32_t h;
    if (magnitude > 0x7f800000u) {
        h = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
        h = 0x7c00u;
    } else if (magnitude <
               0x38800000u) {  // subnormal: the sum rounds it to the last place of a half
        h = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
        h = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
    }
    return f16{static_cast<uint16_t>(h | ((bits >> 16) & 0x8000u))};
#endif
}

INLINE float sum(F v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    float parts[W];
    store(parts, v);
    for (int step = W / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) parts[i] += parts[i + step];
    return parts[0];
#endif
}
INLINE float largest(F v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    float parts[W];
    store(parts, v);
    for (int step = W / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            parts[i] = parts[i] > parts[i + step] ? parts[i] : parts[i + step];
    return parts[0];
#endif
}
INLINE int32_t sum_of(I v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)v);
#else
    int32_t total = 0;
    for (int i = 0; i < W; i++) total += v[i];
    return total;
#endif
}

// e^x within 2 ulp: 2^n * p(r) with r = x - n ln 2 (Cephes' polynomial); 0 far below, Inf far
// above, NaN for NaN
INLINE F vexp(F x) {
    const F bounded = choose(x != x, x, vmax(vmin(x, set1(89.0f)), set1(-104.0f)));
    const F shifted = bounded * 1.44269504f + 12582912.0f;  // rounds to an integer
    const F n = shifted - 12582912.0f;
    const F r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
    F p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const I whole = __builtin_convertvector(choose(x != x, (F){}, n), I), half = whole >> 1,
            rest = whole - half;  // in two steps: 2^128 and subnormals
    return p * bit_cast<F>((half + 127) << 23) * bit_cast<F>((rest + 127) << 23);
}

// Sums of products of bytes, four for each of the W integers

INLINE I dot_unsigned(I sums, U8 u, S8 x) {  // u <= 127
#if defined(__AVX512VNNI__)
    return (I)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)u, (__m512i)x);
#elif defined(__AVXVNNI__)
    return (I)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)u, (__m256i)x);
#elif defined(__AVX2__)
    return sums +
           (I)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)u, (__m256i)x), _mm256_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
    return (I)vdotq_s32((int32x4_t)sums, (int8x16_t)u, (int8x16_t)x);
#elif defined(__aarch64__)
    const int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)u), vget_low_s8((int8x16_t)x)),
                    high = vmull_high_s8((int8x16_t)u, (int8x16_t)x);
    return (I)vaddq_s32((int32x4_t)sums, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#else
    const uint8_t* a = reinterpret_cast<const uint8_t*>(&u);
    const int8_t* b = reinterpret_cast<const int8_t*>(&x);
    for (int i = 0; i < W; i++)
        sums[i] += a[4 * i] * b[4 * i] + a[4 * i + 1] * b[4 * i + 1] + a[4 * i + 2] * b[4 * i + 2] +
                   a[4 * i + 3] * b[4 * i + 3];
    return sums;
#endif
}

// w of any sign (x is never -128): on x86 as |w| times x with the sign of w
struct Signed {
    S8 w;
#if defined(__AVX512VNNI__)
    __m512i magnitude;
    __mmask64 negative;
#elif defined(__AVX2__)
    __m256i magnitude;
#endif
    INLINE explicit Signed(S8 w_) : w(w_) {
#if defined(__AVX512VNNI__)
        magnitude = _mm512_abs_epi8((__m512i)w);
        negative = _mm512_movepi8_mask((__m512i)w);
#elif defined(__AVX2__)
        magnitude = _mm256_abs_epi8((__m256i)w);
#endif
    }
    INLINE I dot(I sums, S8 x) const {
#if defined(__AVX512VNNI__)
        const __m512i signs =
            _mm512_mask_sub_epi8((__m512i)x, negative, _mm512_setzero_si512(), (__m512i)x);
        return (I)_mm512_dpbusd_epi32((__m512i)sums, magnitude, signs);
#elif defined(__AVX2__)
        const __m256i signs = _mm256_sign_epi8((__m256i)x, (__m256i)w);
#if defined(__AVXVNNI__)
        return (I)_mm256_dpbusd_avx_epi32((__m256i)sums, magnitude, signs);
#else
        return sums +
               (I)_mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signs), _mm256_set1_epi16(1));
#endif
#elif defined(__aarch64__)
        return dot_unsigned(sums, (U8)w, x);
#else
        const int8_t* a = reinterpret_cast<const int8_t*>(&w);
        const int8_t* b = reinterpret_cast<const int8_t*>(&x);
        for (int i = 0; i < W; i++)
            sums[i] += a[4 * i] * b[4 * i] + a[4 * i + 1] * b[4 * i + 1] +
                       a[4 * i + 2] * b[4 * i + 2] + a[4 * i + 3] * b[4 * i + 3];
        return sums;
#endif
    }
};

// to integers, to nearest even
INLINE I round_to_int(F v) {
#if defined(__AVX512F__)
    return (I)_mm512_cvtps_epi32((__m512)v);
#elif defined(__AVX2__)
    return (I)_mm256_cvtps_epi32((__m256)v);
#else
    return bit_cast<I>(v + 12582912.0f) - 0x4b400000;  // |v| < 2^22
#endif
}
INLINE F to_floats(I v) { return __builtin_convertvector(v, F); }

INLINE int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace

#endif
