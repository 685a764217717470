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

// The subject of a message: "input 1", or "the window" without a number
struct Name {
    const char* word;
    int64_t number;
    Name(const char* word, int64_t number = -1) : word(word), number(number) {}
};

// An operation and its arguments. Each function notes a mistake unless one was found before;
// messages are written only then.
class Arguments {
  public:
    Arguments(const ProgramSpec& program, const OpSpec& operation)
        : p(program), op(operation), x(op.in[0]), y(op.in[1]), out(op.out[0]) {}

    const ProgramSpec& p;
    const OpSpec& op;
    const View &x, &y, &out;
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
    bool number(Name name, int64_t found, int64_t low, int64_t high) {
        return expect(found >= low && found <= high, name, "is %lld, expected %lld to %lld", found,
                      low, high);
    }
    bool equal(Name name, int64_t found, int64_t expected) {
        return expect(found == expected, name, "is %lld, expected %lld", found, expected);
    }

    // The integer `i` of the operation, from low to high
    int64_t integer(int i, const char* name, int64_t low, int64_t high) {
        return number(name, op.i[i], low, high) ? op.i[i] : low;
    }
    void flag(int i, const char* name) { integer(i, name, 0, 1); }
    void activation(int i) {
        integer(i, "the activation function", LLAMATH_IDENTITY, LLAMATH_TANH);
    }

    void inputs(int64_t low, int64_t high) {
        number("the number of inputs", op.num_inputs, low, high);
    }
    void inputs(int64_t count) { inputs(count, count); }

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
    bool input(int64_t j, Form form, int64_t rows = ANY, int64_t size = ANY) {
        read_.push_back(op.in[j].buffer);
        return view({"input", j}, op.in[j], form, rows, size);
    }
    bool output(Name name, const View& v, Form form, int64_t rows, int64_t size) {
        if (!view(name, v, form, rows, size)) return false;
        expect(std::count(written_.begin(), written_.end(), v.buffer) == 0, name,
               "is in buffer %lld, which is written already", v.buffer);
        written_.push_back(v.buffer);
        return fine();
    }
    bool output(int64_t j, Form form, int64_t rows, int64_t size) {
        return output({"output", j}, op.out[j], form, rows, size);
    }
    int64_t rows(const View& v) const { return p.buffers[v.buffer].rows_per_token; }

    // x alone, or x and y of the same rows, and an output like x
    bool like(Form form, int64_t count, int64_t rows_per_token = ANY) {
        inputs(count);
        if (!input(0, form, rows_per_token)) return false;
        for (int64_t j = 1; j < count; j++) input(j, form, rows(x), x.size());
        return output(0, form, rows(x), x.size());
    }

    // No kernel reads what it writes.
    void separate() {
        for (int64_t buffer : read_)
            expect(std::count(written_.begin(), written_.end(), buffer) == 0, {"buffer", buffer},
                   "is read and written");
    }

    bool weight(Name name, int64_t found) {
        return expect(found >= 0 && found < p.num_weights, name, "is weight %lld of %lld", found,
                      p.num_weights);
    }
    bool matrix(Name name, int64_t found, int64_t rows, int64_t cols) {
        if (!weight(name, found)) return false;
        const Matrix& w = p.weights[found];
        return expect((rows == ANY || w.rows == rows) && w.cols == cols, name,
                      "has %lld rows of %lld, expected %lld of %lld", w.rows, w.cols,
                      rows == ANY ? w.rows : rows, cols);
    }
    // `count` numbers in float32
    bool vector(Name name, int64_t found, int64_t count) {
        if (!weight(name, found)) return false;
        const Matrix& w = p.weights[found];
        const bool floats = w.type == LLAMATH_F32 && w.row_stride == 0 &&
                            reinterpret_cast<uintptr_t>(w.data) % alignof(float) == 0;
        expect(floats, name, "is not in float32");
        return expect(w.rows * w.cols == count, name, "has %lld numbers, expected %lld",
                      w.rows * w.cols, count);
    }
    bool vector(int j, int64_t count) { return vector({"weight", j}, op.w[j], count); }
    void optional_vector(Name name, int64_t found, int64_t count) {
        if (found != -1) vector(name, found, count);
    }
    void optional_vector(int j, int64_t count) { optional_vector({"weight", j}, op.w[j], count); }

