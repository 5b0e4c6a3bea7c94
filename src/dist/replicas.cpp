#include "dist/replicas.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "dist/internal/device_hash.h"

namespace espalier::dist {
namespace {

using spec::GridPosition;
using spec::GridShape;

constexpr int64_t kBlockBytes = 1 << 20;  // of a tensor hashed at once: threads get equal shares
constexpr int kRepairTag = 0;
constexpr size_t kMaxNames = 8;  // in one sentence

// Sets of axes by number, the same on every rank: which of the first three, and which of the grid's sets of stages.
size_t num_axis_sets(const Grid& grid) { return 8 * (grid.shared_stages.size() + 1); }

size_t number_of(const CopyAxes& axes, const Grid& grid) {
  size_t set = 0;
  if (!axes.stages.empty()) {
    const auto found = std::find(grid.shared_stages.begin(), grid.shared_stages.end(), axes.stages);
    ESPALIER_CHECK(found != grid.shared_stages.end(), "copies on ", axes.stages.size(),
                   " stages that the grid does not know");
    set = static_cast<size_t>(found - grid.shared_stages.begin()) + 1;
  }
  return size_t{axes.gradient} + 2 * size_t{axes.tensor} + 4 * size_t{axes.pipeline} + 8 * set;
}

CopyAxes axes_of(size_t number, const Grid& grid) {
  CopyAxes axes{
      .gradient = (number & 1) != 0, .tensor = (number & 2) != 0, .pipeline = (number & 4) != 0, .stages = {}};
  if (number >= 8) axes.stages = grid.shared_stages[number / 8 - 1];
  return axes;
}

// The lowest of the ranks that hold the same copies as `rank`: names the set of them.
int64_t first_holder(const GridShape& shape, const CopyAxes& axes, int64_t rank) {
  GridPosition position = spec::position_of(shape, rank);
  if (axes.gradient) position.context = position.data = 0;
  if (axes.tensor) position.tensor = 0;
  const bool shares = std::find(axes.stages.begin(), axes.stages.end(), position.pipeline) != axes.stages.end();
  if (shares) position.pipeline = axes.stages.front();
  if (axes.pipeline) position.pipeline = 0;
  return spec::rank_of(shape, position);
}

bool has_other_holders(const GridShape& shape, const CopyAxes& axes, int64_t rank) {
  for (int64_t other = 0; other < shape.num_ranks(); ++other)
    if (other != rank && first_holder(shape, axes, other) == first_holder(shape, axes, rank)) return true;
  return false;
}

// Of all of them, by blocks that threads share.
std::vector<uint64_t> hash_on_host(const std::vector<at::Tensor>& tensors) {
  struct Block {
    const std::byte* data;
    size_t size;
  };
  std::vector<Block> blocks;
  std::vector<size_t> first_block;
  for (const at::Tensor& tensor : tensors) {
    first_block.push_back(blocks.size());
    const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
    const auto size = static_cast<int64_t>(tensor.nbytes());
    for (int64_t begin = 0; begin < size; begin += kBlockBytes)
      blocks.push_back({data + begin, static_cast<size_t>(std::min(kBlockBytes, size - begin))});
  }
  first_block.push_back(blocks.size());
  std::vector<uint64_t> of_blocks(blocks.size());
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto block = static_cast<size_t>(begin); block < static_cast<size_t>(end); ++block)
      of_blocks[block] = hash64(blocks[block].data, blocks[block].size);
  });
  std::vector<uint64_t> hashes;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const size_t count = first_block[tensor + 1] - first_block[tensor];
    hashes.push_back(count == 0 ? 0 : hash64(of_blocks.data() + first_block[tensor], count * sizeof(uint64_t)));
  }
  return hashes;
}

// The device is waited for once.
std::vector<uint64_t> hash_on_device(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {};
  std::vector<at::Tensor> hashes;
  for (const at::Tensor& tensor : tensors) hashes.push_back(device_hash(tensor));
  const at::Tensor numbers = at::stack(hashes).cpu();
  const auto* const first = reinterpret_cast<const uint64_t*>(numbers.const_data_ptr<int64_t>());
  return {first, first + tensors.size()};
}

