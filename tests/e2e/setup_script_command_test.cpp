// scripts/setup: its options combine in any order. Programs of the same names stand for dpkg-query, cmake and ninja,
// and note what they are asked for; libtorch counts as installed.
#include <fstream>
#include <set>
#include <sstream>

#include "base/format.h"
#include "tests/support/command.h"
#include "tests/support/long_version.h"

namespace espalier {
namespace setup_script_command_test {

using Names = std::set<std::string>;

class SetupScript : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    const fs::path work = folder_ / "work";
    fs::copy(root() + "/scripts", work / "scripts", fs::copy_options::recursive);
    fs::create_directories(work / "cache/espalier/libtorch-2.11.0");
    std::ofstream(work / "cache/espalier/libtorch-2.11.0/complete") << "";
    fs::create_directories(work / "fake");
    write_program("dpkg-query", "for name; do :; done; echo \"$name\" >>asked; echo 'install ok installed'");
    write_program("ninja", "shift 2; echo \"$*\" >built");
    write_program("cmake", "");
    write_program("git", "pwd");
    write_program("apt-get", "exit 1");
  }
  void write_program(const std::string& name, const std::string& what) const {
    const fs::path file = folder_ / "work/fake" / name;
    std::ofstream(file) << "#!/bin/sh\n" << what << "\n";  // it is started a hundred times
    fs::permissions(file, fs::perms::owner_all);
  }
  struct Done {
    Names packages;
    std::string targets;  // empty: nothing was built
  };
  Done setup(const std::string& options) const {
    const Outcome outcome =
        bash(concat("rm -f asked built; touch asked; XDG_CACHE_HOME=$PWD/cache PATH=$PWD/fake:$PATH scripts/setup ",
                    options, "; code=$?; sort -u asked; exit $code"));
    EXPECT_EQ(outcome.exit_code, 0) << options << "\n" << outcome.errors;
    std::istringstream lines(outcome.output);
    Done done;
    for (std::string line; std::getline(lines, line);) done.packages.insert(line);
    const fs::path built = folder_ / "work/built";
    if (fs::exists(built)) done.targets = strip(read_file(built));
    return done;
  }
  // "NAME KIND ..." of scripts/packages.txt.
  Names packages_of(const Names& kinds) const {
    Names names;
    std::ifstream file(root() + "/scripts/packages.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string name, kind;
      words >> name >> kind;
      if (kinds.contains(kind)) names.insert(name);
    }
    return names;
  }
};

TEST_F(SetupScript, WithoutABuildTheTestsStillHaveTheirPackages) {
  const Names all = packages_of({"tool", "library", "test"}), fewer = packages_of({"tool", "library"});
  ASSERT_GT(all.size(), fewer.size());
  std::vector<std::string> list = {"--tests --no-build", "--no-build --fast-tests"};
  if (test::long_version()) list.push_back("--no-build --tests");
  for (const std::string& options : list) {
    const Done done = setup(options);
    EXPECT_EQ(done.packages, all) << options;
    EXPECT_EQ(done.targets, "") << options;
  }
  const Done done = setup("--no-build");
  EXPECT_EQ(done.packages, fewer);
  EXPECT_EQ(done.targets, "");
}

TEST_F(SetupScript, BuildsWhatTheOptionsTogetherAskFor) {
  std::vector<std::string> list = {"--tests", "--fast-tests --tests"};
  if (test::long_version()) list.push_back("--tests --fast-tests");
  for (const std::string& options : list) EXPECT_EQ(setup(options).targets, "all") << options;
  EXPECT_EQ(setup("--fast-tests").targets, "espalier espalier_fast_tests");
  const Done done = setup("");
  EXPECT_EQ(done.targets, "espalier espalier-engine");
  EXPECT_EQ(done.packages, packages_of({"tool", "library"}));
}

}  // namespace setup_script_command_test
}  // namespace espalier
