#include "data/document_reader.h"

#include <gtest/gtest.h>

#include "data/internal/compress.h"
#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::gzipped;
using test_files::TestFolder;
using test_files::write_text;

TEST(DocumentReader, GivesTextsWithTheirSource) {
  TestFolder folder;
  write_text(folder / "a.jsonl", "{\"text\": \"one\"}\r\n{\"text\": \"two\"}\r{\"text\": \"\"}");
  write_text(folder / "b.jsonl.gz", gzipped("\n{\"text\": \"thr\\u00e9e\"}\n"));
  DocumentReader reader({folder / "a.jsonl", folder / "b.jsonl.gz"});
  std::vector<std::string> found;
  for (Document document; reader.next(document);)
    found.push_back(concat(document.file, ":", document.line, " ", document.text));
  EXPECT_EQ(found, (std::vector<std::string>{"0:1 one", "0:2 two", "0:3 ", "1:2 thr\u00e9e"}));
  EXPECT_EQ(reader.malformed().count, 1);
  EXPECT_EQ(reader.consumed_bytes(), file_size_bytes(folder / "a.jsonl") + file_size_bytes(folder / "b.jsonl.gz"));
}

TEST(DocumentReader, NumbersTheLinesOfMalformedRecords) {
  TestFolder folder;
  std::string lines;
  for (int line = 1; line <= 40000; ++line)  // several blocks
    lines += line % 20000 == 3 ? "{\"text\": \"\u00e9\" oops}\r\n"
                               : "{\"text\": \"fine\", \"n\": " + std::to_string(line) + "}\r\n";
  write_text(folder / "a", lines + "  \n");
  const std::vector<std::string> files = {folder / "a"};
  DocumentReader reader(files);
  int64_t documents = 0;
  for (Document document; reader.next(document);) ++documents;
  EXPECT_EQ(documents, 39998);
  ASSERT_EQ(reader.malformed().count, 3);
  const auto said = [&](size_t index) { return describe(reader.malformed().first[index], files); };
  EXPECT_EQ(said(0), (folder / "a") + ":3: Expecting ',' delimiter (column 14)");
  EXPECT_EQ(said(1), (folder / "a") + ":20003: Expecting ',' delimiter (column 14)");
  EXPECT_EQ(said(2), (folder / "a") + ":40001: The line is blank");
}

TEST(MalformedTally, CountsAllAndKeepsTheFirst) {
  MalformedTally tally;
  for (int64_t line = 1; line <= 33; ++line) tally.add({0, line, 0, "No key 'text'"});
  EXPECT_EQ(tally.count, 33);
  ASSERT_EQ(tally.first.size(), MalformedTally::kKept);
  EXPECT_EQ(tally.first.back().line, 10);
  EXPECT_EQ(describe(tally.first.front(), {"-"}), "standard input:1: No key 'text'");
}

}  // namespace
}  // namespace espalier::data
