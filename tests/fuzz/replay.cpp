// The main() of a fuzzer where there is no libFuzzer: `fuzz_NAME folder...` runs it on every file of the
// folders, and on damaged copies of each.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

using Bytes = std::vector<uint8_t>;

/// With each byte changed in one bit and in all; with bytes overwritten, left out and repeated at random.
template <class Run>
void for_damaged(const Bytes& sound, Run run) {
  for (size_t i = 0; i < sound.size(); ++i) {
    for (const int flip : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
      Bytes bytes = sound;
      bytes[i] = static_cast<uint8_t>(bytes[i] ^ flip);
      run(bytes);
    }
  }
  std::minstd_rand random(1);
  const auto below = [&](size_t n) { return static_cast<std::ptrdiff_t>(random() / 7 % n); };
  for (int copy = 0; copy < 300; ++copy) {
    Bytes bytes = sound;
    for (auto changes = 1 + below(4); changes > 0 && !bytes.empty(); --changes) {
      const auto at = bytes.begin() + below(bytes.size());
      const Bytes some(at, at + std::min(1 + below(40), bytes.end() - at));
      switch (below(3)) {
        case 0:
          *at = static_cast<uint8_t>(below(256));
          break;
        case 1:
          bytes.erase(at, at + std::ssize(some));
          break;
        default:
          bytes.insert(bytes.begin() + below(bytes.size()), some.begin(), some.end());
      }
    }
    run(bytes);
  }
}

int main(int argc, char** argv) {
  int inputs = 0;
  const auto run = [&](const Bytes& bytes) {
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++inputs;
  };
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::printf("%s\n", entry.path().c_str());  // the last one, if it crashes
      std::fflush(stdout);
      std::ifstream file(entry.path(), std::ios::binary);
      const Bytes sound{std::istreambuf_iterator<char>(file), {}};
      run(sound);
      for_damaged(sound, run);
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
