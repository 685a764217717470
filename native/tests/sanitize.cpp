// Calls every kernel by every path on random shapes, with arrays of exactly their size, for the
// sanitizers: `make sanitize`.
//
// It also compares each path with the reference path, loosely: the exact tests are in
// test_kernels.py.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../../native/kernels/kernels.h"

namespace {

std::mt19937_64 generator(1);
int failures = 0;
Pool* in_use = nullptr;
std::string what;

int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
}

// An array on the heap of exactly this size, so that the address sanitizer sees the first byte
// beyond
template <class T>
struct Array {
    explicit Array(int64_t size_) : size(size_), data(new T[static_cast<size_t>(size_)]()) {}
    int64_t size;
    std::unique_ptr<T[]> data;
    operator T*() const { return data.get(); }
};

Array<float> normal(int64_t size) {
    Array<float> x(size);
    std::normal_distribution<float> distribution;
    for (int64_t i = 0; i < size; i++) x[i] = distribution(generator);
    return x;
}

// now and then something hostile
Array<float> hostile(int64_t size) {
    Array<float> x = normal(size);
    const float values[] = {NAN, INFINITY, -INFINITY, 1e-45f, -1e-40f, 1e18f, -1e18f, -0.0f};
    if (size && between(0, 3) == 0)
        for (int i = 0; i < 4; i++) x[between(0, size - 1)] = values[between(0, 7)];
    return x;
}

void compare(const float* found, const float* expected, int64_t count, double tolerance) {
    double scale = 1e-3;
    for (int64_t i = 0; i < count; i++)
        if (std::isfinite(expected[i]))
            scale = std::fmax(scale, std::fabs(static_cast<double>(expected[i])));
    for (int64_t i = 0; i < count; i++) {
        if (!std::isfinite(expected[i]) || scale > 1e30) continue;
        const double difference =
            std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
        if (!(difference <= tolerance * scale)) {
            std::printf("%s: element %lld is %g, expected %g\n", what.c_str(),
                        static_cast<long long>(i), static_cast<double>(found[i]),
                        static_cast<double>(expected[i]));
            failures++;
            return;
        }
    }
}

// Run f by the reference path and then by every other, and compare what it writes; `inputs` are
// restored before each
template <class Function>
void on_every_path(const char* name, Array<float>& out, double tolerance, Function f) {
    std::vector<float> before(static_cast<float*>(out), out + out.size), expected;
    for (int32_t i = 0; i < llamath_num_paths(); i++) {
        if (!llamath_path_supported(i)) continue;
        what = std::string(name) + " by " + llamath_path_name(i);
        llamath_set_path(llamath_path_name(i));
        std::copy(before.begin(), before.end(), static_cast<float*>(out));
        f();
        llamath_pool_wait(in_use);  // before anything is freed that it reads
        if (i == 0)
            expected.assign(static_cast<float*>(out), out + out.size);
        else
            compare(out, expected.data(), out.size, tolerance);
    }
}

const int32_t TYPES[] = {LLAMATH_F32,  LLAMATH_F16,  LLAMATH_BF16, LLAMATH_I8,   LLAMATH_Q8_0,
                         LLAMATH_Q4_0, LLAMATH_Q4_K, LLAMATH_Q5_K, LLAMATH_Q6_K, LLAMATH_MXFP4};

