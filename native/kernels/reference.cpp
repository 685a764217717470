// The reference path: plain loops in the words of the formulas, with sums in double precision. The
// other paths are tested against it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "path.h"

namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

uint16_t bits16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

float from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

uint32_t to_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

float from_bf16(uint16_t bits) { return from_bits(static_cast<uint32_t>(bits) << 16); }

float from_f16(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * INF;
    return sign * (exponent ? std::ldexp(1024.0f + static_cast<float>(fraction), exponent - 25)
                            : std::ldexp(static_cast<float>(fraction), -24));
}

uint16_t to_bf16(float x) {
    const uint32_t bits = to_bits(x);
    return static_cast<uint16_t>(std::isnan(x) ? bits >> 16 | 0x40
                                               : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t to_f16(float x) {  // the nearest of all numbers of a half
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const float magnitude = std::fabs(x);
    if (std::isnan(x)) return 0x7e00;
    if (magnitude == 0) return sign;
    if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int place = std::max(exponent - 11, -24);  // of the last bit
    const auto value = static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, -place)));
    return static_cast<uint16_t>(sign | (value + (place + 24) * 1024));
}

// Weight `k` of a row of blocks, as in gguf/quants.py
float weight_at(const uint8_t* row, int32_t type, int64_t k) {
    const int64_t size = llamath_block_size(type);
    const uint8_t* b = row + k / size * llamath_block_bytes(type);
    const int i = static_cast<int>(k % size);
    const auto nibble = [i](const uint8_t* q) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; };
    switch (type) {
        case LLAMATH_F32:
            return from_bits(static_cast<uint32_t>(bits16(b) | bits16(b + 2) << 16));
        case LLAMATH_F16:
            return from_f16(bits16(b));
        case LLAMATH_BF16:
            return from_bf16(bits16(b));
        case LLAMATH_I8:
            return static_cast<int8_t>(b[0]);
        case LLAMATH_Q8_0:
            return from_f16(bits16(b)) * static_cast<float>(static_cast<int8_t>(b[2 + i]));
        case LLAMATH_Q4_0:
            return from_f16(bits16(b)) * static_cast<float>(nibble(b + 2) - 8);
        case LLAMATH_MXFP4: {
            const float values[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                      -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
            return static_cast<float>(
                std::ldexp(static_cast<double>(values[nibble(b + 1)]), b[0] - 127));
        }
        case LLAMATH_Q4_K:
        case LLAMATH_Q5_K: {
            const uint8_t* s = b + 4;
            const int j = i / 32;
            const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
            const int minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
            const uint8_t* low = b + (type == LLAMATH_Q4_K ? 16 : 48);
            int value = low[j / 2 * 32 + i % 32] >> (j % 2 * 4) & 15;
            if (type == LLAMATH_Q5_K) value |= (b[16 + i % 32] >> j & 1) << 4;
            const float product =
                from_f16(bits16(b)) * static_cast<float>(scale) * static_cast<float>(value);
            return product - from_f16(bits16(b + 2)) * static_cast<float>(minimum);
        }
        case LLAMATH_Q6_K: {
            const int half = i / 128, j = i % 128 / 32, l = i % 32;
            const int low = b[half * 64 + j % 2 * 32 + l] >> (j / 2 * 4) & 15,
                      high = b[128 + half * 32 + l] >> (2 * j) & 3;
            return from_f16(bits16(b + 208)) *
                   static_cast<float>(static_cast<int8_t>(b[192 + i / 16])) *
                   static_cast<float>((low | high << 4) - 32);
        }
        default:
            return std::numeric_limits<float>::quiet_NaN();
    }
}

void dequantize_row(float* out, const Matrix* w, int64_t r) {
    const int64_t stride = w->row_stride ? w->row_stride : llamath_row_bytes(w->type, w->cols);
    const auto* row = static_cast<const uint8_t*>(w->data) + r * stride;
    for (int64_t k = 0; k < w->cols; k++)
        out[k] = weight_at(row, w->type, k) * (w->scales ? w->scales[r] : 1.0f);
}

