// Pool: starting, feeding, overtaking and ending its threads.

#include "pool.h"

#include <sched.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

namespace llamath {

namespace {

enum : uint8_t { OPEN, COMMITTING, DONE };

constexpr int64_t SPIN_NS = 50'000;  // a helper waits this long for the next task before it sleeps

std::atomic<uint64_t> forks{0};

void count_fork() { forks.fetch_add(1); }

const int registered = pthread_atfork(nullptr, nullptr, count_fork);

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

char* Scratch::reserve(size_t bytes) {
    if (bytes > size) {
        std::free(data);
        size = round_up(bytes + bytes / 4, 4096);
        data = static_cast<char*>(std::aligned_alloc(64, size));
        if (!data) {
            size = 0;
            throw std::bad_alloc();
        }
    }
    return data;
}

void Scratch::release() {
    std::free(data);
    data = nullptr;
    size = 0;
}

}  // namespace llamath

using namespace llamath;

struct Pool::Helper {
    Pool* pool;
    pthread_t thread;
    Scratch memory;
};

Pool::Pool(int32_t threads_)
    : threads(threads_ < 1     ? 1
              : threads_ > 200 ? 200
                               : threads_),
      num_slots_(threads + 2),
      generation_(forks.load()) {
    slots_ = new Slot[num_slots_];
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&wake_, nullptr);
}

Pool::~Pool() {
    const bool same_process = generation_ == forks.load();
    if (started_ && same_process) {
        pthread_mutex_lock(&mutex_);
        stop_.store(1);
        pthread_cond_broadcast(&wake_);
        pthread_mutex_unlock(&mutex_);
        for (int32_t i = 0; i < threads - 1; i++) pthread_join(helpers_[i].thread, nullptr);
    }
    for (int32_t i = 0; helpers_ && i < threads - 1; i++) helpers_[i].memory.release();
    delete[] helpers_;
    for (int32_t i = 0; i < num_slots_; i++) {
        slots_[i].scratch.release();
        delete[] slots_[i].states;
    }
    delete[] slots_;
    memory_.release();
    if (same_process) {
        pthread_cond_destroy(&wake_);
        pthread_mutex_destroy(&mutex_);
    }
}

