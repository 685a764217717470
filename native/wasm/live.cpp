// The engine in WebAssembly: one program, its weights and one sequence, for a script around it.
//
// Numbers are 32 bits and addresses those of the module's memory, so that a script needs no
// integers of 64 bits and no layout of a structure. Whatever comes from outside is checked here
// before it is used: a block of bytes (`Header`, written by `program_bytes.py`), addresses, sizes,
// tokens. A function that refuses returns 0, or -1 where 0 is a result, and `live_message` says
// why. Memory that cannot be had ends the instance with a trap, or is refused where it is large.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../interpreter.h"
#include "../kernels/kernels.h"
#include "../program.h"

#define LIVE(NAME) __attribute__((export_name("live_" #NAME))) live_##NAME

namespace {

constexpr int64_t LIMIT = std::numeric_limits<int32_t>::max();
constexpr int64_t MAX_TOKENS = 1 << 16, MAX_LENGTH = 1 << 20;  // of a pass, of a sequence
constexpr int64_t PAGE = 65536;
constexpr char MAGIC[8] = "LLAMATH";

// What a program begins with: then follow as many operations, products, ... names as it says
struct Header {
    char magic[8];
    int64_t version, max_length;
    int64_t ops, products, buffers, weights, caches, states, ropes, results;
    int64_t frequencies, names;  // numbers of float32, bytes of JSON
    View logits;
};

struct WeightEntry {
    int64_t rows, cols, as_floats;  // as_floats: converted to float32, whatever it is stored in
};

struct RopeEntry {
    int64_t pairs;
    double factor, sin_sign;
};

struct ResultEntry {
    View view;
    int64_t attention;  // the number of the operation that computes attention weights, or -1
};

std::string message;

int32_t refuse(const std::string& why, int32_t result = -1) {
    message = why;
    return result;
}

// Whether `bytes` bytes from this address on are in the module's memory.
bool inside(uint32_t address, int64_t bytes) {
    const auto size = static_cast<int64_t>(__builtin_wasm_memory_size(0)) * PAGE;
    return bytes >= 0 && address > 0 && address <= size && bytes <= size - address;
}

// Memory of at least one byte, or NULL.
char* allocate(int64_t bytes) {
    if (bytes < 0 || bytes > LIMIT - 64) return nullptr;
    const size_t size = (static_cast<size_t>(bytes) / 64 + 1) * 64;
    return static_cast<char*>(std::aligned_alloc(64, size));
}

class Reader {
  public:
    Reader(const char* at, int64_t left) : at_(at), left_(left) {}

    template <class T>
    bool read(std::vector<T>& to, int64_t count) {
        if (count < 0 || count > left_ / static_cast<int64_t>(sizeof(T))) return false;
        to.resize(static_cast<size_t>(count));
        const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
        if (bytes) std::memcpy(to.data(), at_, static_cast<size_t>(bytes));
        at_ += bytes, left_ -= bytes;
        return true;
    }
    bool at_end() const { return left_ == 0; }

  private:
    const char* at_;
    int64_t left_;
};

}  // namespace

struct Live {
    Header head;
    std::vector<OpSpec> ops;
    std::vector<ProductSpec> products;
    std::vector<BufferSpec> buffers;
    std::vector<WeightEntry> entries;
    std::vector<CacheSpec> caches;
    std::vector<int64_t> states, pairs;
    std::vector<ResultEntry> results;
    std::vector<float> frequencies;
    std::vector<char> names;
    std::vector<RopeAngles> angles;
    std::vector<Matrix> weights;
    Pool* pool = nullptr;
    Engine* engine = nullptr;
    Session* session = nullptr;
    int64_t length = 0, capacity = 0, rows = 0, last_rows = 0;
    int32_t vocab = 0;
    bool spoiled = false;  // a pass that failed has changed the states
    int32_t shape[3] = {0, 0, 0};
    std::vector<float> values;
};

