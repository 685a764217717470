// Softmax attention of the queries of one group of heads to a range of keys, with a running maximum
// (Dao et al. 2022, arXiv:2205.14135).

#ifndef LLAMATH_ATTENTION_H
#define LLAMATH_ATTENTION_H

#include "elementwise.h"

namespace {

constexpr int64_t KEYS = 64;  // whose scores are computed at once

INLINE int64_t element_bytes(int32_t type) { return type == LLAMATH_F32 ? 4 : 2; }

// scores[n, r] = q[n] . key r, for R keys and N queries
template <class T, int R, int N>
INLINE void score_tile(const char* const* keys, const float* q, int64_t dim, float* scores) {
    F sums[R][N] = {};
    for (int64_t k = 0; k < dim; k += W) {
        const int64_t left = min_of(W, dim - k);
        F key[R];
        UNROLL for (int r = 0; r < R; r++) {
            const T* row = reinterpret_cast<const T*>(keys[r]) + k;
            key[r] = left == W ? load(row) : load_part(row, left);
        }
        UNROLL for (int n = 0; n < N; n++) {
            const F query = left == W ? load(q + n * dim + k) : load_part(q + n * dim + k, left);
            UNROLL for (int r = 0; r < R; r++) sums[r][n] += key[r] * query;
        }
    }
    UNROLL for (int r = 0; r < R; r++) UNROLL for (int n = 0; n < N; n++) scores[n * KEYS + r] =
        sum(sums[r][n]);
}

template <class T>
void score_block(const char* const* keys, int64_t count, const float* q, int64_t rows, int64_t dim,
                 float* scores) {
    for (int64_t r = 0; r < count; r += 4) {
        if (r + 4 <= count) {
            int64_t n = 0;
            for (; n + 4 <= rows; n += 4)
                score_tile<T, 4, 4>(keys + r, q + n * dim, dim, scores + n * KEYS + r);
            for (; n < rows; n++)
                score_tile<T, 4, 1>(keys + r, q + n * dim, dim, scores + n * KEYS + r);
        } else {
            for (int64_t n = 0; n < rows; n++)
                for (int64_t l = r; l < count; l++)
                    score_tile<T, 1, 1>(keys + l, q + n * dim, dim, scores + n * KEYS + l);
        }
    }
}

// out[n] += sum over keys of weights[n, key] * value of the key, in C vectors of columns
template <class T, int N, int C>
INLINE void value_tile(const char* const* values, int64_t count, const float* weights, int64_t at,
                       int64_t dim, float* out) {
    F sums[N][C];
    const int64_t left = dim - at;
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int c = 0; c < C; c++) sums[n][c] =
        C > 1 || left >= W ? load(out + n * dim + at + c * W) : load_part(out + n * dim + at, left);
    for (int64_t key = 0; key < count; key++) {
        const T* row = reinterpret_cast<const T*>(values[key]) + at;
        F v[C];
        UNROLL for (int c = 0; c < C; c++) v[c] =
            C > 1 || left >= W ? load(row + c * W) : load_part(row, left);
        UNROLL for (int n = 0; n < N; n++) {
            const F weight = set1(weights[n * KEYS + key]);
            UNROLL for (int c = 0; c < C; c++) sums[n][c] += v[c] * weight;
        }
    }
    UNROLL for (int n = 0; n < N; n++) UNROLL for (int c = 0; c < C; c++) {
        if (C > 1 || left >= W)
            store(out + n * dim + at + c * W, sums[n][c]);
        else
            memcpy(out + n * dim + at, &sums[n][c], static_cast<size_t>(left) * sizeof(float));
    }
}

template <class T, int N>
INLINE void value_rows(const char* const* values, int64_t count, const float* weights, int64_t dim,
                       float* out) {
    int64_t at = 0;
    for (; at + 4 * W <= dim; at += 4 * W)
        value_tile<T, N, 4>(values, count, weights, at, dim, out);
    for (; at < dim; at += W) value_tile<T, N, 1>(values, count, weights, at, dim, out);
}

template <class T>
void value_block(const char* const* values, int64_t count, const float* weights, int64_t rows,
                 int64_t dim, float* out) {
    int64_t n = 0;
    for (; n + 4 <= rows; n += 4)
        value_rows<T, 4>(values, count, weights + n * KEYS, dim, out + n * dim);
    for (; n < rows; n++) value_rows<T, 1>(values, count, weights + n * KEYS, dim, out + n * dim);
}

int64_t attention_memory(const Attention* a, int64_t queries) {
    const int64_t rows = queries * (a->heads / a->kv_heads);
    return rows * (a->k_dim + KEYS) * static_cast<int64_t>(sizeof(float));
}

