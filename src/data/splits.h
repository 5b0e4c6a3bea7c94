// Which documents a set reads: Megatron's --split "949,50,1" and the a:b ranges of weighted split paths.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace espalier::data {

// Documents begin to end - 1 of a token file.
struct DocumentRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const DocumentRange&) const = default;
};

// Shares of a data set for train, valid and test.
struct Split {
  std::array<double, 3> weights{};
};

// "949,50,1", "8/1/1" or "100"; missing entries are 0, entries after the third are ignored with a warning. Throws a
// UserError that quotes the text.
Split parse_split(const std::string& text);

// Ranges of train, valid, test. Megatron's rounding: each share is rounded half to even, and the difference of the
// total is taken from every boundary, so it falls to train. One boundary can come out below 0 (weights "0,1,1" and 3
// documents), which upstream reads as "the last document"; here the range then starts at 0.
std::array<DocumentRange, 3> split_documents(const Split& split, int64_t num_documents);

// "a:b": from share a to share b of the documents, 0 <= a < b <= 1.
struct FractionRange {
  double begin = 0;
  double end = 1;
  bool operator==(const FractionRange&) const = default;
};

FractionRange parse_fraction_range(const std::string& text);
DocumentRange documents_in_range(const FractionRange& range, int64_t num_documents);

// A number as Python's float() reads it, blanks at both ends allowed; finite. Throws a UserError that names `what`.
double parse_number(const std::string& text, const std::string& what);

}  // namespace espalier::data
