// Comparing quantized weights with the numbers that they may be rounded from, group by group.

#ifndef LLAMATH_COMPARISON_H
#define LLAMATH_COMPARISON_H

#include "path.h"
#include "simd.h"

namespace {

INLINE bool any(I mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
    int64_t words[BYTES / 8], found = 0;
    memcpy(words, &mask, sizeof mask);
    for (int i = 0; i < BYTES / 8; i++) found |= words[i];
    return found != 0;
#endif
}

constexpr int64_t SUMMED_GROUPS = 64;  // whose squares are added up in float32

// Vectors of values and of the numbers beside them, by group and place in it
template <class L, class T>
struct Pairs {
    const GroupComparison* c;
    INLINE F value(int64_t g, int64_t k) const {
        const L* levels =
            reinterpret_cast<const L*>(static_cast<const char*>(c->levels) + g * c->level_stride);
        return load(levels + k) * c->scales[g] - (c->minimums ? c->minimums[g] : 0.0f);
    }
    INLINE F number(int64_t g, int64_t k) const {
        return load(static_cast<const T*>(c->numbers) + g * c->size + k);
    }
};

template <class L, class T>
void note_beyond(GroupComparison* c, Pairs<L, T> pairs, int64_t g) {
    for (int64_t k = 0; k < c->size; k += W) {
        const I beyond = vabs(pairs.number(g, k) - pairs.value(g, k)) * c->reciprocals[g] > 1.0f;
        for (int i = 0; i < W && any(beyond); i++)
            if (beyond[i]) c->beyond[c->num_beyond++] = static_cast<int32_t>(g * c->size + k + i);
    }
}

template <class L, class T>
int64_t first_differing(const GroupComparison* c, Pairs<L, T> pairs, int64_t first, int64_t last) {
    for (int64_t g = first; g < last; g++)
        for (int64_t k = 0; k < c->size; k += W) {
            const I differs = pairs.number(g, k) != pairs.value(g, k);
            for (int i = 0; i < W && any(differs); i++)
                if (differs[i]) return g * c->size + k + i;
        }
    return -1;
}

template <class L, class T>
void compare_as(GroupComparison* c) {
    const Pairs<L, T> pairs = {c};
    F most = {}, share = {};
    for (int64_t first = 0; first < c->groups; first += SUMMED_GROUPS) {
        const int64_t last = min_of(first + SUMMED_GROUPS, c->groups);
        F differences = {}, of_values = {}, of_numbers = {};
        I equal = {};
        for (int64_t g = first; g < last; g++) {
            F largest_here = {};
            for (int64_t k = 0; k < c->size; k += W) {
                const F value = pairs.value(g, k), number = pairs.number(g, k),
                        difference = number - value;
                equal -= number == value;
                differences += difference * difference;
                of_values += value * value;
                of_numbers += number * number;
                largest_here = vmax(vabs(difference), largest_here);
            }
            const F shares = largest_here * c->reciprocals[g];
            most = vmax(largest_here, most);
            share = vmax(shares, share);
            if (any(shares > 1.0f)) note_beyond(c, pairs, g);
        }
        const int64_t differing = (last - first) * c->size - sum_of(equal);
        if (differing && !c->num_differing)
            c->first_differing = first_differing(c, pairs, first, last);
        c->num_differing += differing;
        c->square_difference += sum(differences);
        c->square_value += sum(of_values);
        c->square_number += sum(of_numbers);
    }
    c->largest_difference = largest(most);
    c->largest_share = largest(share);
}

template <class L>
void compare_levels(GroupComparison* c) {
    if (c->type == LLAMATH_F32) return compare_as<L, float>(c);
    if (c->type == LLAMATH_F16) return compare_as<L, f16>(c);
    compare_as<L, bf16>(c);
}

void compare_groups(GroupComparison* c) {
    c->num_beyond = c->num_differing = 0, c->first_differing = -1;
    c->square_difference = c->square_value = c->square_number = 0;
    if (c->is_signed) return compare_levels<int8_t>(c);
    compare_levels<uint8_t>(c);
}

}  // namespace

#endif
