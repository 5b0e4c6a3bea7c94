// Argonne's aGPT 7B recipe (Llama-like, ZeRO 1, a list of data files) trains on two processes as it stands, with
// nothing changed but the launcher, paths and sizes.
#include <gtest/gtest.h>

#include "base/format.h"
#include "store/run_folder.h"
#include "tests/launch/launch_fixture.h"
#include "tests/support/launch_script.h"

namespace espalier::test {
namespace argonne_script_test {

TEST(ArgonneScript, Agpt7BTrainsAndGoesOnAsItStands) {
  const TemporaryFolder folder;
  const std::string root = std::filesystem::current_path();
  const std::string tokenizer = root + "/tests/data/tokenizers/llama2/tokenizer.json";
  const Shell prepared =
      shell(folder, concat("espalier preprocess --input ", root, "/tests/data/owt-20.jsonl --output-prefix ",
                           folder / "owt", " --tokenizer-type HFTokenizer --tokenizer-model ", tokenizer,
                           " --workers 1 && echo '1.0 ", folder / "owt_text_document", " books' >", folder / "list"));
  ASSERT_EQ(prepared.exit_code, 0) << prepared.errors;
  write_file_atomically(
      folder / "agpt.sh",
      launch_script("agpt-7B.sh", {{"mpiexec -n", "espalier launch --nproc-per-node"}, {" python3", ""}},
                    {{"WORLD_SIZE=24", "WORLD_SIZE=2"},
                     {"MICRO_BATCH=4", "MICRO_BATCH=2"},
                     {"GRAD_ACC_STEPS=8", "GRAD_ACC_STEPS=2"},
                     {"HEADS=32", "HEADS=4"},
                     {"NLAYERS=32", "NLAYERS=2"},
                     {"HIDDEN=4096", "HIDDEN=16"},
                     {"NUM_KV_HEAD=8", "NUM_KV_HEAD=2"},
                     {"FFN_HIDDEN_SIZE=11008", "FFN_HIDDEN_SIZE=24"},
                     {"SEQ=4096", "SEQ=32"},
                     {"TRAIN_TOKENS=4673780159710", "TRAIN_TOKENS=1536"},
                     {"SAVE_INTERVAL=50", "SAVE_INTERVAL=4"},
                     {"EVAL_INTERVAL=100", "EVAL_INTERVAL=3"},
                     {"--eval-iters=20", "--eval-iters=1"},
                     {"--split=990,10,0", "--split=900,100,0"},
                     {"ALCF/data-lists/dolma.txt", folder / "list"},
                     {"google/gemma-7B", tokenizer}}));
  const std::string run = folder / "checkpoints/agpt";
  const auto train = [&] { return shell(folder, "cd " + folder.path().string() + " && bash agpt.sh"); };
  const Shell first = train();
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  const auto records = step_records(run);
  ASSERT_EQ(records.size(), 6u) << first.errors;
  EXPECT_EQ(records[0].at("global_batch_size"), 8);
  EXPECT_LT(records[5].at("lm_loss"), records[0].at("lm_loss"));

  // Stopped after step 4, as it would be by the end of a job's time: the same script continues with the same result.
  std::filesystem::remove_all(run + "/step_00000006");
  const Shell second = train();
  ASSERT_EQ(second.exit_code, 0) << second.errors;
  EXPECT_NE(second.errors.find("loading checkpoint from checkpoints/agpt at iteration 4"), std::string::npos)
      << second.errors;
  EXPECT_EQ(step_records(run), records);
}

}  // namespace argonne_script_test
}  // namespace espalier::test