struct Weights {
    Array<uint8_t> bytes;
    Array<float> scales;
    Matrix matrix;
    Weights(int32_t type, int64_t rows, int64_t cols)
        : bytes(rows * llamath_row_bytes(type, cols)), scales(rows), matrix{} {
        for (int64_t i = 0; i < bytes.size; i++) bytes[i] = static_cast<uint8_t>(between(0, 255));
        const int64_t block = llamath_block_bytes(type);
        const auto half = [&](int64_t at) {
            bytes[at + 1] = static_cast<uint8_t>((bytes[at + 1] & 0x83) | 0x20);
        };  // 0.01 or so
        for (int64_t b = 0; b < bytes.size; b += block) {
            if (type == LLAMATH_F32)
                bytes[b + 3] = static_cast<uint8_t>((bytes[b + 3] & 0x80) | 0x3e),
                          bytes[b + 2] &= 0x7f;
            if (type == LLAMATH_BF16)
                bytes[b + 1] = static_cast<uint8_t>((bytes[b + 1] & 0x80) | 0x3e), bytes[b] &= 0x7f;
            if (type == LLAMATH_F16 || type == LLAMATH_Q8_0 || type == LLAMATH_Q4_0 ||
                type == LLAMATH_Q4_K || type == LLAMATH_Q5_K)
                half(b);
            if (type == LLAMATH_Q4_K || type == LLAMATH_Q5_K) half(b + 2);
            if (type == LLAMATH_Q6_K) half(b + 208);
            if (type == LLAMATH_MXFP4) bytes[b] = static_cast<uint8_t>(between(115, 130));
        }
        for (int64_t r = 0; r < rows; r++) scales[r] = 0.01f;
        matrix.data = bytes, matrix.rows = rows, matrix.cols = cols, matrix.type = type,
        matrix.bytes = bytes.size;
        if (type == LLAMATH_I8) matrix.scales = scales, matrix.num_scales = rows;
    }
};

int64_t columns(int32_t type) {
    const int64_t size = llamath_block_size(type);
    return size == 1 ? between(1, 1200) : size == 32 ? 32 * between(1, 40) : 256 * between(1, 4);
}

void products(Pool* pool) {
    const int32_t type = TYPES[between(0, 9)], precision = static_cast<int32_t>(between(0, 1));
    const int64_t n = between(1, 20), cols = columns(type), rows = between(1, 70);
    Weights w(type, rows, cols), second(type, between(1, 9), cols);
    Array<float> x = hostile(n * cols), out = normal(n * rows), other(n * second.matrix.rows),
                 bias = normal(rows);
    on_every_path("matmul", out, 0.02, [&] {
        Product both[2] = {};
        both[0].w = w.matrix, both[0].out = out, both[0].bias = bias, both[0].accumulate = 1;
        both[1].w = second.matrix, both[1].out = other;
        if (llamath_matmul(pool, both, 2, x, 0, n, precision)) failures++;
    });
    Array<int32_t> ids(n);
    for (int64_t i = 0; i < n; i++) ids[i] = static_cast<int32_t>(between(-2, rows + 2));
    Array<float> looked_up(n * cols);
    on_every_path("lookup", looked_up, 1e-6,
                  [&] { llamath_lookup(pool, looked_up, 0, ids, n, &w.matrix, 0, 0.5f); });
    if (rows % 5 == 0) {
        Array<float> heads_in = normal(n * rows / 5 * cols), heads_out(n * rows),
                     back(n * rows / 5 * cols);
        on_every_path("per_head_matmul", heads_out, 1e-4, [&] {
            llamath_per_head_matmul(pool, heads_out, heads_in, n, &w.matrix, 5, 0, LLAMATH_FAST);
        });
        on_every_path("per_head_matmul transposed", back, 1e-4, [&] {
            llamath_per_head_matmul(pool, back, heads_out, n, &w.matrix, 5, 1, LLAMATH_FAST);
        });
    }
}

void experts(Pool* pool) {
    const int32_t type = TYPES[between(0, 9)], count = static_cast<int32_t>(between(1, 9)),
                  top_k = static_cast<int32_t>(between(1, 3));
    const int64_t n = between(1, 30), cols = columns(type), rows = between(1, 40);
    std::vector<Weights> weights;
    std::vector<Matrix> matrices;
    for (int32_t e = 0; e < count; e++) weights.emplace_back(type, rows, cols);
    for (const Weights& w : weights) matrices.push_back(w.matrix);
    Array<int32_t> chosen(n * top_k);
    for (int64_t i = 0; i < chosen.size; i++) chosen[i] = static_cast<int32_t>(between(-1, count));
    Array<float> x = normal(n * cols), out(n * top_k * rows), shares = normal(n * top_k),
                 sum(n * rows);
    const ExpertProduct product{matrices.data(), out, nullptr};
    on_every_path("expert_matmul", out, 0.02, [&] {
        if (llamath_expert_matmul(pool, &product, 1, x, 0, chosen, n * top_k, top_k, count,
                                  LLAMATH_FAST))
            failures++;
    });
    on_every_path("combine_experts", sum, 1e-5, [&] {
        llamath_combine_experts(pool, sum, out, shares, chosen, nullptr, n, top_k, count, rows, 0);
    });
}

