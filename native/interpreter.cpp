// The interpreter of programs that `lowering.py` makes: it runs all operations of a pass over some
// tokens without returning to Python.
//
// A pass reads segments: consecutive tokens of one sequence, or one token of each of several. All
// buffers have a row for each token of the pass, in the order of the segments. Caches are [slot,
// head, capacity, dim]; a layer with a window keeps a ring of its last tokens.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "interpreter.h"
#include "kernels/kernels.h"
#include "operations.h"
#include "program.h"

// An allocation that fails is an exception, and a trap where there are none.
#ifdef __wasm__
#define LLAMATH_TRY
#define LLAMATH_CATCH(...)
#else
#include <signal.h>
#define LLAMATH_TRY try
#define LLAMATH_CATCH(...)          \
    catch (const std::exception&) { \
        __VA_ARGS__                 \
    }
#endif

struct Engine {
    Pool* pool;
    std::vector<OpSpec> ops;
    std::vector<ProductSpec> products;
    std::vector<BufferSpec> buffers;
    std::vector<Matrix> weights;
    std::vector<CacheSpec> caches;
    std::vector<int64_t> state_sizes, rope_pairs;
    View logits;
    LookupLimits limits;
    std::vector<std::vector<const float*>> biases;  // of the experts of a product
    std::vector<std::vector<float>> slopes;         // of an operation with ALiBi
    int64_t owners = 1;                             // its creator and its sessions

    const Matrix& matrix(WeightNumber x) const { return weights[x.number]; }
    const float* vector(WeightNumber x) const {
        return x.number < 0 ? nullptr : static_cast<const float*>(matrix(x).data);
    }
};

namespace {

struct Cache {
    char* data = nullptr;
    int64_t capacity = 0;  // tokens kept for each slot
};

int64_t type_bytes(int64_t type) { return type == LLAMATH_F32 ? 4 : 2; }

// a * b * c for sizes, or 0 where it is beyond any memory
int64_t product_of(int64_t a, int64_t b, int64_t c = 1) {
    int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) || __builtin_mul_overflow(result, c, &result) ||
                   result > PTRDIFF_MAX / 16
               ? 0
               : result;
}

// Copies a message to where the caller has room for it.
void write_message(const std::string& message, char* text, int64_t size) {
    if (text && size > 0) text[message.copy(text, static_cast<size_t>(size - 1))] = 0;
}

}  // namespace

struct Session {
    Engine* engine;
    int64_t slots, capacity = 0, max_chunk, kv_type;
    std::vector<Cache> caches;
    std::vector<float*> states;
    std::vector<int32_t> start;
    std::vector<float*> memory;  // of buffers
    std::vector<int64_t> sizes;
    std::vector<int32_t> positions;
    std::vector<float> cosines, sines, ones;
    std::vector<int64_t> rope_at;
    int64_t rows = 0, last_rows = 0;
    Segment last = {};  // that the last pass read alone, of one sequence; else it has no tokens
};

namespace {

float* at(const Session& s, const View& v) { return s.memory[v.buffer] + v.offset; }

int64_t rows_of(const Session& s, const View& v) {
    int64_t n = s.engine->buffers[v.buffer].rows_per_token;
    return n ? n * s.rows : s.last_rows;
}

// What is wrong with a pass over this session, or empty: after this all of its rows have ids,
// angles, positions and places in the caches.
std::string find_mistake(const Session& s, const Pass& pass) {
    const Engine& e = *s.engine;
    const int64_t num_ropes = static_cast<int64_t>(e.rope_pairs.size());
    const auto outside = [](const char* what, int64_t found, int64_t low, int64_t high) {
        if (found >= low && found <= high) return std::string();
        return std::string(what) + " is " + std::to_string(found) + ", expected " +
               std::to_string(low) + " to " + std::to_string(high);
    };
    const auto first_of = [](std::initializer_list<std::string> mistakes) {
        for (const std::string& mistake : mistakes)
            if (!mistake.empty()) return mistake;
        return std::string();
    };
    int64_t rows = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        const Segment& g = pass.segments[i];
        std::string mistake =
            first_of({outside("the first sequence", g.slot, 0, s.slots - 1),
                      outside("the tokens of a sequence", g.tokens, 1, s.max_chunk)});
        if (mistake.empty())
            mistake = first_of(
                {outside("the number of sequences", g.batch, 1, s.slots - g.slot),
                 outside("the tokens before a pass", g.past, 0, s.capacity - g.tokens),
                 outside("the first rotary angle", g.angles, 0, pass.num_angles - num_ropes)});
        for (int64_t b = 0; mistake.empty() && b < g.batch; b++)
            mistake = outside("a position", g.past + g.tokens - 1 - s.start[g.slot + b],
                              std::numeric_limits<int64_t>::min(), e.limits.positions - 1);
        for (int64_t r = 0; mistake.empty() && r < num_ropes; r++)
            mistake = outside("the number of rotary pairs", pass.angles[g.angles + r].half,
                              e.rope_pairs[r], e.rope_pairs[r]);
        if (mistake.empty())
            mistake = outside("the number of tokens", rows += g.batch * g.tokens, 1, pass.num_ids);
        if (!mistake.empty()) return mistake;
    }
    std::string mistake =
        outside("the number of tokens", pass.num_ids, std::max<int64_t>(rows, 1), rows);
    for (int64_t i = 0; mistake.empty() && i < rows; i++)
        mistake = outside("a token", pass.ids[i], 0, e.limits.ids - 1);
    for (size_t i = 0; pass.layers && mistake.empty() && i < e.ops.size(); i++) {
        const auto* op = get_if<ops::LayerEnd>(e.ops[i]);
        if (!op) continue;
        const int64_t size = product_of(op->layer + 1, rows, op->x.size());
        mistake = outside("the room for the layers", pass.layers_size, size ? size : PTRDIFF_MAX,
                          PTRDIFF_MAX);
    }
    return mistake;
}

