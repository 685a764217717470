// Products of many rows of inputs, one panel of interleaved rows of weights after the other.
// Compiled once for each instruction set, like path.cpp, which calls it; apart from it, so that
// both compile at the same time.

#include "panel.h"
#include "path.h"
#include "stored_rows.h"

namespace {

void float_panels(const ProductPiece& p, int64_t row_bytes) {
    auto* panel = reinterpret_cast<uint32_t*>(p.memory);
    for_panels(p, [&](int64_t row, int64_t k0, int64_t count, bool first) INLINE_LAMBDA {
        const PanelRows rows(p, row, row_bytes, k0 * 4, (k0 + PANEL_COLS) * 4);
        transpose_rows(rows.at, rows.ahead, count, panel);
        multiply_tiles(FloatPanel{reinterpret_cast<const float*>(panel)}, p, row, k0, count, first);
    });
}

void pair_panels(const ProductPiece& p, int64_t row_bytes, int32_t mode) {
    auto* panel = reinterpret_cast<uint32_t*>(p.memory);
    (void)mode;
    for_panels(p, [&](int64_t row, int64_t k0, int64_t count, bool first) INLINE_LAMBDA {
        const PanelRows rows(p, row, row_bytes, k0 * 2, (k0 + PANEL_COLS) * 2);
        transpose_rows(rows.at, rows.ahead, count / 2, panel);
        if (count % 2)
            for (int r = 0; r < W; r++)
                panel[count / 2 * W + r] = load_as<uint16_t>(rows.at[r] + (count - 1) * 2);
#if defined(__AVX512BF16__) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
        if (mode == BF16_PRODUCT) return multiply_tiles(Bf16Panel{panel}, p, row, k0, count, first);
#endif
        multiply_tiles(PairPanel{panel}, p, row, k0, count, first);
    });
}

// Rows that are converted to float32 first: `convert` writes columns k0 ... k0 + count of a row
template <class Convert>
INLINE void converted_panels(const ProductPiece& p, Convert convert) {
    auto* panel = reinterpret_cast<uint32_t*>(p.memory);
    constexpr int64_t
        STEP = 256,
        STRIDE = STEP + 16;  // both fit in the first cache, and rows begin in different sets of it
    auto* converted = reinterpret_cast<float*>(p.memory) + PANEL_COLS * W;
    for_panels<STEP>(p, [&](int64_t row, int64_t k0, int64_t count, bool first) INLINE_LAMBDA {
        const char* rows[W];
        for (int r = 0; r < W; r++) {
            rows[r] = reinterpret_cast<const char*>(converted + r * STRIDE);
            convert(converted + r * STRIDE, min_of(p.first + row + r, p.last - 1), k0, count);
        }
        transpose_rows(rows, nullptr, count, panel);
        multiply_tiles(FloatPanel{reinterpret_cast<const float*>(panel)}, p, row, k0, count, first);
    });
}

template <class B>
void block_panels(const ProductPiece& p, int64_t row_bytes) {
    auto* panel = reinterpret_cast<uint32_t*>(p.memory);                  // [PANEL_COLS / 4][W]
    auto* bytes = reinterpret_cast<uint8_t*>(p.memory) + PANEL_COLS * W;  // [W][PANEL_COLS]
    auto* scales = reinterpret_cast<float*>(bytes + PANEL_COLS * W);      // [PANEL_COLS / PER][W]
    float* minimums = scales + PANEL_COLS / B::PER * W;                   // [PANEL_COLS / 32][W]
    const char* rows[W];
    for (int r = 0; r < W; r++) rows[r] = reinterpret_cast<const char*>(bytes + r * PANEL_COLS);
    for_panels(p, [&](int64_t row, int64_t k0, int64_t count, bool first) INLINE_LAMBDA {
        const PanelRows from(p, row, row_bytes, k0 / B::BLOCK * B::BLOCK_BYTES,
                             (k0 + PANEL_COLS) / B::BLOCK * B::BLOCK_BYTES);
        for (int r = 0; r < W; r++) {
            const auto* b = reinterpret_cast<const uint8_t*>(from.at[r]);
            const char* ahead = from.ahead[r];
            for (int64_t k = 0; k < count;
                 k += B::SUPER, b += B::BYTES_EACH, ahead += B::BYTES_EACH) {
                uint8_t pair[B::BYTES_EACH];
                if (k + B::SUPER > count) {
                    memset(pair, 0, sizeof pair);
                    memcpy(pair, b, B::BLOCK_BYTES);
                    b = pair;
                }
                for (int l = 0; l < B::BYTES_EACH; l += 64) __builtin_prefetch(ahead + l, 0, 2);
                Scales s;
                B::scales(b, s);
                UNROLL for (int i = 0; i < B::SUPER / B::PER; i++)
                    scales[(k / B::PER + i) * W + r] = s.of[i];
                if (!B::SIGNED)
                    UNROLL for (int i = 0; i < B::SUPER / 32; i++) minimums[(k / 32 + i) * W + r] =
                        s.minimums[i];
                UNROLL for (int j = 0; j < B::SUPER / 64; j++) {
                    Bytes64 some = B::unpack(b, j);
                    if (B::SIGNED && BIASED)
                        UNROLL for (int i = 0; i < PARTS; i++) some.part[i] +=
                            static_cast<uint8_t>(B::BIAS);
                    memcpy(bytes + r * PANEL_COLS + k + 64 * j, &some, 64);
                }
            }
        }
        const int64_t padded = (count + 63) / 64 * 64;
        if (B::SIGNED && BIASED && B::PER == 32)
            for (int64_t g = 0; g < padded / 32; g++)
                store(minimums + g * W, load(scales + g * W) * static_cast<float>(B::BIAS));
        transpose_rows(rows, nullptr, padded / 4, panel);
        multiply_tiles(BlockPanel<B>{panel, scales, minimums}, p, row, k0, count, first);
    });
}

// Columns of a row in float32: `row` is where the first of them, a multiple of 256, is stored
template <class T>
INLINE void convert_columns(float* out, const ProductPiece& p, int64_t r, int64_t k0,
                            int64_t count) {
    const char* row = static_cast<const char*>(p.w->data) + r * stride_of(p.w) +
                      k0 * static_cast<int64_t>(sizeof(T));
    convert_row(out, reinterpret_cast<const T*>(row), count, p.w->scales ? p.w->scales[r] : 1.0f);
}

void dequantize_columns(float* out, const ProductPiece& p, int64_t r, int64_t k0, int64_t count) {
    Matrix some = *p.w;
    some.row_stride = stride_of(p.w);
    some.data = static_cast<const char*>(p.w->data) + llamath_row_bytes(p.w->type, k0);
    some.cols = count;
    dequantize_row(out, &some, r);
}

INLINE void multiply_packed(const ProductPiece& p, int32_t mode, int64_t row_bytes) {
    if (mode == INT8_PRODUCT) {
        switch (p.w->type) {
            case LLAMATH_Q8_0:
                return block_panels<Q8_0>(p, row_bytes);
            case LLAMATH_Q4_0:
                return block_panels<Q4_0>(p, row_bytes);
            case LLAMATH_Q4_K:
                return block_panels<Q4_K>(p, row_bytes);
            case LLAMATH_Q5_K:
                return block_panels<Q5_K>(p, row_bytes);
            case LLAMATH_Q6_K:
                return block_panels<Q6_K>(p, row_bytes);
            case LLAMATH_MXFP4:
                return block_panels<MXFP4>(p, row_bytes);
        }
    }
    switch (p.w->type) {
        case LLAMATH_F32:
            return float_panels(p, row_bytes);
        case LLAMATH_BF16:
            return pair_panels(p, row_bytes, mode);
        case LLAMATH_F16:
            return converted_panels(p, [&](float* out, int64_t r, int64_t k0, int64_t count) {
                convert_columns<f16>(out, p, r, k0, count);
            });
        case LLAMATH_I8:
            return converted_panels(p, [&](float* out, int64_t r, int64_t k0, int64_t count) {
                convert_columns<int8_t>(out, p, r, k0, count);
            });
        default:
            return converted_panels(p, [&](float* out, int64_t r, int64_t k0, int64_t count) {
                dequantize_columns(out, p, r, k0, count);
            });
    }
}

}  // namespace

extern "C" void LLAMATH_IN_PATH(packed_product)(const ProductPiece* p, int32_t mode,
                                                int64_t row_bytes) {
    multiply_packed(*p, mode, row_bytes);
}
