// Writing and reading step folders: round trip, damage of every kind, a full disk, and SIGKILL at any moment.
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "base/hash.h"
#include "store/internal/test_folder.h"
#include "store/internal/test_system.h"
#include "store/run_folder.h"
#include "store/step_reader.h"
#include "tests/support/long_version.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::flip_bit;
using test::SmallCheckpoint;
using test::write_text;

using Step = test::TestFolder;
using Lines = std::vector<std::string>;

Lines verify(const fs::path& step_folder) { return verify_step(step_folder, 2, /*weights_only=*/false); }

std::string read_tensor(StepReader& reader, const std::string& name) {
  const StoredTensor& tensor = *reader.manifest().find(name);
  std::string content(static_cast<size_t>(tensor.num_bytes()), '\0');
  for (size_t block = 0; block < tensor.blocks.size(); ++block)
    reader.read_block(tensor, block, content.data() + tensor.blocks[block].offset);
  return content;
}

TEST_F(Step, EveryTensorComesBackAndThePartsAreSafetensors) {
  SmallCheckpoint small;
  small.save(folder_, 1000);
  const fs::path step = folder_ / "step_00001000";
  StepReader reader(step);
  for (size_t index = 0; index < small.tensors().size(); ++index) {
    const TensorData& tensor = small.tensors()[index];
    EXPECT_EQ(read_tensor(reader, tensor.name), small.bytes(index)) << tensor.name;
    const SafetensorsFile file(step / tensor.file);
    const TensorEntry* entry = file.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->shape, tensor.shape);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data(*entry)), small.bytes(index).size()),
              small.bytes(index));
  }
  EXPECT_EQ(reader.read_extra_file("tokenizer/vocab.json"), "{\"a\": 0}");
  EXPECT_EQ(verify(step), Lines{});
}

TEST_F(Step, ATensorLongerThanABlockIsStoredInBlocksOfAtMost64MiB) {
  std::string content(static_cast<size_t>(kBlockBytes) + 6, 'x');
  content.back() = 'y';
  Manifest manifest;
  manifest.state.step = 1;
  const int64_t elements = static_cast<int64_t>(content.size()) / 2;
  write_step(folder_, manifest,
             {{.name = "long",
               .file = "weights-final.safetensors",
               .dtype = DType::kFloat16,
               .shape = {elements},
               .data = content.data()}},
             {});
  StepReader reader(folder_ / "step_00000001");
  const StoredTensor& tensor = reader.manifest().tensors[0];
  ASSERT_EQ(tensor.blocks.size(), 2u);
  EXPECT_EQ(tensor.blocks[0].bytes, int64_t{64} << 20);
  EXPECT_EQ(tensor.blocks[1].bytes, 6);
  EXPECT_TRUE(read_tensor(reader, "long") == content);
}

// Pieces and places that are no multiples of a device's blocks, told before and after files are open.
TEST_F(Step, PastTheCacheTheSameBytesAreRead) {
  std::vector<std::string> contents(3);
  const size_t sizes[] = {6, (size_t{9} << 20) + 26, 4096};
  std::mt19937 random(20261127);
  Manifest manifest;
  manifest.state.step = 1;
  std::vector<TensorData> tensors;
  for (size_t i = 0; i < contents.size(); ++i) {
    while (contents[i].size() < sizes[i]) contents[i] += static_cast<char>(random());
    tensors.push_back({.name = concat("t", i),
                       .file = "weights-final.safetensors",
                       .dtype = DType::kFloat16,
                       .shape = {static_cast<int64_t>(sizes[i]) / 2},
                       .data = contents[i].data()});
  }
  write_step(folder_, manifest, tensors, {});
  StepReader before(folder_ / "step_00000001"), after(folder_ / "step_00000001");
  before.use_cache(PageCache::kAvoided);
  EXPECT_TRUE(read_tensor(after, "t2") == contents[2]);
  after.use_cache(PageCache::kAsItIs);
  for (size_t i = 0; i < contents.size(); ++i)
    for (StepReader* const reader : {&before, &after})
      EXPECT_TRUE(read_tensor(*reader, concat("t", i)) == contents[i]) << i;
  flip_bit(folder_ / "step_00000001" / "weights-final.safetensors", int64_t{9} << 20, 3);
  EXPECT_NE(error_of([&] { read_tensor(before, "t1"); }).find("tensor 't1', block 1 of 1"), std::string::npos);
  EXPECT_TRUE(read_tensor(before, "t2") == contents[2]);
}

