// POST /v1/completions.
#include <limits>
#include <utility>

#include "base/format.h"
#include "infer/engine/completion.h"
#include "serve/openai_fields.h"
#include "serve/passages.h"
#include "serve/routes.h"
#include "serve/token_names.h"

namespace espalier::serve {
namespace {

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  // what echo gives back
};

struct CompletionCall : OpenAiCall {
  std::vector<Prompt> prompts;
  bool echo = false, token_ids_as_names = false;
  std::optional<int64_t> num_logprobs;
  std::optional<PassagesWanted> passages;
  std::vector<FoundPassage> found;
};

// An empty text starts after an end of document, as in `espalier generate`.
Prompt prompt_of(const Desk& desk, const std::string& text, bool wants_bos) {
  Prompt prompt{.ids = {}, .text = text};
  if (wants_bos)
    if (const auto bos = desk.tokenizer.named_ids().bos) prompt.ids.push_back(*bos);
  const std::vector<int32_t> ids = desk.encode_prompt(text);
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  if (!prompt.ids.empty()) return prompt;
  if (desk.has_encoder())
    throw ApiError(400, "prompt is empty: the model's encoder reads at least one token", "prompt");
  if (!desk.tokenizer.eod())
    throw ApiError(400, "prompt is empty, and the tokenizer has no end-of-document token to begin with", "prompt");
  prompt.ids.push_back(*desk.tokenizer.eod());
  return prompt;
}

Prompt prompt_of(const Desk& desk, const nlohmann::json& ids) {
  Prompt prompt;
  for (const nlohmann::json& id : ids) {
    const bool is_id = id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!is_id) throw ApiError(400, "prompt has something other than token ids in a list of them", "prompt");
    prompt.ids.push_back(id.get<int32_t>());
    if (prompt.ids.back() >= desk.engine.limits().shape.vocab_size)
      throw ApiError(400, "prompt has an id that is not one of the model's", "prompt");
  }
  if (prompt.ids.empty()) throw ApiError(400, "prompt has an empty list of ids", "prompt");
  prompt.text = desk.tokenizer.decode(prompt.ids);
  return prompt;
}

std::vector<Prompt> read_prompts(const Desk& desk, Fields& fields, bool wants_bos) {
  constexpr size_t kMostPrompts = 1024;
  const nlohmann::json* const prompt = fields.find("prompt");
  if (prompt == nullptr) throw ApiError(400, "prompt is missing", "prompt");
  if (prompt->is_string()) return {prompt_of(desk, prompt->get<std::string>(), wants_bos)};
  if (!prompt->is_array() || prompt->empty())
    throw ApiError(400, "prompt is not a text, list of texts, list of ids or list of these", "prompt");
  if (prompt->front().is_number()) return {prompt_of(desk, *prompt)};
  if (prompt->size() > kMostPrompts) throw ApiError(400, "prompt has more than 1024 prompts", "prompt");
  std::vector<Prompt> prompts;
  for (const nlohmann::json& element : *prompt) {
    if (element.is_string())
      prompts.push_back(prompt_of(desk, element.get<std::string>(), wants_bos));
    else if (element.is_array())
      prompts.push_back(prompt_of(desk, element));
    else
      throw ApiError(400, "prompt has something other than texts and lists of ids", "prompt");
  }
  return prompts;
}

// "retrieve": {"k", "query", "prepend"}; without a query the prompt is the question.
std::optional<PassagesWanted> read_retrieve(const Desk& desk, Fields& fields) {
  const nlohmann::json* const retrieve = fields.find("retrieve");
  if (retrieve == nullptr) return std::nullopt;
  const nlohmann::json* const prompt = fields.find("prompt");
  if (prompt == nullptr || !prompt->is_string())
    throw ApiError(400, "retrieve is for one prompt that is a text", "retrieve");
  try {
    Fields inner(retrieve->dump());
    PassagesWanted wanted = read_passages_wanted(desk, inner, 400);
    wanted.prepend = inner.boolean("prepend", false);
    inner.finish();
    if (wanted.question.empty()) wanted.question = prompt->get<std::string>();
    return wanted;
  } catch (const ApiError& error) {
    throw ApiError(400, concat("retrieve: ", error.what()), "retrieve");
  }
}

