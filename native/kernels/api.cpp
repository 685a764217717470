// The functions of kernels.h: they choose the path, prepare inputs, and cut work into pieces for
// the pool.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels.h"
#include "path.h"
#include "pool.h"

namespace {

using llamath::Task;

const Path* const PATHS[] = {
#define LLAMATH_LIST_PATH(NAME) &llamath_path_##NAME,
    LLAMATH_PATHS(LLAMATH_LIST_PATH)};
constexpr int32_t NUM_PATHS = sizeof PATHS / sizeof *PATHS;

const Path* path_named(const char* name) {
    for (const Path* p : PATHS)
        if (std::strcmp(p->name, name) == 0 && p->supported()) return p;
    return nullptr;
}

const Path* best_path() {
#ifndef __wasm__
    if (const char* name = std::getenv("LLAMATH_NATIVE_PATH"))
        if (const Path* p = path_named(name)) return p;
#endif
    for (int32_t i = NUM_PATHS - 1; i > 0; i--)
        if (PATHS[i]->supported()) return PATHS[i];
    return PATHS[0];
}

const Path* active = best_path();

constexpr int64_t FLOAT_SIZE = sizeof(float);
constexpr int64_t SMALL = 16384;  // elements of one piece of an elementwise operation
constexpr int64_t MOST_CELLS = std::numeric_limits<int32_t>::max();  // rows or columns of a matrix

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t or_else(int64_t stride, int64_t contiguous) { return stride ? stride : contiguous; }

// fn(first, last) for ranges of items
template <class Function>
void parallel(Pool* pool, int64_t items, int64_t per_piece, Function fn) {
    struct Context {
        Function fn;
        int64_t items, per_piece;
    };
    static_assert(sizeof(Context) <= llamath::MAX_CONTEXT && std::is_trivially_copyable_v<Context>);
    per_piece = std::max<int64_t>(per_piece, 1);
    if (items <= per_piece || pool->threads == 1) {
        for (int64_t i = 0; i < items && !pool->cancelled.load(std::memory_order_relaxed);
             i += per_piece)
            fn(i, std::min(i + per_piece, items));
        return;
    }
    const Context context{fn, items, per_piece};
    Task task;
    task.pieces = ceil_div(items, per_piece);
    task.context = &context;
    task.context_size = sizeof context;
    task.compute = [](const void* c, int64_t piece, char*) {
        const auto* self = static_cast<const Context*>(c);
        self->fn(piece * self->per_piece, std::min((piece + 1) * self->per_piece, self->items));
    };
    pool->run(task);
}

template <class Function>
void parallel_rows(Pool* pool, int64_t n, int64_t cols, Function row) {
    parallel(pool, n, SMALL / std::max<int64_t>(cols, 1), [row](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++) row(i);
    });
}

// ---- Matrix products

char* take(char*& at, int64_t bytes) {
    char* begin = at;
    at += ceil_div(bytes, 64) * 64;
    return begin;
}

struct Needs {  // what products read of their inputs
    bool rounded = false, quantized = false, floats = false, bf16 = false, int8 = false;
    void add(int32_t mode, bool packed) {
        quantized |= mode == INT8_PRODUCT && !packed;
        floats |= mode == FLOAT_PRODUCT && packed;
        rounded |= mode == BF16_PRODUCT && !packed;
        bf16 |= mode == BF16_PRODUCT && packed;
        int8 |= mode == INT8_PRODUCT && packed;
    }
};

// Lay out what n rows need; returns where it ends
char* lay_out(Activations& a, const Needs& needs, char* memory) {
    const int64_t groups = a.padded / GROUP, n = ceil_div(a.n, PACKED_ROWS) * PACKED_ROWS;
    if (needs.rounded) a.rounded = reinterpret_cast<uint16_t*>(take(memory, n * a.padded * 2));
    if (needs.quantized) {
        a.quantized = reinterpret_cast<int8_t*>(take(memory, n * a.padded * ORDERS));
        a.scales = reinterpret_cast<float*>(take(memory, n * groups * GROUP_LANES * FLOAT_SIZE));
        a.sums = reinterpret_cast<float*>(take(memory, n * groups * ORDERS * FLOAT_SIZE));
    }
    if (needs.floats)
        a.packed_floats = reinterpret_cast<float*>(take(memory, n * a.cols * FLOAT_SIZE));
    if (needs.bf16) a.packed_bf16 = reinterpret_cast<uint32_t*>(take(memory, n * a.padded * 2));
    if (needs.int8) {
        a.packed_int8 = reinterpret_cast<uint32_t*>(take(memory, n * a.padded));
        a.packed_scales = reinterpret_cast<float*>(take(memory, n * groups * FLOAT_SIZE));
        a.packed_sums = reinterpret_cast<float*>(take(memory, n * groups * FLOAT_SIZE));
        a.packed_half_sums = reinterpret_cast<int32_t*>(take(memory, n * groups * 2 * 4));
    }
    return memory;
}

Activations activations(const float* x, int64_t stride, int64_t n, int64_t cols) {
    Activations a{};
    a.x = x, a.stride = stride, a.n = n, a.cols = cols,
    a.padded = ceil_div(cols, PADDING) * PADDING;
    return a;
}

int64_t prepared_bytes(Activations a, const Needs& needs) {
    auto* begin = reinterpret_cast<char*>(64);  // only differences count
    return lay_out(a, needs, begin) - begin;
}

