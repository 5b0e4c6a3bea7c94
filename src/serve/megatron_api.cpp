// PUT /api, Megatron's interface to text generation: its fields, its checks in its order and its words for what is
// wrong. Where it answers status 200 with a text instead of a result, this answers 400 with that text as "message".
#include <algorithm>
#include <utility>

#include "infer/engine/completion.h"
#include "serve/fields.h"
#include "serve/routes.h"
#include "serve/token_names.h"

namespace espalier::serve {
namespace {

struct MegatronCall {
  std::vector<std::string> prompts;
  int64_t tokens_to_generate = 64, beam_width = 0;
  bool logprobs = false, add_bos = false, stops_at_line = false, stops_at_two_lines = false, keeps_colons = false;
  double temperature = 1, top_p = 0, top_p_decay = 0, top_p_bound = 0, length_penalty = 1;
  int64_t top_k = 0;
  std::optional<uint64_t> seed;
  std::optional<int64_t> stop_token;
};

void require(bool holds, const char* field, const std::string& message) {
  if (!holds) throw ApiError(400, message, field);
}

// Python's isinstance(value, int) takes booleans; true and false are not what anybody means there, so they are refused.
int64_t whole(Fields& fields, const char* name, int64_t fallback, const char* message) {
  const nlohmann::json* const value = fields.find(name);
  if (value == nullptr) return fallback;
  const bool is_large = value->is_number_unsigned() && value->get<uint64_t>() >> 62 != 0;
  require(value->is_number_integer() && !is_large, name, message);
  return value->get<int64_t>();
}

bool flag(Fields& fields, const char* name) {
  const nlohmann::json* const value = fields.find(name);
  if (value == nullptr) return false;
  require(value->is_boolean(), name, std::string(name) + " must be a boolean value");
  return value->get<bool>();
}

double fraction(Fields& fields, const char* name, double fallback, const char* message) {
  const nlohmann::json* const value = fields.find(name);
  if (value == nullptr) return fallback;
  require(value->is_number_float(), name, message);
  return value->get<double>();
}

void read_prompts(Fields& fields, MegatronCall& call) {
  constexpr size_t kMost = 128;
  const nlohmann::json* const prompts = fields.find("prompts");
  require(prompts != nullptr, "prompts", "prompts argument required");
  require(fields.find("max_len") == nullptr, "max_len", "max_len is no longer used.  Replace with tokens_to_generate");
  require(fields.find("sentences") == nullptr, "sentences", "sentences is no longer used.  Replace with prompts");
  require(prompts->is_array(), "prompts", "prompts is not a list of strings");
  require(!prompts->empty(), "prompts", "prompts is empty");
  require(prompts->size() <= kMost, "prompts", "Maximum number of prompts is 128");
  for (const nlohmann::json& prompt : *prompts) {
    require(prompt.is_string(), "prompts", "prompts is not a list of strings");
    call.prompts.push_back(prompt.get<std::string>());
  }
}

void read_top_p(Fields& fields, MegatronCall& call) {
  call.top_p = fraction(fields, "top_p", 0, "top_p must be a positive float less than or equal to 1.0");
  require(!(call.top_k > 0 && call.top_p > 0), "top_p", "cannot set both top-k and top-p samplings.");
  require(call.top_p >= 0 && call.top_p <= 1, "top_p", "top_p must be less than or equal to 1.0");
  const char* const decay = "top_p_decay must be a positive float less than or equal to 1.0";
  if (fields.find("top_p_decay") != nullptr) {
    call.top_p_decay = fraction(fields, "top_p_decay", 0, decay);
    require(call.top_p != 0, "top_p_decay", "top_p_decay cannot be set without top_p");
    require(call.top_p_decay >= 0 && call.top_p_decay <= 1, "top_p_decay",
            "top_p_decay must be less than or equal to 1.0");
  }
  if (fields.find("top_p_bound") == nullptr) return;
  call.top_p_bound =
      fraction(fields, "top_p_bound", 0, "top_p_bound must be a positive float less than or equal to top_p");
  require(call.top_p != 0, "top_p_bound", "top_p_bound cannot be set without top_p");
  require(call.top_p_bound > 0 && call.top_p_bound <= call.top_p, "top_p_bound",
          "top_p_bound must be greater than 0 and less than top_p");
}

void read_drawing(Fields& fields, MegatronCall& call) {
  const char* const warm = "temperature must be a positive number less than or equal to 100.0";
  if (const nlohmann::json* const value = fields.find("temperature")) {
    require(value->is_number(), "temperature", warm);
    call.temperature = value->get<double>();
    require(call.temperature > 0 && call.temperature <= 100, "temperature", warm);
  }
  call.top_k =
      whole(fields, "top_k", 0, "top_k must be an integer equal to or greater than 0 and less than or equal to 1000");
  require(call.top_k >= 0 && call.top_k <= 1000, "top_k",
          "top_k must be equal to or greater than 0 and less than or equal to 1000");
  read_top_p(fields, call);
}

void read_ends(Fields& fields, MegatronCall& call) {
  call.add_bos = flag(fields, "add_BOS");
  const bool has_empty = std::any_of(call.prompts.begin(), call.prompts.end(), [](const auto& p) { return p.empty(); });
  require(call.add_bos || !has_empty, "prompts", "Empty prompts require add_BOS=true");
  call.stops_at_two_lines = flag(fields, "stop_on_double_eol");
  call.stops_at_line = flag(fields, "stop_on_eol");
  call.keeps_colons = flag(fields, "prevent_newline_after_colon");
  const int64_t seed = whole(fields, "random_seed", -1, "random_seed must be integer");
  if (fields.find("random_seed") != nullptr) {
    require(seed >= 0, "random_seed", "random_seed must be a positive integer");
    call.seed = static_cast<uint64_t>(seed);
  }
  flag(fields, "no_log");  // requests are not logged here
  if (fields.find("beam_width") != nullptr) {
    call.beam_width = whole(fields, "beam_width", 0, "beam_width must be integer");
    require(call.beam_width >= 1, "beam_width", "beam_width must be an integer > 1");
    require(call.prompts.size() == 1, "beam_width", "When doing beam_search, batch size must be 1");
  }
  if (fields.find("stop_token") != nullptr)
    call.stop_token = whole(fields, "stop_token", 0, "stop_token must be an integer");
  if (fields.find("length_penalty") != nullptr)
    call.length_penalty = fraction(fields, "length_penalty", 1, "length_penalty must be a float");
}

MegatronCall read_call(const std::string& body) {
  Fields fields(body);
  MegatronCall call;
  read_prompts(fields, call);
  call.tokens_to_generate =
      whole(fields, "tokens_to_generate", 64, "tokens_to_generate must be an integer greater than 0");
  require(call.tokens_to_generate >= 0, "tokens_to_generate",
          "tokens_to_generate must be an integer greater than or equal to 0");
  call.logprobs = flag(fields, "logprobs");
  require(call.tokens_to_generate > 0 || call.logprobs, "logprobs",
          "tokens_to_generate=0 implies logprobs should be True");
  read_drawing(fields, call);
  read_ends(fields, call);
  fields.finish();
  return call;
}

// The id of a text that is one token inside a longer text.
std::optional<int32_t> only_id_of(const text::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> before = tokenizer.encode("a"), with = tokenizer.encode("a" + text);
  const bool is_one = with.size() == before.size() + 1 && std::equal(before.begin(), before.end(), with.begin());
  return is_one ? std::optional(with.back()) : std::nullopt;
}

// GPT-2's ids 198 and 628 are in Megatron's text; here they are those of the model's own tokenizer.
void set_line_stops(const Desk& desk, const MegatronCall& call, infer::Request& request) {
  if (!call.stops_at_line && !call.stops_at_two_lines && !call.keeps_colons) return;
  const char* const field = call.stops_at_two_lines ? "stop_on_double_eol"
                            : call.stops_at_line    ? "stop_on_eol"
                                                    : "prevent_newline_after_colon";
  const std::optional<int32_t> line = only_id_of(desk.tokenizer, "\n"), two = only_id_of(desk.tokenizer, "\n\n"),
                               colon = only_id_of(desk.tokenizer, ":");
  require(line.has_value(), field, std::string(field) + " needs a tokenizer that has the end of a line as one token");
  if ((call.stops_at_line || call.stops_at_two_lines) && two) request.stop_ids.push_back(*two);
  if (call.stops_at_two_lines)
    request.stop_sequences.push_back({*line, *line});
  else if (call.stops_at_line)
    request.stop_ids.push_back(*line);
  if (!call.keeps_colons) return;
  require(colon.has_value(), field, "prevent_newline_after_colon needs a tokenizer that has ':' as one token");
  request.banned_pairs.push_back({*colon, *line});
}

infer::Request request_of(Desk& desk, const MegatronCall& call) {
  infer::Request request;
  request.max_tokens = call.tokens_to_generate;
  request.stop_ids = desk.stop_ids();
  request.sampling.seed = call.seed ? *call.seed : desk.new_seed();
  set_line_stops(desk, call, request);
  if (call.beam_width > 0) {
    require(!call.logprobs, "logprobs", "logprobs is not available with beam_width");
    request.beam_width = request.n = call.beam_width;
    request.length_penalty = call.length_penalty;
    if (!call.stop_token) return request;
    require(*call.stop_token >= 0 && *call.stop_token < desk.engine.limits().shape.vocab_size, "stop_token",
            "stop_token is not one of the model's ids");
    request.stop_ids = {static_cast<int32_t>(*call.stop_token)};
    return request;
  }
  request.sampling.temperature = call.temperature;
  request.sampling.top_k = call.top_k;
  request.sampling.top_p = call.top_p;
  request.sampling.top_p_decay = call.top_p_decay;
  request.sampling.top_p_bound = call.top_p_bound;
  return request;
}

std::vector<infer::Request> megatron_rows(Desk& desk, const MegatronCall& call) {
  const infer::Request common = request_of(desk, call);
  std::vector<infer::Request> rows;
  for (const std::string& prompt : call.prompts) {
    infer::Request row = common;
    if (call.add_bos) {
      require(desk.tokenizer.eod().has_value(), "add_BOS", "add_BOS needs an end-of-document token, and there is none");
      row.prompt_ids.push_back(*desk.tokenizer.eod());
    }
    const std::vector<int32_t> ids = desk.tokenizer.encode(prompt);
    row.prompt_ids.insert(row.prompt_ids.end(), ids.begin(), ids.end());
    require(!row.prompt_ids.empty(), "prompts", "Empty prompts require add_BOS=true");
    row.random_stream = static_cast<uint32_t>(rows.size());
    if (call.logprobs && (row.max_tokens > 0 || row.prompt_ids.size() > 1)) row.score_from = 1;
    rows.push_back(std::move(row));
  }
  return rows;
}

// A piece of SentencePiece appears as it does in the vocabulary, others as text.
std::string segment(const TokenNames& names, int32_t id) {
  const std::string piece = names.tokenizer().id_to_piece(id);
  return piece.find("\u2581") != std::string::npos ? piece : names.name(id);
}

class MegatronAnswer {
 public:
  MegatronAnswer(Desk& desk, MegatronCall call, std::vector<infer::Request> rows, std::shared_ptr<Answer> answer)
      : names_(desk.tokenizer), call_(std::move(call)), answer_(std::move(answer)), made_(rows.size()) {
    for (infer::Request& row : rows) prompts_.push_back(std::move(row.prompt_ids));
  }

