// Checks of a program before its first pass: what each operation reads and writes lies in its
// buffers, weights, caches and states.
//
// Every number of a program is below 2^31, so that products of two of them do not overflow. A pass
// has any number of rows: views are part of a row of their buffer, so that what holds for one row
// holds for all of them, where the row counts of inputs and outputs agree.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "program.h"

namespace {

constexpr int64_t LIMIT = std::numeric_limits<int32_t>::max();
constexpr int64_t MAX_ITERATIONS = 1000;
constexpr int64_t ANY = -1;

enum Form {
    WHOLE,   // all of each row of the buffer, without gaps
    JOINED,  // a part of each row, the heads without gaps
    HEADS,   // a part of each row, the heads anywhere in it
};

// The subject of a message: "the output of product 1", or "the window" without a number
struct Name {
    const char* word;
    int64_t number;
    Name(const char* word, int64_t number = -1) : word(word), number(number) {}
};

// The arguments of an operation. Each function notes a mistake unless one was found before;
// messages are written only then.
class Arguments {
  public:
    explicit Arguments(const ProgramSpec& program) : p(program) {}

    const ProgramSpec& p;
    std::string mistake;

    bool fine() const { return mistake.empty(); }

    template <class... Numbers>
    bool expect(bool holds, Name name, const char* format, Numbers... numbers) {
        if (holds || !fine()) return fine();
        char rest[200];
        std::snprintf(rest, sizeof rest, format, static_cast<long long>(numbers)...);
        mistake =
            name.word + (name.number < 0 ? "" : " " + std::to_string(name.number)) + " " + rest;
        return false;
    }
    // Whoever computes with `found` asks first whether this holds.
    bool number(Name name, int64_t found, int64_t low, int64_t high) {
        return expect(found >= low && found <= high, name, "is %lld, expected %lld to %lld", found,
                      low, high);
    }
    bool equal(Name name, int64_t found, int64_t expected) {
        return expect(found == expected, name, "is %lld, expected %lld", found, expected);
    }

    void flag(Name name, int64_t found) { number(name, found, 0, 1); }

    // A part of each row of a buffer that has `rows` rows for each token
    bool view(Name name, const View& v, Form form, int64_t rows, int64_t size) {
        if (!expect(v.buffer >= 0 && v.buffer < p.num_buffers, name, "is in buffer %lld of %lld",
                    v.buffer, p.num_buffers))
            return false;
        const BufferSpec& buffer = p.buffers[v.buffer];
        const bool possible =
            std::min(v.offset, v.head_stride) >= 0 && std::min({v.stride, v.heads, v.dim}) >= 1 &&
            std::max({v.offset, v.stride, v.heads, v.head_stride, v.dim}) <= LIMIT;
        if (!expect(
                possible, name,
                "has %lld heads of %lld numbers, %lld apart, from number %lld on in rows of %lld",
                v.heads, v.dim, v.head_stride, v.offset, v.stride))
            return false;
        const int64_t end = v.offset + (v.heads - 1) * (v.heads == 1 ? 0 : v.head_stride) + v.dim;
        expect(v.stride <= buffer.width, name, "has rows of %lld numbers in a buffer of %lld",
               v.stride, buffer.width);
        expect(end <= v.stride, name, "ends at number %lld of rows of %lld", end, v.stride);
        expect(form == HEADS || v.joined(), name, "has gaps between its heads");
        expect(form != WHOLE || (v.offset == 0 && v.stride == v.size()), name,
               "is not all of its rows");
        expect(rows == ANY || rows == buffer.rows_per_token, name,
               "has %lld rows for each token, expected %lld", buffer.rows_per_token, rows);
        return expect(size == ANY || size == v.size(), name,
                      "has %lld numbers in a row, expected %lld", v.size(), size);
    }
    bool input(Name name, const View& v, Form form, int64_t rows = ANY, int64_t size = ANY) {
        read_.push_back(v.buffer);
        return view(name, v, form, rows, size);
    }
    bool output(Name name, const View& v, Form form, int64_t rows, int64_t size) {
        if (!view(name, v, form, rows, size)) return false;
        expect(std::count(written_.begin(), written_.end(), v.buffer) == 0, name,
               "is in buffer %lld, which is written already", v.buffer);
        written_.push_back(v.buffer);
        return fine();
    }
    int64_t rows(const View& v) const { return p.buffers[v.buffer].rows_per_token; }

