// The operations of a program: written by tools/native_header.py from
// native_operations.py, which says what each field is.

#ifndef LLAMATH_OPERATION_FIELDS_H
#define LLAMATH_OPERATION_FIELDS_H

#include <cstdint>

// clang-format off: one field per line

constexpr int32_t LLAMATH_VERSION = 695758110;
constexpr int64_t NUM_CODES = 39, MAX_PRODUCTS = 8;

// A part of each row of a buffer
struct View {
    int64_t buffer, offset, stride, heads, head_stride, dim;  // buffer -1: none
    int64_t size() const { return heads * dim; }
    bool joined() const { return heads == 1 || head_stride == dim; }
    bool given() const { return buffer != -1; }
};
// The number of a weight, cache, state or rotary embedding; of no weight, -1
struct WeightNumber { int64_t number; };
struct CacheNumber { int64_t number; };
struct StateNumber { int64_t number; };
struct RopeNumber { int64_t number; };

// Matrix products of the program: the number of the first, and how many there are.
struct Products {
    int64_t first, count;
};

namespace ops {

struct Lookup {
    static constexpr int64_t CODE = 0;
    View out;
    WeightNumber table;
    int64_t by_position;
    int64_t offset;
    template <class F>
    void each_double(F&&) const {}
};

struct Linear {
    static constexpr int64_t CODE = 1;
    View x;
    Products products;
    template <class F>
    void each_double(F&&) const {}
};

struct ExpertLinear {
    static constexpr int64_t CODE = 2;
    View x;
    View chosen;
    Products products;
    int64_t top_k;
    int64_t rows_per_x;
    int64_t num_experts;
    template <class F>
    void each_double(F&&) const {}
};

struct PerHead {
    static constexpr int64_t CODE = 3;
    View out;
    View x;
    WeightNumber matrix;
    int64_t size;
    int64_t transposed;
    template <class F>
    void each_double(F&&) const {}
};

struct RMSNorm {
    static constexpr int64_t CODE = 4;
    View out;
    View x;
    WeightNumber weight;
    int64_t weight_rows;
    double eps;
    double offset;
    template <class F>
    void each_double(F&& f) const { f("eps", eps); f("offset", offset); }
};

struct LayerNorm {
    static constexpr int64_t CODE = 5;
    View out;
    View x;
    WeightNumber weight;
    int64_t weight_rows;
    double eps;
    double offset;
    WeightNumber bias;
    template <class F>
    void each_double(F&& f) const { f("eps", eps); f("offset", offset); }
};

struct L2Norm {
    static constexpr int64_t CODE = 6;
    View out;
    View x;
    double eps;
    template <class F>
    void each_double(F&& f) const { f("eps", eps); }
};

struct Act {
    static constexpr int64_t CODE = 7;
    View out;
    View x;
    int64_t function;
    template <class F>
    void each_double(F&&) const {}
};

struct Gated {
    static constexpr int64_t CODE = 8;
    View out;
    View gate;
    View up;
    int64_t function;
    template <class F>
    void each_double(F&&) const {}
};

struct ClampedGated {
    static constexpr int64_t CODE = 9;
    View out;
    View gate;
    View up;
    double limit;
    double alpha;
    template <class F>
    void each_double(F&& f) const { f("limit", limit); f("alpha", alpha); }
};

struct Add {
    static constexpr int64_t CODE = 10;
    View out;
    View x;
    View y;
    template <class F>
    void each_double(F&&) const {}
};

struct Multiply {
    static constexpr int64_t CODE = 11;
    View out;
    View x;
    View y;
    template <class F>
    void each_double(F&&) const {}
};

struct Scale {
    static constexpr int64_t CODE = 12;
    View out;
    View x;
    double factor;
    double amount;
    template <class F>
    void each_double(F&& f) const { f("factor", factor); f("amount", amount); }
};

struct ScaleByWeight {
    static constexpr int64_t CODE = 13;
    View out;
    View x;
    WeightNumber weight;
    template <class F>
    void each_double(F&&) const {}
};

struct ScaleByPosition {
    static constexpr int64_t CODE = 14;
    View out;
    View x;
    int64_t kind;
    double scale;
    double floor;
    double offset;
    template <class F>
    void each_double(F&& f) const { f("scale", scale); f("floor", floor); f("offset", offset); }
};

struct Softcap {
    static constexpr int64_t CODE = 15;
    View out;
    View x;
    double cap;
    template <class F>
    void each_double(F&& f) const { f("cap", cap); }
};

struct Clamp {
    static constexpr int64_t CODE = 16;
    View out;
    View x;
    double limit;
    template <class F>
    void each_double(F&& f) const { f("limit", limit); }
};

struct Softplus {
    static constexpr int64_t CODE = 17;
    View out;
    View x;
    WeightNumber bias;
    double low;
    double high;
    template <class F>
    void each_double(F&& f) const { f("low", low); f("high", high); }
};

struct Decay {
    static constexpr int64_t CODE = 18;
    View out;
    View x;
    WeightNumber a_log;
    template <class F>
    void each_double(F&&) const {}
};

struct BoundedDecay {
    static constexpr int64_t CODE = 19;
    View out;
    View x;
    WeightNumber a_log;
    WeightNumber bias;
    double bound;
    template <class F>
    void each_double(F&& f) const { f("bound", bound); }
};

struct Copy {
    static constexpr int64_t CODE = 20;
    View out;
    View x;
    template <class F>
    void each_double(F&&) const {}
};

struct LastToken {
    static constexpr int64_t CODE = 21;
    View out;
    View x;
    template <class F>
    void each_double(F&&) const {}
};

struct Rope {
    static constexpr int64_t CODE = 22;
    View out;
    View x;
    RopeNumber rope;
    int64_t interleaved;
    template <class F>
    void each_double(F&&) const {}
};

struct Store {
    static constexpr int64_t CODE = 23;
    View x;
    CacheNumber cache;
    template <class F>
    void each_double(F&&) const {}
};

struct Attention {
    static constexpr int64_t CODE = 24;
    View out;
    View q;
    CacheNumber key_cache;
    int64_t first_key;
    int64_t key_dim;
    CacheNumber value_cache;
    int64_t first_value;
    int64_t value_dim;
    int64_t window;
    int64_t chunk;
    WeightNumber sinks;
    double scale;
    double softcap;
    int64_t has_alibi;
    double alibi_bias;
    double alibi_scale;
    template <class F>
    void each_double(F&& f) const { f("scale", scale); f("softcap", softcap); f("alibi_bias", alibi_bias); f("alibi_scale", alibi_scale); }
};

struct CausalConv {
    static constexpr int64_t CODE = 25;
    View out;
    View x;
    WeightNumber weight;
    WeightNumber bias;
    StateNumber state;
    int64_t taps;
    template <class F>
    void each_double(F&&) const {}
};

struct DeltaRule {
    static constexpr int64_t CODE = 26;
    View out;
    View q;
    View k;
    View v;
    View g;
    View beta;
    StateNumber state;
    int64_t decay_by_row;
    template <class F>
    void each_double(F&&) const {}
};

struct SSMScan {
    static constexpr int64_t CODE = 27;
    View out;
    View x;
    View b;
    View c;
    View dt;
    WeightNumber a_log;
    StateNumber state;
    template <class F>
    void each_double(F&&) const {}
};

struct SelectiveScan {
    static constexpr int64_t CODE = 28;
    View out;
    View x;
    View b;
    View c;
    View dt;
    WeightNumber a_log;
    WeightNumber skip;
    StateNumber state;
    template <class F>
    void each_double(F&&) const {}
};

struct Route {
    static constexpr int64_t CODE = 29;
    View chosen;
    View weights;
    View logits;
    WeightNumber correction;
    int64_t top_k;
    int64_t scoring;
    int64_t choice_by_logits;
    int64_t normalize;
    int64_t groups;
    int64_t kept_groups;
    int64_t best_of_group;
    double scaling;
    double other;
    template <class F>
    void each_double(F&& f) const { f("scaling", scaling); f("other", other); }
};

struct RouteByToken {
    static constexpr int64_t CODE = 30;
    View chosen;
    View weights;
    View logits;
    WeightNumber table;
    int64_t table_rows;
    int64_t top_k;
    int64_t scoring;
    double scaling;
    template <class F>
    void each_double(F&& f) const { f("scaling", scaling); }
};

struct Dispatch {
    static constexpr int64_t CODE = 31;
    View out;
    View x;
    View weights;
    int64_t top_k;
    template <class F>
    void each_double(F&&) const {}
};

struct Combine {
    static constexpr int64_t CODE = 32;
    View out;
    View y;
    View weights;
    View chosen;
    View x;
    int64_t top_k;
    int64_t num_experts;
    int64_t has_equal_weights;
    template <class F>
    void each_double(F&&) const {}
};

struct ScaleByExpert {
    static constexpr int64_t CODE = 33;
    View out;
    View weights;
    View chosen;
    WeightNumber scale;
    int64_t num_experts;
    template <class F>
    void each_double(F&&) const {}
};

struct AddSinusoids {
    static constexpr int64_t CODE = 34;
    View out;
    View x;
    int64_t offset;
    int64_t steps;
    template <class F>
    void each_double(F&&) const {}
};

struct MixStreams {
    static constexpr int64_t CODE = 35;
    View out;
    View x;
    View weights;
    template <class F>
    void each_double(F&&) const {}
};

struct Sinkhorn {
    static constexpr int64_t CODE = 36;
    View out;
    View x;
    int64_t iterations;
    double eps;
    template <class F>
    void each_double(F&& f) const { f("eps", eps); }
};

struct NormalizeSum {
    static constexpr int64_t CODE = 37;
    View out;
    View x;
    template <class F>
    void each_double(F&&) const {}
};

struct LayerEnd {
    static constexpr int64_t CODE = 38;
    View x;
    int64_t layer;
    template <class F>
    void each_double(F&&) const {}
};

}  // namespace ops

