#include "retrieval/neighbors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "data/gpt_dataset.h"
#include "retrieval/chunk_embeddings.h"
#include "retrieval/chunk_search.h"
#include "retrieval/internal/test_corpus.h"
#include "retrieval/internal/test_vectors.h"
#include "retrieval/retro_dataset.h"

namespace espalier::retrieval {
namespace neighbors_test {

using namespace test_corpus;
using test_files::error_of;
using test_files::TestFolder;

constexpr int64_t kLength = 8, kSequence = 24, kDimension = 64, kSaved = 3;

class Neighbors : public ::testing::Test {
 protected:
  Neighbors() {
    documents_ = random_documents({40, 3, 25, 17, 60, 8, 31, 22, 9, 50}, 5);
    write_documents(folder_ / "a", documents_);
    build_chunks({.folder = folder_.path(),
                  .chunk_length = kLength,
                  .end_of_document = kEnd,
                  .parts = {{folder_ / "a", {0, 9}}}});  // the last document is in no chunk
    chunks_ = std::make_shared<const ChunkDatabase>(folder_.path());
    ChunkEmbeddings source(*chunks_, embedder_, 1);
    build_index(source, {.folder = folder_ / "index", .shard_rows = 7});
  }

  data::DataSetOptions options(int64_t samples) const {
    data::DataSetOptions options;
    options.train_data_path = {folder_ / "a"};
    options.sequence_length = kSequence;
    options.train_samples = samples;
    return options;
  }
  QuerySource queries(const data::GptDataset& samples) const {
    return {.name = embedder_.name(), .read = [this, &samples](int64_t first, int64_t count, float* rows) {
              for (int64_t sample = first; sample < first + count; ++sample) {
                std::vector<int64_t> ids(kSequence + 1);
                samples.sample(sample, ids);
                for (int64_t chunk = 0; chunk < kSequence / kLength; ++chunk, rows += kDimension)
                  embedder_.embed({ids.data() + chunk * kLength, static_cast<size_t>(kLength)}, rows);
              }
            }};
  }
  NeighborSummary find(const data::GptDataset& samples, NeighborPlan plan) const {
    return find_neighbors(plan, *chunks_, read_index(folder_ / "index"), samples, queries(samples));
  }
  // All chunks of other documents by their inner product in double, the greatest first, of equal ones the lowest id.
  std::vector<int64_t> plain_row(const data::GptDataset& samples, int64_t sample, int64_t chunk, int64_t count) const {
    std::vector<int64_t> ids(kSequence + 1);
    samples.sample(sample, ids);
    std::set<int64_t> own;
    for (const data::SamplePiece& piece : samples.pieces(sample)) own.insert(piece.sequence);
    return plain_nearest({ids.data() + chunk * kLength, static_cast<size_t>(kLength)}, own, count);
  }
  std::vector<int64_t> plain_nearest(std::span<const int64_t> ids, const std::set<int64_t>& left_out,
                                     int64_t count) const {
    std::vector<float> query(kDimension), row(kDimension);
    embedder_.embed(ids, query.data());
    std::vector<std::pair<double, int64_t>> all;
    for (int64_t id = 0; id < chunks_->size(); ++id) {
      const ChunkDatabase::Place place = chunks_->place(id);
      if (left_out.contains(place.document)) continue;
      std::vector<int64_t> text(kLength);
      chunks_->read(place, 1, text.data());
      embedder_.embed({text.data(), static_cast<size_t>(place.length)}, row.data());
      double score = 0;
      for (int64_t at = 0; at < kDimension; ++at) score += static_cast<double>(query[at]) * row[at];
      all.push_back({-score, id});
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> ids_found;
    for (int64_t place = 0; place < count; ++place)
      ids_found.push_back(place < static_cast<int64_t>(all.size()) ? all[static_cast<size_t>(place)].second : -1);
    return ids_found;
  }

  TestFolder folder_;
  Documents documents_;
  NgramEmbedder embedder_{kDimension};
  std::shared_ptr<const ChunkDatabase> chunks_;
};

// Of a text that is in no document, and of one that is, whose own chunks are not left out.
TEST_F(Neighbors, OfNewTextsAreThoseOfAPlainLoop) {
  const ChunkSearch search(folder_.path(), {.count = kSaved});
  std::vector<int64_t> ids;
  for (int64_t at = 0; at < kLength; ++at) ids.push_back((at * 5 + 2) % kEnd);
  ids.insert(ids.end(), documents_[4].begin(), documents_[4].begin() + 2 * kLength);
  const auto found = search.find(ids);
  ASSERT_EQ(found.size(), 3u);
  for (size_t chunk = 0; chunk < 3; ++chunk)
    EXPECT_EQ(found[chunk], plain_nearest(std::span<const int64_t>(ids).subspan(chunk * kLength, kLength), {}, kSaved));
  const ChunkDatabase::Place own = chunks_->place(found[1][0]);
  EXPECT_EQ(std::make_pair(own.document, own.begin), std::make_pair(int64_t{4}, int64_t{0}));
  EXPECT_EQ(ChunkSearch(folder_.path(), {.count = 1000}).find(ids)[0].size(), static_cast<size_t>(chunks_->size()));
}

TEST_F(Neighbors, OfNewTextsNeedAnIndexOfTheseChunksByTheirNgrams) {
  const auto error = [&] { return error_of([&] { ChunkSearch(folder_.path(), {}); }); };
  test_vectors::Vectors source = test_vectors::random(chunks_->size(), kDimension, 4);
  const BuildPlan plan{.folder = folder_ / "index", .overwrite = true};
  for (const auto& [origin, part] :
       {std::pair<EmbeddingOrigin, const char*>{{"", "files 1"}, "of vectors that another program made"},
        {{"0123", "passages 2"}, "of vectors that '0123' made"},
        {{embedder_.name(), "chunks 3"}, "is an index of other chunks than those of"}}) {
    source.made_from = origin;
    build_index(source, plan);
    EXPECT_NE(error().find(part), std::string::npos) << error();
  }
  std::filesystem::remove_all(folder_ / "index");
  EXPECT_NE(error().find("holds no index"), std::string::npos) << error();
}

// With few candidates asked for at first, so that own documents leave too few; of any number of threads and blocks.
TEST_F(Neighbors, AreThoseOfAPlainLoop) {
  const auto samples = data::GptDataSets::open_train(options(20));
  for (const auto& [block_chunks, threads] : {std::pair<int64_t, int>{1, 1}, {21, 2}, {100'000, 1}}) {
    const std::string path = folder_ / concat("found", block_chunks);
    const NeighborSummary summary =
        find(*samples,
             {.folder = path, .num_saved = kSaved, .num_asked = 1, .block_chunks = block_chunks, .threads = threads});
    EXPECT_EQ(summary.missing, 0);
    const NeighborFile found(path);
    ASSERT_EQ(found.num_samples(), samples->size());
    for (int64_t sample = 0; sample < samples->size(); ++sample)
      for (int64_t chunk = 0; chunk < kSequence / kLength; ++chunk) {
        const std::span<const int64_t> row = found.row(sample, chunk);
        EXPECT_EQ(std::vector<int64_t>(row.begin(), row.end()), plain_row(*samples, sample, chunk, kSaved))
            << "sample " << sample << ", chunk " << chunk;
      }
  }
}

TEST_F(Neighbors, ThatDoNotExistAreMinusOne) {
  const auto samples = data::GptDataSets::open_train(options(20));
  const NeighborSummary summary = find(*samples, {.folder = folder_ / "all", .num_saved = 40});
  EXPECT_GT(summary.missing, 0);
  const NeighborFile found(folder_ / "all");
  const std::span<const int64_t> row = found.row(3, 1);
  EXPECT_EQ(std::vector<int64_t>(row.begin(), row.end()), plain_row(*samples, 3, 1, 40));
}

TEST_F(Neighbors, ASearchThatWasStoppedGoesOnToTheSameBytes) {
  const auto samples = data::GptDataSets::open_train(options(20));
  const NeighborPlan plan{.folder = folder_ / "straight", .num_saved = kSaved, .block_chunks = 9};
  const NeighborSummary straight = find(*samples, plan);
  EXPECT_GT(straight.blocks, 4);
  NeighborPlan again = plan;
  again.folder = folder_ / "stopped";
  find(*samples, again);
  // As a process leaves it that was killed while it wrote the third block.
  std::filesystem::rename(folder_ / "stopped/neighbors.json", folder_ / "stopped/building.json");
  for (int64_t block = 2; block < straight.blocks; ++block)
    std::filesystem::remove(folder_ / concat("stopped/block-0000", block, ".safetensors"));
  test_files::write_text(folder_ / "stopped/block-00002.safetensors.tmp", "half");
  EXPECT_NE(error_of([&] { NeighborFile{folder_ / "stopped"}; }).find("holds no complete neighbours"),
            std::string::npos);
  EXPECT_EQ(find(*samples, again).blocks_kept, 2);
  for (int64_t block = 0; block < straight.blocks; ++block) {
    const std::string name = concat("/block-0000", block, ".safetensors");
    EXPECT_EQ(read_file(folder_ / ("straight" + name)), read_file(folder_ / ("stopped" + name)));
  }
  // Killed between its last two steps, it has nothing left to do but to put away the description.
  std::filesystem::copy(folder_ / "stopped/neighbors.json", folder_ / "stopped/building.json");
  EXPECT_EQ(find(*samples, again).blocks_kept, straight.blocks);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "stopped/building.json"));
  again.num_saved = 2;
  EXPECT_NE(
      error_of([&] { find(*samples, again); }).find("neighbours of something else: neighbors is 3 there and 2 now"),
      std::string::npos);
}

TEST_F(Neighbors, SamplesHoldTheTokensOfTheirNeighbors) {
  {
    const auto samples = data::GptDataSets::open_train(options(20));
    find(*samples, {.folder = neighbor_folder(folder_.path(), "train", "train"), .num_saved = kSaved});
  }
  const RetroDataSets sets =
      RetroDataSets::open(options(20), {.workdir = folder_.path(), .num_neighbors = 2, .num_retrieved_chunks = 3});
  const auto samples = data::GptDataSets::open_train(options(20));
  data::Sample sample, text;
  for (int64_t number = 0; number < sets.train->size(); ++number) {
    sets.train->read(number, sample);
    samples->read(number, text);
    EXPECT_EQ(sample.arrays[RetroDataset::kText], text.arrays[0]);
    EXPECT_EQ(sample.arrays[RetroDataset::kNeighborCounts], (std::vector<int64_t>{2, 2, 2}));
    for (int64_t chunk = 0; chunk < 3; ++chunk)
      for (int64_t neighbor = 0; neighbor < 2; ++neighbor) {
        const ChunkDatabase::Place place =
            chunks_->place(plain_row(*samples, number, chunk, 2)[static_cast<size_t>(neighbor)]);
        std::vector<int32_t> document = documents_[static_cast<size_t>(place.document)];
        document.pop_back();
        document.resize(document.size() + 3 * kLength, kEnd);
        const auto begin = sample.arrays[RetroDataset::kNeighborTokens].begin() + (chunk * 2 + neighbor) * 3 * kLength;
        EXPECT_TRUE(std::equal(begin, begin + 3 * kLength, document.begin() + place.begin)) << number << ", " << chunk;
      }
  }
}

TEST_F(Neighbors, OfOtherSamplesAreRefused) {
  const auto open = [&](const data::DataSetOptions& data, int64_t neighbors) {
    return error_of([&] { RetroDataSets::open(data, {.workdir = folder_.path(), .num_neighbors = neighbors}); });
  };
  EXPECT_NE(open(options(20), 2).find("holds no neighbours"), std::string::npos);
  {
    const auto samples = data::GptDataSets::open_train(options(20));
    find(*samples, {.folder = neighbor_folder(folder_.path(), "train", "train"), .num_saved = kSaved});
  }
  EXPECT_NE(open(options(20), 4).find("each chunk has 3 of them, but --retro-num-neighbors is 4"), std::string::npos);
  EXPECT_NE(open(options(200), 2).find("asked for 20 samples"), std::string::npos) << open(options(200), 2);
  data::DataSetOptions other = options(20);
  other.seed = 7;
  EXPECT_NE(open(other, 2).find("the seed was 1234 and is 7"), std::string::npos) << open(other, 2);
  const std::filesystem::path description = neighbor_folder(folder_.path(), "train", "train") / "neighbors.json";
  auto json = parse_json<nlohmann::json>(read_file(description), description.string());
  json["block_samples"] = 0;
  test_files::write_text(description.string(), json.dump());
  EXPECT_NE(open(options(20), 2).find("describes no neighbours: expected at least one chunk"), std::string::npos)
      << open(options(20), 2);
}

// Known answers: XXH3 of the little-endian 32-bit ids of each run, by tests/oracle/ngram_vectors.py with the Python
// package xxhash.
TEST(NgramEmbedder, HashesRunsOfUpToThreeTokens) {
  std::vector<float> vector(16);
  const std::vector<int64_t> ids = {5, 7, 5, 7, 1000};
  NgramEmbedder(16).embed(ids, vector.data());
  const std::vector<double> wanted = {0,           0.316227766, -0.316227766, 0,          0, 0, 0, 0, 0, 0, 0, 0,
                                      0.316227766, 0.547722558, -0.447213595, 0.447213595};
  for (size_t at = 0; at < vector.size(); ++at) EXPECT_NEAR(vector[at], wanted[at], 1e-7) << at;
  NgramEmbedder(16).embed({}, vector.data());
  EXPECT_EQ(vector, std::vector<float>(16, 0.0f));
}

}  // namespace neighbors_test
}  // namespace espalier::retrieval
