// Documents that stay whole, against what the definition says of every sample.
#include "data/best_fit_index.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/format.h"
#include "data/decoder_masks.h"
#include "data/gpt_dataset.h"
#include "data/internal/test_folder.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace best_fit_index_test {

using test_files::error_of;
using test_files::TestFolder;

DocumentSizes view(const std::vector<int32_t>& sizes) { return std::span(sizes); }

BestFitIndex index_of(const std::vector<int32_t>& sizes, int64_t length, uint32_t seed = 5) {
  return BestFitIndex::build(view(sizes), {{0, static_cast<int64_t>(sizes.size())}, length, seed, "test"});
}

// Those of an .idx, which begin at byte 34.
std::vector<int32_t> sizes_in(const std::filesystem::path& idx) {
  const std::string bytes = test::read_bytes(idx);
  int64_t count = 0;
  std::memcpy(&count, bytes.data() + 18, sizeof count);
  std::vector<int32_t> sizes(static_cast<size_t>(count));
  std::memcpy(sizes.data(), bytes.data() + 34, sizes.size() * sizeof(int32_t));
  return sizes;
}

// Lengths as text has them: many short ones, few long ones.
std::vector<int32_t> text_sizes(size_t count, uint32_t seed, double median) {
  std::mt19937 random(seed);
  std::lognormal_distribution<double> size(std::log(median), 1.1);
  std::vector<int32_t> sizes;
  for (size_t at = 0; at < count; ++at) sizes.push_back(1 + static_cast<int32_t>(size(random)));
  return sizes;
}

// Whole where they fit; else in pieces that overlap by one token, so that each token but the first is a label once.
void expect_all_documents(const BestFitIndex& index, const std::vector<int32_t>& sizes, int64_t length) {
  std::map<int64_t, std::vector<DocumentSpan>> pieces;
  std::vector<DocumentSpan> spans;
  for (int64_t sample = 0; sample < index.size(); ++sample) {
    index.spans(sample, spans);
    ASSERT_FALSE(spans.empty());
    int64_t tokens = 0;
    for (const DocumentSpan& span : spans) {
      EXPECT_GT(span.length, 0);
      tokens += span.length;
      pieces[span.document].push_back(span);
    }
    EXPECT_LE(tokens, length + 1) << sample;
  }
  for (size_t document = 0; document < sizes.size(); ++document) {
    std::vector<DocumentSpan>& of_document = pieces[static_cast<int64_t>(document)];
    if (sizes[document] == 0) {
      EXPECT_TRUE(of_document.empty());
      continue;
    }
    std::sort(of_document.begin(), of_document.end(),
              [](const DocumentSpan& a, const DocumentSpan& b) { return a.offset < b.offset; });
    if (sizes[document] <= length + 1) {
      EXPECT_EQ(of_document.size(), 1u) << "document " << document;
    }
    int64_t end = 0;
    for (const DocumentSpan& span : of_document) {
      EXPECT_EQ(span.offset, end == 0 ? 0 : end - 1) << "document " << document;
      end = span.offset + span.length;
    }
    EXPECT_EQ(end, sizes[document]) << "document " << document;
  }
}

TEST(BestFitIndex, KeepsEveryDocumentThatFitsWhole) {
  for (const int64_t length : {1, 7, 33, 128}) {
    SCOPED_TRACE(length);
    std::vector<int32_t> sizes = text_sizes(997, 3, 40);
    sizes[5] = 0, sizes[6] = static_cast<int32_t>(length) + 1, sizes[7] = static_cast<int32_t>(length) + 2;
    sizes[8] = 2 * static_cast<int32_t>(length) + 1, sizes[9] = 1;
    expect_all_documents(index_of(sizes, length), sizes, length);
  }
  for (const std::vector<int32_t>& sizes : {std::vector<int32_t>{1}, {8}, {9}, {0, 0, 3}, {100}}) {
    expect_all_documents(index_of(sizes, 7), sizes, 7);
  }
}

// More documents than are packed together.
TEST(BestFitIndex, PacksManyDocumentsWithLessThanOnePercentOfPadding) {
  const std::vector<int32_t> sizes = text_sizes(40000, 9, 300);
  for (const int64_t length : {256, 512, 1024, 2048}) {
    const BestFitIndex index = index_of(sizes, length);
    expect_all_documents(index, sizes, length);
    EXPECT_LE(index.padding(), 0.006) << length;
  }
}

TEST(BestFitIndex, PacksWebTextWithAtMostOnePercentOfPadding) {
  const std::filesystem::path idx = test::find_data("owt_text_document.idx");
  if (idx.empty()) GTEST_SKIP() << "needs owt_text_document.idx";
  const std::vector<int32_t> sizes = sizes_in(idx);
  for (const int64_t length : {128, 256, 512, 1024, 2048, 4096, 8192}) {
    const BestFitIndex index = index_of(sizes, length, 1234);
    expect_all_documents(index, sizes, length);
    EXPECT_LE(index.padding(), 0.005) << length;
    RecordProperty(concat("padding_", length), format_fixed(100 * index.padding(), 3));
  }
}

