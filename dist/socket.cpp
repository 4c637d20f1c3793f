#include <voxgrad/dist/dist.h>
#include <voxgrad/dist/socket.h>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>

namespace vox::dist {

namespace {

std::string system_reason() { return std::generic_category().message(errno); }

void set_option(int handle, int level, int option) {
  const int on = 1;
  ::setsockopt(handle, level, option, &on, sizeof on);
}

/// How long connect() and send() may take; 0: for ever.
void set_send_timeout(int handle, std::chrono::microseconds time) {
  const timeval t{.tv_sec = time.count() / 1'000'000, .tv_usec = time.count() % 1'000'000};
  ::setsockopt(handle, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

}  // namespace

Socket::Socket(Socket&& other) noexcept { *this = std::move(other); }

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(received_, other.received_);
  return *this;
}

Socket::~Socket() {
  if (is_open()) ::close(handle_);
}

Socket Socket::listen(const std::string& host, int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_option(socket.handle_, SOL_SOCKET, SO_REUSEADDR);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(host == "127.0.0.1" || host == "localhost" ? INADDR_LOOPBACK : INADDR_ANY);
  const bool ok = ::bind(socket.handle_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                  ::listen(socket.handle_, SOMAXCONN) == 0;
  check<DistError>(ok, "init: rank 0 cannot listen on port ", port, ": ", system_reason());
  return socket;
}

Socket Socket::connect(const std::string& host, int port, double seconds) {
  const auto deadline = after(seconds);
  for (;;) {
    std::string why;
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (code == 0) {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      using std::chrono::microseconds;
      const auto left = std::chrono::ceil<microseconds>(deadline - Clock::now());
      set_send_timeout(socket.handle_, std::max(left, microseconds(1)));
      const bool ok = ::connect(socket.handle_, found->ai_addr, found->ai_addrlen) == 0;
      if (!ok) why = system_reason();
      set_send_timeout(socket.handle_, microseconds(0));
      ::freeaddrinfo(found);
      set_option(socket.handle_, IPPROTO_TCP, TCP_NODELAY);
      if (ok) return socket;
    } else {
      why = ::gai_strerror(code);
    }
    check<DistError>(Clock::now() < deadline, "init: rank 0 did not answer at ", host, ":", port, " within ",
                     seconds, " s: ", why);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 may not have started yet
  }
}

Socket Socket::accept() const {
  Socket socket(::accept4(handle_, nullptr, nullptr, SOCK_CLOEXEC));
  set_option(socket.handle_, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

int Socket::port() const {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ::getsockname(handle_, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

bool Socket::send(const std::string& text) const {
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += text;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(handle_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) return false;
    sent += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

bool Socket::receive() {
  char bytes[65536];
  ssize_t n = 0;
  do n = ::recv(handle_, bytes, sizeof bytes, 0);
  while (n < 0 && errno == EINTR);
  if (n > 0) received_.append(bytes, static_cast<size_t>(n));
  return n > 0;
}

std::optional<std::string> Socket::take_text() {
  uint32_t length = 0;
  if (received_.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, received_.data(), sizeof length);
  if (received_.size() - sizeof length < length) return std::nullopt;
  std::string text = received_.substr(sizeof length, length);
  received_.erase(0, sizeof length + length);
  return text;
}

void Socket::shut_down(bool both) const { ::shutdown(handle_, both ? SHUT_RDWR : SHUT_WR); }

std::vector<size_t> Socket::wait(const std::vector<const Socket*>& sockets, Clock::time_point deadline) {
  std::vector<pollfd> polled;
  for (const Socket* socket : sockets) polled.push_back({socket->handle_, POLLIN, 0});
  std::vector<size_t> ready;
  for (;;) {
    using std::chrono::milliseconds;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    // Waits an hour at most in one call, because poll() counts milliseconds in an int.
    const int count =
        ::poll(polled.data(), polled.size(),
               static_cast<int>(std::clamp(left, milliseconds(0), milliseconds(3'600'000)).count()));
    check<DistError>(count >= 0 || errno == EINTR, "poll() of ", polled.size(),
                     " sockets: ", system_reason());
    for (size_t i = 0; count > 0 && i < polled.size(); ++i) {
      if (polled[i].revents) ready.push_back(i);
    }
    if (!ready.empty() || (count == 0 && Clock::now() >= deadline)) return ready;
  }
}

}  // namespace vox::dist
