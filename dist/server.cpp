#include <voxgrad/core/check.h>
#include <voxgrad/dist/control.h>
#include <voxgrad/dist/server.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace vox::dist {

std::string Message::text() const {
  std::string text;
  put(text, seconds);
  put(text, static_cast<uint32_t>(call.size()));
  return text + call + data;
}

Message Message::parse(std::string text) {
  Message message{};
  message.seconds = take<double>(text);
  const auto length = take<uint32_t>(text);
  message.call = text.substr(0, length);
  message.data = text.substr(length);
  return message;
}

std::string introduction(size_t rank, size_t size) { return str("voxgrad ", rank, " of ", size); }

void Server::run() noexcept try {
  if (accept_all()) {
    while (step()) {
    }
  }
  // Keeps each connection open until its rank has closed it: if a side closes a connection while it has
  // unread bytes, the last answer may be lost.
  for (const Peer& peer : peers_) peer.socket.shut_down(false);
  const auto deadline = after(seconds_);
  for (std::vector<size_t> ready; !(ready = Socket::wait(sockets(), deadline)).empty();) {
    for (const size_t rank : ready) {
      if (!peers_[rank].socket.receive()) peers_[rank].socket = Socket();
    }
    if (std::none_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.socket.is_open(); })) return;
  }
} catch (const std::exception& error) {  // no memory; the connections close, by which all ranks notice it
  std::fprintf(stderr, "voxgrad: rank 0, which coordinates the ranks, ends: %s\n", error.what());
}

/// Accepts a connection from every rank. False, after an answer to the others, if one is missing.
bool Server::accept_all() {
  const auto deadline = after(seconds_);
  for (size_t connected = 0; connected < peers_.size();) {
    if (Socket::wait({&listener_}, deadline).empty())
      return fail(str(those([](const Peer& p) { return !p.socket.is_open(); }), " did not connect within ",
                      seconds_, " s"));
    Socket socket = listener_.accept();
    std::optional<std::string> text;
    while (!Socket::wait({&socket}, std::min(deadline, after(1))).empty() && socket.receive() &&
           !(text = socket.take_text())) {
    }
    for (size_t rank = 0; rank < peers_.size(); ++rank) {
      if (text != introduction(rank, peers_.size()) || peers_[rank].socket.is_open()) continue;
      peers_[rank].socket = std::move(socket);
      ++connected;
      break;
    }
  }
  return true;
}

/// Takes the messages that have arrived, and answers if all ranks have sent one; else waits for more. False
/// after the last call or a failure.
bool Server::step() {
  for (Peer& peer : peers_) {
    if (peer.message) continue;
    if (auto text = peer.socket.take_text()) peer.message = Message::parse(std::move(*text));
    if (peer.message && deadline_ == Clock::time_point::max()) {
      seconds_ = peer.message->seconds;
      deadline_ = after(seconds_);
    }
  }
  if (std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.message; })) return answer();

  const std::vector<size_t> ready = Socket::wait(sockets(), deadline_);
  if (ready.empty())
    return fail(str(those([](const Peer& p) { return !p.message; }), " did not come to ", pending_call(),
                    " within ", seconds_, " s", last_call()));
  for (const size_t rank : ready) {
    Peer& peer = peers_[rank];
    if (peer.socket.receive()) continue;
    return fail(peer.message ? str("rank ", rank, " ended in call ", calls_ + 1, ", ", peer.message->call)
                             : str("rank ", rank, " ended before ", pending_call(), last_call()));
  }
  return true;
}

bool Server::answer() {
  const std::string call = peers_[0].message->call;
  std::string everything(1, agreed), calls;
  bool equal = true;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    const Message& message = *peers_[rank].message;
    equal = equal && message.call == call;
    calls += str(rank ? "; rank " : "rank ", rank, ": ", message.call);
    put(everything, static_cast<uint32_t>(message.data.size()));
    everything += message.data;
  }
  if (!equal) return fail(str("the ranks disagree about call ", calls_ + 1, ": ", calls));
  for (Peer& peer : peers_) {
    peer.message.reset();
    peer.socket.send(everything);
  }
  deadline_ = Clock::time_point::max();
  call_ = call;
  ++calls_;
  return call != Control::end;
}

bool Server::fail(const std::string& why) {
  for (const Peer& peer : peers_) peer.socket.send(failed + why);
  return false;
}

std::string Server::pending_call() const {
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].message)
      return str("call ", calls_ + 1, ", ", peers_[rank].message->call, " of rank ", rank);
  }
  return str("call ", calls_ + 1);
}

std::string Server::last_call() const {
  return calls_ == 0 ? "" : str("; the last call of all ranks was ", calls_, ", ", call_);
}

template <class F>
std::string Server::those(F condition) const {
  std::string list;
  int count = 0;
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    if (condition(peers_[rank])) list += str(count++ ? ", " : "", rank);
  }
  return str(count == 1 ? "rank " : "ranks ", list);
}

std::vector<const Socket*> Server::sockets() const {
  std::vector<const Socket*> all;
  for (const Peer& peer : peers_) all.push_back(&peer.socket);
  return all;
}

}  // namespace vox::dist