TEST(BestFitIndex, IsAFunctionOfSizesAndSeed) {
  const std::vector<int32_t> sizes = text_sizes(500, 1, 40);
  const auto rows_of = [&](uint32_t seed) {
    const BestFitIndex index = index_of(sizes, 64, seed);
    std::vector<std::vector<DocumentSpan>> rows(static_cast<size_t>(index.size()));
    for (int64_t sample = 0; sample < index.size(); ++sample) index.spans(sample, rows[static_cast<size_t>(sample)]);
    return rows;
  };
  EXPECT_EQ(rows_of(3), rows_of(3));
  EXPECT_NE(rows_of(3), rows_of(4));
}

TEST(BestFitIndex, IsKeptAndReadAgain) {
  TestFolder folder;
  const std::vector<int32_t> sizes = text_sizes(300, 1, 40);
  const BestFitRequest request{{10, 290}, 64, 3, "train of web"};
  const BestFitIndex built = BestFitIndex::build(view(sizes), request, folder.path());
  const BestFitIndex read = BestFitIndex::build(view(sizes), request, folder.path());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3);
  ASSERT_EQ(read.size(), built.size());
  for (size_t array = 0; array < 2; ++array)
    for (int64_t at = 0; at < built.arrays()[array]->size(); ++at)
      ASSERT_EQ((*read.arrays()[array])[at], (*built.arrays()[array])[at]);
}

TEST(BestFitIndex, FindsDocuments) {
  const std::vector<int32_t> sizes = text_sizes(200, 2, 40);
  const BestFitIndex index = index_of(sizes, 33);
  std::vector<Sighting> expected;
  std::vector<DocumentSpan> spans;
  for (int64_t sample = 0; sample < index.size(); ++sample) {
    index.spans(sample, spans);
    int64_t at = 0;
    for (const DocumentSpan& span : spans) {
      if (span.document >= 20 && span.document < 23) expected.push_back({sample, at, span});
      at += span.length;
    }
  }
  EXPECT_EQ(index.sightings({20, 23}), expected);
  EXPECT_GE(expected.size(), 3u);
}

TEST(BestFitIndex, DocumentsWithoutTokensAreRefused) {
  EXPECT_NE(error_of([] { index_of({0, 0}, 8); }).find("hold 0 tokens"), std::string::npos);
}

// Every epoch is another packing of the same documents, and each begins where the one before it ends.
TEST(BestFitDataset, EpochsFollowOneAnother) {
  TestFolder folder;
  TokenStoreWriter writer(folder / "web", TokenType::kInt32);
  const std::vector<int32_t> sizes = text_sizes(60, 4, 20);
  for (size_t document = 0; document < sizes.size(); ++document) {
    std::vector<int32_t> ids(static_cast<size_t>(sizes[document]), 10 + static_cast<int32_t>(document));
    ids.back() = 0;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
  DataSetOptions options;
  options.data_path = {folder / "web"}, options.split = "100,0,0", options.sequence_length = 32;
  options.packing = Packing::kBestFit, options.pad_id = 9, options.seed = 4294967295;
  options.train_samples = 150;
  const auto dataset = GptDataSets::open_train(options);
  const auto& orders = dataset->parts()[0].order.orders();
  ASSERT_GE(orders.size(), 2u);
  int64_t first = 0;
  Sample sample;
  for (const auto& order : orders) {
    std::map<int64_t, int64_t> labels;  // of each document: those that its tokens make
    for (int64_t number = first; number < first + order->size(); ++number) {
      dataset->read(number, sample);
      const std::vector<int64_t>&ids = sample.arrays[GptDataset::kIds],
            &segments = sample.arrays[GptDataset::kSegments];
      const RowMasks masks = row_masks(sample, number, {.packing = Packing::kBestFit});
      ASSERT_EQ(ids.size(), 33u);
      for (size_t at = 0; at < 32; ++at) {
        EXPECT_EQ(segments[at] == 0, ids[at] == 9);
        const bool has_label = segments[at] != 0 && segments[at + 1] == segments[at];
        EXPECT_EQ(masks.loss_mask[at], has_label ? 1 : 0);
        if (has_label) ++labels[ids[at]];
      }
    }
    for (size_t document = 0; document < sizes.size(); ++document) {
      if (sizes[document] < 2) continue;
      EXPECT_EQ(labels[10 + static_cast<int64_t>(document)], sizes[document] - 1) << document;
    }
    first += order->size();
  }
}

}  // namespace best_fit_index_test
}  // namespace espalier::data
