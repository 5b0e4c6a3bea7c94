#include "retrieval/chunk_database.h"

#include <gtest/gtest.h>

#include "retrieval/internal/array_file.h"
#include "retrieval/internal/test_corpus.h"

namespace espalier::retrieval {
namespace chunk_database_test {

using namespace test_corpus;
using test_files::error_of;
using test_files::TestFolder;

// Every chunk of the documents, cut as on paper, in order: document, first token, ids.
struct PlainChunk {
  int64_t document = 0, begin = 0;
  std::vector<int64_t> ids;
};
std::vector<PlainChunk> plain_chunks(const Documents& documents, int64_t first_document, int64_t length) {
  std::vector<PlainChunk> all;
  for (size_t document = 0; document < documents.size(); ++document) {
    std::vector<int64_t> text(documents[document].begin(), documents[document].end());
    if (!text.empty() && text.back() == kEnd) text.pop_back();
    for (size_t begin = 0; begin < text.size(); begin += static_cast<size_t>(length)) {
      const size_t end = std::min(text.size(), begin + static_cast<size_t>(length));
      all.push_back({first_document + static_cast<int64_t>(document),
                     static_cast<int64_t>(begin),
                     {text.begin() + static_cast<int64_t>(begin), text.begin() + static_cast<int64_t>(end)}});
    }
  }
  return all;
}

// Two data sets, of which the first is not read from its beginning; empty documents, one that only ends, one whose end
// is missing, lengths at and beside multiples of a chunk's.
TEST(ChunkDatabase, HoldsEveryChunkOfEveryDocument) {
  const TestFolder folder;
  Documents first = random_documents({3, 8, 0, 1, 16, 17, 7, 33}, 1), second = random_documents({9, 1}, 2, false);
  second.insert(second.begin() + 1, std::vector<int32_t>());
  write_documents(folder / "a", first);
  write_documents(folder / "b", second);
  for (const int64_t length : {1, 7, 8}) {
    SCOPED_TRACE(length);
    const std::string path = folder / concat("chunks", length);
    const int64_t size = build_chunks({.folder = path,
                                       .chunk_length = length,
                                       .end_of_document = kEnd,
                                       .parts = {{folder / "a", {1, 8}}, {folder / "b", {0, 3}}},
                                       .threads = 2});
    std::vector<PlainChunk> wanted = plain_chunks({first.begin() + 1, first.end()}, 1, length);
    const size_t of_first = wanted.size();
    for (PlainChunk& chunk : plain_chunks(second, 0, length)) wanted.push_back(std::move(chunk));
    const ChunkDatabase chunks(path);
    ASSERT_EQ(size, static_cast<int64_t>(wanted.size()));
    ASSERT_EQ(chunks.size(), size);
    for (size_t id = 0; id < wanted.size(); ++id) {
      const ChunkDatabase::Place place = chunks.place(static_cast<int64_t>(id));
      EXPECT_EQ(place.set, id < of_first ? 0 : 1);
      EXPECT_EQ(place.document, wanted[id].document);
      EXPECT_EQ(place.begin, wanted[id].begin);
      EXPECT_EQ(place.length, static_cast<int64_t>(wanted[id].ids.size()));
      std::vector<int64_t> ids(static_cast<size_t>(length)), padded = wanted[id].ids;
      padded.resize(static_cast<size_t>(length), kEnd);
      chunks.read(place, 1, ids.data());
      EXPECT_EQ(ids, padded) << "chunk " << id;
      // With what follows: the next chunk if it is of the same document, else nothing.
      std::vector<int64_t> two(static_cast<size_t>(2 * length));
      chunks.read(place, 2, two.data());
      if (id + 1 < wanted.size() && id + 1 != of_first && wanted[id + 1].document == wanted[id].document)
        padded.insert(padded.end(), wanted[id + 1].ids.begin(), wanted[id + 1].ids.end());
      padded.resize(static_cast<size_t>(2 * length), kEnd);
      EXPECT_EQ(two, padded) << "chunk " << id << " and what follows";
    }
    EXPECT_EQ(chunks.file_of(folder / "b"), 1);
    EXPECT_EQ(chunks.file_of(folder / "c"), -1);
  }
}

TEST(ChunkDatabase, IsNotMadeTwiceAndNotMixed) {
  const TestFolder folder;
  write_documents(folder / "a", random_documents({20, 30}, 1));
  ChunkPlan plan{
      .folder = folder / "chunks", .chunk_length = 8, .end_of_document = kEnd, .parts = {{folder / "a", {0, 2}}}};
  build_chunks(plan);
  const auto written = std::filesystem::last_write_time(folder / "chunks/chunks.json");
  EXPECT_EQ(build_chunks(plan), 7);
  EXPECT_EQ(std::filesystem::last_write_time(folder / "chunks/chunks.json"), written);
  plan.chunk_length = 10;
  EXPECT_NE(error_of([&] { build_chunks(plan); }).find("holds other chunks: chunk_length is 8 there and 10 now"),
            std::string::npos);
  plan.overwrite = true;
  EXPECT_EQ(build_chunks(plan), 5);
  write_documents(folder / "a", random_documents({20, 31}, 1));
  EXPECT_NE(error_of([&] { ChunkDatabase{folder / "chunks"}; }).find("have changed since"), std::string::npos);
  EXPECT_NE(error_of([&] { ChunkDatabase{folder / "none"}; }).find("holds no chunks (no chunks.json)"),
            std::string::npos);
  write_documents(folder / "empty", {{kEnd}, {}});
  EXPECT_NE(error_of([&] {
              build_chunks({.folder = folder / "x", .end_of_document = kEnd, .parts = {{folder / "empty", {0, 2}}}});
            }).find("there are no chunks"),
            std::string::npos);
}

// Documents of 20 and 30 tokens have 3 and 4 chunks of 8. Each of these files says otherwise, and has 7 in all as well.
TEST(ChunkDatabase, NamesAFileOfFirstChunksThatIsDamaged) {
  const TestFolder folder;
  write_documents(folder / "a", random_documents({20, 30}, 1));
  build_chunks(
      {.folder = folder / "chunks", .chunk_length = 8, .end_of_document = kEnd, .parts = {{folder / "a", {0, 2}}}});
  const auto places_with = [&](const std::vector<int64_t>& first_chunks) {
    internal::write_array(folder / "chunks/chunks-00000.safetensors", "first_chunk", {3}, first_chunks);
    const ChunkDatabase chunks(folder / "chunks");
    for (int64_t chunk = 0; chunk < chunks.size(); ++chunk) chunks.place(chunk);
  };
  places_with({0, 3, 7});
  const std::vector<std::pair<std::vector<int64_t>, std::string>> wrong = {
      {{1, 3, 7}, "chunks-00000.safetensors' is damaged"},
      {{0, 9, 7}, "chunks-00000.safetensors' is damaged"},
      {{0, -1, 7}, "chunks-00000.safetensors' is damaged"},
      {{0, 4, 7}, "chunk 3 would begin at token 24 of document 0"},
      {{0, 2, 7}, "chunk 6 would begin at token 32 of document 1"}};
  for (const auto& [first_chunks, message] : wrong) {
    const std::string error = error_of([&, &firsts = first_chunks] { places_with(firsts); });
    EXPECT_NE(error.find(message), std::string::npos) << error;
  }
}

}  // namespace chunk_database_test
}  // namespace espalier::retrieval