    void state(int i, int64_t a, int64_t b, int64_t c) {
        int64_t size = 0;
        integer(i, "the state", 0, p.num_states - 1);
        const bool overflows =
            __builtin_mul_overflow(a, b, &size) || __builtin_mul_overflow(size, c, &size);
        if (expect(!overflows, "the state", "is too large"))
            equal("the size of the state", p.state_sizes[op.i[i]], size);
    }
    const CacheSpec* cache(int i) {
        integer(i, "the cache", 0, p.num_caches - 1);
        return fine() ? &p.caches[op.i[i]] : nullptr;
    }

  private:
    std::vector<int64_t> read_, written_;
};

void check_products(Arguments& a, int64_t rows, Form form) {
    const OpSpec& op = a.op;
    const int64_t experts = op.code == EXPERT_LINEAR ? op.i[2] : 1;
    if (!a.number("the number of products", op.num_products, 1, MAX_PRODUCTS)) return;
    if (!a.number("the first product", op.first_product, 0, a.p.num_products - op.num_products))
        return;
    for (int64_t j = 0; j < op.num_products && a.fine(); j++) {
        const ProductSpec& product = a.p.products[op.first_product + j];
        a.number("a weight", product.weight, 0, LIMIT), a.number("a bias", product.bias, -1, LIMIT);
        if (!a.output({"the output of product", j}, product.out, form, rows, ANY)) return;
        for (int64_t e = 0; e < experts && a.fine(); e++) {
            a.matrix({"the matrix of product", j}, product.weight + e, product.out.size(),
                     a.x.size());
            a.optional_vector({"the bias of product", j}, product.bias < 0 ? -1 : product.bias + e,
                              product.out.size());
        }
    }
}

void check_norm(Arguments& a) {
    a.inputs(1);
    if (!a.input(0, JOINED)) return;
    const Form form =
        a.x.heads == 1 ? JOINED : WHOLE;  // rows of heads are taken one after the other
    a.input(0, form);
    if (!a.output(0, form, a.rows(a.x), a.x.size())) return;
    const int64_t rows = a.integer(1, "the number of rows of the weight", 1, LIMIT);
    for (int j = 0; j < (a.op.code == LAYER_NORM ? 2 : 1); j++)
        a.optional_vector(j, rows * a.x.dim);
}

void check_route(Arguments& a) {
    a.inputs(1);
    if (!a.input(0, WHOLE)) return;
    const int64_t experts = a.x.size(),
                  top_k = a.integer(0, "the number of chosen experts", 1, experts);
    a.equal("the number of heads", a.x.heads, 1);
    for (int64_t j = 0; j < 2; j++) a.output(j, WHOLE, a.rows(a.x), top_k);
    a.integer(1, "the scoring function", LLAMATH_SCORE_SOFTMAX, LLAMATH_SCORE_SQRTSOFTPLUS);
    if (a.op.code == ROUTE_BY_TOKEN) {
        a.input(0, WHOLE, 1);
        a.vector(0, a.integer(2, "the number of rows of the table", 0, LIMIT) * top_k);
        return;
    }
    a.flag(2, "the choice by logits"), a.flag(3, "the normalization");
    a.optional_vector(0, experts);
    const int64_t groups = a.integer(4, "the number of groups", 0, experts);
    if (groups < 2) return;
    a.expect(experts % groups == 0, "the experts", "are %lld, which are no %lld groups of one size",
             experts, groups);
    a.integer(5, "the number of kept groups", 1, groups);
    a.integer(6, "the number of experts that rank a group", 1, experts);
}

void check_attention(Arguments& a) {
    a.inputs(1);
    const CacheSpec *k = a.cache(0), *v = a.cache(3);
    if (!k || !v || !a.input(0, JOINED, 1)) return;
    const int64_t heads = a.x.heads;
    a.equal("the number of value heads", v->heads, k->heads);
    a.expect(heads % k->heads == 0, "the query heads",
             "are %lld, which do not share %lld key heads evenly", heads, k->heads);
    const int64_t k_dim = a.integer(2, "the width of a key", 1, k->dim),
                  v_dim = a.integer(5, "the width of a value", 1, v->dim);
    a.equal("the width of a query", a.x.dim, k_dim);
    a.integer(1, "the first number of a key", 0, k->dim - k_dim);
    a.integer(4, "the first number of a value", 0, v->dim - v_dim);
    a.output(0, JOINED, 1, heads * v_dim);
    const int64_t window = a.integer(6, "the window", 0, LIMIT),
                  chunk = a.integer(7, "the chunk", 0, LIMIT);
    a.flag(8, "ALiBi");
    a.optional_vector(0, heads);
    a.equal("the tokens that the cache of the values keeps", v->lookback, k->lookback);
    const int64_t read = window && chunk ? std::min(window, chunk) : std::max(window, chunk);
    a.expect(k->lookback == 0 || (read > 0 && read <= k->lookback), "the window",
             "is larger than the %lld tokens that the cache keeps", k->lookback);
}

