// The file in which a failed rank leaves its message for the launcher: torchrun's, so that either launcher reads it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace espalier::launch {

inline constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";

struct RankError {
  std::string message;
  std::chrono::system_clock::time_point time;
  std::optional<int> exit_code;  // with which the rank was about to end; only our own ranks say it
};

// Where the launcher asked for it (TORCHELASTIC_ERROR_FILE); nothing elsewhere. Does not throw: it runs while another
// error is on its way out.
void leave_error_for_launcher(const std::string& message, int exit_code) noexcept;

// Nothing if there is no file or it cannot be read: the launcher asks once a rank has ended, and what a rank wrote
// must not end the launcher. Also takes torchrun's short form, {"message": text}.
std::optional<RankError> read_error_file(const std::filesystem::path& path);

}  // namespace espalier::launch
