// Choosing experts and tokens: routing, sampling and its random numbers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace {

// whether a ranks before b: larger, a NaN before all numbers, and the lower number first
bool before(const float* scores, int32_t a, int32_t b) {
    const bool a_nan = std::isnan(scores[a]), b_nan = std::isnan(scores[b]);
    if (a_nan || b_nan) return a_nan && (!b_nan || a < b);
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

void best_of(int32_t* best, int32_t k, const float* scores, int32_t count) {
    std::vector<int32_t> order(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; i++) order[i] = i;
    std::partial_sort_copy(order.begin(), order.end(), best, best + k,
                           [scores](int32_t a, int32_t b) { return before(scores, a, b); });
}

float expert_score(float logit, int32_t scoring, double largest, double total) {
    if (scoring == LLAMATH_SCORE_SIGMOID)
        return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logit))));
    if (scoring == LLAMATH_SCORE_SQRTSOFTPLUS)
        return std::sqrt(logit > 20.0f ? logit : std::log1p(std::exp(logit)));
    return static_cast<float>(std::exp(static_cast<double>(logit) - largest) / total);
}

void route_row(int32_t* chosen, float* weights, const float* logits, const Route& r) {
    const int32_t count = r.num_experts;
    std::vector<float> scores(static_cast<size_t>(count)), ranked(static_cast<size_t>(count));
    double largest = -HUGE_VAL, total = 0;
    for (int32_t e = 0; e < count; e++) largest = std::max(largest, static_cast<double>(logits[e]));
    for (int32_t e = 0; e < count; e++) total += std::exp(static_cast<double>(logits[e]) - largest);
    for (int32_t e = 0; e < count; e++) {
        scores[e] = expert_score(logits[e], r.scoring, largest, total);
        ranked[e] =
            (r.choice_by_logits ? logits[e] : scores[e]) + (r.correction ? r.correction[e] : 0.0f);
    }
    if (r.groups > 1) {
        const int32_t size = count / r.groups;
        std::vector<float> of_group(static_cast<size_t>(r.groups));
        std::vector<int32_t> best(static_cast<size_t>(std::max(size, r.groups)));
        for (int32_t g = 0; g < r.groups; g++) {
            const int32_t taken = std::min(r.best_of_group, size);
            best_of(best.data(), taken, ranked.data() + g * size, size);
            for (int32_t i = 0; i < taken; i++) of_group[g] += ranked[g * size + best[i]];
        }
        best_of(best.data(), r.kept_groups, of_group.data(), r.groups);
        for (int32_t g = 0; g < r.groups; g++)
            if (std::find(best.begin(), best.begin() + r.kept_groups, g) ==
                best.begin() + r.kept_groups)
                std::fill(ranked.begin() + g * size, ranked.begin() + (g + 1) * size, r.other);
    }
    best_of(chosen, r.top_k, ranked.data(), count);
    float sum = 0;
    for (int32_t j = 0; j < r.top_k; j++) sum += weights[j] = scores[chosen[j]];
    for (int32_t j = 0; j < r.top_k; j++)
        weights[j] = (r.normalize ? weights[j] / (sum + 1e-20f) : weights[j]) * r.scaling;
}

// Set all but the k largest to -Inf, and leave those that are as large as the last of them
void filter_top_k(float* y, int64_t vocab, int64_t k, float* copy) {
    if (k >= vocab) return;
    std::copy(y, y + vocab, copy);
    std::nth_element(copy, copy + k - 1, copy + vocab, std::greater<float>());
    const float smallest = copy[k - 1];
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] < smallest) y[i] = -HUGE_VALF;
}

void filter_top_p(float* y, int64_t vocab, double p, double total, float most, float* copy) {
    std::copy(y, y + vocab, copy);
    int64_t sorted = 0;
    double cumulative = 0;
    float last = most;
    for (int64_t candidates = 256; sorted < vocab && cumulative < p; candidates *= 8) {
        const int64_t end = std::min(candidates, vocab);
        if (end < vocab)
            std::nth_element(copy + sorted, copy + end - 1, copy + vocab, std::greater<float>());
        std::sort(copy + sorted, copy + end, std::greater<float>());
        for (; sorted < end && cumulative < p; sorted++) {
            last = copy[sorted];
            cumulative += std::exp(static_cast<double>(last) - static_cast<double>(most)) / total;
        }
        sorted = end;
    }
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] < last) y[i] = -HUGE_VALF;
}