void elementwise(Pool* pool) {
    const int64_t n = between(1, 6), cols = between(1, 200), size = n * cols;
    Array<float> x = hostile(size), y = hostile(size), weight = normal(cols), bias = normal(cols),
                 out(size);
    Array<float> ordinary = normal(size);
    for (const auto& [from, loose] :
         {std::pair<float*, double>(ordinary, 1.0), std::pair<float*, double>(x, 1e30)}) {
        const float* in = from;  // the sum of squares loses the small ones
        on_every_path("rms_norm", out, 1e-4 * loose, [&] {
            llamath_rms_norm(pool, out, 0, in, 0, n, cols, weight, 1, 1e-5f, 1.0f);
        });
        on_every_path("layer_norm", out, 1e-3 * loose, [&] {
            llamath_layer_norm(pool, out, 0, in, 0, n, cols, weight, bias, 1, 1e-5f, 0.0f);
        });
        on_every_path("l2_norm", out, 1e-4 * loose,
                      [&] { llamath_l2_norm(pool, out, 0, in, 0, n, cols, 1e-5f); });
    }
    for (int32_t act = 0; act <= LLAMATH_TANH; act++) {
        on_every_path("act", out, 1e-5, [&] { llamath_act(pool, out, x, size, act); });
        on_every_path("gated", out, 1e-5,
                      [&] { llamath_gated(pool, out, 0, x, 0, y, 0, n, cols, act); });
    }
    on_every_path("clamped_gated", out, 1e-5,
                  [&] { llamath_clamped_gated(pool, out, 0, x, 0, y, 0, n, cols, 1, 7.0f, 1.7f); });
    on_every_path("add", out, 1e-6, [&] { llamath_add(pool, out, x, y, size); });
    on_every_path("multiply", out, 1e-6, [&] { llamath_multiply(pool, out, x, y, n, cols, n, 1); });
    on_every_path("softcap", out, 1e-5, [&] { llamath_softcap(pool, out, x, size, 30.0f); });
    on_every_path("clamp", out, 1e-6, [&] { llamath_clamp(pool, out, x, size, -1.0f, 1.0f); });
    on_every_path("softplus_bias", out, 1e-5,
                  [&] { llamath_softplus_bias(pool, out, x, bias, n, cols, 0.0f, INFINITY); });
    on_every_path("softmax", out, 1e-5, [&] { llamath_softmax(pool, out, x, n, cols); });
    on_every_path("bounded_decay", out, 1e-4,
                  [&] { llamath_bounded_decay(pool, out, x, bias, weight, n, 1, cols, -5.0f); });
    llamath_first_nonfinite(pool, x, size);
    llamath_argmax(pool, x, size);
    const int64_t half = cols / 2;
    Array<int32_t> positions(n);
    Array<float> cos(n * half), sin(n * half);
    if (half) llamath_rope_tables(cos, sin, positions, n, weight, half, 1.0f, 1.0f);
    for (int32_t interleaved = 0; interleaved < 2; interleaved++)
        on_every_path("rope", out, 1e-5, [&] {
            llamath_rope(pool, out, 0, x, 0, n, 1, cols, half, interleaved, cos, sin);
        });
    Array<uint16_t> cache(size);
    on_every_path("store_rows", out, 1, [&] {
        llamath_store_rows(pool, cache, LLAMATH_BF16, cols, x, 0, n, cols);
        llamath_store_rows(pool, cache, LLAMATH_F16, cols, x, 0, n, cols);
    });
}

