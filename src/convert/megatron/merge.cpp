#include "convert/megatron/merge.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/format.h"
#include "convert/megatron/internal/read.h"
#include "spec/shard.h"

namespace espalier::convert {
namespace {

using spec::Extent;
using spec::ParamSpec;
using spec::TensorShard;

constexpr int64_t kCompareElements = int64_t{1} << 20;

int64_t row_length(const ParamSpec& spec) { return spec.shape.size() > 1 ? spec.shape[1] : 1; }

// Runs of rows: where the file has them, where we have them.
struct RowRun {
  int64_t stored = 0, ours = 0, count = 0;
};

// Query, key and value of a head; key and value of cross-attention.
int64_t parts_of_head(const ParamSpec& spec) {
  if (spec.name.find(".query_key_value.") != std::string::npos) return 3;
  return spec.name.find(".key_value.") != std::string::npos ? 2 : 1;
}

std::vector<RowRun> row_runs(const ParamSpec& spec, int64_t rows, const RowOrder& order) {
  std::vector<RowRun> runs;
  const int64_t parts = parts_of_head(spec);
  if (order.version < 2 && parts > 1) {
    const int64_t size = order.head_size, heads = rows / (parts * size);
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t part = 0; part < parts; ++part) {
        if (order.version < 1) {
          runs.push_back({(part * heads + head) * size, (head * parts + part) * size, size});
          continue;
        }
        for (int64_t channel = 0; channel < size; ++channel)
          runs.push_back({(head * size + channel) * parts + part, (head * parts + part) * size + channel, 1});
      }
  } else if (order.activated_half_last && spec.name.find("mlp.dense_h_to_4h.") != std::string::npos) {
    runs = {{0, rows / 2, rows / 2}, {rows / 2, 0, rows / 2}};
  }
  std::sort(runs.begin(), runs.end(), [](const RowRun& a, const RowRun& b) { return a.stored < b.stored; });
  return runs;
}

bool is_vocabulary(const ParamSpec& spec) { return is_word_embedding(spec.name) || spec.name == "lm_head.weight"; }

std::string text_of(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes, ", ") + "]";
}

std::string copy_text(const MegatronShard& shard, int64_t stages) {
  if (stages > 1) return shard.copy + 1 == stages ? "the last stage" : concat("stage ", shard.copy);
  return shard.param == "word_embeddings.weight" ? "the output layer" : concat("part ", shard.copy);
}

std::string place_text(const MegatronShard& shard, int64_t stages) {
  std::string text = shard.place.size > 1 ? concat("tensor rank ", shard.place.rank) : "";
  if (shard.copy > 0) text += concat(text.empty() ? "" : " of ", copy_text(shard, stages));
  return text.empty() ? "the whole" : text;
}

// A box for runs that repeat: `count` elements, `repeat` times, at equal distances on both sides.
void add_boxes(const std::vector<Extent>& extents, size_t ours, size_t theirs, TensorMap& map) {
  for (size_t at = 0; at < extents.size();) {
    const Extent& first = extents[at];
    int64_t repeat = 1, our_stride = 1, their_stride = 1;
    if (at + 1 < extents.size() && extents[at + 1].count == first.count &&
        extents[at + 1].global_begin > first.global_begin) {
      our_stride = extents[at + 1].global_begin - first.global_begin;
      their_stride = extents[at + 1].local_begin - first.local_begin;
      while (at + static_cast<size_t>(repeat) < extents.size()) {
        const Extent& next = extents[at + static_cast<size_t>(repeat)];
        if (next.count != first.count || next.global_begin != first.global_begin + repeat * our_stride ||
            next.local_begin != first.local_begin + repeat * their_stride)
          break;
        ++repeat;
      }
    }
    map.add({.sizes = {repeat, first.count},
             .ours = {ours, first.global_begin, {our_stride, 1}},
             .theirs = {theirs, first.local_begin, {their_stride, 1}}});
    at += static_cast<size_t>(repeat);
  }
}

struct CopyKey {
  int64_t copy = 0, tensor = 0;  // tensor: of a replicated parameter; 0 where all ranks together hold one
  // NOLINTNEXTLINE(modernize-use-nullptr): the check takes a 0 within the comparison for a pointer
  auto operator<=>(const CopyKey&) const = default;
};
using ShardsByCopy = std::map<CopyKey, std::vector<const MegatronShard*>>;