void prepare(Pool* pool, const Activations& a, const Needs& needs) {
    const Path* path = active;
    if (needs.quantized)
        parallel(pool, a.n, SMALL / std::max<int64_t>(a.cols, 1),
                 [a, path](int64_t first, int64_t last) { path->quantize_rows(&a, first, last); });
    if (needs.rounded)
        parallel(pool, a.n, SMALL / std::max<int64_t>(a.cols, 1),
                 [a, path](int64_t first, int64_t last) { path->round_rows(&a, first, last); });
    if (!(needs.floats || needs.bf16 || needs.int8)) return;
    struct Context {
        const Path* path;
        Activations a;
    } const context{path, a};
    Task task;
    task.pieces = ceil_div(a.n, PACKED_ROWS);
    task.context = &context;
    task.context_size = sizeof context;
    task.worker_memory = static_cast<size_t>(PACKED_ROWS * a.padded * FLOAT_SIZE);
    task.compute = [](const void* c, int64_t tile, char* memory) {
        const auto* self = static_cast<const Context*>(c);
        self->path->pack_rows(&self->a, tile, tile + 1, memory);
    };
    pool->run(task);
}

int32_t mode_of(const Matrix& w, int64_t n, int32_t precision) {
    if (precision == LLAMATH_EXACT) return FLOAT_PRODUCT;
    if (w.type == LLAMATH_BF16 && n >= LLAMATH_TILE_ROWS && active->multiplies_bf16)
        return BF16_PRODUCT;
    return active->multiplies_int8(w.type) ? INT8_PRODUCT : FLOAT_PRODUCT;
}

// Whether a product of n rows reads packed inputs: where reading them as they are is slower
bool packs(const Matrix& w, int32_t mode, int64_t n) {
    const bool cheap = mode == BF16_PRODUCT || w.type == LLAMATH_F16 || w.type == LLAMATH_I8;
    return n > (cheap ? MOST_FEW_ROWS : FEW_ROWS) && active->pack_rows;
}

constexpr int64_t PIECE_BYTES = 131072;                          // of weights, for few rows
constexpr int64_t TILE_WEIGHT_ROWS = 48, TILE_INPUT_ROWS = 192;  // of a piece for many rows

int64_t rows_per_piece(const Matrix& w, int64_t n) {
    if (n > MOST_FEW_ROWS) return TILE_WEIGHT_ROWS;
    return std::max<int64_t>(
               PIECE_BYTES / std::max<int64_t>(llamath_row_bytes(w.type, w.cols), 1) / ROW_GROUP,
               1) *
           ROW_GROUP;
}

// One matrix with a range of prepared rows
struct Part {
    Matrix w;
    const float* bias;
    float* out;
    int64_t out_stride;
    int32_t mode, packed, accumulate;
    int64_t x_first, x_last;
    int64_t rows, row_blocks, first_piece;
};

struct Plan {
    const Path* path;
    const Part* parts;
    int32_t count;
    const int32_t* out_rows;  // row of the output for each prepared row, -1 for none, or NULL
    Activations x;
    int64_t memory;  // where results end and the kernel's memory begins
};

ProductPiece piece_of(const Plan& plan, int64_t piece, char* memory, const Part*& part) {
    const Part* found =
        std::upper_bound(plan.parts, plan.parts + plan.count, piece,
                         [](int64_t p, const Part& x) { return p < x.first_piece; }) -
        1;
    part = found;
    const int64_t at = piece - found->first_piece, row = at % found->row_blocks * found->rows,
                  x = found->x_first + at / found->row_blocks * TILE_INPUT_ROWS;
    ProductPiece p{};
    p.w = &found->w;
    p.x = &plan.x;
    p.first = row;
    p.last = std::min(row + found->rows, found->w.rows);
    p.x_first = x;
    p.x_last = std::min(x + TILE_INPUT_ROWS, found->x_last);
    p.y = reinterpret_cast<float*>(memory);
    p.y_stride = ceil_div(p.last - p.first, ROW_GROUP) * ROW_GROUP;
    p.memory = memory + plan.memory;
    return p;
}

void compute_product(const void* context, int64_t piece, char* memory) {
    const auto& plan = *static_cast<const Plan*>(context);
    const Part* part;
    const ProductPiece p = piece_of(plan, piece, memory, part);
    plan.path->product(&p, part->mode, part->packed);
}

void commit_product(const void* context, int64_t piece, const char* memory) {
    const auto& plan = *static_cast<const Plan*>(context);
    const Part* part;
    const ProductPiece p = piece_of(plan, piece, const_cast<char*>(memory), part);
    const int64_t rows = p.last - p.first;
    for (int64_t i = p.x_first; i < p.x_last; i++) {
        const float* y = p.y + (i - p.x_first) * p.y_stride;
        float* out =
            part->out + (plan.out_rows ? plan.out_rows[i] : i) * part->out_stride + p.first;
        const float* bias = part->bias ? part->bias + p.first : nullptr;
        if (part->accumulate)
            for (int64_t r = 0; r < rows; r++) out[r] += y[r] + (bias ? bias[r] : 0.0f);
        else if (bias)
            for (int64_t r = 0; r < rows; r++) out[r] = y[r] + bias[r];
        else
            std::memcpy(out, y, static_cast<size_t>(rows) * sizeof(float));
    }
}

