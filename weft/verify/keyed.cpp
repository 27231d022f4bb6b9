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
constexpr uint64_t kPrime = (1ull << 61) - 1;

inline uint64_t hashed(const uint64_t* secret, uint64_t first, uint64_t second) {
    State state(secret[0], secret[1]);
    state.take(first);
    state.take(second);
    state.take(kLength);
    return state.finished();
}

// Of x < 2 * kPrime, without a branch.
inline uint64_t below(uint64_t x) {
    const uint64_t less = x - kPrime;
    return less + (kPrime & -(less >> 63));
}

inline uint64_t folded(uint64_t x) { return below((x & kPrime) + (x >> 61)); }

}  // namespace

// out[i] = SipHash(secret, first[i] then second[i]); a stride of 0 takes one word for all.
extern "C" void weft_keyed_words(const uint64_t* secret, const uint64_t* first, int64_t first_stride,
                                 const uint64_t* second, int64_t second_stride, uint64_t* out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[i] = hashed(secret, first[i * first_stride], second[i * second_stride]);
}

// out[i] = folded SipHash(secret, keys[each[i]] then x[rows[i]] + added[each[i]]) + offset, lane by lane. x, keys, added
// and out are rows of so many lanes.
extern "C" void weft_keyed_sums(const uint64_t* secret, const uint64_t* keys, const uint64_t* added, const int64_t* each,
                                const uint64_t* x, const int64_t* rows, uint64_t offset, int64_t lanes, uint64_t* out,
                                int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t *key = keys + each[i] * lanes, *more = added + each[i] * lanes, *own = x + rows[i] * lanes;
        uint64_t* to = out + i * lanes;
        for (int64_t lane = 0; lane < lanes; ++lane)
            to[lane] = below(folded(hashed(secret, key[lane], below(own[lane] + more[lane]))) + offset);
    }
}
