// A model whose weights several processes hold in parts, as one model of the engine.
//
// The first process has the requests, the scheduler and the answers. It tells the others each pass before it makes its
// own part of it, and they compute theirs: they know of no requests, so the processes cannot come to differ.
//
//   if (ranks.rank() > 0) return follow(decoder, type, ranks, stopped);
//   Leader leader(ranks);
//   LeadingModel model(leader, decoder, type, config);   // then as any other
//
// While nothing is asked a pulse goes round, so that no exchange runs into its time limit however long that takes, the
// first process learns that another is gone or was told to stop, and nobody computes meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/group.h"
#include "infer/engine/decoder_model.h"

namespace espalier::infer {

// Of the first process, as long as others follow. Exchanges go by `ranks` while it lives, and by nothing else.
class Leader {
 public:
  explicit Leader(const dist::Group& ranks, std::chrono::milliseconds pulse = std::chrono::seconds(5));
  // Lets the others go.
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  // Makes all others do what `words` say while this process does `own`. What is thrown means that they are lost.
  void together(const std::vector<int64_t>& words, const std::function<void()>& own);

  // Whether another process was told to stop.
  bool is_to_stop() const { return is_to_stop_; }
  // Why no other process will answer any more; empty while all is well.
  std::string trouble() const;

  const dist::Group& ranks() const { return ranks_; }
  int64_t new_number() { return ++last_number_; }

 private:
  void pulse_until_end(std::chrono::milliseconds pulse);
  void exchange(const std::vector<int64_t>& words, const std::function<void()>& own);

  const dist::Group& ranks_;
  int64_t last_number_ = 0;
  std::mutex mutex_;  // of exchanges
  std::condition_variable ending_;
  std::chrono::steady_clock::time_point last_exchange_;
  bool ends_ = false;
  std::atomic<bool> is_to_stop_{false};
  mutable std::mutex trouble_mutex_;
  std::string trouble_;
  std::thread thread_;
};

class LeadingModel final : public BatchModel {
 public:
  // As DecoderModel's; `leader` outlives it.
  LeadingModel(Leader& leader, const models::Decoder& model, const Weights& weights, const DecoderModelConfig& config);
  ~LeadingModel() override;
  LeadingModel(const LeadingModel&) = delete;
  LeadingModel& operator=(const LeadingModel&) = delete;

  BatchModelShape shape() const override { return own_.shape(); }
  void forward(std::span<const TokenRun> runs, float* logits) override;
  int32_t encode(std::span<const int32_t> ids) override;
  void release(int32_t encoded) override;

 private:
  Leader& leader_;
  int64_t number_;
  DecoderModel own_;
};

// The other processes' part: returns when the first one lets go. `stopped`: whether this process was told to stop.
void follow(const models::Decoder& model, const Weights& weights, const dist::Group& ranks,
            const std::function<bool()>& stopped);

}  // namespace espalier::infer
