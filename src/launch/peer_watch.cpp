#include "launch/peer_watch.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/whereabouts.h"
#include "launch/hold.h"
#include "launch/secret.h"

namespace espalier::launch {

std::string round_over_key(int64_t round) { return concat("launch/", round, "/over"); }

PeerWatch::PeerWatch(const RankEnvironment& place) {
  if (!place.launcher_store || place.world_size == 1) return;
  store_ = std::make_unique<RendezvousClient>(
      RendezvousClient::Options{place.master_address, place.master_port, job_secret(place.run_id)});
  sigset_t all, before;  // the rank's own threads handle signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, key = round_over_key(place.restart_count)] { watch(key); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PeerWatch::~PeerWatch() {
  if (!thread_.joinable()) return;
  is_over_ = true;
  store_->interrupt();
  thread_.join();
}

// It does once this watch is to end.
bool PeerWatch::leaves_in_time() const {
  lose_peers(true);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kSecondsToLeave);
  while (!is_over_ && !is_given_up() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return is_over_;
}

void PeerWatch::watch(const std::string& key) {
  while (true) {
    try {
      if (store_->get(key, std::chrono::minutes(10)) != kRoundFailed) return;
      if (may_be_held() && leaves_in_time()) return;
      log_line(LogLevel::kQuiet, "error: another rank has failed, so this one ends too");
      _exit(static_cast<int>(ExitCode::kLostPeer));
    } catch (const RendezvousTimeout&) {
      continue;  // all is well
    } catch (const UserError&) {
      return;  // interrupted, or the launcher is gone, which ends this process in another way
    }
  }
}

}  // namespace espalier::launch