// In every file of the folder one bit of each byte near its beginning and its end, where lengths, names and checksums
// are, and of every fifth byte between; with ESPALIER_TEST_ALL every bit.
TEST_F(Step, AFlippedBitAnywhereIsFoundByVerifyAndByReading) {
  SmallCheckpoint small;
  small.save(folder_, 1);
  const fs::path step = folder_ / "step_00000001";
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(step))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 5u);  // manifest, two of weights, one of optimizer state, the tokenizer
  const bool all = espalier::test::long_version();
  constexpr int64_t kEnd = 100;
  int64_t num_flipped = 0;
  for (const fs::path& file : files) {
    const auto size = static_cast<int64_t>(fs::file_size(file));
    for (int64_t at = 0; at < (all ? 8 : 1) * size; ++at) {
      const int64_t byte = at % size;
      if (!all && byte >= kEnd && byte < size - kEnd && byte % 5 != 0) continue;
      const int bit = static_cast<int>((at + at / size) % 8);
      ++num_flipped;
      flip_bit(file, byte, bit);
      const Lines found = verify(step);
      ASSERT_FALSE(found.empty()) << file << " byte " << byte << " bit " << bit;
      ASSERT_NE(found[0].find(file.filename().string()), std::string::npos) << found[0];
      const std::string error = error_of([&] {
        StepReader reader(step);
        for (const TensorData& tensor : small.tensors()) read_tensor(reader, tensor.name);
        reader.check_files({weights_file("final")});
        reader.read_extra_file("tokenizer/vocab.json");
      });
      ASSERT_NE(error, "no error") << file << " byte " << byte << " bit " << bit;
      flip_bit(file, byte, bit);
    }
  }
  EXPECT_EQ(verify(step), Lines{});
  RecordProperty("flipped", static_cast<int>(num_flipped));
  std::printf("%ld bits were flipped\n", num_flipped);
}

TEST_F(Step, ADamagedBlockIsReportedWithTensorFileBlockAndBothChecksums) {
  SmallCheckpoint small;
  small.save(folder_, 1);
  const fs::path file = folder_ / "step_00000001" / weights_file("00000");
  const int64_t begin = SafetensorsFile(file).data_offset();
  flip_bit(file, begin + int64_t{33} * 7 * 2, 0);  // first byte of the bias
  StepReader reader(folder_ / "step_00000001");
  std::string damaged = small.bytes(1);
  const uint64_t expected = hash64(damaged);
  damaged[0] ^= 1;
  const std::string message =
      concat(file.string(), ": tensor 'layers.0.mlp.bias', block 1 of 1 (bytes ", begin + 462, " to ", begin + 476,
             " of the file): expected checksum ", hex64(expected), ", found ", hex64(hash64(damaged)));
  EXPECT_EQ(error_of([&] { read_tensor(reader, "layers.0.mlp.bias"); }), message);
  EXPECT_EQ(verify(folder_ / "step_00000001"), Lines{message});
}

TEST_F(Step, MissingShortAndLongFilesAreReportedTogetherByName) {
  SmallCheckpoint().save(folder_, 1);
  const fs::path step = folder_ / "step_00000001";
  fs::remove(step / optimizer_file("00000"));
  const auto size = static_cast<int64_t>(fs::file_size(step / weights_file("00000")));
  fs::resize_file(step / weights_file("00000"), static_cast<uintmax_t>(size - 1));
  fs::resize_file(step / "tokenizer/vocab.json", 9);
  const Lines found = verify(step);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], concat((step / weights_file("00000")).string(), ": expected ", size, " bytes, found ", size - 1,
                             "; it is cut off"));
  EXPECT_EQ(found[1], (step / optimizer_file("00000")).string() +
                          ": expected by manifest.json, cannot be opened: No such file or directory");
  EXPECT_EQ(found[2], (step / "tokenizer/vocab.json").string() + ": expected 8 bytes, found 9; it is too long");
}

TEST_F(Step, ACopyOfTheWeightsAloneServesReadingAndVerifiesAsSuch) {
  SmallCheckpoint small;
  small.save(folder_, 1);
  const fs::path step = folder_ / "step_00000001";
  fs::remove(step / optimizer_file("00000"));
  StepReader reader(step);
  EXPECT_EQ(read_tensor(reader, "layers.0.mlp.weight"), small.bytes(0));
  EXPECT_EQ(verify_step(step, 1, /*weights_only=*/true), Lines{});
}

