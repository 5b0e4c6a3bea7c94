// Is this text in the training data, and where? A suffix array over all texts, on disk, mapped when it is queried.
//
//   FOLDER/00000017.text       texts one after another, separated by 0xFF (which valid UTF-8 does not have)
//                  .suffixes   uint32 each: where characters begin, sorted by what follows
//                  .documents  of each text: where it begins, its number, its source
//   FOLDER/index.json          written last: counts, inputs, sources
//
// Shards are cut by --memory; each is sorted by libdivsufsort (5 bytes of memory a byte of text, O(n log n)). On disk
// the index takes 5 bytes for each byte of ASCII, less of other scripts. A question costs two binary searches in each
// shard (Manber and Myers 1993), whatever the size of the data. An interrupted build resumes at the next shard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "curate/input.h"
#include "curate/tally.h"

namespace espalier::curate {

struct TextIndexPlan {
  std::vector<InputSource> sources;
  std::filesystem::path folder;
  bool loose = false;                 // texts and questions in lower case, with single blanks
  std::string source_key = "source";  // of a document: reported with what is found
  int64_t workers = 1, memory_bytes = int64_t{4} << 30;
};

struct TextIndexSummary {
  int64_t num_documents = 0, num_bytes = 0, num_shards = 0;
  InputTally input;
  double seconds = 0;
};

// Replaces an index that is there; check() says so before.
TextIndexSummary build_text_index(const TextIndexPlan& plan);

class TextIndex {
 public:
  // A UserError where there is no whole index.
  explicit TextIndex(const std::filesystem::path& folder);
  ~TextIndex();

  struct Place {
    int64_t document = 0;       // its number in the input, from 0
    std::string file;           // where that record came from
    int64_t record = 0;         // in its file, from 1: the line, where a record is one
    std::string source;         // what the document says of itself; may be empty
    int64_t begin = 0;          // byte of the text
    std::string before, after;  // the text around it there
  };
  // How often the text occurs. Not empty.
  int64_t count(std::string_view text) const;
  // The first ones, in the order of the input.
  std::vector<Place> places(std::string_view text, int64_t most) const;

  // Stretches of a text that occur, as long as possible, of at least that many bytes; in the order of the text.
  struct Part {
    size_t begin = 0, size = 0;
    int64_t count = 0;
  };
  std::vector<Part> parts(std::string_view text, int64_t least_bytes) const;

  // A question as the index has texts.
  std::string normal(std::string_view text) const;
  int64_t num_documents() const { return num_documents_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  class Shard;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::string> sources_;
  struct File {
    std::string name;
    int64_t first_number;
  };
  std::vector<File> files_;
  bool loose_ = false;
  int64_t num_documents_ = 0, num_bytes_ = 0;
};

}  // namespace espalier::curate