int64_t cache_tokens(const Session& s, const CacheSpec& c, int64_t capacity) {
    return c.lookback ? std::min(capacity, c.lookback + s.max_chunk - 1) : capacity;
}

bool prepare(Session& s, const Pass& pass) {
    const Engine& e = *s.engine;
    s.rows = s.last_rows = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        s.rows += pass.segments[i].batch * pass.segments[i].tokens;
        s.last_rows += pass.segments[i].batch;
    }
    if (pass.all_logits) s.last_rows = s.rows;
    bool waited = false;
    for (size_t i = 0; i < e.buffers.size(); i++) {
        int64_t n = e.buffers[i].rows_per_token;
        int64_t need = product_of(n ? n : 1, n ? s.rows : s.last_rows, e.buffers[i].width);
        if (need == 0) return false;
        if (need <= s.sizes[i]) continue;
        if (!waited) llamath_pool_wait(e.pool);
        waited = true;
        free(s.memory[i]);
        s.memory[i] = static_cast<float*>(aligned_alloc(64, (need * 4 + 63) / 64 * 64));
        s.sizes[i] = s.memory[i] ? need : 0;
        if (!s.memory[i]) return false;
        memset(s.memory[i], 0, need * 4);  // what no operation has written is no old memory
    }
    s.positions.resize(s.rows);
    int64_t row = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        const Segment& g = pass.segments[i];
        for (int64_t b = 0; b < g.batch; b++)
            for (int64_t t = 0; t < g.tokens; t++)
                s.positions[row++] =
                    static_cast<int32_t>(std::max<int64_t>(0, g.past + t - s.start[g.slot + b]));
    }
    const int64_t num_ropes = static_cast<int64_t>(e.rope_pairs.size());
    s.rope_at.assign(num_ropes, 0);
    int64_t total = 0;
    for (int64_t r = 0; r < num_ropes; r++) {
        s.rope_at[r] = total;
        if (e.rope_pairs[r] && !product_of(s.rows, e.rope_pairs[r], num_ropes)) return false;
        total += s.rows * e.rope_pairs[r];
    }
    s.cosines.resize(total);
    s.sines.resize(total);
    for (int64_t r = 0; r < num_ropes; r++) {
        row = 0;
        for (int64_t i = 0; i < pass.num_segments; i++) {
            const Segment& g = pass.segments[i];
            const RopeAngles& a = pass.angles[g.angles + r];
            int64_t n = g.batch * g.tokens, first = s.rope_at[r] + row * a.half;
            llamath_rope_tables(s.cosines.data() + first, s.sines.data() + first, &s.positions[row],
                                n, a.frequencies, a.half, a.factor, a.sin_sign);
            row += n;
        }
    }
    return true;
}

void copy(const Session& s, const View& out, const View& x, int64_t rows) {
    Pool* pool = s.engine->pool;
    if (out.joined() && x.joined() && out.heads == x.heads) {
        llamath_copy_rows(pool, at(s, out), out.stride, at(s, x), x.stride, rows, x.size());
        return;
    }
    for (int64_t h = 0; h < out.heads; h++)
        llamath_copy_rows(pool, at(s, out) + h * out.head_stride, out.stride,
                          at(s, x) + (x.heads == 1 ? 0 : h * x.head_stride), x.stride, rows, x.dim);
}

void last_token(const Session& s, const Pass& pass, const View& out, const View& x) {
    int64_t row = 0, to = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        const Segment& g = pass.segments[i];
        for (int64_t b = 0; b < g.batch; b++, row += g.tokens)
            for (int64_t t = pass.all_logits ? 0 : g.tokens - 1; t < g.tokens; t++)
                memcpy(at(s, out) + to++ * out.stride, at(s, x) + (row + t) * x.stride,
                       x.size() * 4);
    }
}

