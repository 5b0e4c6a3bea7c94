#include "data/sentence_sample.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "data/masked_lm.h"
#include "data/numpy_random.h"

namespace espalier::data {
namespace {

constexpr int64_t kNoLabel = -1;
constexpr double kSwapped = 0.5, kFromFront = 0.5;  // shares

// `values`, then `padding` up to the length of the field.
template <class Values>
void fill_padded(std::vector<int64_t>& array, int64_t length, const Values& values, int64_t padding) {
  ESPALIER_CHECK(static_cast<int64_t>(values.size()) <= length, values.size(), " of ", length);
  array.assign(static_cast<size_t>(length), padding);
  std::copy(values.begin(), values.end(), array.begin());
}

// Tokens begin to end - 1 of all sentences.
struct Half {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// In the order in which the sample has them.
struct Halves {
  Half a, b;  // without the binary head there is no second
  bool swapped = false, truncated = false;
};

// Takes one token after another off the longer half, at a random end.
bool truncate(Half& a, Half& b, int64_t target, NumpyRandom& random) {
  bool any = false;
  while (a.size() + b.size() > target) {
    Half& longer = a.size() > b.size() ? a : b;
    if (random.uniform() < kFromFront)
      ++longer.begin;
    else
      --longer.end;
    any = true;
  }
  return any;
}

// Draws what upstream draws before it masks.
Halves cut_halves(std::span<const int64_t> ends, int64_t target, bool binary_head, NumpyRandom& random) {
  Halves halves{.a = {0, ends.back()}, .b = {}};
  if (binary_head) {
    const auto num_sentences = static_cast<int64_t>(ends.size());
    ESPALIER_CHECK(num_sentences >= 2);
    const int64_t of_a = num_sentences >= 3 ? random.integer(1, num_sentences) : 1;
    const int64_t cut = ends[static_cast<size_t>(of_a - 1)];
    halves.a = {0, cut}, halves.b = {cut, ends.back()};
    halves.swapped = random.uniform() < kSwapped;
    if (halves.swapped) std::swap(halves.a, halves.b);
  }
  halves.truncated = truncate(halves.a, halves.b, target, random);
  return halves;
}

class BertSampleMaker final : public SentenceSampleMaker {
 public:
  explicit BertSampleMaker(const SentenceSampleOptions& options) : options_(options) {
    const std::vector<int64_t> row = {options.sequence_length};
    fields_ = {{"text", row},      {"types", row},        {"labels", row},  {"is_random", {}},
               {"loss_mask", row}, {"padding_mask", row}, {"truncated", {}}};
  }

  void make(const SentenceRun& run, Sample& sample) const override {
    NumpyRandom random(run.seed);
    const auto [a, b, swapped, truncated] = cut_halves(run.ends, run.target, options_.binary_head, random);
    const SentenceVocabulary& vocabulary = options_.vocabulary;
    std::vector<int32_t> ids = {vocabulary.cls};
    ids.insert(ids.end(), run.ids.begin() + a.begin, run.ids.begin() + a.end);
    ids.push_back(vocabulary.sep);
    std::vector<int64_t> types(ids.size(), 0);
    if (b.size() > 0) {
      ids.insert(ids.end(), run.ids.begin() + b.begin, run.ids.begin() + b.end);
      ids.push_back(vocabulary.sep);
      types.resize(ids.size(), 1);
    }
    const MaskingRequest masking{MaskingStyle::kBert, options_.mask_probability,
                                 options_.mask_probability * static_cast<double>(run.target)};
    store(ids, types, mask_text(ids, vocabulary, masking, random), sample);
    sample.arrays[3] = {swapped};
    sample.arrays[6] = {truncated};
  }

  std::vector<SentenceStretch> stretches(const SentenceRun& run) const override {
    NumpyRandom random(run.seed);
    const Halves halves = cut_halves(run.ends, run.target, options_.binary_head, random);
    // [CLS] A [SEP] B
    return {{halves.a.begin, halves.a.end, 1}, {halves.b.begin, halves.b.end, halves.a.size() + 2}};
  }