// An operation: its structure begins at `fields`.
struct OpSpec {
    int64_t code;
    alignas(8) unsigned char fields[304];
};
static_assert(sizeof(ops::Lookup) == 72);
static_assert(sizeof(ops::Linear) == 64);
static_assert(sizeof(ops::ExpertLinear) == 136);
static_assert(sizeof(ops::PerHead) == 120);
static_assert(sizeof(ops::RMSNorm) == 128);
static_assert(sizeof(ops::LayerNorm) == 136);
static_assert(sizeof(ops::L2Norm) == 104);
static_assert(sizeof(ops::Act) == 104);
static_assert(sizeof(ops::Gated) == 152);
static_assert(sizeof(ops::ClampedGated) == 160);
static_assert(sizeof(ops::Add) == 144);
static_assert(sizeof(ops::Multiply) == 144);
static_assert(sizeof(ops::Scale) == 112);
static_assert(sizeof(ops::ScaleByWeight) == 104);
static_assert(sizeof(ops::ScaleByPosition) == 128);
static_assert(sizeof(ops::Softcap) == 104);
static_assert(sizeof(ops::Clamp) == 104);
static_assert(sizeof(ops::Softplus) == 120);
static_assert(sizeof(ops::Decay) == 104);
static_assert(sizeof(ops::BoundedDecay) == 120);
static_assert(sizeof(ops::Copy) == 96);
static_assert(sizeof(ops::LastToken) == 96);
static_assert(sizeof(ops::Rope) == 112);
static_assert(sizeof(ops::Store) == 56);
static_assert(sizeof(ops::Attention) == 208);
static_assert(sizeof(ops::CausalConv) == 128);
static_assert(sizeof(ops::DeltaRule) == 304);
static_assert(sizeof(ops::SSMScan) == 256);
static_assert(sizeof(ops::SelectiveScan) == 264);
static_assert(sizeof(ops::Route) == 224);
static_assert(sizeof(ops::RouteByToken) == 184);
static_assert(sizeof(ops::Dispatch) == 152);
static_assert(sizeof(ops::Combine) == 264);
static_assert(sizeof(ops::ScaleByExpert) == 160);
static_assert(sizeof(ops::AddSinusoids) == 112);
static_assert(sizeof(ops::MixStreams) == 144);
static_assert(sizeof(ops::Sinkhorn) == 112);
static_assert(sizeof(ops::NormalizeSum) == 96);
static_assert(sizeof(ops::LayerEnd) == 56);