void store(const Session& s, const Pass& pass, const View& x, int64_t number) {
    const Cache& cache = s.caches[number];
    int64_t bytes = type_bytes(s.kv_type), row = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        const Segment& g = pass.segments[i];
        for (int64_t b = 0; b < g.batch; b++, row += g.tokens) {
            char* base = cache.data + (g.slot + b) * x.heads * cache.capacity * x.dim * bytes;
            const float* from = at(s, x) + row * x.stride;
            for (int64_t t = 0; t < g.tokens;) {
                int64_t slot = (g.past + t) % cache.capacity;
                int64_t n = std::min(g.tokens - t, cache.capacity - slot);
                char* to = base + slot * x.dim * bytes;
                if (n < x.heads) {
                    for (int64_t j = 0; j < n; j++)
                        llamath_store_rows(s.engine->pool, to + j * x.dim * bytes, s.kv_type,
                                           cache.capacity * x.dim, from + (t + j) * x.stride, x.dim,
                                           x.heads, x.dim);
                } else {
                    for (int64_t h = 0; h < x.heads; h++)
                        llamath_store_rows(s.engine->pool, to + h * cache.capacity * x.dim * bytes,
                                           s.kv_type, x.dim, from + t * x.stride + h * x.dim,
                                           x.stride, n, x.dim);
                }
                t += n;
            }
        }
    }
}

// Attention of a segment, whose first row is `row`; `slopes` are those of its operation. With
// `identity`, [keys, keys] in the type of the caches, as the values, the result are the weights:
// `weights`, [tokens, heads, keys].
void attend(const Session& s, const ops::Attention& op, const std::vector<float>& slopes,
            const Segment& g, int64_t row, const void* identity = nullptr,
            float* weights = nullptr) {
    const Engine& e = *s.engine;
    const Cache &k = s.caches[op.key_cache.number], &v = s.caches[op.value_cache.number];
    const CacheSpec &k_spec = e.caches[op.key_cache.number],
                    &v_spec = e.caches[op.value_cache.number];
    const int64_t bytes = type_bytes(s.kv_type);
    Attention a = {};
    a.out = at(s, op.out) + row * op.out.stride;
    a.q = at(s, op.q) + row * op.q.stride;
    a.out_token = op.out.stride;
    a.out_batch = g.tokens * op.out.stride;
    a.q_token = op.q.stride;
    a.q_batch = g.tokens * op.q.stride;
    a.k_head = k.capacity * k_spec.dim;
    a.k_token = k_spec.dim;
    a.k_batch = k_spec.heads * a.k_head;
    a.v_head = v.capacity * v_spec.dim;
    a.v_token = v_spec.dim;
    a.v_batch = v_spec.heads * a.v_head;
    a.k = k.data + (g.slot * a.k_batch + op.first_key) * bytes;
    a.v = v.data + (g.slot * a.v_batch + op.first_value) * bytes;
    a.type = s.kv_type;
    a.batch = g.batch;
    a.tokens = g.tokens;
    a.heads = op.q.heads;
    a.kv_heads = k_spec.heads;
    a.k_dim = op.key_dim;
    a.v_dim = op.value_dim;
    a.past = g.past;
    a.start = &s.start[g.slot];
    a.ring = k.capacity < s.capacity ? k.capacity : 0;
    a.causal = 1;
    a.window = op.window;
    a.chunk = op.chunk;
    a.scale = op.scale;
    a.softcap = op.softcap;
    a.sinks = e.vector(op.sinks);
    a.slopes = slopes.empty() ? nullptr : slopes.data();
    if (identity) {
        a.out = weights, a.out_token = a.out_batch = 0;
        a.v = identity, a.v_dim = a.v_token = g.past + g.tokens;
        a.v_head = a.v_batch = 0;
    }
    llamath_attention(e.pool, &a);
}

// One operation of a pass, the `number`th of the program: a function for each type of operation.
struct Execution {
    Session& s;
    const Pass& pass;
    const Engine& e;
    Pool* pool;
    int64_t number;
    int64_t nonfinite = -1;  // the product of a linear operation whose output is not finite

    float* at(const View& v) const { return ::at(s, v); }
    int32_t* ids_at(const View& v) const { return reinterpret_cast<int32_t*>(at(v)); }
    int64_t rows(const View& v) const { return rows_of(s, v); }

    template <class F>
    void each_segment(F&& function) const {  // with its first row
        int64_t row = 0;
        for (int64_t i = 0; i < pass.num_segments; i++) {
            const Segment& g = pass.segments[i];
            function(g, row);
            row += g.batch * g.tokens;
        }
    }
    float* state(const Segment& g, StateNumber x) const {
        return s.states[x.number] + g.slot * e.state_sizes[x.number];
    }

    void check_products(const Products& products) {
        for (int64_t j = 0; j < products.count; j++) {
            const View& out = e.products[products.first + j].out;
            if (llamath_first_nonfinite(pool, at(out), rows(out) * out.size()) < 0) continue;
            nonfinite = j;
            return;
        }
    }

