#include "infer/engine/leading_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace espalier::infer {
namespace {

using Words = std::vector<int64_t>;
using Clock = std::chrono::steady_clock;

enum class Task : int64_t { kPulse, kEnd, kNewModel, kDropModel, kForward, kEncode, kRelease };

// A first message of this many words; what does not fit comes in a second one.
constexpr int64_t kFirstWords = 512;

at::Tensor tensor_of(const int64_t* words, int64_t count, int64_t size) {
  const at::Tensor tensor = at::zeros({size}, at::kLong);
  std::copy_n(words, count, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

void send(const Words& words, const dist::Group& ranks) {
  Words message = {static_cast<int64_t>(words.size())};
  message.insert(message.end(), words.begin(), words.end());
  const auto size = static_cast<int64_t>(message.size()), first = std::min(size, kFirstWords);
  ranks.broadcast(tensor_of(message.data(), first, kFirstWords), 0);
  if (size > first) ranks.broadcast(tensor_of(message.data() + first, size - first, size - first), 0);
}

Words receive(const dist::Group& ranks) {
  const at::Tensor first = at::empty({kFirstWords}, at::kLong);
  ranks.broadcast(first, 0);
  const int64_t* const begin = first.const_data_ptr<int64_t>();
  const int64_t size = begin[0], here = std::min(size, kFirstWords - 1);
  Words words(begin + 1, begin + 1 + here);
  if (size == here) return words;
  const at::Tensor rest = at::empty({size - here}, at::kLong);
  ranks.broadcast(rest, 0);
  words.insert(words.end(), rest.const_data_ptr<int64_t>(), rest.const_data_ptr<int64_t>() + rest.numel());
  return words;
}

// Takes words in the order in which they were put.
class Reader {
 public:
  explicit Reader(const Words& words) : words_(words) {}
  int64_t next() { return words_.at(place_++); }
  std::vector<int32_t> list() {
    std::vector<int32_t> result(static_cast<size_t>(next()));
    for (int32_t& value : result) value = static_cast<int32_t>(next());
    return result;
  }

 private:
  const Words& words_;
  size_t place_ = 0;
};

Words task(Task what, int64_t model) { return {static_cast<int64_t>(what), model}; }

void put(Words& words, std::span<const int32_t> list) {
  words.push_back(static_cast<int64_t>(list.size()));
  words.insert(words.end(), list.begin(), list.end());
}

void put(Words& words, const TokenRun& run) {
  words.insert(words.end(),
               {run.first_position, run.num_logits, run.whole ? 1 : 0, run.is_long ? 1 : 0, int64_t{run.encoded}});
  put(words, run.ids);
  put(words, run.pages);
}

// With what it refers to.
struct ReceivedRun {
  std::vector<int32_t> ids, pages;
  TokenRun run;

  explicit ReceivedRun(Reader& words) {
    run.first_position = words.next();
    run.num_logits = words.next();
    run.whole = words.next() != 0;
    run.is_long = words.next() != 0;
    run.encoded = static_cast<int32_t>(words.next());
    ids = words.list();
    pages = words.list();
  }
  TokenRun whole_run() const {
    TokenRun whole = run;
    whole.ids = ids;
    whole.pages = pages;
    return whole;
  }
};

void run_received(DecoderModel& model, Reader& words, std::vector<float>& logits) {
  std::vector<ReceivedRun> received;
  const int64_t count = words.next();
  for (int64_t i = 0; i < count; ++i) received.emplace_back(words);
  std::vector<TokenRun> runs;
  int64_t rows = 0;
  for (const ReceivedRun& one : received) {
    runs.push_back(one.whole_run());
    rows += one.run.num_logits;
  }
  logits.resize(static_cast<size_t>(rows * model.shape().vocab_size));
  model.forward(runs, logits.data());
}

}  // namespace

Leader::Leader(const dist::Group& ranks, std::chrono::milliseconds pulse)
    : ranks_(ranks), last_exchange_(Clock::now()) {
  ESPALIER_CHECK(ranks.size() > 1 && ranks.rank() == 0, "rank ", ranks.rank(), " of ", ranks.size(), " leads");
  thread_ = std::thread([this, pulse] { pulse_until_end(pulse); });
}

Leader::~Leader() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  thread_.join();
  if (!trouble().empty()) return;
  try {
    send(task(Task::kEnd, 0), ranks_);
    ranks_.barrier();                // nobody's connections close under another
  } catch (const std::exception&) {  // they are gone already
  }
}

void Leader::together(const Words& words, const std::function<void()>& own) {
  const std::lock_guard lock(mutex_);
  if (const std::string lost = trouble(); !lost.empty()) throw UserError(lost, ExitCode::kLostPeer);
  exchange(words, own);
}

void Leader::exchange(const Words& words, const std::function<void()>& own) {
  try {
    send(words, ranks_);
    own();
    last_exchange_ = Clock::now();
  } catch (const std::exception& error) {
    const std::lock_guard lock(trouble_mutex_);
    trouble_ = error.what();
    throw;
  }
}

std::string Leader::trouble() const {
  const std::lock_guard lock(trouble_mutex_);
  return trouble_;
}

void Leader::pulse_until_end(std::chrono::milliseconds pulse) {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_until(lock, last_exchange_ + pulse, [&] { return ends_; })) {
    if (Clock::now() < last_exchange_ + pulse) continue;
    try {
      exchange(task(Task::kPulse, 0), [&] {
        if (ranks_.any(false)) is_to_stop_ = true;
      });
    } catch (const std::exception&) {
      return;  // trouble() has it
    }
  }
}

