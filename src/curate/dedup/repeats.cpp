#include "curate/dedup/repeats.h"

#include <divsufsort.h>

#include <cstring>

namespace espalier::curate {
namespace {

constexpr char kBetweenTexts = '\xff';
constexpr int64_t kBytesPerByte = 11;  // two shards, their suffixes as 32-bit numbers, a bit
constexpr int64_t kMostShard = (int64_t{1} << 30) - (int64_t{1} << 20);

}  // namespace

Repeats::Repeats(const std::filesystem::path& folder, int64_t window, int64_t memory_bytes)
    : folder_(folder),
      window_(window),
      shard_bytes_(
          std::clamp(memory_bytes / kBytesPerByte - window, std::max<int64_t>(window, 64), kMostShard - window)),
      output_(folder / "all-texts") {}

uint64_t Repeats::add(std::string_view text) {
  constexpr size_t kBuffer = size_t{1} << 20;
  const auto begin = static_cast<uint64_t>(num_bytes_);
  pending_ += text;
  pending_ += kBetweenTexts;
  num_bytes_ += static_cast<int64_t>(text.size()) + 1;
  if (pending_.size() >= kBuffer) flush();
  return begin;
}

void Repeats::flush() {
  output_->write(pending_.data(), pending_.size());
  pending_.clear();
}

void Repeats::finish() {
  flush();
  std::string().swap(pending_);
  output_->close();
  input_.emplace(folder_ / "all-texts");
  writer_.emplace(folder_ / "repeats");
  if (num_bytes_ <= 2 * shard_bytes_) shard_bytes_ = std::max<int64_t>(num_bytes_, 1);
  num_shards_ = (num_bytes_ + shard_bytes_ - 1) / shard_bytes_;
  for (int64_t shard = 0; shard < num_shards_; ++shard) {
    std::vector<bool> marked(static_cast<size_t>(shard_bytes_));
    if (shard == 0) mark(0, 0, marked);
    for (int64_t earlier = 0; earlier < shard; ++earlier) mark(earlier, shard, marked);
    write_ranges(shard, marked);
  }
  write_last();
  writer_->close();
  writer_.reset();
  input_.reset();
  std::filesystem::remove(folder_ / "all-texts");
}

// The shard, and as many bytes after it as a window needs that begins at its last byte.
std::string Repeats::read(int64_t shard) const {
  const int64_t begin = shard * shard_bytes_;
  std::string bytes(static_cast<size_t>(std::min(shard_bytes_ + window_ - 1, num_bytes_ - begin)), '\0');
  input_->read_at(bytes.data(), bytes.size(), begin);
  return bytes;
}

// Marks the places of `shard` whose window occurs before them, in `earlier` or in `shard` itself.
void Repeats::mark(int64_t earlier, int64_t shard, std::vector<bool>& marked) const {
  std::string bytes = earlier < shard ? read(earlier) + kBetweenTexts : "";
  const auto second = static_cast<int64_t>(bytes.size());  // where the bytes of `shard` begin
  bytes += read(shard);
  const auto size = static_cast<int64_t>(bytes.size());
  std::vector<saidx_t> suffixes(bytes.size());
  if (size > 0 &&
      divsufsort(reinterpret_cast<const sauchar_t*>(bytes.data()), suffixes.data(), static_cast<saidx_t>(size)) != 0)
    throw UserError(concat("no memory to sort ", size, " suffixes; give a smaller --memory"));
  const auto window_size = static_cast<size_t>(window_);
  // Only windows that begin in the shard itself count, not those in what follows it. In order of the texts: those of
  // the earlier shard have the smaller places already.
  const auto counts = [&](int64_t at) {
    return at + window_ <= size && (at < second ? at < shard_bytes_ : at - second < shard_bytes_);
  };
  for (size_t begin = 0; begin < suffixes.size();) {
    const char* const window = bytes.data() + suffixes[begin];
    size_t end = begin + 1;
    if (suffixes[begin] + window_ > size || std::memchr(window, kBetweenTexts, window_size) != nullptr) {
      ++begin;
      continue;
    }
    int64_t first = counts(suffixes[begin]) ? suffixes[begin] : size;
    for (; end < suffixes.size() && suffixes[end] + window_ <= size &&
           std::memcmp(window, bytes.data() + suffixes[end], window_size) == 0;
         ++end)
      if (counts(suffixes[end])) first = std::min<int64_t>(first, suffixes[end]);
    for (size_t same = begin; same < end; ++same) {
      const int64_t at = suffixes[same];
      if (at != first && at >= second && counts(at)) marked[static_cast<size_t>(at - second)] = true;
    }
    begin = end;
  }
}

void Repeats::write_ranges(int64_t shard, const std::vector<bool>& marked) {
  for (size_t at = 0; at < marked.size(); ++at) {
    if (!marked[at]) continue;
    const uint64_t begin = static_cast<uint64_t>(shard * shard_bytes_) + at,
                   end = begin + static_cast<uint64_t>(window_);
    if (last_ && begin <= last_->end) {
      last_->end = end;
      continue;
    }
    write_last();
    last_ = {begin, end};
  }
}

void Repeats::write_last() {
  if (!last_) return;
  num_repeated_ += static_cast<int64_t>(last_->end - last_->node);
  writer_->add(*last_);
  last_.reset();
}

RepeatedRanges::RepeatedRanges(const std::filesystem::path& folder) : ranges_(folder / "repeats") {}

std::vector<ByteRange> RepeatedRanges::of(uint64_t begin, uint64_t size) const {
  std::vector<ByteRange> found;
  for (const ByteRange& range : ranges_.between(begin, begin + size))
    found.push_back({range.node - begin, range.end - begin});
  return found;
}

std::string without_ranges(std::string_view text, const std::vector<ByteRange>& ranges) {
  const auto is_inside_character = [&](uint64_t at) {
    return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
  };
  std::string rest;
  uint64_t done = 0;
  for (ByteRange range : ranges) {
    while (range.node < range.end && is_inside_character(range.node)) ++range.node;
    while (range.node < range.end && is_inside_character(range.end)) --range.end;
    rest += text.substr(done, range.node - done);
    done = range.end;
  }
  return rest += text.substr(done);
}

}  // namespace espalier::curate