 private:
  void store(const std::vector<int32_t>& ids, const std::vector<int64_t>& types, const MaskedText& masked,
             Sample& sample) const {
    const int64_t length = options_.sequence_length;
    const int32_t pad = options_.vocabulary.pad;
    sample.arrays.resize(fields_.size());
    fill_padded(sample.arrays[0], length, masked.ids, pad);
    fill_padded(sample.arrays[1], length, types, pad);  // not 0: as upstream
    fill_padded(sample.arrays[5], length, std::vector<int64_t>(ids.size(), 1), 0);
    std::vector<int64_t>&labels = sample.arrays[2], &loss_mask = sample.arrays[4];
    labels.assign(static_cast<size_t>(length), kNoLabel);
    loss_mask.assign(static_cast<size_t>(length), 0);
    for (const int32_t position : masked.positions) {
      labels[static_cast<size_t>(position)] = ids[static_cast<size_t>(position)];
      loss_mask[static_cast<size_t>(position)] = 1;
    }
  }

  const SentenceSampleOptions options_;
};

class T5SampleMaker final : public SentenceSampleMaker {
 public:
  explicit T5SampleMaker(const SentenceSampleOptions& options) : options_(options) {
    const std::vector<int64_t> encoder = {options.sequence_length}, decoder = {options.decoder_sequence_length};
    fields_ = {
        {"text_enc", encoder}, {"text_dec", decoder}, {"labels", decoder}, {"loss_mask", decoder}, {"truncated", {}}};
  }

  void make(const SentenceRun& run, Sample& sample) const override {
    NumpyRandom random(run.seed);
    const bool truncated = static_cast<int64_t>(run.ids.size()) > run.target;
    const std::span<const int32_t> ids = truncated ? run.ids.first(static_cast<size_t>(run.target)) : run.ids;
    const SentenceVocabulary& vocabulary = options_.vocabulary;
    const MaskingRequest masking{MaskingStyle::kT5, options_.mask_probability,
                                 options_.mask_probability * static_cast<double>(run.target)};
    const MaskedText masked = mask_text(ids, vocabulary, masking, random);
    check_room(masked);

    std::vector<int32_t> encoder, decoder = {vocabulary.bos};
    size_t next = 0;  // of the tokens that the encoder sees
    for (size_t number = 0; number < masked.runs.size(); ++number) {
      const auto [begin, end] = masked.runs[number];
      const int32_t sentinel = vocabulary.sentinels[number];
      encoder.insert(encoder.end(), ids.begin() + static_cast<int64_t>(next), ids.begin() + masked.positions[begin]);
      encoder.push_back(sentinel);
      decoder.push_back(sentinel);
      for (size_t at = begin; at < end; ++at) decoder.push_back(ids[static_cast<size_t>(masked.positions[at])]);
      next = static_cast<size_t>(masked.positions[end - 1]) + 1;
    }
    encoder.insert(encoder.end(), ids.begin() + static_cast<int64_t>(next), ids.end());
    std::vector<int32_t> labels(decoder.begin() + 1, decoder.end());
    labels.push_back(vocabulary.eos);

    sample.arrays.resize(fields_.size());
    const int64_t length = options_.decoder_sequence_length;
    fill_padded(sample.arrays[0], options_.sequence_length, encoder, vocabulary.pad);
    fill_padded(sample.arrays[1], length, decoder, vocabulary.pad);
    fill_padded(sample.arrays[2], length, labels, kNoLabel);
    fill_padded(sample.arrays[3], length, std::vector<int64_t>(decoder.size(), 1), 0);
    sample.arrays[4] = {truncated};
  }

  std::vector<SentenceStretch> stretches(const SentenceRun& run) const override {
    return {{0, std::min(run.ends.back(), run.target), 0}};
  }

 private:
  void check_room(const MaskedText& masked) const {
    const size_t num_runs = masked.runs.size(), num_sentinels = options_.vocabulary.sentinels.size();
    if (num_runs > num_sentinels)
      throw UserError(concat("a sample of T5 leaves out ", num_runs, " runs of tokens, and the vocabulary has ",
                             num_sentinels, " tokens <extra_id_N> to mark them. Give --vocab-extra-ids ",
                             std::max<size_t>(100, 2 * num_runs), " or a smaller --mask-prob."),
                      ExitCode::kUsage);
    const auto needed = static_cast<int64_t>(1 + num_runs + masked.positions.size());
    if (needed > options_.decoder_sequence_length)
      throw UserError(concat("a sample of T5 needs ", needed, " tokens in its decoder (1 to begin, ", num_runs,
                             " sentinels, ", masked.positions.size(), " masked tokens), and --decoder-seq-length is ",
                             options_.decoder_sequence_length, ". Raise it, or lower --mask-prob."),
                      ExitCode::kUsage);
  }

