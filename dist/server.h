#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <voxgrad/dist/socket.h>

namespace vox::dist {

/// Appends the bytes of a number, or takes them off the front.
template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
T take(std::string& from) {
  T value{};
  std::memcpy(&value, from.data(), sizeof value);
  from.erase(0, sizeof value);
  return value;
}

/// What a rank sends to the server.
struct Message {
  double seconds;  // how long the rank waits for the others
  std::string call, data;

  std::string text() const;
  static Message parse(std::string text);
};

/// The first letter of the server's answers: the data of all ranks follows, or the reason of the failure.
inline constexpr char agreed = 'a', failed = 'f';

/// The first text that a rank sends. It distinguishes ranks from other programs that connect by mistake.
std::string introduction(size_t rank, size_t size);

/// The thread that answers all ranks (Note [Agreement] in control.h).
class Server {
 public:
  Server(Socket listener, int size, double seconds)
      : listener_(std::move(listener)), peers_(static_cast<size_t>(size)), seconds_(seconds) {}
  void run() noexcept;

 private:
  struct Peer {
    Socket socket;
    std::optional<Message> message;  // the call in which it waits
  };

  bool accept_all();
  bool step();
  bool answer();
  bool fail(const std::string& why);

  /// "call 7, barrier of rank 0", "rank 1" or "ranks 1, 3"; and the last call that succeeded.
  std::string pending_call() const;
  std::string last_call() const;
  template <class F>
  std::string those(F condition) const;
  std::vector<const Socket*> sockets() const;

  Socket listener_;
  std::vector<Peer> peers_;
  double seconds_;
  Clock::time_point deadline_ = Clock::time_point::max();  // of the pending call
  int64_t calls_ = 0;
  std::string call_;  // the last that succeeded
};

}  // namespace vox::dist