namespace {

bool read_program(Live& live, const char* from, int64_t bytes) {
    Reader reader(from, bytes);
    std::vector<Header> head;
    if (!reader.read(head, 1) || std::memcmp(head[0].magic, MAGIC, sizeof MAGIC) != 0)
        return refuse("these bytes are no program", 0);
    live.head = head[0];
    const Header& h = live.head;
    if (h.version != LLAMATH_VERSION)
        return refuse("the program has version " + std::to_string(h.version) + ", expected " +
                          std::to_string(LLAMATH_VERSION),
                      0);
    if (h.max_length < 1 || h.max_length > LIMIT)
        return refuse("the program has no possible length", 0);
    std::vector<RopeEntry> ropes;
    const bool complete =
        reader.read(live.ops, h.ops) && reader.read(live.products, h.products) &&
        reader.read(live.buffers, h.buffers) && reader.read(live.entries, h.weights) &&
        reader.read(live.caches, h.caches) && reader.read(live.states, h.states) &&
        reader.read(ropes, h.ropes) && reader.read(live.results, h.results) &&
        reader.read(live.frequencies, h.frequencies) && reader.read(live.names, h.names) &&
        reader.at_end();
    if (!complete)
        return refuse("the program has " + std::to_string(bytes) + " bytes, and says otherwise", 0);
    int64_t first = 0;
    for (const RopeEntry& rope : ropes) {
        if (rope.pairs < 0 || rope.pairs > h.frequencies - first)
            return refuse("a rotary embedding has no frequencies", 0);
        live.angles.push_back({live.frequencies.data() + first, rope.pairs,
                               static_cast<float>(rope.factor), static_cast<float>(rope.sin_sign)});
        live.pairs.push_back(rope.pairs);
        first += rope.pairs;
    }
    for (const WeightEntry& w : live.entries) {
        if (w.rows < 1 || w.cols < 1 || w.rows > LIMIT || w.cols > LIMIT)
            return refuse("a weight has no possible size", 0);
        Matrix matrix = {};
        matrix.rows = w.rows, matrix.cols = w.cols, matrix.type = LLAMATH_F32;
        live.weights.push_back(matrix);
    }
    return true;
}

ProgramSpec spec_of(const Live& live) {
    ProgramSpec p = {};
    p.ops = live.ops.data(), p.num_ops = live.head.ops;
    p.products = live.products.data(), p.num_products = live.head.products;
    p.buffers = live.buffers.data(), p.num_buffers = live.head.buffers;
    p.weights = live.weights.data(), p.num_weights = live.head.weights;
    p.caches = live.caches.data(), p.num_caches = live.head.caches;
    p.state_sizes = live.states.data(), p.num_states = live.head.states;
    p.rope_pairs = live.pairs.data(), p.num_ropes = live.head.ropes;
    p.logits = live.head.logits;
    return p;
}

void set_data(Matrix& matrix, char* data, int32_t type, int64_t bytes) {
    std::free(const_cast<void*>(matrix.data));
    matrix.data = data, matrix.type = type, matrix.bytes = bytes;
}

// Converts a weight that kernels read as float32.
bool convert(Matrix& matrix) {
    const int64_t row = matrix.cols * static_cast<int64_t>(sizeof(float));
    char* data = row > LIMIT / matrix.rows ? nullptr : allocate(row * matrix.rows);
    if (!data) return false;
    for (int64_t r = 0; r < matrix.rows; r++)
        if (llamath_dequantize_row(reinterpret_cast<float*>(data + r * row), &matrix, r)) {
            std::free(data);
            return false;
        }
    set_data(matrix, data, LLAMATH_F32, row * matrix.rows);
    return true;
}

// Whether a result is a part of the rows of a buffer, and of an operation of the program.
bool is_result(const Live& live, const ResultEntry& result) {
    const View& v = result.view;
    if (v.buffer < 0 || v.buffer >= live.head.buffers) return false;
    if (v.offset < 0 || v.head_stride < 0 || v.heads < 1 || v.dim < 1) return false;
    if (std::max({v.offset, v.head_stride, v.heads, v.dim}) > LIMIT) return false;
    const int64_t end = v.offset + (v.heads - 1) * v.head_stride + v.dim;
    if (v.stride != live.buffers[v.buffer].width || end > v.stride) return false;
    const int64_t op = result.attention;
    return op == -1 || (op >= 0 && op < live.head.ops && get_if<ops::Attention>(live.ops[op]));
}

Session* new_session(const Live& live) {
    return llamath_session_create(live.engine, 1, LIMIT, LLAMATH_F32);
}

// Room for all values of a result of this shape.
bool reserve_values(Live& live, int64_t tokens, int64_t heads, int64_t numbers) {
    if (std::min({tokens, heads, numbers}) < 1 || heads > LIMIT / 4 / tokens ||
        numbers > LIMIT / 4 / (tokens * heads))
        return refuse("a result is larger than the memory", 0);
    live.values.resize(static_cast<size_t>(tokens * heads * numbers));
    live.shape[0] = static_cast<int32_t>(tokens), live.shape[1] = static_cast<int32_t>(heads);
    live.shape[2] = static_cast<int32_t>(numbers);
    return true;
}

}  // namespace

