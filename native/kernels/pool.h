// Pool: threads that compute the pieces of a task, where a delayed thread holds up nobody.
//
// A task is a number of pieces, taken from an atomic counter by the calling thread and the helpers.
// A piece is computed into the memory of its worker, and then committed to the output by the first
// worker that finishes it. When the caller has no pieces left and one is still being computed by a
// helper that has lost its core to another process, the caller computes that piece again, commits
// it and goes on; the helper finds its piece committed and drops its result. So a pass slows down
// by the share of the processor that others take, and not by their time slices. What a late helper
// reads stays valid: a task and its scratch memory live in a slot, which is not reused while a
// helper is inside.

#ifndef LLAMATH_POOL_H
#define LLAMATH_POOL_H

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace llamath {

struct Scratch {  // 64-byte aligned memory that only grows
    char* data = nullptr;
    size_t size = 0;
    char* reserve(size_t bytes);
    void release();
};

struct Task {
    int64_t pieces = 0;
    void (*compute)(const void* context, int64_t piece, char* worker_memory) = nullptr;
    // Copies a piece's result to the output. Without it `compute` writes to the output itself, and
    // the caller waits for every helper.
    void (*commit)(const void* context, int64_t piece, const char* worker_memory) = nullptr;
    const void* context = nullptr;  // copied
    size_t context_size = 0;
    size_t worker_memory = 0;  // bytes for each worker
    bool with_inputs = false;  // whether it reads the memory that Pool::inputs returned, which is
                               // then free for others
};

constexpr size_t MAX_CONTEXT = 512;

struct Slot {
    std::atomic<int32_t> users{0};  // helpers inside
    std::atomic<int64_t> next{0}, done{0};
    Task task;
    alignas(64) char context[MAX_CONTEXT];
    std::atomic<uint8_t>* states = nullptr;  // of pieces: OPEN, COMMITTING, DONE
    int64_t states_size = 0;
    Scratch scratch;  // prepared inputs of the task
};

}  // namespace llamath

struct Pool {
    explicit Pool(int32_t threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // Memory for what the next task with inputs reads; other tasks may run before, to fill it.
    char* inputs(size_t bytes);
    void run(const llamath::Task& task);
    void wait_for_helpers();
    int64_t scratch_bytes() const;

    const int32_t threads;
    std::atomic<int32_t> cancelled{0};

  private:
    struct Helper;
    int32_t free_slot();
    void start_helpers();
    void work(llamath::Slot& slot, llamath::Scratch& memory, int64_t& own_pieces);
    void help(Helper& helper);

    llamath::Slot* slots_;
    Helper* helpers_ = nullptr;
    int32_t num_slots_, reserved_ = -1;
    bool started_ = false;
    uint64_t generation_;               // of forks
    std::atomic<uint64_t> current_{0};  // (epoch << 8) + slot + 1; slot 0: no task
    uint64_t epoch_ = 0;
    llamath::Scratch memory_;  // of the calling thread
    std::atomic<int32_t> sleepers_{0}, stop_{0};
    pthread_mutex_t mutex_;
    pthread_cond_t wake_;
};

#endif
