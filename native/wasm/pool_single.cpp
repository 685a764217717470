// Pool without threads and exceptions: all pieces of a task one after the other.

#include <cstdlib>

#include "../kernels/pool.h"

namespace llamath {

char* Scratch::reserve(size_t bytes) {
    if (bytes > size) {
        std::free(data);
        size = (bytes + bytes / 4 + 4095) / 4096 * 4096;
        data = static_cast<char*>(std::aligned_alloc(64, size));
        if (!data) __builtin_trap();
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

Pool::Pool(int32_t) : threads(1), slots_(new Slot[1]), num_slots_(1), generation_(0) {}

Pool::~Pool() {
    slots_[0].scratch.release();
    delete[] slots_;
    memory_.release();
}

char* Pool::inputs(size_t bytes) { return slots_[0].scratch.reserve(bytes); }

void Pool::run(const Task& task) {
    char* own = memory_.reserve(task.worker_memory + 64);
    for (int64_t i = 0; i < task.pieces; i++) {
        task.compute(task.context, i, own);
        if (task.commit) task.commit(task.context, i, own);
    }
}

void Pool::wait_for_helpers() {}

int64_t Pool::scratch_bytes() const {
    return static_cast<int64_t>(memory_.size + slots_[0].scratch.size);
}
