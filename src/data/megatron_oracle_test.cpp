// Cases that Megatron-DeepSpeed's own code computed (tests/oracle/megatron_data_oracle.py): those that are committed,
// and new random ones where ESPALIER_FRESH_ORACLES names a folder with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "data/blend.h"
#include "data/internal/test_folder.h"
#include "data/merge.h"
#include "data/packed_dataset.h"
#include "data/sample_index.h"
#include "data/sampler.h"
#include "tests/support/npy.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;
using test_files::TestFolder;

struct Case {
  std::filesystem::path folder;
  Json values;

  std::string operator/(const std::string& name) const { return (folder / name).string(); }
  std::vector<int64_t> array(const std::string& name) const {
    return test::read_npy(folder / (name + ".npy")).as<int64_t>();
  }
};

std::vector<Case> cases_of(const std::string& kind) {
  std::vector<std::filesystem::path> roots = {"tests/data/megatron-oracle/fresh_data"};
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES"))
    if (std::filesystem::exists(std::filesystem::path(fresh) / "megatron_data"))
      roots.push_back(std::filesystem::path(fresh) / "megatron_data");
  std::vector<Case> cases;
  for (const std::filesystem::path& root : roots)
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      Case found{entry.path(), Json::parse(read_file(entry.path() / "case.json"))};
      if (found.values["kind"] == kind) cases.push_back(std::move(found));
    }
  EXPECT_GE(cases.size(), 2u) << kind;
  return cases;
}

std::vector<int64_t> values_of(const IndexArray& array) {
  std::vector<int64_t> values;
  for (int64_t at = 0; at < array.size(); ++at) values.push_back(array[at]);
  return values;
}

void expect_documents(const std::string& prefix, const Json& documents) {
  const TokenStore store(prefix);
  store.check_all();
  ASSERT_EQ(store.num_documents(), static_cast<int64_t>(documents.size())) << prefix;
  for (int64_t document = 0; document < store.num_documents(); ++document) {
    std::vector<std::vector<int64_t>> sequences;
    for (int64_t at = store.first_sequence(document); at < store.first_sequence(document + 1); ++at) {
      sequences.emplace_back(static_cast<size_t>(store.size(at)));
      store.read(at, 0, store.size(at), sequences.back().data());
    }
    EXPECT_EQ(Json(sequences), documents[static_cast<size_t>(document)]) << prefix << " document " << document;
  }
}

TEST(MegatronOracle, StoresOfEveryFormatHoldTheSame) {
  for (const Case& one : cases_of("stores")) {
    for (const char* name : {"narrow", "wide", "cached", "merged"})
      expect_documents(one / name, one.values["documents"]);
    EXPECT_EQ(TokenStore(one / "cached").format(), IndexFormat::kLegacy);
    TestFolder folder;
    merge({one / "part0", one / "part1"}, folder / "merged");
    merge({one / "cached"}, folder / "converted");
    for (const char* ending : {".idx", ".bin"}) {
      EXPECT_EQ(read_file(folder / "merged" + ending), read_file(one / "merged" + ending)) << one.folder;
      EXPECT_EQ(read_file(folder / "merged" + ending), read_file(one / "narrow" + ending)) << one.folder;
      EXPECT_EQ(read_file(folder / "converted" + ending), read_file(one / "wide" + ending)) << one.folder;
    }
  }
}

TEST(MegatronOracle, SampleOrdersAreEqual) {
  for (const Case& one : cases_of("gpt")) {
    const TokenStore store(one / "set");
    const SampleIndex index = SampleIndex::build(store.sizes(), {.documents = {one.values["begin"], one.values["end"]},
                                                                 .sequence_length = one.values["sequence_length"],
                                                                 .num_samples = one.values["num_samples"],
                                                                 .seed = one.values["seed"],
                                                                 .name = "set"});
    EXPECT_EQ(values_of(index.documents()), one.array("documents")) << one.folder;
    EXPECT_EQ(values_of(index.starts()), one.array("starts")) << one.folder;
    EXPECT_EQ(values_of(index.order()), one.array("order")) << one.folder;
  }
}