    void operator()(const ops::Lookup& op) {
        const int32_t* ids = op.by_position ? s.positions.data() : pass.ids;
        llamath_lookup(pool, at(op.out), op.out.stride, ids, s.rows, &e.matrix(op.table), op.offset,
                       1.0f);
    }
    void operator()(const ops::Linear& op) {
        Product products[MAX_PRODUCTS] = {};
        for (int64_t j = 0; j < op.products.count; j++) {
            const ProductSpec& p = e.products[op.products.first + j];
            products[j].w = e.matrix(p.weight);
            products[j].out = at(p.out);
            products[j].out_stride = p.out.stride;
            products[j].bias = e.vector(p.bias);
        }
        llamath_matmul(pool, products, op.products.count, at(op.x), op.x.stride, rows(op.x),
                       pass.precision);
        check_products(op.products);
    }
    void operator()(const ops::ExpertLinear& op) {
        ExpertProduct experts[MAX_PRODUCTS] = {};
        for (int64_t j = 0; j < op.products.count; j++) {
            const ProductSpec& p = e.products[op.products.first + j];
            const auto& biases = e.biases[op.products.first + j];
            experts[j].experts = &e.matrix(p.weight);
            experts[j].out = at(p.out);
            experts[j].biases = biases.empty() ? nullptr : biases.data();
        }
        llamath_expert_matmul(pool, experts, op.products.count, at(op.x), op.x.stride,
                              ids_at(op.chosen), s.rows * op.top_k, op.rows_per_x, op.num_experts,
                              pass.precision);
        check_products(op.products);
    }
    void operator()(const ops::PerHead& op) {
        llamath_per_head_matmul(pool, at(op.out), at(op.x), rows(op.x), &e.matrix(op.matrix),
                                op.size, op.transposed, pass.precision);
    }
    void operator()(const ops::RMSNorm& op) {
        const View &x = op.x, &out = op.out;
        llamath_rms_norm(pool, at(out), x.heads == 1 ? out.stride : x.dim, at(x),
                         x.heads == 1 ? x.stride : x.dim, rows(x) * x.heads, x.dim,
                         e.vector(op.weight), op.weight_rows, op.eps, op.offset);
    }
    void operator()(const ops::LayerNorm& op) {
        const View &x = op.x, &out = op.out;
        llamath_layer_norm(pool, at(out), x.heads == 1 ? out.stride : x.dim, at(x),
                           x.heads == 1 ? x.stride : x.dim, rows(x) * x.heads, x.dim,
                           e.vector(op.weight), e.vector(op.bias), op.weight_rows, op.eps,
                           op.offset);
    }
    void operator()(const ops::L2Norm& op) {
        llamath_l2_norm(pool, at(op.out), 0, at(op.x), 0, rows(op.x) * op.x.heads, op.x.dim,
                        op.eps);
    }
    void operator()(const ops::Act& op) {
        llamath_act(pool, at(op.out), at(op.x), rows(op.x) * op.x.size(), op.function);
    }
    void operator()(const ops::Gated& op) {
        llamath_gated(pool, at(op.out), op.out.stride, at(op.gate), op.gate.stride, at(op.up),
                      op.up.stride, rows(op.gate), op.gate.size(), op.function);
    }
    void operator()(const ops::ClampedGated& op) {
        llamath_clamped_gated(pool, at(op.out), op.out.stride, at(op.gate), op.gate.stride,
                              at(op.up), op.up.stride, rows(op.gate), op.gate.size(), 1, op.limit,
                              op.alpha);
    }
    void operator()(const ops::Add& op) {
        llamath_add(pool, at(op.out), at(op.x), at(op.y), rows(op.x) * op.x.size());
    }
    void operator()(const ops::Multiply& op) {
        const View &x = op.x, &y = op.y;
        const bool by_row = y.dim == 1 && x.dim > 1;
        llamath_multiply(pool, at(op.out), at(x), at(y), rows(x) * x.heads, x.dim,
                         rows(x) * y.heads, by_row ? 1 : x.dim);
    }
    void operator()(const ops::Scale& op) {
        llamath_scale(pool, at(op.out), at(op.x), rows(op.x) * op.x.size(), op.factor, op.amount);
    }
    void operator()(const ops::ScaleByWeight& op) {
        const Matrix& w = e.matrix(op.weight);
        scale_by_weight(at(op.out), at(op.x), e.vector(op.weight), rows(op.x), op.x.heads, op.x.dim,
                        w.rows * w.cols);
    }
    void operator()(const ops::ScaleByPosition& op) {
        scale_by_position(at(op.out), at(op.x), s.positions.data(), rows(op.x), op.x.size(),
                          op.kind, op.scale, op.floor, op.offset);
    }
    void operator()(const ops::Softcap& op) {
        llamath_softcap(pool, at(op.out), at(op.x), rows(op.x) * op.x.size(), op.cap);
    }
    void operator()(const ops::Clamp& op) {
        llamath_clamp(pool, at(op.out), at(op.x), rows(op.x) * op.x.size(), -op.limit, op.limit);
    }
    void operator()(const ops::Softplus& op) {
        llamath_softplus_bias(pool, at(op.out), at(op.x), e.vector(op.bias), rows(op.x),
                              op.x.size(), op.low, op.high);
    }
    void operator()(const ops::Decay& op) {
        const View& x = op.x;
        llamath_decay(pool, at(op.out), at(x), e.vector(op.a_log), rows(x),
                      x.heads > 1 ? x.heads : x.dim, x.heads > 1 ? x.dim : 1);
    }
    void operator()(const ops::BoundedDecay& op) {
        llamath_bounded_decay(pool, at(op.out), at(op.x), e.vector(op.bias), e.vector(op.a_log),
                              rows(op.x), op.out.heads, op.out.dim, op.bound);
    }
    void operator()(const ops::Copy& op) { copy(s, op.out, op.x, rows(op.x)); }
    void operator()(const ops::LastToken& op) { last_token(s, pass, op.out, op.x); }
    void operator()(const ops::Rope& op) {
        const int64_t pairs = e.rope_pairs[op.rope.number], first = s.rope_at[op.rope.number];
        llamath_rope(pool, at(op.out), op.out.stride, at(op.x), op.x.stride, rows(op.x), op.x.heads,
                     op.x.dim, pairs, op.interleaved, s.cosines.data() + first,
                     s.sines.data() + first);
    }
    void operator()(const ops::Store& op) { store(s, pass, op.x, op.cache.number); }
    void operator()(const ops::Attention& op) {
        // a late helper reads the slopes after this function has returned
        each_segment(
            [&](const Segment& g, int64_t row) { attend(s, op, e.slopes[number], g, row); });
    }
    void operator()(const ops::CausalConv& op) {
        each_segment([&](const Segment& g, int64_t row) {
            llamath_causal_conv(pool, at(op.out) + row * op.out.stride, op.out.stride,
                                at(op.x) + row * op.x.stride, op.x.stride, state(g, op.state),
                                e.vector(op.weight), e.vector(op.bias), g.batch, g.tokens,
                                op.x.size(), op.taps, LLAMATH_IDENTITY, nullptr);
        });
    }
    void operator()(const ops::DeltaRule& op) {
        each_segment([&](const Segment& g, int64_t row) {
            const auto in = [&](const View& v) { return at(v) + row * v.stride; };
            DeltaRule d = {};
            d.out = in(op.out);
            d.q = in(op.q), d.k = in(op.k), d.v = in(op.v), d.g = in(op.g), d.beta = in(op.beta);
            d.state = state(g, op.state);
            d.out_token = op.out.stride;
            d.q_token = op.q.stride, d.k_token = op.k.stride, d.v_token = op.v.stride;
            d.g_token = op.g.stride, d.beta_token = op.beta.stride;
            d.batch = g.batch, d.tokens = g.tokens;
            d.heads = op.v.heads, d.groups = op.q.heads, d.n = op.q.dim, d.m = op.v.dim;
            d.decay_per_row = op.decay_by_row;
            llamath_gated_delta_rule(pool, &d);
        });
    }
    template <class Scan>
    StateScan scan(const Scan& op, const Segment& g, int64_t row) const {
        const auto in = [&](const View& v) { return at(v) + row * v.stride; };
        StateScan d = {};
        d.out = in(op.out);
        d.x = in(op.x), d.b = in(op.b), d.c = in(op.c), d.dt = in(op.dt);
        d.a_log = e.vector(op.a_log);
        d.state = state(g, op.state);
        d.out_token = op.out.stride;
        d.x_token = op.x.stride, d.b_token = op.b.stride, d.c_token = op.c.stride;
        d.dt_token = op.dt.stride;
        d.batch = g.batch, d.tokens = g.tokens;
        d.n = op.b.dim;
        return d;
    }
    void operator()(const ops::SSMScan& op) {
        each_segment([&](const Segment& g, int64_t row) {
            StateScan d = scan(op, g, row);
            d.heads = op.x.heads, d.m = op.x.dim, d.groups = op.b.heads;
            llamath_ssm_scan(pool, &d);
        });
    }
    void operator()(const ops::SelectiveScan& op) {
        each_segment([&](const Segment& g, int64_t row) {
            StateScan d = scan(op, g, row);
            d.skip = e.vector(op.skip);
            d.heads = op.x.dim, d.m = d.groups = 1;
            llamath_selective_scan(pool, &d);
        });
    }
    void operator()(const ops::Route& op) {
        Route r = {};
        r.num_experts = op.logits.dim;
        r.top_k = op.top_k;
        r.scoring = op.scoring;
        r.choice_by_logits = op.choice_by_logits;
        r.normalize = op.normalize;
        r.correction = e.vector(op.correction);
        r.groups = op.groups, r.kept_groups = op.kept_groups, r.best_of_group = op.best_of_group;
        r.scaling = op.scaling, r.other = op.other;
        llamath_route(pool, ids_at(op.chosen), at(op.weights), at(op.logits), rows(op.logits), &r);
    }
    void operator()(const ops::RouteByToken& op) {
        route_by_token(ids_at(op.chosen), at(op.weights), at(op.logits), rows(op.logits),
                       op.logits.dim, pass.ids, e.vector(op.table), op.table_rows, op.top_k,
                       op.scoring, op.scaling);
    }
    void operator()(const ops::Dispatch& op) {
        dispatch(at(op.out), at(op.x), at(op.weights), rows(op.x), op.x.dim, op.top_k);
    }
    void operator()(const ops::Combine& op) {
        const float* weights = at(op.weights);
        if (op.has_equal_weights) {
            s.ones.assign(s.rows * op.top_k, 1.0f);
            weights = s.ones.data();
        }
        llamath_combine_experts(pool, at(op.out), at(op.y), weights, ids_at(op.chosen),
                                op.x.given() ? at(op.x) : nullptr, s.rows, op.top_k, op.num_experts,
                                op.y.dim, 0);
    }
    void operator()(const ops::ScaleByExpert& op) {
        scale_by_expert(at(op.out), at(op.weights), ids_at(op.chosen), e.vector(op.scale),
                        rows(op.weights) * op.weights.size(), op.num_experts);
    }
    void operator()(const ops::AddSinusoids& op) {
        add_sinusoids(at(op.out), at(op.x), s.positions.data(), rows(op.x), op.x.size(), op.offset,
                      op.steps);
    }
    void operator()(const ops::MixStreams& op) {
        mix_streams(at(op.out), at(op.x), at(op.weights), rows(op.x), op.out.heads, op.x.heads,
                    op.x.dim);
    }
    void operator()(const ops::Sinkhorn& op) {
        sinkhorn(at(op.out), at(op.x), rows(op.x), op.x.dim, op.iterations, op.eps);
    }
    void operator()(const ops::NormalizeSum& op) {
        normalize_sum(at(op.out), at(op.x), rows(op.x) * op.x.heads, op.x.dim);
    }
    void operator()(const ops::LayerEnd& op) {
        const int64_t size = s.rows * op.x.size();
        if (pass.layers) memcpy(pass.layers + op.layer * size, at(op.x), size * 4);
    }
};

