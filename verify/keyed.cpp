// A keyed random function: SipHash-2-4 of two 64-bit words, for arrays of them.
#include <cstdint>

namespace {

inline uint64_t rotated(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

struct State {
    uint64_t v0, v1, v2, v3;

    State(uint64_t k0, uint64_t k1)
        : v0(k0 ^ 0x736f6d6570736575ull), v1(k1 ^ 0x646f72616e646f6dull), v2(k0 ^ 0x6c7967656e657261ull),
          v3(k1 ^ 0x7465646279746573ull) {}

    inline void round() {
        v0 += v1;
        v2 += v3;
        v1 = rotated(v1, 13) ^ v0;
        v3 = rotated(v3, 16) ^ v2;
        v0 = rotated(v0, 32);
        v2 += v1;
        v0 += v3;
        v1 = rotated(v1, 17) ^ v2;
        v3 = rotated(v3, 21) ^ v0;
        v2 = rotated(v2, 32);
    }

    inline void take(uint64_t word) {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
    }

    inline uint64_t finished() {
        v2 ^= 0xff;
        round();
        round();
        round();
        round();
        return v0 ^ v1 ^ v2 ^ v3;
    }
};

constexpr uint64_t kLength = 16ull << 56;  // of the message, in the highest byte of its last word

}  // namespace

// out[i] = SipHash(secret, first[i] then second[i]); a stride of 0 takes one word for all.
extern "C" void weft_keyed_words(const uint64_t* secret, const uint64_t* first, int64_t first_stride,
                                 const uint64_t* second, int64_t second_stride, uint64_t* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        State state(secret[0], secret[1]);
        state.take(first[i * first_stride]);
        state.take(second[i * second_stride]);
        state.take(kLength);
        out[i] = state.finished();
    }
}
