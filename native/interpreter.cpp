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

    const float* vector(int64_t i) const {
        return i < 0 ? nullptr : static_cast<const float*>(weights[i].data);
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
        const OpSpec& op = e.ops[i];
        if (op.code != LAYER_END) continue;
        const int64_t size = product_of(op.i[0] + 1, rows, op.in[0].size());
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

// Attention of a segment, whose first row is `row`. With `identity`, [keys, keys] in the type of
// the caches, as the values, the result are the weights: `weights`, [tokens, heads, keys].
void attend(const Session& s, const OpSpec& op, const Segment& g, int64_t row,
            const void* identity = nullptr, float* weights = nullptr) {
    const View &q = op.in[0], &out = op.out[0];
    const Engine& e = *s.engine;
    const Cache &k = s.caches[op.i[0]], &v = s.caches[op.i[3]];
    const CacheSpec &k_spec = e.caches[op.i[0]], &v_spec = e.caches[op.i[3]];
    const int64_t bytes = type_bytes(s.kv_type);
    const std::vector<float>& slopes =
        e.slopes[&op - e.ops.data()];  // a late helper reads them after this function has returned
    Attention a = {};
    a.out = at(s, out) + row * out.stride;
    a.q = at(s, q) + row * q.stride;
    a.out_token = out.stride;
    a.out_batch = g.tokens * out.stride;
    a.q_token = q.stride;
    a.q_batch = g.tokens * q.stride;
    a.k_head = k.capacity * k_spec.dim;
    a.k_token = k_spec.dim;
    a.k_batch = k_spec.heads * a.k_head;
    a.v_head = v.capacity * v_spec.dim;
    a.v_token = v_spec.dim;
    a.v_batch = v_spec.heads * a.v_head;
    a.k = k.data + (g.slot * a.k_batch + op.i[1]) * bytes;
    a.v = v.data + (g.slot * a.v_batch + op.i[4]) * bytes;
    a.type = s.kv_type;
    a.batch = g.batch;
    a.tokens = g.tokens;
    a.heads = q.heads;
    a.kv_heads = k_spec.heads;
    a.k_dim = op.i[2];
    a.v_dim = op.i[5];
    a.past = g.past;
    a.start = &s.start[g.slot];
    a.ring = k.capacity < s.capacity ? k.capacity : 0;
    a.causal = 1;
    a.window = op.i[6];
    a.chunk = op.i[7];
    a.scale = op.f[0];
    a.softcap = op.f[1];
    a.sinks = e.vector(op.w[0]);
    a.slopes = slopes.empty() ? nullptr : slopes.data();
    if (identity) {
        a.out = weights, a.out_token = a.out_batch = 0;
        a.v = identity, a.v_dim = a.v_token = g.past + g.tokens;
        a.v_head = a.v_batch = 0;
    }
    llamath_attention(e.pool, &a);
}

void attention(const Session& s, const Pass& pass, const OpSpec& op) {
    int64_t row = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        const Segment& g = pass.segments[i];
        attend(s, op, g, row);
        row += g.batch * g.tokens;
    }
}

