#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <voxgrad/dist/socket.h>

// Note [Agreement]
//
// MPI and NCCL hang, or write beyond their buffers, if the ranks do not all make the same call: if one has
// ended, is stuck, or passes another shape. So the ranks agree before elements move. Each sends a description
// of its call to rank 0 over TCP, where a thread waits until it has one from every rank, compares them, and
// answers all:
//
//     rank 1                               server, a thread of rank 0          rank 0
//       |   all_reduce(sum) of f32 (3,) ->   |                                   |
//       |                                    |   <- all_reduce(sum) of f32 (3,)  |
//       |                        <- agreed   |   agreed ->                       |
//     elements move                                                            elements move
//
// The first failure that the server sees is the one that all ranks report: a connection that closes (the rank
// has ended), descriptions that differ, or a description that is missing at the end of the timeout. The end
// of a program is such a call too, so a rank that returns from main() early is detected as well.

namespace vox::dist {

/// The rank of a process, the number of ranks, and the address of rank 0.
struct Place {
  int rank = 0, size = 1;
  int local_rank = 0;              // 0, 1, ... among the ranks of this machine
  std::string host = "127.0.0.1";  // where rank 0 listens
  int port = 0;
};

/// The connection of one rank to the others (Note [Agreement]).
class Control {
 public:
  /// The call with which every program ends.
  static constexpr const char* end = "the end of the program";

  /// Connects all ranks. Rank 0 passes a listening socket. Throws DistError if a rank is missing after
  /// `seconds`.
  Control(const Place& place, Socket listener, double seconds);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// Waits until every rank has made the same `call`, and returns the `data` of each. Throws DistError,
  /// naming a rank and its call, if one has ended, makes another call, or makes none within `seconds` of the
  /// first rank's call.
  std::vector<std::string> agree(const std::string& call, const std::string& data, double seconds);

  /// Throws DistError if this or another rank has failed.
  void check_failure();
  /// Whether this object has thrown a DistError.
  bool has_thrown();

  int64_t calls() const { return calls_; }  ///< number of calls that all ranks have agreed on

 private:
  void read(double seconds);
  [[noreturn]] void throw_failure();

  Socket socket_;
  std::mutex calling_;  // one thread of the program calls at a time
  int64_t calls_ = 0;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::string> answers_;
  std::string failure_;
  bool noticed_ = false;  // whether the failure was thrown, or this object is being destroyed

  std::thread server_, reader_;
};

}  // namespace vox::dist
