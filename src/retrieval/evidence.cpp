#include "retrieval/evidence.h"

#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/literal.h"
#include "base/progress.h"

namespace espalier::retrieval {
namespace {

// Calls `use` for each passage until it says that it has enough.
template <class Use>
void walk_passages(const std::string& path, const char* title, const Use& use) {
  EvidenceReader reader(path);
  Progress progress(title, file_size_bytes(path), Progress::Unit::kBytes);
  int64_t shown = 0;
  for (Passage passage; reader.next(passage);) {
    if (const int64_t consumed = reader.consumed_bytes(); consumed != shown) {
      progress.advance(consumed - shown);
      shown = consumed;
    }
    if (!use(passage)) break;
  }
  progress.finish();
}

}  // namespace

EvidenceReader::EvidenceReader(const std::string& path) : file_(path) {
  if (!file_.next(fields_)) file_.refuse("expected a header and passages, found nothing");
  if (parse_python_int(fields_[0]))
    file_.refuse("expected a header such as 'id\ttext\ttitle', found a passage, which would be skipped");
}

bool EvidenceReader::next(Passage& passage) {
  if (!file_.next(fields_)) return false;
  if (fields_.size() != 3)
    file_.refuse(concat("expected three fields between tabs, id, text and title, found ", fields_.size()));
  const auto id = parse_python_int(fields_[0]);
  if (!id || *id < 0) file_.refuse(concat("expected the number of a passage from 0 on, found '", fields_[0], "'"));
  passage.id = *id;
  passage.text = std::move(fields_[1]);
  passage.title = std::move(fields_[2]);
  return true;
}

PassageList list_passages(const std::string& path) {
  PassageList list;
  Hasher hasher;
  walk_passages(path, "passages", [&](const Passage& passage) {
    list.ids.push_back(passage.id);
    const int64_t facts[] = {passage.id, static_cast<int64_t>(passage.text.size()),
                             static_cast<int64_t>(passage.title.size())};
    hasher.update(facts, sizeof facts);
    hasher.update(passage.text.data(), passage.text.size());
    hasher.update(passage.title.data(), passage.title.size());
    return true;
  });
  list.fingerprint = "passages " + hex64(hasher.digest());
  return list;
}

std::unordered_map<int64_t, Passage> read_passages(const std::string& path, const std::vector<int64_t>& ids) {
  const std::unordered_set<int64_t> wanted(ids.begin(), ids.end());
  std::unordered_map<int64_t, Passage> passages;
  walk_passages(path, "evidence", [&](const Passage& passage) {
    if (wanted.contains(passage.id)) passages[passage.id] = passage;
    return passages.size() < wanted.size();
  });
  for (const int64_t id : wanted)
    if (!passages.contains(id))
      throw UserError(concat("'", path, "' has no passage ", id,
                             ", which the index has; give the file that the index was built from"),
                      ExitCode::kBadData);
  return passages;
}

}  // namespace espalier::retrieval
