// Programs as `engine.py` passes them: what an operation reads, what it writes, and the sizes of
// buffers, weights, caches and states.

#ifndef LLAMATH_PROGRAM_H
#define LLAMATH_PROGRAM_H

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "operation_fields.h"

struct ProductSpec {
    WeightNumber weight, bias;
    View out;
};

struct BufferSpec {
    int64_t width, rows_per_token;  // rows_per_token 0: one row for each sequence
};

struct CacheSpec {
    int64_t heads, dim, lookback;  // lookback 0: all tokens
};

struct ProgramSpec {
    const OpSpec* ops;
    const ProductSpec* products;
    const BufferSpec* buffers;
    const Matrix* weights;
    const CacheSpec* caches;
    const int64_t* state_sizes;
    const int64_t* rope_pairs;  // of each rotary embedding
    int64_t num_ops, num_products, num_buffers, num_weights, num_caches, num_states, num_ropes;
    View logits;
};

// What is wrong with a program, or empty: after this no pass reads or writes outside of the
// buffers, weights, caches and states that the program declares. `where` is the number of the
// operation, or -1.
std::string find_mistake(const ProgramSpec& program, int64_t* where);

// The ids and the positions that all lookups of a program have rows for: 0 ... the number of them
// - 1.
struct LookupLimits {
    int64_t ids, positions;
};
LookupLimits lookup_limits(const ProgramSpec& program);

#endif