void run_products(Pool* pool, Plan plan, Part* parts) {
    int64_t pieces = 0, results = 0, kernel = 0;
    for (int32_t i = 0; i < plan.count; i++) {
        Part& part = parts[i];
        const int64_t n = part.x_last - part.x_first;
        part.rows = std::min(rows_per_piece(part.w, n), std::max<int64_t>(part.w.rows, 1));
        part.row_blocks = ceil_div(part.w.rows, part.rows);
        part.first_piece = pieces;
        pieces += part.row_blocks * ceil_div(n, TILE_INPUT_ROWS);
        const int64_t inputs = ceil_div(std::min(n, TILE_INPUT_ROWS), PACKED_ROWS) * PACKED_ROWS;
        results =
            std::max(results, ceil_div(part.rows, ROW_GROUP) * ROW_GROUP * inputs * FLOAT_SIZE);
        kernel = std::max(kernel, plan.path->product_memory(&part.w));
    }
    plan.parts = parts;
    plan.memory = ceil_div(results, 64) * 64;
    Task task;
    task.pieces = pieces;
    task.compute = compute_product;
    task.commit = commit_product;
    task.context = &plan;
    task.context_size = sizeof plan;
    static_assert(sizeof plan <= llamath::MAX_CONTEXT);
    task.worker_memory = static_cast<size_t>(plan.memory + kernel);
    task.with_inputs = true;
    pool->run(task);
}

}  // namespace

