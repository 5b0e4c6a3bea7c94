#include "text/internal/chars_map.h"

#include <cstring>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

constexpr uint32_t kValueBit = uint32_t{1} << 31;

bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label_of(uint32_t unit) { return unit & (kValueBit | 0xFF); }
size_t offset_of(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6); }

[[noreturn]] void fail(const std::string& where, const std::string& complaint) {
  throw UserError(concat(where, ": ", complaint), ExitCode::kBadData);
}

}  // namespace

CharsMap::CharsMap(std::string_view blob, const std::string& where) : where_(where) {
  if (blob.empty()) return;
  if (blob.size() < 4) fail(where, concat("expected a size of 4 bytes, found ", blob.size()));
  uint32_t trie_bytes;
  std::memcpy(&trie_bytes, blob.data(), 4);
  blob.remove_prefix(4);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= blob.size()) {
    fail(where, concat("the trie should have ", trie_bytes, " bytes, a multiple of 4 below the ", blob.size(),
                       " that follow"));
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), blob.data(), trie_bytes);
  replacements_ = blob.substr(trie_bytes);
  if (replacements_.back() != '\0') replacements_ += '\0';
  const size_t valid = valid_utf8_prefix(replacements_);
  if (valid != replacements_.size()) fail(where, concat("its replacements are not UTF-8 from byte ", valid, " on"));
  for (size_t i = 0; i < units_.size(); ++i) {
    if ((units_[i] & kValueBit) == 0) continue;
    const size_t value = units_[i] & ~kValueBit;
    if (value >= replacements_.size() || (static_cast<uint8_t>(replacements_[value]) & 0xC0) == 0x80) {
      fail(where, concat("unit ", i, " of the trie points to byte ", value, " of the ", replacements_.size(),
                         " of its replacements, where no character begins"));
    }
  }
  check_length_of_keys();
}

// Goes down from the root, all ways to one depth at a time. A trie may share what several keys end with, so a unit can
// be at several depths; it is followed again only where it is deeper, and there are few depths.
void CharsMap::check_length_of_keys() const {
  constexpr size_t kLongestKeyBytes = 256;  // of the maps in use: 12
  // The units by the place of their parent's children, which is their own place less their label.
  const size_t num_places = (units_.size() + 255) / 256 * 256;
  std::vector<uint32_t> next(units_.size(), 0), first(num_places, 0);  // chains; 0, the root, ends one
  for (size_t unit = units_.size() - 1; unit > 0; --unit) {
    const uint32_t label = label_of(units_[unit]);
    if (label == 0 || label > 0xFF) continue;
    const size_t place = unit ^ label;
    next[unit] = first[place];
    first[place] = static_cast<uint32_t>(unit);
  }
  std::vector<uint32_t> level = {0}, below;
  std::vector<uint32_t> followed_at(num_places, UINT32_MAX);
  for (uint32_t depth = 0; !level.empty(); ++depth) {
    if (depth > kLongestKeyBytes)
      fail(where_, concat("its trie has keys of more than ", kLongestKeyBytes, " bytes, or a loop"));
    below.clear();
    for (const uint32_t unit : level) {
      const size_t place = unit ^ offset_of(units_[unit]);
      if (place >= num_places || followed_at[place] == depth) continue;
      followed_at[place] = depth;
      for (uint32_t child = first[place]; child != 0; child = next[child]) below.push_back(child);
    }
    level.swap(below);
  }
}

CharsMap::Match CharsMap::find(std::string_view text, bool first_only) const {
  Match match;
  if (units_.empty()) return match;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit) || node >= units_.size() || (units_[node] & kValueBit) == 0) continue;
    const char* value = replacements_.data() + (units_[node] & ~kValueBit);
    match = {i + 1, std::string_view(value, std::strlen(value))};
    if (first_only) break;
  }
  const bool inside = match.num_bytes < text.size() && (static_cast<uint8_t>(text[match.num_bytes]) & 0xC0) == 0x80;
  if (inside)
    fail(where_, concat("a rule for the first ", match.num_bytes, " bytes of '", text.substr(0, 16),
                        "' ends inside a character"));
  return match;
}

bool CharsMap::has_prefix(std::string_view bytes) const {
  if (units_.empty()) return false;
  size_t node = offset_of(units_[0]);
  for (const char letter : bytes) {
    const auto byte = static_cast<uint8_t>(letter);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return false;
    node ^= offset_of(units_[node]);
  }
  return true;
}

std::vector<std::pair<std::string, std::string>> CharsMap::rules() const {
  std::vector<std::pair<std::string, std::string>> found;
  if (units_.empty()) return found;
  struct Place {
    std::string key;
    size_t base;  // of its children
  };
  std::vector<Place> open = {{"", offset_of(units_[0])}};
  size_t num_reached = 0;
  while (!open.empty()) {
    const Place place = std::move(open.back());
    open.pop_back();
    for (size_t byte = 255; byte >= 1; --byte) {
      const size_t child = place.base ^ byte;
      if (child >= units_.size() || label_of(units_[child]) != byte) continue;
      open.push_back({place.key + static_cast<char>(byte), child ^ offset_of(units_[child])});
      // In a trie no unit is reached twice.
      if (++num_reached > units_.size()) fail(where_, "the units of the trie point back to one another");
    }
    if (place.key.empty() || place.base >= units_.size() || (units_[place.base] & kValueBit) == 0) continue;
    found.emplace_back(place.key, replacements_.data() + (units_[place.base] & ~kValueBit));
  }
  return found;
}

std::string CharsMap::blob() const {
  if (units_.empty()) return "";
  const auto trie_bytes = static_cast<uint32_t>(units_.size() * sizeof(uint32_t));
  std::string blob(4 + trie_bytes, '\0');
  std::memcpy(blob.data(), &trie_bytes, 4);
  std::memcpy(blob.data() + 4, units_.data(), trie_bytes);
  return blob + replacements_;
}

}  // namespace espalier::text::internal
