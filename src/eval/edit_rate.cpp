#include "eval/edit_rate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using NumberedWords = std::vector<int>;  // equal words have the same number

constexpr int kLongestRun = 10;
constexpr int kFarthestMove = 50;
constexpr int kBeam = 25;         // cells beside the diagonal
constexpr int kMostMoves = 1000;  // that are tried for a text

NumberedWords words_of(const std::string& text, std::map<std::string, int>& numbers) {
  const std::string lower = text::python::lowercase(text::python::strip_right(text));
  NumberedWords words;
  for (const std::string_view word : text::python::split_words(lower))
    words.push_back(numbers.emplace(word, static_cast<int>(numbers.size())).first->second);
  return words;
}

enum class Edit : char { kNone, kKeep, kReplace, kDelete, kInsert };  // of words of the text

// The fewest edits without moves that turn `text` into `reference`, near the diagonal of their table.
class EditTable {
 public:
  EditTable(const NumberedWords& text, const NumberedWords& reference)
      : rows_(static_cast<int>(text.size())),
        columns_(static_cast<int>(reference.size())),
        cells_(static_cast<size_t>((rows_ + 1) * (columns_ + 1))) {
    for (int column = 0; column <= columns_; ++column) at(0, column) = {column, Edit::kInsert};
    const double slope = text.empty() ? 1 : static_cast<double>(columns_) / rows_;
    const int beam = slope / 2 > kBeam ? static_cast<int>(std::ceil(slope / 2 + kBeam)) : kBeam;
    for (int row = 1; row <= rows_; ++row) {
      const int middle = static_cast<int>(std::floor(row * slope));
      const int end = row == rows_ ? columns_ + 1 : std::min(columns_ + 1, middle + beam);
      for (int column = std::max(0, middle - beam); column < end; ++column)
        at(row, column) = best(row, column, text, reference);
    }
  }

  int num_edits() const { return at(rows_, columns_).count; }

  // In the order of the words.
  std::vector<Edit> edits() const {
    std::vector<Edit> edits;
    for (int row = rows_, column = columns_; row > 0 || column > 0;) {
      const Edit edit = at(row, column).edit;
      ESPALIER_CHECK(edit != Edit::kNone, "row ", row, ", column ", column, " of ", rows_, " x ", columns_);
      edits.push_back(edit);
      if (edit != Edit::kInsert) --row;
      if (edit != Edit::kDelete) --column;
    }
    std::reverse(edits.begin(), edits.end());
    return edits;
  }

 private:
  struct Cell {
    int count = std::numeric_limits<int>::max() / 2;  // beside the beam
    Edit edit = Edit::kNone;
  };
  Cell& at(int row, int column) { return cells_[static_cast<size_t>(row * (columns_ + 1) + column)]; }
  const Cell& at(int row, int column) const { return cells_[static_cast<size_t>(row * (columns_ + 1) + column)]; }

  // Of equals the first: keep or replace, delete, insert.
  Cell best(int row, int column, const NumberedWords& text, const NumberedWords& reference) const {
    if (column == 0) return {at(row - 1, 0).count + 1, Edit::kDelete};
    const bool is_same = text[static_cast<size_t>(row - 1)] == reference[static_cast<size_t>(column - 1)];
    Cell best;
    for (const Cell& cell :
         {Cell{at(row - 1, column - 1).count + (is_same ? 0 : 1), is_same ? Edit::kKeep : Edit::kReplace},
          Cell{at(row - 1, column).count + 1, Edit::kDelete}, Cell{at(row, column - 1).count + 1, Edit::kInsert}})
      if (cell.count < best.count) best = cell;
    return best;
  }

  int rows_, columns_;
  std::vector<Cell> cells_;
};

// Which words are wrong, and where those of the reference are in the text.
struct Alignment {
  std::vector<int> place;  // in the text, of each word of the reference: of the last one before it where it has none
  std::vector<bool> text_is_wrong, reference_is_wrong;
};

Alignment alignment_of(const std::vector<Edit>& edits) {
  Alignment alignment;
  int place = -1;
  for (const Edit edit : edits) {
    const bool is_wrong = edit != Edit::kKeep;
    if (edit != Edit::kInsert) {
      ++place;
      alignment.text_is_wrong.push_back(is_wrong);
    }
    if (edit == Edit::kDelete) continue;
    alignment.place.push_back(place);
    alignment.reference_is_wrong.push_back(is_wrong);
  }
  return alignment;
}

