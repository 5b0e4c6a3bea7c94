#include "apps/launch/file_thread.h"

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace espalier {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(500);

}  // namespace

FileThread::FileThread(std::function<void()> look) {
  sigset_t all, before;  // signals are for the launcher's own thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([look = std::move(look), ends = ends_] {
    for (; !*ends; std::this_thread::sleep_for(kBetweenLooks)) look();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace espalier