void check_delta_rule(Arguments& a) {
    a.inputs(5);
    for (int64_t j = 0; j < 5; j++) a.input(j, JOINED, 1);
    if (!a.fine()) return;
    const View &q = a.op.in[0], &k = a.op.in[1], &v = a.op.in[2];
    a.flag(1, "the decay by row");
    a.equal("the number of key heads", k.heads, q.heads),
        a.equal("the width of a key", k.dim, q.dim);
    a.expect(v.heads % q.heads == 0, "the value heads",
             "are %lld, which do not share %lld key heads evenly", v.heads, q.heads);
    a.input(3, JOINED, 1, v.heads * (a.op.i[1] ? q.dim : 1));
    a.input(4, JOINED, 1, v.heads);
    a.output(0, JOINED, 1, v.size());
    a.state(0, v.heads, q.dim, v.dim);
}

void check_scan(Arguments& a) {
    a.inputs(4);
    for (int64_t j = 0; j < 4; j++) a.input(j, JOINED, 1);
    if (!a.fine()) return;
    const View &x = a.op.in[0], &b = a.op.in[1], &c = a.op.in[2];
    a.equal("the number of heads of c", c.heads, b.heads), a.equal("the width of c", c.dim, b.dim);
    a.output(0, JOINED, 1, x.size());
    if (a.op.code == SSM_SCAN) {
        a.expect(x.heads % b.heads == 0, "the heads",
                 "are %lld, which do not share %lld groups evenly", x.heads, b.heads);
        a.input(3, JOINED, 1, x.heads);
        a.vector(0, x.heads);
        a.state(0, x.heads, x.dim, b.dim);
    } else {
        a.equal("the number of heads", x.heads, 1), a.equal("the number of groups", b.heads, 1);
        a.input(3, JOINED, 1, x.dim);
        a.vector(0, x.dim * b.dim), a.vector(1, x.dim);
        a.state(0, x.dim, b.dim, 1);
    }
}

void check_copy(Arguments& a) {
    a.inputs(1);
    if (!a.input(0, HEADS) || !a.output(0, HEADS, a.rows(a.x), ANY)) return;
    a.equal("the width of a head of the output", a.out.dim, a.x.dim);
    a.expect(a.x.heads == 1 || a.x.heads == a.out.heads, "the heads",
             "are %lld, expected 1 or %lld", a.x.heads, a.out.heads);
}

void check_per_head(Arguments& a) {
    a.inputs(1);
    const int64_t size = a.integer(0, "the size of a head", 1, LIMIT);
    a.flag(1, "the transposition");
    if (!a.input(0, WHOLE) || !a.weight("the matrix", a.op.w[0])) return;
    const Matrix& w = a.p.weights[a.op.w[0]];
    if (!a.expect(w.rows % size == 0, "the rows", "are %lld, which are no heads of %lld", w.rows,
                  size))
        return;
    const int64_t heads = w.rows / size, in_size = a.op.i[1] ? size : w.cols,
                  out_size = a.op.i[1] ? w.cols : size;
    a.input(0, WHOLE, ANY, heads * in_size);
    a.output(0, WHOLE, a.rows(a.x), heads * out_size);
}

void check_expert_linear(Arguments& a) {
    a.inputs(2);
    const int64_t top_k = a.integer(0, "the number of chosen experts", 1, LIMIT),
                  share = a.integer(1, "the rows that share an input", 1, top_k);
    a.integer(2, "the number of experts", 1, LIMIT);
    if (!a.input(0, JOINED) || !a.input(1, WHOLE, 1, top_k)) return;
    a.equal("the number of rows", a.rows(a.x) * share, top_k);
    check_products(a, top_k, WHOLE);
}

void check_combine(Arguments& a) {
    a.inputs(3, 4);
    const int64_t top_k = a.integer(0, "the number of chosen experts", 1, LIMIT);
    a.integer(1, "the number of experts", 0, LIMIT);
    a.flag(2, "the equal weights");
    if (!a.input(0, WHOLE, top_k)) return;
    a.input(1, WHOLE, 1, top_k), a.input(2, WHOLE, 1, top_k);
    if (a.op.num_inputs > 3) a.input(3, WHOLE, 1, a.x.size());
    a.equal("the number of heads", a.x.heads, 1);
    a.output(0, WHOLE, 1, a.x.size());
}

