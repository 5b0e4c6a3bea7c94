#include "ckpt/snapshots.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "ckpt/save_plan.h"
#include "ckpt/together.h"

namespace espalier::ckpt {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kPieceBytes = int64_t{256} << 10;  // copied and summed while a cache holds it

int64_t num_bytes(const at::Tensor& values) { return static_cast<int64_t>(values.nbytes()); }

}  // namespace

Snapshots::Snapshots(launch::SnapshotSlots& slots, dist::Group group, const std::vector<TensorToSave>& tensors)
    : slots_(slots),
      group_(std::move(group)),
      identity_(hash64(concat("rank ", group_.rank(), " of ", group_.size(), "\n", describe_parts(tensors)))) {
  for (size_t number = 0; number < tensors.size(); ++number) {
    const int64_t bytes = num_bytes(tensors[number].value);
    begins_.push_back(bytes_);
    for (int64_t begin = 0; begin < bytes; begin += kPieceBytes)
      pieces_.push_back({number, begin, std::min(kPieceBytes, bytes - begin), bytes_ + begin});
    bytes_ += (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  together(group_, [&] { slots_.reserve(bytes_); });
}

template <class Visit>
uint64_t Snapshots::checksum(const Visit& visit) const {
  std::vector<uint64_t> sums(pieces_.size());
  at::parallel_for(0, std::ssize(pieces_), 1, [&](int64_t begin, int64_t end) {
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at) {
      const Piece& piece = pieces_[at];
      sums[at] = hash64(visit(piece), static_cast<size_t>(piece.bytes));
    }
  });
  return hash64(sums.data(), sums.size() * sizeof(uint64_t));
}

std::optional<int64_t> Snapshots::newest() const {
  std::string whole;
  for (const launch::SnapshotHead& head : slots_.heads()) {
    if (head.identity != identity_) continue;
    const uint8_t* const data = slots_.data(head.step);
    if (checksum([&](const Piece& piece) { return data + piece.to; }) == head.checksum) whole += concat(head.step, " ");
  }
  std::vector<std::vector<std::string>> steps;  // of each rank
  for (const std::string& text : group_.gather_texts(whole)) steps.push_back(split_blanks(text));
  for (const std::string& step : steps[0])  // the newest first
    if (std::all_of(steps.begin(), steps.end(), [&](const auto& of_rank) {
          return std::find(of_rank.begin(), of_rank.end(), step) != of_rank.end();
        }))
      return std::stoll(step);
  return std::nullopt;
}

store::TrainingState Snapshots::load(int64_t step, const std::vector<TensorRequest>& requests) {
  ESPALIER_CHECK(requests.size() == begins_.size(), requests.size(), " of ", begins_.size());
  const uint8_t* const data = slots_.data(step);
  std::vector<uint8_t*> to;
  for (size_t number = 0; number < requests.size(); ++number) {
    const at::Tensor& values = requests[number].destination;
    const int64_t end = number + 1 < begins_.size() ? begins_[number + 1] : bytes_;
    ESPALIER_CHECK(begins_[number] + (num_bytes(values) + kLineBytes - 1) / kLineBytes * kLineBytes == end,
                   requests[number].name, " of ", num_bytes(values), " bytes");
    to.push_back(static_cast<uint8_t*>(values.mutable_data_ptr()));
  }
  at::parallel_for(0, std::ssize(pieces_), 1, [&](int64_t begin, int64_t end) {
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at) {
      const Piece& piece = pieces_[at];
      std::memcpy(to[piece.tensor] + piece.begin, data + piece.to, static_cast<size_t>(piece.bytes));
    }
  });
  std::string text;
  for (const launch::SnapshotHead& head : slots_.heads())
    if (head.step == step) text = head.text;
  slots_.go_on_from(step);
  return store::manifest_from_json(text, concat("the copy of step ", step, " in memory")).state;
}

void Snapshots::keep(const store::TrainingState& numbers, const std::vector<TensorToSave>& tensors) {
  ESPALIER_CHECK(tensors.size() == begins_.size(), tensors.size(), " of ", begins_.size());
  uint8_t* const copy = slots_.begin();
  std::vector<const uint8_t*> from(tensors.size());  // null: in place already
  for (size_t number = 0; number < tensors.size(); ++number) {
    const at::Tensor& values = tensors[number].value;
    if (values.is_cpu())
      from[number] = static_cast<const uint8_t*>(values.const_data_ptr());
    else
      at::from_blob(copy + begins_[number], values.sizes(), at::TensorOptions().dtype(values.scalar_type()))
          .copy_(values);
  }
  const uint64_t sum = checksum([&](const Piece& piece) {
    if (from[piece.tensor] != nullptr)
      std::memcpy(copy + piece.to, from[piece.tensor] + piece.begin, static_cast<size_t>(piece.bytes));
    return copy + piece.to;
  });
  store::Manifest manifest;
  manifest.state = numbers;
  slots_.finish({.step = numbers.step, .identity = identity_, .checksum = sum, .text = store::to_json(manifest)});
}

}  // namespace espalier::ckpt
