#include "eval/zero_shot.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "eval/detokenizers.h"
#include "eval/scores.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::eval {
namespace {

using text::python::repr;
using text::python::split_words;
using text::python::strip;

constexpr const char* kLossMetric = "avg_loss";

constexpr double kLargestExponent = 20;  // upstream's bound, so that a bad model has a perplexity

double bounded_exp(double value) { return std::exp(std::min(kLargestExponent, value)); }

// Of items whose value is a log-likelihood and whose reference the number of ids that it is of.
double loss_of(const Items& items) {
  double sum = 0, count = 0;
  for (const Item& item : items) {
    sum -= item.value;
    count += item.reference;
  }
  return sum / count;
}

Aggregation of_loss(const std::string& name, std::function<double(double)> value) {
  return {name, [value = std::move(value)](const Items& items) { return value(loss_of(items)); }, nullptr,
          ItemForm::kValueAndWeight};
}

double sum_of(const Items& items) {
  double sum = 0;
  for (const Item& item : items) sum += item.value;
  return sum;
}

// `ratio`: ids per word, by which a loss per id becomes one per word.
std::vector<Metric> perplexity_metrics(double ratio) {
  return {
      {kLossMetric, false, take_log_likelihood, of_loss("loss", [](double loss) { return loss; })},
      {"ppl", false, take_log_likelihood, of_loss("perplexity", bounded_exp)},
      {"adjusted_ppl", false, take_log_likelihood,
       of_loss("word_perplexity", [ratio](double loss) { return bounded_exp(loss * ratio); })},
      {"token_ratio", false, take_log_likelihood, of_loss("ratio", [ratio](double) { return ratio; })},
  };
}

std::vector<Metric> accuracy_metrics() {
  return {
      {"number_correct", true, score_greedy, {"sum", sum_of, nullptr}},
      {"total_examples",
       true,
       score_greedy,
       {"count", [](const Items& items) { return static_cast<double>(items.size()); }, nullptr}},
      {"avg_accuracy", true, score_greedy, mean()},
  };
}

std::string read_text(const std::string& file) {
  std::string text = read_file(file);
  if (const size_t valid = text::valid_utf8_prefix(text); valid != text.size())
    throw UserError(concat("'", file, "': byte ", format_count(static_cast<int64_t>(valid) + 1), " is not UTF-8"),
                    ExitCode::kBadData);
  return text;
}

// Its braces, keys and escapes would be scored as text.
void refuse_jsonl(const std::string& file, const std::string& text) {
  const auto record = nlohmann::json::parse(text.substr(0, text.find('\n')), nullptr, /*allow_exceptions=*/false);
  if (record.is_object())
    throw UserError(
        concat("'", file, "' is JSONL, and ", kWikitext103, " reads text: jq -r .text '", file, "' > NEW converts it"),
        ExitCode::kBadData);
}

std::string detokenize(const std::string& text, Detokenizer detokenizer) {
  switch (detokenizer) {
    case Detokenizer::kWikitext: return detokenize_wikitext(text);
    case Detokenizer::kPennTreebank: return detokenize_penn_treebank(text);
    case Detokenizer::kNone: break;
  }
  return text;
}

Question ask_ids(std::vector<int32_t> context, std::vector<int32_t> continuation) {
  Question question;
  question.reference = static_cast<double>(continuation.size());
  question.requests = {
      {.kind = RequestKind::kTokens, .context_ids = std::move(context), .continuation_ids = std::move(continuation)}};
  return question;
}

PreparedTask prepare_corpus(const std::string& file, const ZeroShotOptions& options) {
  const Detokenizer detokenizer = options.detokenizer ? *options.detokenizer : detokenizer_for(file);
  const std::string text = read_text(file);
  refuse_jsonl(file, text);
  // Single blanks part words, so line ends stay inside them and two blanks hold an empty one, as upstream counts.
  const std::string_view stripped = strip(text);
  if (stripped.empty()) throw UserError(concat("'", file, "' is empty; expected text"), ExitCode::kBadData);
  const int64_t num_words = 1 + std::count(stripped.begin(), stripped.end(), ' ');
  const std::vector<int32_t> ids = options.tokenizer->encode(detokenize(text, detokenizer));
  const auto num_ids = static_cast<int64_t>(ids.size());
  if (num_ids < 2 || num_words < 2)
    throw UserError(concat("'", file, "' has ", format_counted(num_words, "word"), " and ",
                           format_counted(num_ids, "id"), "; a perplexity needs two of each"),
                    ExitCode::kBadData);
  PreparedTask prepared;
  prepared.task.name = kWikitext103;
  prepared.task.metrics = perplexity_metrics(static_cast<double>(num_ids - 1) / static_cast<double>(num_words - 1));
  for (const StreamWindow& window : overlapping_windows(num_ids, options.sequence_length, options.overlapping_eval)) {
    const auto begin = ids.begin() + window.begin, end = ids.begin() + window.end;
    prepared.questions.push_back(ask_ids({begin, end - window.num_predicted}, {end - window.num_predicted, end}));
    prepared.documents.push_back(
        {{{"begin", window.begin}, {"end", window.end}, {"detokenizer", name_of(detokenizer)}}, file});
  }
  prepared.num_available = static_cast<int64_t>(prepared.questions.size());
  return prepared;
}

Question ask_last_word(const Fields& document, const ZeroShotOptions& options) {
  const std::string text = document.text("text");
  if (!options.strict_lambada) {
    std::vector<int32_t> ids = options.tokenizer->encode(text);
    if (ids.size() < 2) document.refuse("field 'text' has fewer than two ids");
    const int32_t last = ids.back();
    ids.pop_back();
    return ask_ids(std::move(ids), {last});
  }
  const std::vector<std::string_view> words = split_words(text);
  if (words.size() < 2) document.refuse("field 'text' has fewer than two words");
  const std::string word(words.back());
  const std::string context(strip(std::string_view(text).substr(0, text.rfind(word))));
  return ask_ids(options.tokenizer->encode(context), options.tokenizer->encode(" " + word));
}

PreparedTask prepare_last_words(const std::string& file, const ZeroShotOptions& options) {
  PreparedTask prepared;
  prepared.task.name = kZeroShotLambada;
  prepared.task.metrics = accuracy_metrics();
  prepared.documents = read_documents(file, {"text"});
  Problems problems;
  for (const Document& document : prepared.documents) {
    try {
      prepared.questions.push_back(ask_last_word(Fields(document.content, document.place), options));
    } catch (const UserError& error) {
      problems.add(error.what());
      if (problems.messages().size() == kMostProblems) break;
    }
  }
  problems.raise(ExitCode::kBadData);
  prepared.num_available = static_cast<int64_t>(prepared.questions.size());
  return prepared;
}

}  // namespace

