#include <voxgrad/core/host_memory.h>

#include <bit>
#include <mutex>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// Note [Host memory]
//
// The first touch of fresh memory costs more than most ops, because the operating system clears it page by
// page. For 64 MiB that takes 23 ms in pages of 4 KiB and 5 ms in huge pages; filling memory already in use
// takes 3 ms. So freed blocks of 64 KiB or more are kept for the next request of about the same size. Blocks
// of 2 MiB or more are requested in huge pages. An op in a loop, or the same layer in the next training step,
// then gets the memory that it had before.
//
// Sizes are rounded up to eighths of a power of two, so that kept blocks fit. A request that finds no block
// first frees as many idle bytes as it asks for, oldest blocks first. So the process hardly grows beyond what
// it needs without this cache, and sizes that are no longer requested disappear.
//
// The cache is off under AddressSanitizer, which otherwise cannot see uses of freed memory.

namespace vox::detail {
namespace {

constexpr bool keeps_blocks = !VOX_ADDRESS_SANITIZER;
constexpr int64_t smallest_kept = int64_t{1} << 16;  // half of what glibc takes from the system at a time
constexpr int64_t most_idle_bytes = int64_t{1} << 30;
constexpr size_t most_idle_blocks = 256;
constexpr int64_t huge_page = int64_t{1} << 21;

int64_t capacity_of(int64_t bytes) {
  if (bytes < smallest_kept) return bytes;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1)) / 8);
  return (bytes + step - 1) / step * step;
}

// 64 bytes are a cache line, and the widest vector register that a CPU kernel loads.
std::align_val_t alignment_of(int64_t capacity) {
  return std::align_val_t(capacity >= huge_page ? huge_page : 64);
}

void* fresh(int64_t capacity) {
  void* data = ::operator new(static_cast<size_t>(capacity), alignment_of(capacity), std::nothrow);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // A hint: it affects speed only. Whole pages only, so that it touches no other block.
  if (data != nullptr && capacity >= huge_page)
    madvise(data, static_cast<size_t>(capacity / huge_page * huge_page), MADV_HUGEPAGE);
#endif
  return data;
}

void free_block(void* data, int64_t capacity) noexcept { ::operator delete(data, alignment_of(capacity)); }

struct IdleBlock {
  void* data;
  int64_t capacity;
};

class IdleBlocks {
 public:
  /// The youngest block of this capacity, or null.
  void* take(int64_t capacity) {
    const std::lock_guard lock(mutex_);
    for (size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].capacity == capacity) return remove(i).data;
    }
    return nullptr;
  }

  /// The oldest block, or one whose data is null.
  IdleBlock take_oldest() {
    const std::lock_guard lock(mutex_);
    return blocks_.empty() ? IdleBlock{nullptr, 0} : remove(0);
  }

  /// Returns whether the block was kept.
  bool keep(IdleBlock block) {
    const std::lock_guard lock(mutex_);
    if (bytes_ + block.capacity > most_idle_bytes || blocks_.size() >= most_idle_blocks) return false;
    if (blocks_.capacity() == 0) blocks_.reserve(most_idle_blocks);
    blocks_.push_back(block);
    bytes_ += block.capacity;
    return true;
  }

  int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  IdleBlock remove(size_t i) {
    const IdleBlock block = blocks_[i];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
    bytes_ -= block.capacity;
    return block;
  }

  std::mutex mutex_;
  std::vector<IdleBlock> blocks_;  // the oldest first
  int64_t bytes_ = 0;
};

IdleBlocks& idle_blocks() {
  static IdleBlocks& blocks = *new IdleBlocks;  // never destroyed: a static tensor may be freed after us
  return blocks;
}

/// Frees at least `bytes` of idle memory, or all of it. One block at a time, because memory may be short
/// here.
void give_back_to_system(int64_t bytes) {
  while (bytes > 0) {
    const IdleBlock block = idle_blocks().take_oldest();
    if (block.data == nullptr) return;
    free_block(block.data, block.capacity);
    bytes -= block.capacity;
  }
}

}  // namespace

void* allocate_host(int64_t bytes) {
  const int64_t capacity = capacity_of(bytes);
  if (!keeps_blocks || bytes < smallest_kept) return fresh(capacity);
  if (void* data = idle_blocks().take(capacity)) return data;
  give_back_to_system(capacity);
  if (void* data = fresh(capacity)) return data;
  give_back_to_system(most_idle_bytes);
  return fresh(capacity);
}

void deallocate_host(void* data, int64_t bytes) noexcept {
  const int64_t capacity = capacity_of(bytes);
  if (keeps_blocks && bytes >= smallest_kept) {
    try {
      if (idle_blocks().keep({data, capacity})) return;
    } catch (const std::bad_alloc&) {  // no room for the list itself
    }
  }
  free_block(data, capacity);
}

int64_t idle_host_bytes() { return idle_blocks().bytes(); }

}  // namespace vox::detail
