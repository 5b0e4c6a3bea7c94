#include "tests/e2e/run_files.h"

#include <unistd.h>
#include <algorithm>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/format.h"
#include "data/token_store.h"
#include "store/run_folder.h"
#include "store/step_reader.h"

namespace espalier::test {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "espalier_e2e_XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}
TemporaryFolder::~TemporaryFolder() { std::filesystem::remove_all(path_); }

void write_token_files(const std::string& prefix, int num_documents, unsigned seed) {
  std::mt19937 random(seed);
  data::TokenStoreWriter writer(prefix, data::TokenType::kUint16);
  for (int document = 0; document < num_documents; ++document) {
    std::vector<int32_t> ids(3 + random() % 58);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 97 * 51);
    ids.back() = 4999;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

void write_sentence_files(const std::string& prefix, int num_documents, unsigned seed) {
  std::mt19937 random(seed);
  data::TokenStoreWriter writer(prefix, data::TokenType::kUint16);
  for (int document = 0; document < num_documents; ++document) {
    const unsigned num_sentences = 2 + random() % 8;
    for (unsigned sentence = 0; sentence < num_sentences; ++sentence) {
      std::vector<int32_t> ids(3 + random() % 18);
      for (int32_t& id : ids) id = static_cast<int32_t>(5 + random() % 21 * 15);
      writer.add_sequence(ids);
    }
    writer.end_document();
  }
  writer.finish();
}

void write_title_files(const std::string& prefix, int num_documents, unsigned seed) {
  std::mt19937 random(seed);
  data::TokenStoreWriter writer(prefix, data::TokenType::kUint16);
  for (int document = 0; document < num_documents; ++document) {
    std::vector<int32_t> ids(1 + random() % 4);
    for (int32_t& id : ids) id = static_cast<int32_t>(5 + random() % 21 * 15);
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

void write_pair_files(const std::string& prefix, int num_pairs, unsigned seed) {
  std::mt19937 random(seed);
  data::TokenStoreWriter inputs(prefix + "_inputs_document", data::TokenType::kUint16);
  data::TokenStoreWriter targets(prefix + "_targets_document", data::TokenType::kUint16);
  for (int pair = 0; pair < num_pairs; ++pair) {
    std::vector<int32_t> input(1 + random() % 12), target(1 + random() % 8);
    for (int32_t& id : input) id = static_cast<int32_t>(random() % 97 * 51);
    for (int32_t& id : target) id = static_cast<int32_t>(random() % 97 * 51);
    target.back() = 4999;
    inputs.add_sequence(input);
    inputs.end_document();
    targets.add_sequence(target);
    targets.end_document();
  }
  inputs.finish();
  targets.finish();
}

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Words without(const Words& flags, const Words& options) {
  Words kept;
  for (size_t at = 0; at < flags.size(); ++at) {
    if (std::find(options.begin(), options.end(), flags[at]) != options.end())
      ++at;
    else
      kept.push_back(flags[at]);
  }
  return kept;
}

Words tiny_run(const std::string& prefix) {
  return split_blanks(concat(
      "--num-layers 2 --hidden-size 24 --num-attention-heads 3 --seq-length 33 --max-position-embeddings 33"
      " --position-embedding-type alibi --embed-layernorm --micro-batch-size 2 --global-batch-size 8 --train-samples 80"
      " --lr 3e-3 --min-lr 1e-4 --lr-warmup-samples 16 --lr-decay-samples 80 --lr-decay-style cosine --clip-grad 1.0"
      " --tokenizer-type GPT2BPETokenizer --vocab-file tests/data/gpt2-tiny/vocab.json --merge-file "
      "tests/data/gpt2-tiny/merges.txt"
      " --data-path ",
      prefix,
      " --split 90,10,0 --eval-iters 1 --eval-interval 100 --log-interval 5 --seed 7 --log-num-zeros-in-grad"
      " --hidden-dropout 0.1 --attention-dropout 0.1"));
}

namespace {

// Of a BERT or a T5, but for its lengths.
Words tiny_sentence_run(const std::string& prefix) {
  return split_blanks(concat(
      "--num-layers 2 --hidden-size 24 --num-attention-heads 3 --max-position-embeddings 33"
      " --micro-batch-size 2 --global-batch-size 8 --train-samples 80 --lr 3e-3 --min-lr 1e-4 --lr-warmup-samples 16"
      " --lr-decay-samples 80 --lr-decay-style cosine --tokenizer-type BertWordPieceLowerCase --vocab-file "
      "tests/data/megatron_tokenizers/bert_lower/vocab.txt --data-path ",
      prefix,
      " --split 90,10,0 --eval-iters 1 --eval-interval 100 --log-interval 5 --seed 7 --log-num-zeros-in-grad"
      " --hidden-dropout 0.1 --attention-dropout 0.1"));
}

}  // namespace

Words tiny_bert_run(const std::string& prefix) { return tiny_sentence_run(prefix) + Words{"--seq-length", "33"}; }

Words tiny_ict_run(const std::string& prefix) {
  return tiny_bert_run(prefix) + split_blanks(concat("--micro-batch-size 4 --titles-data-path ", prefix, "_titles"));
}

Words tiny_t5_run(const std::string& prefix) {
  return tiny_sentence_run(prefix) +
         split_blanks("--encoder-seq-length 33 --decoder-seq-length 17 --vocab-extra-ids 100");
}

std::vector<nlohmann::json> step_records(const std::string& run_folder) {
  std::vector<nlohmann::json> records;
  std::ifstream file(run_folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // a run in progress has not ended it yet
    nlohmann::json record = nlohmann::json::parse(line);
    if (!record.contains("sample_hash")) continue;
    for (const char* clock : {"step_seconds", "tokens_per_second", "tflops", "hardware_tflops"}) record.erase(clock);
    records.push_back(std::move(record));
  }
  return records;
}

Words different_tensors(const std::string& step_folder_a, const std::string& step_folder_b) {
  store::StepReader a(step_folder_a), b(step_folder_b);
  Words different;
  for (const store::StoredTensor& tensor : a.manifest().tensors) {
    const store::StoredTensor* other = b.manifest().find(tensor.name);
    bool equal = other != nullptr && other->shape == tensor.shape && other->dtype == tensor.dtype &&
                 other->blocks.size() == tensor.blocks.size();
    for (size_t block = 0; equal && block < tensor.blocks.size(); ++block)
      equal = tensor.blocks[block].checksum == other->blocks[block].checksum;
    if (!equal) different.push_back(tensor.name);
  }
  if (a.manifest().tensors.size() != b.manifest().tensors.size()) different.push_back("(number of tensors)");
  return different;
}

std::vector<int64_t> saved_steps(const std::string& run_folder) {
  std::vector<int64_t> steps;
  for (const store::StepEntry& entry : store::list_steps(run_folder).complete) steps.push_back(entry.step);
  return steps;
}

}  // namespace espalier::test
