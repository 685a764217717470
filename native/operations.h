// Operations of few models, on one thread: what they compute is stated in `core/machine.py`.

#ifndef LLAMATH_OPERATIONS_H
#define LLAMATH_OPERATIONS_H

#include <cstdint>
#include <vector>

void alibi_slopes(std::vector<float>& slopes, int64_t heads, double max_bias, double scale);
void scale_by_weight(float* out, const float* x, const float* w, int64_t n, int64_t heads,
                     int64_t dim, int64_t size);
void scale_by_position(float* out, const float* x, const int32_t* positions, int64_t n,
                       int64_t size, int64_t kind, float scale, float floor, float offset);
void route_by_token(int32_t* chosen, float* weights, const float* logits, int64_t n,
                    int64_t experts, const int32_t* ids, const float* table, int64_t table_rows,
                    int64_t top_k, int64_t scoring, float scaling);
void dispatch(float* out, const float* x, const float* weights, int64_t n, int64_t cols,
              int64_t top_k);
void scale_by_expert(float* out, const float* weights, const int32_t* chosen, const float* scale,
                     int64_t count, int64_t experts);
void add_sinusoids(float* out, const float* x, const int32_t* positions, int64_t n, int64_t size,
                   int64_t offset, int64_t steps);
void mix_streams(float* out, const float* x, const float* weights, int64_t n, int64_t outputs,
                 int64_t streams, int64_t cols);
void sinkhorn(float* out, const float* x, int64_t n, int64_t size, int64_t iterations, float eps);
void normalize_sum(float* out, const float* x, int64_t n, int64_t cols);

#endif