  void take(size_t row, const infer::Event& event) { made_[row].add(event); }

  void end(const std::optional<ApiError>& error) {
    if (error) return answer_->reply(error->reply());
    nlohmann::ordered_json body;
    for (const char* const member : {"text", "segments"}) body[member] = nlohmann::ordered_json::array();
    const char* const numbers = call_.beam_width > 0 ? "scores" : "logprobs";
    body[numbers] = nullptr;
    for (size_t row = 0; row < made_.size(); ++row)
      for (const infer::CompletionChoice& choice : made_[row].choices) add(row, choice, body);
    answer_->reply({.body = body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)});
  }

 private:
  void add(size_t row, const infer::CompletionChoice& choice, nlohmann::ordered_json& body) const {
    std::vector<int32_t> ids = prompts_[row];
    nlohmann::ordered_json segments = nlohmann::ordered_json::array(), logprobs = nlohmann::ordered_json::array();
    for (const infer::TokenScore& score : made_[row].prompt_scores) logprobs.push_back(finite(score.log_probability));
    for (const infer::TokenScore& score : choice.tokens) {
      ids.push_back(score.id);
      logprobs.push_back(finite(score.log_probability));
    }
    for (const int32_t id : ids) segments.push_back(segment(names_, id));
    body["text"].push_back(names_.tokenizer().decode(ids));
    body["segments"].push_back(std::move(segments));
    if (call_.beam_width > 0)
      body["scores"].push_back(finite(choice.finish.score));
    else if (call_.logprobs)
      body["logprobs"].push_back(std::move(logprobs));
  }

  TokenNames names_;
  MegatronCall call_;
  std::shared_ptr<Answer> answer_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<infer::Completion> made_;
};

}  // namespace

void megatron_generate(const Call& call) {
  require(!call.desk.has_encoder(), "prompts",
          "PUT /api continues prompts, and this model's encoder reads them: use /v1/completions");
  MegatronCall wanted = read_call(call.request.body);
  std::vector<infer::Request> rows = megatron_rows(call.desk, wanted);
  const auto answer = std::make_shared<MegatronAnswer>(call.desk, std::move(wanted), rows, call.answer);
  Generation::start(
      call.desk, call.answer, call.strand, std::move(rows),
      [answer](size_t row, const infer::Event& event) { answer->take(row, event); },
      [answer](const std::optional<ApiError>& error) { answer->end(error); });
}

}  // namespace espalier::serve
