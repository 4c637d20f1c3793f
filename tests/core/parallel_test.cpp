#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

namespace vox {
namespace {

/// Restores the number of threads after a test.
class Parallel : public ::testing::Test {
 protected:
  ~Parallel() override { set_num_threads(before_); }

 private:
  int before_ = get_num_threads();
};

using Chunks = std::set<std::pair<int64_t, int64_t>>;

Chunks chunks_of(int64_t n, int64_t grain) {
  std::mutex mutex;
  Chunks chunks;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(chunks.emplace(begin, end).second);
  });
  return chunks;
}

TEST_F(Parallel, PartitionDependsOnLengthAndGrainOnly) {
  const Chunks expected{{0, 3}, {3, 6}, {6, 9}, {9, 10}};
  for (int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    EXPECT_EQ(get_num_threads(), threads);
    EXPECT_EQ(chunks_of(10, 3), expected);
    EXPECT_EQ(chunks_of(9, 3), (Chunks{{0, 3}, {3, 6}, {6, 9}}));
    EXPECT_EQ(chunks_of(3, 3), (Chunks{{0, 3}}));
    EXPECT_EQ(chunks_of(2, 3), (Chunks{{0, 2}}));
    EXPECT_EQ(chunks_of(0, 3), Chunks{});
    EXPECT_EQ(chunks_of(5, INT64_MAX), (Chunks{{0, 5}}));
  }
}

TEST_F(Parallel, NestedCallsHaveTheSamePartition) {
  set_num_threads(4);
  std::mutex mutex;
  std::multiset<std::pair<int64_t, int64_t>> inner;
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const auto outer_thread = std::this_thread::get_id();
    parallel_for(5, 2, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), outer_thread);
      const std::lock_guard lock(mutex);
      inner.emplace(begin, end);
    });
  });
  EXPECT_EQ(inner.size(), 24u);
  for (const auto& chunk : {std::pair<int64_t, int64_t>{0, 2}, {2, 4}, {4, 5}})
    EXPECT_EQ(inner.count(chunk), 8u);
}