void compare_groups(GroupComparison* c) {
    c->num_beyond = c->num_differing = 0, c->first_differing = -1;
    c->square_difference = c->square_value = c->square_number = 0;
    c->largest_difference = c->largest_share = 0;
    const Matrix numbers = {c->numbers, nullptr, c->groups, c->size, 0, c->type, 0};
    std::vector<float> row(static_cast<size_t>(c->size));
    for (int64_t g = 0; g < c->groups; g++) {
        dequantize_row(row.data(), &numbers, g);
        const char* levels = static_cast<const char*>(c->levels) + g * c->level_stride;
        for (int64_t k = 0; k < c->size; k++) {
            const float level = c->is_signed ? static_cast<float>(static_cast<int8_t>(levels[k]))
                                             : static_cast<float>(static_cast<uint8_t>(levels[k]));
            const float value = level * c->scales[g] - (c->minimums ? c->minimums[g] : 0.0f),
                        number = row[k], difference = number - value;
            const float size = std::fabs(difference), share = size * c->reciprocals[g];
            c->square_difference += difference * difference;
            c->square_value += value * value;
            c->square_number += number * number;
            c->largest_difference = std::max(c->largest_difference, size);
            c->largest_share = std::max(c->largest_share, share);
            if (share > 1) c->beyond[c->num_beyond++] = static_cast<int32_t>(g * c->size + k);
            if (number != value && !c->num_differing++) c->first_differing = g * c->size + k;
        }
    }
}

int32_t always() { return 1; }
int32_t multiplies_int8(int32_t) { return 0; }
void quantize_rows(const Activations*, int64_t, int64_t) {}
void round_rows(const Activations*, int64_t, int64_t) {}
constexpr decltype(Path::pack_rows) pack_rows = nullptr;
int64_t product_memory(const Matrix* w) { return w->cols * static_cast<int64_t>(sizeof(float)); }

void product(const ProductPiece* p, int32_t, int32_t) {
    auto* row = reinterpret_cast<float*>(p->memory);
    for (int64_t r = p->first; r < p->last; r++) {
        dequantize_row(row, p->w, r);
        for (int64_t i = p->x_first; i < p->x_last; i++) {
            double total = 0;
            for (int64_t k = 0; k < p->w->cols; k++)
                total += static_cast<double>(row[k]) *
                         static_cast<double>(p->x->x[i * p->x->stride + k]);
            p->y[(i - p->x_first) * p->y_stride + r - p->first] = static_cast<float>(total);
        }
    }
}

void transposed_product(const ProductPiece* p) {
    const int64_t cols = p->w->cols;
    auto* row = reinterpret_cast<float*>(p->memory);
    for (int64_t i = p->x_first; i < p->x_last; i++) {
        std::vector<double> total(static_cast<size_t>(cols));
        for (int64_t r = p->first; r < p->last; r++) {
            dequantize_row(row, p->w, r);
            for (int64_t k = 0; k < cols; k++)
                total[k] += static_cast<double>(row[k]) *
                            static_cast<double>(p->x->x[i * p->x->stride + r - p->first]);
        }
        for (int64_t k = 0; k < cols; k++)
            p->y[(i - p->x_first) * cols + k] = static_cast<float>(total[k]);
    }
}

double sum_of_squares(const float* x, int64_t cols) {
    double total = 0;
    for (int64_t k = 0; k < cols; k++)
        total += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    return total;
}

void rms_norm(float* out, const float* x, int64_t cols, const float* weight, float eps,
              float offset) {
    const double factor = 1 / std::sqrt(sum_of_squares(x, cols) / static_cast<double>(cols) +
                                        static_cast<double>(eps));
    for (int64_t k = 0; k < cols; k++)
        out[k] = static_cast<float>(x[k] * factor *
                                    (weight ? static_cast<double>(weight[k] + offset) : 1.0));
}