void attention(const AttentionPiece* p) {
    const Attention& a = *p->a;
    const int64_t group = a.heads / a.kv_heads, queries = p->last_query - p->first_query,
                  rows = queries * group, size = element_bytes(a.type);
    const int64_t start = a.start ? a.start[p->sequence] : 0, first_head = p->kv_head * group;
    auto* q = reinterpret_cast<float*>(p->memory);
    float* scores = q + rows * a.k_dim;
    const int64_t q_token = a.q_token ? a.q_token : int64_t{a.heads} * a.k_dim,
                  q_batch = a.q_batch ? a.q_batch : a.tokens * q_token;
    for (int64_t t = 0; t < queries; t++) {
        const float* from =
            a.q + p->sequence * q_batch + (p->first_query + t) * q_token + first_head * a.k_dim;
        scale(q + t * group * a.k_dim, from, group * a.k_dim, a.scale, 0.0f);
    }
    for (int64_t n = 0; n < rows; n++) p->largest[n] = -__builtin_inff(), p->total[n] = 0.0f;
    memset(p->out, 0, static_cast<size_t>(rows * a.v_dim) * sizeof(float));

    const char* k_base =
        static_cast<const char*>(a.k) + (p->sequence * a.k_batch + p->kv_head * a.k_head) * size;
    const char* v_base =
        static_cast<const char*>(a.v) + (p->sequence * a.v_batch + p->kv_head * a.v_head) * size;
    const int32_t* selected =
        a.selected
            ? a.selected + (int64_t{p->sequence} * a.tokens + p->first_query) * a.num_selected
            : nullptr;
    for (int64_t at = p->first_key; at < p->last_key;) {
        const char *keys[KEYS], *values[KEYS];
        int64_t index[KEYS], count = 0;
        for (; count < KEYS && at < p->last_key; at++) {
            const int64_t j =
                selected ? selected[at] : at;  // with selected keys, a piece is one query
            if (j < 0 || j >= int64_t{a.past} + a.tokens) continue;
            const int64_t slot = a.ring ? j % a.ring : j - a.first_slot;
            if (slot < 0) continue;
            keys[count] = k_base + slot * a.k_token * size;
            values[count] = v_base + slot * a.v_token * size;
            index[count++] = j;
        }
        if (count == 0) break;
        if (a.type == LLAMATH_F32) score_block<float>(keys, count, q, rows, a.k_dim, scores);
        if (a.type == LLAMATH_BF16) score_block<bf16>(keys, count, q, rows, a.k_dim, scores);
        if (a.type == LLAMATH_F16) score_block<f16>(keys, count, q, rows, a.k_dim, scores);
        for (int64_t n = 0; n < rows; n++) {
            float* s = scores + n * KEYS;
            const int64_t token = p->first_query + n / group, head = first_head + n % group,
                          query = a.past + token;
            int64_t low = start, high = a.causal ? query + 1 : int64_t{a.past} + a.tokens;
            if (a.window > 0) low = max_of(low, query - a.window + 1);
            if (a.chunk > 0 && query >= start)
                low = max_of(low, start + (query - start) / a.chunk * a.chunk);
            if (query < start) high = low;
            if (a.chunk > 0)
                high = min_of(
                    high, low > query ? high : start + ((query - start) / a.chunk + 1) * a.chunk);
            if (a.softcap > 0) softcap(s, s, count, a.softcap);
            if (a.slopes)
                for (int64_t i = 0; i < count; i++)
                    s[i] += a.slopes[head] * static_cast<float>(index[i] - query);
            if (a.distance_bias) {
                const float* bias =
                    a.distance_bias +
                    ((int64_t{p->sequence} * a.tokens + token) * a.heads + head) * a.num_distances;
                for (int64_t i = 0; i < count; i++)
                    if (query >= index[i] && query - index[i] < a.num_distances)
                        s[i] += bias[query - index[i]];
            }
            if (selected || index[0] < low || index[count - 1] >= high)
                for (int64_t i = 0; i < count; i++)
                    if (index[i] < low || index[i] >= high) s[i] = -__builtin_inff();
            const float most = largest_of(s, count), before = p->largest[n],
                        now = most > before ? most : before;
            const float shift = now == -__builtin_inff() ? 0.0f : now;
            F total = {};
            for_vectors(s, s, count, [&](F v, int64_t, int64_t left) INLINE_LAMBDA {
                const F e = vexp(v - shift);
                total += left == W ? e : load_part(reinterpret_cast<const float*>(&e), left);
                return e;
            });
            if (before != now && before != -__builtin_inff()) {
                const float factor = expf(before - now);
                p->total[n] *= factor;
                scale(p->out + n * a.v_dim, p->out + n * a.v_dim, a.v_dim, factor, 0.0f);
            }
            p->largest[n] = now;
            p->total[n] += sum(total);
        }
        if (a.type == LLAMATH_F32) value_block<float>(values, count, scores, rows, a.v_dim, p->out);
        if (a.type == LLAMATH_BF16) value_block<bf16>(values, count, scores, rows, a.v_dim, p->out);
        if (a.type == LLAMATH_F16) value_block<f16>(values, count, scores, rows, a.v_dim, p->out);
    }
}

}  // namespace

#endif