// What one rank has of a copy must be all that it should have, each element once.
void check_rank(const std::vector<const MegatronShard*>& shards, const ParamSpec& spec, const std::string& name,
                int64_t stages, Problems& problems) {
  const TensorShard place = shards[0]->place;
  const std::vector<int64_t> expected = spec::local_shape(spec, place);
  if (shards.size() == 1 && shards[0]->has_shape) {
    const std::vector<int64_t>& found = shards[0]->view.shape;
    const bool is_stripped = is_vocabulary(spec) && place.size == 1 && found.size() == 2 && found[0] < expected[0] &&
                             found[1] == expected[1];
    if (found != expected && !is_stripped)
      problems.add(shards[0]->view.file.string(), ": ", shards[0]->key, " (", name, "): expected shape ",
                   text_of(expected), ", found ", text_of(found));
    return;
  }
  int64_t position = 0;
  for (const MegatronShard* shard : shards) {
    if (shard->local_begin != position) break;
    position += shard->count;
  }
  if (position != store::num_elements(expected))
    problems.add(shards[0]->view.file.parent_path().string(), ": ", name, " of ", place_text(*shards[0], stages),
                 ": expected ", store::num_elements(expected), " elements of shape ", text_of(expected),
                 " in parts, found ", position, "; the file of a data rank is missing or belongs to another run");
}

}  // namespace

std::vector<Extent> stored_extents(const ParamSpec& spec, const TensorShard& place, const RowOrder& order) {
  const std::vector<Extent> ours = spec::local_extents(spec, place);
  const int64_t length = row_length(spec);
  const std::vector<RowRun> runs = row_runs(spec, spec::num_local_elements(spec, place) / length, order);
  if (runs.empty()) return ours;
  std::vector<Extent> stored;
  for (const RowRun& run : runs)
    for (const Extent& extent : spec::clip_to_local(ours, run.ours * length, (run.ours + run.count) * length))
      stored.push_back({extent.global_begin, run.stored * length + extent.local_begin, extent.count});
  return stored;
}

namespace {

using ShardsByTensor = std::map<std::pair<std::string, TensorKind>, ShardsByCopy>;

bool is_replicated(const ParamSpec& spec) { return spec.tensor_placement.kind == spec::Placement::Kind::kReplicated; }

// In each copy the parts are in the order of ranks and places.
ShardsByTensor group_shards(const MegatronCheckpoint& checkpoint, const std::vector<ParamSpec>& specs,
                            Problems& problems) {
  std::map<std::string, const ParamSpec*> spec_of;
  std::vector<std::string> known;
  for (const ParamSpec& spec : specs) spec_of[spec.name] = &spec, known.push_back(spec.name);
  ShardsByTensor found;
  for (const MegatronShard& shard : checkpoint.shards) {
    const auto spec = spec_of.find(shard.param);
    if (spec != spec_of.end()) {
      const int64_t rank = is_replicated(*spec->second) ? shard.place.rank : 0;
      found[{shard.param, shard.kind}][{shard.copy, rank}].push_back(&shard);
      continue;
    }
    const auto near = nearest_names(shard.param, known);
    problems.add(shard.view.file.string(), ": ", shard.key, ": the model of the checkpoint's arguments has no '",
                 shard.param, "'", near.empty() ? "" : "; nearest: " + join(near, ", "));
  }
  for (auto& [tensor, copies] : found)
    for (auto& [copy, shards] : copies)
      std::stable_sort(shards.begin(), shards.end(), [](const MegatronShard* a, const MegatronShard* b) {
        return std::tie(a->place.rank, a->local_begin) < std::tie(b->place.rank, b->local_begin);
      });
  return found;
}

// All ranks that hold parts of a copy have theirs.
void check_copy(const std::vector<const MegatronShard*>& shards, const ParamSpec& spec, const std::string& name,
                const MegatronFiles& files, Problems& problems) {
  std::map<int64_t, std::vector<const MegatronShard*>> by_rank;
  for (const MegatronShard* shard : shards) by_rank[shard->place.rank].push_back(shard);
  for (const auto& [rank, of_rank] : by_rank) check_rank(of_rank, spec, name, files.pipeline, problems);
  const auto ranks = static_cast<int64_t>(by_rank.size());
  if (!is_replicated(spec) && ranks != shards[0]->place.size)
    problems.add(files.folder.string(), ": ", name, ": expected parts of ", shards[0]->place.size,
                 " tensor ranks, found ", ranks);
}

}  // namespace

