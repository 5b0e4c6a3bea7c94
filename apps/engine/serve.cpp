#include "apps/engine/serve.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>

#include "apps/engine/neighbors.h"
#include "apps/engine/ranks.h"
#include "apps/engine/serve_passages.h"
#include "apps/options/serve_options.h"
#include "base/log.h"
#include "base/stop_signals.h"
#include "base/version.h"
#include "base/whereabouts.h"
#include "dist/rendezvous.h"
#include "infer/engine/decoder_model.h"
#include "infer/load_model.h"
#include "serve/engine_thread.h"
#include "serve/service.h"
#include "text/chat_template.h"
#include "text/chat_tokenizer.h"

namespace espalier {
namespace {

constexpr int64_t kServedPageTokens = 64;
// A pass with so many of a prompt takes two to three times as long as one of a few texts alone; one that reads the
// layers from the disk takes as long with any number.
constexpr int64_t kPromptTokensBesideTexts = 64;
constexpr int64_t kUsualContext = 2048;  // of a model of any length that does not say what it was trained with

infer::DecoderModelConfig sized_for_serving(const infer::LoadedModel& loaded, const ServeOptions& options) {
  const models::DecoderShape shape = loaded.model->decoder_shape();
  const int64_t trained = loaded.config.data.sequence_length;
  const int64_t learned = shape.max_positions > 0 ? shape.max_positions : trained > 0 ? trained : kUsualContext;
  const int64_t context = options.max_context.value_or(learned);
  if (shape.max_positions > 0 && context > shape.max_positions)
    throw UserError(concat("--max-context ", context, " is more than the ", shape.max_positions,
                           " positions that the model has learned"),
                    ExitCode::kUsage);
  const int64_t bytes = infer::page_bytes(shape, loaded.weights(), kServedPageTokens);
  const int64_t of_a_text = (context + kServedPageTokens - 1) / kServedPageTokens;
  return {.page_tokens = kServedPageTokens,
          .num_pages = std::max(of_a_text,
                                std::min((options.kv_cache_megabytes << 20) / bytes, of_a_text * options.max_running)),
          .max_positions = context};
}

// Of --chat-template, else of the tokenizer; null where neither has one.
serve::RenderChat chat_renderer(const text::Tokenizer& tokenizer, const ServeOptions& options) {
  const bool is_given = !options.chat_template.empty();
  const std::string source = is_given ? options.chat_template_text : tokenizer.chat_template();
  if (source.empty()) return nullptr;
  try {
    const auto chat = std::make_shared<const text::ChatTemplate>(
        source, is_given ? options.chat_template : text::chat_template_origin(tokenizer), tokenizer);
    return [chat](const nlohmann::ordered_json& messages, bool adds) { return chat->render(messages, adds); };
  } catch (const UserError& error) {
    throw UserError(concat(error.what(), "; another template can be given with --chat-template FILE"), error.code());
  }
}

std::string name_of(const std::string& load) {
  const std::filesystem::path folder = std::filesystem::absolute(load).lexically_normal();
  return folder.has_filename() ? folder.filename() : folder.parent_path().filename();
}

serve::DeskOptions desk_options(const infer::LoadedModel& loaded, const ServeOptions& options, const std::string& name,
                                serve::FindPassages find_passages) {
  return {.model_name = name,
          .fingerprint = concat("espalier-", kVersion, "-step-", loaded.step),
          .created = static_cast<int64_t>(std::time(nullptr)),
          .max_texts = options.max_running + options.max_waiting,
          .max_prompt_tokens = options.max_prompt_tokens.value_or(0),
          .request_limit = std::chrono::seconds(options.request_seconds),
          .api_key = options.api_key,
          .render_chat = chat_renderer(*loaded.tokenizer, options),
          .find_passages = std::move(find_passages),
          .text_ends = loaded.text_ends ? std::optional(serve::TextEnds{loaded.text_ends->begin, loaded.text_ends->end})
                                        : std::nullopt};
}

// A connection is a descriptor.
void allow_descriptors(int64_t num_connections) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(num_connections) + 256);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Why the engine stopped, reported by its own thread.
class Failure {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::move(error);
  }
  bool is_set() const {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }
  void raise() const {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) return;
    try {
      std::rethrow_exception(error_);
    } catch (const c10::OutOfMemoryError&) {
      throw;  // main.cpp says what needs less
    } catch (const std::exception& error) {
      throw UserError(concat("the model failed: ", error.what()));
    }
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
};

// The encoder of questions tells ATen to use one thread, which a thread that comes to ATen for the first time after
// that would follow: so the engines' come first.
class EngineFirst {
 public:
  explicit EngineFirst(int num_engines) : num_missing_(num_engines) {}
  void begun() {
    at::get_num_threads();
    if (--num_missing_ == 0) begun_.set_value();
  }
  serve::FindPassages wait_in(serve::FindPassages find) const {
    if (!find) return nullptr;
    return [find = std::move(find), has_begun = has_begun_](const std::string& question, int64_t count) {
      has_begun.wait();
      return find(question, count);
    };
  }

 private:
  std::atomic<int> num_missing_;
  std::promise<void> begun_;
  std::shared_future<void> has_begun_ = begun_.get_future().share();
};