extern "C" {

const char* llamath_path(void) { return active->name; }
int32_t llamath_num_paths(void) { return NUM_PATHS; }
const char* llamath_path_name(int32_t i) {
    return i >= 0 && i < NUM_PATHS ? PATHS[i]->name : nullptr;
}
int32_t llamath_path_supported(int32_t i) {
    return i >= 0 && i < NUM_PATHS && PATHS[i]->supported();
}
int32_t llamath_set_path(const char* name) {
    const Path* p = path_named(name);
    if (p) active = p;
    return p ? 0 : -1;
}

Pool* llamath_pool_create(int32_t threads) { return new Pool(threads); }
void llamath_pool_destroy(Pool* pool) { delete pool; }
int32_t llamath_pool_threads(const Pool* pool) { return pool->threads; }
void llamath_pool_wait(Pool* pool) { pool->wait_for_helpers(); }
void llamath_pool_cancel(Pool* pool) { pool->cancelled.store(1); }
int32_t llamath_pool_cancelled(const Pool* pool) { return pool->cancelled.load(); }
void llamath_pool_resume(Pool* pool) { pool->cancelled.store(0); }
int64_t llamath_pool_scratch(const Pool* pool) { return pool->scratch_bytes(); }

uint64_t llamath_read(Pool* pool, const void* data, int64_t bytes) {
    constexpr int64_t WORDS = 16384;
    std::atomic<uint64_t> total{0};
    parallel(pool, bytes / 8, WORDS, [data, total = &total](int64_t first, int64_t last) {
        const char* words = static_cast<const char*>(data);
        uint64_t sum = 0;
        for (int64_t i = first; i < last; i++) {
            uint64_t word;
            std::memcpy(&word, words + i * 8, 8);
            sum += word;
        }
        total->fetch_add(sum, std::memory_order_relaxed);
    });
    return total.load();
}

int64_t llamath_block_size(int32_t type) {
    switch (type) {
        case LLAMATH_F32:
        case LLAMATH_F16:
        case LLAMATH_BF16:
        case LLAMATH_I8:
            return 1;
        case LLAMATH_Q4_0:
        case LLAMATH_Q8_0:
        case LLAMATH_MXFP4:
            return 32;
        case LLAMATH_Q4_K:
        case LLAMATH_Q5_K:
        case LLAMATH_Q6_K:
            return 256;
        default:
            return 0;
    }
}

int64_t llamath_block_bytes(int32_t type) {
    switch (type) {
        case LLAMATH_F32:
            return 4;
        case LLAMATH_F16:
        case LLAMATH_BF16:
            return 2;
        case LLAMATH_I8:
            return 1;
        case LLAMATH_Q4_0:
            return 18;
        case LLAMATH_Q8_0:
            return 34;
        case LLAMATH_MXFP4:
            return 17;
        case LLAMATH_Q4_K:
            return 144;
        case LLAMATH_Q5_K:
            return 176;
        case LLAMATH_Q6_K:
            return 210;
        default:
            return 0;
    }
}

int64_t llamath_row_bytes(int32_t type, int64_t cols) {
    const int64_t size = llamath_block_size(type);
    return size == 0 || cols < 0 || cols > MOST_CELLS || cols % size
               ? -1
               : cols / size * llamath_block_bytes(type);
}

int32_t llamath_fits(const Matrix* w) {
    const int64_t bytes = llamath_row_bytes(w->type, w->cols),
                  stride = or_else(w->row_stride, bytes);
    if (bytes < 0 || w->layout || w->rows < 0 || w->rows > MOST_CELLS || stride < bytes) return 0;
    if (w->type == LLAMATH_I8 ? w->num_scales < w->rows || !w->scales : w->scales != nullptr)
        return 0;
    int64_t before = 0;  // the last row
    if (w->rows == 0 || bytes == 0) return 1;
    return w->data && !__builtin_mul_overflow(w->rows - 1, stride, &before) &&
           before <= w->bytes - bytes;
}

int32_t llamath_dequantize_row(float* out, const Matrix* w, int64_t r) {
    if (r < 0 || r >= w->rows || !llamath_fits(w)) return -1;
    active->dequantize_row(out, w, r);
    return 0;
}

int32_t llamath_compare_groups(GroupComparison* c) {
    if (c->size <= 0 || c->size % 16 || c->groups < 0 || c->groups > MOST_CELLS / c->size)
        return -1;
    if (c->type != LLAMATH_F32 && c->type != LLAMATH_F16 && c->type != LLAMATH_BF16) return -1;
    active->compare_groups(c);
    return 0;
}

void llamath_lookup(Pool* pool, float* out, int64_t out_stride, const int32_t* ids, int64_t n,
                    const Matrix* w, int32_t offset, float factor) {
    const Path* path = active;
    const Matrix table = *w;
    out_stride = or_else(out_stride, w->cols);
    parallel_rows(pool, n, w->cols, [=](int64_t i) {
        float* row = out + i * out_stride;
        const int64_t id = int64_t{ids[i]} + offset;
        if (id < 0 || id >= table.rows) {
            std::fill(row, row + table.cols, std::numeric_limits<float>::quiet_NaN());
            return;
        }
        path->dequantize_row(row, &table, id);
        if (factor != 1.0f) path->scale(row, row, table.cols, factor, 0.0f);
    });
}

int32_t llamath_matmul(Pool* pool, const Product* products, int32_t count, const float* x,
                       int64_t x_stride, int64_t n, int32_t precision) {
    Needs needs;
    for (int32_t i = 0; i < count; i++) {
        if (!llamath_fits(&products[i].w) || products[i].w.cols != products[0].w.cols) return -1;
        const int32_t mode = mode_of(products[i].w, n, precision);
        needs.add(mode, packs(products[i].w, mode, n));
    }
    if (count <= 0 || n <= 0) return 0;
    const int64_t cols = products[0].w.cols,
                  part_bytes = count * static_cast<int64_t>(sizeof(Part)) + 64;
    Plan plan{active, nullptr, count, nullptr, activations(x, or_else(x_stride, cols), n, cols), 0};
    char* memory = pool->inputs(static_cast<size_t>(prepared_bytes(plan.x, needs) + part_bytes));
    Part* parts = reinterpret_cast<Part*>(take(memory, part_bytes - 64));
    for (int32_t i = 0; i < count; i++) {
        const Product& p = products[i];
        const int32_t mode = mode_of(p.w, n, precision);
        parts[i] = Part{p.w,
                        p.bias,
                        p.out,
                        or_else(p.out_stride, p.w.rows),
                        mode,
                        packs(p.w, mode, n),
                        p.accumulate,
                        0,
                        n,
                        0,
                        0,
                        0};
    }
    lay_out(plan.x, needs, memory);
    prepare(pool, plan.x, needs);
    run_products(pool, plan, parts);
    return 0;
}

int32_t llamath_per_head_matmul(Pool* pool, float* out, const float* x, int64_t n, const Matrix* w,
                                int64_t size, int32_t transposed, int32_t) {
    if (!llamath_fits(w) || size <= 0 || w->rows % size) return -1;
    struct Context {
        const Path* path;
        Matrix w;
        const float* x;
        float* out;
        int64_t n, heads, size, memory;
        int32_t transposed;
    } context{active, *w, x, out, n, w->rows / size, size, 0, transposed};
    const int64_t out_size = transposed ? w->cols : size;
    context.memory =
        ceil_div(n * std::max(out_size, ceil_div(size, ROW_GROUP) * ROW_GROUP) * FLOAT_SIZE, 64) *
        64;
    Task task;
    task.pieces = context.heads;
    task.context = &context;
    task.context_size = sizeof context;
    task.worker_memory = static_cast<size_t>(context.memory + active->product_memory(w));
    task.compute = [](const void* c, int64_t h, char* memory) {
        const auto& self = *static_cast<const Context*>(c);
        const int64_t in_size = self.transposed ? self.size : self.w.cols;
        Activations a{};
        a.x = self.x + h * in_size, a.stride = self.heads * in_size, a.n = self.n, a.cols = in_size;
        ProductPiece p{&self.w,
                       &a,
                       h * self.size,
                       (h + 1) * self.size,
                       0,
                       self.n,
                       reinterpret_cast<float*>(memory),
                       self.size,
                       memory + self.memory};
        if (self.transposed)
            self.path->transposed_product(&p);
        else
            self.path->product(&p, FLOAT_PRODUCT, 0);
    };
    task.commit = [](const void* c, int64_t h, const char* memory) {
        const auto& self = *static_cast<const Context*>(c);
        const int64_t size_out = self.transposed ? self.w.cols : self.size;
        for (int64_t i = 0; i < self.n; i++)
            std::memcpy(self.out + (i * self.heads + h) * size_out,
                        memory + i * size_out * FLOAT_SIZE,
                        static_cast<size_t>(size_out * FLOAT_SIZE));
    };
    pool->run(task);
    return 0;
}

int32_t llamath_expert_matmul(Pool* pool, const ExpertProduct* products, int32_t count,
                              const float* x, int64_t x_stride, const int32_t* chosen,
                              int64_t pairs, int32_t rows_per_x, int32_t num_experts,
                              int32_t precision) {
    if (count <= 0 || pairs <= 0 || num_experts <= 0) return 0;
    const int64_t cols = products[0].experts[0].cols;
    const auto valid = [&](int64_t p) { return chosen[p] >= 0 && chosen[p] < num_experts; };
    for (int32_t i = 0; i < count; i++)
        for (int64_t p = 0; p < pairs; p++) {
            if (!valid(p)) continue;
            const Matrix& w = products[i].experts[chosen[p]];
            if (!llamath_fits(&w) || w.cols != cols || w.rows != products[i].experts[0].rows)
                return -1;
        }
    // The rows of each expert one after the other; those of an expert with packed inputs begin at a
    // multiple of PACKED_ROWS
    const int64_t most_rows = pairs + PACKED_ROWS * std::min<int64_t>(pairs, num_experts);
    const int64_t part_bytes =
        std::min<int64_t>(pairs, num_experts) * count * static_cast<int64_t>(sizeof(Part));
    Needs needs;
    needs.rounded = needs.quantized = needs.floats = needs.bf16 = needs.int8 = true;
    Activations a = activations(nullptr, cols, most_rows, cols);
    char* memory = pool->inputs(static_cast<size_t>(prepared_bytes(a, needs) + part_bytes +
                                                    most_rows * (cols * FLOAT_SIZE + 4) +
                                                    num_experts * 16 + 512));
    auto* parts = reinterpret_cast<Part*>(take(memory, part_bytes));
    auto* order = reinterpret_cast<int32_t*>(take(memory, most_rows * 4));
    auto* sizes = reinterpret_cast<int64_t*>(take(memory, num_experts * 8));
    auto* begins = reinterpret_cast<int64_t*>(take(memory, num_experts * 8));
    auto* rows = reinterpret_cast<float*>(take(memory, most_rows * cols * FLOAT_SIZE));
    std::fill(sizes, sizes + num_experts, 0);
    for (int64_t p = 0; p < pairs; p++) {
        if (valid(p)) {
            sizes[chosen[p]]++;
            continue;
        }
        for (int32_t i = 0; i < count; i++) {
            float* out = products[i].out + p * products[i].experts[0].rows;
            std::fill(out, out + products[i].experts[0].rows, 0.0f);
        }
    }
    Plan plan{active, parts, 0, order, {}, 0};
    needs = Needs();
    int64_t total = 0;
    for (int32_t e = 0; e < num_experts; e++) {
        const bool aligned = sizes[e] > FEW_ROWS;
        if (aligned) total = ceil_div(total, PACKED_ROWS) * PACKED_ROWS;
        begins[e] = total;
        total += aligned ? ceil_div(sizes[e], PACKED_ROWS) * PACKED_ROWS : sizes[e];
        for (int32_t i = 0; sizes[e] && i < count; i++) {
            const Matrix& w = products[i].experts[e];
            const int32_t mode = mode_of(w, sizes[e], precision), packed = packs(w, mode, sizes[e]);
            needs.add(mode, packed);
            parts[plan.count++] = Part{w,
                                       products[i].biases ? products[i].biases[e] : nullptr,
                                       products[i].out,
                                       w.rows,
                                       mode,
                                       packed,
                                       0,
                                       begins[e],
                                       begins[e] + sizes[e],
                                       0,
                                       0,
                                       0};
        }
    }
    if (total == 0) return 0;
    std::fill(order, order + total, -1);
    for (int64_t p = 0; p < pairs; p++)
        if (valid(p)) order[begins[chosen[p]]++] = static_cast<int32_t>(p);
    x_stride = or_else(x_stride, cols);
    parallel_rows(pool, total, cols, [=](int64_t i) {
        if (order[i] < 0)
            std::fill(rows + i * cols, rows + (i + 1) * cols, 0.0f);
        else
            std::memcpy(rows + i * cols, x + order[i] / rows_per_x * x_stride,
                        static_cast<size_t>(cols) * sizeof(float));
    });
    plan.x = activations(rows, cols, total, cols);
    lay_out(plan.x, needs, memory);
    prepare(pool, plan.x, needs);
    run_products(pool, plan, parts);
    return 0;
}

void llamath_combine_experts(Pool* pool, float* out, const float* y, const float* weights,
                             const int32_t* chosen, const float* x, int64_t n, int32_t top_k,
                             int32_t num_experts, int64_t cols, int32_t accumulate) {
    const Path* path = active;
    parallel_rows(pool, n, cols * top_k, [=](int64_t t) {
        float* row = out + t * cols;
        if (!accumulate) std::fill(row, row + cols, 0.0f);
        for (int64_t j = t * top_k; j < (t + 1) * top_k; j++) {
            const bool stored = chosen[j] >= 0 && chosen[j] < num_experts;
            const float* from = stored ? y + j * cols : x ? x + t * cols : nullptr;
            if (from) path->multiply_add(row, row, from, cols, weights[j]);
        }
    });
}

// ---- Norms and elementwise operations

void llamath_rms_norm(Pool* pool, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                      int64_t n, int64_t cols, const float* weight, int64_t weight_rows, float eps,
                      float offset) {
    const Path* path = active;
    out_stride = or_else(out_stride, cols), x_stride = or_else(x_stride, cols);
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->rms_norm(out + i * out_stride, x + i * x_stride, cols,
                       weight ? weight + i % weight_rows * cols : nullptr, eps, offset);
    });
}

