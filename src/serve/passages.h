// Passages that a server finds for a question, if it was started with an index of them: POST /retrieve, and the field
// "retrieve" of completions.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/fields.h"
#include "serve/routes.h"

namespace espalier::serve {

struct PassagesWanted {
  std::string question;
  int64_t count = 0;
  bool prepend = false;  // to the prompt
};

// {"query": text, "k": number}, and of a completion "prepend". ApiErrors: what is wrong with the fields; nothing to
// search in (`no_index_status`).
PassagesWanted read_passages_wanted(const Desk& desk, Fields& fields, int no_index_status);

// Takes a place of the desk, waits for its turn, searches, and calls `then` in the strand. An ApiError that the search
// or `then` throws is the answer. Nothing is called where the client has gone.
void find_passages(Desk& desk, const std::shared_ptr<Answer>& answer, const Generation::Strand& strand,
                   const PassagesWanted& wanted, std::function<void(std::vector<FoundPassage>)> then);

// [{"id", "title", "text", "score"}, ...]
nlohmann::ordered_json passages_json(const std::vector<FoundPassage>& passages);

// Each passage with its title in a line before it and an empty line after it, and then the prompt.
std::string with_passages(const std::vector<FoundPassage>& passages, const std::string& prompt);

}  // namespace espalier::serve