void Pool::start_helpers() {
    if (generation_ !=
        forks.load()) {  // in a child: the helpers are gone, and so are those that were inside
        generation_ = forks.load();
        started_ = false;
        pthread_mutex_init(&mutex_, nullptr);
        pthread_cond_init(&wake_, nullptr);
        sleepers_.store(0);
        current_.store(0);
        for (int32_t i = 0; i < num_slots_; i++) slots_[i].users.store(0);
    }
    if (started_) return;
    started_ = true;
    if (!helpers_) helpers_ = new Helper[threads];
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads of the program
    for (int32_t i = 0; i < threads - 1; i++) {
        helpers_[i].pool = this;
        const auto begin = [](void* helper) -> void* {
            auto* self = static_cast<Helper*>(helper);
            self->pool->help(*self);
            return nullptr;
        };
        if (pthread_create(&helpers_[i].thread, nullptr, begin, &helpers_[i]) != 0) {
            const_cast<int32_t&>(threads) = i + 1;  // as many as the system allows
            break;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

int32_t Pool::free_slot() {
    for (;;)  // one is free: there are two more than helpers
        for (int32_t i = 0; i < num_slots_; i++)
            if (i != reserved_ && slots_[i].users.load() == 0) return i;
}

char* Pool::inputs(size_t bytes) {
    reserved_ = -1;
    if (threads > 1) start_helpers();
    reserved_ = free_slot();
    return slots_[reserved_].scratch.reserve(bytes);
}

void Pool::work(Slot& slot, Scratch& memory, int64_t& own_pieces) {
    const Task& task = slot.task;
    char* own = nullptr;
    for (;;) {
        const int64_t piece = slot.next.fetch_add(1);
        if (piece >= task.pieces) return;
        if (!cancelled.load(std::memory_order_relaxed)) {
            if (!own) own = memory.reserve(task.worker_memory + 64);
            task.compute(slot.context, piece, own);
        }
        uint8_t open = OPEN;
        if (!slot.states[piece].compare_exchange_strong(open, COMMITTING)) continue;  // overtaken
        if (task.commit && !cancelled.load(std::memory_order_relaxed))
            task.commit(slot.context, piece, own);
        slot.states[piece].store(DONE);
        slot.done.fetch_add(1);
        own_pieces++;
    }
}

void Pool::run(const Task& task) {
    if (task.pieces <= 0) return;
    if (threads == 1 || task.pieces == 1) {
        char* own = memory_.reserve(task.worker_memory + 64);
        for (int64_t i = 0; i < task.pieces && !cancelled.load(std::memory_order_relaxed); i++) {
            task.compute(task.context, i, own);
            if (task.commit) task.commit(task.context, i, own);
        }
        return;
    }
    start_helpers();
    const int32_t number = task.with_inputs ? reserved_ : free_slot();
    Slot& slot = slots_[number];
    if (task.pieces > slot.states_size) {
        delete[] slot.states;
        slot.states_size = task.pieces * 2;
        slot.states = new std::atomic<uint8_t>[slot.states_size];
    }
    for (int64_t i = 0; i < task.pieces; i++) slot.states[i].store(OPEN, std::memory_order_relaxed);
    slot.task = task;
    std::memcpy(slot.context, task.context, task.context_size);
    slot.next.store(0, std::memory_order_relaxed);
    slot.done.store(0, std::memory_order_relaxed);
    current_.store((++epoch_ << 8) + static_cast<uint64_t>(number) + 1);
    if (sleepers_.load() > 0) {
        pthread_mutex_lock(&mutex_);
        pthread_cond_broadcast(&wake_);
        pthread_mutex_unlock(&mutex_);
    }

    const int64_t begin = now_ns();
    int64_t own_pieces = 0;
    work(slot, memory_, own_pieces);
    if (slot.done.load() < task.pieces) {
        const int64_t end = now_ns(), patience = 2 * (end - begin) / (own_pieces + 1);
        for (int64_t spins = 0; slot.done.load() < task.pieces; spins++) {
            pause_briefly();
            if (spins % 16 != 15) continue;
            const int64_t waited = now_ns() - end;
            if (task.commit && waited > patience) {
                char* own = memory_.reserve(task.worker_memory + 64);
                for (int64_t i = 0; i < task.pieces; i++) {
                    if (slot.states[i].load() != OPEN) continue;
                    if (!cancelled.load(std::memory_order_relaxed))
                        task.compute(slot.context, i, own);
                    uint8_t open = OPEN;
                    if (!slot.states[i].compare_exchange_strong(open, COMMITTING)) continue;
                    if (!cancelled.load(std::memory_order_relaxed))
                        task.commit(slot.context, i, own);
                    slot.states[i].store(DONE);
                    slot.done.fetch_add(1);
                }
            }
            if (waited > patience + 20'000) sched_yield();
        }
    }
    current_.store(++epoch_ << 8);  // no task
}

void Pool::help(Helper& helper) {
    uint64_t seen = 0;
    while (!stop_.load()) {
        uint64_t now = current_.load();
        if (now == seen || (now & 255) == 0) {
            const int64_t begin = now_ns();
            for (int spins = 0; (now = current_.load()) == seen || (now & 255) == 0; spins++) {
                pause_briefly();
                if (spins % 32 == 31 && now_ns() - begin > SPIN_NS) break;
            }
        }
        if (now == seen || (now & 255) == 0) {
            pthread_mutex_lock(&mutex_);
            sleepers_.fetch_add(1);
            while (!stop_.load() && ((now = current_.load()) == seen || (now & 255) == 0))
                pthread_cond_wait(&wake_, &mutex_);
            sleepers_.fetch_sub(1);
            pthread_mutex_unlock(&mutex_);
            if (stop_.load()) return;
        }
        Slot& slot = slots_[(now & 255) - 1];
        slot.users.fetch_add(1);
        if (current_.load() == now) {
            int64_t pieces = 0;
            work(slot, helper.memory, pieces);
            seen = now;
        }
        slot.users.fetch_sub(1);
    }
}

void Pool::wait_for_helpers() {
    if (generation_ != forks.load()) return;
    for (int32_t i = 0; i < num_slots_; i++)
        while (slots_[i].users.load() != 0) sched_yield();
}

int64_t Pool::scratch_bytes() const {
    size_t bytes = memory_.size;
    for (int32_t i = 0; i < num_slots_; i++)
        bytes += slots_[i].scratch.size + slots_[i].states_size;
    for (int32_t i = 0; helpers_ && i < threads - 1; i++) bytes += helpers_[i].memory.size;
    return static_cast<int64_t>(bytes);
}
