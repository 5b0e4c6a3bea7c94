#include "train/signals.h"

#include <signal.h>
#include <unistd.h>

namespace espalier::train {
namespace {

volatile sig_atomic_t received_signal = 0;
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};
struct sigaction previous[std::size(kSignals)];

void remember(int number) {
  if (number == SIGINT && received_signal == SIGINT) _exit(130);
  received_signal = number;
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (size_t index = 0; index < std::size(kSignals); ++index) sigaction(kSignals[index], &action, &previous[index]);
}

StopSignals::~StopSignals() {
  for (size_t index = 0; index < std::size(kSignals); ++index) sigaction(kSignals[index], &previous[index], nullptr);
}

std::optional<std::string> StopSignals::received() const {
  switch (received_signal) {
    case 0: return std::nullopt;
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    default: return "signal " + std::to_string(received_signal);
  }
}

}  // namespace espalier::train
