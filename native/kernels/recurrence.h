// Recurrences of one head or of a range of channels, token by token; states are updated in place.

#ifndef LLAMATH_RECURRENCE_H
#define LLAMATH_RECURRENCE_H

#include "elementwise.h"

namespace {

// out[t, c] for channels first ... last; `state` are the taps - 1 inputs before
void causal_conv(float* out, int64_t out_stride, const float* x, int64_t x_stride, float* state,
                 const float* weight, const float* bias, int64_t tokens, int64_t channels,
                 int64_t first, int64_t last, int64_t taps, int32_t act_name, int64_t pad) {
    const int64_t before = taps - 1;
    for (int64_t c = first; c < last; c += W) {
        const int64_t n = min_of(W, last - c);
        for (int64_t t = 0; t < tokens; t++) {
            F y = bias ? load_up_to(bias + c, n) : (F){};
            for (int64_t j = 0; j < taps; j++) {
                const int64_t at = t - before + j;
                if (at >= 0 && at < pad) continue;
                const float* from =
                    at < 0 ? state + (before + at) * channels + c : x + at * x_stride + c;
                float w[W] = {};
                for (int64_t i = 0; i < n; i++) w[i] = weight[(c + i) * taps + j];
                y += load(w) * load_up_to(from, n);
            }
            if (t < pad) y = (F){};
            memcpy(out + t * out_stride + c, &y, static_cast<size_t>(n) * sizeof(float));
        }
        for (int64_t j = 0; j < before;
             j++) {  // the new state, from the oldest on: each is read before it is overwritten
            const int64_t at = tokens - before + j;
            const F v =
                at >= 0 && at < pad
                    ? (F){}
                    : load_up_to(
                          at < 0 ? state + (before + at) * channels + c : x + at * x_stride + c, n);
            memcpy(state + j * channels + c, &v, static_cast<size_t>(n) * sizeof(float));
        }
    }
    for (int64_t t = pad; act_name != LLAMATH_IDENTITY && t < tokens; t++)
        act(out + t * out_stride + first, out + t * out_stride + first, last - first, act_name);
}

void delta_rule(const DeltaRule* r, int32_t sequence, int32_t head) {
    const int64_t n = r->n, m = r->m, heads = r->heads, group = head / (r->heads / r->groups);
    const int64_t q_token = r->q_token ? r->q_token : r->groups * n,
                  k_token = r->k_token ? r->k_token : r->groups * n;
    const int64_t v_token = r->v_token ? r->v_token : heads * m,
                  out_token = r->out_token ? r->out_token : heads * m;
    const int64_t decays = r->decay_per_row ? n : 1,
                  g_token = r->g_token ? r->g_token : heads * decays,
                  beta_token = r->beta_token ? r->beta_token : heads;
    float* state = r->state + (int64_t{sequence} * heads + head) * n * m;  // [n, m]
    const int64_t pad = r->pad ? r->pad[sequence] : 0;
    for (int64_t t = 0; t < r->tokens; t++) {
        const int64_t row = int64_t{sequence} * r->tokens + t;
        float* out = r->out + row * out_token + head * m;
        memset(out, 0, static_cast<size_t>(m) * sizeof(float));
        if (t < pad) continue;
        const float *q = r->q + row * q_token + group * n, *k = r->k + row * k_token + group * n,
                    *v = r->v + row * v_token + head * m;
        const float* g = r->g + row * g_token + head * decays;
        const float beta = r->beta[row * beta_token + head], decay = expf(g[0]);
        for (int64_t c = 0; c < m; c += W) {
            const int64_t width = min_of(W, m - c);
            F seen = {};  // (e^g S)^T k
            for (int64_t i = 0; i < n; i++) {
                const F s =
                    load_up_to(state + i * m + c, width) * (r->decay_per_row ? expf(g[i]) : decay);
                seen += s * k[i];
                memcpy(state + i * m + c, &s, static_cast<size_t>(width) * sizeof(float));
            }
            const F u = (load_up_to(v + c, width) - seen) * beta;
            F y = {};
            for (int64_t i = 0; i < n; i++) {
                const F s = load_up_to(state + i * m + c, width) + u * k[i];
                y += s * q[i];
                memcpy(state + i * m + c, &s, static_cast<size_t>(width) * sizeof(float));
            }
            memcpy(out + c, &y, static_cast<size_t>(width) * sizeof(float));
        }
    }
}

void ssm_scan(const StateScan* r, int32_t sequence, int32_t head) {
    const int64_t n = r->n, m = r->m, heads = r->heads, group = head / (r->heads / r->groups);
    const int64_t x_token = r->x_token ? r->x_token : heads * m,
                  out_token = r->out_token ? r->out_token : heads * m;
    const int64_t b_token = r->b_token ? r->b_token : r->groups * n,
                  c_token = r->c_token ? r->c_token : r->groups * n;
    const int64_t dt_token = r->dt_token ? r->dt_token : heads, pad = r->pad ? r->pad[sequence] : 0;
    float* state = r->state + (int64_t{sequence} * heads + head) * m * n;  // [m, n]
    const float rate = -expf(r->a_log[head]);
    for (int64_t t = 0; t < r->tokens; t++) {
        const int64_t row = int64_t{sequence} * r->tokens + t;
        float* out = r->out + row * out_token + head * m;
        if (t < pad) {
            memset(out, 0, static_cast<size_t>(m) * sizeof(float));
            continue;
        }
        const float *x = r->x + row * x_token + head * m, *b = r->b + row * b_token + group * n,
                    *c = r->c + row * c_token + group * n;
        const float dt = r->dt[row * dt_token + head], decay = expf(rate * dt);
        for (int64_t i = 0; i < m; i++) {
            const float input = dt * x[i];
            F y = {};
            for (int64_t l = 0; l < n; l += W) {
                const int64_t width = min_of(W, n - l);
                const F s =
                    load_up_to(state + i * n + l, width) * decay + load_up_to(b + l, width) * input;
                y += s * load_up_to(c + l, width);
                memcpy(state + i * n + l, &s, static_cast<size_t>(width) * sizeof(float));
            }
            out[i] = sum(y) + (r->skip ? r->skip[head] * x[i] : 0.0f);
        }
    }
}

void selective_scan(const StateScan* r, int32_t sequence, int32_t first, int32_t last) {
    const int64_t n = r->n, channels = r->heads;
    const int64_t x_token = r->x_token ? r->x_token : channels,
                  out_token = r->out_token ? r->out_token : channels;
    const int64_t b_token = r->b_token ? r->b_token : n, c_token = r->c_token ? r->c_token : n,
                  dt_token = r->dt_token ? r->dt_token : channels;
    const int64_t pad = r->pad ? r->pad[sequence] : 0;
    for (int64_t t = 0; t < r->tokens; t++) {
        const int64_t row = int64_t{sequence} * r->tokens + t;
        const float *x = r->x + row * x_token, *b = r->b + row * b_token, *c = r->c + row * c_token,
                    *dt = r->dt + row * dt_token;
        float* out = r->out + row * out_token;
        for (int64_t i = first; i < last; i++) {
            if (t < pad) {
                out[i] = 0.0f;
                continue;
            }
            float* state = r->state + (int64_t{sequence} * channels + i) * n;
            const float* a_log = r->a_log + i * n;
            F y = {};
            for (int64_t l = 0; l < n; l += W) {
                const int64_t width = min_of(W, n - l);
                const F rate = -vexp(load_up_to(a_log + l, width));
                const F s = load_up_to(state + l, width) * vexp(rate * dt[i]) +
                            load_up_to(b + l, width) * (dt[i] * x[i]);
                y += s * load_up_to(c + l, width);
                memcpy(state + l, &s, static_cast<size_t>(width) * sizeof(float));
            }
            out[i] = sum(y) + (r->skip ? r->skip[i] * x[i] : 0.0f);
        }
    }
}

}  // namespace

#endif
