#include "plan/partition.h"

#include <algorithm>
#include <limits>
#include <regex>

#include "base/format.h"
#include "base/literal.h"

namespace espalier::plan {
namespace {

// Megatron-DeepSpeed's pipeline model is a list of items: 3 before the layers (a cast, the embedding, a transposition),
// the layers, and 4 after them (a transposition, the final norm, the output layer, a cast).
constexpr int64_t kLeading = 3;

struct Item {
  const char* class_name;  // empty: a function, which no type: pattern is meant for
  int64_t weight;
};

std::vector<Item> items_of(const PartitionRequest& request) {
  std::vector<Item> items = {{"", 0}, {"EmbeddingPipe", request.weights.embedding}, {"", 0}};
  for (int64_t layer = 0; layer < request.num_layers; ++layer)
    items.push_back({"ParallelTransformerLayerPipe", request.weights.layer});
  for (const Item& item :
       {Item{"", 0}, {"LayerNorm", request.weights.final_norm}, {"EmbeddingPipe", request.weights.output}, {"", 0}})
    items.push_back(item);
  return items;
}

std::string list_text(const std::vector<int64_t>& counts) {
  std::string text;
  for (const int64_t count : counts) text += concat(text.empty() ? "list:" : ",", count);
  return text;
}

// As even as can be, the first stages get the rest: what messages suggest.
std::vector<int64_t> even_counts(int64_t num_layers, int64_t num_stages) {
  std::vector<int64_t> counts;
  for (int64_t stage = 0; stage < num_stages; ++stage)
    counts.push_back(num_layers / num_stages + (stage < num_layers % num_stages ? 1 : 0));
  return counts;
}

std::string suggested_list(const PartitionRequest& request) {
  return list_text(even_counts(request.num_layers, request.num_stages));
}

std::optional<std::vector<int64_t>> counts_of_list(const PartitionRequest& request, Problems& problems) {
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (const std::string& word : split(request.method.substr(5), ',')) {
    const std::optional<int64_t> count = parse_python_int(word);
    if (!count || *count < 1 || *count > request.num_layers) {
      problems.add(request.method_origin, ": '", word, "' is not a number of layers from 1 to ", request.num_layers,
                   "; use ", suggested_list(request));
      return std::nullopt;
    }
    counts.push_back(*count);
    sum += *count;
  }
  if (static_cast<int64_t>(counts.size()) != request.num_stages) {
    problems.add(request.method_origin, " is for ", counts.size(), " stages, but the pipeline has ", request.num_stages,
                 "; use ", suggested_list(request));
    return std::nullopt;
  }
  if (sum == request.num_layers) return counts;
  std::vector<int64_t> nearest = counts;
  nearest.back() += request.num_layers - sum;
  problems.add(request.method_origin, " adds up to ", sum, " layers, but the model has ", request.num_layers, "; use ",
               nearest.back() >= 1 ? list_text(nearest) : suggested_list(request));
  return std::nullopt;
}

std::optional<std::vector<double>> weights_of_type(const PartitionRequest& request, const std::vector<Item>& items,
                                                   Problems& problems) {
  const std::string pattern = request.method.empty() ? "transformer" : request.method.substr(5);
  std::vector<double> weights;
  try {
    const std::regex expression(pattern, std::regex::icase);
    for (const Item& item : items)
      weights.push_back(*item.class_name != '\0' && std::regex_search(item.class_name, expression) ? 1 : 0);
  } catch (const std::regex_error& error) {
    problems.add(request.method_origin, ": '", pattern,
                 "' is not a regular expression; use type:transformer|embedding");
    return std::nullopt;
  }
  if (*std::max_element(weights.begin(), weights.end()) > 0) return weights;
  problems.add(request.method_origin, ": '", pattern,
               "' matches none of EmbeddingPipe, ParallelTransformerLayerPipe, LayerNorm; use type:transformer or "
               "type:transformer|embedding");
  return std::nullopt;
}

// Boundaries in DeepSpeed's list of items.
std::optional<std::vector<int64_t>> boundaries_of(const PartitionRequest& request, Problems& problems) {
  const std::vector<Item> items = items_of(request);
  if (request.method == "uniform") return uniform_boundaries(static_cast<int64_t>(items.size()), request.num_stages);
  std::vector<double> weights;
  if (request.method == "parameters") {
    for (const Item& item : items) weights.push_back(static_cast<double>(item.weight));
  } else if (request.method.empty() || request.method.starts_with("type:")) {
    const auto found = weights_of_type(request, items, problems);
    if (!found) return std::nullopt;
    weights = *found;
  } else {
    problems.add(request.method_origin,
                 " is not known; use type:transformer, type:transformer|embedding, uniform, parameters or ",
                 suggested_list(request));
    return std::nullopt;
  }
  return balanced_boundaries(weights, request.num_stages);
}

std::optional<Partition> make_chunks(const PartitionRequest& request, Problems& problems) {
  const int64_t num_parts = request.num_stages * request.num_chunks;
  if (!request.method.empty() && request.method != "type:transformer") {
    problems.add(request.method_origin, ": an interleaved pipeline has the same number of layers in each of its ",
                 num_parts, " parts; leave the option out, or --num-layers-per-virtual-pipeline-stage");
    return std::nullopt;
  }
  return partition_evenly(request.num_layers, request.num_stages, request.num_chunks);
}

}  // namespace

DepthRange Partition::layers(int64_t stage, int64_t chunk) const {
  const DepthRange& range = part(stage, chunk);
  const int64_t begin = std::max<int64_t>(range.begin, 1) - 1;
  return {begin, std::max(begin, std::min(range.end, num_layers + 1) - 1)};
}

int64_t Partition::stage_of(int64_t depth) const {
  for (size_t part = 0; part < parts.size(); ++part)
    if (parts[part].contains(depth)) return static_cast<int64_t>(part) % num_stages;
  ESPALIER_CHECK(false, "no part holds depth ", depth);
  return -1;
}

Partition partition_evenly(int64_t num_layers, int64_t num_stages, int64_t num_chunks) {
  const int64_t num_parts = num_stages * num_chunks;
  ESPALIER_CHECK(num_layers % num_parts == 0, num_layers, " layers in ", num_parts, " parts");
  Partition partition =
      partition_by_counts(std::vector<int64_t>(static_cast<size_t>(num_parts), num_layers / num_parts));
  partition.num_stages = num_stages;
  partition.num_chunks = num_chunks;
  return partition;
}

Partition partition_by_counts(const std::vector<int64_t>& layers_of_stages) {
  Partition partition{.num_stages = static_cast<int64_t>(layers_of_stages.size()), .parts = {}};
  for (const int64_t count : layers_of_stages) {
    ESPALIER_CHECK(count >= 1, "a stage of ", count, " layers");
    partition.parts.push_back({1 + partition.num_layers, 1 + partition.num_layers + count});
    partition.num_layers += count;
  }
  partition.parts.front().begin = 0;
  partition.parts.back().end = partition.num_layers + 2;
  return partition;
}

PartWeights part_weights(const spec::ModelSpec& model) {
  const int64_t last = model.num_layers() + 1;
  PartWeights weights;
  for (const spec::ParamSpec& param : model.params) {
    if (param.depth == 0) weights.embedding += param.num_elements();
    if (param.depth == 1) weights.layer += param.num_elements();
    if (param.depth == last) (param.shape.size() == 1 ? weights.final_norm : weights.output) += param.num_elements();
    if (param.is_used_at(last)) weights.output += param.num_elements();
  }
  return weights;
}

std::vector<int64_t> uniform_boundaries(int64_t num_items, int64_t num_parts) {
  std::vector<int64_t> boundaries = {0};
  for (int64_t part = 0; part < num_parts; ++part)
    boundaries.push_back(boundaries.back() + num_items / num_parts + (part < num_items % num_parts ? 1 : 0));
  return boundaries;
}

// Among the divisions of the first `end` items into `part` runs that extend the kept divisions of a shorter beginning,
// keeps the one whose heaviest and lightest run differ least; of equal ones the one whose last run is shortest.
std::vector<int64_t> balanced_boundaries(const std::vector<double>& weights, int64_t num_parts) {
  const size_t num_items = weights.size(), parts = static_cast<size_t>(num_parts);
  if (num_items <= parts) return uniform_boundaries(static_cast<int64_t>(num_items), num_parts);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  struct Kept {
    double heaviest = kNone, lightest = kNone, difference = kNone;
    size_t begin_of_last = 0;
  };
  std::vector<double> sums = {0};
  for (const double weight : weights) sums.push_back(sums.back() + weight);
  std::vector<std::vector<Kept>> kept(parts + 1, std::vector<Kept>(num_items + 1));
  kept[0][0] = {0, kNone, 0, 0};
  for (size_t end = 1; end <= num_items; ++end) {
    for (size_t part = 1; part <= std::min(end, parts); ++part) {
      Kept& best = kept[part][end];
      for (size_t begin = 0; begin < end; ++begin) {
        const Kept& before = kept[part - 1][begin];
        const double sum = sums[end] - sums[begin];
        const double heaviest = std::max(before.heaviest, sum), lightest = std::min(before.lightest, sum);
        if (best.difference >= heaviest - lightest) best = {heaviest, lightest, heaviest - lightest, begin};
      }
    }
  }
  std::vector<int64_t> boundaries = {static_cast<int64_t>(num_items)};
  for (size_t part = parts; part > 0; --part)
    boundaries.push_back(static_cast<int64_t>(kept[part][static_cast<size_t>(boundaries.back())].begin_of_last));
  std::reverse(boundaries.begin(), boundaries.end());
  return boundaries;
}

std::optional<Partition> make_partition(const PartitionRequest& request, Problems& problems) {
  if (request.num_layers < request.num_stages * request.num_chunks) return std::nullopt;  // the caller's to report
  if (request.num_chunks > 1) return make_chunks(request, problems);
  if (request.method.starts_with("list:")) {
    const auto counts = counts_of_list(request, problems);
    if (!counts) return std::nullopt;
    return partition_by_counts(*counts);
  }
  const auto boundaries = boundaries_of(request, problems);
  if (!boundaries) return std::nullopt;
  std::vector<int64_t> counts;
  int64_t begin = 0;
  for (size_t stage = 1; stage < boundaries->size(); ++stage) {
    const int64_t end = stage + 1 == boundaries->size()
                            ? request.num_layers
                            : std::clamp<int64_t>((*boundaries)[stage] - kLeading, 0, request.num_layers);
    counts.push_back(end - begin);
    begin = end;
  }
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    if (counts[stage] > 0) continue;
    problems.add(request.method.empty() ? "--pp-partition-method type:transformer, the default" : request.method_origin,
                 " leaves stage ", stage, " of ", counts.size(), " without a transformer layer; use ",
                 suggested_list(request));
    return std::nullopt;
  }
  return partition_by_counts(counts);
}

Partition make_partition(const RunShape& run) {
  PartitionRequest request{.method = run.partition_method,
                           .num_layers = run.model.num_layers(),
                           .num_stages = run.grid.pipeline,
                           .num_chunks = run.num_chunks,
                           .weights = {}};
  if (request.method == "parameters") request.weights = part_weights(run.model);
  if (!request.method.empty()) request.method_origin += " " + request.method;
  Problems problems;
  const std::optional<Partition> partition = make_partition(request, problems);
  problems.raise();
  ESPALIER_CHECK(partition.has_value(), request.num_layers, " layers in ", request.num_stages, " stages");
  return *partition;
}

}  // namespace espalier::plan