CompletionCall read_call(Desk& desk, const std::string& body) {
  Fields fields(body);
  CompletionCall call;
  static_cast<OpenAiCall&>(call) = read_openai_fields(desk, fields);
  call.echo = fields.boolean("echo", false);
  call.num_logprobs = fields.integer("logprobs", 0, desk.engine.limits().max_alternatives);
  call.token_ids_as_names = fields.boolean("return_tokens_as_token_ids", false);
  call.request.best_of = fields.integer("best_of", 1, desk.engine.limits().max_choices).value_or(0);
  fields.refuse("suffix", "is not supported: texts are only continued");
  if (call.echo && desk.has_encoder())
    fields.problem("echo", "is not supported: the model's encoder reads the prompt, which its text does not contain");
  fields.find("prompt");
  call.passages = read_retrieve(desk, fields);
  fields.finish();
  call.prompts = read_prompts(desk, fields, call.wants_bos);
  infer::Request& request = call.request;
  if (request.best_of == request.n) request.best_of = 0;
  if (request.max_tokens < 0) request.max_tokens = 16;
  request.num_alternatives = std::min(call.num_logprobs.value_or(0), desk.engine.limits().shape.vocab_size);
  call.id = desk.new_id("cmpl-");
  return call;
}

std::vector<infer::Request> rows_of(const Desk& desk, const CompletionCall& call) {
  std::vector<infer::Request> rows;
  for (size_t row = 0; row < call.prompts.size(); ++row) {
    infer::Request request = call.request;
    desk.give_prompt(request, call.prompts[row].ids);
    request.random_stream = static_cast<uint32_t>(row);
    const bool has_scores = request.max_tokens > 0 || request.prompt_ids.size() > 1;
    if (call.echo && call.num_logprobs && has_scores) request.score_from = 1;
    rows.push_back(std::move(request));
  }
  return rows;
}

// Gathers the answers of all prompts and makes them one, or passes them on as they come.
class CompletionAnswer {
 public:
  CompletionAnswer(Desk& desk, CompletionCall call, std::shared_ptr<Answer> answer)
      : desk_(desk),
        call_(std::move(call)),
        answer_(std::move(answer)),
        names_(desk.tokenizer),
        rows_(call_.prompts.size()),
        has_begun_(call_.prompts.size() * num_choices()),
        offsets_(has_begun_.size(), TextOffsets(desk.tokenizer)) {
    for (const Prompt& prompt : call_.prompts) num_prompt_ += static_cast<int64_t>(prompt.ids.size());
    if (call_.stream) begin_events();
  }

  void take(size_t row, const infer::Event& event) {
    num_generated_ += static_cast<int64_t>(event.tokens.size());
    if (!call_.stream) return rows_[row].add(event);
    rows_[row].prompt_scores.insert(rows_[row].prompt_scores.end(), event.prompt_scores.begin(),
                                    event.prompt_scores.end());
    if (event.tokens.empty() && !event.finish) return;
    const bool says_something = !event.text.empty() || event.finish || call_.num_logprobs;
    const size_t index = index_of(row, event.choice);
    if (!says_something && (has_begun_[index] || !call_.echo)) return;
    nlohmann::ordered_json chunk = openai_frame(desk_, call_, "text_completion");
    chunk["choices"] = {choice(row, event.choice, event.tokens, event.text, event.finish ? &*event.finish : nullptr)};
    if (call_.include_usage) chunk["usage"] = nullptr;
    answer_->send_event(dumped(chunk));
  }

  void end(const std::optional<ApiError>& error) {
    if (!call_.stream) return error ? answer_->reply(error->reply()) : reply_whole();
    if (error) answer_->send_event(error->event());
    if (call_.include_usage && !error) {
      nlohmann::ordered_json chunk = openai_frame(desk_, call_, "text_completion");
      chunk["choices"] = nlohmann::ordered_json::array();
      chunk["usage"] = openai_usage(num_prompt_, num_generated_);
      answer_->send_event(dumped(chunk));
    }
    if (!error) answer_->send_event("[DONE]");
    answer_->end_events();
  }

