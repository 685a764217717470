// What a pass reads, and the functions of the interpreter.

#ifndef LLAMATH_INTERPRETER_H
#define LLAMATH_INTERPRETER_H

#include <cstdint>

#include "kernels/kernels.h"
#include "program.h"

// The angles of a rotary embedding: frequencies of `half` pairs.
struct RopeAngles {
    const float* frequencies;
    int64_t half;
    float factor, sin_sign;
};

struct Segment {
    int64_t slot, batch, tokens, past;  // `past` counts the padding of the slots
    int64_t angles;                     // first of num_ropes entries in the pass's angles
};

struct Pass {
    const Segment* segments;
    const int32_t* ids;
    const RopeAngles* angles;
    int64_t num_segments, num_ids, num_angles, all_logits, precision;
    float* layers;  // if not null: the hidden states after each layer, [layers, tokens, width]
    int64_t layers_size;  // numbers that they have room for
};

struct Engine;
struct Session;

enum { RUN_OK = 0, RUN_CANCELLED = 1, RUN_NONFINITE = 2, RUN_NO_MEMORY = 3, RUN_REFUSED = 4 };

extern "C" {
int32_t llamath_version();  // of the description of programs
Engine* llamath_engine_create(Pool* pool, const ProgramSpec* p, int64_t* where, char* text,
                              int64_t size);
void llamath_engine_destroy(Engine* e);
Session* llamath_session_create(Engine* e, int64_t slots, int64_t max_chunk, int64_t kv_type);
void llamath_session_destroy(Session* s);
int32_t llamath_session_reserve(Session* s, int64_t capacity, int64_t length);
int32_t llamath_session_can_truncate(const Session* s, int64_t stored, int64_t length);
int32_t llamath_session_run(Session* s, const Pass* pass, int64_t* where, char* text, int64_t size);
const float* llamath_session_logits(const Session* s, int64_t row);
const float* llamath_session_buffer(const Session* s, int64_t buffer, int64_t* rows);
int32_t llamath_session_attention(const Session* s, int64_t number, float* out, int64_t size);
}

#endif
