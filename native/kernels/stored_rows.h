// Rows of a stored matrix in float32.

#ifndef LLAMATH_STORED_ROWS_H
#define LLAMATH_STORED_ROWS_H

#include "blocks.h"
#include "path.h"

namespace {

INLINE int64_t stride_of(const Matrix* w) {
    return w->row_stride ? w->row_stride : llamath_row_bytes(w->type, w->cols);
}

template <class T>
void convert_row(float* out, const T* row, int64_t cols, float scale) {
    int64_t k = 0;
    for (; k + W <= cols; k += W) store(out + k, load(row + k) * scale);
    for (; k < cols; k++) out[k] = to_float(load_as<T>(row + k)) * scale;
}

void dequantize_row(float* out, const Matrix* w, int64_t r) {
    const auto* row = static_cast<const uint8_t*>(w->data) + r * stride_of(w);
    switch (w->type) {
        case LLAMATH_F32:
            return convert_row(out, reinterpret_cast<const float*>(row), w->cols, 1.0f);
        case LLAMATH_BF16:
            return convert_row(out, reinterpret_cast<const bf16*>(row), w->cols, 1.0f);
        case LLAMATH_F16:
            return convert_row(out, reinterpret_cast<const f16*>(row), w->cols, 1.0f);
        case LLAMATH_I8:
            return convert_row(out, reinterpret_cast<const int8_t*>(row), w->cols, w->scales[r]);
        case LLAMATH_Q8_0:
            return dequantize_blocks<Q8_0>(out, row, w->cols);
        case LLAMATH_Q4_0:
            return dequantize_blocks<Q4_0>(out, row, w->cols);
        case LLAMATH_Q4_K:
            return dequantize_blocks<Q4_K>(out, row, w->cols);
        case LLAMATH_Q5_K:
            return dequantize_blocks<Q5_K>(out, row, w->cols);
        case LLAMATH_Q6_K:
            return dequantize_blocks<Q6_K>(out, row, w->cols);
        case LLAMATH_MXFP4:
            return dequantize_blocks<MXFP4>(out, row, w->cols);
    }
}

}  // namespace

#endif