// What each operation reads and writes, in the order of LLAMATH_OPERATIONS.
struct Rule {
    Code code;
    void (*check)(Arguments&);
};

constexpr Rule RULES[] = {
    {LOOKUP,
     [](Arguments& a) {
         a.inputs(0);
         a.flag(0, "the lookup of positions"),
             a.integer(1, "the offset of the rows", -LIMIT, LIMIT);
         if (a.output(0, JOINED, 1, ANY)) a.matrix("the table", a.op.w[0], ANY, a.out.size());
     }},
    {LINEAR,
     [](Arguments& a) {
         a.inputs(1);
         if (a.input(0, JOINED)) check_products(a, a.rows(a.x), JOINED);
     }},
    {EXPERT_LINEAR, check_expert_linear},
    {PER_HEAD, check_per_head},
    {RMS_NORM, check_norm},
    {LAYER_NORM, check_norm},
    {L2_NORM, [](Arguments& a) { a.like(WHOLE, 1); }},
    {ACT, [](Arguments& a) { a.like(WHOLE, 1), a.activation(1); }},
    {GATED, [](Arguments& a) { a.like(JOINED, 2), a.activation(1); }},
    {CLAMPED_GATED, [](Arguments& a) { a.like(JOINED, 2); }},
    {ADD, [](Arguments& a) { a.like(WHOLE, 2); }},
    {MULTIPLY,
     [](Arguments& a) {  // y has the shape of x, or one number for each head
         a.inputs(2);
         if (!a.input(0, WHOLE) || !a.input(1, WHOLE, a.rows(a.x))) return;
         a.expect(a.y.dim == 1 || a.y.dim == a.x.dim, {"input", 1},
                  "has heads of %lld numbers, expected 1 or %lld", a.y.dim, a.x.dim);
         a.equal("the number of heads of input 1", a.y.heads, a.x.heads);
         a.output(0, WHOLE, a.rows(a.x), a.x.size());
     }},
    {SCALE, [](Arguments& a) { a.like(WHOLE, 1); }},
    {SCALE_BY_WEIGHT,
     [](Arguments& a) {
         a.like(WHOLE, 1);
         if (a.fine()) a.vector(0, a.integer(1, "the size of the weight", 1, LIMIT));
         const int64_t each = a.x.heads == 1 ? a.x.dim : a.x.heads;
         a.expect(a.op.i[1] == 1 || a.op.i[1] == each, {"weight", 0},
                  "has %lld factors, expected 1 or %lld", a.op.i[1], each);
     }},
    {SCALE_BY_POSITION,
     [](Arguments& a) { a.like(WHOLE, 1, 1), a.integer(0, "the kind of scale", 1, 3); }},
    {SOFTCAP, [](Arguments& a) { a.like(WHOLE, 1); }},
    {CLAMP, [](Arguments& a) { a.like(WHOLE, 1); }},
    {SOFTPLUS,
     [](Arguments& a) {
         if (a.like(WHOLE, 1)) a.vector(0, a.x.size());
     }},
    {DECAY,
     [](Arguments& a) {
         if (a.like(WHOLE, 1)) a.vector(0, a.x.heads > 1 ? a.x.heads : a.x.dim);
     }},
    {BOUNDED_DECAY,
     [](Arguments& a) {
         if (a.like(WHOLE, 1)) a.vector(0, a.out.heads), a.vector(1, a.out.size());
     }},
    {COPY, check_copy},
    {LAST_TOKEN,
     [](Arguments& a) {
         a.inputs(1), a.input(0, JOINED, 1) && a.output(0, JOINED, 0, a.x.size());
     }},
    {ROPE,
     [](Arguments& a) {
         if (!a.like(JOINED, 1, 1)) return;
         a.integer(0, "the rotary embedding", 0, a.p.num_ropes - 1),
             a.flag(1, "the interleaved pairs");
         if (a.fine())
             a.number("twice the number of rotary pairs", 2 * a.p.rope_pairs[a.op.i[0]], 0,
                      a.x.dim);
     }},
    {STORE,
     [](Arguments& a) {
         a.inputs(1);
         const CacheSpec* cache = a.cache(0);
         if (cache && a.input(0, JOINED, 1))
             a.equal("the number of heads", a.x.heads, cache->heads),
                 a.equal("the width of a head", a.x.dim, cache->dim);
     }},
    {ATTENTION, check_attention},
    {CAUSAL_CONV,
     [](Arguments& a) {
         if (!a.like(JOINED, 1, 1)) return;
         const int64_t channels = a.x.size(), taps = a.integer(1, "the number of taps", 1, LIMIT);
         a.vector(0, channels * taps), a.optional_vector(1, channels);
         a.state(0, channels, taps - 1, 1);
     }},
    {DELTA_RULE, check_delta_rule},
    {SSM_SCAN, check_scan},
    {SELECTIVE_SCAN, check_scan},
    {ROUTE, check_route},
    {ROUTE_BY_TOKEN, check_route},
    {DISPATCH,
     [](Arguments& a) {
         a.inputs(2);
         const int64_t top_k = a.integer(0, "the number of chosen experts", 1, LIMIT);
         if (!a.input(0, WHOLE, 1) || !a.input(1, WHOLE, 1, top_k)) return;
         a.equal("the number of heads", a.x.heads, 1);
         a.output(0, WHOLE, top_k, a.x.size());
     }},
    {COMBINE, check_combine},
    {SCALE_BY_EXPERT,
     [](Arguments& a) {
         a.like(WHOLE, 2), a.vector(0, a.integer(0, "the number of experts", 0, LIMIT));
     }},
    {ADD_SINUSOIDS,
     [](Arguments& a) {
         if (!a.like(WHOLE, 1, 1)) return;
         a.expect(a.x.size() % 2 == 0, {"input", 0},
                  "has %lld numbers in a row, expected as many sines as cosines", a.x.size());
         a.integer(0, "the offset of the positions", -LIMIT, LIMIT),
             a.integer(1, "the number of steps", -LIMIT, LIMIT);
     }},
    {MIX_STREAMS,
     [](Arguments& a) {
         a.inputs(2);
         if (!a.input(0, WHOLE) || !a.output(0, WHOLE, a.rows(a.x), ANY)) return;
         a.equal("the width of a stream of the output", a.out.dim, a.x.dim);
         a.input(1, WHOLE, a.rows(a.x), a.out.heads * a.x.heads);
     }},
    {SINKHORN,
     [](Arguments& a) {
         if (!a.like(WHOLE, 1)) return;
         a.equal("the number of rows of the matrix", a.x.heads, a.x.dim);
         a.integer(1, "the number of iterations", 0, MAX_ITERATIONS);
     }},
    {NORMALIZE_SUM, [](Arguments& a) { a.like(WHOLE, 1); }},
    {LAYER_END,
     [](Arguments& a) { a.inputs(1), a.input(0, WHOLE, 1), a.integer(0, "the layer", 0, LIMIT); }},
};
static_assert(sizeof RULES / sizeof *RULES == NUM_CODES);

