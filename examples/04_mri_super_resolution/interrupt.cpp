#include "interrupt.h"

#include <csignal>
#include <initializer_list>

namespace mri {
namespace {

volatile std::sig_atomic_t signalled = 0;

extern "C" void remember_signal(int) { signalled = 1; }

}  // namespace

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    action.sa_handler = remember_signal;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the next one takes the default way
    sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return signalled != 0; }

}  // namespace mri