void llamath_layer_norm(Pool* pool, float* out, int64_t out_stride, const float* x,
                        int64_t x_stride, int64_t n, int64_t cols, const float* weight,
                        const float* bias, int64_t weight_rows, float eps, float offset) {
    const Path* path = active;
    out_stride = or_else(out_stride, cols), x_stride = or_else(x_stride, cols);
    parallel_rows(pool, n, cols, [=](int64_t i) {
        const int64_t at = weight_rows > 1 ? i % weight_rows * cols : 0;
        path->layer_norm(out + i * out_stride, x + i * x_stride, cols,
                         weight ? weight + at : nullptr, bias ? bias + at : nullptr, eps, offset);
    });
}

void llamath_l2_norm(Pool* pool, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                     int64_t n, int64_t cols, float eps) {
    const Path* path = active;
    out_stride = or_else(out_stride, cols), x_stride = or_else(x_stride, cols);
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->l2_norm(out + i * out_stride, x + i * x_stride, cols, eps);
    });
}

void llamath_act(Pool* pool, float* out, const float* x, int64_t count, int32_t act) {
    const Path* path = active;
    parallel(pool, count, SMALL,
             [=](int64_t a, int64_t b) { path->act(out + a, x + a, b - a, act); });
}

void llamath_gated(Pool* pool, float* out, int64_t out_stride, const float* gate,
                   int64_t gate_stride, const float* up, int64_t up_stride, int64_t n, int64_t cols,
                   int32_t act) {
    const Path* path = active;
    out_stride = or_else(out_stride, cols), gate_stride = or_else(gate_stride, cols),
    up_stride = or_else(up_stride, cols);
    if (n == 1) {
        parallel(pool, cols, SMALL,
                 [=](int64_t a, int64_t b) { path->gated(out + a, gate + a, up + a, b - a, act); });
        return;
    }
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->gated(out + i * out_stride, gate + i * gate_stride, up + i * up_stride, cols, act);
    });
}