// Upstream promises samples beyond the end of a set; our blend ends before the first of them.
TEST(MegatronOracle, BlendsAreEqualUpToTheFirstSampleThatIsNotThere) {
  for (const Case& one : cases_of("blend")) {
    const std::vector<double> weights = one.values["weights"];
    const std::vector<int64_t> lengths = one.values["lengths"], sets = one.array("sets"),
                               samples = one.array("samples");
    const BlendIndex blend = BlendIndex::build(weights, lengths);
    int64_t end = 0;
    while (end < static_cast<int64_t>(sets.size()) &&
           samples[static_cast<size_t>(end)] < lengths[static_cast<size_t>(sets[static_cast<size_t>(end)])])
      ++end;
    ASSERT_EQ(blend.size(), end) << one.folder;
    for (int64_t at = 0; at < end; ++at)
      ASSERT_EQ(blend.place(at), (BlendIndex::Place{sets[static_cast<size_t>(at)], samples[static_cast<size_t>(at)]}))
          << one.folder << " sample " << at;
  }
}

TEST(MegatronOracle, PackedRowsAreEqual) {
  for (const Case& one : cases_of("packed")) {
    const int64_t count = TokenStore(one / "p3_inputs_document").num_sequences();
    DataSetOptions options;
    // The shortest decimals come back as the number that they were.
    options.train_weighted_split_paths = {concat(
        "train: 1 0:", format_shortest(one.values["end"].get<double>() / static_cast<double>(count)), " ", one / "p3")};
    options.sequence_length = one.values["sequence_length"];
    options.train_samples = one.values["num_samples"];
    options.seed = one.values["seed"];
    options.endings = {kInputsEnding, kTargetsEnding};
    const PackedDataSets sets = PackedDataSets::open(options, one.values["pad_id"]);
    const PackedIndex& index = sets.train->parts()[0].index;
    std::vector<int64_t> rows;
    for (const PackedIndex::Row& row : index.rows()) rows.insert(rows.end(), {row.begin, row.end});
    EXPECT_EQ(rows, one.array("rows")) << one.folder;
    EXPECT_EQ(index.order(), one.array("order")) << one.folder;
    std::vector<int64_t> ids, segments, is_input;
    for (int64_t row = 0; row < std::min<int64_t>(sets.train->size(), 8); ++row) {
      Sample sample;
      sets.train->read(row, sample);
      const auto append = [&](PackedDataset::Field field, std::vector<int64_t>& to) {
        to.insert(to.end(), sample.arrays[field].begin(), sample.arrays[field].end());
      };
      append(PackedDataset::kIds, ids);
      append(PackedDataset::kSegments, segments);
      append(PackedDataset::kIsInput, is_input);
    }
    EXPECT_EQ(ids, one.array("decoder_token_ids")) << one.folder;
    EXPECT_EQ(segments, one.array("decoder_segment_ids")) << one.folder;
    EXPECT_EQ(is_input, one.array("decoder_is_inputs")) << one.folder;
  }
}

// Rank by rank what upstream's own samplers gave each, for two layouts.
TEST(MegatronOracle, EveryRankReadsTheSameSamples) {
  for (const Case& one : cases_of("sampler")) {
    const CyclicLayout layout{.micro_batch_size = one.values["micro_batch_size"],
                              .data_parallel_size = one.values["data_parallel_size"]};
    const int64_t num_samples = one.values["num_samples"];
    for (const char* kind : {"cyclic", "single"}) {
      Sampler sampler =
          kind == std::string("cyclic") ? Sampler::cyclic(num_samples, layout) : Sampler::sequential(num_samples);
      const std::vector<int64_t> expected = one.array(kind);
      const int64_t of_rank = static_cast<int64_t>(expected.size()) / layout.data_parallel_size;
      std::vector<int64_t> found;
      for (int64_t rank = 0; rank < layout.data_parallel_size; ++rank) {
        int64_t consumed = one.values[std::string(kind) + "_consumed"];
        for (int64_t at = 0; at < of_rank; at += layout.micro_batch_size) {
          for (int64_t row = 0; row < layout.micro_batch_size; ++row)
            found.push_back(sampler.sample(consumed + rank * layout.micro_batch_size + row));
          consumed += layout.samples_per_turn();
        }
      }
      EXPECT_EQ(found, expected) << one.folder << " " << kind;
    }
  }
}

}  // namespace
}  // namespace espalier::data
