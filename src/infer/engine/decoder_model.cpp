#include "infer/engine/decoder_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "kernels/paged_attention.h"

namespace espalier::infer {
namespace {

int64_t num_tokens_of(std::span<const TokenRun> runs) {
  int64_t count = 0;
  for (const TokenRun& run : runs) count += static_cast<int64_t>(run.ids.size());
  return count;
}

// The rows after which logits are wanted.
at::Tensor wanted_rows(std::span<const TokenRun> runs) {
  std::vector<int64_t> rows;
  int64_t end = 0;
  for (const TokenRun& run : runs) {
    end += static_cast<int64_t>(run.ids.size());
    for (int64_t row = end - run.num_logits; row < end; ++row) rows.push_back(row);
  }
  return at::tensor(rows, at::kLong);
}

}  // namespace

int64_t page_bytes(const models::DecoderShape& shape, const Weights& weights, int64_t page_tokens) {
  return 2 * (shape.num_layers - shape.first_layer) * shape.num_groups *
         kernels::page_elements(weights.device, weights.type, page_tokens, shape.head_size) *
         static_cast<int64_t>(c10::elementSize(weights.type));
}

DecoderModel::DecoderModel(const models::Decoder& model, const Weights& weights, const DecoderModelConfig& config,
                           const dist::Group& ranks)
    : model_(model), ranks_(ranks), shape_(model.decoder_shape()), device_(weights.device), config_(config) {
  ESPALIER_CHECK(config.num_pages > 0 && config.page_tokens > 0, config.num_pages, " pages of ", config.page_tokens);
  if (const int64_t most = kernels::max_paged_head_size(device_); shape_.head_size > most)
    throw UserError(concat("the model's heads have ", shape_.head_size,
                           " channels; generation and scoring take at most ", most,
                           device_.is_cpu() ? "" : " on a GPU: give --device cpu"));
  const int64_t all = config.num_pages * config.page_tokens;
  if (config_.max_positions == 0) config_.max_positions = all;
  config_.max_positions = std::min(config_.max_positions, all);
  if (shape_.max_positions > 0) config_.max_positions = std::min(config_.max_positions, shape_.max_positions);
  pages_.page_tokens = config.page_tokens;
  pages_.capacity = config_.max_positions;
  // On the CPU pages are touched when they are first written: unused ones cost no memory.
  const int64_t elements = kernels::page_elements(weights.device, weights.type, config.page_tokens, shape_.head_size);
  const auto part = [&] {
    return at::empty({config.num_pages, shape_.num_groups, elements},
                     at::TensorOptions().dtype(weights.type).device(weights.device));
  };
  pages_.layers.resize(static_cast<size_t>(shape_.num_layers));
  for (int64_t layer = shape_.first_layer; layer < shape_.num_layers; ++layer)
    pages_.layers[static_cast<size_t>(layer)] = {part(), part()};
  read_pages_.page_tokens = config.page_tokens;
  read_pages_.layers.resize(pages_.layers.size());
}

BatchModelShape DecoderModel::shape() const {
  return {.vocab_size = shape_.vocab_size,
          .page_tokens = config_.page_tokens,
          .num_pages = config_.num_pages,
          .max_positions = config_.max_positions,
          .short_positions = shape_.short_positions,
          .whole_prompt = shape_.whole_prompt,
          .has_encoder = shape_.first_layer > 0,
          .encoder_positions = shape_.first_layer > 0 ? shape_.max_positions : 0};
}

std::pair<at::Tensor, at::Tensor> DecoderModel::inputs_of(std::span<const TokenRun> runs) {
  const int64_t count = num_tokens_of(runs);
  at::Tensor ids = at::empty({1, count}, at::kLong), positions = at::empty({1, count}, at::kLong);
  int64_t* const id = ids.mutable_data_ptr<int64_t>();
  int64_t* const position = positions.mutable_data_ptr<int64_t>();
  pages_.tokens.clear();
  read_pages_.tokens.clear();
  for (const TokenRun& run : runs) {
    const int64_t length = static_cast<int64_t>(run.ids.size()), end = run.first_position + length;
    ESPALIER_CHECK(length > 0 && end <= config_.max_positions && run.num_logits <= length &&
                       end <= static_cast<int64_t>(run.pages.size()) * config_.page_tokens,
                   length, " tokens from position ", run.first_position, " in ", run.pages.size(), " pages");
    ESPALIER_CHECK((run.encoded >= 0) == (shape_.first_layer > 0), "encoded: ", run.encoded);
    const Read* const read = run.encoded < 0 ? nullptr : &read_.at(run.encoded);
    ESPALIER_CHECK(!run.whole || run.first_position == 0, "a prompt is seen whole in one run");
    for (int64_t i = 0; i < length; ++i) {
      const size_t row = pages_.tokens.size();
      id[row] = run.ids[static_cast<size_t>(i)];
      position[row] = run.first_position + i;
      pages_.tokens.push_back({run.pages.data(), static_cast<int32_t>(run.first_position + i),
                               static_cast<int32_t>(run.whole ? end - 1 : run.first_position + i), run.is_long});
      if (read != nullptr) read_pages_.tokens.push_back({read->pages.data(), 0, read->length - 1, false});
    }
  }
  kernels::send_tokens(pages_);
  if (shape_.first_layer > 0) kernels::send_tokens(read_pages_);
  return {ids.to(device_), positions.to(device_)};
}

void DecoderModel::forward(std::span<const TokenRun> runs, float* logits) {
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard on(device_);  // whatever thread calls
  const auto [ids, positions] = inputs_of(runs);
  nn::ForwardContext context{.attention = model_.attention_context()};
  context.attention.pages = &pages_;
  if (shape_.first_layer > 0) context.cross_attention.pages = &read_pages_;
  const at::Tensor hidden = model_.hidden_states(ids, positions, context).select(1, 0);  // [tokens, h]
  const at::Tensor rows = wanted_rows(runs);
  if (rows.numel() == 0) return;
  gather_logits(model_.logits(hidden.index_select(0, rows.to(device_))), logits);
}

void DecoderModel::gather_logits(const at::Tensor& part, float* logits) {
  const int64_t rows = part.size(0), size = ranks_.size();
  if (widest_ == 0) {
    const at::Tensor widest = at::full({1}, part.size(1), at::kLong);
    ranks_.all_reduce_max(widest);
    widest_ = widest.item<int64_t>();
  }
  const at::Tensor padded = size == 1 ? part.contiguous() : at::constant_pad_nd(part, {0, widest_ - part.size(1)});
  const at::Tensor all = ranks_.all_gather(padded).cpu();  // [ranks * rows, widest]
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t first = rank * widest_, count = std::min(widest_, shape_.vocab_size - first);
    for (int64_t row = 0; row < rows && count > 0; ++row)
      std::copy_n(all.const_data_ptr<float>() + (rank * rows + row) * widest_, count,
                  logits + row * shape_.vocab_size + first);
  }
}