void layer_norm(float* out, const float* x, int64_t cols, const float* weight, const float* bias,
                float eps, float offset) {
    double mean = 0, variance = 0;
    for (int64_t k = 0; k < cols; k++)
        mean += static_cast<double>(x[k]) / static_cast<double>(cols);
    for (int64_t k = 0; k < cols; k++)
        variance += (x[k] - mean) * (x[k] - mean) / static_cast<double>(cols);
    for (int64_t k = 0; k < cols; k++) {
        const double y = (x[k] - mean) / std::sqrt(variance + static_cast<double>(eps));
        out[k] = static_cast<float>(y * (weight ? static_cast<double>(weight[k] + offset) : 1.0) +
                                    (bias ? static_cast<double>(bias[k]) : 0.0));
    }
}

void l2_norm(float* out, const float* x, int64_t cols, float eps) {
    const double factor = 1 / std::sqrt(sum_of_squares(x, cols) + static_cast<double>(eps));
    for (int64_t k = 0; k < cols; k++) out[k] = static_cast<float>(x[k] * factor);
}

double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activate(double x, int32_t act) {
    switch (act) {
        case LLAMATH_SILU:
            return x * sigmoid(x);
        case LLAMATH_GELU:
            return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
        case LLAMATH_GELU_TANH:
            return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
        case LLAMATH_QUICK_GELU:
            return x * sigmoid(1.702 * x);
        case LLAMATH_RELU:
            return x < 0 ? 0 : x;
        case LLAMATH_RELU2:
            return x < 0 ? 0 : x * x;
        case LLAMATH_SIGMOID:
            return sigmoid(x);
        case LLAMATH_SOFTPLUS:
            return softplus(x);
        case LLAMATH_TANH:
            return std::tanh(x);
        default:
            return x;
    }
}