void llamath_clamped_gated(Pool* pool, float* out, int64_t out_stride, const float* gate,
                           int64_t gate_stride, const float* up, int64_t up_stride, int64_t n,
                           int64_t cols, int32_t step, float limit, float alpha) {
    const Path* path = active;
    out_stride = or_else(out_stride, cols), gate_stride = or_else(gate_stride, cols * step),
    up_stride = or_else(up_stride, cols * step);
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->clamped_gated(out + i * out_stride, gate + i * gate_stride, up + i * up_stride, cols,
                            step, limit, alpha);
    });
}

void llamath_add(Pool* pool, float* out, const float* x, const float* y, int64_t count) {
    const Path* path = active;
    parallel(pool, count, SMALL,
             [=](int64_t a, int64_t b) { path->multiply_add(out + a, x + a, y + a, b - a, 1.0f); });
}

void llamath_add_row(Pool* pool, float* out, const float* x, const float* y, int64_t n,
                     int64_t cols) {
    const Path* path = active;
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->multiply_add(out + i * cols, x + i * cols, y, cols, 1.0f);
    });
}

void llamath_multiply(Pool* pool, float* out, const float* x, const float* y, int64_t n,
                      int64_t cols, int64_t y_rows, int64_t y_cols) {
    const Path* path = active;
    parallel_rows(pool, n, cols, [=](int64_t i) {
        const float* other = y + i % y_rows * y_cols;
        if (y_cols == 1 && cols != 1)
            path->scale(out + i * cols, x + i * cols, cols, other[0], 0.0f);
        else
            path->multiply(out + i * cols, x + i * cols, other, cols);
    });
}

void llamath_scale(Pool* pool, float* out, const float* x, int64_t count, float factor,
                   float amount) {
    const Path* path = active;
    parallel(pool, count, SMALL,
             [=](int64_t a, int64_t b) { path->scale(out + a, x + a, b - a, factor, amount); });
}

void llamath_softcap(Pool* pool, float* out, const float* x, int64_t count, float cap) {
    const Path* path = active;
    parallel(pool, count, SMALL,
             [=](int64_t a, int64_t b) { path->softcap(out + a, x + a, b - a, cap); });
}

void llamath_clamp(Pool* pool, float* out, const float* x, int64_t count, float low, float high) {
    const Path* path = active;
    parallel(pool, count, SMALL,
             [=](int64_t a, int64_t b) { path->clamp(out + a, x + a, b - a, low, high); });
}

void llamath_softplus_bias(Pool* pool, float* out, const float* x, const float* bias, int64_t n,
                           int64_t cols, float low, float high) {
    const Path* path = active;
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->softplus_bias(out + i * cols, x + i * cols, bias, cols, low, high);
    });
}

void llamath_decay(Pool* pool, float* out, const float* dt, const float* a_log, int64_t n,
                   int64_t heads, int64_t cols) {
    const Path* path = active;
    parallel_rows(pool, n * heads, cols, [=](int64_t i) {
        path->scale(out + i * cols, dt + i * cols, cols, -std::exp(a_log[i % heads]), 0.0f);
    });
}

void llamath_bounded_decay(Pool* pool, float* out, const float* x, const float* bias,
                           const float* a_log, int64_t n, int64_t heads, int64_t cols,
                           float bound) {
    const Path* path = active;
    parallel_rows(pool, n * heads, cols, [=](int64_t i) {
        float* row = out + i * cols;
        path->multiply_add(row, x + i * cols, bias + i % heads * cols, cols, 1.0f);
        path->scale(row, row, cols, std::exp(a_log[i % heads]), 0.0f);
        path->act(row, row, cols, LLAMATH_SIGMOID);
        path->scale(row, row, cols, bound, 0.0f);
    });
}

void llamath_copy_rows(Pool* pool, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                       int64_t n, int64_t cols) {
    out_stride = or_else(out_stride, cols), x_stride = or_else(x_stride, cols);
    parallel_rows(pool, n, cols, [=](int64_t i) {
        std::memmove(out + i * out_stride, x + i * x_stride,
                     static_cast<size_t>(cols) * sizeof(float));
    });
}

void llamath_softmax(Pool* pool, float* out, const float* x, int64_t n, int64_t cols) {
    const Path* path = active;
    parallel_rows(pool, n, cols,
                  [=](int64_t i) { path->softmax(out + i * cols, x + i * cols, cols); });
}

int64_t llamath_first_nonfinite(Pool*, const float* x, int64_t count) {
    return active->first_nonfinite(x, count);
}
int64_t llamath_argmax(Pool*, const float* x, int64_t count) { return active->argmax(x, count); }

void llamath_rope_tables(float* cos, float* sin, const int32_t* positions, int64_t n,
                         const float* frequencies, int64_t half, float factor, float sin_sign) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < half; j++) {
            const float angle = static_cast<float>(positions[i]) * frequencies[j];
            cos[i * half + j] = std::cos(angle) * factor;
            sin[i * half + j] = std::sin(angle) * (factor * sin_sign);
        }
}

