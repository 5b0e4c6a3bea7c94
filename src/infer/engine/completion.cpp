#include "infer/engine/completion.h"

#include <memory>
#include <utility>

#include "base/error.h"

namespace espalier::infer {

void Completion::add(const Event& event) {
  if (choices.size() <= static_cast<size_t>(event.choice)) choices.resize(static_cast<size_t>(event.choice) + 1);
  CompletionChoice& choice = choices[static_cast<size_t>(event.choice)];
  prompt_scores.insert(prompt_scores.end(), event.prompt_scores.begin(), event.prompt_scores.end());
  choice.tokens.insert(choice.tokens.end(), event.tokens.begin(), event.tokens.end());
  choice.text += event.text;
  if (event.finish) choice.finish = *event.finish;
  is_whole = is_whole || event.is_last;
}

std::vector<Completion> complete(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) check_request(request, engine.limits());
  // Shared with the callbacks, which the engine keeps where a pass throws.
  const auto completions = std::make_shared<std::vector<Completion>>(requests.size());
  for (size_t index = 0; index < requests.size(); ++index)
    engine.submit(requests[index], [completions, index](const Event& event) { (*completions)[index].add(event); });
  while (engine.step()) continue;
  for (size_t index = 0; index < requests.size(); ++index) {
    const Completion& completion = (*completions)[index];
    ESPALIER_CHECK(completion.is_whole, "request ", index, " has no end");
    for (const CompletionChoice& choice : completion.choices)
      if (choice.finish.reason == FinishReason::kFailed)
        throw UserError(concat("request ", index, ": ", choice.finish.message));
  }
  return std::move(*completions);
}

Request score_request(std::span<const int32_t> context, std::span<const int32_t> continuation) {
  Request request;
  request.prompt_ids.assign(context.begin(), context.end());
  request.prompt_ids.insert(request.prompt_ids.end(), continuation.begin(), continuation.end());
  request.score_from = static_cast<int64_t>(context.size());
  request.max_tokens = 0;
  return request;
}

LogLikelihood log_likelihood(const Completion& scored) {
  LogLikelihood likelihood;
  for (const TokenScore& score : scored.prompt_scores) {
    likelihood.sum += score.log_probability;
    likelihood.is_greedy = likelihood.is_greedy && score.is_greedy;
  }
  return likelihood;
}

}  // namespace espalier::infer