void recurrence(const Session& s, const Pass& pass, const OpSpec& op) {
    const Engine& e = *s.engine;
    const View& out = op.out[0];
    int64_t row = 0;
    for (int64_t i = 0; i < pass.num_segments; i++) {
        const Segment& g = pass.segments[i];
        float* state = s.states[op.i[0]] + g.slot * e.state_sizes[op.i[0]];
        auto in = [&](int j) { return at(s, op.in[j]) + row * op.in[j].stride; };
        float* y = at(s, out) + row * out.stride;
        if (op.code == CAUSAL_CONV) {
            llamath_causal_conv(e.pool, y, out.stride, in(0), op.in[0].stride, state,
                                e.vector(op.w[0]), e.vector(op.w[1]), g.batch, g.tokens,
                                op.in[0].size(), op.i[1], LLAMATH_IDENTITY, nullptr);
        } else if (op.code == DELTA_RULE) {
            DeltaRule d = {};
            d.out = y;
            d.q = in(0), d.k = in(1), d.v = in(2), d.g = in(3), d.beta = in(4);
            d.state = state;
            d.out_token = out.stride;
            d.q_token = op.in[0].stride, d.k_token = op.in[1].stride, d.v_token = op.in[2].stride;
            d.g_token = op.in[3].stride, d.beta_token = op.in[4].stride;
            d.batch = g.batch, d.tokens = g.tokens;
            d.heads = op.in[2].heads, d.groups = op.in[0].heads, d.n = op.in[0].dim,
            d.m = op.in[2].dim;
            d.decay_per_row = op.i[1];
            llamath_gated_delta_rule(e.pool, &d);
        } else {
            StateScan d = {};
            d.out = y;
            d.x = in(0), d.b = in(1), d.c = in(2), d.dt = in(3);
            d.a_log = e.vector(op.w[0]);
            d.state = state;
            d.out_token = out.stride;
            d.x_token = op.in[0].stride, d.b_token = op.in[1].stride, d.c_token = op.in[2].stride,
            d.dt_token = op.in[3].stride;
            d.batch = g.batch, d.tokens = g.tokens;
            d.n = op.in[1].dim;
            if (op.code == SSM_SCAN) {
                d.heads = op.in[0].heads, d.m = op.in[0].dim, d.groups = op.in[1].heads;
                llamath_ssm_scan(e.pool, &d);
            } else {
                d.skip = e.vector(op.w[1]);
                d.heads = op.in[0].dim, d.m = d.groups = 1;
                llamath_selective_scan(e.pool, &d);
            }
        }
        row += g.batch * g.tokens;
    }
}

// Returns the first product whose output is not finite, or -1.
int64_t linear(const Session& s, const Pass& pass, const OpSpec& op) {
    const Engine& e = *s.engine;
    const View& x = op.in[0];
    int64_t n = rows_of(s, x);
    Product products[8] = {};
    ExpertProduct experts[8] = {};
    for (int64_t j = 0; j < op.num_products; j++) {
        const ProductSpec& p = e.products[op.first_product + j];
        if (op.code == LINEAR) {
            products[j].w = e.weights[p.weight];
            products[j].out = at(s, p.out);
            products[j].out_stride = p.out.stride;
            products[j].bias = e.vector(p.bias);
        } else {
            experts[j].experts = &e.weights[p.weight];
            experts[j].out = at(s, p.out);
            experts[j].biases = p.bias < 0 ? nullptr : e.biases[op.first_product + j].data();
        }
    }
    if (op.code == LINEAR)
        llamath_matmul(e.pool, products, op.num_products, at(s, x), x.stride, n, pass.precision);
    else
        llamath_expert_matmul(e.pool, experts, op.num_products, at(s, x), x.stride,
                              reinterpret_cast<const int32_t*>(at(s, op.in[1])), s.rows * op.i[0],
                              op.i[1], op.i[2], pass.precision);
    for (int64_t j = 0; j < op.num_products; j++) {
        const View& out = e.products[op.first_product + j].out;
        if (llamath_first_nonfinite(e.pool, at(s, out), rows_of(s, out) * out.size()) >= 0)
            return j;
    }
    return -1;
}

void route(const Session& s, const Pass& pass, const OpSpec& op) {
    const Engine& e = *s.engine;
    const View& x = op.in[0];
    int64_t n = rows_of(s, x);
    auto* chosen = reinterpret_cast<int32_t*>(at(s, op.out[0]));
    float* weights = at(s, op.out[1]);
    if (op.code == ROUTE_BY_TOKEN)
        return route_by_token(chosen, weights, at(s, x), n, x.dim, pass.ids, e.vector(op.w[0]),
                              op.i[2], op.i[0], op.i[1], op.f[0]);
    Route r = {};
    r.num_experts = x.dim;
    r.top_k = op.i[0];
    r.scoring = op.i[1];
    r.choice_by_logits = op.i[2];
    r.normalize = op.i[3];
    r.correction = e.vector(op.w[0]);
    r.groups = op.i[4], r.kept_groups = op.i[5], r.best_of_group = op.i[6];
    r.scaling = op.f[0], r.other = op.f[1];
    llamath_route(e.pool, chosen, weights, at(s, x), n, &r);
}