int32_t llamath_rope(Pool* pool, float* out, int64_t out_stride, const float* x, int64_t x_stride,
                     int64_t n, int64_t heads, int64_t head_dim, int64_t half, int32_t interleaved,
                     const float* cos, const float* sin) {
    if (half < 0 || half > head_dim / 2) return -1;
    const Path* path = active;
    out_stride = or_else(out_stride, heads * head_dim),
    x_stride = or_else(x_stride, heads * head_dim);
    parallel_rows(pool, n, heads * head_dim, [=](int64_t i) {
        path->rope(out + i * out_stride, x + i * x_stride, heads, head_dim, half, interleaved,
                   cos + i * half, sin + i * half);
    });
    return 0;
}

// ---- Attention

void llamath_store_rows(Pool* pool, void* cache, int32_t type, int64_t cache_stride, const float* x,
                        int64_t x_stride, int64_t n, int64_t cols) {
    const Path* path = active;
    const int64_t size = type == LLAMATH_F32 ? 4 : 2;
    x_stride = or_else(x_stride, cols);
    parallel_rows(pool, n, cols, [=](int64_t i) {
        path->store_row(static_cast<char*>(cache) + i * cache_stride * size, type, x + i * x_stride,
                        cols);
    });
}

int32_t llamath_attention(Pool* pool, const Attention* given) {
    struct Context {
        const Path* path;
        Attention a;
        int64_t queries, query_blocks, splits, split, rows,
            partial;      // `partial`: floats of a split's result
        float* partials;  // [pieces of one split, splits, partial]; NULL without splits
    };
    static_assert(sizeof(Context) <= llamath::MAX_CONTEXT);
    Context c{active, *given, 0, 0, 1, 0, 0, 0, nullptr};
    const Attention& a = c.a;
    if (a.heads <= 0 || a.kv_heads <= 0 || a.heads % a.kv_heads) return -1;
    if (a.batch <= 0 || a.tokens <= 0) return 0;
    const int64_t group = a.heads / a.kv_heads;
    c.queries = a.selected ? 1 : std::min<int64_t>(a.tokens, std::max<int64_t>(1, 64 / group));
    c.query_blocks = ceil_div(a.tokens, c.queries);
    c.rows = c.queries * group;
    c.partial = c.rows * (int64_t{a.v_dim} + 2);
    const int64_t keys = a.selected ? a.num_selected : int64_t{a.past} + a.tokens,
                  heads = int64_t{a.batch} * a.kv_heads * c.query_blocks;
    c.split = std::max<int64_t>(keys, 1);
    if (pool->threads > 1 && a.tokens == 1 && heads < 8 * pool->threads &&
        keys >= 512) {  // few heads and many keys
        const int64_t visible = a.window > 0 ? std::min<int64_t>(a.window, keys) : keys;
        c.splits = std::min(ceil_div(8 * pool->threads, heads), ceil_div(visible, 256));
        if (c.splits > 1)
            c.partials = reinterpret_cast<float*>(
                pool->inputs(static_cast<size_t>(heads * c.splits * c.partial * FLOAT_SIZE)));
    }
    Task task;
    task.pieces = heads * c.splits;
    task.context = &c;
    task.context_size = sizeof c;
    task.with_inputs = c.partials != nullptr;
    task.worker_memory = static_cast<size_t>(ceil_div(c.partial * FLOAT_SIZE, 64) * 64 +
                                             active->attention_memory(&a, c.queries));
    static constexpr auto piece_of = [](const Context& self, int64_t piece, char* memory) {
        const Attention& at = self.a;
        const int64_t split = piece % self.splits, item = piece / self.splits,
                      head = item % at.kv_heads, block = item / at.kv_heads % self.query_blocks;
        AttentionPiece p{};
        p.a = &at;
        p.sequence = static_cast<int32_t>(item / at.kv_heads / self.query_blocks);
        p.kv_head = static_cast<int32_t>(head);
        p.first_query = static_cast<int32_t>(block * self.queries);
        p.last_query =
            static_cast<int32_t>(std::min<int64_t>(p.first_query + self.queries, at.tokens));
        int64_t low = 0, high = at.selected ? at.num_selected : int64_t{at.past} + at.tokens;
        if (!at.selected) {  // keys that some query of the piece sees
            const int64_t start = at.start ? at.start[p.sequence] : 0,
                          first = int64_t{at.past} + p.first_query;
            low = start;
            if (at.causal) high = std::min<int64_t>(high, int64_t{at.past} + p.last_query);
            if (at.window > 0) low = std::max<int64_t>(low, first - at.window + 1);
            if (at.chunk > 0 && first >= start)
                low = std::max<int64_t>(low, start + (first - start) / at.chunk * at.chunk);
            low = std::max<int64_t>(low, at.first_slot);
            high = std::max(high, low);
        }
        const int64_t size = ceil_div(high - low, self.splits);
        p.first_key = std::min(low + split * size, high);
        p.last_key = std::min(low + (split + 1) * size, high);
        p.out = reinterpret_cast<float*>(memory);
        p.largest = p.out + self.rows * at.v_dim;
        p.total = p.largest + self.rows;
        p.memory = memory + ceil_div(self.partial * FLOAT_SIZE, 64) * 64;
        return p;
    };
    // of one row: divides by the sum of weights and writes it
    static constexpr auto finish = [](const Context& self, const AttentionPiece& p, int64_t n,
                                      const float* row, float most, float total) {
        const Attention& at = self.a;
        const int64_t per_group = at.heads / at.kv_heads,
                      head = p.kv_head * per_group + n % per_group,
                      token = p.first_query + n / per_group;
        const int64_t out_token = or_else(at.out_token, int64_t{at.heads} * at.v_dim),
                      out_batch = or_else(at.out_batch, at.tokens * out_token);
        float* out = at.out + p.sequence * out_batch + token * out_token + head * at.v_dim;
        if (at.sinks && total != 0.0f) {
            const float with_sink = std::max(most, at.sinks[head]),
                        factor = std::exp(most - with_sink);
            total = (total * factor + std::exp(at.sinks[head] - with_sink)) / factor;
        }
        self.path->scale(out, row, at.v_dim, total == 0.0f ? 0.0f : 1.0f / total, 0.0f);
    };
    task.compute = [](const void* context, int64_t piece, char* memory) {
        const auto& self = *static_cast<const Context*>(context);
        const AttentionPiece p = piece_of(self, piece, memory);
        self.path->attention(&p);
    };
    task.commit = [](const void* context, int64_t piece, const char* memory) {
        const auto& self = *static_cast<const Context*>(context);
        const AttentionPiece p = piece_of(self, piece, const_cast<char*>(memory));
        if (self.partials) {
            std::memcpy(self.partials + piece * self.partial, memory,
                        static_cast<size_t>(self.partial * FLOAT_SIZE));
            return;
        }
        for (int64_t n = 0; n < (p.last_query - p.first_query) * (self.a.heads / self.a.kv_heads);
             n++)
            finish(self, p, n, p.out + n * self.a.v_dim, p.largest[n], p.total[n]);
    };
    pool->run(task);
    if (!c.partials || pool->cancelled.load()) return 0;
    for (int64_t item = 0; item < heads;
         item++) {  // the splits of a head's keys together, in the memory of the first
        const AttentionPiece p = piece_of(c, item * c.splits, nullptr);
        float* first = c.partials + item * c.splits * c.partial;
        for (int64_t n = 0; n < group; n++) {
            float most = -std::numeric_limits<float>::infinity(), total = 0;
            for (int64_t s = 0; s < c.splits; s++)
                most = std::max(most, first[s * c.partial + c.rows * a.v_dim + n]);
            const float shift = std::isinf(most) ? 0.0f : most;
            for (int64_t s = 0; s < c.splits; s++) {
                const float* part = first + s * c.partial;
                const float factor = std::exp(part[c.rows * a.v_dim + n] - shift);
                total += part[c.rows * a.v_dim + c.rows + n] * factor;
                if (s == 0)
                    c.path->scale(first + n * a.v_dim, part + n * a.v_dim, a.v_dim, factor, 0.0f);
                else
                    c.path->multiply_add(first + n * a.v_dim, first + n * a.v_dim,
                                         part + n * a.v_dim, a.v_dim, factor);
            }
            finish(c, p, n, first + n * a.v_dim, shift, total);
        }
    }
    return 0;
}

