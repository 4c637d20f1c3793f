#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace vox::dist {

using Clock = std::chrono::steady_clock;

inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// A TCP connection that carries texts, or a socket that listens for one. Closed with this object.
class Socket {
 public:
  Socket() = default;
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  /// Listens on `port` of this machine, or on a free port if it is 0: for its own processes if `host` is the
  /// loopback address, else for all machines. Throws DistError.
  static Socket listen(const std::string& host, int port);
  /// Tries until it succeeds. Throws DistError after `seconds`.
  static Socket connect(const std::string& host, int port, double seconds);
  /// The next connection to a listening socket. A closed Socket if there is none any more.
  Socket accept() const;

  bool is_open() const { return handle_ >= 0; }
  int port() const;

  /// Throws nothing: false if the other side has closed the connection.
  bool send(const std::string& text) const;
  /// Waits for bytes, and keeps them for take_text(). False if the other side has closed the connection.
  bool receive();
  /// The next text, if it has arrived.
  std::optional<std::string> take_text();
  /// Tells the other side that nothing more will be sent. With `both`, receive() returns false, even in a
  /// thread that already waits in it.
  void shut_down(bool both) const;

  /// Waits until some of `sockets` have something to receive or accept, or were closed by the other side, and
  /// returns their indices; none after the deadline. Sockets that are closed on this side are ignored.
  static std::vector<size_t> wait(const std::vector<const Socket*>& sockets, Clock::time_point deadline);

 private:
  explicit Socket(int handle) : handle_(handle) {}

  int handle_ = -1;
  std::string received_;
};

}  // namespace vox::dist