extern "C" {

// Memory for a script to write into, or NULL.
char* LIVE(alloc)(uint32_t bytes) { return allocate(bytes); }
void LIVE(free)(void* data) { std::free(data); }

// Why the last function refused, in bytes that end with 0.
const char* LIVE(message)() { return message.c_str(); }

// A program, which is copied, or NULL.
Live* LIVE(open)(uint32_t program, uint32_t bytes) {
    if (!inside(program, bytes)) {
        refuse("the program is outside of the memory");
        return nullptr;
    }
    auto* live = new Live{};
    if (read_program(*live, reinterpret_cast<const char*>(program), bytes)) return live;
    delete live;
    return nullptr;
}

// The names of results and weights, as JSON of so many bytes.
const char* LIVE(names)(const Live* live) { return live->names.data(); }
int32_t LIVE(names_bytes)(const Live* live) { return static_cast<int32_t>(live->head.names); }
int32_t LIVE(num_weights)(const Live* live) { return static_cast<int32_t>(live->head.weights); }
int32_t LIVE(num_results)(const Live* live) { return static_cast<int32_t>(live->head.results); }
int32_t LIVE(max_length)(const Live* live) { return static_cast<int32_t>(live->head.max_length); }
int32_t LIVE(num_logits)(const Live* live) { return static_cast<int32_t>(live->head.logits.dim); }
// Tokens that the model reads and predicts; known after live_start.
int32_t LIVE(vocab)(const Live* live) { return live->vocab; }

// Memory for the values of a weight in a type of kernels.h, of live_weight_bytes bytes, or NULL.
const void* LIVE(weight)(Live* live, int32_t number, int32_t type) {
    if (live->engine || number < 0 || number >= live->head.weights) {
        refuse("there is no such weight, or the program has started");
        return nullptr;
    }
    Matrix& matrix = live->weights[number];
    const int64_t row = type == LLAMATH_I8 ? -1 : llamath_row_bytes(type, matrix.cols);
    char* data = row < 1 || row > LIMIT / matrix.rows ? nullptr : allocate(row * matrix.rows);
    if (!data) {
        refuse("the weight " + std::to_string(number) + " of " + std::to_string(matrix.rows) +
               " rows of " + std::to_string(matrix.cols) + " is too large, or of type " +
               std::to_string(type) + ", which is unknown");
        return nullptr;
    }
    set_data(matrix, data, type, row * matrix.rows);
    return data;
}
int32_t LIVE(weight_bytes)(const Live* live, int32_t number) {
    const bool exists = number >= 0 && number < live->head.weights;
    return exists ? static_cast<int32_t>(live->weights[number].bytes) : 0;
}

// Check the program, whose weights are written; 0, or -1.
int32_t LIVE(start)(Live* live) {
    if (live->engine) return refuse("the program has started");
    for (int64_t i = 0; i < live->head.weights; i++) {
        Matrix& matrix = live->weights[i];
        if (!matrix.data) return refuse("the weight " + std::to_string(i) + " is missing");
        if (live->entries[i].as_floats && matrix.type != LLAMATH_F32 && !convert(matrix))
            return refuse("the weight " + std::to_string(i) + " cannot be converted");
    }
    for (const ResultEntry& result : live->results)
        if (!is_result(*live, result)) return refuse("a result is outside of its buffer");
    const ProgramSpec spec = spec_of(*live);
    int64_t where = -1;
    char text[400] = "";
    live->pool = llamath_pool_create(1);
    live->engine = llamath_engine_create(live->pool, &spec, &where, text, sizeof text);
    if (!live->engine) return refuse(text);
    live->session = new_session(*live);
    if (!live->session) return refuse("there is not enough memory for the states");
    live->vocab = static_cast<int32_t>(std::min(lookup_limits(spec).ids, live->head.logits.dim));
    return 0;
}

int32_t LIVE(length)(const Live* live) { return static_cast<int32_t>(live->length); }

// Forget all tokens but the first `length`; 0, or -1 where a state or a cache has no way back.
// There is always one to an empty sequence.
int32_t LIVE(truncate)(Live* live, int32_t length) {
    if (!live->session || length < 0 || length > live->length)
        return refuse("there are no so many tokens");
    if (live->spoiled || !llamath_session_can_truncate(live->session, live->length, length)) {
        if (length) return refuse("this model cannot forget some of its tokens");
        Session* session = new_session(*live);
        if (!session) return refuse("there is not enough memory for the states");
        llamath_session_destroy(live->session);
        live->session = session, live->capacity = 0, live->spoiled = false;
    }
    live->length = length, live->rows = 0;
    return 0;
}

// Read `count` tokens after those that were read before; 0, or -1. Then there are logits of the
// last token, or with `all` of each.
int32_t LIVE(forward)(Live* live, uint32_t ids, int32_t count, int32_t all) {
    if (!live->session) return refuse("the program has not started");
    if (live->spoiled) return refuse("a pass has failed: empty the sequence");
    if (count < 1 || count > MAX_TOKENS || !inside(ids, int64_t{count} * 4) || ids % 4)
        return refuse("a pass reads 1 to " + std::to_string(MAX_TOKENS) + " tokens, found " +
                      std::to_string(count));
    const int64_t length = live->length + count, most = std::min(live->head.max_length, MAX_LENGTH);
    if (length > most)
        return refuse("the sequence would have " + std::to_string(length) + " tokens, expected " +
                      std::to_string(most) + " at most");
    if (length > live->capacity) {
        const int64_t capacity =
            std::min(most, std::max({length, 2 * live->capacity, int64_t{64}}));
        if (llamath_session_reserve(live->session, capacity, live->length))
            return refuse("there is not enough memory for the cache");
        live->capacity = capacity;
    }
    const Segment segment = {0, 1, count, live->length, 0};
    Pass pass = {};
    pass.segments = &segment, pass.num_segments = 1;
    pass.ids = reinterpret_cast<const int32_t*>(ids), pass.num_ids = count;
    pass.angles = live->angles.data(), pass.num_angles = live->head.ropes;
    pass.all_logits = all != 0, pass.precision = 1;
    int64_t where[2] = {-1, -1};
    char text[400] = "";
    live->rows = 0;
    const int32_t status = llamath_session_run(live->session, &pass, where, text, sizeof text);
    if (status == RUN_REFUSED) return refuse(text);
    live->spoiled = status != RUN_OK && live->head.states > 0;
    if (status == RUN_NO_MEMORY) return refuse("there is not enough memory for the results");
    if (status == RUN_NONFINITE)
        return refuse("the result of operation " + std::to_string(where[0]) +
                      " is NaN or infinite");
    live->length = length, live->rows = count, live->last_rows = all ? count : 1;
    return 0;
}

// Row `row` of the logits of the last pass, or NULL.
const float* LIVE(logits)(const Live* live, int32_t row) {
    return live->rows ? llamath_session_logits(live->session, row) : nullptr;
}

// The values of a result of the last pass, [tokens, heads, numbers], until the next call; or NULL.
const float* LIVE(values)(Live* live, int32_t number) {
    const bool exists = live->rows && number >= 0 && number < live->head.results;
    int64_t rows = 0;
    const float* from = nullptr;
    if (exists)
        from = llamath_session_buffer(live->session, live->results[number].view.buffer, &rows);
    if (!from) {
        refuse("there is no such result, or no pass");
        return nullptr;
    }
    const View& v = live->results[number].view;
    if (!reserve_values(*live, rows, v.heads, v.dim)) return nullptr;
    float* to = live->values.data();
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < v.heads; h++, to += v.dim)
            std::memcpy(to, from + r * v.stride + v.offset + h * v.head_stride,
                        static_cast<size_t>(v.dim) * sizeof(float));
    return live->values.data();
}

