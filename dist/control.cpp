#include <voxgrad/dist/control.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/dist/server.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <system_error>

namespace vox::dist {

Control::Control(const Place& place, Socket listener, double seconds) {
  const int port = place.rank == 0 ? listener.port() : place.port;
  try {
    if (place.rank == 0) {
      auto server = std::make_shared<Server>(std::move(listener), place.size, seconds);
      server_ = std::thread([server] { server->run(); });
    }
    socket_ = Socket::connect(place.rank == 0 ? "127.0.0.1" : place.host, port, seconds);
    socket_.send(introduction(static_cast<size_t>(place.rank), static_cast<size_t>(place.size)));
    reader_ = std::thread([this, seconds] { read(seconds); });
  } catch (const std::exception& error) {
    if (server_.joinable()) server_.detach();  // it tells the other ranks that this one has ended
    if (dynamic_cast<const std::system_error*>(&error))
      throw DistError(str("init: the system does not start threads: ", error.what()));
    throw;
  }
}

Control::~Control() {
  socket_.shut_down(true);
  {
    const std::lock_guard lock(mutex_);
    noticed_ = true;
  }
  changed_.notify_all();
  reader_.join();
  if (server_.joinable()) server_.join();
}

std::vector<std::string> Control::agree(const std::string& call, const std::string& data, double seconds) {
  const std::lock_guard calling(calling_);
  check_failure();
  socket_.send(Message{seconds, call, data}.text());  // read() reports a closed connection
  std::unique_lock lock(mutex_);
  // After `seconds` the server answers with the rank that is missing. No answer a second later means that the
  // server itself is stuck.
  const bool answered =
      changed_.wait_until(lock, after(seconds + 1), [&] { return !answers_.empty() || !failure_.empty(); });
  if (!answered)
    failure_ = str("rank 0 did not answer in call ", calls_ + 1, ", ", call, ", within ", seconds, " s");
  if (answers_.empty()) throw_failure();
  std::string all = std::move(answers_.front());
  answers_.pop_front();
  ++calls_;
  lock.unlock();

  std::vector<std::string> each;
  while (!all.empty()) {
    const auto length = take<uint32_t>(all);
    each.push_back(all.substr(0, length));
    all.erase(0, length);
  }
  return each;
}

/// The thread that reads the server's answers. If the program does not notice a failure within `seconds`,
/// because it waits for a GPU or is stuck, this thread ends the process.
void Control::read(double seconds) {
  const auto failure = [&]() -> std::string {
    try {
      for (;;) {
        const bool open = socket_.receive();
        while (auto text = socket_.take_text()) {
          if (text->front() == failed) return text->substr(1);
          const std::lock_guard lock(mutex_);
          answers_.push_back(text->substr(1));
          changed_.notify_all();
        }
        if (!open) return "rank 0 ended";
      }
    } catch (const std::bad_alloc& error) {
      return error.what();  // short: needs no memory
    }
  };
  const std::string why = failure();
  std::unique_lock lock(mutex_);
  if (failure_.empty()) failure_ = why;
  changed_.notify_all();
  if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return noticed_; })) return;
  std::fprintf(stderr, "voxgrad: %s. This rank did not make another call for %g s, and ends.\n",
               failure_.c_str(), seconds);
  std::fflush(nullptr);
  ::_exit(EXIT_FAILURE);
}

void Control::throw_failure() {
  noticed_ = true;
  changed_.notify_all();
  throw DistError(failure_);
}

void Control::check_failure() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw_failure();
}

bool Control::has_thrown() {
  const std::lock_guard lock(mutex_);
  return noticed_;
}

}  // namespace vox::dist
