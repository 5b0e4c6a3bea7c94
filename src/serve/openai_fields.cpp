#include "serve/openai_fields.h"

#include <charconv>
#include <limits>

#include "base/error.h"

namespace espalier::serve {
namespace {

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();

void read_bias(Fields& fields, infer::SamplingConfig& sampling) {
  const nlohmann::json* const bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields.problem("logit_bias", "is not an object of token ids and numbers");
  for (const auto& [key, value] : bias->items()) {
    int32_t id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size() && id >= 0;
    const double number = value.is_number() ? value.get<double>() : 1e9;
    if (!is_id || !(number >= -100 && number <= 100))
      return fields.problem("logit_bias", "has something other than token ids and numbers from -100 to 100");
    sampling.logit_bias.push_back({id, number});
  }
}

void read_sampling(Desk& desk, Fields& fields, infer::SamplingConfig& sampling) {
  sampling.temperature = fields.number("temperature", 1, 0, 100);
  sampling.top_k = fields.integer("top_k", -1, kAnyInteger).value_or(0);
  if (sampling.top_k < 0) sampling.top_k = 0;  // all, as vLLM has it
  sampling.top_p = fields.number("top_p", 1, 0, 1);
  if (fields.find("top_p") != nullptr && sampling.top_p == 0) fields.problem("top_p", "is 0, which leaves no token");
  if (sampling.top_p == 1) sampling.top_p = 0;  // off
  sampling.min_p = fields.number("min_p", 0, 0, 1);
  sampling.repetition_penalty = fields.number("repetition_penalty", 1, 1e-3, 1e3);
  sampling.frequency_penalty = fields.number("frequency_penalty", 0, -100, 100);
  sampling.presence_penalty = fields.number("presence_penalty", 0, -100, 100);
  read_bias(fields, sampling);
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), kAnyInteger);
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : desk.new_seed();
}

void read_stops(Desk& desk, Fields& fields, infer::Request& request) {
  constexpr size_t kMostStops = 64;
  request.stop_strings = fields.texts("stop");
  request.stop_ids = fields.ids("stop_token_ids");
  if (request.stop_strings.size() > kMostStops) fields.problem("stop", concat("has more than ", kMostStops, " texts"));
  for (const std::string& stop : request.stop_strings)
    if (stop.empty()) fields.problem("stop", "has an empty text");
  if (fields.boolean("ignore_eos", false)) return;
  const std::vector<int32_t> ends = desk.stop_ids();
  request.stop_ids.insert(request.stop_ids.end(), ends.begin(), ends.end());
}

void read_stream(Fields& fields, OpenAiCall& call) {
  call.stream = call.request.stream = fields.boolean("stream", false);
  const nlohmann::json* const options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!call.stream) return fields.problem("stream_options", "is only for stream: true");
  if (!options->is_object()) return fields.problem("stream_options", "is not an object");
  for (const auto& [key, value] : options->items())
    if (key == "include_usage" && value.is_boolean())
      call.include_usage = value.get<bool>();
    else if (key != "include_obfuscation" || !value.is_boolean() || value.get<bool>())
      return fields.problem("stream_options", "has something other than include_usage: true or false");
}

}  // namespace

OpenAiCall read_openai_fields(Desk& desk, Fields& fields) {
  const int64_t most = desk.engine.limits().max_choices;
  OpenAiCall call;
  infer::Request& request = call.request;
  desk.check_model(fields.text("model"));
  read_sampling(desk, fields, request.sampling);
  read_stops(desk, fields, request);
  read_stream(fields, call);
  request.n = fields.integer("n", 1, most).value_or(1);
  request.max_tokens = fields.integer("max_tokens", 0, kAnyInteger).value_or(-1);
  request.min_tokens = fields.integer("min_tokens", 0, kAnyInteger).value_or(0);
  call.wants_bos = fields.boolean("add_special_tokens", false);
  fields.ignore(
      {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"});
  const nlohmann::json* const form = fields.find("response_format");
  if (form == nullptr || *form != nlohmann::json{{"type", "text"}})
    fields.refuse("response_format", "is not supported: output cannot be constrained");
  for (const char* const name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar",
                                 "json_schema", "structured_outputs"})
    fields.refuse(name, "is not supported: output cannot be constrained");
  fields.refuse("use_beam_search", "is not supported here: PUT /api has beam_width");
  return call;
}

nlohmann::ordered_json openai_frame(const Desk& desk, const OpenAiCall& call, const std::string& object) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"id", call.id},
          {"object", object},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"model", desk.options.model_name},
          {"system_fingerprint", desk.options.fingerprint}};
}

nlohmann::ordered_json openai_usage(int64_t num_prompt, int64_t num_generated) {
  return {{"prompt_tokens", num_prompt},
          {"completion_tokens", num_generated},
          {"total_tokens", num_prompt + num_generated}};
}

const char* finish_word(const infer::Finish& finish) {
  return finish.reason == infer::FinishReason::kStop ? "stop" : "length";
}

std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace espalier::serve
