// What all routes of a server share: the model behind it, its limits, and the places at which requests are worked on.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "infer/engine/engine.h"
#include "serve/api_error.h"
#include "serve/metrics.h"
#include "text/tokenizer.h"

namespace espalier::serve {

// The text of a conversation, as the template of the tokenizer puts it; a UserError says what the template refuses.
using RenderChat = std::function<std::string(const nlohmann::ordered_json& messages, bool add_generation_prompt)>;

struct FoundPassage {
  int64_t id = 0;
  std::string title, text;
  double score = 0;
};
// At most `count`, the best first. Called by one thread at a time.
using FindPassages = std::function<std::vector<FoundPassage>(const std::string& question, int64_t count)>;

// What a text begins and ends with where an encoder reads the prompt.
struct TextEnds {
  int32_t begin = 0, end = 0;
};

struct DeskOptions {
  std::string model_name;         // under which clients know it
  std::string fingerprint;        // of what answers: version and step
  int64_t created = 0;            // seconds since 1970
  int64_t max_texts = 16 + 1024;  // that are made or wait: 429
  int64_t max_prompt_tokens = 0;  // 0: as many as the model takes
  std::chrono::milliseconds request_limit{600'000};
  std::string api_key;                     // empty: none is asked for
  RenderChat render_chat = nullptr;        // null: the tokenizer has no template
  FindPassages find_passages = nullptr;    // null: there are none to search in
  int64_t max_passages = 100;              // for a question
  std::optional<TextEnds> text_ends = {};  // of a model whose encoder reads the prompts
  std::string beside = {};                 // name of the model whose routes are below /beside/; empty: there is none
};

class Desk {
 public:
  // Both outlive it.
  Desk(infer::Engine& engine, const text::Tokenizer& tokenizer, DeskOptions options);
  ~Desk();
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;

  // Places for `count` texts, or an ApiError; leave() gives them back.
  void enter(int64_t count);
  void leave(int64_t count) { num_texts_ -= count; }
  int64_t num_texts() const { return num_texts_; }

  // What works on a request lives until it is let go of, or as long as the desk.
  void keep(const std::shared_ptr<void>& work);
  void let_go(const std::shared_ptr<void>& work);

  // From now on whoever comes is sent away.
  void drain() { is_draining_ = true; }
  bool is_draining() const { return is_draining_; }

  std::vector<int32_t> stop_ids() const;  // with which the model ends a text
  bool has_encoder() const { return options.text_ends.has_value(); }
  // The ids of a prompt's text. To an encoder <extra_id_N> are the tokens of that name.
  std::vector<int32_t> encode_prompt(const std::string& text) const;
  // The ids of a prompt, to whoever reads it.
  void give_prompt(infer::Request& request, std::vector<int32_t> ids) const;
  // Tokens that a prompt may have besides one that is drawn; 0: any number.
  int64_t max_context() const;
  // ApiError where the prompt and what is to come are longer than the model or the limits allow.
  void check_length(const infer::Request& request) const;
  // ApiError where `name` is given and is not the model's.
  void check_model(const std::string& name) const;
  uint64_t new_seed();
  std::string new_id(const std::string& prefix);

  infer::Engine& engine;
  const text::Tokenizer& tokenizer;
  const DeskOptions options;
  Metrics metrics;
  boost::asio::thread_pool pool{2};         // reads and writes what clients say
  boost::asio::thread_pool search_pool{1};  // searches passages, one question after another

 private:
  void check_encoder_length(int64_t size, int64_t max_tokens) const;

  std::atomic<int64_t> num_texts_{0};
  std::atomic<bool> is_draining_{false};
  std::atomic<uint64_t> last_id_{0};
  uint64_t random_ = 0;
  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<void>> kept_;
};

}  // namespace espalier::serve