void act(float* out, const float* x, int64_t count, int32_t name) {
    for (int64_t k = 0; k < count; k++) out[k] = static_cast<float>(activate(x[k], name));
}
void gated(float* out, const float* gate, const float* up, int64_t count, int32_t name) {
    for (int64_t k = 0; k < count; k++)
        out[k] = static_cast<float>(activate(gate[k], name) * static_cast<double>(up[k]));
}
float limit_to(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
void clamped_gated(float* out, const float* gate, const float* up, int64_t count, int64_t step,
                   float limit, float alpha) {
    for (int64_t k = 0; k < count; k++) {
        const float g = gate[k * step] > limit ? limit : gate[k * step],
                    u = limit_to(up[k * step], -limit, limit);
        out[k] = static_cast<float>((static_cast<double>(u) + 1) * static_cast<double>(g) *
                                    sigmoid(static_cast<double>(alpha * g)));
    }
}
void multiply_add(float* out, const float* x, const float* y, int64_t count, float factor) {
    for (int64_t k = 0; k < count; k++) out[k] = x[k] + y[k] * factor;
}
void multiply(float* out, const float* x, const float* y, int64_t count) {
    for (int64_t k = 0; k < count; k++) out[k] = x[k] * y[k];
}
void scale(float* out, const float* x, int64_t count, float factor, float amount) {
    for (int64_t k = 0; k < count; k++) out[k] = x[k] * factor + amount;
}
void softcap(float* out, const float* x, int64_t count, float cap) {
    for (int64_t k = 0; k < count; k++)
        out[k] = static_cast<float>(static_cast<double>(cap) * std::tanh(static_cast<double>(x[k]) /
                                                                         static_cast<double>(cap)));
}
void clamp(float* out, const float* x, int64_t count, float low, float high) {
    for (int64_t k = 0; k < count; k++) out[k] = limit_to(x[k], low, high);
}
void softplus_bias(float* out, const float* x, const float* bias, int64_t cols, float low,
                   float high) {
    for (int64_t k = 0; k < cols; k++)
        out[k] =
            limit_to(static_cast<float>(softplus(static_cast<double>(x[k] + bias[k]))), low, high);
}

float largest(const float* x, int64_t count) {
    float most = -INF;
    for (int64_t k = 0; k < count; k++) most = x[k] > most ? x[k] : most;
    return most;
}

double sum_exp(const float* x, int64_t count, float most, float factor) {
    double total = 0;
    for (int64_t k = 0; k < count; k++)
        total += std::exp(static_cast<double>((x[k] - most) * factor));
    return total;
}

void softmax(float* out, const float* x, int64_t cols) {
    const float most = largest(x, cols);
    const double total = sum_exp(x, cols, most, 1.0f);
    for (int64_t k = 0; k < cols; k++)
        out[k] = static_cast<float>(std::exp(static_cast<double>(x[k] - most)) / total);
}

int64_t first_nonfinite(const float* x, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (!std::isfinite(x[k])) return k;
    return -1;
}

int64_t argmax(const float* x, int64_t count) {
    int64_t best = 0;
    for (int64_t k = 0; k < count; k++) {
        if (std::isnan(x[k])) return k;
        if (x[k] > x[best]) best = k;
    }
    return best;
}

void rope(float* out, const float* x, int64_t heads, int64_t head_dim, int64_t half,
          int32_t interleaved, const float* cos, const float* sin) {
    for (int64_t h = 0; h < heads; h++, out += head_dim, x += head_dim) {
        for (int64_t j = 0; j < half; j++) {
            const int64_t first = interleaved ? 2 * j : j,
                          second = interleaved ? 2 * j + 1 : j + half;
            const float a = x[first], b = x[second];
            out[first] = a * cos[j] - b * sin[j];
            out[second] = b * cos[j] + a * sin[j];
        }
        for (int64_t k = 2 * half; k < head_dim; k++) out[k] = x[k];
    }
}

void store_row(void* cache, int32_t type, const float* x, int64_t cols) {
    for (int64_t k = 0; k < cols; k++) {
        if (type == LLAMATH_F32)
            static_cast<float*>(cache)[k] = x[k];
        else
            static_cast<uint16_t*>(cache)[k] = type == LLAMATH_BF16 ? to_bf16(x[k]) : to_f16(x[k]);
    }
}

bool visible(const Attention& a, int64_t query, int64_t key, int64_t start) {
    if (key < start || query < start || key >= int64_t{a.past} + a.tokens) return false;
    if (a.causal && key > query) return false;
    if (a.window > 0 && query - key >= a.window) return false;
    return a.chunk <= 0 || (query - start) / a.chunk == (key - start) / a.chunk;
}

int64_t attention_memory(const Attention*, int64_t) { return 0; }

void attention(const AttentionPiece* p) {
    const Attention& a = *p->a;
    const int64_t group = a.heads / a.kv_heads, size = a.type == LLAMATH_F32 ? 4 : 2;
    const int64_t q_token = a.q_token ? a.q_token : int64_t{a.heads} * a.k_dim,
                  q_batch = a.q_batch ? a.q_batch : a.tokens * q_token;
    const auto element = [&](const void* base, int64_t at) {
        return weight_at(static_cast<const uint8_t*>(base) + at * size, a.type, 0);
    };
    for (int64_t n = 0; n < (p->last_query - p->first_query) * group; n++) {
        const int64_t token = p->first_query + n / group, head = p->kv_head * group + n % group,
                      query = a.past + token;
        const float* q = a.q + p->sequence * q_batch + token * q_token + head * a.k_dim;
        std::vector<double> scores, out(static_cast<size_t>(a.v_dim));
        std::vector<int64_t> slots;
        for (int64_t at = p->first_key; at < p->last_key; at++) {
            const int64_t row = int64_t{p->sequence} * a.tokens + token,
                          key = a.selected ? a.selected[row * a.num_selected + at] : at;
            if (key < 0 || !visible(a, query, key, a.start ? a.start[p->sequence] : 0)) continue;
            slots.push_back(a.ring ? key % a.ring : key - a.first_slot);
            double score = 0;
            for (int64_t c = 0; c < a.k_dim; c++)
                score += static_cast<double>(q[c]) *
                         static_cast<double>(element(a.k, p->sequence * a.k_batch +
                                                              slots.back() * a.k_token +
                                                              p->kv_head * a.k_head + c));
            score *= static_cast<double>(a.scale);
            if (a.softcap > 0)
                score = static_cast<double>(a.softcap) *
                        std::tanh(score / static_cast<double>(a.softcap));
            if (a.slopes)
                score += static_cast<double>(a.slopes[head]) * static_cast<double>(key - query);
            if (a.distance_bias && key <= query && query - key < a.num_distances)
                score += static_cast<double>(
                    a.distance_bias[(row * a.heads + head) * a.num_distances + query - key]);
            scores.push_back(score);
        }
        double most = -static_cast<double>(INF), total = 0;
        for (double s : scores) most = s > most ? s : most;
        for (size_t i = 0; i < scores.size(); i++) {
            const double weight =
                std::exp(scores[i] - (most == -static_cast<double>(INF) ? 0.0 : most));
            total += weight;
            for (int64_t c = 0; c < a.v_dim; c++)
                out[c] += weight * static_cast<double>(element(a.v, p->sequence * a.v_batch +
                                                                        slots[i] * a.v_token +
                                                                        p->kv_head * a.v_head + c));
        }
        p->largest[n] = static_cast<float>(most);
        p->total[n] =
            static_cast<float>(total * std::exp(most - static_cast<double>(p->largest[n])));
        if (most == -static_cast<double>(INF)) p->total[n] = static_cast<float>(total);
        for (int64_t c = 0; c < a.v_dim; c++) p->out[n * a.v_dim + c] = static_cast<float>(out[c]);
    }
}

void causal_conv(float* out, int64_t out_stride, const float* x, int64_t x_stride, float* state,
                 const float* weight, const float* bias, int64_t tokens, int64_t channels,
                 int64_t first, int64_t last, int64_t taps, int32_t name, int64_t pad) {
    for (int64_t c = first; c < last; c++) {
        std::vector<float> all;
        for (int64_t j = 0; j < taps - 1; j++) all.push_back(state[j * channels + c]);
        for (int64_t t = 0; t < tokens; t++) all.push_back(t < pad ? 0.0f : x[t * x_stride + c]);
        for (int64_t t = 0; t < tokens; t++) {
            double y = bias ? static_cast<double>(bias[c]) : 0.0;
            for (int64_t j = 0; j < taps; j++)
                y += static_cast<double>(weight[c * taps + j]) * static_cast<double>(all[t + j]);
            out[t * out_stride + c] = t < pad ? 0.0f : static_cast<float>(activate(y, name));
        }
        for (int64_t j = 0; j < taps - 1; j++) state[j * channels + c] = all[tokens + j];
    }
}

void delta_rule(const DeltaRule* r, int32_t sequence, int32_t head) {
    const int64_t n = r->n, m = r->m, heads = r->heads, group = head / (r->heads / r->groups),
                  decays = r->decay_per_row ? n : 1;
    const auto token = [](int64_t stride, int64_t otherwise) {
        return stride ? stride : otherwise;
    };
    float* state = r->state + (int64_t{sequence} * heads + head) * n * m;
    for (int64_t t = 0; t < r->tokens; t++) {
        const int64_t row = int64_t{sequence} * r->tokens + t;
        const float* q = r->q + row * token(r->q_token, r->groups * n) + group * n;
        const float* k = r->k + row * token(r->k_token, r->groups * n) + group * n;
        const float* v = r->v + row * token(r->v_token, heads * m) + head * m;
        const float* g = r->g + row * token(r->g_token, heads * decays) + head * decays;
        const double beta = static_cast<double>(r->beta[row * token(r->beta_token, heads) + head]);
        float* out = r->out + row * token(r->out_token, heads * m) + head * m;
        for (int64_t c = 0; c < m; c++) {
            out[c] = 0;
            if (r->pad && t < r->pad[sequence]) continue;
            double seen = 0, y = 0;
            for (int64_t i = 0; i < n; i++) {
                state[i * m + c] =
                    static_cast<float>(static_cast<double>(state[i * m + c]) *
                                       std::exp(static_cast<double>(g[r->decay_per_row ? i : 0])));
                seen += static_cast<double>(state[i * m + c]) * static_cast<double>(k[i]);
            }
            for (int64_t i = 0; i < n; i++) {
                state[i * m + c] = static_cast<float>(static_cast<double>(state[i * m + c]) +
                                                      beta * (static_cast<double>(v[c]) - seen) *
                                                          static_cast<double>(k[i]));
                y += static_cast<double>(state[i * m + c]) * static_cast<double>(q[i]);
            }
            out[c] = static_cast<float>(y);
        }
    }
}

void ssm_scan(const StateScan* r, int32_t sequence, int32_t head) {
    const int64_t n = r->n, m = r->m, heads = r->heads, group = head / (r->heads / r->groups);
    const auto token = [](int64_t stride, int64_t otherwise) {
        return stride ? stride : otherwise;
    };
    for (int64_t t = 0; t < r->tokens; t++) {
        const int64_t row = int64_t{sequence} * r->tokens + t;
        const float* x = r->x + row * token(r->x_token, heads * m) + head * m;
        const float* b = r->b + row * token(r->b_token, r->groups * n) + group * n;
        const float* c = r->c + row * token(r->c_token, r->groups * n) + group * n;
        const double dt = static_cast<double>(r->dt[row * token(r->dt_token, heads) + head]);
        const double decay = std::exp(-std::exp(static_cast<double>(r->a_log[head])) * dt);
        float* out = r->out + row * token(r->out_token, heads * m) + head * m;
        for (int64_t i = 0; i < m; i++) {
            double y =
                r->skip ? static_cast<double>(r->skip[head]) * static_cast<double>(x[i]) : 0.0;
            for (int64_t l = 0; l < n; l++) {
                float& s = r->state[((int64_t{sequence} * heads + head) * m + i) * n + l];
                if (r->pad && t < r->pad[sequence]) continue;
                s = static_cast<float>(decay * static_cast<double>(s) +
                                       dt * static_cast<double>(x[i]) * static_cast<double>(b[l]));
                y += static_cast<double>(s) * static_cast<double>(c[l]);
            }
            out[i] = r->pad && t < r->pad[sequence] ? 0.0f : static_cast<float>(y);
        }
    }
}

void selective_scan(const StateScan* r, int32_t sequence, int32_t first, int32_t last) {
    const int64_t n = r->n, channels = r->heads;
    const auto token = [](int64_t stride, int64_t otherwise) {
        return stride ? stride : otherwise;
    };
    for (int64_t t = 0; t < r->tokens; t++) {
        const int64_t row = int64_t{sequence} * r->tokens + t;
        const float *b = r->b + row * token(r->b_token, n), *c = r->c + row * token(r->c_token, n);
        for (int64_t i = first; i < last; i++) {
            const double x = static_cast<double>(r->x[row * token(r->x_token, channels) + i]),
                         dt = static_cast<double>(r->dt[row * token(r->dt_token, channels) + i]);
            float& out = r->out[row * token(r->out_token, channels) + i];
            double y = r->skip ? static_cast<double>(r->skip[i]) * x : 0.0;
            for (int64_t l = 0; l < n; l++) {
                float& s = r->state[(int64_t{sequence} * channels + i) * n + l];
                if (r->pad && t < r->pad[sequence]) continue;
                s = static_cast<float>(
                    std::exp(-std::exp(static_cast<double>(r->a_log[i * n + l])) * dt) *
                        static_cast<double>(s) +
                    dt * x * static_cast<double>(b[l]));
                y += static_cast<double>(s) * static_cast<double>(c[l]);
            }
            out = r->pad && t < r->pad[sequence] ? 0.0f : static_cast<float>(y);
        }
    }
}

}  // namespace

extern "C" const Path llamath_path_reference = {"reference", always, 0,
                                                LLAMATH_KERNELS(LLAMATH_OWN_KERNEL)};
