#include "store/internal/pickle_input.h"

#include <algorithm>
#include <cstring>

namespace espalier::store {
namespace {

constexpr int64_t kWindowBytes = 1 << 16;
constexpr size_t kLongestLine = 1000;  // names of modules and classes

}  // namespace

void PickleInput::copy(void* destination, size_t size) {
  if (size > static_cast<size_t>(left()))
    refuse_file("expected ", size, " more bytes, found the end after ", left(), "; it is cut off or damaged");
  const auto window_left = [&] { return window_begin_ + static_cast<int64_t>(window_.size()) - position_; };
  auto* bytes = static_cast<char*>(destination);
  const auto from_window = static_cast<size_t>(std::min<int64_t>(window_left(), static_cast<int64_t>(size)));
  if (from_window > 0) std::memcpy(bytes, window_.data() + (position_ - window_begin_), from_window);
  bytes += from_window, size -= from_window, position_ += static_cast<int64_t>(from_window);
  if (size == 0) return;
  if (static_cast<int64_t>(size) < kWindowBytes) {
    window_.resize(static_cast<size_t>(std::min(kWindowBytes, left())));
    file_.read_at(window_.data(), window_.size(), position_);
    window_begin_ = position_;
    std::memcpy(bytes, window_.data(), size);
  } else {
    file_.read_at(bytes, size, position_);
    window_.clear();
    window_begin_ = position_ + static_cast<int64_t>(size);
  }
  position_ += static_cast<int64_t>(size);
}

uint8_t PickleInput::byte() {
  uint8_t value;
  copy(&value, 1);
  return value;
}

template <class Number>
Number PickleInput::number() {
  Number value;
  copy(&value, sizeof value);  // this machine is little endian as well
  return value;
}
template uint16_t PickleInput::number();
template int32_t PickleInput::number();
template uint32_t PickleInput::number();
template uint64_t PickleInput::number();

std::string PickleInput::text(uint64_t size) {
  if (size > static_cast<uint64_t>(left()))
    refuse_file("expected ", size, " more bytes, found the end after ", left(), "; it is cut off or damaged");
  std::string value(size, '\0');
  copy(value.data(), value.size());
  return value;
}

std::string PickleInput::line() {
  std::string value;
  for (uint8_t next; (next = byte()) != '\n'; value.push_back(static_cast<char>(next)))
    if (value.size() == kLongestLine)
      refuse_file("expected a name of at most ", kLongestLine, " bytes, found a longer one");
  return value;
}

}  // namespace espalier::store
