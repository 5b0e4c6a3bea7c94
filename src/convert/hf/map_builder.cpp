#include "convert/hf/internal/map_builder.h"

#include <numeric>

#include "base/error.h"

namespace espalier::convert {

HfMapBuilder::HfMapBuilder(const ModelConfig& model, const HfTensors& theirs) : vocab_rows_(theirs.vocab_rows) {
  ESPALIER_CHECK(vocab_rows_ > 0 && vocab_rows_ <= model.vocabulary.padded_size, vocab_rows_);
  for (const spec::ParamSpec& spec : spec_of(model).params) map_.ours.add(spec.name, spec.shape);
}

void HfMapBuilder::same(const std::string& name, const std::string& theirs) {
  map_.add(whole(map_, ours(name), map_.theirs.add(theirs, our_shape(name))));
}

void HfMapBuilder::same_module(const std::string& name, const std::string& theirs, bool has_bias) {
  same(name + ".weight", theirs + ".weight");
  if (has_bias) same(name + ".bias", theirs + ".bias");
}

size_t HfMapBuilder::add_rows(const std::string& name, const std::string& theirs_name) {
  std::vector<int64_t> shape = our_shape(name);
  shape[0] = vocab_rows_;
  const size_t theirs = map_.theirs.add(theirs_name, shape);
  map_.add(rows(map_, ours(name), 0, theirs, 0, vocab_rows_));
  return theirs;
}

void HfMapBuilder::add_vocabulary(const std::string& name, const std::string& theirs_name, float value) {
  const int64_t count = map_.theirs[add_rows(name, theirs_name)].num_elements();
  const int64_t padding = map_.ours[ours(name)].num_elements() - count;
  if (padding > 0) map_.our_padding.push_back({ours(name), count, padding, value});
}

void HfMapBuilder::copy_vocabulary(const std::string& name, const std::string& theirs_name) {
  add_rows(name, theirs_name);
  map_.pieces.back().is_copy = true;
}

void HfMapBuilder::add_qkv(const std::string& name, const HeadShape& heads, const std::vector<std::string>& theirs) {
  add_groups(name, heads, {heads.num_heads / heads.num_groups, 1, 1}, theirs);
}

void HfMapBuilder::add_key_value(const std::string& name, const HeadShape& heads,
                                 const std::vector<std::string>& theirs) {
  add_groups(name, heads, {1, 1}, theirs);
}

void HfMapBuilder::add_groups(const std::string& name, const HeadShape& heads, const std::vector<int64_t>& counts,
                              const std::vector<std::string>& theirs) {
  const std::vector<int64_t> shape = our_shape(name);
  const int64_t row = shape.size() > 1 ? shape[1] : 1;  // elements of a row
  const int64_t groups = heads.num_groups, head = heads.head_size;
  const int64_t of_group = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto their_shape = [&](int64_t count) {
    std::vector<int64_t> result = shape;
    result[0] = count;
    return result;
  };
  const bool is_one = theirs.size() == 1;
  size_t target = 0;
  if (is_one) target = map_.theirs.add(theirs[0], their_shape(groups * of_group * head));
  int64_t our_head = 0, their_head = 0;  // heads before this part: within a group of ours, in all of theirs
  for (size_t part = 0; part < counts.size(); ++part) {
    const int64_t count = counts[part];
    if (!is_one) target = map_.theirs.add(theirs.at(part), their_shape(groups * count * head));
    map_.add({.sizes = {groups, count * head * row},
              .ours = {ours(name), our_head * head * row, {of_group * head * row, 1}},
              .theirs = {target, (is_one ? their_head : 0) * head * row, {count * head * row, 1}}});
    our_head += count, their_head += groups * count;
  }
}

TensorMap HfMapBuilder::take() {
  map_.check();
  return std::move(map_);
}

}  // namespace espalier::convert
