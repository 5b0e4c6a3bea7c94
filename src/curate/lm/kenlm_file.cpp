#include "curate/lm/internal/kenlm_file.h"
#include "base/format.h"

namespace espalier::curate {
namespace {

constexpr std::string_view kBeforeVersion = "mmap lm http://kheafield.com/code";
constexpr std::string_view kMagic("mmap lm http://kheafield.com/code format version 5\n\0\0", 53);

// The values that KenLM writes after its magic to check that the reading machine is like the one that wrote.
struct Sanity {
  char magic[56] = {};
  float zero = 0, one = 1, minus_half = -0.5F;
  uint32_t one_word = 1, greatest_word = 0xFFFFFFFF, padding = 0;
  uint64_t one_integer = 1;
};
static_assert(sizeof(Sanity) == 88);

struct FixedParameters {
  uint8_t order = 0, order_padding[3] = {};
  float probing_multiplier = 0;
  uint32_t kind = 0;
  uint8_t has_vocabulary = 0, vocabulary_padding[3] = {};
  uint32_t search_version = 0;
};
static_assert(sizeof(FixedParameters) == 20);

constexpr uint32_t version_of(uint32_t kind) { return kind < 2 ? 0 : 1; }

}  // namespace

bool is_kenlm_binary(const std::string& file) {
  const InputFile input(file);
  if (input.size_bytes() < static_cast<int64_t>(kBeforeVersion.size())) return false;
  std::string begin(kBeforeVersion.size(), '\0');
  input.read_at(begin.data(), begin.size(), 0);
  return begin == kBeforeVersion;
}

KenlmFile::KenlmFile(const std::string& file) : file_(file), mapped_(file) {
  if (mapped_.size() < sizeof(Sanity) + sizeof(FixedParameters)) fail("a binary file of KenLM that was cut off");
  const std::string_view begin(reinterpret_cast<const char*>(mapped_.data()), sizeof Sanity::magic);
  if (begin.starts_with("mmap lm http://kheafield.com/code incomplete"))
    fail("this binary file of KenLM was never finished; make it again with build_binary");
  if (begin.substr(0, kMagic.size()) != kMagic)
    fail("expected KenLM's binary format 5, found '", begin.substr(0, begin.find('\n')),
         "'; make it from the ARPA file with KenLM's build_binary");
  Sanity wanted;
  std::memcpy(wanted.magic, kMagic.data(), kMagic.size());
  if (std::memcmp(mapped_.data() + sizeof wanted.magic, reinterpret_cast<const char*>(&wanted) + sizeof wanted.magic,
                  sizeof wanted - sizeof wanted.magic) != 0)
    fail("KenLM wrote this file on a machine of another kind; make it from the ARPA file on this one");
  const auto fixed = at<FixedParameters>(sizeof(Sanity));
  kind_ = static_cast<KenlmKind>(fixed.kind);
  if (fixed.kind > static_cast<uint32_t>(KenlmKind::kQuantizedArrayTrie))
    fail("kind ", fixed.kind, " of KenLM's binary files is not known; 0 (hash tables) to 5 (tries) are");
  if (fixed.search_version != version_of(fixed.kind))
    fail("expected version ", version_of(fixed.kind), " of kind ", fixed.kind, ", found ", fixed.search_version);
  if (fixed.order < 2 || fixed.order > kMostNgramWords)
    fail("n-grams of ", int{fixed.order}, " words; from 2 to ", kMostNgramWords, " can be read");
  probing_multiplier_ = fixed.probing_multiplier;
  if (fixed.kind < 2 && !(probing_multiplier_ >= 1 && probing_multiplier_ < 1000))
    fail("the hash tables are ", probing_multiplier_, " times as large as what they hold; expected 1 or more");
  const uint64_t counts = sizeof(Sanity) + sizeof(FixedParameters);
  header_bytes_ = (counts + sizeof(uint64_t) * fixed.order + 7) / 8 * 8;
  check_reaches(header_bytes_);
  for (uint64_t length = 0; length < fixed.order; ++length) {
    counts_.push_back(at<uint64_t>(counts + sizeof(uint64_t) * length));
    // An n-gram has some bits at least. What follows cannot overflow then.
    if (counts_.back() > 8 * mapped_.size() || (length == 0 && counts_.back() >= 0xFFFFFFFF))
      fail(counts_.back(), " ", length + 1, "-grams cannot be in ", format_bytes(static_cast<double>(mapped_.size())));
  }
}

void KenlmFile::check_reaches(uint64_t end) const {
  if (mapped_.size() < end) fail("expected at least ", end, " bytes by its header, found ", mapped_.size());
}

uint64_t kenlm_word_hash(std::string_view word) {
  constexpr uint64_t kFactor = 0xC6A4A7935BD1E995ULL;
  const auto scramble = [](uint64_t value) { return value ^ (value >> 47); };
  uint64_t hash = word.size() * kFactor;
  size_t at = 0;
  for (; at + 8 <= word.size(); at += 8) {
    uint64_t eight;
    std::memcpy(&eight, word.data() + at, sizeof eight);
    hash = (hash ^ (scramble(eight * kFactor) * kFactor)) * kFactor;
  }
  if (at < word.size()) {
    uint64_t rest = 0;
    std::memcpy(&rest, word.data() + at, word.size() - at);
    hash = (hash ^ rest) * kFactor;
  }
  return scramble(scramble(hash) * kFactor);
}

std::unique_ptr<NgramTable> open_kenlm_binary(const std::string& file) {
  KenlmFile opened(file);
  const bool is_probing = opened.kind() == KenlmKind::kProbing || opened.kind() == KenlmKind::kRestProbing;
  return is_probing ? open_probing_table(std::move(opened)) : open_trie_table(std::move(opened));
}

}  // namespace espalier::curate