// Returns -1, or the product of a linear operation whose output is not finite.
int64_t execute(Session& s, const Pass& pass, const OpSpec& op) {
    const Engine& e = *s.engine;
    Pool* pool = e.pool;
    const View &out = op.out[0], &x = op.in[0], &y = op.in[1];
    int64_t n = op.num_inputs ? rows_of(s, x) : s.rows;
    switch (op.code) {
        case LOOKUP: {
            const int32_t* ids = op.i[0] ? s.positions.data() : pass.ids;
            llamath_lookup(pool, at(s, out), out.stride, ids, s.rows, &e.weights[op.w[0]], op.i[1],
                           1.0f);
            break;
        }
        case LINEAR:
        case EXPERT_LINEAR:
            return linear(s, pass, op);
        case PER_HEAD:
            llamath_per_head_matmul(pool, at(s, out), at(s, x), n, &e.weights[op.w[0]], op.i[0],
                                    op.i[1], pass.precision);
            break;
        case RMS_NORM:
        case LAYER_NORM: {
            int64_t count = n * x.heads, x_stride = x.heads == 1 ? x.stride : x.dim,
                    out_stride = x.heads == 1 ? out.stride : x.dim;
            if (op.code == RMS_NORM)
                llamath_rms_norm(pool, at(s, out), out_stride, at(s, x), x_stride, count, x.dim,
                                 e.vector(op.w[0]), op.i[1], op.f[0], op.f[1]);
            else
                llamath_layer_norm(pool, at(s, out), out_stride, at(s, x), x_stride, count, x.dim,
                                   e.vector(op.w[0]), e.vector(op.w[1]), op.i[1], op.f[0], op.f[1]);
            break;
        }
        case L2_NORM:
            llamath_l2_norm(pool, at(s, out), 0, at(s, x), 0, n * x.heads, x.dim, op.f[0]);
            break;
        case ACT:
            llamath_act(pool, at(s, out), at(s, x), n * x.size(), op.i[1]);
            break;
        case GATED:
            llamath_gated(pool, at(s, out), out.stride, at(s, x), x.stride, at(s, y), y.stride, n,
                          x.size(), op.i[1]);
            break;
        case CLAMPED_GATED:
            llamath_clamped_gated(pool, at(s, out), out.stride, at(s, x), x.stride, at(s, y),
                                  y.stride, n, x.size(), 1, op.f[0], op.f[1]);
            break;
        case ADD:
            llamath_add(pool, at(s, out), at(s, x), at(s, y), n * x.size());
            break;
        case MULTIPLY: {
            bool by_row = y.dim == 1 && x.dim > 1;
            llamath_multiply(pool, at(s, out), at(s, x), at(s, y), n * x.heads, x.dim, n * y.heads,
                             by_row ? 1 : x.dim);
            break;
        }
        case SCALE:
            llamath_scale(pool, at(s, out), at(s, x), n * x.size(), op.f[0], op.f[1]);
            break;
        case SCALE_BY_WEIGHT:
            scale_by_weight(at(s, out), at(s, x), e.vector(op.w[0]), n, x.heads, x.dim, op.i[1]);
            break;
        case SCALE_BY_POSITION:
            scale_by_position(at(s, out), at(s, x), s.positions.data(), n, x.size(), op.i[0],
                              op.f[0], op.f[1], op.f[2]);
            break;
        case SOFTCAP:
            llamath_softcap(pool, at(s, out), at(s, x), n * x.size(), op.f[0]);
            break;
        case CLAMP:
            llamath_clamp(pool, at(s, out), at(s, x), n * x.size(), -op.f[0], op.f[0]);
            break;
        case SOFTPLUS:
            llamath_softplus_bias(pool, at(s, out), at(s, x), e.vector(op.w[0]), n, x.size(),
                                  op.f[0], op.f[1]);
            break;
        case DECAY:
            llamath_decay(pool, at(s, out), at(s, x), e.vector(op.w[0]), n,
                          x.heads > 1 ? x.heads : x.dim, x.heads > 1 ? x.dim : 1);
            break;
        case BOUNDED_DECAY:
            llamath_bounded_decay(pool, at(s, out), at(s, x), e.vector(op.w[1]), e.vector(op.w[0]),
                                  n, out.heads, out.dim, op.f[0]);
            break;
        case COPY:
            copy(s, out, x, n);
            break;
        case LAST_TOKEN:
            last_token(s, pass, out, x);
            break;
        case ROPE: {
            int64_t pairs = e.rope_pairs[op.i[0]], first = s.rope_at[op.i[0]];
            llamath_rope(pool, at(s, out), out.stride, at(s, x), x.stride, n, x.heads, x.dim, pairs,
                         op.i[1], s.cosines.data() + first, s.sines.data() + first);
            break;
        }
        case STORE:
            store(s, pass, x, op.i[0]);
            break;
        case ATTENTION:
            attention(s, pass, op);
            break;
        case CAUSAL_CONV:
        case DELTA_RULE:
        case SSM_SCAN:
        case SELECTIVE_SCAN:
            recurrence(s, pass, op);
            break;
        case ROUTE:
        case ROUTE_BY_TOKEN:
            route(s, pass, op);
            break;
        case DISPATCH:
            dispatch(at(s, out), at(s, x), at(s, y), n, x.dim, op.i[0]);
            break;
        case COMBINE: {
            const float* weights = at(s, y);
            if (op.i[2]) {
                s.ones.assign(s.rows * op.i[0], 1.0f);
                weights = s.ones.data();
            }
            const float* input = op.num_inputs > 3 ? at(s, op.in[3]) : nullptr;
            llamath_combine_experts(pool, at(s, out), at(s, x), weights,
                                    reinterpret_cast<const int32_t*>(at(s, op.in[2])), input,
                                    s.rows, op.i[0], op.i[1], x.dim, 0);
            break;
        }
        case SCALE_BY_EXPERT:
            scale_by_expert(at(s, out), at(s, x), reinterpret_cast<const int32_t*>(at(s, y)),
                            e.vector(op.w[0]), n * x.size(), op.i[0]);
            break;
        case ADD_SINUSOIDS:
            add_sinusoids(at(s, out), at(s, x), s.positions.data(), n, x.size(), op.i[0], op.i[1]);
            break;
        case MIX_STREAMS:
            mix_streams(at(s, out), at(s, x), at(s, y), n, out.heads, x.heads, x.dim);
            break;
        case SINKHORN:
            sinkhorn(at(s, out), at(s, x), n, x.dim, op.i[1], op.f[0]);
            break;
        case NORMALIZE_SUM:
            normalize_sum(at(s, out), at(s, x), n * x.heads, x.dim);
            break;
        case LAYER_END:
            if (pass.layers)
                memcpy(pass.layers + op.i[0] * s.rows * x.size(), at(s, x), s.rows * x.size() * 4);
            break;
    }
    return -1;
}

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
        if (const OpSpec& op = e->ops[i]; op.code == ATTENTION && op.i[8])
            alibi_slopes(e->slopes[i], op.in[0].heads, op.f[2], op.f[3]);
    e->biases.resize(e->products.size());
    for (const OpSpec& op : e->ops)
        if (op.code == EXPERT_LINEAR)
            for (int64_t j = op.first_product; j < op.first_product + op.num_products; j++)
                for (int64_t x = 0; e->products[j].bias >= 0 && x < op.i[2]; x++)
                    e->biases[j].push_back(e->vector(e->products[j].bias + x));
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
        int64_t bad = execute(*s, *pass, s->engine->ops[i]);
        if (llamath_pool_cancelled(pool)) {
            llamath_pool_resume(pool);
            return RUN_CANCELLED;
        }
        if (bad >= 0) {
            where[0] = i, where[1] = bad;
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
    const OpSpec& op = e.ops[number];
    if (op.code != ATTENTION) return -1;
    const int64_t keys = g.past + g.tokens, bytes = type_bytes(s->kv_type),
                  wanted = product_of(g.tokens, op.in[0].heads, keys),
                  square = product_of(keys, keys, bytes);
    if (!wanted || !square || size < wanted || s->caches[op.i[0]].capacity < keys) return -1;
    const uint32_t one = s->kv_type == LLAMATH_F32    ? 0x3f800000
                         : s->kv_type == LLAMATH_BF16 ? 0x3f80
                                                      : 0x3c00;
    std::vector<char> identity(static_cast<size_t>(square));
    for (int64_t i = 0; i < keys; i++) memcpy(&identity[i * (keys + 1) * bytes], &one, bytes);
    attend(*s, op, g, 0, identity.data(), out);
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
