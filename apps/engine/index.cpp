#include "apps/engine/index.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/engine/passages.h"
#include "apps/options/index_options.h"
#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/pending_tree.h"
#include "data/line_reader.h"
#include "retrieval/questions.h"
#include "text/python_text.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

retrieval::BuildSummary embed_evidence(const infer::TextEmbedder& embedder, const IndexEmbedOptions& options) {
  PassageVectors passages(embedder, options.evidence, options.log_interval);
  return build_index(passages, options.plan);
}

std::vector<float> vectors_of(const infer::TextEmbedder& embedder, const std::vector<std::string>& questions) {
  std::vector<float> rows(questions.size() * static_cast<size_t>(embedder.dimension()));
  embedder.embed_questions(questions, rows.data());
  return rows;
}

std::vector<std::string> questions_of(const IndexSearchOptions& options) {
  if (options.questions.empty()) return options.question;
  std::vector<std::string> questions;
  data::LineReader lines({options.questions});
  for (std::string_view line; lines.next(line);) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) questions.emplace_back(line);
  }
  if (questions.empty())
    throw UserError(concat("--questions ", options.questions, " holds no questions"), ExitCode::kBadData);
  return questions;
}

// Of one file of questions.
struct Evaluation {
  const char* split = "";  // "DEV"
  std::vector<retrieval::Question> questions;
  std::vector<std::vector<retrieval::Hit>> found;  // of each
  std::vector<int64_t> top_k_hits = {};
  std::optional<double> recall = {};  // of an approximate search, against the exact one
};

// Problems with a file of questions are reported before anything is embedded.
std::vector<Evaluation> read_evaluations(const IndexEvaluateOptions& options) {
  std::vector<Evaluation> evaluations;
  for (const auto& [split, file] : {std::pair("DEV", options.qa_data_dev), std::pair("TEST", options.qa_data_test)})
    if (!file.empty())
      evaluations.push_back({.split = split, .questions = retrieval::read_questions(file), .found = {}});
  return evaluations;
}

void ask(Evaluation& evaluation, const infer::TextEmbedder& embedder, const retrieval::IndexFacts& index,
         const retrieval::SearchPlan& plan) {
  std::vector<std::string> texts;
  for (const retrieval::Question& question : evaluation.questions) texts.push_back(question.text);
  const std::vector<float> rows = vectors_of(embedder, texts);
  const auto count = static_cast<int64_t>(texts.size());
  evaluation.found = search(index, rows.data(), count, plan);
  if (plan.trained == nullptr) return;
  evaluation.recall = retrieval::measure_recall(index, rows.data(), count, plan, &evaluation.found);
  log_info(evaluation.split, ": recall@", plan.count, format_printf(" %.4f", *evaluation.recall),
           " of the approximate search against the exact one");
}

// One pass over the passages for all files keeps only the texts that were found.
void match_answers(const IndexEvaluateOptions& options, std::vector<Evaluation>& evaluations) {
  std::vector<int64_t> ids;
  for (const Evaluation& evaluation : evaluations)
    for (const auto& hits : evaluation.found)
      for (const retrieval::Hit& hit : hits) ids.push_back(hit.id);
  const auto passages = retrieval::read_passages(options.embed.evidence, ids);
  for (Evaluation& evaluation : evaluations) {
    std::vector<std::vector<bool>> hits_of_questions;
    for (size_t at = 0; at < evaluation.questions.size(); ++at) {
      const retrieval::AnswerMatcher matcher(options.match, evaluation.questions[at].answers);
      std::vector<bool>& hits = hits_of_questions.emplace_back();
      for (const retrieval::Hit& hit : evaluation.found[at]) hits.push_back(matcher.matches(passages.at(hit.id).text));
    }
    evaluation.top_k_hits = retrieval::top_k_hits(hits_of_questions);
  }
}

double share(const Evaluation& evaluation, int64_t k) {
  const auto place = std::min(static_cast<size_t>(k), evaluation.top_k_hits.size());
  return static_cast<double>(evaluation.top_k_hits[place - 1]) / static_cast<double>(evaluation.questions.size());
}

