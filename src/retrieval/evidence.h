// The passages in which answers are sought, as DPR publishes them (psgs_w100.tsv): a header, then a row each of
// number, text and title.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "retrieval/tab_file.h"

namespace espalier::retrieval {

struct Passage {
  int64_t id = 0;
  std::string text, title;
};

class EvidenceReader {
 public:
  // UserError: a file whose first row is a passage.
  explicit EvidenceReader(const std::string& path);
  // False at the end. A malformed row is a UserError (kBadData) with its line.
  bool next(Passage& passage);
  int64_t consumed_bytes() const { return file_.consumed_bytes(); }

 private:
  TabFile file_;
  std::vector<std::string> fields_;
};

// All passages of a file, without their texts.
struct PassageList {
  std::vector<int64_t> ids;  // in the order of the file
  std::string fingerprint;   // of ids, texts and titles, as EmbeddingOrigin::texts
};
PassageList list_passages(const std::string& path);

// Some passages by id. A UserError names an id that is not there.
std::unordered_map<int64_t, Passage> read_passages(const std::string& path, const std::vector<int64_t>& ids);

}  // namespace espalier::retrieval