void free_caches(Session& s) {
    llamath_pool_wait(s.engine->pool);
    for (Cache& c : s.caches) free(c.data);
    for (float* x : s.states) free(x);
    for (float* x : s.memory) free(x);
}

#ifndef __wasm__
// Ctrl-C during a pass: cancel it, then do what the process does otherwise.
std::atomic<Pool*> interrupted_pool{nullptr};
struct sigaction previous_action;

void on_interrupt(int number, siginfo_t* info, void* context) {
    if (Pool* pool = interrupted_pool.load()) llamath_pool_cancel(pool);
    if (previous_action.sa_flags & SA_SIGINFO)
        previous_action.sa_sigaction(number, info, context);
    else if (previous_action.sa_handler != SIG_IGN && previous_action.sa_handler != SIG_DFL)
        previous_action.sa_handler(number);
}
#endif

}  // namespace

extern "C" {

int32_t llamath_version() { return LLAMATH_VERSION; }

// A program, or NULL with the reason in `text` and the number of the operation in `where`, or -1.
// The arrays of the program are copied.
Engine* llamath_engine_create(Pool* pool, const ProgramSpec* p, int64_t* where, char* text,
                              int64_t size) LLAMATH_TRY {
    if (const std::string mistake = find_mistake(*p, where); !mistake.empty()) {
        write_message(mistake, text, size);
        return nullptr;
    }
    auto* e = new Engine{pool, {}, {}, {}, {}, {}, {}, {}, p->logits, lookup_limits(*p), {}, {}, 1};
    e->ops.assign(p->ops, p->ops + p->num_ops);
    e->products.assign(p->products, p->products + p->num_products);
    e->buffers.assign(p->buffers, p->buffers + p->num_buffers);
    e->weights.assign(p->weights, p->weights + p->num_weights);
    e->caches.assign(p->caches, p->caches + p->num_caches);
    e->state_sizes.assign(p->state_sizes, p->state_sizes + p->num_states);
    e->rope_pairs.assign(p->rope_pairs, p->rope_pairs + p->num_ropes);
    e->slopes.resize(e->ops.size());
    for (size_t i = 0; i < e->ops.size(); i++)
        if (const auto* op = get_if<ops::Attention>(e->ops[i]); op && op->has_alibi)
            alibi_slopes(e->slopes[i], op->q.heads, op->alibi_bias, op->alibi_scale);
    e->biases.resize(e->products.size());
    for (const OpSpec& spec : e->ops)
        if (const auto* op = get_if<ops::ExpertLinear>(spec))
            for (int64_t j = op->products.first; j < op->products.first + op->products.count; j++)
                if (const int64_t bias = e->products[j].bias.number; bias >= 0)
                    for (int64_t x = 0; x < op->num_experts; x++)
                        e->biases[j].push_back(e->vector({bias + x}));
    return e;
}
LLAMATH_CATCH(write_message("there is not enough memory for the program", text, size);
              return nullptr;)

// The engine ends, with its pool, when its sessions have ended, too.
void llamath_engine_destroy(Engine* e) {
    llamath_pool_wait(e->pool);
    if (--e->owners) return;
    llamath_pool_destroy(e->pool);
    delete e;
}

void llamath_session_destroy(Session* s) {
    free_caches(*s);
    llamath_engine_destroy(s->engine);
    delete s;
}

// A session of `slots` sequences; passes have at most `max_chunk` tokens of a sequence.
Session* llamath_session_create(Engine* e, int64_t slots, int64_t max_chunk,
                                int64_t kv_type) LLAMATH_TRY {
    constexpr int64_t limit = std::numeric_limits<int32_t>::max();
    if (slots < 1 || slots > limit || max_chunk < 1 || max_chunk > limit) return nullptr;
    if (kv_type != LLAMATH_F32 && kv_type != LLAMATH_F16 && kv_type != LLAMATH_BF16) return nullptr;
    auto* s = new Session{e, slots, 0, max_chunk, kv_type, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
    e->owners++;
    s->caches.resize(e->caches.size());
    s->states.assign(e->state_sizes.size(), nullptr);
    s->start.assign(slots, 0);
    s->memory.assign(e->buffers.size(), nullptr);
    s->sizes.assign(e->buffers.size(), 0);
    for (size_t i = 0; i < s->states.size(); i++) {
        const int64_t numbers = product_of(slots, std::max<int64_t>(1, e->state_sizes[i]));
        s->states[i] = numbers ? static_cast<float*>(calloc(numbers, 4)) : nullptr;
        if (!s->states[i]) {
            llamath_session_destroy(s);
            return nullptr;
        }
    }
    return s;
}
LLAMATH_CATCH(return nullptr;)

// Make room for `capacity` tokens of each sequence, `length` of which are kept; 0, or -1 without
// memory.
int32_t llamath_session_reserve(Session* s, int64_t capacity, int64_t length) {
    if (capacity <= s->capacity) return 0;
    if (capacity > std::numeric_limits<int32_t>::max() || length < 0 || length > s->capacity)
        return -1;
    llamath_pool_wait(s->engine->pool);
    int64_t bytes = type_bytes(s->kv_type);
    for (size_t i = 0; i < s->caches.size(); i++) {
        const CacheSpec& spec = s->engine->caches[i];
        Cache& old = s->caches[i];
        int64_t tokens = cache_tokens(*s, spec, capacity), vector = spec.dim * bytes;
        if (tokens == old.capacity) continue;
        const int64_t vectors = product_of(s->slots, spec.heads, tokens);
        const bool possible = vectors && product_of(vectors, vector);
        char* data = possible ? static_cast<char*>(calloc(vectors, vector)) : nullptr;
        if (!data) return -1;
        for (int64_t row = 0; old.data && row < s->slots * spec.heads; row++)
            for (int64_t j = std::max<int64_t>(0, length - old.capacity); j < length; j++)
                memcpy(data + (row * tokens + j % tokens) * vector,
                       old.data + (row * old.capacity + j % old.capacity) * vector, vector);
        free(old.data);
        old = Cache{data, tokens};
    }
    s->capacity = capacity;
    return 0;
}

// The padding before the tokens of a sequence; 0, or -1 for a sequence or a number that cannot be.
int32_t llamath_session_set_start(Session* s, int64_t slot, int32_t start) {
    if (slot < 0 || slot >= s->slots || start < 0) return -1;
    s->start[slot] = start;
    return 0;
}

// Whether the caches still hold what a sequence cut to `length` of its `stored` tokens needs.
int32_t llamath_session_can_truncate(const Session* s, int64_t stored, int64_t length) {
    if (length >= stored) return 1;
    if (!s->states.empty()) return 0;
    for (size_t i = 0; i < s->caches.size(); i++) {
        int64_t lookback = s->engine->caches[i].lookback,
                first = std::max<int64_t>(0, stored - s->caches[i].capacity);
        if (lookback && first > std::max<int64_t>(0, length - lookback + 1)) return 0;
    }
    return 1;
}

// Bytes of caches, states and buffers.
int64_t llamath_session_bytes(const Session* s) {
    int64_t total = 0, bytes = type_bytes(s->kv_type);
    for (size_t i = 0; i < s->caches.size(); i++) {
        const CacheSpec& spec = s->engine->caches[i];
        total += s->slots * spec.heads * s->caches[i].capacity * spec.dim * bytes;
    }
    for (int64_t size : s->engine->state_sizes) total += s->slots * size * 4;
    for (int64_t size : s->sizes) total += size * 4;
    return total;
}

// Run a pass. RUN_NONFINITE: `where` is the number of the operation and of its product.
// RUN_REFUSED: `text` says why.
int32_t llamath_session_run(Session* s, const Pass* pass, int64_t* where, char* text,
                            int64_t size) LLAMATH_TRY {
    if (const std::string mistake = find_mistake(*s, *pass); !mistake.empty()) {
        write_message(mistake, text, size);
        return RUN_REFUSED;
    }
    s->last = {};
    if (!prepare(*s, *pass)) return RUN_NO_MEMORY;
    Pool* pool = s->engine->pool;
    for (size_t i = 0; i < s->engine->ops.size(); i++) {
        Execution execution{*s, *pass, *s->engine, pool, static_cast<int64_t>(i)};
        visit(s->engine->ops[i], execution);
        if (llamath_pool_cancelled(pool)) {
            llamath_pool_resume(pool);
            return RUN_CANCELLED;
        }
        if (execution.nonfinite >= 0) {
            where[0] = i, where[1] = execution.nonfinite;
            return RUN_NONFINITE;
        }
    }
    if (pass->num_segments == 1 && pass->segments[0].batch == 1) s->last = pass->segments[0];
    return RUN_OK;
}
LLAMATH_CATCH(return RUN_NO_MEMORY;)

// Row `row` of the logits of the last pass, or NULL if it had fewer.
const float* llamath_session_logits(const Session* s, int64_t row) {
    const View& logits = s->engine->logits;
    return row >= 0 && row < rows_of(*s, logits) ? at(*s, logits) + row * logits.stride : nullptr;
}

// The rows of a buffer as the last pass left it, or NULL without such a buffer or pass. In a
// program whose buffers are not shared, each has the result of one operation.
const float* llamath_session_buffer(const Session* s, int64_t buffer, int64_t* rows) {
    *rows = 0;
    if (buffer < 0 || buffer >= static_cast<int64_t>(s->memory.size())) return nullptr;
    const BufferSpec& spec = s->engine->buffers[buffer];
    const int64_t n = spec.rows_per_token ? spec.rows_per_token * s->rows : s->last_rows;
    if (n * spec.width > s->sizes[buffer]) return nullptr;
    *rows = n;
    return s->memory[buffer];
}

// The weights of an attention operation of the last pass, which read one sequence, [tokens, heads,
// keys]: they are what the kernel gives where the values are the identity matrix, so that masks,
// windows, sinks and caps are those of the pass. 0, or -1 if there are none, not enough room for
// them, or no keys any more. The buffers of the program are not shared.
int32_t llamath_session_attention(const Session* s, int64_t number, float* out,
                                  int64_t size) LLAMATH_TRY {
    const Engine& e = *s->engine;
    const Segment& g = s->last;
    if (number < 0 || number >= static_cast<int64_t>(e.ops.size()) || !g.tokens) return -1;
    const auto* op = get_if<ops::Attention>(e.ops[number]);
    if (!op) return -1;
    const int64_t keys = g.past + g.tokens, bytes = type_bytes(s->kv_type),
                  wanted = product_of(g.tokens, op->q.heads, keys),
                  square = product_of(keys, keys, bytes);
    if (!wanted || !square || size < wanted || s->caches[op->key_cache.number].capacity < keys)
        return -1;
    const uint32_t one = s->kv_type == LLAMATH_F32    ? 0x3f800000
                         : s->kv_type == LLAMATH_BF16 ? 0x3f80
                                                      : 0x3c00;
    std::vector<char> identity(static_cast<size_t>(square));
    for (int64_t i = 0; i < keys; i++) memcpy(&identity[i * (keys + 1) * bytes], &one, bytes);
    attend(*s, *op, e.slopes[number], g, 0, identity.data(), out);
    llamath_pool_wait(e.pool);  // a late helper reads the identity
    return 0;
}
LLAMATH_CATCH(return -1;)

#ifndef __wasm__
// From now on Ctrl-C cancels the passes of this pool; NULL: no longer.
int32_t llamath_interrupts(Pool* pool) {
    if (pool && !interrupted_pool.load()) {
        struct sigaction action = {};
        action.sa_sigaction = on_interrupt;
        action.sa_flags = SA_SIGINFO;
        sigemptyset(&action.sa_mask);
        if (sigaction(SIGINT, nullptr, &previous_action) ||
            (!(previous_action.sa_flags & SA_SIGINFO) && previous_action.sa_handler == SIG_IGN))
            return -1;
        interrupted_pool = pool;
        return sigaction(SIGINT, &action, nullptr);
    }
    Pool* last = pool ? nullptr : interrupted_pool.exchange(nullptr);
    if (last) {
        int32_t status = sigaction(SIGINT, &previous_action, nullptr);
        llamath_pool_resume(last);  // a signal after the last pass must not cancel the next one
        return status;
    }
    return 0;
}
#endif

}  // extern "C"