// ---- Recurrences

void llamath_causal_conv(Pool* pool, float* out, int64_t out_stride, const float* x,
                         int64_t x_stride, float* state, const float* weight, const float* bias,
                         int64_t batch, int64_t tokens, int64_t channels, int64_t taps, int32_t act,
                         const int32_t* pad) {
    const Path* path = active;
    out_stride = or_else(out_stride, channels), x_stride = or_else(x_stride, channels);
    constexpr int64_t CHANNELS = 64;
    const int64_t blocks = ceil_div(channels, CHANNELS);
    parallel(pool, batch * blocks, SMALL / std::max<int64_t>(tokens * CHANNELS, 1),
             [=](int64_t a, int64_t b) {
                 for (int64_t i = a; i < b; i++) {
                     const int64_t s = i / blocks, first = i % blocks * CHANNELS;
                     path->causal_conv(out + s * tokens * out_stride, out_stride,
                                       x + s * tokens * x_stride, x_stride,
                                       state + s * (taps - 1) * channels, weight, bias, tokens,
                                       channels, first, std::min(first + CHANNELS, channels), taps,
                                       act, pad ? pad[s] : 0);
                 }
             });
}

void llamath_gated_delta_rule(Pool* pool, const DeltaRule* given) {
    const Path* path = active;
    const DeltaRule r = *given;
    parallel(pool, int64_t{r.batch} * r.heads,
             SMALL / std::max<int64_t>(int64_t{r.tokens} * r.n * r.m, 1),
             [=](int64_t a, int64_t b) {
                 for (int64_t i = a; i < b; i++)
                     path->delta_rule(&r, static_cast<int32_t>(i / r.heads),
                                      static_cast<int32_t>(i % r.heads));
             });
}

void llamath_ssm_scan(Pool* pool, const StateScan* given) {
    const Path* path = active;
    const StateScan r = *given;
    parallel(pool, int64_t{r.batch} * r.heads,
             SMALL / std::max<int64_t>(int64_t{r.tokens} * r.n * r.m, 1),
             [=](int64_t a, int64_t b) {
                 for (int64_t i = a; i < b; i++)
                     path->ssm_scan(&r, static_cast<int32_t>(i / r.heads),
                                    static_cast<int32_t>(i % r.heads));
             });
}

void llamath_selective_scan(Pool* pool, const StateScan* given) {
    const Path* path = active;
    const StateScan r = *given;
    const int64_t channels = std::max<int64_t>(
                      SMALL / 4 / std::max<int64_t>(int64_t{r.tokens} * r.n, 1), 16),
                  blocks = ceil_div(r.heads, channels);
    parallel(pool, r.batch * blocks, 1, [=](int64_t a, int64_t b) {
        for (int64_t i = a; i < b; i++) {
            const int64_t first = i % blocks * channels;
            path->selective_scan(
                &r, static_cast<int32_t>(i / blocks), static_cast<int32_t>(first),
                static_cast<int32_t>(std::min<int64_t>(first + channels, r.heads)));
        }
    });
}

}  // extern "C"
