#pragma once

#include <cstdint>

/// 1 under AddressSanitizer, which must see every block freed. GCC defines a macro, Clang has a feature.
#if defined(__SANITIZE_ADDRESS__)
#define VOX_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VOX_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef VOX_ADDRESS_SANITIZER
#define VOX_ADDRESS_SANITIZER 0
#endif

namespace vox::detail {

/// 64-byte aligned memory for `bytes` > 0 on the host, or null if there is none. The process keeps up to 1
/// GiB of freed blocks of at least 64 KiB for later requests, see Note [Host memory].
void* allocate_host(int64_t bytes);

/// Frees memory that allocate_host(bytes) returned. Never throws.
void deallocate_host(void* data, int64_t bytes) noexcept;

/// Bytes that are kept for later requests.
int64_t idle_host_bytes();

}  // namespace vox::detail