MegatronMerge::MegatronMerge(const MegatronCheckpoint& checkpoint, const std::vector<ParamSpec>& specs,
                             const std::vector<TensorKind>& kinds, const RowOrder& order) {
  Problems problems;
  const ShardsByTensor found = group_shards(checkpoint, specs, problems);
  for (const ParamSpec& spec : specs)
    for (const TensorKind kind : kinds) {
      const std::string name = spec.name + suffix_of(kind);
      const auto copies = found.find({spec.name, kind});
      if (copies == found.end()) {
        problems.add(checkpoint.files.folder.string(), ": expected ", name, " ", text_of(spec.shape),
                     ", found nothing");
        continue;
      }
      MergedTensor tensor{.spec = &spec, .kind = kind, .copies = {}, .copy_names = {}};
      for (const auto& [key, shards] : copies->second) {
        check_copy(shards, spec, name, checkpoint.files, problems);
        tensor.copies.push_back(map_.ours.add(concat(name, " copy ", key.copy, " of rank ", key.tensor), spec.shape));
        tensor.copy_names.push_back(!is_replicated(spec) && key.copy == 0
                                        ? "the first stage"
                                        : place_text(*shards[0], checkpoint.files.pipeline));
        if (problems.empty())
          for (const MegatronShard* shard : shards) add_shard(*shard, spec, tensor.copies.back(), order);
      }
      tensors_.push_back(std::move(tensor));
    }
  problems.raise(ExitCode::kBadData);
  map_.check();
  copier_ = std::make_unique<PieceCopier>(map_, Direction::kImport, [this](size_t number) { return sources_[number]; });
}

const uint8_t* MegatronMerge::data_of(const store::TensorView& view) {
  if (!view.contiguous()) {
    packed_.emplace_back(static_cast<size_t>(view.num_bytes()));
    store::TensorReader(view).read(packed_.back().data());
    return packed_.back().data();
  }
  auto found = files_.find(view.file);
  if (found == files_.end()) found = files_.emplace(view.file, MappedFile(view.file)).first;
  const int64_t end = view.offset + view.num_bytes();
  if (end > static_cast<int64_t>(found->second.size()))
    throw UserError(concat(view.file.string(), ": expected at least ", end, " bytes, found ", found->second.size(),
                           "; the file has changed while it was read"),
                    ExitCode::kBadData);
  return found->second.data() + view.offset;
}

void MegatronMerge::add_shard(const MegatronShard& shard, const ParamSpec& spec, size_t copy, const RowOrder& order) {
  const auto extents =
      spec::clip_to_local(stored_extents(spec, shard.place, order), shard.local_begin, shard.local_begin + shard.count);
  const size_t number =
      map_.theirs.add(concat(shard.view.file.string(), " ", shard.key, " ", map_.theirs.size()), {shard.count});
  const uint8_t* data = data_of(shard.view);
  sources_.push_back({shard.view.dtype, data + shard.view_begin * store::size_bytes(shard.view.dtype)});
  add_boxes(extents, copy, number, map_);
  const int64_t missing = store::num_elements(spec::local_shape(spec, shard.place)) - shard.count;
  if (shard.has_shape && missing > 0)  // a vocabulary without its padding
    map_.our_padding.push_back({copy, shard.count, missing});
}

store::DType MegatronMerge::dtype(size_t copy) const { return sources_.at(copier_->sources_of(copy).at(0)).dtype; }

void MegatronMerge::fill(size_t copy, int64_t begin, int64_t end, store::DType dtype, void* destination) const {
  copier_->fill(copy, begin, end, dtype, destination);
}

std::vector<CopyDifference> MegatronMerge::differences(const MergedTensor& tensor) const {
  std::vector<CopyDifference> all;
  const int64_t count = tensor.spec->num_elements();
  for (size_t other = 1; other < tensor.copies.size(); ++other) {
    CopyDifference difference{.name = tensor.spec->name + suffix_of(tensor.kind),
                              .first = tensor.copy_names[0],
                              .other = tensor.copy_names[other],
                              .num_elements = count};
    for (int64_t begin = 0; begin < count; begin += kCompareElements) {
      const int64_t end = std::min(count, begin + kCompareElements);
      std::vector<float> a(static_cast<size_t>(end - begin)), b(a.size());
      fill(tensor.copies[0], begin, end, store::DType::kFloat32, a.data());
      fill(tensor.copies[other], begin, end, store::DType::kFloat32, b.data());
      for (size_t at = 0; at < a.size(); ++at) {
        if (std::bit_cast<uint32_t>(a[at]) == std::bit_cast<uint32_t>(b[at])) continue;
        ++difference.num_different;
        const double distance = std::abs(static_cast<double>(a[at]) - static_cast<double>(b[at]));
        // Once it is NaN, it stays.
        if (!std::isnan(difference.largest_difference) && !(distance <= difference.largest_difference))
          difference.largest_difference = distance;
      }
    }
    if (difference.num_different > 0) all.push_back(difference);
  }
  return all;
}

}  // namespace espalier::convert
