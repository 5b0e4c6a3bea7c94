#include "data/input_check.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {
namespace {

constexpr const char* kExpectation = "Expected UTF-8 without a mark";

[[noreturn]] void refuse(const std::string& message) { throw UserError(message, ExitCode::kBadData); }

std::string names_of(const std::vector<std::string>& files) {
  constexpr size_t kShown = 3;
  std::vector<std::string> names;
  for (size_t at = 0; at < std::min(kShown, files.size()); ++at) names.push_back("'" + shown_name(files[at]) + "'");
  return join(names, ", ") + (files.size() > kShown ? concat(" and ", files.size() - kShown, " more") : "");
}

std::string expectation(const std::vector<std::string>& keys) {
  if (keys.empty()) return "Expected plain text. Nothing was written.";
  std::vector<std::string> pairs;
  for (const std::string& key : keys) pairs.push_back("\"" + key + "\": \"...\"");
  return concat("Expected JSONL, one object a line: {", join(pairs, ", "), "}. Nothing was written.");
}

}  // namespace

void refuse_byte_order_mark(std::string_view head, const std::string& file) {
  const std::string name = "'" + shown_name(file) + "'";
  if (head.starts_with("\xef\xbb\xbf"))
    refuse(concat(name, " begins with a byte-order mark (EF BB BF). ", kExpectation,
                  ": sed -i '1s/^\\xef\\xbb\\xbf//' ", file, " removes it. Nothing was written."));
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
    refuse(concat(name, " is UTF-16: it begins with a byte-order mark (", head[0] == '\xff' ? "FF FE" : "FE FF", "). ",
                  kExpectation, ": iconv -f UTF-16 -t UTF-8 ", file, " > NEW converts it. Nothing was written."));
}

// An archive of tar, also inside a compressed file: the name of its first member, a header, and then that member. Its
// fields are filled up with NUL, which no line of JSON has before the same letters ("mustard").
void refuse_archive(std::string_view head, const std::string& file) {
  constexpr size_t kMagicAt = 257;
  if (head.size() < kMagicAt + 5 || head.substr(kMagicAt, 5) != "ustar") return;
  if (head.substr(0, kMagicAt).find('\0') == std::string_view::npos) return;
  refuse(concat("'", shown_name(file), "' is a tar archive. Expected JSONL, one object a line; tar -xOf ", file,
                " > NEW.jsonl writes the files in it one after another. Nothing was written."));
}

void refuse_other_formats(const RecordBlock& first_block, const std::string& file) {
  refuse_byte_order_mark(first_block.bytes, file);
  refuse_archive(first_block.bytes, file);
  RecordCursor cursor(first_block.bytes);
  std::string_view record;
  while (cursor.next(record)) {
    const size_t begin = record.find_first_not_of(" \t");
    if (begin == std::string_view::npos) continue;
    if (record[begin] != '[') return;
    // A list that is whole in its line is a malformed record; one that continues is the file.
    JsonRecord probe({}, /*replace_lone_surrogates=*/true);
    if (probe.parse(record) || probe.problem().at_byte < 0) return;
    refuse(concat("'", shown_name(file), "' is a JSON array: line ", cursor.count(), " begins one that does not end ",
                  "there. Expected JSONL, one object a line; jq -c '.[]' ", file, " > NEW.jsonl converts it. Nothing ",
                  "was written."));
  }
}

void refuse_fruitless_input(const InputTally& tally) {
  const std::string expected = expectation(tally.keys);
  if (tally.num_records == 0) refuse(concat("there is no text in ", names_of(tally.files), ". ", expected));
  if (tally.malformed.count == tally.num_records)
    refuse(concat("none of the ", format_count(tally.num_records), " records can be used. The first: ",
                  describe(tally.malformed.first.front(), tally.files), ". ", expected));
  if (tally.num_documents == 0 && tally.num_records - tally.malformed.count == 1)
    refuse(concat("the only document in ", names_of(tally.files), " is empty. ", expected));
  if (tally.num_documents == 0)
    refuse(concat("the ", format_count(tally.num_records - tally.malformed.count), " documents in ",
                  names_of(tally.files), " are all empty. ", expected));
}

}  // namespace espalier::data
