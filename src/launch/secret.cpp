#include "launch/secret.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/sha256.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string give_one() {
  return concat("Set ", kSecretVariable, " to the same text for all ranks, or ", kSecretFileVariable,
                " to a file of yours with mode 600 that all of them can read.");
}

void check_private(const fs::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0)
    throw UserError(
        concat("cannot read the job's secret ", path.string(), ": ", std::strerror(errno), ". ", give_one()),
        ExitCode::kMissingInput);
  if (status.st_uid != geteuid())
    throw UserError(concat("the job's secret ", path.string(), " belongs to user ", status.st_uid, ", not to you (",
                           geteuid(), "). ", give_one()));
  if ((status.st_mode & 077) != 0)
    throw UserError(concat("the job's secret ", path.string(), " has mode ", format_printf("%o", status.st_mode & 0777),
                           ", so others can read it. Make a new one, with mode 600."));
}

std::string secret_in_file(const fs::path& path) {
  check_private(path);
  const std::string secret = strip(read_file(path));
  constexpr size_t kMinimum = 16;
  if (secret.size() < kMinimum)
    throw UserError(concat("the job's secret ", path.string(), " has ", secret.size(), " characters; at least ",
                           kMinimum, " are needed (head -c 32 /dev/urandom | base64)"));
  return secret;
}

fs::path user_key_path() {
  const std::string configured = variable("XDG_CONFIG_HOME");
  std::string home = variable("HOME");
  if (const passwd* entry = getpwuid(geteuid()); home.empty() && entry != nullptr) home = entry->pw_dir;
  const fs::path folder = configured.empty() ? fs::path(home) / ".config" : fs::path(configured);
  return folder / "espalier" / "job-key";
}

// Many ranks may do this at once, also over NFS: link() lets one of them win, and all read what it wrote.
void create_user_key(const fs::path& path) {
  const auto fail = [&](const std::string& what) {
    throw UserError(
        concat("cannot create a key for this user's jobs: ", what, ": ", std::strerror(errno), ". ", give_one()),
        ExitCode::kCannotCreate);
  };
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path fresh = path.string() + "." + hex_digits(random_bytes(8));
  const int file = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) fail(fresh);
  const std::string text = new_secret() + "\n";
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(file) == 0;
  close(file);
  const bool linked = written && (link(fresh.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int reason = errno;
  unlink(fresh.c_str());
  errno = reason;
  if (!linked) fail(path);
}

}  // namespace

std::string new_secret() { return hex_digits(random_bytes(32)); }

std::string job_secret(const std::string& run_id) {
  if (std::string secret = variable(kSecretVariable); !secret.empty()) return secret;
  if (const std::string path = variable(kSecretFileVariable); !path.empty()) return secret_in_file(path);
  const fs::path path = user_key_path();
  if (!fs::exists(path)) create_user_key(path);
  return hex_digits(hmac_sha256(secret_in_file(path), "espalier job " + run_id));
}

}  // namespace espalier::launch