// One hash for each copy, 0 where `wanted` says that nobody asks for it. Of tensors on a device, its own.
std::vector<uint64_t> hash_copies(const std::vector<Copy>& copies, const std::vector<bool>& wanted, const Grid& grid) {
  std::vector<at::Tensor> on_host, on_device;
  std::vector<size_t> places_on_host, places_on_device;
  for (size_t copy = 0; copy < copies.size(); ++copy) {
    if (!wanted[number_of(copies[copy].axes, grid)]) continue;
    const at::Tensor& values = copies[copy].values;
    ESPALIER_CHECK(values.is_contiguous(), copies[copy].name, " has strides ", values.strides());
    (values.is_cpu() ? on_host : on_device).push_back(values);
    (values.is_cpu() ? places_on_host : places_on_device).push_back(copy);
  }
  std::vector<uint64_t> hashes(copies.size(), 0);
  const auto put = [&](const std::vector<size_t>& places, const std::vector<uint64_t>& of_places) {
    for (size_t i = 0; i < places.size(); ++i) hashes[places[i]] = of_places[i];
  };
  put(places_on_host, hash_on_host(on_host));
  put(places_on_device, hash_on_device(on_device));
  return hashes;
}

// Whose copies along each set of axes differ: [set of axes][rank]. The same on every rank.
std::vector<std::vector<bool>> compare_digests(const std::vector<Copy>& copies, const std::vector<uint64_t>& hashes,
                                               const Grid& grid) {
  const size_t num_sets = num_axis_sets(grid);
  std::vector<std::vector<uint64_t>> by_axes(num_sets);
  for (size_t copy = 0; copy < copies.size(); ++copy)
    by_axes[number_of(copies[copy].axes, grid)].push_back(hashes[copy]);
  const at::Tensor own = at::zeros({static_cast<int64_t>(num_sets)}, at::kLong);
  for (size_t axes = 0; axes < num_sets; ++axes)
    own.mutable_data_ptr<int64_t>()[axes] =
        static_cast<int64_t>(hash64(by_axes[axes].data(), by_axes[axes].size() * sizeof(uint64_t)));
  const at::Tensor all = grid.world.all_gather(own);
  const auto digest = [&](int64_t rank, size_t axes) {
    return all.const_data_ptr<int64_t>()[static_cast<size_t>(rank) * num_sets + axes];
  };
  std::vector<std::vector<bool>> differ(num_sets);
  for (size_t axes = 0; axes < num_sets; ++axes) {
    const int64_t num_ranks = grid.shape.num_ranks();
    std::vector<bool> in_set(static_cast<size_t>(num_ranks), false);  // by first holder
    const auto first_of = [&](int64_t rank) { return first_holder(grid.shape, axes_of(axes, grid), rank); };
    for (int64_t rank = 0; rank < num_ranks; ++rank)
      if (digest(rank, axes) != digest(first_of(rank), axes)) in_set[static_cast<size_t>(first_of(rank))] = true;
    for (int64_t rank = 0; rank < num_ranks; ++rank)
      differ[axes].push_back(in_set[static_cast<size_t>(first_of(rank))]);
  }
  return differ;
}

std::string number_in(const at::Tensor& values) {
  if (values.numel() != 1) return "";
  return at::isIntegralType(values.scalar_type(), true) ? std::to_string(values.item<int64_t>())
                                                        : format_shortest(values.item<double>());
}

// What one rank holds of a copy.
struct Holding {
  int64_t rank;
  std::string hash, value;
};

// Holdings are in the order of ranks.
CopyDifference judge(const std::string& name, const std::vector<Holding>& holdings) {
  const Holding* kept = nullptr;
  size_t most = 0;
  for (const Holding& candidate : holdings) {
    size_t count = 0;
    for (const Holding& other : holdings) count += other.hash == candidate.hash;
    if (count > most) {
      most = count;
      kept = &candidate;
    }
  }
  CopyDifference difference{.name = name, .kept = {}, .others = {}, .kept_value = kept->value, .other_value = ""};
  for (const Holding& holding : holdings) {
    if (holding.hash == kept->hash) {
      difference.kept.push_back(holding.rank);
      continue;
    }
    if (difference.others.empty()) difference.other_value = holding.value;
    difference.others.push_back(holding.rank);
  }
  return difference;
}