// A model in memory, ready to answer.
class Served {
 public:
  Served(const std::string& load, std::optional<int64_t> step, const ServeOptions& options, const dist::Grid& grid)
      : loaded_(infer::load_model(load, step, options.ema ? infer::WeightSet::kEma : infer::WeightSet::kWeights,
                                  infer::weight_format(options.int8_weights, options.stream_layers), grid)) {
    if (loaded_.model == nullptr)
      throw UserError(concat("'", load, "' holds a ", loaded_.config.family->display, ", and only models that write ",
                             "text are served; espalier generate --load fills in its [MASK]"),
                      ExitCode::kUsage);
    if (reads_neighbors(loaded_) && !options.without_neighbors)
      throw UserError(concat("'", load, "' holds a Retro that reads neighbours, which 'espalier serve' does not look ",
                             "up; --retro-without-neighbors serves it as the GPT with its weights, and 'espalier ",
                             "generate' and 'espalier eval' read them"),
                      ExitCode::kUsage);
  }
  // Before the engine is wanted.
  void begin(const ServeOptions& options) {
    model_ = infer::batch_model(loaded_, sized_for_serving(loaded_, options));
    infer::EngineConfig config{.scheduler = {.max_sequences = options.max_running}};
    if (!options.stream_layers) config.scheduler.max_prompt_tokens_beside_texts = kPromptTokensBesideTexts;
    engine_.emplace(*model_, loaded_.tokenizer.get(), config);
  }
  infer::LoadedModel& loaded() { return loaded_; }
  infer::Engine& engine() { return *engine_; }

 private:
  infer::LoadedModel loaded_;
  std::unique_ptr<infer::BatchModel> model_;
  std::optional<infer::Engine> engine_;
};

void log_served(const serve::Desk& desk, const infer::LoadedModel& loaded, const char* where) {
  log_info("serving ", desk.options.model_name, ", step ", loaded.step, ", of at most ", desk.max_context(),
           " tokens a text", where, "; until SIGTERM or Ctrl-C");
}

// Why to end: a signal, which any of the processes may have got, or a failure.
bool is_over(const StopSignals& signals, const infer::Leader* leader, Failure& failure) {
  if (leader != nullptr && !leader->trouble().empty())
    failure.set(std::make_exception_ptr(UserError(leader->trouble())));
  return signals.received() || (leader != nullptr && leader->is_to_stop()) || failure.is_set();
}

void serve_until_stopped(Served& first, Served* second, const ServeOptions& options, const StopSignals& signals,
                         const infer::Leader* leader) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  constexpr int kIdleLookMs = 500;
  set_awaited("the texts under way");
  Failure failure;
  EngineFirst engines(second == nullptr ? 1 : 2);
  const std::string name = options.served_model_name.empty() ? name_of(options.load) : options.served_model_name;
  std::optional<serve::Desk> beside;
  serve::DeskOptions of_first = desk_options(first.loaded(), options, name, engines.wait_in(passage_finder(options)));
  if (second != nullptr) {
    of_first.beside = name_of(options.beside);
    if (of_first.beside == name) of_first.beside += concat("-step-", second->loaded().step);
    beside.emplace(second->engine(), *second->loaded().tokenizer,
                   desk_options(second->loaded(), options, of_first.beside, nullptr));
  }
  serve::Desk desk(first.engine(), *first.loaded().tokenizer, std::move(of_first));
  serve::Service service(desk,
                         {.host = options.host,
                          .port = static_cast<int>(options.port),
                          .most_connections = options.max_connections,
                          .most_body_bytes = static_cast<uint64_t>(options.max_body_megabytes) << 20},
                         beside ? &*beside : nullptr);
  const auto failed = [&](std::exception_ptr error) {
    service.fail();
    failure.set(std::move(error));
  };
  const auto begun = [&] { engines.begun(); };
  const serve::EngineThread thread(first.engine(), failed, begun);
  std::optional<serve::EngineThread> thread_beside;
  if (second != nullptr) thread_beside.emplace(second->engine(), failed, begun);
  std::printf("http://%s:%d\n", options.host.c_str(), service.port());
  std::fflush(stdout);
  log_served(desk, first.loaded(), "");
  if (beside) log_served(*beside, second->loaded(), ", below /beside/");
  {
    const WaitsFor waits(Waiting::kOthers, "serve", "requests");
    // Not sleep_for(), which goes on sleeping after a signal.
    while (!is_over(signals, leader, failure)) ::poll(nullptr, 0, kIdleLookMs);
  }
  service.drain();
  while (!service.is_idle() && !failure.is_set()) std::this_thread::sleep_for(kLook);
  failure.raise();
}

int serve_ranks(const ServeOptions& options, const StopSignals& signals) {
  EngineRanks ranks("serve",
                    {.size = options.tensor_ranks, .device = options.device, .num_threads = options.num_threads},
                    [&] { return signals.received().has_value(); });
  acknowledge_signals(ranks.grid().rank == 0);
  allow_descriptors(options.max_connections);
  Served first(options.load, options.ckpt_step, options, ranks.grid());
  std::optional<Served> second;
  if (!options.beside.empty()) second.emplace(options.beside, options.beside_step, options, ranks.grid());
  if (options.without_neighbors && !reads_neighbors(first.loaded()) && !(second && reads_neighbors(second->loaded())))
    throw UserError(concat("--retro-without-neighbors is for a Retro that reads neighbours; ", options.load,
                           " holds a ", first.loaded().config.family->display),
                    ExitCode::kUsage);
  if (!ranks.lead(first.loaded())) return 0;
  first.begin(options);
  if (second) second->begin(options);
  serve_until_stopped(first, second ? &*second : nullptr, options, signals, ranks.leader());
  return 0;
}

}  // namespace

int serve_model(const std::vector<std::string>& arguments) {
  ServeOptions options;
  if (!read_serve_options(arguments, options)) return 0;
  const StopSignals signals;
  try {
    return serve_ranks(options, signals);
  } catch (const dist::StoppedBeforeStart& stopped) {
    log_line(LogLevel::kQuiet, concat(stopped.what(), " before all processes had arrived: nothing was served"));
    return 0;
  }
}

}  // namespace espalier