void attention(Pool* pool) {
    Attention a = {};
    a.batch = static_cast<int32_t>(between(1, 2)), a.kv_heads = static_cast<int32_t>(between(1, 3)),
    a.heads = a.kv_heads * static_cast<int32_t>(between(1, 5));
    a.k_dim = static_cast<int32_t>(between(1, 90)), a.v_dim = static_cast<int32_t>(between(1, 90)),
    a.tokens = static_cast<int32_t>(between(1, 40));
    a.past = static_cast<int32_t>(between(0, 2) ? between(0, 50) : between(600, 1500));
    if (a.past > 100) a.tokens = 1;
    const int64_t keys = a.past + a.tokens;
    Array<float> out(int64_t{a.batch} * a.tokens * a.heads * a.v_dim),
        q = normal(int64_t{a.batch} * a.tokens * a.heads * a.k_dim);
    Array<float> k = normal(a.batch * keys * a.kv_heads * a.k_dim),
                 v = normal(a.batch * keys * a.kv_heads * a.v_dim), sinks = normal(a.heads);
    Array<uint16_t> half_k(k.size), half_v(v.size);
    Array<int32_t> start(a.batch);
    for (int32_t b = 0; b < a.batch; b++) start[b] = static_cast<int32_t>(between(0, keys - 1));
    a.out = out, a.q = q, a.causal = static_cast<int32_t>(between(0, 3) != 0), a.scale = 0.2f,
    a.type = LLAMATH_F32, a.k = k, a.v = v;
    if (between(0, 1)) {
        a.type = between(0, 1) ? LLAMATH_BF16 : LLAMATH_F16, a.k = half_k, a.v = half_v;
        llamath_store_rows(pool, half_k, a.type, a.k_dim, k, 0, k.size / a.k_dim, a.k_dim);
        llamath_store_rows(pool, half_v, a.type, a.v_dim, v, 0, v.size / a.v_dim, a.v_dim);
    }
    a.k_head = a.k_dim, a.k_token = a.kv_heads * a.k_dim, a.k_batch = keys * a.k_token;
    a.v_head = a.v_dim, a.v_token = a.kv_heads * a.v_dim, a.v_batch = keys * a.v_token;
    if (between(0, 1)) a.start = start;
    if (between(0, 1)) a.window = static_cast<int32_t>(between(1, 30));
    if (between(0, 2) == 0) a.chunk = static_cast<int32_t>(between(1, 30));
    if (between(0, 1)) a.sinks = sinks;
    if (between(0, 2) == 0) a.slopes = sinks;
    if (between(0, 2) == 0) a.softcap = 5.0f;
    a.num_selected = static_cast<int32_t>(between(1, 20));
    Array<int32_t> selected(int64_t{a.batch} * a.tokens * a.num_selected);
    for (int64_t i = 0; i < selected.size; i++)
        selected[i] = static_cast<int32_t>(between(-1, keys - 1));
    if (between(0, 3) == 0) a.selected = selected;
    a.num_distances = static_cast<int32_t>(between(1, 8));
    Array<float> bias = normal(int64_t{a.batch} * a.tokens * a.heads * a.num_distances);
    if (between(0, 3) == 0) a.distance_bias = bias;
    on_every_path("attention", out, 1e-4, [&] { llamath_attention(pool, &a); });
}

