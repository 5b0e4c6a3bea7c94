// Which samples hold a document: against a plain loop over all samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "data/gpt_dataset.h"
#include "data/sample_index.h"
#include "data/sampler.h"

namespace espalier::data {
namespace sightings_test {

// Sizes 0 to 40, many of them 0 to 2: documents that end a sample, fill none, or span several.
std::vector<int32_t> sizes_of(int64_t num_documents, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> sizes;
  for (int64_t document = 0; document < num_documents; ++document)
    sizes.push_back(static_cast<int32_t>(random() % 3 == 0 ? random() % 3 : random() % 41));
  return sizes;
}

// One epoch, several that are shuffled together, and a last one that comes apart.
TEST(Sightings, EqualALoopOverAllSamples) {
  for (const auto& [num_documents, length, num_samples] :
       {std::tuple(1, 1, 1), std::tuple(7, 33, 40), std::tuple(33, 7, 1), std::tuple(33, 7, 200),
        std::tuple(100, 5, 701)}) {
    std::vector<int32_t> sizes = sizes_of(num_documents, static_cast<unsigned>(num_samples));
    sizes[0] += 2;
    const DocumentRange range{num_documents > 30 ? 3 : 0, num_documents};
    const SampleIndex index = SampleIndex::build(
        DocumentSizes(sizes),
        {.documents = range, .sequence_length = length, .num_samples = num_samples, .seed = 7, .name = "test"});
    std::map<int64_t, std::vector<Sighting>> expected;
    for (int64_t sample = 0; sample < index.size(); ++sample) {
      std::vector<DocumentSpan> spans;
      index.spans(sample, spans);
      int64_t at = 0;
      for (const DocumentSpan& span : spans) {
        expected[span.document].push_back({sample, at, span});
        at += span.length;
      }
    }
    for (int64_t document = 0; document < num_documents; ++document)
      EXPECT_EQ(index.sightings({document, document + 1}), expected[document])
          << "document " << document << " of " << num_documents << ", length " << length;
    std::vector<Sighting> of_two = expected[num_documents / 2];
    if (num_documents > 1)
      for (const Sighting& one : expected[num_documents / 2 + 1]) of_two.push_back(one);
    std::sort(of_two.begin(), of_two.end(), [](const Sighting& a, const Sighting& b) {
      return std::pair(a.sample, a.at) < std::pair(b.sample, b.at);
    });
    EXPECT_EQ(index.sightings({num_documents / 2, num_documents / 2 + 2}), of_two);
  }
}

TEST(BlendIndexBackwards, EqualsALoopOverTheBlend) {
  const std::vector<double> weights = {0.5, 0.125, 0.375};
  const std::vector<int64_t> lengths = {2500, 640, 1800};
  const BlendIndex blend = BlendIndex::build(weights, lengths);
  std::vector<std::vector<int64_t>> places(3);
  for (int64_t sample = 0; sample < blend.size(); ++sample)
    places[static_cast<size_t>(blend.place(sample).set)].push_back(sample);
  for (int64_t set = 0; set < 3; ++set)
    for (int64_t sample = 0; sample < lengths[static_cast<size_t>(set)]; ++sample) {
      const auto& there = places[static_cast<size_t>(set)];
      const bool is_in = sample < static_cast<int64_t>(there.size());
      ASSERT_EQ(blend.sample_at({set, sample}),
                is_in ? std::optional(there[static_cast<size_t>(sample)]) : std::nullopt)
          << set << " " << sample;
    }
}

TEST(SamplerBackwards, EqualsALoopOverThePlaces) {
  for (Sampler sampler : {Sampler::sequential(23), Sampler::cyclic(23, {}),
                          Sampler::cyclic(23, {.micro_batch_size = 2, .data_parallel_size = 5})}) {
    std::vector<std::vector<int64_t>> expected(23);
    for (int64_t place = 0; place < 57; ++place) expected[static_cast<size_t>(sampler.sample(place))].push_back(place);
    for (int64_t sample = 0; sample < 23; ++sample)
      EXPECT_EQ(sampler.places(sample, 57), expected[static_cast<size_t>(sample)]) << sampler.description();
  }
}

// The ids of the pieces are those of the sample, and each document is found in the samples whose pieces name it.
TEST(GptDatasetPieces, AreTheSampleAndAreFoundAgain) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "espalier_sightings_test";
  std::filesystem::create_directories(folder);
  std::mt19937 random(3);
  std::vector<std::string> prefixes;
  for (const int64_t num_documents : {17, 5}) {
    prefixes.push_back((folder / concat("set", num_documents)).string());
    TokenStoreWriter writer(prefixes.back(), TokenType::kInt32);
    for (int64_t document = 0; document < num_documents; ++document) {
      std::vector<int32_t> ids(1 + random() % 20);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 50000);
      writer.add_sequence(ids);
      writer.end_document();
    }
    writer.finish();
  }
  DataSetOptions options;
  options.data_path = {"0.7", prefixes[0], "0.3", prefixes[1]};
  options.split = "100,0,0";
  options.sequence_length = 9;
  options.train_samples = 90;
  const auto dataset = GptDataSets::open_train(options);
  std::vector<std::map<int64_t, std::vector<std::pair<int64_t, SamplePiece>>>> expected(2);
  for (int64_t number = 0; number < dataset->size(); ++number) {
    std::vector<int64_t> ids(10), of_pieces;
    const int64_t source = dataset->sample(number, ids);
    for (const SamplePiece& piece : dataset->pieces(number)) {
      EXPECT_EQ(piece.at, static_cast<int64_t>(of_pieces.size()));
      of_pieces.resize(static_cast<size_t>(piece.at + piece.length));
      piece.store->read(piece.sequence, piece.offset, piece.length, of_pieces.data() + piece.at);
      expected[static_cast<size_t>(source)][piece.sequence].emplace_back(number, piece);
    }
    EXPECT_EQ(of_pieces, ids);
  }
  for (int64_t source = 0; source < 2; ++source)
    for (int64_t document = 0; document < (source == 0 ? 17 : 5); ++document) {
      std::vector<std::pair<int64_t, SamplePiece>> found;
      for (const FoundPiece& one :
           dataset->find(dataset->traced_files()[static_cast<size_t>(source)], {document, document + 1}))
        found.emplace_back(one.number, one.piece);
      EXPECT_TRUE(found == expected[static_cast<size_t>(source)][document]) << source << " " << document;
    }
  std::filesystem::remove_all(folder);
}

}  // namespace sightings_test
}  // namespace espalier::data