// "name<tab>hash<tab>value<tab>axes" of each copy that differs or may.
std::string suspects(const std::vector<Copy>& copies, const std::vector<uint64_t>& hashes,
                     const std::vector<std::vector<bool>>& differ, const Grid& grid) {
  std::string lines;
  for (size_t copy = 0; copy < copies.size(); ++copy) {
    const size_t axes = number_of(copies[copy].axes, grid);
    if (differ[axes][static_cast<size_t>(grid.rank)])
      lines +=
          concat(copies[copy].name, "\t", hex64(hashes[copy]), "\t", number_in(copies[copy].values), "\t", axes, "\n");
  }
  return lines;
}

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::vector<std::string> texts;
  for (const int64_t rank : ranks) texts.push_back(std::to_string(rank));
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(texts, ", "));
}

}  // namespace

std::vector<CopyDifference> find_differences(const std::vector<Copy>& copies, const Grid& grid) {
  if (grid.world.size() == 1) return {};
  const size_t num_sets = num_axis_sets(grid);
  std::vector<bool> wanted(num_sets);
  for (size_t axes = 0; axes < num_sets; ++axes)
    wanted[axes] = has_other_holders(grid.shape, axes_of(axes, grid), grid.rank);
  const std::vector<uint64_t> hashes = hash_copies(copies, wanted, grid);
  const auto differ = compare_digests(copies, hashes, grid);
  bool any = false;
  for (const std::vector<bool>& ranks : differ)
    for (const bool differs : ranks) any = any || differs;
  if (!any) return {};

  // By set of holders, then in the order in which the first of them lists its copies.
  std::map<std::pair<int64_t, std::string>, size_t> index;
  std::vector<std::pair<std::string, std::vector<Holding>>> compared;
  const std::vector<std::string> tables = grid.world.gather_texts(suspects(copies, hashes, differ, grid));
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    for (const std::string& line : split(tables[rank], '\n')) {
      if (line.empty()) continue;
      const std::vector<std::string> fields = split(line, '\t');
      const auto holder = static_cast<int64_t>(rank);
      const int64_t first = first_holder(grid.shape, axes_of(std::stoul(fields[3]), grid), holder);
      const auto [at, is_new] = index.try_emplace({first, fields[0]}, compared.size());
      if (is_new) compared.push_back({fields[0], {}});
      compared[at->second].second.push_back({holder, fields[1], fields[2]});
    }
  }
  std::vector<CopyDifference> differences;
  for (const auto& [name, holdings] : compared)
    if (CopyDifference difference = judge(name, holdings); !difference.others.empty())
      differences.push_back(std::move(difference));
  ESPALIER_CHECK(!differences.empty(), "ranks list other copies, or in another order");
  return differences;
}

void repair(const std::vector<Copy>& copies, const std::vector<CopyDifference>& differences, const Grid& grid) {
  std::map<std::string, at::Tensor> by_name;
  for (const Copy& copy : copies) by_name.emplace(copy.name, copy.values);
  for (const CopyDifference& difference : differences)
    for (const int64_t other : difference.others) {
      const int64_t source = difference.kept.front();
      if (grid.rank == source) grid.world.start_send(by_name.at(difference.name), other, kRepairTag).wait();
      if (grid.rank == other) grid.world.start_receive(by_name.at(difference.name), source, kRepairTag).wait();
    }
}

std::vector<std::string> describe(const std::vector<CopyDifference>& differences) {
  std::vector<std::pair<const CopyDifference*, std::vector<std::string>>> groups;
  for (const CopyDifference& difference : differences) {
    auto group = groups.begin();
    while (group != groups.end() &&
           (group->first->kept != difference.kept || group->first->others != difference.others))
      ++group;
    if (group == groups.end()) group = groups.insert(groups.end(), {&difference, {}});
    std::string name = difference.name;
    if (!difference.kept_value.empty())
      name += concat(" (", difference.other_value, ", not ", difference.kept_value, ")");
    group->second.push_back(std::move(name));
  }
  std::vector<std::string> sentences;
  for (auto& [ranks, names] : groups) {
    const size_t num_more = names.size() > kMaxNames ? names.size() - kMaxNames : 0;
    names.resize(names.size() - num_more);
    const bool one = ranks->others.size() == 1;
    sentences.push_back(
        concat(rank_list(ranks->others), one ? " does" : " do", " not hold what ", rank_list(ranks->kept),
               ranks->kept.size() == 1 ? " holds (" : " hold (",
               ranks->has_majority() ? "majority" : concat("no majority, rank ", ranks->kept.front(), " counts"),
               "): ", join(names, ", "), num_more > 0 ? concat(" and ", num_more, " more") : ""));
  }
  return sentences;
}

}  // namespace espalier::dist