TEST_F(Step, AnExistingStepIsNeverRewritten) {
  SmallCheckpoint(1).save(folder_, 5);
  const std::string before = read_file(folder_ / "step_00000005" / weights_file("00000"));
  EXPECT_EQ(error_of([&] { SmallCheckpoint(2).save(folder_, 5); }),
            concat("'", (folder_ / "step_00000005").string(),
                   "' already exists, and a checkpoint is never rewritten. Continue that run with --load ",
                   folder_.string(), ", or use another --save."));
  EXPECT_EQ(read_file(folder_ / "step_00000005" / weights_file("00000")), before);
}

TEST_F(Step, APartialFolderOfAnEarlierAttemptIsReplaced) {
  fs::create_directories(folder_ / "step_00000001.partial");
  write_text(folder_ / "step_00000001.partial" / "weights-old.safetensors", "rubbish");
  SmallCheckpoint().save(folder_, 1);
  EXPECT_FALSE(fs::exists(folder_ / "step_00000001.partial"));
  EXPECT_FALSE(fs::exists(folder_ / "step_00000001" / "weights-old.safetensors"));
}

// A file-size limit simulates a disk that fills up in the middle: the write fails with a reason of the system.
TEST_F(Step, AWriteThatFailsNamesPathAndReasonRemovesThePartAndLeavesOlderOnes) {
  SmallCheckpoint().save(folder_, 1);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {16384, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of([&] { SmallCheckpoint(2, /*rows=*/1000).save(folder_, 2); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(message, concat("checkpoint '", (folder_ / "step_00000002").string(), "' was not saved: cannot write '",
                            (folder_ / "step_00000002.partial" / optimizer_file("00000")).string(),
                            "': File too large. Checkpoints saved earlier are untouched."));
  EXPECT_FALSE(fs::exists(folder_ / "step_00000002.partial"));
  EXPECT_EQ(verify(folder_ / "step_00000001"), Lines{});
}

// Every place where the disk may lose a bit of what is written to it.
TEST_F(Step, WhatDoesNotReadBackIsNotSaved) {
  const test::SystemCallsScope scope;
  SmallCheckpoint().save(folder_, 1);
  std::atomic<int64_t> num_writes = 0;  // several threads write
  test::system_calls().on_write = [&](const std::string&, int64_t, int64_t) { return ++num_writes, false; };
  SmallCheckpoint(2, /*rows=*/3000).save(folder_, 2);
  ASSERT_GE(num_writes, 7) << "three tensor files of more than a page, the tokenizer, the manifest";
  for (int64_t lost = 1; lost <= num_writes; ++lost) {
    std::atomic<int64_t> number = 0;
    std::string file;
    test::system_calls().on_write = [&](const std::string& path, int64_t, int64_t) {
      const bool is_lost = ++number == lost;
      if (is_lost) file = path;
      return is_lost;
    };
    const std::string error = error_of([&] { SmallCheckpoint(3, /*rows=*/3000).save(folder_, 3); });
    EXPECT_NE(error.find("was not saved: '" + file + "' does not hold what was written to it: "), std::string::npos)
        << error;
    EXPECT_NE(error.find("Checkpoints saved earlier are untouched."), std::string::npos);
    EXPECT_FALSE(fs::exists(folder_ / "step_00000003"));
    EXPECT_FALSE(fs::exists(folder_ / "step_00000003.partial"));
  }
  EXPECT_EQ(verify(folder_ / "step_00000001"), Lines{});
}

TEST_F(Step, ReadingBackCanBeLeftOut) {
  const test::SystemCallsScope scope;
  std::atomic<bool> lied = false;
  test::system_calls().on_write = [&](const std::string& path, int64_t, int64_t) {
    return path.ends_with(weights_file("final")) && !lied.exchange(true);
  };
  const uint16_t value = 3;
  StepContent content;
  content.manifest.state.step = 1;
  content.tensors = {{"w", weights_file("final"), DType::kBFloat16, {1}}};
  content.blocks = {{.tensor = 0, .offset = 0, .bytes = 2}};
  content.make = [&](size_t, int64_t, int64_t bytes, void* to) { std::memcpy(to, &value, static_cast<size_t>(bytes)); };
  content.read_back = false;
  begin_step(folder_, 1);
  write_step(folder_, content, {});
  EXPECT_TRUE(lied);
  EXPECT_TRUE(fs::exists(folder_ / "step_00000001"));
}

// The rename has been done: the checkpoint is there, and saying that it is not would cause a useless second save.
TEST_F(Step, AFolderThatCannotBeSyncedAfterTheRenameHoldsTheCheckpoint) {
  const test::SystemCallsScope scope;
  test::system_calls().failing_fsync = folder_;
  testing::internal::CaptureStderr();
  SmallCheckpoint().save(folder_, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("warning: checkpoint '" + (folder_ / "step_00000001").string() +
                      "' is saved and complete, but cannot sync '" + folder_.string() + "': Input/output error"),
            std::string::npos)
      << said;
  EXPECT_EQ(verify(folder_ / "step_00000001"), Lines{});
  test::system_calls().failing_fsync = folder_ / "step_00000002.partial";
  EXPECT_EQ(error_of([&] { SmallCheckpoint().save(folder_, 2); }),
            concat("checkpoint '", (folder_ / "step_00000002").string(), "' was not saved: cannot sync '",
                   (folder_ / "step_00000002.partial").string(),
                   "': Input/output error. Checkpoints saved earlier are untouched."));
  EXPECT_FALSE(fs::exists(folder_ / "step_00000002"));
}

// A kill has left most of a checkpoint on a disk that has room for two.
TEST_F(Step, TheRoomOfAnInterruptedSaveCountsAsFree) {
  const test::SystemCallsScope scope;
  SmallCheckpoint().save(folder_, 1);
  fs::create_directories(folder_ / "step_00000002.partial");
  write_text(folder_ / "step_00000002.partial" / "weights-00000.safetensors", std::string(90'000, 'x'));
  test::system_calls().limited_disk = folder_;
  test::system_calls().disk_bytes = 150'000;
  EXPECT_EQ(error_of([&] { begin_step(folder_, 2, 100'000); }), "no error");
  EXPECT_NE(error_of([&] { begin_step(folder_, 2, 150'000); }).find("it needs 150,000 bytes"), std::string::npos);
}

TEST_F(Step, AFolderUnderTheNumberOfAnotherStepIsRefused) {
  SmallCheckpoint().save(folder_, 7);
  for (const char* name : {"step_00000008", "step_00000008.superseded", "step_00000008/"}) {
    fs::rename(folder_ / "step_00000007", folder_ / std::string(name).substr(0, std::string(name).find('/')));
    const std::string path = (folder_ / name).string();
    EXPECT_EQ(error_of([&] { StepReader reader(path); }),
              concat("'", path,
                     "' is named as step 8, and its manifest.json belongs to step 7: it was renamed, or files of two "
                     "checkpoints are mixed. If they belong to one, its name is step_00000007"));
    EXPECT_EQ(verify(path).size(), 1u);
    fs::rename(folder_ / std::string(name).substr(0, std::string(name).find('/')), folder_ / "step_00000007");
  }
  for (const char* name : {"copy", "step_00000007.superseded.2", "best"}) {
    fs::rename(folder_ / "step_00000007", folder_ / name);
    EXPECT_EQ(verify(folder_ / name), Lines{}) << "a name of one's own says no step";
    fs::rename(folder_ / name, folder_ / "step_00000007");
  }
}

TEST_F(Step, AFifoInPlaceOfAFileIsRefusedByName) {
  SmallCheckpoint().save(folder_, 1);
  const fs::path step = folder_ / "step_00000001";
  for (const std::string& name :
       {weights_file("final"), std::string("tokenizer/vocab.json"), std::string(kManifestName)}) {
    fs::rename(step / name, folder_ / "kept");
    ASSERT_EQ(::mkfifo((step / name).c_str(), 0600), 0);
    const Lines found = verify(step);
    ASSERT_EQ(found.size(), 1u) << name;
    EXPECT_NE(found[0].find((step / name).string()), std::string::npos) << found[0];
    EXPECT_NE(found[0].find("a pipe (FIFO)"), std::string::npos) << found[0];
    fs::remove(step / name);
    fs::rename(folder_ / "kept", step / name);
  }
}

TEST_F(Step, ADamagedTokenizerIsFoundAndAMissingOneIsNot) {
  SmallCheckpoint().save(folder_, 1);
  const fs::path file = folder_ / "step_00000001" / "tokenizer/vocab.json";
  const StepReader reader(folder_ / "step_00000001");
  EXPECT_EQ(error_of([&] { reader.check_extra_files("tokenizer/"); }), "no error");
  flip_bit(file, 3, 0);
  EXPECT_NE(error_of([&] {
              reader.check_extra_files("tokenizer/");
            }).find(file.string() + ": expected 8 bytes with checksum "),
            std::string::npos);
  EXPECT_EQ(error_of([&] { reader.check_extra_files("huggingface/"); }), "no error");
  write_text(file, "{\"a\": 0}\n");
  EXPECT_EQ(error_of([&] { reader.check_extra_files("tokenizer/"); }), file.string() + ": expected 8 bytes, found 9");
  fs::remove(file);
  EXPECT_EQ(error_of([&] { reader.check_extra_files("tokenizer/"); }), "no error") << "a copy may leave it out";
}

TEST_F(Step, AFullDiskIsNoticedBeforeWritingAndWhileWriting) {
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs here: " << std::strerror(errno);
  SmallCheckpoint().save(folder_, 1);
  const std::string before_writing = error_of([&] { check_free_space(folder_, int64_t{1} << 20, 2); });
  const std::string while_writing = error_of([&] { SmallCheckpoint(2, /*rows=*/5000).save(folder_, 2); });
  const RunListing listing = list_steps(folder_);
  const Lines found = verify(folder_ / "step_00000001");
  ::umount2(folder_.c_str(), MNT_DETACH);

  EXPECT_NE(before_writing.find("no room for checkpoint step_00000002 in '" + folder_.string() +
                                "': it needs 1,048,576 bytes (1.00 MiB), "),
            std::string::npos)
      << before_writing;
  EXPECT_NE(before_writing.find("Remove old ones with 'espalier checkpoint prune " + folder_.string()),
            std::string::npos)
      << before_writing;
  EXPECT_NE(while_writing.find("No space left on device. Checkpoints saved earlier are untouched."), std::string::npos)
      << while_writing;
  EXPECT_EQ(listing.complete.size(), 1u);
  EXPECT_EQ(listing.partial.size(), 0u);
  EXPECT_EQ(found, Lines{});
}

// Saves one checkpoint after another from `first` on, until it is killed.
[[noreturn]] void save_for_ever(const fs::path& folder, int64_t first) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when the test itself is killed
  for (int64_t step = first;; ++step) SmallCheckpoint(static_cast<uint32_t>(step), /*rows=*/3000).save(folder, step);
}

// Lets a child save for `microseconds`, then kills it.
void kill_while_saving(const fs::path& folder, int64_t first, int64_t microseconds) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) save_for_ever(folder, first);
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
}

TEST_F(Step, KilledAtAnyMomentEveryCompleteCheckpointIsWholeAndTheNextAttemptGoesOn) {
  const auto start = std::chrono::steady_clock::now();
  SmallCheckpoint(1, /*rows=*/3000).save(folder_, 1);
  const int64_t save_microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
  std::mt19937_64 random(7);
  int64_t newest = 1, num_partial = 0, longest = 3 * save_microseconds;
  // Until enough kills came in the middle of a save, and enough saves were completed. However busy the machine,
  // about as many do one as the other: a killed save gives the next one more time, a whole one less.
  for (int round = 0; round < 300 && (round < 20 || num_partial < 10 || newest < 10); ++round) {
    kill_while_saving(folder_, newest + 1, static_cast<int64_t>(random() % static_cast<uint64_t>(longest)));
    const RunListing listing = list_steps(folder_);
    num_partial += static_cast<int64_t>(listing.partial.size());
    ASSERT_FALSE(listing.complete.empty());
    ASSERT_GE(listing.complete.back().step, newest);
    longest = listing.complete.back().step == newest ? longest * 5 / 4 : std::max(save_microseconds, longest * 4 / 5);
    newest = listing.complete.back().step;
    for (const StepEntry& entry : listing.complete) EXPECT_EQ(verify(entry.folder), Lines{}) << entry.folder;
    SmallCheckpoint expected(static_cast<uint32_t>(newest), 3000);
    StepReader reader(listing.complete.back().folder);
    EXPECT_TRUE(read_tensor(reader, "layers.0.mlp.weight.exp_avg") == expected.bytes(5)) << newest;
    for (const StepEntry& entry : listing.complete)
      if (entry.step < newest) fs::remove_all(entry.folder);
  }
  EXPECT_GE(num_partial, 10) << "too few kills came in the middle of a save; the test proves little";
  EXPECT_GE(newest, 10) << "too few saves came to their end";
}

}  // namespace
}  // namespace espalier::store