LeadingModel::LeadingModel(Leader& leader, const models::Decoder& model, const Weights& weights,
                           const DecoderModelConfig& config)
    : leader_(leader), number_(leader.new_number()), own_(model, weights, config, leader.ranks()) {
  Words words = task(Task::kNewModel, number_);
  words.insert(words.end(), {config.page_tokens, config.num_pages, config.max_positions});
  leader_.together(words, [] {});
}

LeadingModel::~LeadingModel() {
  try {
    if (leader_.trouble().empty()) leader_.together(task(Task::kDropModel, number_), [] {});
  } catch (const std::exception&) {  // trouble() has it
  }
}

void LeadingModel::forward(std::span<const TokenRun> runs, float* logits) {
  Words words = task(Task::kForward, number_);
  words.push_back(static_cast<int64_t>(runs.size()));
  for (const TokenRun& run : runs) put(words, run);
  leader_.together(words, [&] { own_.forward(runs, logits); });
}

int32_t LeadingModel::encode(std::span<const int32_t> ids) {
  Words words = task(Task::kEncode, number_);
  put(words, ids);
  int32_t encoded = 0;
  leader_.together(words, [&] { encoded = own_.encode(ids); });
  return encoded;
}

void LeadingModel::release(int32_t encoded) {
  Words words = task(Task::kRelease, number_);
  words.push_back(encoded);
  try {
    leader_.together(words, [&] { own_.release(encoded); });
  } catch (const std::exception&) {  // an engine that ends lets go of all it has; trouble() has it
  }
}

void follow(const models::Decoder& model, const Weights& weights, const dist::Group& ranks,
            const std::function<bool()>& stopped) {
  ESPALIER_CHECK(ranks.rank() > 0, "the first of ", ranks.size(), " ranks follows");
  std::map<int64_t, DecoderModel> models;
  std::vector<float> logits;
  while (true) {
    const Words message = receive(ranks);
    Reader words(message);
    const auto what = static_cast<Task>(words.next());
    const int64_t number = words.next();
    switch (what) {
      case Task::kPulse: ranks.any(stopped && stopped()); break;
      case Task::kEnd: ranks.barrier(); return;
      case Task::kNewModel: {
        DecoderModelConfig config;
        config.page_tokens = words.next();
        config.num_pages = words.next();
        config.max_positions = words.next();
        models.try_emplace(number, model, weights, config, ranks);
        break;
      }
      case Task::kDropModel: models.erase(number); break;
      case Task::kForward: run_received(models.at(number), words, logits); break;
      case Task::kEncode: models.at(number).encode(words.list()); break;
      case Task::kRelease: models.at(number).release(static_cast<int32_t>(words.next())); break;
    }
  }
}

}  // namespace espalier::infer
