#include "launch/internal/report_file.h"

#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/host_name.h"
#include "base/log.h"

namespace espalier::launch::internal {

std::string utc_now(const char* format) {
  const time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char text[64];
  strftime(text, sizeof text, format, &parts);
  return text;
}

std::string write_report(const std::string& folder, const std::string& name, const std::string& text) {
  const std::string stem = concat(folder, "/", name, "_", utc_now("%Y-%m-%dT%H-%M-%SZ"), "_", host_name());
  std::string path = stem + ".txt";
  for (int number = 2; std::filesystem::exists(path); ++number) path = concat(stem, "_", number, ".txt");
  try {
    write_file_atomically(path, text);
    return path;
  } catch (const UserError& error) {
    log_warning(error.what(), ". Its text:\n", text);
    return "";
  }
}

}  // namespace espalier::launch::internal