// More pages where there are too few: those that there are keep their numbers.
std::vector<int32_t> DecoderModel::take_read_pages(size_t count) {
  if (free_read_pages_.size() < count) {
    const at::Tensor& old = read_pages_.layers.back().keys;
    const int64_t before = old.defined() ? old.size(0) : 0;
    const int64_t after = std::max(2 * before, before + static_cast<int64_t>(count));
    const auto grow = [&](at::Tensor& part, const at::Tensor& like) {
      const at::Tensor grown = at::empty({after, like.size(1), like.size(2)}, like.options());
      if (before > 0) grown.narrow(0, 0, before).copy_(part);
      part = grown;
    };
    for (size_t layer = static_cast<size_t>(shape_.first_layer); layer < pages_.layers.size(); ++layer) {
      grow(read_pages_.layers[layer].keys, pages_.layers[layer].keys);
      grow(read_pages_.layers[layer].values, pages_.layers[layer].values);
    }
    for (int64_t page = after; page-- > before;) free_read_pages_.push_back(static_cast<int32_t>(page));
  }
  const std::vector<int32_t> taken(free_read_pages_.end() - static_cast<std::ptrdiff_t>(count), free_read_pages_.end());
  free_read_pages_.resize(free_read_pages_.size() - count);
  return taken;
}

int32_t DecoderModel::encode(std::span<const int32_t> ids) {
  ESPALIER_CHECK(shape_.first_layer > 0 && !ids.empty(), "an encoder that reads ", ids.size(), " tokens");
  const auto length = static_cast<int64_t>(ids.size());
  const at::Tensor row = at::empty({1, length}, at::kLong);
  std::copy(ids.begin(), ids.end(), row.mutable_data_ptr<int64_t>());
  const c10::DeviceGuard on(device_);
  const std::vector<at::Tensor> made = model_.cross_keys_and_values(model_.encode(row.to(device_), {length}));
  Read read{.pages = take_read_pages(static_cast<size_t>((length + config_.page_tokens - 1) / config_.page_tokens)),
            .length = static_cast<int32_t>(length)};
  for (size_t layer = 0; layer < made.size(); ++layer)
    kernels::fill_pages(made[layer], read.pages, config_.page_tokens, shape_.head_size,
                        read_pages_.layers[static_cast<size_t>(shape_.first_layer) + layer]);
  read_.emplace(next_read_, std::move(read));
  return next_read_++;
}

void DecoderModel::release(int32_t encoded) {
  const auto found = read_.find(encoded);
  ESPALIER_CHECK(found != read_.end(), "nothing was encoded as ", encoded);
  free_read_pages_.insert(free_read_pages_.end(), found->second.pages.begin(), found->second.pages.end());
  read_.erase(found);
}

}  // namespace espalier::infer