// The name of an operation, or NULL for a number that is no operation.
inline const char* name_of(int64_t code) {
    static const char* const NAMES[] = {
        "Lookup",
        "Linear",
        "ExpertLinear",
        "PerHead",
        "RMSNorm",
        "LayerNorm",
        "L2Norm",
        "Act",
        "Gated",
        "ClampedGated",
        "Add",
        "Multiply",
        "Scale",
        "ScaleByWeight",
        "ScaleByPosition",
        "Softcap",
        "Clamp",
        "Softplus",
        "Decay",
        "BoundedDecay",
        "Copy",
        "LastToken",
        "Rope",
        "Store",
        "Attention",
        "CausalConv",
        "DeltaRule",
        "SSMScan",
        "SelectiveScan",
        "Route",
        "RouteByToken",
        "Dispatch",
        "Combine",
        "ScaleByExpert",
        "AddSinusoids",
        "MixStreams",
        "Sinkhorn",
        "NormalizeSum",
        "LayerEnd",
    };
    return code >= 0 && code < NUM_CODES ? NAMES[code] : nullptr;
}


// An operation if it is of this type, or NULL.
template <class Operation>
const Operation* get_if(const OpSpec& op) {
    return op.code == Operation::CODE ? reinterpret_cast<const Operation*>(op.fields) : nullptr;
}