    // No kernel reads what it writes.
    void separate() {
        for (int64_t buffer : read_)
            expect(std::count(written_.begin(), written_.end(), buffer) == 0, {"buffer", buffer},
                   "is read and written");
    }

    bool weight(Name name, WeightNumber w) {
        return expect(w.number >= 0 && w.number < p.num_weights, name, "is weight %lld of %lld",
                      w.number, p.num_weights);
    }
    bool matrix(Name name, WeightNumber found, int64_t rows, int64_t cols) {
        if (!weight(name, found)) return false;
        const Matrix& w = p.weights[found.number];
        return expect((rows == ANY || w.rows == rows) && w.cols == cols, name,
                      "has %lld rows of %lld, expected %lld of %lld", w.rows, w.cols,
                      rows == ANY ? w.rows : rows, cols);
    }
    // `count` numbers in float32
    bool vector(Name name, WeightNumber found, int64_t count) {
        if (!weight(name, found)) return false;
        const Matrix& w = p.weights[found.number];
        const bool floats = w.type == LLAMATH_F32 && w.row_stride == 0 &&
                            reinterpret_cast<uintptr_t>(w.data) % alignof(float) == 0;
        expect(floats, name, "is not in float32");
        return expect(w.rows * w.cols == count, name, "has %lld numbers, expected %lld",
                      w.rows * w.cols, count);
    }
    void optional_vector(Name name, WeightNumber found, int64_t count) {
        if (found.number != -1) vector(name, found, count);
    }

    void state(StateNumber found, int64_t a, int64_t b, int64_t c) {
        int64_t size = 0;
        number("the state", found.number, 0, p.num_states - 1);
        const bool overflows =
            __builtin_mul_overflow(a, b, &size) || __builtin_mul_overflow(size, c, &size);
        if (expect(!overflows, "the state", "is too large"))
            equal("the size of the state", p.state_sizes[found.number], size);
    }
    const CacheSpec* cache(CacheNumber found) {
        number("the cache", found.number, 0, p.num_caches - 1);
        return fine() ? &p.caches[found.number] : nullptr;
    }

