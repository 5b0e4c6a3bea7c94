// espalier checkpoint import-hf and export-hf as a user meets them, on the committed folders.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "store/manifest.h"
#include "store/run_folder.h"

namespace espalier {
namespace hf_command_test {

namespace fs = std::filesystem;

struct HfOutcome {
  int exit_code = -1;
  std::string output, errors;
};

class HfCommand : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  HfOutcome run(const std::string& program, const std::string& arguments) const {
    const std::string out = folder_ / "out", err = folder_ / "err";
    const int status = std::system(concat(program, " ", arguments, " >", out, " 2>", err).c_str());
    return {WEXITSTATUS(status), read_file(out), read_file(err)};
  }
  HfOutcome import_of(const std::string& input, const std::string& more = "") const {
    return run(ESPALIER_PROGRAM, concat("checkpoint import-hf --input ", input, " --save ", run_.string(), " ", more));
  }
  HfOutcome export_to(const fs::path& output, const std::string& more = "") const {
    return run(ESPALIER_PROGRAM,
               concat("checkpoint export-hf --load ", run_.string(), " --output ", output.string(), " ", more));
  }
  // A copy of a committed folder, to be spoilt.
  fs::path copy_of(const std::string& name) const {
    fs::copy("tests/data/hf/" + name, folder_ / name);
    return folder_ / name;
  }
  static void replace(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = read_file(file);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    std::ofstream(file, std::ios::binary) << text.replace(at, from.size(), to);
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_hf_command_", ::getpid());
  const fs::path run_ = folder_ / "run";
  const std::string engine_ = (fs::path(ESPALIER_PROGRAM).parent_path() / "espalier-engine").string();
};

TEST_F(HfCommand, ComparesLogitsOfAnImportAndOfAnExport) {
  const HfOutcome in = import_of("tests/data/hf/gpt2");
  EXPECT_EQ(in.exit_code, 0) << in.errors;
  EXPECT_NE(in.errors.find("the logits are equal: largest difference "), std::string::npos) << in.errors;
  EXPECT_TRUE(fs::exists(run_ / "step_00000000" / "manifest.json"));
  EXPECT_FALSE(fs::exists(folder_ / "run.partial"));
  const fs::path back = folder_ / "back";
  const HfOutcome out = export_to(back, "--max-shard-size 5KB");
  EXPECT_EQ(out.exit_code, 0) << out.errors;
  EXPECT_NE(out.errors.find("the logits are equal: largest difference "), std::string::npos) << out.errors;
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json"})
    EXPECT_TRUE(fs::exists(back / name)) << name;
  EXPECT_FALSE(fs::exists(back / ".lock"));
  const HfOutcome again = export_to(back);
  EXPECT_EQ(again.exit_code, 73);
  EXPECT_NE(again.errors.find("exists and is not empty; nothing is overwritten"), std::string::npos) << again.errors;
}

TEST_F(HfCommand, TellsInJsonWhatItDid) {
  const HfOutcome in = import_of("tests/data/hf/gpt2", "--no-check-logits --json");
  ASSERT_EQ(in.exit_code, 0) << in.errors;
  const auto imported = nlohmann::json::parse(in.output);
  EXPECT_EQ(imported.at("model_type"), "gpt2");
  EXPECT_EQ(imported.at("run_folder"), run_.string());
  EXPECT_EQ(imported.at("logits_compared"), false);
  EXPECT_TRUE(fs::exists(imported.at("step_folder").get<std::string>() + "/manifest.json"));
  const HfOutcome out = export_to(folder_ / "back", "--no-check-logits --json");
  ASSERT_EQ(out.exit_code, 0) << out.errors;
  const auto exported = nlohmann::json::parse(out.output);
  EXPECT_EQ(exported.at("files"), nlohmann::json::array({"model.safetensors"}));
  EXPECT_EQ(exported.at("num_parameters"), imported.at("num_parameters"));
}

TEST_F(HfCommand, AnExportHasATokenizerThatTransformersReadsAndItsIds) {
  const fs::path model = copy_of("gpt2");
  for (const char* name : {"vocab.json", "merges.txt"})
    fs::copy_file(fs::path("tests/data/gpt2-tiny") / name, model / name);
  replace(model / "config.json", "\"eos_token_id\": 2", "\"eos_token_id\": null");
  ASSERT_EQ(import_of(model.string(), "--no-check-logits").exit_code, 0);
  const fs::path back = folder_ / "back";
  const HfOutcome out = export_to(back, "--no-check-logits");
  ASSERT_EQ(out.exit_code, 0) << out.errors;
  const auto vocabulary = nlohmann::json::parse(read_file(back / "vocab.json"));
  EXPECT_EQ(nlohmann::json::parse(read_file(back / "config.json")).at("eos_token_id"), vocabulary.at("<|endoftext|>"));
  EXPECT_TRUE(fs::exists(back / "tokenizer.json"));
  EXPECT_TRUE(fs::exists(back / "tokenizer_config.json"));
}

TEST_F(HfCommand, ALinkToAFileElsewhereIsNotCopied) {
  const fs::path model = copy_of("gpt2");
  fs::create_symlink("/etc/passwd", model / "tokenizer.json");
  const HfOutcome outcome = import_of(model.string(), "--no-check-logits");
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_NE(outcome.errors.find("tokenizer.json' is a link to '/etc/passwd', outside the folder"), std::string::npos)
      << outcome.errors;
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(HfCommand, GeneratesWithWhatWasImported) {
  ASSERT_EQ(import_of("tests/data/hf/gpt2", "--no-check-logits").exit_code, 0);
  const HfOutcome outcome = run(ESPALIER_PROGRAM, concat("generate --load ", run_.string(),
                                                         " --prompt '1 2 3' --tokens-to-generate 5 --greedy --json"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("\"prompt_ids\":[1,2,3]"), std::string::npos) << outcome.output;
}

TEST_F(HfCommand, AnEngineThatFindsOtherLogitsSaysSo) {
  ASSERT_EQ(import_of("tests/data/hf/gpt2", "--no-check-logits").exit_code, 0);
  const fs::path wrong = copy_of("gpt2");
  replace(wrong / "config.json", "1e-06", "1e-05");
  const HfOutcome outcome =
      run(engine_, concat("compare-hf --step ", (run_ / "step_00000000").string(), " --hf ", wrong.string()));
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_NE(outcome.errors.find("the logits differ: largest difference "), std::string::npos) << outcome.errors;
}

TEST_F(HfCommand, AnImportThatCannotBeLeavesNothing) {
  const fs::path wrong = copy_of("gpt2");
  replace(wrong / "config.json", "\"n_embd\": 15", "\"n_embd\": 18");
  const HfOutcome outcome = import_of(wrong.string());
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_NE(outcome.errors.find("'transformer.wte.weight': expected F32 [31, 18] from config.json, found F32 [31, 15]"),
            std::string::npos)
      << outcome.errors;
  EXPECT_FALSE(fs::exists(run_) || fs::exists(folder_ / "run.partial"));
}

TEST_F(HfCommand, NamesTensorsThatAreMissingOrLeftOver) {
  const fs::path wrong = copy_of("gpt2_untied");
  replace(wrong / "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
  HfOutcome outcome = import_of(wrong.string(), "--no-check-logits");
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_NE(outcome.errors.find("'lm_head.weight' differs from 'transformer.wte.weight'"), std::string::npos)
      << outcome.errors;
  replace(wrong / "config.json", "\"n_layer\": 1", "\"n_layer\": 2");
  outcome = import_of(wrong.string(), "--no-check-logits");
  EXPECT_NE(outcome.errors.find("'transformer.h.1.ln_1.weight' is missing, which config.json makes part of the model"),
            std::string::npos)
      << outcome.errors;
}

TEST_F(HfCommand, CopiesTheTokenizerBothWays) {
  const fs::path folder = copy_of("gpt2");
  fs::copy("tests/data/gpt2-tiny/vocab.json", folder / "vocab.json");
  fs::copy("tests/data/gpt2-tiny/merges.txt", folder / "merges.txt");
  const HfOutcome in = import_of(folder.string(), "--no-check-logits");
  ASSERT_EQ(in.exit_code, 0) << in.errors;
  const fs::path back = folder_ / "back";
  ASSERT_EQ(export_to(back, "--no-check-logits").exit_code, 0);
  for (const char* name : {"vocab.json", "merges.txt", "generation_config.json"})
    EXPECT_EQ(read_file(back / name), read_file(folder / name)) << name;
}

TEST_F(HfCommand, ExportFindsDamageAndRefusesAnotherFamily) {
  ASSERT_EQ(import_of("tests/data/hf/gpt2", "--no-check-logits").exit_code, 0);
  const HfOutcome other = export_to(folder_ / "back", "--model-type bloom");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.errors.find("this model is not a bloom, where positions are ALiBi's, and a norm follows"),
            std::string::npos)
      << other.errors;
  const fs::path file = run_ / "step_00000000" / "weights-00001.safetensors";
  std::string content = read_file(file);
  content.back() ^= 1;
  std::ofstream(file, std::ios::binary) << content;
  const HfOutcome outcome = export_to(folder_ / "back", "--no-check-logits");
  EXPECT_EQ(outcome.exit_code, 65);
  EXPECT_NE(outcome.errors.find("tensor 'layers.1.mlp.dense_4h_to_h.bias' in weights-00001.safetensors"),
            std::string::npos)
      << outcome.errors;
  EXPECT_FALSE(fs::exists(folder_ / "back") || fs::exists(folder_ / "back.partial"));
}

}  // namespace hf_command_test
}  // namespace espalier
