#include "launch/error_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace espalier::launch {
namespace {

using Json = nlohmann::json;
using FileTime = std::chrono::system_clock::time_point;

// The format has whole seconds; the file's own time of modification is finer.
FileTime time_of(const std::filesystem::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::chrono::system_clock::now();
  const auto since_epoch =
      std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return FileTime(std::chrono::duration_cast<FileTime::duration>(since_epoch));
}

}  // namespace

void leave_error_for_launcher(const std::string& message, int exit_code) noexcept {
  const char* path = std::getenv(kErrorFileVariable);
  if (path == nullptr || *path == '\0') return;
  try {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
    const Json extra = {
        {"py_callstack", message}, {"timestamp", std::to_string(seconds.count())}, {"exit_code", exit_code}};
    const Json content = {{"message", {{"message", message}, {"extraInfo", extra}}}};
    write_file_atomically(path, content.dump(-1, ' ', false, Json::error_handler_t::replace));
  } catch (const std::exception& error) {
    log_warning("cannot pass this error on to the launcher: ", error.what());
  }
}

std::optional<RankError> read_error_file(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return std::nullopt;
  Json content;
  try {
    content = parse_json(read_file(path), path.string());
  } catch (const UserError&) {
    return std::nullopt;
  }
  if (!content.is_object() || !content.contains("message")) return std::nullopt;
  const Json& message = content["message"];
  const Json& text = message.is_object() && message.contains("message") ? message["message"] : message;
  RankError error{text.is_string() ? text.get<std::string>() : text.dump(), time_of(path), std::nullopt};
  const Json extra = message.is_object() ? message.value("extraInfo", Json()) : Json();
  if (extra.is_object() && extra.contains("exit_code") && extra["exit_code"].is_number_integer())
    error.exit_code = extra["exit_code"].get<int>();
  return error;
}

}  // namespace espalier::launch