  private:
    std::vector<int64_t> read_, written_;
};

template <class Operation>
void check_products(Arguments& a, const Operation& op, int64_t experts, int64_t rows, Form form) {
    const Products& products = op.products;
    if (!a.number("the number of products", products.count, 1, MAX_PRODUCTS)) return;
    if (!a.number("the first product", products.first, 0, a.p.num_products - products.count))
        return;
    for (int64_t j = 0; j < products.count && a.fine(); j++) {
        const ProductSpec& product = a.p.products[products.first + j];
        const int64_t weight = product.weight.number, bias = product.bias.number;
        a.number("a weight", weight, 0, LIMIT), a.number("a bias", bias, -1, LIMIT);
        if (!a.output({"the output of product", j}, product.out, form, rows, ANY)) return;
        for (int64_t e = 0; e < experts && a.fine(); e++) {
            a.matrix({"the matrix of product", j}, {weight + e}, product.out.size(), op.x.size());
            a.optional_vector({"the bias of product", j}, {bias < 0 ? -1 : bias + e},
                              product.out.size());
        }
    }
}

// An input and an output like it
template <class Operation>
bool check_alike(Arguments& a, const Operation& op, Form form = WHOLE, int64_t rows = ANY) {
    return a.input("x", op.x, form, rows) &&
           a.output("out", op.out, form, a.rows(op.x), op.x.size());
}

template <class Operation>
bool check_norm(Arguments& a, const Operation& op) {
    // rows of heads are taken one after the other
    if (!a.input("x", op.x, JOINED) || !check_alike(a, op, op.x.heads == 1 ? JOINED : WHOLE))
        return false;
    if (!a.number("the number of rows of the weight", op.weight_rows, 1, LIMIT)) return false;
    a.optional_vector("the weight", op.weight, op.weight_rows * op.x.dim);
    return a.fine();
}

void check_function(Arguments& a, int64_t function) {
    a.number("the activation function", function, LLAMATH_IDENTITY, LLAMATH_TANH);
}

template <class Operation>
bool check_gated(Arguments& a, const Operation& op) {
    return a.input("gate", op.gate, JOINED) &&
           a.input("up", op.up, JOINED, a.rows(op.gate), op.gate.size()) &&
           a.output("out", op.out, JOINED, a.rows(op.gate), op.gate.size());
}

template <class Operation>
bool check_router(Arguments& a, const Operation& op, int64_t rows) {
    if (!a.input("logits", op.logits, WHOLE, rows)) return false;
    a.number("the number of chosen experts", op.top_k, 1, op.logits.size());
    a.equal("the number of heads", op.logits.heads, 1);
    a.output("chosen", op.chosen, WHOLE, a.rows(op.logits), op.top_k);
    a.output("weights", op.weights, WHOLE, a.rows(op.logits), op.top_k);
    a.number("the scoring function", op.scoring, LLAMATH_SCORE_SOFTMAX, LLAMATH_SCORE_SQRTSOFTPLUS);
    return a.fine();
}

template <class Operation>
bool check_scan(Arguments& a, const Operation& op) {
    if (!a.input("x", op.x, JOINED, 1) || !a.input("b", op.b, JOINED, 1) ||
        !a.input("c", op.c, JOINED, 1))
        return false;
    a.equal("the number of heads of c", op.c.heads, op.b.heads);
    a.equal("the width of c", op.c.dim, op.b.dim);
    return a.output("out", op.out, JOINED, 1, op.x.size());
}

// What each operation reads and writes: an operation without such a function does not compile.

void check(Arguments& a, const ops::Lookup& op) {
    a.flag("the lookup of positions", op.by_position);
    a.number("the offset of the rows", op.offset, -LIMIT, LIMIT);
    if (a.output("out", op.out, JOINED, 1, ANY))
        a.matrix("the table", op.table, ANY, op.out.size());
}
void check(Arguments& a, const ops::Linear& op) {
    if (a.input("x", op.x, JOINED)) check_products(a, op, 1, a.rows(op.x), JOINED);
}
void check(Arguments& a, const ops::ExpertLinear& op) {
    a.number("the number of chosen experts", op.top_k, 1, LIMIT);
    a.number("the rows that share an input", op.rows_per_x, 1, op.top_k);
    a.number("the number of experts", op.num_experts, 1, LIMIT);
    if (!a.input("x", op.x, JOINED) || !a.input("chosen", op.chosen, WHOLE, 1, op.top_k)) return;
    a.equal("the number of rows", a.rows(op.x) * op.rows_per_x, op.top_k);
    check_products(a, op, op.num_experts, op.top_k, WHOLE);
}
void check(Arguments& a, const ops::PerHead& op) {
    a.number("the size of a head", op.size, 1, LIMIT), a.flag("the transposition", op.transposed);
    if (!a.fine() || !a.input("x", op.x, WHOLE) || !a.weight("the matrix", op.matrix)) return;
    const Matrix& w = a.p.weights[op.matrix.number];
    if (!a.expect(w.rows % op.size == 0, "the rows", "are %lld, which are no heads of %lld", w.rows,
                  op.size))
        return;
    const int64_t heads = w.rows / op.size, in_size = op.transposed ? op.size : w.cols,
                  out_size = op.transposed ? w.cols : op.size;
    a.input("x", op.x, WHOLE, ANY, heads * in_size);
    a.output("out", op.out, WHOLE, a.rows(op.x), heads * out_size);
}
void check(Arguments& a, const ops::RMSNorm& op) { check_norm(a, op); }
void check(Arguments& a, const ops::LayerNorm& op) {
    if (check_norm(a, op)) a.optional_vector("the bias", op.bias, op.weight_rows * op.x.dim);
}
void check(Arguments& a, const ops::L2Norm& op) { check_alike(a, op); }
void check(Arguments& a, const ops::Act& op) { check_alike(a, op), check_function(a, op.function); }
void check(Arguments& a, const ops::Gated& op) {
    check_gated(a, op), check_function(a, op.function);
}
void check(Arguments& a, const ops::ClampedGated& op) { check_gated(a, op); }
void check(Arguments& a, const ops::Add& op) {
    if (check_alike(a, op)) a.input("y", op.y, WHOLE, a.rows(op.x), op.x.size());
}
void check(Arguments& a, const ops::Multiply& op) {  // y as x, or one number for each head
    if (!check_alike(a, op) || !a.input("y", op.y, WHOLE, a.rows(op.x))) return;
    a.expect(op.y.dim == 1 || op.y.dim == op.x.dim, "y",
             "has heads of %lld numbers, expected 1 or %lld", op.y.dim, op.x.dim);
    a.equal("the number of heads of y", op.y.heads, op.x.heads);
}
void check(Arguments& a, const ops::Scale& op) { check_alike(a, op); }
void check(Arguments& a, const ops::ScaleByWeight& op) {
    if (!check_alike(a, op) || !a.weight("the weight", op.weight)) return;
    const Matrix& w = a.p.weights[op.weight.number];
    const int64_t each = op.x.heads == 1 ? op.x.dim : op.x.heads;
    a.vector("the weight", op.weight, w.rows * w.cols == 1 ? 1 : each);
}
void check(Arguments& a, const ops::ScaleByPosition& op) {
    check_alike(a, op, WHOLE, 1), a.number("the kind of scale", op.kind, 1, 3);
}
void check(Arguments& a, const ops::Softcap& op) { check_alike(a, op); }
void check(Arguments& a, const ops::Clamp& op) { check_alike(a, op); }
void check(Arguments& a, const ops::Softplus& op) {
    if (check_alike(a, op)) a.vector("the bias", op.bias, op.x.size());
}
void check(Arguments& a, const ops::Decay& op) {
    if (check_alike(a, op)) a.vector("a_log", op.a_log, op.x.heads > 1 ? op.x.heads : op.x.dim);
}
void check(Arguments& a, const ops::BoundedDecay& op) {
    if (!check_alike(a, op)) return;
    a.vector("a_log", op.a_log, op.out.heads), a.vector("the bias", op.bias, op.out.size());
}
void check(Arguments& a, const ops::Copy& op) {
    const View &x = op.x, &out = op.out;
    if (!a.input("x", x, HEADS) || !a.output("out", out, HEADS, a.rows(x), ANY)) return;
    a.equal("the width of a head of out", out.dim, x.dim);
    a.expect(x.heads == 1 || x.heads == out.heads, "the heads", "are %lld, expected 1 or %lld",
             x.heads, out.heads);
}
void check(Arguments& a, const ops::LastToken& op) {
    if (a.input("x", op.x, JOINED, 1)) a.output("out", op.out, JOINED, 0, op.x.size());
}
void check(Arguments& a, const ops::Rope& op) {
    if (!check_alike(a, op, JOINED, 1)) return;
    a.number("the rotary embedding", op.rope.number, 0, a.p.num_ropes - 1);
    a.flag("the interleaved pairs", op.interleaved);
    if (a.fine())
        a.number("twice the number of rotary pairs", 2 * a.p.rope_pairs[op.rope.number], 0,
                 op.x.dim);
}
void check(Arguments& a, const ops::Store& op) {
    const CacheSpec* cache = a.cache(op.cache);
    if (!cache || !a.input("x", op.x, JOINED, 1)) return;
    a.equal("the number of heads", op.x.heads, cache->heads);
    a.equal("the width of a head", op.x.dim, cache->dim);
}
void check(Arguments& a, const ops::Attention& op) {
    const CacheSpec *k = a.cache(op.key_cache), *v = a.cache(op.value_cache);
    if (!k || !v || !a.input("q", op.q, JOINED, 1)) return;
    a.equal("the number of value heads", v->heads, k->heads);
    a.expect(op.q.heads % k->heads == 0, "the query heads",
             "are %lld, which do not share %lld key heads evenly", op.q.heads, k->heads);
    a.number("the width of a key", op.key_dim, 1, k->dim);
    a.number("the width of a value", op.value_dim, 1, v->dim);
    a.equal("the width of a query", op.q.dim, op.key_dim);
    if (!a.fine()) return;
    a.number("the first number of a key", op.first_key, 0, k->dim - op.key_dim);
    a.number("the first number of a value", op.first_value, 0, v->dim - op.value_dim);
    a.output("out", op.out, JOINED, 1, op.q.heads * op.value_dim);
    a.number("the window", op.window, 0, LIMIT), a.number("the chunk", op.chunk, 0, LIMIT);
    a.flag("ALiBi", op.has_alibi);
    a.optional_vector("the sinks", op.sinks, op.q.heads);
    a.equal("the tokens that the cache of the values keeps", v->lookback, k->lookback);
    const int64_t read =
        op.window && op.chunk ? std::min(op.window, op.chunk) : std::max(op.window, op.chunk);
    a.expect(k->lookback == 0 || (read > 0 && read <= k->lookback), "the window",
             "is larger than the %lld tokens that the cache keeps", k->lookback);
}
void check(Arguments& a, const ops::CausalConv& op) {
    if (!check_alike(a, op, JOINED, 1) || !a.number("the number of taps", op.taps, 1, LIMIT))
        return;
    const int64_t channels = op.x.size();
    a.vector("the weight", op.weight, channels * op.taps);
    a.optional_vector("the bias", op.bias, channels);
    a.state(op.state, channels, op.taps - 1, 1);
}
void check(Arguments& a, const ops::DeltaRule& op) {
    const View &q = op.q, &k = op.k, &v = op.v;
    if (!a.input("q", q, JOINED, 1) || !a.input("k", k, JOINED, 1) || !a.input("v", v, JOINED, 1))
        return;
    a.flag("the decay by row", op.decay_by_row);
    a.equal("the number of key heads", k.heads, q.heads);
    a.equal("the width of a key", k.dim, q.dim);
    a.expect(v.heads % q.heads == 0, "the value heads",
             "are %lld, which do not share %lld key heads evenly", v.heads, q.heads);
    a.input("g", op.g, JOINED, 1, v.heads * (op.decay_by_row ? q.dim : 1));
    a.input("beta", op.beta, JOINED, 1, v.heads);
    a.output("out", op.out, JOINED, 1, v.size());
    a.state(op.state, v.heads, q.dim, v.dim);
}
void check(Arguments& a, const ops::SSMScan& op) {
    if (!check_scan(a, op)) return;
    a.expect(op.x.heads % op.b.heads == 0, "the heads",
             "are %lld, which do not share %lld groups evenly", op.x.heads, op.b.heads);
    a.input("dt", op.dt, JOINED, 1, op.x.heads);
    a.vector("a_log", op.a_log, op.x.heads);
    a.state(op.state, op.x.heads, op.x.dim, op.b.dim);
}
void check(Arguments& a, const ops::SelectiveScan& op) {
    if (!check_scan(a, op)) return;
    a.equal("the number of heads", op.x.heads, 1), a.equal("the number of groups", op.b.heads, 1);
    a.input("dt", op.dt, JOINED, 1, op.x.dim);
    a.vector("a_log", op.a_log, op.x.dim * op.b.dim), a.vector("skip", op.skip, op.x.dim);
    a.state(op.state, op.x.dim, op.b.dim, 1);
}
void check(Arguments& a, const ops::Route& op) {
    if (!check_router(a, op, ANY)) return;
    const int64_t experts = op.logits.size();
    a.flag("the choice by logits", op.choice_by_logits);
    a.flag("the normalization", op.normalize);
    a.optional_vector("the correction", op.correction, experts);
    if (!a.number("the number of groups", op.groups, 0, experts) || op.groups < 2) return;
    a.expect(experts % op.groups == 0, "the experts",
             "are %lld, which are no %lld groups of one size", experts, op.groups);
    a.number("the number of kept groups", op.kept_groups, 1, op.groups);
    a.number("the number of experts that rank a group", op.best_of_group, 1, experts);
}
void check(Arguments& a, const ops::RouteByToken& op) {
    if (check_router(a, op, 1) &&
        a.number("the number of rows of the table", op.table_rows, 0, LIMIT))
        a.vector("the table", op.table, op.table_rows * op.top_k);
}
void check(Arguments& a, const ops::Dispatch& op) {
    if (!a.number("the number of chosen experts", op.top_k, 1, LIMIT)) return;
    if (!a.input("x", op.x, WHOLE, 1) || !a.input("weights", op.weights, WHOLE, 1, op.top_k))
        return;
    a.equal("the number of heads", op.x.heads, 1);
    a.output("out", op.out, WHOLE, op.top_k, op.x.size());
}
void check(Arguments& a, const ops::Combine& op) {
    a.number("the number of chosen experts", op.top_k, 1, LIMIT);
    a.number("the number of experts", op.num_experts, 0, LIMIT);
    a.flag("the equal weights", op.has_equal_weights);
    if (!a.fine() || !a.input("y", op.y, WHOLE, op.top_k)) return;
    a.input("weights", op.weights, WHOLE, 1, op.top_k);
    a.input("chosen", op.chosen, WHOLE, 1, op.top_k);
    if (op.x.given()) a.input("x", op.x, WHOLE, 1, op.y.size());
    a.equal("the number of heads", op.y.heads, 1);
    a.output("out", op.out, WHOLE, 1, op.y.size());
}
void check(Arguments& a, const ops::ScaleByExpert& op) {
    if (!a.input("weights", op.weights, WHOLE)) return;
    a.input("chosen", op.chosen, WHOLE, a.rows(op.weights), op.weights.size());
    a.output("out", op.out, WHOLE, a.rows(op.weights), op.weights.size());
    if (a.number("the number of experts", op.num_experts, 0, LIMIT))
        a.vector("the scale", op.scale, op.num_experts);
}
void check(Arguments& a, const ops::AddSinusoids& op) {
    if (!check_alike(a, op, WHOLE, 1)) return;
    a.expect(op.x.size() % 2 == 0, "x",
             "has %lld numbers in a row, expected as many sines as cosines", op.x.size());
    a.number("the offset of the positions", op.offset, -LIMIT, LIMIT);
    a.number("the number of steps", op.steps, -LIMIT, LIMIT);
}
void check(Arguments& a, const ops::MixStreams& op) {
    if (!a.input("x", op.x, WHOLE) || !a.output("out", op.out, WHOLE, a.rows(op.x), ANY)) return;
    a.equal("the width of a stream of out", op.out.dim, op.x.dim);
    a.input("weights", op.weights, WHOLE, a.rows(op.x), op.out.heads * op.x.heads);
}
void check(Arguments& a, const ops::Sinkhorn& op) {
    if (!check_alike(a, op)) return;
    a.equal("the number of rows of the matrix", op.x.heads, op.x.dim);
    a.number("the number of iterations", op.iterations, 0, MAX_ITERATIONS);
}
void check(Arguments& a, const ops::NormalizeSum& op) { check_alike(a, op); }
void check(Arguments& a, const ops::LayerEnd& op) {
    a.input("x", op.x, WHOLE, 1), a.number("the layer", op.layer, 0, LIMIT);
}

std::string find_mistake_of(const ProgramSpec& p, const OpSpec& spec) {
    Arguments a(p);
    visit(spec, [&](const auto& op) {
        op.each_double([&](const char* name, double x) {
            a.expect(std::abs(x) <= static_cast<double>(std::numeric_limits<float>::max()), name,
                     "is not finite in float32");
        });
        if (a.fine()) check(a, op);
    });
    a.separate();
    return a.mistake;
}

std::string find_mistake_of_sizes(const ProgramSpec& p) {
    const auto message = [](const char* what, int64_t i) {
        return what + (" " + std::to_string(i)) + " has no possible size";
    };
    const auto within = [](int64_t x, int64_t low) { return x >= low && x <= LIMIT; };
    for (int64_t i = 0; i < p.num_buffers; i++)
        if (!within(p.buffers[i].width, 1) || !within(p.buffers[i].rows_per_token, 0))
            return message("buffer", i);
    for (int64_t i = 0; i < p.num_caches; i++) {
        const CacheSpec& c = p.caches[i];
        if (!within(c.heads, 1) || !within(c.dim, 1) || !within(c.lookback, 0) ||
            c.heads * c.dim > LIMIT)
            return message("cache", i);
    }
    for (int64_t i = 0; i < p.num_states; i++)
        if (!within(p.state_sizes[i], 0)) return message("state", i);
    for (int64_t i = 0; i < p.num_ropes; i++)
        if (!within(p.rope_pairs[i], 0)) return message("rotary embedding", i);
    for (int64_t i = 0; i < p.num_weights; i++)
        if (!llamath_fits(&p.weights[i]))
            return "weight " + std::to_string(i) +
                   " is larger than its memory, or of an unknown type";
    return "";
}

}  // namespace