constexpr bool in_order() {
    for (int64_t i = 0; i < NUM_CODES; i++)
        if (RULES[i].code != i) return false;
    return true;
}
static_assert(in_order());

const char* name_of(int64_t code) {
    static const char* const NAMES[] = {
#define LLAMATH_NAME(CODE, NAME) #NAME,
        LLAMATH_OPERATIONS(LLAMATH_NAME)
#undef LLAMATH_NAME
    };
    return code >= 0 && code < NUM_CODES ? NAMES[code] : nullptr;
}

std::string find_mistake_of(const ProgramSpec& p, const OpSpec& op) {
    Arguments a(p, op);
    for (double f : op.f)
        a.expect(std::abs(f) <= static_cast<double>(std::numeric_limits<float>::max()), "a factor",
                 "is not finite in float32");
    if (op.code != LINEAR && op.code != EXPERT_LINEAR)
        a.equal("the number of products", op.num_products, 0);
    if (a.fine()) RULES[op.code].check(a);
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
    const OpSpec none{};
    Arguments a(p, none);
    if (a.view("the result", p.logits, WHOLE, ANY, ANY)) {
        a.equal("the number of heads of the logits", p.logits.heads, 1);
        a.number("the number of rows of the logits for each token", a.rows(p.logits), 0, 1);
    }
    return a.mistake;
}

LookupLimits lookup_limits(const ProgramSpec& p) {
    LookupLimits limits{LIMIT, LIMIT};
    for (int64_t i = 0; i < p.num_ops; i++)
        if (p.ops[i].code == LOOKUP) {
            int64_t& limit = p.ops[i].i[0] ? limits.positions : limits.ids;
            limit = std::min(limit, p.weights[p.ops[i].w[0]].rows - p.ops[i].i[1]);
        }
    return limits;
}

extern "C" int64_t llamath_operation_code(const char* name) {
    for (int64_t code = 0; code < NUM_CODES; code++)
        if (std::string(name) == name_of(code)) return code;
    return -1;
}