double sum_of_exp(const float* y, int64_t vocab, float most) {
    double total = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (y[i] != -HUGE_VALF)
            total += std::exp(static_cast<double>(y[i]) - static_cast<double>(most));
    return total;
}

}  // namespace

extern "C" {

void llamath_route(Pool*, int32_t* chosen, float* weights, const float* logits, int64_t n,
                   const Route* r) {
    for (int64_t t = 0; t < n; t++)
        route_row(chosen + t * r->top_k, weights + t * r->top_k, logits + t * r->num_experts, *r);
}

double llamath_uniform(uint64_t seed, uint64_t row, uint64_t step) {
    uint32_t c[4] = {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
                     static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)};
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t{0xd2511f53u} * c[0], b = uint64_t{0xcd9e8d57u} * c[2];
        const uint32_t next[4] = {
            static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
            static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
        std::copy(next, next + 4, c);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return static_cast<double>((uint64_t{c[0]} << 32 | c[1]) >> 11) * 0x1p-53;
}

int32_t llamath_sample(Pool* pool, const float* logits, int64_t vocab, const Sampling* s,
                       const uint8_t* used, double u) {
    if (vocab <= 0) return -1;
    const float penalty = used ? s->repetition_penalty : 1.0f;
    const bool penalizes = penalty != 1.0f;
    if ((s->temperature < 1e-6f || s->top_k == 1) && !penalizes) {
        const int64_t best = llamath_argmax(pool, logits, vocab);
        return std::isfinite(logits[best]) ? static_cast<int32_t>(best) : -1;
    }
    auto* y =
        reinterpret_cast<float*>(pool->inputs(static_cast<size_t>(vocab) * 2 * sizeof(float)));
    for (int64_t i = 0; i < vocab; i++)
        y[i] = penalizes && used[i] ? (logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty)
                                    : logits[i];
    const int64_t best = llamath_argmax(pool, y, vocab);
    if (!std::isfinite(y[best])) return -1;
    if (s->temperature < 1e-6f || s->top_k == 1) return static_cast<int32_t>(best);
    for (int64_t i = 0; i < vocab; i++) y[i] /= s->temperature;
    const float most = y[best];
    if (s->top_k > 0) filter_top_k(y, vocab, s->top_k, y + vocab);
    if (s->top_p < 1.0f)
        filter_top_p(y, vocab, static_cast<double>(s->top_p), sum_of_exp(y, vocab, most), most,
                     y + vocab);
    if (s->min_p > 0.0f)
        for (int64_t i = 0; i < vocab; i++)
            if (std::exp(static_cast<double>(y[i]) - static_cast<double>(most)) <
                static_cast<double>(s->min_p))
                y[i] = -HUGE_VALF;
    const double total = sum_of_exp(y, vocab, most);
    if (!std::isfinite(total)) return -1;
    double cumulative = 0;
    int32_t last = static_cast<int32_t>(best);
    for (int64_t i = 0; i < vocab; i++) {
        if (y[i] == -HUGE_VALF) continue;
        cumulative += std::exp(static_cast<double>(y[i]) - static_cast<double>(most));
        last = static_cast<int32_t>(i);
        if (cumulative > u * total) break;
    }
    return last;
}

double llamath_top_logprobs(Pool*, const float* logits, int64_t vocab, int32_t count, int32_t* ids,
                            float* logprobs) {
    best_of(ids, static_cast<int32_t>(std::min<int64_t>(count, vocab)), logits,
            static_cast<int32_t>(vocab));
    float most = -HUGE_VALF;
    for (int64_t i = 0; i < vocab; i++) most = logits[i] > most ? logits[i] : most;
    const double log_total = std::log(sum_of_exp(logits, vocab, most)) + static_cast<double>(most);
    for (int32_t i = 0; i < count && i < vocab; i++)
        logprobs[i] = static_cast<float>(static_cast<double>(logits[ids[i]]) - log_total);
    return log_total;
}

}  // extern "C"
