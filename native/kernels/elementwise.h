// Norms, activations, rotary positions and other operations on the elements of one row.

#ifndef LLAMATH_ELEMENTWISE_H
#define LLAMATH_ELEMENTWISE_H

#include "path.h"
#include "simd.h"

namespace {

// Calls f(offset, vector loader, vector storer) for every vector of a row; the last one is padded
template <class Function>
INLINE void for_vectors(float* out, const float* x, int64_t count, Function f) {
    int64_t k = 0;
    for (; k + W <= count; k += W) store(out + k, f(load(x + k), k, W));
    if (k < count) {
        const F y = f(load_part(x + k, count - k), k, count - k);
        memcpy(out + k, &y, static_cast<size_t>(count - k) * sizeof(float));
    }
}
INLINE F load_up_to(const float* p, int64_t n) { return n == W ? load(p) : load_part(p, n); }

INLINE float sum_of_squares(const float* x, int64_t cols) {
    F sums[4] = {};
    int64_t k = 0;
    for (; k + 4 * W <= cols; k += 4 * W)
        for (int u = 0; u < 4; u++) {
            const F v = load(x + k + u * W);
            sums[u] += v * v;
        }
    for (; k < cols; k += W) {
        const F v = load_up_to(x + k, min_of(W, cols - k));
        sums[0] += v * v;
    }
    return sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void rms_norm(float* out, const float* x, int64_t cols, const float* weight, float eps,
              float offset) {
    const float factor = 1.0f / sqrtf(sum_of_squares(x, cols) / static_cast<float>(cols) + eps);
    for_vectors(out, x, cols, [=](F v, int64_t k, int64_t n) INLINE_LAMBDA {
        const F y = v * factor;
        return weight ? y * (load_up_to(weight + k, n) + offset) : y;
    });
}

void layer_norm(float* out, const float* x, int64_t cols, const float* weight, const float* bias,
                float eps, float offset) {
    F sums = {};
    for (int64_t k = 0; k < cols; k += W) sums += load_up_to(x + k, min_of(W, cols - k));
    const float mean = sum(sums) / static_cast<float>(cols);
    F squares = {};
    for (int64_t k = 0; k < cols; k += W) {
        const int64_t n = min_of(W, cols - k);
        const F v = load_up_to(x + k, n) - mean;
        squares += n == W ? v * v : load_part(reinterpret_cast<const float*>(&v), n) * v;
    }
    const float factor = 1.0f / sqrtf(sum(squares) / static_cast<float>(cols) + eps);
    for_vectors(out, x, cols, [=](F v, int64_t k, int64_t n) INLINE_LAMBDA {
        F y = (v - mean) * factor;
        if (weight) y *= load_up_to(weight + k, n) + offset;
        return bias ? y + load_up_to(bias + k, n) : y;
    });
}

void l2_norm(float* out, const float* x, int64_t cols, float eps) {
    const float factor = 1.0f / sqrtf(sum_of_squares(x, cols) + eps);
    for_vectors(out, x, cols, [=](F v, int64_t, int64_t) INLINE_LAMBDA { return v * factor; });
}

// Activation functions

INLINE F sigmoid(F x) { return 1.0f / (1.0f + vexp(-x)); }
INLINE F vtanh(F x) {
    const F magnitude = vabs(x), e = vexp(magnitude * -2.0f);
    const F large = (1.0f - e) / (1.0f + e), square = x * x;
    F small = square * -5.70498872745e-3f + 2.06390887954e-2f;  // Cephes' polynomial below 0.625
    small = small * square - 5.37397155531e-2f;
    small = small * square + 1.33314422036e-1f;
    small = small * square - 3.33332819422e-1f;
    small = small * square * x + x;
    return choose(magnitude < 0.625f, small, choose(x < 0.0f, -large, large));
}
INLINE F each(F x, float (*function)(float)) {
    float values[W];
    store(values, x);
    for (int i = 0; i < W; i++) values[i] = function(values[i]);
    return load(values);
}
INLINE float softplus_of(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}  // torch is linear from 20 on

template <int ACT>
INLINE F activate(F x) {
    switch (ACT) {
        case LLAMATH_SILU:
            return x * sigmoid(x);
        case LLAMATH_GELU:
            return 0.5f * x * (1.0f + each(x * 0.70710678f, erff));
        case LLAMATH_GELU_TANH:
            return 0.5f * x * (1.0f + vtanh(0.79788456f * (x + 0.044715f * x * x * x)));
        case LLAMATH_QUICK_GELU:
            return x * sigmoid(1.702f * x);
        case LLAMATH_RELU:
            return choose(x < 0.0f, (F){}, x);
        case LLAMATH_RELU2: {
            const F y = choose(x < 0.0f, (F){}, x);
            return y * y;
        }
        case LLAMATH_SIGMOID:
            return sigmoid(x);
        case LLAMATH_SOFTPLUS:
            return each(x, softplus_of);
        case LLAMATH_TANH:
            return vtanh(x);
        default:
            return x;
    }
}

template <class Function>
INLINE void with_act(int32_t act, Function f) {
    switch (act) {
        case LLAMATH_SILU:
            return f(Constant<LLAMATH_SILU>());
        case LLAMATH_GELU:
            return f(Constant<LLAMATH_GELU>());
        case LLAMATH_GELU_TANH:
            return f(Constant<LLAMATH_GELU_TANH>());
        case LLAMATH_QUICK_GELU:
            return f(Constant<LLAMATH_QUICK_GELU>());
        case LLAMATH_RELU:
            return f(Constant<LLAMATH_RELU>());
        case LLAMATH_RELU2:
            return f(Constant<LLAMATH_RELU2>());
        case LLAMATH_SIGMOID:
            return f(Constant<LLAMATH_SIGMOID>());
        case LLAMATH_SOFTPLUS:
            return f(Constant<LLAMATH_SOFTPLUS>());
        case LLAMATH_TANH:
            return f(Constant<LLAMATH_TANH>());
        default:
            return f(Constant<LLAMATH_IDENTITY>());
    }
}

void act(float* out, const float* x, int64_t count, int32_t act) {
    with_act(act, [=](auto name) INLINE_LAMBDA {
        for_vectors(out, x, count, [](F v, int64_t, int64_t) INLINE_LAMBDA {
            return activate<decltype(name)::value>(v);
        });
    });
}

void gated(float* out, const float* gate, const float* up, int64_t count, int32_t act) {
    with_act(act, [=](auto name) INLINE_LAMBDA {
        for_vectors(out, gate, count, [=](F v, int64_t k, int64_t n) INLINE_LAMBDA {
            return activate<decltype(name)::value>(v) * load_up_to(up + k, n);
        });
    });
}

void clamped_gated(float* out, const float* gate, const float* up, int64_t count, int64_t step,
                   float limit, float alpha) {
    for (int64_t k = 0; k < count; k += W) {
        const int64_t n = min_of(W, count - k);
        float g_part[W] = {}, u_part[W] = {};
        for (int64_t i = 0; i < n; i++)
            g_part[i] = gate[(k + i) * step], u_part[i] = up[(k + i) * step];
        const F raw = load(g_part), u = load(u_part), g = choose(raw > limit, set1(limit), raw);
        const F bounded = choose(u > limit, set1(limit), choose(u < -limit, set1(-limit), u));
        const F y = (bounded + 1.0f) * g * sigmoid(alpha * g);
        memcpy(out + k, &y, static_cast<size_t>(n) * sizeof(float));
    }
}

void multiply_add(float* out, const float* x, const float* y, int64_t count, float factor) {
    for_vectors(out, x, count, [=](F v, int64_t k, int64_t n) INLINE_LAMBDA {
        return v + load_up_to(y + k, n) * factor;
    });
}
void multiply(float* out, const float* x, const float* y, int64_t count) {
    for_vectors(out, x, count,
                [=](F v, int64_t k, int64_t n) INLINE_LAMBDA { return v * load_up_to(y + k, n); });
}
void scale(float* out, const float* x, int64_t count, float factor, float amount) {
    for_vectors(out, x, count,
                [=](F v, int64_t, int64_t) INLINE_LAMBDA { return v * factor + amount; });
}
void softcap(float* out, const float* x, int64_t count, float cap) {
    for_vectors(out, x, count,
                [=](F v, int64_t, int64_t) INLINE_LAMBDA { return cap * vtanh(v / cap); });
}
void clamp(float* out, const float* x, int64_t count, float low, float high) {
    for_vectors(out, x, count, [=](F v, int64_t, int64_t) INLINE_LAMBDA {
        return choose(v > high, set1(high), choose(v < low, set1(low), v));
    });
}
void softplus_bias(float* out, const float* x, const float* bias, int64_t cols, float low,
                   float high) {
    for (int64_t k = 0; k < cols; k++) {
        const float y = softplus_of(x[k] + bias[k]);
        out[k] = y < low ? low : y > high ? high : y;
    }
}

// The largest number of x; NaN counts as smaller than any
INLINE float largest_of(const float* x, int64_t count) {
    F high = set1(-__builtin_inff());
    for (int64_t k = 0; k + W <= count; k += W) high = vmax(load(x + k), high);
    float most = largest(high);
    for (int64_t k = count / W * W; k < count; k++) most = x[k] > most ? x[k] : most;
    return most;
}

void softmax(float* out, const float* x, int64_t cols) {
    const float most = largest_of(x, cols);
    F total = {};
    for_vectors(out, x, cols, [&](F v, int64_t, int64_t n) INLINE_LAMBDA {
        const F e = vexp(v - most);
        total += n == W ? e : load_part(reinterpret_cast<const float*>(&e), n);
        return e;
    });
    const float factor = 1.0f / sum(total);
    for_vectors(out, out, cols, [=](F v, int64_t, int64_t) INLINE_LAMBDA { return v * factor; });
}

int64_t first_nonfinite(const float* x, int64_t count) {
    for (int64_t k = 0; k < count; k += 64 * W) {
        const int64_t end = min_of(k + 64 * W, count);
        F zero = {};
        for (int64_t i = k; i < end; i += W) zero += load_up_to(x + i, min_of(W, end - i)) * 0.0f;
        if (sum(zero) == 0.0f) continue;
        for (int64_t i = k; i < end; i++)
            if (!(x[i] - x[i] == 0.0f)) return i;
    }
    return -1;
}

int64_t argmax(const float* x, int64_t count) {
    float most = -__builtin_inff();
    int64_t at = 0;
    for (int64_t k = 0; k < count;
         k += 64 * W) {  // only a block with something larger is searched for its place
        const int64_t end = min_of(k + 64 * W, count);
        I found = {};
        for (int64_t i = k; i < end; i += W) {
            const F v = end - i >= W ? load(x + i) : load_part(x + i, end - i);
            found |= (v > most) | (v != v);
        }
        bool any = false;
        for (int l = 0; l < W; l++) any |= found[l] != 0;
        for (int64_t i = k; any && i < end; i++) {
            if (x[i] != x[i]) return i;
            if (x[i] > most) most = x[i], at = i;
        }
    }
    return at;
}

double sum_exp(const float* x, int64_t count, float most, float factor) {
    double total = 0;
    for (int64_t k = 0; k < count; k += 16 * W) {
        const int64_t end = min_of(k + 16 * W, count);
        F part = {};
        for (int64_t i = k; i < end; i += W) {
            const F e = vexp((load_up_to(x + i, min_of(W, end - i)) - most) * factor);
            part += end - i >= W ? e : load_part(reinterpret_cast<const float*>(&e), end - i);
        }
        total += static_cast<double>(sum(part));
    }
    return total;
}

void rope(float* out, const float* x, int64_t heads, int64_t head_dim, int64_t half,
          int32_t interleaved, const float* cos, const float* sin) {
    for (int64_t h = 0; h < heads; h++, out += head_dim, x += head_dim) {
        if (interleaved) {
            for (int64_t j = 0; j < half; j++) {
                const float a = x[2 * j], b = x[2 * j + 1];
                out[2 * j] = a * cos[j] - b * sin[j];
                out[2 * j + 1] = b * cos[j] + a * sin[j];
            }
        } else {
            int64_t j = 0;
            for (; j + W <= half; j += W) {
                const F a = load(x + j), b = load(x + half + j), c = load(cos + j),
                        s = load(sin + j);
                store(out + j, a * c - b * s);
                store(out + half + j, b * c + a * s);
            }
            for (; j < half; j++) {
                const float a = x[j], b = x[half + j];
                out[j] = a * cos[j] - b * sin[j];
                out[half + j] = b * cos[j] + a * sin[j];
            }
        }
        if (out != x)
            memcpy(out + 2 * half, x + 2 * half,
                   static_cast<size_t>(head_dim - 2 * half) * sizeof(float));
    }
}

void store_row(void* cache, int32_t type, const float* x, int64_t cols) {
    if (type == LLAMATH_F32) {
        memcpy(cache, x, static_cast<size_t>(cols) * sizeof(float));
    } else if (type == LLAMATH_BF16) {
        auto* out = static_cast<uint16_t*>(cache);
        int64_t k = 0;
        for (; k + W <= cols; k += W) {
            const H rounded = float_to_bf16(load(x + k));
            memcpy(out + k, &rounded, sizeof rounded);
        }
        for (; k < cols; k++) out[k] = to_bf16(x[k]).bits;
    } else {
        auto* out = static_cast<uint16_t*>(cache);
        for (int64_t k = 0; k < cols; k++) out[k] = to_f16(x[k]).bits;
    }
}

}  // namespace

#endif