  const SentenceSampleOptions options_;
};

}  // namespace

void SentenceSampleOptions::check(Problems& problems) const {
  const int64_t shortest = sequence_length - max_length() + 2;
  if (sequence_length < shortest)
    problems.add("--seq-length ", sequence_length, ": ", name_of(model), " needs at least ", shortest,
                 ": 2 tokens besides its special ones");
  if (!(mask_probability > 0 && mask_probability <= 1))
    problems.add("--mask-prob ", format_shortest(mask_probability), ": expected a share above 0, up to 1");
  if (!(short_probability >= 0 && short_probability <= 1))
    problems.add("--short-seq-prob ", format_shortest(short_probability), ": expected a share from 0 to 1");
  if (sequence_length < shortest || !(mask_probability > 0)) return;
  // Upstream never masks more than this share of a full sample, rounded down.
  const auto most_masked = static_cast<int64_t>(mask_probability * static_cast<double>(max_length()));
  if (most_masked == 0)
    problems.add("--mask-prob ", format_shortest(mask_probability), " of the ", max_length(),
                 " tokens of a sample (--seq-length ", sequence_length,
                 ") is less than one token: none would ever be masked. Use ",
                 format_shortest(std::ceil(100.0 / static_cast<double>(max_length())) / 100),
                 " or more, or longer samples");
  if (model != SentenceModel::kT5 || decoder_sequence_length <= 0) return;
  const int64_t needed = 2 + most_masked;  // with what begins, and one sentinel at least
  if (decoder_sequence_length < needed)
    problems.add("--decoder-seq-length ", decoder_sequence_length, ": a sample of --seq-length ", sequence_length,
                 " with --mask-prob ", format_shortest(mask_probability), " needs at least ", needed,
                 "; 3 sentinels for 10 masked tokens are usual");
}

std::string SentenceSampleOptions::caution() const {
  if (model != SentenceModel::kT5) return "";
  // Runs have several tokens; few samples have more of them than this, and how many is known when they are read.
  const auto most_masked = static_cast<int64_t>(mask_probability * static_cast<double>(max_length()));
  const int64_t many_runs = std::min(most_masked, most_masked / 2 + 3);
  std::vector<std::string> scarce;
  if (static_cast<int64_t>(vocabulary.sentinels.size()) < many_runs)
    scarce.push_back(concat(vocabulary.sentinels.size(), " sentinels (--vocab-extra-ids)"));
  if (decoder_sequence_length < 1 + many_runs + most_masked)
    scarce.push_back(concat("a decoder of ", decoder_sequence_length, " tokens (--decoder-seq-length)"));
  if (scarce.empty()) return "";
  return concat("a sample may leave out ", most_masked, " tokens in ", many_runs, " runs, or in rare cases more. With ",
                join(scarce, " and "), " the run ends when it reads one that needs more; ", many_runs,
                " sentinels and ", 1 + many_runs + most_masked, " tokens are on the safe side");
}

std::string SentenceSampleOptions::description() const {
  std::string text = name_of(model);
  text += concat(" of ", sequence_length);
  if (model == SentenceModel::kT5)
    text += concat(" and ", decoder_sequence_length);
  else
    text += concat(binary_head ? " with" : " without", " binary head");
  text += concat(", masked ", format_shortest(mask_probability), ", short ", format_shortest(short_probability));
  if (vocabulary.size == 0) return text;  // only the map is wanted
  text += concat(", vocabulary ", vocabulary.size);
  if (model == SentenceModel::kT5)
    return text + concat(", decoder begins with ", vocabulary.bos, " and ends with ", vocabulary.eos, ", ",
                         vocabulary.sentinels.size(), " sentinels");
  return text;
}

std::unique_ptr<const SentenceSampleMaker> SentenceSampleMaker::create(const SentenceSampleOptions& options) {
  if (options.model == SentenceModel::kBert) return std::make_unique<BertSampleMaker>(options);
  ESPALIER_CHECK(options.decoder_sequence_length > 0);
  return std::make_unique<T5SampleMaker>(options);
}

}  // namespace espalier::data
