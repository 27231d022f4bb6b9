// All that the simulators need of a C++ library when they are WebAssembly: the module then imports nothing, so that any
// host runs it. Memory is handed out and never taken back: an instance serves one run.

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

extern "C" unsigned char __heap_base;  // set by the linker: the first byte behind all data and the stack

namespace {

constexpr uintptr_t kAlignment = 16;
constexpr uintptr_t kPageBits = 16;

uintptr_t next_free = 0;

}  // namespace

extern "C" void* weft_allocate(size_t bytes) {
    if (!next_free) next_free = reinterpret_cast<uintptr_t>(&__heap_base);
    const uintptr_t start = (next_free + kAlignment - 1) & ~(kAlignment - 1);
    const uintptr_t held = uintptr_t(__builtin_wasm_memory_size(0)) << kPageBits;
    if (start < next_free || bytes > UINTPTR_MAX - start) __builtin_trap();
    next_free = start + bytes;
    if (next_free > held) {
        const uintptr_t pages = ((next_free - held - 1) >> kPageBits) + 1;
        if (__builtin_wasm_memory_grow(0, pages) == SIZE_MAX) __builtin_trap();
    }
    return reinterpret_cast<void*>(start);
}

void* operator new(size_t bytes) { return weft_allocate(bytes); }
void operator delete(void*) noexcept {}
void operator delete(void*, size_t) noexcept {}

// a * b + c, rounded once. The product is exact in double; where the sum is not, its last bit is made odd, so that the
// rounding to float sees that there is more behind it.
extern "C" float fmaf(float a, float b, float c) {
    const double product = double(a) * double(b), addend = double(c), sum = product + addend;
    const double part = sum - product, lost = (product - (sum - part)) + (addend - part);
    uint64_t bits = __builtin_bit_cast(uint64_t, sum);
    if (lost != 0 && lost == lost && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : uint64_t(-1);
    return float(__builtin_bit_cast(double, bits));
}

// What containers call where they would throw: an instance that asks for too much ends in a trap.
void std::__libcpp_verbose_abort(const char*, ...) noexcept { __builtin_trap(); }