const char* name_of(Detokenizer detokenizer) {
  switch (detokenizer) {
    case Detokenizer::kWikitext: return "wikitext";
    case Detokenizer::kPennTreebank: return "ptb";
    case Detokenizer::kNone: break;
  }
  return "none";
}

Detokenizer detokenizer_for(const std::string& path) {
  for (const auto& [part, detokenizer] : {std::pair{"ptb", Detokenizer::kPennTreebank},
                                          {"wiki", Detokenizer::kWikitext},
                                          {"lambada", Detokenizer::kNone}})
    if (path.find(part) != std::string::npos) return detokenizer;
  throw UserError(
      concat("'", path, "': the detokenizer is chosen by the path, which holds none of ptb, wiki and lambada; give ",
             "--detokenizer wikitext, ptb or none"),
      ExitCode::kUsage);
}

std::vector<StreamWindow> overlapping_windows(int64_t num_ids, int64_t sequence_length, int64_t overlapping_eval) {
  ESPALIER_CHECK(overlapping_eval >= 1 && overlapping_eval <= sequence_length, overlapping_eval);
  std::vector<StreamWindow> windows;
  for (int64_t counted = 1, begin = 0; counted < num_ids; begin += overlapping_eval) {
    const int64_t end = std::min(begin + sequence_length + 1, num_ids);
    windows.push_back({begin, end, end - counted});
    counted = end;
  }
  return windows;
}

std::vector<Task> zero_shot_tasks() {
  std::vector<Task> tasks(2);
  for (Task& task : tasks) task.set = "megatron";
  tasks[0].name = kWikitext103;
  tasks[0].data = {"wiki.test.tokens of WikiText-103, or another corpus: text, not JSONL",
                   "test",
                   0,
                   {},
                   {"wikitext103.txt", "wikitext103.tokens", "wiki.test.tokens", "wikitext-103/wiki.test.tokens"}};
  tasks[1].name = kZeroShotLambada;
  tasks[1].data = {"lambada_test.jsonl of OpenAI", "test", 5153, {"text"}, {"lambada_test.jsonl", "lambada.jsonl"}};
  return tasks;
}

PreparedTask prepare_zero_shot(const std::string& task, const std::string& file, const ZeroShotOptions& options) {
  return task == kWikitext103 ? prepare_corpus(file, options) : prepare_last_words(file, options);
}

std::string zero_shot_report(const TaskResult& result) {
  const auto figure = [](double value) { return format_printf("%.4E", value); };
  const std::vector<MetricResult>& metrics = result.metrics;
  const bool is_corpus = metrics[0].name == kLossMetric;
  const std::string line =
      concat(" validation results on ", is_corpus ? kWikitext103 : kZeroShotLambada, " | ") +
      (is_corpus
           ? concat("avg loss: ", figure(metrics[0].value), " | ppl: ", figure(metrics[1].value),
                    " | adjusted ppl: ", figure(metrics[2].value), " | token ratio: ", repr(metrics[3].value), " |")
           : concat("number correct: ", figure(metrics[0].value), " | total examples: ", figure(metrics[1].value),
                    " | avg accuracy: ", figure(metrics[2].value)));
  const std::string dashes(line.size() + 1, '-');
  return dashes + "\n" + line + "\n" + dashes + "\n";
}

}  // namespace espalier::eval