// The lines are upstream's.
void print_evaluation(const Evaluation& evaluation, const IndexEvaluateOptions& options) {
  std::vector<std::string> counts, shares;
  for (size_t place = 1; place <= evaluation.top_k_hits.size(); ++place) {
    counts.push_back(std::to_string(evaluation.top_k_hits[place - 1]));
    shares.push_back(text::python::repr(share(evaluation, static_cast<int64_t>(place))));
  }
  std::printf("%s SET RESULTS\ntopk-%lld documents hits [%s]\ntop-k documents hits accuracy [%s]\n", evaluation.split,
              static_cast<long long>(options.search.count), join(counts, ", ").c_str(), join(shares, ", ").c_str());
  for (const int64_t k : options.topk_accuracies)
    std::printf("top-%lld: %.2f\n", static_cast<long long>(k), 100 * share(evaluation, k));
}

Json to_json(const Evaluation& evaluation, const IndexEvaluateOptions& options) {
  Json accuracies = Json::object();
  for (const int64_t k : options.topk_accuracies) accuracies[concat("top", k)] = share(evaluation, k);
  Json json = {{"set", evaluation.split},
               {"questions", evaluation.questions.size()},
               {"hits", evaluation.top_k_hits},
               {"accuracy", std::move(accuracies)}};
  if (evaluation.recall) json["recall"] = *evaluation.recall;
  return json;
}

}  // namespace

int index_embed(const std::vector<std::string>& arguments) {
  IndexEmbedOptions options;
  if (!read_index_embed_options(arguments, options, /*says_notes=*/false)) return 0;
  clean_up_when_interrupted(kResumes);
  const infer::TextEmbedder embedder = embedder_of(options.encoder);
  print_build_summary(embed_evidence(embedder, options), options.json);
  return 0;
}

int index_search(const std::vector<std::string>& arguments) {
  IndexSearchOptions options;
  if (!read_index_search_options(arguments, options, /*says_notes=*/false)) return 0;
  const retrieval::IndexFacts index = retrieval::read_index(options.folder);
  const infer::TextEmbedder embedder = embedder_of(options.encoder);
  check_encoder(embedder, options.encoder, index, options.folder);
  Queries queries{.rows = {}, .ids = {}, .texts = questions_of(options)};
  for (size_t at = 0; at < queries.texts.size(); ++at) queries.ids.push_back(static_cast<int64_t>(at));
  queries.rows = vectors_of(embedder, queries.texts);
  search_and_print(options, index, queries);
  return 0;
}

int index_evaluate(const std::vector<std::string>& arguments) {
  IndexEvaluateOptions options;
  if (!read_index_evaluate_options(arguments, options, /*says_notes=*/false)) return 0;
  clean_up_when_interrupted(kResumes);
  std::vector<Evaluation> evaluations = read_evaluations(options);
  const infer::TextEmbedder embedder = embedder_of(options.embed.encoder);
  const std::string folder = options.embed.plan.folder;
  const bool is_new = !retrieval::has_index(folder) || options.embed.plan.overwrite;
  if (is_new) print_build_summary(embed_evidence(embedder, options.embed), false);
  const retrieval::IndexFacts index = retrieval::read_index(folder);
  check_encoder(embedder, options.embed.encoder, index, folder);
  if (!is_new)
    check_evidence(retrieval::list_passages(options.embed.evidence).fingerprint, options.embed.evidence, index, folder);
  retrieval::SearchPlan plan = options.search;
  plan.trained = open_trained(index, folder, options.probes);
  for (Evaluation& evaluation : evaluations) ask(evaluation, embedder, index, plan);
  match_answers(options, evaluations);
  for (const Evaluation& evaluation : evaluations) {
    if (options.json)
      print_json(to_json(evaluation, options));
    else
      print_evaluation(evaluation, options);
  }
  return 0;
}

}  // namespace espalier
