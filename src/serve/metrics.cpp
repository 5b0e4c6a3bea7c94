#include "serve/metrics.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::serve {
namespace {

void head(const std::string& name, const char* type, const std::string& help, std::string& text) {
  text += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void value(const std::string& name, const char* type, const std::string& help, int64_t number, std::string& text) {
  head(name, type, help, text);
  text += concat(name, " ", number, "\n");
}

}  // namespace

void Histogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

void Histogram::print(const std::string& name, const std::string& help, std::string& text) const {
  head(name, "histogram", help, text);
  int64_t sum = 0;
  for (size_t index = 0; index < kBounds.size(); ++index) {
    sum += counts_[index];
    text += concat(name, "_bucket{le=\"", kBounds[index], "\"} ", sum, "\n");
  }
  sum += counts_.back();
  text += concat(name, "_bucket{le=\"+Inf\"} ", sum, "\n", name, "_sum ", sum_, "\n", name, "_count ", sum, "\n");
}

void Metrics::count(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++replies_[{route, status}];
}

void Metrics::add_seconds(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_.add(seconds);
}

void Metrics::add_seconds_to_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  seconds_to_first_token_.add(seconds);
}

std::string Metrics::text(const infer::EngineCounters& engine, int64_t num_texts, int64_t num_connections) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  head("espalier_http_replies_total", "counter", "Replies by route and status.", text);
  for (const auto& [key, number] : replies_)
    text += concat("espalier_http_replies_total{route=\"", key.first, "\",status=\"", key.second, "\"} ", number, "\n");
  const auto gauge = [&](const std::string& name, const char* help, int64_t number) {
    value("espalier_" + name, "gauge", help, number, text);
  };
  const auto counter = [&](const std::string& name, const char* help, int64_t number) {
    value("espalier_" + name + "_total", "counter", help, number, text);
  };
  gauge("http_connections", "Open connections.", num_connections);
  gauge("texts_admitted", "Texts that are being generated or waiting, of all requests.", num_texts);
  gauge("texts_running", "Texts with a place in the key-value cache.", engine.num_running);
  gauge("texts_waiting", "Texts that wait for a place.", engine.num_waiting);
  gauge("cache_pages", "Pages of the key-value cache.", engine.num_pages);
  gauge("cache_pages_held", "Pages that texts hold.", engine.num_pages_held);
  gauge("cache_pages_kept", "Pages that are kept for shared beginnings.", engine.num_pages_cached);
  counter("engine_requests", "Requests to the engine, one a prompt.", engine.num_requests);
  counter("engine_requests_finished", "Of these, finished.", engine.num_finished);
  counter("engine_requests_cancelled", "Of these, cancelled.", engine.num_cancelled);
  counter("engine_requests_failed", "Of these, failed.", engine.num_failed);
  counter("engine_steps", "Passes through the model.", engine.num_steps);
  counter("tokens_run", "Tokens that passes ran.", engine.num_tokens_run);
  counter("tokens_generated", "Tokens that were drawn.", engine.num_tokens_generated);
  counter("tokens_from_cache", "Tokens of prompts that were found in the cache.", engine.num_prefix_tokens);
  counter("preemptions", "Texts that had to give up their pages.", engine.num_preemptions);
  counter("clients_gone", "Clients that left before the end of their answer.", num_gone_);
  seconds_.print("espalier_request_seconds", "Time of requests that make text.", text);
  seconds_to_first_token_.print("espalier_first_token_seconds", "Time to the first token.", text);
  return text;
}

}  // namespace espalier::serve
