#include "infer/read_neighbors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "infer/engine/token_score.h"

namespace espalier::infer {
namespace {

// A text that is read and written.
class Text {
 public:
  Text(const models::Decoder& model, at::ScalarType type, int64_t capacity, const FindNeighbors& find)
      : model_(model), reader_(*model.neighbor_reader()), find_(find) {
    read_.cache = models::new_cache(model.decoder_shape(), type, 1, capacity);
  }

  // Logits after the last of `news`, [V].
  at::Tensor add(std::span<const int32_t> news, std::vector<std::vector<int64_t>>& found) {
    const auto m = static_cast<size_t>(reader_.neighbor_shape().chunk_length);
    const size_t begin = ids_.size() / m * m;
    ids_.insert(ids_.end(), news.begin(), news.end());
    std::vector<models::ChunkNeighbors> neighbors;
    if (const size_t end = ids_.size() / m * m; end > begin)
      neighbors = find_(std::span<const int32_t>(ids_).subspan(begin, end - begin));
    for (const models::ChunkNeighbors& of_chunk : neighbors) found.push_back(of_chunk.ids);
    const at::Tensor ids = at::tensor(std::vector<int64_t>(news.begin(), news.end()), at::kLong).unsqueeze(0);
    const at::Tensor hidden = reader_.read_on(ids, neighbors, read_);
    return model_.logits(hidden[hidden.size(0) - 1]).contiguous();
  }

 private:
  const models::Decoder& model_;
  const models::NeighborReader& reader_;
  const FindNeighbors& find_;
  models::ReadText read_;
  std::vector<int32_t> ids_;
};

}  // namespace

FindNeighbors neighbors_of(std::shared_ptr<const retrieval::ChunkSearch> search, const models::NeighborShape& shape) {
  return [search = std::move(search), shape](std::span<const int32_t> ids) {
    const retrieval::ChunkDatabase& chunks = search->chunks();
    const int64_t length = shape.num_retrieved_chunks * shape.chunk_length;
    std::vector<models::ChunkNeighbors> all;
    for (std::vector<int64_t>& found : search->find(std::vector<int64_t>(ids.begin(), ids.end()))) {
      models::ChunkNeighbors& neighbors = all.emplace_back();
      neighbors.tokens.assign(static_cast<size_t>(shape.num_neighbors * length), chunks.end_of_document());
      neighbors.count = static_cast<int64_t>(found.size());
      ESPALIER_CHECK(neighbors.count <= shape.num_neighbors, neighbors.count);
      for (size_t place = 0; place < found.size(); ++place)
        chunks.read(chunks.place(found[place]), shape.num_retrieved_chunks,
                    neighbors.tokens.data() + static_cast<int64_t>(place) * length);
      neighbors.ids = std::move(found);
    }
    return all;
  };
}

Generated read_and_continue(const models::Decoder& model, at::ScalarType compute_type,
                            const std::vector<int32_t>& prompt, const GenerateConfig& config, int64_t row,
                            const TokenCallback& on_token) {
  ESPALIER_CHECK(model.neighbor_reader() != nullptr && !prompt.empty(), prompt.size(), " tokens");
  const auto size = static_cast<int64_t>(prompt.size());
  Text text(model, compute_type, size + config.tokens_to_generate, config.find_neighbors);
  Generated result{prompt, {}, {}};
  at::Tensor logits = text.add(prompt, result.neighbors);
  while (true) {
    const SampledToken token = sample_token(logits.const_data_ptr<float>(), model.decoder_shape().vocab_size,
                                            config.sampling, row, static_cast<int64_t>(result.generated_ids.size()));
    result.generated_ids.push_back(token.id);
    result.logprobs.push_back(token.log_probability);
    if (on_token) on_token(static_cast<size_t>(row), token.id);
    const bool stops = std::find(config.stop_ids.begin(), config.stop_ids.end(), token.id) != config.stop_ids.end();
    if (stops || static_cast<int64_t>(result.generated_ids.size()) == config.tokens_to_generate) return result;
    logits = text.add({&result.generated_ids.back(), 1}, result.neighbors);
  }
}

LogLikelihood score_with_neighbors(const models::Decoder& model, at::ScalarType compute_type,
                                   std::span<const int32_t> ids, int64_t num_predicted,
                                   const std::vector<models::ChunkNeighbors>& neighbors) {
  constexpr int64_t kRowsAtOnce = 256;  // of logits
  const models::NeighborReader* const reader = model.neighbor_reader();
  const int64_t num_read = static_cast<int64_t>(ids.size()) - 1, first = num_read - num_predicted;
  ESPALIER_CHECK(reader != nullptr && num_predicted > 0 && first >= 0, num_predicted, " of ", ids.size(), " tokens");
  models::ReadText text;
  text.cache = models::new_cache(model.decoder_shape(), compute_type, 1, num_read);
  const at::Tensor row = at::empty({1, num_read}, at::kLong);
  std::copy_n(ids.begin(), num_read, row.mutable_data_ptr<int64_t>());
  const at::Tensor hidden = reader->read_on(row, neighbors, text);
  const int64_t vocab_size = model.decoder_shape().vocab_size;
  LogLikelihood likelihood;
  for (int64_t begin = first; begin < num_read; begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, num_read - begin);
    const at::Tensor logits = model.logits(hidden.narrow(0, begin, count)).view({count, -1}).contiguous();
    for (int64_t place = 0; place < count; ++place) {
      const float* const values = logits.const_data_ptr<float>() + place * logits.size(1);
      const double normalizer = log_normalizer(values, vocab_size);
      if (!std::isfinite(normalizer))
        throw UserError(concat("the logits after token ", begin + place, " of a text are not finite numbers"));
      const TokenScore score = score_token(values, vocab_size, normalizer, ids[static_cast<size_t>(begin + place + 1)],
                                           /*num_alternatives=*/0);
      likelihood.sum += score.log_probability;
      likelihood.is_greedy = likelihood.is_greedy && score.is_greedy;
    }
  }
  return likelihood;
}

}  // namespace espalier::infer