void recurrences(Pool* pool) {
    const int32_t batch = static_cast<int32_t>(between(1, 2)),
                  tokens = static_cast<int32_t>(between(1, 6)),
                  groups = static_cast<int32_t>(between(1, 3));
    const int32_t heads = groups * static_cast<int32_t>(between(1, 3)),
                  n = static_cast<int32_t>(between(1, 40)),
                  m = static_cast<int32_t>(between(1, 40));
    Array<int32_t> pad(batch);
    for (int32_t b = 0; b < batch; b++) pad[b] = static_cast<int32_t>(between(0, tokens));
    const int64_t rows = int64_t{batch} * tokens;
    Array<float> q = normal(rows * groups * n), k = normal(rows * groups * n),
                 v = normal(rows * heads * m), g = normal(rows * heads * n), beta(rows * heads);
    for (int64_t i = 0; i < g.size; i++) g[i] = -std::fabs(g[i]);
    for (int64_t i = 0; i < k.size; i++) k[i] *= 0.1f;
    Array<float> out(rows * heads * m), state = normal(int64_t{batch} * heads * n * m),
                                        a_log = normal(int64_t{heads} * m * n),
                                        skip = normal(heads * m);
    std::vector<float> before(static_cast<float*>(state), state + state.size);
    const auto restored = [&](auto f) {
        return [&, f] {
            std::copy(before.begin(), before.end(), static_cast<float*>(state));
            f();
        };
    };
    DeltaRule delta = {};
    delta.out = out, delta.q = q, delta.k = k, delta.v = v, delta.g = g, delta.beta = beta,
    delta.state = state, delta.pad = pad;
    delta.batch = batch, delta.tokens = tokens, delta.heads = heads, delta.groups = groups,
    delta.n = n, delta.m = m;
    delta.decay_per_row = static_cast<int32_t>(between(0, 1));
    on_every_path("gated_delta_rule", out, 1e-4,
                  restored([&] { llamath_gated_delta_rule(pool, &delta); }));
    StateScan scan = {};
    scan.out = out, scan.x = v, scan.b = q, scan.c = k, scan.dt = beta, scan.a_log = a_log,
    scan.skip = skip, scan.state = state, scan.pad = pad;
    scan.batch = batch, scan.tokens = tokens, scan.heads = heads, scan.groups = groups, scan.m = m,
    scan.n = n;
    on_every_path("ssm_scan", out, 1e-4, restored([&] { llamath_ssm_scan(pool, &scan); }));
    scan.heads = heads * m, scan.groups = scan.m = 1, scan.dt = v;
    Array<float> b = normal(rows * n), c = normal(rows * n);
    scan.b = b, scan.c = c;
    for (int64_t i = 0; i < v.size; i++) v[i] = std::fabs(v[i]);
    on_every_path("selective_scan", out, 1e-4,
                  restored([&] { llamath_selective_scan(pool, &scan); }));
    const int64_t taps = between(1, 5), channels = int64_t{heads} * m;
    Array<float> inputs = normal(batch * (taps - 1) * channels), conv_state(inputs.size),
                 weight = normal(channels * taps);
    on_every_path("causal_conv", out, 1e-4, [&] {
        std::copy(static_cast<float*>(inputs), inputs + inputs.size,
                  static_cast<float*>(conv_state));
        llamath_causal_conv(pool, out, 0, v, 0, conv_state, weight, skip, batch, tokens, channels,
                            taps, LLAMATH_SILU, pad);
    });
}

void choices(Pool* pool) {
    const int32_t groups = static_cast<int32_t>(between(1, 4));
    Route r = {};
    r.num_experts = groups * static_cast<int32_t>(between(1, 9)),
    r.top_k = static_cast<int32_t>(between(1, r.num_experts));
    r.scoring = static_cast<int32_t>(between(0, 2)), r.normalize = 1, r.scaling = 2.0f,
    r.groups = groups;
    r.kept_groups = static_cast<int32_t>(between(1, groups)),
    r.best_of_group = static_cast<int32_t>(between(1, 3));
    const int64_t n = between(1, 5), vocab = between(1, 3000);
    Array<float> logits = hostile(n * r.num_experts), weights(n * r.top_k), scores = hostile(vocab),
                 logprobs(5);
    Array<int32_t> chosen(n * r.top_k), ids(5);
    llamath_route(pool, chosen, weights, logits, n, &r);
    for (int64_t i = 0; i < chosen.size; i++)
        if (chosen[i] < 0 || chosen[i] >= r.num_experts) failures++;
    Array<uint8_t> used(vocab);
    used[between(0, vocab - 1)] = 1;
    const ::Sampling s{static_cast<float>(between(0, 2)), static_cast<int32_t>(between(0, 50)),
                       static_cast<float>(between(1, 10)) / 10.0f,
                       static_cast<float>(between(0, 5)) / 10.0f, 1.1f};
    const int32_t token = llamath_sample(pool, scores, vocab, &s,
                                         between(0, 1) ? static_cast<uint8_t*>(used) : nullptr,
                                         llamath_uniform(1, 2, 3));
    if (token < -1 || token >= vocab) failures++;
    llamath_top_logprobs(pool, scores, vocab, static_cast<int32_t>(std::min<int64_t>(5, vocab)),
                         ids, logprobs);
}

}  // namespace

int main(int argc, char** argv) {
    const int64_t rounds = argc > 1 ? std::atoll(argv[1]) : 200;
    for (int32_t threads : {1, 3}) {
        Pool* pool = in_use = llamath_pool_create(threads);
        for (int64_t i = 0; i < rounds; i++) {
            products(pool);
            experts(pool);
            elementwise(pool);
            attention(pool);
            recurrences(pool);
            choices(pool);
        }
        llamath_pool_destroy(pool);
    }
    std::printf("%lld rounds of each kernel, %d failures\n", static_cast<long long>(2 * rounds),
                failures);
    return failures != 0;
}
