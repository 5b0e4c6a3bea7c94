#include "data/line_reader.h"

#include "base/error.h"
#include "base/format.h"
#include "data/input_check.h"
#include "data/record_reader.h"

namespace espalier::data {

bool LineReader::next(std::string_view& line) {
  size_t searched = 0;  // of the line, without finding its end
  for (;;) {
    const size_t feed = buffer_.find('\n', at_ + searched);
    const size_t end = feed == std::string::npos ? buffer_.size() : feed + 1;
    searched = end - at_;
    if (feed == std::string::npos) {
      if (fill()) continue;
      if (searched == 0 && open_next_file()) continue;
    }
    line = std::string_view(buffer_).substr(at_, searched);
    at_ += searched;
    return searched > 0;
  }
}

// More of the current file after what is left of the buffer, which moves to its front; false at the end of the file.
bool LineReader::fill() {
  if (stream_ == nullptr) return false;
  const size_t kept = buffer_.size() - at_;
  if (kept > static_cast<size_t>(kMaxRecordBytes)) {
    throw UserError(concat(shown_name(files_[next_file_ - 1]), ": a line of over ", format_count(kMaxRecordBytes),
                           " bytes; break it into lines"),
                    ExitCode::kBadData);
  }
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_.resize(kept + static_cast<size_t>(kBlockBytes));
  const size_t count = stream_->read(buffer_.data() + kept, static_cast<size_t>(kBlockBytes));
  buffer_.resize(kept + count);
  if (kept == 0 && is_at_start_) refuse_byte_order_mark(buffer_, files_[next_file_ - 1]);
  is_at_start_ = false;
  return count > 0;
}

bool LineReader::open_next_file() {
  if (next_file_ == files_.size()) return false;
  if (stream_ != nullptr) finished_bytes_ += stream_->consumed_bytes();
  stream_ = open_input(files_[next_file_++]);
  is_at_start_ = true;
  return true;
}

}  // namespace espalier::data
