// init(), the end of the program, and how every collective runs.
#include <voxgrad/dist/engine.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

namespace vox::dist {

namespace {

World* the_world = nullptr;  // never deleted: threads of a rank that failed may still use it

double number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  check<DistError>(text != nullptr, "init: the environment has RANK, but no ", variable,
                   "; torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT");
  char* rest = nullptr;
  const double number = std::strtod(text, &rest);
  check<DistError>(rest != text && *rest == '\0' && number >= 0, "init: the environment variable ", variable,
                   " must be a number that is not negative, got '", text, "'");
  return number;
}

/// The place that torchrun's environment variables describe.
Place from_environment() {
  Place place;
  place.rank = static_cast<int>(number_of("RANK"));
  place.size = static_cast<int>(number_of("WORLD_SIZE"));
  place.local_rank = static_cast<int>(number_of("LOCAL_RANK"));
  place.port = static_cast<int>(number_of("MASTER_PORT"));
  check<DistError>(place.rank < place.size, "init: RANK must be below WORLD_SIZE, got ", place.rank, " and ",
                   place.size);
  const char* const host = std::getenv("MASTER_ADDR");
  check<DistError>(host != nullptr, "init: the environment has RANK, but no MASTER_ADDR");
  place.host = host;
  // torchrun sets this variable if it listens on MASTER_PORT itself. Then rank 0 takes the next port.
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent && std::string(agent) == "True") ++place.port;
  check<DistError>(place.port > 0 && place.port <= 65535, "init: MASTER_PORT must be a port, got ",
                   place.port);
  return place;
}

/// The last call of every program. If a rank ends early or after an error, the others end with a message that
/// names it.
void finish() {
  World& w = *the_world;
  const bool known = w.control && w.control->has_thrown();
  try {
    if (w.control) {
      w.control->check_failure();
      nccl::finish();
      w.control->agree(Control::end, "", w.timeout);
      w.control.reset();
    }
    if (w.has_mpi) mpi::finalize(w.timeout);
  } catch (const std::exception& error) {
    if (!known) std::fprintf(stderr, "voxgrad: rank %d ends: %s\n", w.place.rank, error.what());
    std::fflush(nullptr);
    ::_exit(EXIT_FAILURE);
  }
}

}  // namespace

void init(const InitOptions& options) {
  check<DistError>(!the_world, "init: may be called only once");
  auto w = std::make_unique<World>();
  w->timeout = options.timeout;
  if (w->timeout == 0)
    w->timeout = std::getenv("VOXGRAD_DIST_TIMEOUT") ? number_of("VOXGRAD_DIST_TIMEOUT") : 600;
  check<ValueError>(w->timeout > 0 && w->timeout <= 1e6,
                    "init: timeout must be above 0 and at most 1e6 seconds, got ", w->timeout);
  w->has_mpi = mpi::is_launcher();
  if (w->has_mpi)
    w->place = mpi::init(w->timeout);
  else if (std::getenv("RANK"))
    w->place = from_environment();
  if (w->place.size > 1) {
    Socket listener;
    if (w->place.rank == 0) listener = Socket::listen(w->place.host, w->place.port);
    if (w->has_mpi) w->place.port = mpi::from_rank_0(w->place.rank == 0 ? listener.port() : 0);
    w->control = std::make_unique<Control>(w->place, std::move(listener), w->timeout);
  }
  the_world = w.release();
  agree("init", "init");
  if (the_world->control || the_world->has_mpi) std::atexit(finish);
}

World& world(const char* function) {
  if (the_world) return *the_world;
  check<DistError>(!mpi::is_launcher() && !std::getenv("RANK"), function, ": call vox::dist::init() first");
  static World alone;
  return alone;
}

int rank() { return world("rank").place.rank; }
int size() { return world("size").place.size; }
int local_rank() { return world("local_rank").place.local_rank; }

std::vector<std::string> agree(const char* function, const std::string& call, const std::string& data) {
  World& w = world(function);
  if (!w.control) return {data};
  try {
    return w.control->agree(call, data, w.timeout);
  } catch (const DistError& error) {
    nccl::abort();
    throw DistError(str(function, ": ", error.what()));
  }
}

void barrier() { agree("barrier", "barrier"); }

bool any(bool value) {
  const std::vector<std::string> each = agree("any", "any", value ? "1" : "0");
  return std::find(each.begin(), each.end(), "1") != each.end();
}

Poll start(const char* function, const Collective& c, const std::string& purpose) {
  const bool cuda = c.input.device().is_cuda();
  check<DistError>(cuda || world(function).has_mpi || size() == 1, function,
                   ": got a tensor on the CPU, which needs MPI: start the program with mpirun");
  agree(function, purpose + c.description());
  if (!cuda) return mpi::start(c);
  nccl::start(c);
  return [] { return true; };
}

void wait(const Poll& done, const std::string& call) {
  World& w = *the_world;
  const auto began = Clock::now();
  while (!done()) {
    w.control->check_failure();
    // Sleeping would prolong a short wait; a long one must leave the core to other threads.
    if (Clock::now() - began < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (Clock::now() < began + std::chrono::duration<double>(w.timeout)) continue;
    // Ranks that wait for this collective arrive at this call. The others hold them up, and the server
    // names them.
    w.control->agree(str(call, ", which did not end within ", w.timeout, " s"), "", 1);
    throw DistError(str(call, ": did not end within ", w.timeout, " s on any rank"));
  }
}

Alarm::Alarm(std::string message, double seconds) try
    : thread_([this, message = std::move(message), seconds] {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; })) return;
        std::fprintf(stderr, "voxgrad: %s within %g s\n", message.c_str(), seconds);
        std::fflush(nullptr);
        ::_exit(EXIT_FAILURE);
      }) {
} catch (const std::system_error& error) {
  throw DistError(str("init: the system does not start threads: ", error.what()));
}

Alarm::~Alarm() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace vox::dist
