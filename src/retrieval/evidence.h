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

// The ids of all passages, in the order of the file.
std::vector<int64_t> read_passage_ids(const std::string& path);

// The texts of some passages by id. A UserError names an id that is missing.
std::unordered_map<int64_t, std::string> read_passage_texts(const std::string& path, const std::vector<int64_t>& ids);

}  // namespace espalier::retrieval
