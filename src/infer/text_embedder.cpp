#include "infer/text_embedder.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread_pool.h"

namespace espalier::infer {
namespace {

constexpr int64_t kUsualLength = 256;  // upstream's default

data::SentenceVocabulary vocabulary_of(const text::Tokenizer& tokenizer) {
  Problems problems;
  data::SentenceVocabulary vocabulary = data::SentenceVocabulary::make(tokenizer, data::SentenceModel::kBert, problems);
  problems.raise(ExitCode::kBadData);
  return vocabulary;
}

}  // namespace

TextEmbedder::TextEmbedder(const Options& options)
    : threads_(options.threads),
      loaded_(load_text_encoder(options.load, options.step)),
      vocabulary_(vocabulary_of(*loaded_.tokenizer)),
      sequence_length_(options.sequence_length.value_or(std::min(kUsualLength, loaded_.encoder->max_positions()))) {
  if (sequence_length_ > loaded_.encoder->max_positions())
    throw UserError(concat("--retriever-seq-length ", sequence_length_, " is more than the ",
                           loaded_.encoder->max_positions(), " positions that the model of ", options.load,
                           " has learned; use ", loaded_.encoder->max_positions(), " or less"),
                    ExitCode::kUsage);
}

// The calling thread waits; each of the others takes the next text, so that long ones delay nothing.
void TextEmbedder::embed(size_t count, Side side, const IdsOf& ids_of, float* rows) const {
  const auto most = static_cast<size_t>(sequence_length_ - 1);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    at::set_num_threads(1);
    const std::unique_ptr<text::Encoder> encoder = loaded_.tokenizer->new_encoder();
    for (size_t at = next++; at < count; at = next++) {
      std::vector<int32_t> ids = {vocabulary_.cls};
      ids_of(*encoder, at, ids);
      ids.resize(std::min(ids.size(), most));
      ids.push_back(vocabulary_.sep);
      const at::Tensor vector = loaded_.encoder->embed(at::tensor(ids, at::kInt).to(at::kLong), side).contiguous();
      std::memcpy(rows + static_cast<int64_t>(at) * dimension(), vector.const_data_ptr(), vector.nbytes());
    }
  };
  ThreadPool pool(threads_);
  std::vector<std::future<void>> parts;
  for (int thread = 0; thread < threads_; ++thread) parts.push_back(pool.submit(work));
  for (std::future<void>& part : parts) part.get();
}

void TextEmbedder::embed_questions(const std::vector<std::string>& questions, float* rows) const {
  embed(
      questions.size(), Side::kQuery,
      [&](text::Encoder& encoder, size_t at, std::vector<int32_t>& ids) { encoder.encode(questions[at], ids); }, rows);
}

void TextEmbedder::embed_passages(const std::vector<Passage>& passages, float* rows) const {
  embed(
      passages.size(), Side::kContext,
      [&](text::Encoder& encoder, size_t at, std::vector<int32_t>& ids) {
        encoder.encode(passages[at].title, ids);
        ids.push_back(vocabulary_.sep);
        encoder.encode(passages[at].text, ids);
      },
      rows);
}

std::string TextEmbedder::fingerprint() const {
  Hasher hasher;
  for (const tensor::Param& param : loaded_.params->params()) {
    hasher.update(param.spec->name.data(), param.spec->name.size());
    hasher.update(param.value.const_data_ptr(), param.value.nbytes());
  }
  const std::string tokenizer = loaded_.tokenizer->description();
  hasher.update(tokenizer.data(), tokenizer.size());
  hasher.update(&sequence_length_, sizeof sequence_length_);
  return hex64(hasher.digest());
}

}  // namespace espalier::infer