TEST_F(Parallel, WritesOfHelpersAreSeenByTheCaller) {
  set_num_threads(4);
  Ints values(10'007);
  for (int round = 1; round <= 50; ++round) {
    parallel_for(std::ssize(values), 101, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
  }
  for (int64_t i = 0; i < std::ssize(values); ++i) ASSERT_EQ(values[static_cast<size_t>(i)], 50 * i);
}

TEST_F(Parallel, HelpersDoHelp) {
  set_num_threads(2);
  // Each of the two chunks waits until the other has begun: one thread alone would never finish.
  std::atomic<int> begun{0};
  parallel_for(2, 1, [&](int64_t, int64_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 2);
}

TEST_F(Parallel, ThreadsThatSleepAreWoken) {
  set_num_threads(4);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the workers fall asleep
    std::atomic<int> begun{0};
    parallel_for(4, 1, [&](int64_t begin, int64_t) {
      ++begun;
      while (begun < 4) std::this_thread::yield();
      // The caller has the first chunk, or another one; it falls asleep until the last one is done.
      std::this_thread::sleep_for(std::chrono::milliseconds(begin));
    });
    EXPECT_EQ(begun, 4);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    begun = 0;
    parallel_for(2, 1, [&](int64_t, int64_t) {  // one helper is enough; the others sleep on
      ++begun;
      while (begun < 2) std::this_thread::yield();
    });
    EXPECT_EQ(begun, 2);
  }
}

TEST_F(Parallel, TheLowestFailingChunkIsTheOneReported) {
  for (int threads : {1, 4}) {
    set_num_threads(threads);
    for (int round = 0; round < 100; ++round) {
      std::atomic<int> ran{0};
      const auto throws = [&](int64_t begin, int64_t) {
        ++ran;
        if (begin >= 7 && begin % 2 == 1) throw ValueError(str(begin));
      };
      EXPECT_MESSAGE(ValueError, parallel_for(100, 1, throws), "7");
      EXPECT_GE(ran, 8);
    }
    EXPECT_EQ(chunks_of(4, 2).size(), 2u) << "the next call works";
  }
}

TEST_F(Parallel, ExceptionsOfNestedCallsAndOfSingleChunksArrive) {
  set_num_threads(3);
  EXPECT_ERRORS(ShapeError,
                parallel_for(9, 1,
                             [](int64_t, int64_t) {
                               parallel_for(4, 1, [](int64_t, int64_t) { throw ShapeError("inner"); });
                             }),
                parallel_for(1, 1, [](int64_t, int64_t) { throw ShapeError("single"); }));
  // The thread is no longer marked as being inside a call.
  EXPECT_NO_THROW(set_num_threads(2));
}

TEST_F(Parallel, SeveralUserThreadsAtOnce) {
  set_num_threads(3);
  std::vector<std::thread> users;
  std::atomic<int64_t> total{0};
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&] {
      for (int round = 0; round < 100; ++round)
        parallel_for(1000, 10, [&](int64_t begin, int64_t end) { total += end - begin; });
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(total, 4 * 100 * 1000);
}

TEST_F(Parallel, ALaterExceptionOfAHigherChunkIsDropped) {
  set_num_threads(2);
  std::atomic<bool> higher_runs{false};
  const auto throws = [&](int64_t begin, int64_t) {
    if (begin == 1) {
      higher_runs = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // chunk 0 fails meanwhile
    }
    while (!higher_runs) std::this_thread::yield();
    throw ValueError(str(begin));
  };
  EXPECT_MESSAGE(ValueError, parallel_for(2, 1, throws), "0");
}

TEST_F(Parallel, ThreadsChangeWhileOthersCompute) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> wrong{0};
  std::thread user([&] {
    while (!stop) {
      std::atomic<int64_t> sum{0};
      parallel_for(100, 3, [&](int64_t begin, int64_t end) { sum += end - begin; });
      if (sum != 100) ++wrong;
    }
  });
  for (int i = 0; i < 50; ++i) set_num_threads(1 + i % 4);
  stop = true;
  user.join();
  EXPECT_EQ(wrong, 0);
}

#if !defined(__SANITIZE_THREAD__)  // it forbids threads in a child of a process with threads
TEST_F(Parallel, AForkedChildHasItsOwnThreads) {
  set_num_threads(3);
  const auto sum_up_to = [](int64_t n) {
    std::atomic<int64_t> sum = 0;
    parallel_for(n, 1, [&](int64_t begin, int64_t) { sum += begin; });
    return sum.load();
  };
  ASSERT_EQ(sum_up_to(100), 4950);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // ends a child that waits for threads of its parent
    std::atomic<int> running{0};
    parallel_for(2, 1, [&](int64_t, int64_t) {
      ++running;
      while (running < 2) std::this_thread::yield();  // for the other chunk, on a thread of the child
    });
    bool right = sum_up_to(100) == 4950;
    for (const int threads : {1, 4}) {
      set_num_threads(threads);
      right = right && sum_up_to(100) == 4950;
    }
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(sum_up_to(100), 4950);
}
#endif

TEST_F(Parallel, RefusesBadArguments) {
  const auto nothing = [](int64_t, int64_t) {};
  EXPECT_ERRORS(ValueError, parallel_for(-1, 1, nothing), parallel_for(1, 0, nothing),
                parallel_for(0, -1, nothing));
  for (int threads : {0, -1, 1025}) EXPECT_THROW(set_num_threads(threads), ValueError);
  set_num_threads(2);
  EXPECT_THROW(parallel_for(4, 1, [](int64_t, int64_t) { set_num_threads(3); }), ValueError);
  EXPECT_EQ(get_num_threads(), 2);
  parallel_for(1, 1, [](int64_t, int64_t) { set_num_threads(3); });  // a single chunk is a plain call
  EXPECT_EQ(get_num_threads(), 3);
}

// The environment is read once per process, so each value needs a new process.
class ParallelEnvironmentDeathTest : public ::testing::Test {
 protected:
  static void report(const char* value) {
    setenv("VOXGRAD_NUM_THREADS", value, 1);
    try {
      std::fprintf(stderr, "threads=%d\n", get_num_threads());
    } catch (const ValueError& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    std::exit(0);
  }
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ParallelEnvironmentDeathTest, SetsTheNumberOfThreads) {
  EXPECT_EXIT(report("3"), ::testing::ExitedWithCode(0), "threads=3");
  EXPECT_EXIT(report("1024"), ::testing::ExitedWithCode(0), "threads=1024");
}

TEST_F(ParallelEnvironmentDeathTest, ABadValueIsAnError) {
  for (const char* value : {"", "0", "-2", "two", "3x", "1025", "99999999999999999999"})
    EXPECT_EXIT(report(value), ::testing::ExitedWithCode(0), "must be a whole number from 1 to 1024")
        << value;
}

// The limit on memory lasts for the rest of the process, so this test needs one of its own.
TEST(ParallelDeathTest, ThreadsThatDoNotStartAreAnErrorAndFewerStillWork) {
  if (!can_limit_memory) GTEST_SKIP() << "memory cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto asking_for_too_many = [] {
    limit_memory(int64_t{256} << 20);  // the stacks of 1023 threads take 2 GiB or more
    set_num_threads(1024);
    std::atomic<int> ran{0};
    for (int round = 0; round < 2; ++round) {
      try {
        parallel_for(8, 1, [&](int64_t, int64_t) { ++ran; });
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    }
    set_num_threads(2);
    parallel_for(2, 1, [&](int64_t, int64_t) {  // as in HelpersDoHelp
      ++ran;
      while (ran < 2) std::this_thread::yield();
    });
    std::exit(ran == 2 ? 0 : 1);
  };
  const char* message = "parallel_for: the system does not start 1024 threads: ";
  EXPECT_EXIT(asking_for_too_many(), ::testing::ExitedWithCode(0), str(message, ".*\n", message));
}

}  // namespace
}  // namespace vox