// What `function` returns for the operation, of which it takes every type. Its code is one of them.
template <class Function>
auto visit(const OpSpec& op, Function&& function) {
    switch (op.code) {
        case ops::Lookup::CODE: return function(*get_if<ops::Lookup>(op));
        case ops::Linear::CODE: return function(*get_if<ops::Linear>(op));
        case ops::ExpertLinear::CODE: return function(*get_if<ops::ExpertLinear>(op));
        case ops::PerHead::CODE: return function(*get_if<ops::PerHead>(op));
        case ops::RMSNorm::CODE: return function(*get_if<ops::RMSNorm>(op));
        case ops::LayerNorm::CODE: return function(*get_if<ops::LayerNorm>(op));
        case ops::L2Norm::CODE: return function(*get_if<ops::L2Norm>(op));
        case ops::Act::CODE: return function(*get_if<ops::Act>(op));
        case ops::Gated::CODE: return function(*get_if<ops::Gated>(op));
        case ops::ClampedGated::CODE: return function(*get_if<ops::ClampedGated>(op));
        case ops::Add::CODE: return function(*get_if<ops::Add>(op));
        case ops::Multiply::CODE: return function(*get_if<ops::Multiply>(op));
        case ops::Scale::CODE: return function(*get_if<ops::Scale>(op));
        case ops::ScaleByWeight::CODE: return function(*get_if<ops::ScaleByWeight>(op));
        case ops::ScaleByPosition::CODE: return function(*get_if<ops::ScaleByPosition>(op));
        case ops::Softcap::CODE: return function(*get_if<ops::Softcap>(op));
        case ops::Clamp::CODE: return function(*get_if<ops::Clamp>(op));
        case ops::Softplus::CODE: return function(*get_if<ops::Softplus>(op));
        case ops::Decay::CODE: return function(*get_if<ops::Decay>(op));
        case ops::BoundedDecay::CODE: return function(*get_if<ops::BoundedDecay>(op));
        case ops::Copy::CODE: return function(*get_if<ops::Copy>(op));
        case ops::LastToken::CODE: return function(*get_if<ops::LastToken>(op));
        case ops::Rope::CODE: return function(*get_if<ops::Rope>(op));
        case ops::Store::CODE: return function(*get_if<ops::Store>(op));
        case ops::Attention::CODE: return function(*get_if<ops::Attention>(op));
        case ops::CausalConv::CODE: return function(*get_if<ops::CausalConv>(op));
        case ops::DeltaRule::CODE: return function(*get_if<ops::DeltaRule>(op));
        case ops::SSMScan::CODE: return function(*get_if<ops::SSMScan>(op));
        case ops::SelectiveScan::CODE: return function(*get_if<ops::SelectiveScan>(op));
        case ops::Route::CODE: return function(*get_if<ops::Route>(op));
        case ops::RouteByToken::CODE: return function(*get_if<ops::RouteByToken>(op));
        case ops::Dispatch::CODE: return function(*get_if<ops::Dispatch>(op));
        case ops::Combine::CODE: return function(*get_if<ops::Combine>(op));
        case ops::ScaleByExpert::CODE: return function(*get_if<ops::ScaleByExpert>(op));
        case ops::AddSinusoids::CODE: return function(*get_if<ops::AddSinusoids>(op));
        case ops::MixStreams::CODE: return function(*get_if<ops::MixStreams>(op));
        case ops::Sinkhorn::CODE: return function(*get_if<ops::Sinkhorn>(op));
        case ops::NormalizeSum::CODE: return function(*get_if<ops::NormalizeSum>(op));
        case ops::LayerEnd::CODE: return function(*get_if<ops::LayerEnd>(op));
        default: __builtin_unreachable();
    }
}

// clang-format on

#endif
