#pragma once

#include <cstdint>

namespace vox::detail {

/// 64-byte aligned memory for `bytes` > 0 on the host, or null if there is none. See Note [Host memory].
void* allocate_host(int64_t bytes);

/// Gives memory of allocate_host(bytes) back. Never throws.
void deallocate_host(void* data, int64_t bytes) noexcept;

/// What lies idle, waiting for the next request of its size.
int64_t idle_host_bytes();

}  // namespace vox::detail