// The attention weights of a result of the last pass, [tokens, heads, keys], until the next call;
// or NULL.
const float* LIVE(attention)(Live* live, int32_t number) {
    const bool exists = live->rows && number >= 0 && number < live->head.results;
    const int64_t at = exists ? live->results[number].attention : -1;
    const auto* op = at < 0 ? nullptr : get_if<ops::Attention>(live->ops[at]);
    if (!op) {
        refuse("there are no such attention weights, or no pass");
        return nullptr;
    }
    if (!reserve_values(*live, live->rows, op->q.heads, live->length)) return nullptr;
    if (llamath_session_attention(live->session, at, live->values.data(),
                                  static_cast<int64_t>(live->values.size()))) {
        refuse("the keys of these attention weights are not in the cache");
        return nullptr;
    }
    return live->values.data();
}

// The shape of what live_values or live_attention returned: three numbers.
const int32_t* LIVE(shape)(const Live* live) { return live->shape; }

// A next token, chosen by the logits of a row, or of the last for -1, with `u` in [0, 1); or -1.
int32_t LIVE(sample)(const Live* live, int32_t row, float temperature, int32_t top_k, float top_p,
                     double u) {
    const int64_t last = live->last_rows - 1;
    const float* logits = live_logits(live, row == -1 ? static_cast<int32_t>(last) : row);
    if (!logits) return refuse("there are no such logits");
    const Sampling sampling = {temperature, top_k, top_p, 0, 1};
    const int32_t token = llamath_sample(live->pool, logits, live->vocab, &sampling, nullptr, u);
    return token < 0 ? refuse("the logits are not finite") : token;
}

}  // extern "C"

// The C++ library's message before it aborts would need files.
#include <__verbose_abort>
namespace std {
inline namespace __1 {
__attribute__((noreturn)) void __libcpp_verbose_abort(const char*, ...) noexcept {
    __builtin_trap();
}
}  // namespace __1
}  // namespace std
