#include "data/question_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/python_random.h"

namespace espalier::data {
namespace {

// [CLS] ids [SEP], cut and filled up, appended to both.
void append_row(const QuestionSampleOptions& options, const std::vector<int32_t>& ids, std::vector<int64_t>& tokens,
                std::vector<int64_t>& mask) {
  const size_t length = static_cast<size_t>(options.sequence_length), end = tokens.size() + length;
  tokens.push_back(options.cls);
  tokens.insert(tokens.end(), ids.begin(), ids.begin() + static_cast<int64_t>(std::min(ids.size(), length - 2)));
  tokens.push_back(options.sep);
  mask.resize(tokens.size(), 1);
  tokens.resize(end, options.pad);
  mask.resize(end, 0);
}

}  // namespace

KeptPassages QuestionSampleOptions::kept() const {
  if (draws)  // of the hard ones all, of which others are drawn each time
    return {.hard_negatives = hard_negatives > 0 ? SIZE_MAX : 0,
            .negatives = static_cast<size_t>(hard_negatives),
            .negatives_fill_up = true};
  return {.hard_negatives = static_cast<size_t>(hard_negatives), .negatives = static_cast<size_t>(negatives)};
}

QuestionDataset::QuestionDataset(QuestionSet set, const QuestionSampleOptions& options, const TaskEpochs& epochs,
                                 const text::Tokenizer& tokenizer)
    : set_(std::move(set)),
      options_(options),
      tokenizer_(tokenizer),
      source_names_{set_.name},
      order_(static_cast<int64_t>(set_.examples.size()), options.seed, epochs) {
  const std::vector<int64_t> row = {options.sequence_length}, rows = {options.num_contexts(), options.sequence_length};
  fields_ = {{"query_tokens", row, true}, {"query_pad_mask", row}, {"context_tokens", rows, true},
             {"context_pad_mask", rows},  {"number", {}},          {"counts", {}}};
}

std::vector<const PassageText*> QuestionDataset::contexts_of(const QuestionExample& example, int64_t number) const {
  std::vector<const PassageText*> contexts = {&example.answer};
  const auto take = [&](const std::vector<PassageText>& from, std::vector<size_t> which, int64_t most) {
    for (size_t at = 0; at < which.size() && most > 0; ++at, --most) contexts.push_back(&from[which[at]]);
  };
  const auto count = [](const std::vector<PassageText>& of) { return of.size(); };
  if (!options_.draws) {
    const auto in_order = [](size_t size) {
      std::vector<size_t> all(size);
      for (size_t at = 0; at < size; ++at) all[at] = at;
      return all;
    };
    take(example.negatives, in_order(count(example.negatives)), options_.negatives);
    take(example.hard_negatives, in_order(count(example.hard_negatives)), options_.hard_negatives);
    return contexts;
  }
  const int64_t key[] = {options_.seed, number};
  Hasher hasher;
  hasher.update(key, sizeof key);
  PythonRandom random(hasher.digest());
  const auto draw = [&](const std::vector<PassageText>& from) {
    const int64_t wanted = options_.hard_negatives + 1 - static_cast<int64_t>(contexts.size());
    const size_t drawn = std::min(from.size(), static_cast<size_t>(wanted));
    take(from, random.sample(from.size(), drawn), wanted);
  };
  draw(example.hard_negatives);
  draw(example.negatives);
  return contexts;
}

void QuestionDataset::read(int64_t number, Sample& sample) const {
  const EpochOrder::Place place = order_.at(number);
  const QuestionExample& example = set_.examples[place.example];
  sample.source = 0;
  sample.arrays.assign(fields_.size(), {});
  append_row(options_, tokenizer_.encode(example.question), sample.arrays[kQueryTokens], sample.arrays[kQueryPadMask]);
  for (const PassageText* context : contexts_of(example, number)) {
    std::vector<int32_t> ids = tokenizer_.encode(context->title);
    ids.push_back(options_.sep);
    const std::vector<int32_t> text = tokenizer_.encode(context->text);
    ids.insert(ids.end(), text.begin(), text.end());
    append_row(options_, ids, sample.arrays[kContextTokens], sample.arrays[kContextPadMask]);
  }
  const auto size = static_cast<size_t>(options_.num_contexts() * options_.sequence_length);
  sample.arrays[kContextTokens].resize(size, options_.pad);
  sample.arrays[kContextPadMask].resize(size, 0);
  sample.arrays[kNumber] = {static_cast<int64_t>(place.example)};
  sample.arrays[kCounts] = {place.counts};
}

std::string QuestionDataset::description() const {
  return concat(" > questions of ", set_.name, ": ", format_count(static_cast<int64_t>(set_.examples.size())),
                ", each with ", format_counted(options_.num_contexts(), "passage"), order_.description());
}

OrderFingerprint QuestionDataset::fingerprint(const std::string& reading) const {
  Hasher texts;
  const auto add = [&](const std::string& text) {
    texts.update(text.data(), text.size());
    texts.update("\n", 1);
  };
  const auto add_passage = [&](const PassageText& passage) {
    add(passage.title);
    add(passage.text);
  };
  for (const QuestionExample& example : set_.examples) {
    add(example.question);
    add_passage(example.answer);
    for (const PassageText& passage : example.hard_negatives) add_passage(passage);
    for (const PassageText& passage : example.negatives) add_passage(passage);
  }
  const auto examples = static_cast<int64_t>(set_.examples.size());
  OrderOfPart part;
  part.prefix = set_.paths.empty() ? set_.name : set_.paths.front();
  part.documents = {0, examples};
  part.num_samples_asked = order_.size();
  part.num_epochs = order_.epochs().num_epochs;
  part.num_samples = examples;
  part.tokens_hash = texts.digest();
  return {options_.sequence_length,
          options_.seed,
          concat(reading, ", questions with ", options_.hard_negatives, " hard negatives in steps of ",
                 order_.epochs().global_batch_size, order_.epochs().keep_last ? ", with what is left of an epoch" : ""),
          {part}};
}

}  // namespace espalier::data
