#include "launch/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;

class Secret : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    unsetenv(kSecretVariable);
    unsetenv(kSecretFileVariable);
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CONFIG_HOME");
    unsetenv(kSecretVariable);
    unsetenv(kSecretFileVariable);
    fs::remove_all(folder_);
  }
  std::string message() const {
    try {
      job_secret("1");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  const fs::path folder_ = fs::path(testing::TempDir()) / "espalier_secret_test";
};

TEST_F(Secret, TheUsersKeyIsMadeOncePrivateAndGivesEachJobItsOwn) {
  const std::string first = job_secret("1");
  EXPECT_EQ(first, job_secret("1"));
  EXPECT_NE(first, job_secret("2"));
  EXPECT_EQ(first.size(), 64u);
  struct stat status = {};
  ASSERT_EQ(stat((folder_ / "espalier/job-key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(Secret, ManyProcessesAtOnceAgreeOnOneKey) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  constexpr int kProcesses = 16;
  for (int process = 0; process < kProcesses; ++process)
    if (fork() == 0) {
      const std::string secret = job_secret("1");
      _exit(write(pipe_ends[1], secret.data(), secret.size()) == 64 ? 0 : 1);
    }
  std::set<std::string> secrets;
  for (int process = 0; process < kProcesses; ++process) {
    char text[64];
    ASSERT_EQ(::read(pipe_ends[0], text, sizeof text), 64);
    secrets.insert(std::string(text, sizeof text));
  }
  while (wait(nullptr) > 0) {
  }
  EXPECT_EQ(secrets.size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "espalier"), {}), 1) << "no temporary file stays";
}

TEST_F(Secret, VariableThenFileThenKey) {
  const fs::path file = folder_ / "secret";
  write_file_atomically(file, "0123456789abcdef-of-a-file\n");
  chmod(file.c_str(), 0600);
  setenv(kSecretFileVariable, file.c_str(), 1);
  EXPECT_EQ(job_secret("1"), "0123456789abcdef-of-a-file");
  setenv(kSecretVariable, "from the environment", 1);
  EXPECT_EQ(job_secret("1"), "from the environment");
}

TEST_F(Secret, AFileThatOthersCanReadIsRefused) {
  const fs::path file = folder_ / "secret";
  write_file_atomically(file, "0123456789abcdef\n");
  chmod(file.c_str(), 0640);
  setenv(kSecretFileVariable, file.c_str(), 1);
  EXPECT_NE(message().find("has mode 640, so others can read it"), std::string::npos) << message();
}

TEST_F(Secret, AMissingOrShortFileIsRefused) {
  const fs::path file = folder_ / "secret";
  setenv(kSecretFileVariable, file.c_str(), 1);
  EXPECT_NE(message().find("cannot read the job's secret"), std::string::npos) << message();
  write_file_atomically(file, "short\n");
  chmod(file.c_str(), 0600);
  EXPECT_NE(message().find("has 5 characters; at least 16"), std::string::npos) << message();
}

}  // namespace
}  // namespace espalier::launch
