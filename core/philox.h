#pragma once

#include <cstdint>

#include <voxgrad/core/host_device.h>

// Philox4x32-10, a counter-based random generator: a keyed bijection of 128-bit counters, so any block of the
// stream can be computed without those before it. It uses integer arithmetic only, so all devices give the
// same words. J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.

namespace vox {

/// Four 32-bit words: a Philox counter, or the random block made from it.
struct PhiloxWords {
  uint32_t word[4];
};

/// The block of `counter` under `key`, whose low 32 bits are the first key word.
VOX_HOST_DEVICE inline PhiloxWords philox4x32(PhiloxWords counter, uint64_t key) {
  constexpr uint32_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  constexpr uint32_t key_step0 = 0x9E3779B9, key_step1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(multiplier0) * c0;
    const uint64_t product1 = static_cast<uint64_t>(multiplier1) * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    key0 += key_step0;
    key1 += key_step1;
  }
  return {{c0, c1, c2, c3}};
}

/// Block number `block` of the tensor at place `offset` of the stream `seed`.
VOX_HOST_DEVICE inline PhiloxWords philox_block(uint64_t seed, uint64_t offset, uint64_t block) {
  return philox4x32({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                      static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)}},
                    seed);
}

/// Two words as one of 64 bits.
VOX_HOST_DEVICE inline uint64_t join_words(uint32_t low, uint32_t high) {
  return static_cast<uint64_t>(high) << 32 | low;
}

/// Uniform in [0, 1), exact: from the upper 24 bits of one word, or the upper 53 of two.
VOX_HOST_DEVICE inline float uniform_f32(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
VOX_HOST_DEVICE inline double uniform_f64(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

}  // namespace vox