 private:
  void begin_events() {
    answer_->begin_events();
    if (!call_.passages) return;
    nlohmann::ordered_json chunk = openai_frame(desk_, call_, "text_completion");
    chunk["choices"] = nlohmann::ordered_json::array();
    chunk["passages"] = passages_json(call_.found);
    answer_->send_event(dumped(chunk));
  }
  size_t num_choices() const { return static_cast<size_t>(call_.request.n); }
  size_t index_of(size_t row, int64_t choice) const { return row * num_choices() + static_cast<size_t>(choice); }

  nlohmann::ordered_json choice(size_t row, int64_t number, const std::vector<infer::TokenScore>& tokens,
                                const std::string& text, const infer::Finish* finish) {
    const size_t index = index_of(row, number);
    const bool echoes = call_.echo && !std::exchange(has_begun_[index], uint8_t{1});
    nlohmann::ordered_json logprobs;
    if (call_.num_logprobs) {
      LegacyLogprobs list(names_, call_.token_ids_as_names);
      if (echoes) list.add_first(call_.prompts[row].ids.front(), offsets_[index]);
      if (echoes)
        for (const infer::TokenScore& score : rows_[row].prompt_scores) list.add(score, offsets_[index]);
      for (const infer::TokenScore& score : tokens) list.add(score, offsets_[index]);
      logprobs = list.take();
    }
    return {{"index", index},
            {"text", echoes ? call_.prompts[row].text + text : text},
            {"logprobs", logprobs},
            {"finish_reason", finish == nullptr ? nlohmann::ordered_json() : finish_word(*finish)}};
  }

  void reply_whole() {
    nlohmann::ordered_json body = openai_frame(desk_, call_, "text_completion");
    body["choices"] = nlohmann::ordered_json::array();
    for (size_t row = 0; row < rows_.size(); ++row)
      for (size_t number = 0; number < num_choices(); ++number) {
        const infer::CompletionChoice& made = rows_[row].choices.at(number);
        body["choices"].push_back(choice(row, static_cast<int64_t>(number), made.tokens, made.text, &made.finish));
      }
    body["usage"] = openai_usage(num_prompt_, num_generated_);
    if (call_.passages) body["passages"] = passages_json(call_.found);
    answer_->reply({.body = dumped(body)});
  }

  Desk& desk_;
  CompletionCall call_;
  std::shared_ptr<Answer> answer_;
  TokenNames names_;
  std::vector<infer::Completion> rows_;
  std::vector<uint8_t> has_begun_;    // of each choice
  std::vector<TextOffsets> offsets_;  // of each choice
  int64_t num_prompt_ = 0, num_generated_ = 0;
};

void complete(Desk& desk, const std::shared_ptr<CompletionCall>& wanted, const std::shared_ptr<Answer>& to,
              const Generation::Strand& strand) {
  std::vector<infer::Request> rows = rows_of(desk, *wanted);
  // Made by the first event, so that what is wrong with the rows is still reported by the status.
  const auto made = std::make_shared<std::unique_ptr<CompletionAnswer>>();
  const auto answer = [made, &desk, wanted, to]() -> CompletionAnswer& {
    if (!*made) *made = std::make_unique<CompletionAnswer>(desk, std::move(*wanted), to);
    return **made;
  };
  Generation::start(
      desk, to, strand, std::move(rows), [answer](size_t row, const infer::Event& event) { answer().take(row, event); },
      [answer](const std::optional<ApiError>& error) { answer().end(error); });
}

}  // namespace

void openai_completion(const Call& call) {
  const auto wanted = std::make_shared<CompletionCall>(read_call(call.desk, call.request.body));
  if (wanted->request.max_tokens == 0 && (wanted->request.n > 1 || wanted->request.best_of > 1))
    throw ApiError(400, "max_tokens 0 makes no text, so n and best_of are 1", "n");
  if (!wanted->passages) return complete(call.desk, wanted, call.answer, call.strand);
  find_passages(call.desk, call.answer, call.strand, *wanted->passages,
                [&desk = call.desk, wanted, answer = call.answer, strand = call.strand](auto found) {
                  wanted->found = std::move(found);
                  Prompt& prompt = wanted->prompts.front();
                  if (wanted->passages->prepend)
                    prompt = prompt_of(desk, with_passages(wanted->found, prompt.text), wanted->wants_bos);
                  complete(desk, wanted, answer, strand);
                });
}

}  // namespace espalier::serve