// Words that are the same in both.
struct Run {
  int text = 0, reference = 0, length = 0;
};

std::vector<Run> common_runs(const NumberedWords& text, const NumberedWords& reference) {
  std::vector<Run> runs;
  const int rows = static_cast<int>(text.size()), columns = static_cast<int>(reference.size());
  for (int row = 0; row < rows; ++row)
    for (int column = std::max(0, row - kFarthestMove); column < std::min(columns, row + kFarthestMove + 1); ++column)
      for (int length = 1;
           length <= kLongestRun && row + length <= rows && column + length <= columns &&
           text[static_cast<size_t>(row + length - 1)] == reference[static_cast<size_t>(column + length - 1)];
           ++length)
        runs.push_back({row, column, length});
  return runs;
}

bool has_wrong(const std::vector<bool>& is_wrong, int begin, int length) {
  return std::find(is_wrong.begin() + begin, is_wrong.begin() + begin + length, true) !=
         is_wrong.begin() + begin + length;
}

// The run of `length` words from `begin` on taken out, and put before the word that was at `target`; within itself, so
// many words further.
NumberedWords moved(const NumberedWords& words, int begin, int length, int target) {
  NumberedWords result = words;
  const auto first = result.begin() + begin, end = first + length;
  if (target < begin)
    std::rotate(result.begin() + target, first, end);
  else if (target > begin + length)
    std::rotate(first, end, result.begin() + target);
  else
    std::rotate(first, end, std::min(result.end(), end + (target - begin)));
  return result;
}

// Moves runs while that saves edits.
class Mover {
 public:
  Mover(NumberedWords text, const NumberedWords& reference) : text_(std::move(text)), reference_(reference) {}

  int num_edits() {
    int num_moves = 0;
    while (move()) ++num_moves;
    return num_moves + EditTable(text_, reference_).num_edits();
  }

 private:
  // What a move saves; then the longer, the earlier run, the earlier target.
  using Rank = std::tuple<int, int, int, int>;
  struct Best {
    Rank rank = {std::numeric_limits<int>::min(), 0, 0, 0};
    NumberedWords words;
  };

  bool move() {
    const EditTable table(text_, reference_);
    const Alignment alignment = alignment_of(table.edits());
    Best best;
    for (const Run& run : common_runs(text_, reference_)) {
      const int place = alignment.place[static_cast<size_t>(run.reference)];
      if (!has_wrong(alignment.text_is_wrong, run.text, run.length) ||
          !has_wrong(alignment.reference_is_wrong, run.reference, run.length) ||
          (run.text <= place && place < run.text + run.length))
        continue;
      try_targets(run, alignment, table.num_edits(), best);
      if (num_tried_ >= kMostMoves) break;
    }
    if (num_tried_ >= kMostMoves || std::get<0>(best.rank) <= 0) return false;
    text_ = std::move(best.words);
    return true;
  }

  // Before and after each of the run's words in the reference.
  void try_targets(const Run& run, const Alignment& alignment, int num_edits, Best& best) {
    int last = -1;
    for (int word = run.reference - 1; word < run.reference + run.length; ++word) {
      const int target = word < 0 ? 0 : alignment.place[static_cast<size_t>(word)] + 1;
      if (std::exchange(last, target) == target) continue;
      NumberedWords words = moved(text_, run.text, run.length, target);
      const int saved = num_edits - EditTable(words, reference_).num_edits();
      ++num_tried_;
      if (const Rank rank = {saved, run.length, -run.text, -target}; rank > best.rank) best = {rank, std::move(words)};
    }
  }

  NumberedWords text_;
  const NumberedWords& reference_;
  int num_tried_ = 0;
};

}  // namespace

Counts edit_counts(const std::string& text, const std::string& reference) {
  std::map<std::string, int> numbers;
  const NumberedWords words = words_of(text, numbers), expected = words_of(reference, numbers);
  const int num_edits = expected.empty() ? static_cast<int>(words.size()) : Mover(words, expected).num_edits();
  return {num_edits, static_cast<int64_t>(expected.size())};
}

double edit_rate_of(const Counts& counts) {
  const auto edits = static_cast<double>(counts.at(0)), words = static_cast<double>(counts.at(1));
  if (words == 0) return edits > 0 ? 100 : 0;
  return 100 * (edits / words);
}

}  // namespace espalier::eval
