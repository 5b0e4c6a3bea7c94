#include "text/internal/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

constexpr uint32_t kUnreached = UINT32_MAX;
constexpr double kNever = -std::numeric_limits<double>::infinity();

size_t character_bytes(std::string_view text, size_t at) {
  return static_cast<size_t>(decode_utf8(text.data() + at).num_bytes);
}

// The nodes of the path that ends with the text, in order, from the links back.
template <class Link>
void follow_back(const std::vector<Link>& links, size_t size, std::vector<Unigram::Node>& nodes) {
  const auto first = static_cast<ptrdiff_t>(nodes.size());
  size_t count = 0;
  for (size_t end = size; end > 0; end = links[end].begin) ++count;
  if (nodes.capacity() < nodes.size() + count) nodes.reserve(nodes.size() + std::max(count, nodes.size()));
  for (size_t end = size; end > 0; end = links[end].begin) {
    nodes.push_back({links[end].id, links[end].begin, static_cast<uint32_t>(end)});
  }
  std::reverse(nodes.begin() + first, nodes.end());
}

}  // namespace

void Unigram::add(std::string_view piece, int32_t id, double score) {
  const auto index = static_cast<size_t>(id);
  if (scores_.size() <= index) scores_.resize(index + 1, 0);
  scores_[index] = score;
  largest_score_ = std::max(largest_score_, std::abs(score));
  trie_.add(piece, id);
}

void Unigram::add_user_defined(std::string_view piece, int32_t id) {
  add(piece, id, static_cast<double>(static_cast<float>(0.1 * static_cast<double>(piece.size() - 1))));
}

// Of a text in which long pieces begin everywhere, every one of their bytes is looked at from every place.
class Unigram::StepLimit {
 public:
  explicit StepLimit(size_t num_bytes) : num_bytes_(num_bytes), left_(kAlways + kPerByte * num_bytes) {}
  void take(size_t steps) {
    if (steps <= left_) {
      left_ -= steps;
      return;
    }
    throw UserError(
        concat("a word of ", format_count(static_cast<int64_t>(num_bytes_)), " bytes takes more than ",
               format_count(static_cast<int64_t>(kAlways + kPerByte * num_bytes_)),
               " steps to cut with this Unigram vocabulary: long pieces begin nearly everywhere in it. Leave ",
               "the document out, or break the word."),
        ExitCode::kBadData);
  }

 private:
  static constexpr size_t kAlways = 100'000'000, kPerByte = 64;
  size_t num_bytes_, left_;
};

template <class Score>
void Unigram::cut_as(std::string_view text, double& total, Scratch& scratch, std::vector<Node>& nodes) const {
  std::vector<Scratch::Best>& best = scratch.best;
  best.assign(text.size() + 1, {0, -1, kUnreached});
  best[0].total = total;
  StepLimit steps(text.size());
  size_t frontier = 0;  // the last place that some path has reached
  const auto rounded = [](double sum) { return static_cast<double>(static_cast<Score>(sum)); };
  const auto offer = [&](size_t end, double candidate, int32_t id, size_t begin) {
    frontier = std::max(frontier, end);
    Scratch::Best& target = best[end];
    if (target.begin != kUnreached && !(candidate > target.total)) return;
    target = {candidate, id, static_cast<uint32_t>(begin)};
  };
  for (size_t begin = 0; begin < text.size();) {
    if (sums_ == Sums::kFloat && is_large(best[begin].total)) {
      const double offset = best[begin].total;
      steps.take(frontier - begin);
      for (size_t place = begin; place <= frontier; ++place) {
        if (place == begin || best[place].begin != kUnreached) best[place].total = rounded(best[place].total - offset);
      }
    }
    const double before = best[begin].total;
    const size_t character_end = begin + character_bytes(text, begin);
    bool is_covered = false;
    PieceTrie::Walk walk = trie_.walk();
    size_t end = begin;
    while (end < text.size() && walk.step(text[end])) {
      ++end;
      const int32_t id = walk.value();
      if (id < 0) continue;
      offer(end, rounded(scores_[static_cast<size_t>(id)] + before), id, begin);
      is_covered = is_covered || end == character_end;
    }
    steps.take(end - begin);
    if (!is_covered) offer(character_end, rounded(unknown_score_ + before), -1, begin);
    begin = character_end;
  }
  total = best[text.size()].total;
  follow_back(best, text.size(), nodes);
}

void Unigram::cut(std::string_view text, double& total, Scratch& scratch, std::vector<Node>& nodes) const {
  ESPALIER_CHECK(text.size() < UINT32_MAX, "a text of ", text.size(), " bytes");
  if (sums_ == Sums::kFloat)
    cut_as<float>(text, total, scratch, nodes);
  else
    cut_as<double>(text, total, scratch, nodes);
}

double Unigram::cut_with_limit(std::string_view text, Scratch& scratch, std::vector<Node>& nodes) const {
  std::vector<Scratch::Rival>& rivals = scratch.rivals;
  rivals.assign(text.size() + 1, {kNever, kNever, -1, kUnreached});
  rivals[0].total = 0;
  const auto offer = [&rivals](size_t end, double candidate, int32_t id, size_t begin) {
    Scratch::Rival& target = rivals[end];
    if (candidate > target.total) {
      target = {candidate, target.total, id, static_cast<uint32_t>(begin)};
    } else {
      target.second = std::max(target.second, candidate);
    }
  };
  double largest_total = 0;
  size_t num_characters = 0;
  for (size_t begin = 0; begin < text.size(); ++num_characters) {
    const double before = rivals[begin].total;
    largest_total = std::max(largest_total, std::abs(before));
    const size_t character_end = begin + character_bytes(text, begin);
    bool is_covered = false;
    PieceTrie::Walk walk = trie_.walk();
    for (size_t end = begin; end < text.size() && walk.step(text[end]);) {
      ++end;
      const int32_t id = walk.value();
      if (id < 0) continue;
      offer(end, scores_[static_cast<size_t>(id)] + before, id, begin);
      is_covered = is_covered || end == character_end;
    }
    if (!is_covered) offer(character_end, unknown_score_ + before, -1, begin);
    begin = character_end;
  }
  const auto first = static_cast<ptrdiff_t>(nodes.size());
  follow_back(rivals, text.size(), nodes);
  double gap = std::numeric_limits<double>::max();
  for (auto node = nodes.begin() + first; node != nodes.end(); ++node) {
    gap = std::min(gap, rivals[node->end].total - rivals[node->end].second);
  }
  // Each of the at most num_characters additions on either path is off by 2^-24 of a sum at most (floats), and a sum is
  // no larger than the one before the text plus what the text adds. Twice that, to be safe; and no sum may become so
  // large inside the text that it begins again.
  const double error_share = 4.0 * static_cast<double>(num_characters + 2) / (1 << 24);
  const double within = largest_total + std::abs(rivals[text.size()].total) + largest_score_ + std::abs(unknown_score_);
  return std::min(gap / error_share, kLargestSum) - within;
}

}  // namespace espalier::text::internal