std::string find_mistake(const ProgramSpec& p, int64_t* where) {
    *where = -1;
    if (std::string mistake = find_mistake_of_sizes(p); !mistake.empty()) return mistake;
    for (int64_t i = 0; i < p.num_ops; i++) {
        const char* name = name_of(p.ops[i].code);
        std::string mistake = name ? find_mistake_of(p, p.ops[i]) : "there is no such operation";
        if (mistake.empty()) continue;
        *where = i;
        return "operation " + std::to_string(i) + " (" +
               (name ? name : std::to_string(p.ops[i].code)) + "): " + mistake;
    }
    Arguments a(p);
    if (a.view("the result", p.logits, WHOLE, ANY, ANY)) {
        a.equal("the number of heads of the logits", p.logits.heads, 1);
        a.number("the number of rows of the logits for each token", a.rows(p.logits), 0, 1);
    }
    return a.mistake;
}

LookupLimits lookup_limits(const ProgramSpec& p) {
    LookupLimits limits{LIMIT, LIMIT};
    for (int64_t i = 0; i < p.num_ops; i++)
        if (const auto* op = get_if<ops::Lookup>(p.ops[i])) {
            int64_t& limit = op->by_position ? limits.positions : limits.ids;
            limit = std::min(limit, p.weights[op->table.number].rows - op->offset);
        }
    return limits;
}
