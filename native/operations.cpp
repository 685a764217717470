#include "operations.h"

#include "kernels/kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

float score(float x, int64_t scoring, float largest, float total) {
    if (scoring == 0) return std::exp(x - largest) / total;
    return scoring == 1 ? 1 / (1 + std::exp(-x)) : std::sqrt(softplus(x));
}

}  // namespace

void alibi_slopes(std::vector<float>& slopes, int64_t heads, double max_bias, double scale) {
    int64_t power = 1;
    while (2 * power <= heads) power *= 2;
    for (int64_t i = 1; i <= power; i++)
        slopes.push_back(static_cast<float>(std::exp2(-max_bias * i / power) * scale));
    for (int64_t i = 1; i < 2 * (heads - power) + 1; i += 2)
        slopes.push_back(static_cast<float>(std::exp2(-max_bias * i / (2 * power)) * scale));
}

void scale_by_weight(float* out, const float* x, const float* w, int64_t n, int64_t heads,
                     int64_t dim, int64_t size) {
    for (int64_t i = 0; i < n * heads; i++)
        for (int64_t j = 0; j < dim; j++) {
            float factor = w[size == 1 ? 0 : heads == 1 ? j : i % heads];
            out[i * dim + j] = x[i * dim + j] * factor;
        }
}

void scale_by_position(float* out, const float* x, const int32_t* positions, int64_t n,
                       int64_t size, int64_t kind, float scale, float floor, float offset) {
    for (int64_t i = 0; i < n; i++) {
        float t = static_cast<float>(positions[i]), factor;
        if (kind == 1)
            factor = 1 + scale * std::log(std::max((t + 1) / floor, 1.0f));
        else if (kind == 2)
            factor = 1 + scale * std::log(1 + std::floor((t + offset) / floor));
        else
            factor = std::max(std::log(t + 1) / std::log(floor), 1.0f);
        for (int64_t j = 0; j < size; j++) out[i * size + j] = x[i * size + j] * factor;
    }
}

void route_by_token(int32_t* chosen, float* weights, const float* logits, int64_t n,
                    int64_t experts, const int32_t* ids, const float* table, int64_t table_rows,
                    int64_t top_k, int64_t scoring, float scaling) {
    for (int64_t i = 0; i < n; i++) {
        const float* x = logits + i * experts;
        float largest = *std::max_element(x, x + experts), total = 0, sum = 0;
        for (int64_t j = 0; j < experts; j++) total += std::exp(x[j] - largest);
        for (int64_t k = 0; k < top_k; k++) {
            float expert = ids[i] >= 0 && ids[i] < table_rows ? table[ids[i] * top_k + k] : 0;
            // NaN is expert 0; in double precision, since float32 does not have every number of an
            // expert
            chosen[i * top_k + k] =
                static_cast<int32_t>(expert > 0 ? std::min<double>(expert, experts - 1) : 0);
            sum += weights[i * top_k + k] =
                score(x[chosen[i * top_k + k]], scoring, largest, total);
        }
        for (int64_t k = 0; k < top_k; k++)
            weights[i * top_k + k] = weights[i * top_k + k] / (sum + 1e-20f) * scaling;
    }
}

void dispatch(float* out, const float* x, const float* weights, int64_t n, int64_t cols,
              int64_t top_k) {
    for (int64_t p = 0; p < n * top_k; p++)
        for (int64_t j = 0; j < cols; j++) out[p * cols + j] = x[p / top_k * cols + j] * weights[p];
}

void scale_by_expert(float* out, const float* weights, const int32_t* chosen, const float* scale,
                     int64_t count, int64_t experts) {
    for (int64_t i = 0; i < count; i++)
        out[i] = chosen[i] >= 0 && chosen[i] < experts ? weights[i] * scale[chosen[i]] : NAN;
}

void add_sinusoids(float* out, const float* x, const int32_t* positions, int64_t n, int64_t size,
                   int64_t offset, int64_t steps) {
    int64_t half = size / 2;
    float step = -std::log(10000.0f) / static_cast<float>(steps);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < half; j++) {
            float angle =
                static_cast<float>(positions[i] + offset) * std::exp(static_cast<float>(j) * step);
            out[i * size + j] = x[i * size + j] + std::sin(angle);
            out[i * size + half + j] = x[i * size + half + j] + std::cos(angle);
        }
}

void mix_streams(float* out, const float* x, const float* weights, int64_t n, int64_t outputs,
                 int64_t streams, int64_t cols) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t m = 0; m < outputs; m++) {
            float* to = out + (i * outputs + m) * cols;
            std::fill(to, to + cols, 0.0f);
            for (int64_t s = 0; s < streams; s++) {
                float w = weights[(i * outputs + m) * streams + s];
                const float* from = x + (i * streams + s) * cols;
                for (int64_t j = 0; j < cols; j++) to[j] += w * from[j];
            }
        }
}

void sinkhorn(float* out, const float* x, int64_t n, int64_t size, int64_t iterations, float eps) {
    std::vector<float> y(size * size);
    auto divide = [&](bool columns) {
        for (int64_t a = 0; a < size; a++) {
            float sum = eps;
            for (int64_t b = 0; b < size; b++) sum += y[columns ? b * size + a : a * size + b];
            for (int64_t b = 0; b < size; b++) y[columns ? b * size + a : a * size + b] /= sum;
        }
    };
    for (int64_t i = 0; i < n; i++) {
        const float* from = x + i * size * size;
        for (int64_t r = 0; r < size; r++) {
            float largest = *std::max_element(from + r * size, from + (r + 1) * size), sum = 0;
            for (int64_t c = 0; c < size; c++)
                sum += y[r * size + c] = std::exp(from[r * size + c] - largest);
            for (int64_t c = 0; c < size; c++) y[r * size + c] = y[r * size + c] / sum + eps;
        }
        divide(true);
        for (int64_t k = 1; k < iterations; k++) divide(false), divide(true);
        for (int64_t r = 0; r < size; r++)
            for (int64_t c = 0; c < size; c++)
                out[i * size * size + r * size + c] = y[c * size + r];
    }
}

void normalize_sum(float* out, const float* x, int64_t n, int64_t cols) {
    for (int64_t i = 0; i < n; i++, x += cols, out += cols) {
        float sum = 0;
        for (int64_t j = 0; j < cols; j++) sum += x[j];
        for (int64_t j = 0; j < cols; j++) out[j] = x[j] / sum;
    }
}

// w in eight bits, each row with the scale that its largest number needs.
extern "C" int32_t llamath_quantize_int8(int8_t* values, float* scales, const Matrix* w) {
    if (!llamath_fits(w)) return -1;
    std::vector<float> row(w->cols);
    for (int64_t r = 0; r < w->rows; r++) {
        llamath_dequantize_row(row.data(), w, r);
        float largest = 0;
        for (float x : row)
            largest = std::abs(x) > largest || std::isnan(x) ? std::abs(x) : largest;
        scales[r] = largest / 127;
        for (int64_t c = 0; c < w->cols; c++)
            values[r * w->cols + c] =
                largest > 0 ? static_cast<int8_t>(std::lrint(row[c] / scales[r])) : 0;
    }
    return 0;
}
