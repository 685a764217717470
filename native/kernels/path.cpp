// One path: compiled once for each instruction set, with -DLLAMATH_PATH=its name.

#include "attention.h"
#include "comparison.h"
#include "elementwise.h"
#include "path.h"
#include "product.h"
#include "recurrence.h"

#define TEXT_OF(NAME) #NAME
#define TEXT(NAME) TEXT_OF(NAME)

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1 << 14)
#endif
#endif

namespace {

int32_t supported() {
#if defined(__AVX512BF16__)
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#elif defined(__AVX512VNNI__)
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");  // those have f16c as well
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && defined(__linux__)
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP);
#elif defined(__ARM_FEATURE_DOTPROD) && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return 1;
#endif
}

}  // namespace

#ifdef LLAMATH_SMALL  // for a page: neither packed inputs nor products of integers
#define pack_rows nullptr
#define compare_groups nullptr
#define quantize_rows nullptr
#define multiplies_int8 [](int32_t) -> int32_t { return 0; }
#endif

extern "C" const Path LLAMATH_IN_PATH(path) = {TEXT(LLAMATH_PATH), supported, HAS_BF16_PRODUCT,
                                               LLAMATH_KERNELS(LLAMATH_OWN_KERNEL)};
