#include "data/question_examples.h"

#include <istream>
#include <nlohmann/json.hpp>
#include <streambuf>

#include "data/input_stream.h"

namespace espalier::data {
namespace {

constexpr int64_t kShownProblems = 5;

class InputBuffer : public std::streambuf {
 public:
  explicit InputBuffer(InputStream& stream) : stream_(stream) {}

 protected:
  int_type underflow() override {
    const size_t count = stream_.read(bytes_, sizeof bytes_);
    if (count == 0) return traits_type::eof();
    setg(bytes_, bytes_, bytes_ + count);
    return traits_type::to_int_type(bytes_[0]);
  }

 private:
  InputStream& stream_;
  char bytes_[1 << 16];
};

PassageText passage_of(const nlohmann::json& json) {
  return {json.at("title").is_null() ? "" : json.at("title").get<std::string>(), json.at("text").get<std::string>()};
}

std::vector<PassageText> passages_of(const nlohmann::json& list, size_t most) {
  std::vector<PassageText> passages;
  for (const nlohmann::json& json : list) {
    if (passages.size() == most) break;
    passages.push_back(passage_of(json));
  }
  return passages;
}

// Throws nlohmann::json::exception where the row is none; a text says what it lacks.
std::string take_example(const nlohmann::json& row, const KeptPassages& keep, std::vector<QuestionExample>& examples) {
  QuestionExample example;
  example.question = row.at("question").get<std::string>();
  if (example.question.ends_with('?')) example.question.pop_back();
  if (example.question.empty()) return "the question is empty";
  if (row.at("positive_ctxs").empty()) return "positive_ctxs is empty: there is no passage that answers it";
  example.answer = passage_of(row.at("positive_ctxs").at(0));
  example.hard_negatives = passages_of(row.at("hard_negative_ctxs"), keep.hard_negatives);
  size_t others = keep.negatives;
  if (keep.negatives_fill_up) others -= std::min(others, example.hard_negatives.size());
  example.negatives = passages_of(row.at("negative_ctxs"), others);
  examples.push_back(std::move(example));
  return "";
}

}  // namespace

void read_question_examples(const std::string& path, const KeptPassages& keep, std::vector<QuestionExample>& examples,
                            Problems& problems) {
  const size_t before = examples.size();
  int64_t number = 0, num_bad = 0;
  const auto refuse = [&](const std::string& what) {
    if (++num_bad <= kShownProblems) problems.add(path, ", question ", number, ": ", what);
    if (num_bad == kShownProblems + 1) problems.add(path, ": more questions like these");
  };
  try {
    const std::unique_ptr<InputStream> stream = open_input(path);
    InputBuffer buffer(*stream);
    std::istream input(&buffer);
    // Each element of the list is handled and freed when it ends.
    const nlohmann::json rest = nlohmann::json::parse(input, [&](int depth, nlohmann::json::parse_event_t event,
                                                                 nlohmann::json& row) {
      if (depth != 1 ||
          (event != nlohmann::json::parse_event_t::object_end && event != nlohmann::json::parse_event_t::value))
        return true;
      ++number;
      try {
        if (const std::string lack = take_example(row, keep, examples); !lack.empty()) refuse(lack);
      } catch (const nlohmann::json::exception& error) {
        refuse(concat("expected question, positive_ctxs, hard_negative_ctxs and negative_ctxs with title and text: ",
                      error.what()));
      }
      return false;
    });
    if (!rest.is_array())
      problems.add(path, ": expected a JSON list of questions as DPR has it, found ", rest.type_name());
  } catch (const nlohmann::json::exception& error) {
    problems.add(path, ": expected a JSON list of questions as DPR has it: ", error.what());
  } catch (const UserError& unreadable) {
    problems.add(unreadable.what());
  }
  if (examples.size() == before && num_bad == 0 && problems.empty()) problems.add(path, " holds no questions");
}

}  // namespace espalier::data
