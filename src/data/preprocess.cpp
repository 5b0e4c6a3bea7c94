#include "data/preprocess.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>

#include "base/format.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "base/version.h"
#include "data/input_check.h"
#include "data/sentence_map.h"
#include "data/store_metadata.h"
#include "data/token_store.h"
#include "text/sentence_splitter.h"

namespace espalier::data {
namespace {

constexpr int64_t kBlocksPerWorker = 8;  // read ahead, so that a slow block does not stop the others

// The texts of one key in one block, tokenized.
struct EncodedTexts {
  std::vector<int32_t> ids;
  std::vector<int64_t> ends;            // of each sequence in `ids`
  std::vector<size_t> document_ends;    // in `ends`
  int64_t num_empty = 0, num_long = 0;  // as in KeySummary
};

// All of one block. Lines count from 0 at the block's first record.
struct EncodedBlock {
  size_t file = 0;
  int64_t first_byte = 0, input_bytes = 0, record_bytes = 0;
  int64_t num_records = 0;
  std::vector<EncodedTexts> keys;
  MalformedTally malformed;
  int64_t num_replaced_bytes = 0, num_replaced_surrogates = 0;
};

// What one thread needs to turn blocks into ids; reused from block to block, with its caches.
class BlockEncoder {
 public:
  BlockEncoder(const PreprocessOptions& options, const text::Tokenizer& tokenizer)
      : record_(options.json_keys, options.replace_lone_surrogates),
        encoder_(tokenizer.new_encoder()),
        num_keys_(options.json_keys.size()),
        splits_(options.split_sentences),
        prepends_space_(options.prepend_space),
        blanks_(options.keep_newlines ? text::SentenceBlanks::kKept : text::SentenceBlanks::kDropped) {
    if (options.append_eod) last_id_ = tokenizer.eod();
    if (options.append_bos) last_id_ = tokenizer.named_ids().bos;
  }

  EncodedBlock encode(const RecordBlock& block) {
    EncodedBlock result;
    result.file = block.file;
    result.first_byte = block.first_byte;
    result.input_bytes = block.input_bytes;
    result.record_bytes = static_cast<int64_t>(block.bytes.size()) + block.skipped_bytes;
    result.keys.resize(num_keys_);
    const int64_t bytes_before = encoder_->num_replaced(), surrogates_before = record_.num_replaced();
    RecordCursor cursor(block.bytes);
    std::string_view record;
    while (cursor.next(record)) {
      if (record_.parse(record))
        encode_texts(result);
      else
        result.malformed.add(malformed_record(record, record_.problem(), block.file, cursor.count() - 1));
    }
    result.num_records = cursor.count();
    if (block.skipped_bytes > 0) {
      result.num_records = 1;
      result.malformed.add(oversized_record(block, 0));
    }
    result.num_replaced_bytes = encoder_->num_replaced() - bytes_before;
    result.num_replaced_surrogates = record_.num_replaced() - surrogates_before;
    return result;
  }

 private:
  void encode_texts(EncodedBlock& result) {
    for (size_t key = 0; key < num_keys_; ++key) {
      std::string_view text = record_.text(key);
      if (prepends_space_) text = spaced_.assign(" ").append(text);
      if (splits_)
        text::split_sentences(text, blanks_, sentences_);
      else
        sentences_ = {text};
      encode_document(result.keys[key]);
    }
  }

  // A sentence without a token is left out, and a document without such a sentence.
  void encode_document(EncodedTexts& texts) {
    const size_t sequences_before = texts.ends.size();
    int64_t longest = 0;
    for (const std::string_view sentence : sentences_) {
      const size_t before = texts.ids.size();
      encoder_->encode(sentence, texts.ids);
      if (texts.ids.size() == before) continue;
      texts.ends.push_back(static_cast<int64_t>(texts.ids.size()));
      longest = std::max(longest, static_cast<int64_t>(texts.ids.size() - before));
    }
    const size_t num_sequences = texts.ends.size() - sequences_before;
    if (num_sequences == 0) {
      ++texts.num_empty;
      return;
    }
    if (last_id_) {
      texts.ids.push_back(*last_id_);
      ++texts.ends.back();
    }
    texts.num_long += num_sequences > 1 && longest > kLongSentence;
    texts.document_ends.push_back(texts.ends.size());
  }

  JsonRecord record_;
  std::unique_ptr<text::Encoder> encoder_;
  size_t num_keys_;
  bool splits_, prepends_space_;
  text::SentenceBlanks blanks_;
  std::string spaced_;                       // one text
  std::vector<std::string_view> sentences_;  // of it
  std::optional<int32_t> last_id_;
};

// Encoders that no thread is using. The one given back last goes out first: its caches are warm.
class EncoderShelf {
 public:
  EncoderShelf(const PreprocessOptions& options, const text::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  EncodedBlock encode(const RecordBlock& block) {
    std::unique_ptr<BlockEncoder> encoder = take();
    EncodedBlock result = encoder->encode(block);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(encoder));
    return result;
  }

 private:
  std::unique_ptr<BlockEncoder> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<BlockEncoder> encoder = std::move(idle_.back());
        idle_.pop_back();
        return encoder;
      }
    }
    return std::make_unique<BlockEncoder>(options_, tokenizer_);
  }

  const PreprocessOptions& options_;
  const text::Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockEncoder>> idle_;
};

std::string prefix_of(const PreprocessOptions& options, const std::string& key) {
  return options.output_prefix + "_" + key + (options.split_sentences ? "_sentence" : "_document");
}

// What is in the way of the output; empty if nothing is.
std::string describe_existing_output(const PreprocessOptions& options) {
  if (options.overwrite) return "";
  std::vector<std::filesystem::path> files;
  for (const std::string& key : options.json_keys)
    for (const std::filesystem::path& file : files_written_for(prefix_of(options, key))) files.push_back(file);
  const std::string existing = describe_existing(files);
  return existing.empty() ? "" : "--output-prefix " + options.output_prefix + ": " + existing;
}

// Takes the blocks in the order of the input: writes them, numbers the lines, sums up.
class OrderedWriter {
 public:
  OrderedWriter(const PreprocessOptions& options, const text::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {
    for (const std::string& key : options.json_keys) {
      summary_.keys.push_back({.key = key, .prefix = prefix_of(options, key)});
      writers_.push_back(
          std::make_unique<TokenStoreWriter>(summary_.keys.back().prefix, token_type_for(tokenizer.vocab_size())));
    }
    // Again, now that nobody else writes them: another process may have just finished.
    const std::string existing = describe_existing_output(options);
    if (!existing.empty()) throw UserError(existing, ExitCode::kUsage);
  }

  void write(const EncodedBlock& block) {
    number_lines(block);
    for (size_t key = 0; key < writers_.size(); ++key) {
      const EncodedTexts& texts = block.keys[key];
      int64_t begin = 0;
      size_t sequence = 0;
      for (const size_t document_end : texts.document_ends) {
        for (; sequence < document_end; ++sequence) {
          const int64_t end = texts.ends[sequence];
          writers_[key]->add_sequence({texts.ids.data() + begin, static_cast<size_t>(end - begin)});
          begin = end;
        }
        writers_[key]->end_document();
      }
      summary_.keys[key].num_empty += texts.num_empty;
      summary_.keys[key].num_long += texts.num_long;
    }
    summary_.num_records += block.num_records;
    summary_.input_bytes += block.input_bytes;
    summary_.record_bytes += block.record_bytes;
    summary_.num_replaced_bytes += block.num_replaced_bytes;
    summary_.num_replaced_surrogates += block.num_replaced_surrogates;
  }

  int64_t num_records() const { return summary_.num_records; }

  PreprocessSummary finish(double seconds) {
    summary_.seconds = seconds;
    for (size_t key = 0; key < writers_.size(); ++key) {
      summary_.keys[key].num_documents = writers_[key]->num_documents();
      summary_.keys[key].num_sequences = writers_[key]->num_sequences();
      summary_.keys[key].num_tokens = writers_[key]->num_tokens();
    }
    refuse_if_fruitless();
    for (const auto& writer : writers_) writer->prepare();
    const UninterruptedSteps together;
    for (const auto& writer : writers_) writer->finish();
    for (size_t key = 0; key < writers_.size(); ++key) write_metadata(summary_.keys[key].prefix, metadata(key));
    return summary_;
  }

 private:
  StoreMetadata metadata(size_t key) const {
    const TokenStoreWriter& writer = *writers_[key];
    StoreMetadata result{concat("espalier ", kVersion), TokenizerFacts::of(tokenizer_),
                         writer.num_documents(),        writer.num_sequences(),
                         writer.num_tokens(),           {}};
    result.tokenizer->words = options_.tokenizer_words;
    result.options = {{"--input", join(options_.inputs, " ")},
                      {"--json-keys", summary_.keys[key].key},
                      {"--prepend-space", options_.prepend_space ? "true" : "false"},
                      {"--append-eod", options_.append_eod ? "true" : "false"},
                      {"--append-bos", options_.append_bos ? "true" : "false"},
                      {"--split-sentences", options_.split_sentences ? "true" : "false"},
                      {"--keep-newlines", options_.keep_newlines ? "true" : "false"},
                      {"--shard", concat(options_.shard.index, "/", options_.shard.count)},
                      {"records", concat(summary_.num_records)},
                      {"malformed", concat(summary_.malformed.count)},
                      {"empty", concat(summary_.keys[key].num_empty)}};
    return result;
  }

  void number_lines(const EncodedBlock& block) {
    if (summary_.num_records == 0 || block.file != file_) {
      file_ = block.file;
      lines_ = 0;
      // A shard that begins inside a file: its line numbers are counted only if one has to be reported.
      unread_bytes_ = block.first_byte;
    }
    if (block.malformed.count > 0) {
      if (unread_bytes_ > 0) lines_ += count_records(options_.inputs[file_], unread_bytes_);
      unread_bytes_ = 0;
      for (MalformedRecord record : block.malformed.first) {
        record.line += lines_ + 1;
        if (options_.stop_at_malformed)
          throw UserError(concat(describe(record, options_.inputs), ". No token files were written. Fix the line, or ",
                                 "leave such lines out with --on-malformed skip."),
                          ExitCode::kBadData);
        summary_.malformed.add(std::move(record));
      }
      summary_.malformed.count += block.malformed.count - static_cast<int64_t>(block.malformed.first.size());
    }
    lines_ += block.num_records;
  }

  // Of a part nothing may be left, of the whole not.
  void refuse_if_fruitless() const {
    if (options_.shard.count > 1) return;
    int64_t num_documents = 0;
    for (const KeySummary& key : summary_.keys) num_documents += key.num_documents;
    refuse_fruitless_input(
        {options_.inputs, options_.json_keys, summary_.num_records, num_documents, summary_.malformed});
  }

  const PreprocessOptions& options_;
  const text::Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<TokenStoreWriter>> writers_;
  PreprocessSummary summary_;
  size_t file_ = 0;
  int64_t lines_ = 0;         // before the current block, without those in unread_bytes_
  int64_t unread_bytes_ = 0;  // at the head of the file, not read by this shard
};

void show(Progress& progress, const EncodedBlock& block, int64_t num_records) {
  const double seconds = progress.seconds();
  const double rate = seconds > 0 ? static_cast<double>(num_records) / seconds : 0;
  progress.set_note(concat(format_count(num_records), " documents (", format_count(static_cast<int64_t>(rate)), "/s)"));
  progress.advance(block.input_bytes);
}

}  // namespace

void check(const PreprocessOptions& options, const text::Tokenizer* tokenizer, Problems& problems) {
  for (const std::string& input : options.inputs) {
    std::error_code error;
    if (input == "-") continue;
    if (!std::filesystem::exists(input, error))
      problems.add("--input ", input, ": no such file");
    else if (std::filesystem::is_directory(input, error))
      problems.add("--input ", input, " is a folder; name the files in it, for example ", input, "/*.jsonl");
    else if (::access(input.c_str(), R_OK) != 0)
      problems.add("--input ", input, ": no permission to read it");
  }
  if (std::count(options.inputs.begin(), options.inputs.end(), "-") > 1)
    problems.add("--input names standard input (-) more than once");
  std::vector<std::string> keys = options.json_keys;
  std::sort(keys.begin(), keys.end());
  for (size_t at = 1; at < keys.size(); ++at)
    if (keys[at] == keys[at - 1]) problems.add("--json-keys names '", keys[at], "' more than once");
  if (keys.end() == std::adjacent_find(keys.begin(), keys.end()) && !options.output_prefix.empty()) {
    const std::string existing = describe_existing_output(options);
    if (!existing.empty()) problems.add(existing);
  }
  if (options.keep_newlines && !options.split_sentences)
    problems.add("--keep-newlines keeps the line ends between sentences: it needs --split-sentences");
  if (options.append_eod && tokenizer != nullptr && !tokenizer->eod())
    problems.add("--append-eod: ", tokenizer->description(), " has no end-of-document token");
  if (options.append_bos && tokenizer != nullptr && !tokenizer->named_ids().bos)
    problems.add("--append-bos: ", tokenizer->description(), " has no beginning-of-text token");
  if (options.append_eod && options.append_bos)
    problems.add("--append-eod and --append-bos end documents with one token each; give one");
}

PreprocessSummary preprocess(const PreprocessOptions& options, const text::Tokenizer& tokenizer) {
  if (options.split_sentences && tokenizer.encodes_any_text() && !tokenizer.encode("").empty())
    log_warning(tokenizer.description(), " puts special tokens around every sentence, as in Megatron: '",
                tokenizer.decode(tokenizer.encode("")), "'. Samples of BERT and T5 get their own; without a ",
                "post_processor in tokenizer.json, or with BertWordPiece*, sentences have none");
  const std::vector<InputSlice> slices = slices_of_shard(options.inputs, options.shard);
  Progress progress("preprocess", total_bytes(options.inputs, slices), Progress::Unit::kBytes);
  OrderedWriter writer(options, tokenizer);
  RecordReader reader(options.inputs, slices);
  EncoderShelf encoders(options, tokenizer);
  ThreadPool pool(static_cast<int>(options.workers));

  // Bounded by the bytes of the records between reader and writer.
  struct InFlight {
    int64_t bytes;
    std::future<EncodedBlock> result;
  };
  std::deque<InFlight> in_flight;
  int64_t bytes_in_flight = 0;
  const int64_t limit_bytes = options.workers * kBlocksPerWorker * kBlockBytes;
  const auto write_oldest = [&] {
    const EncodedBlock block = in_flight.front().result.get();
    bytes_in_flight -= in_flight.front().bytes;
    in_flight.pop_front();
    writer.write(block);
    show(progress, block, writer.num_records());
  };

  RecordBlock block;
  while (reader.next(block)) {
    if (block.first_byte == 0) refuse_other_formats(block, options.inputs[block.file]);
    const int64_t bytes = static_cast<int64_t>(block.bytes.size());
    while (!in_flight.empty() && bytes_in_flight + bytes > limit_bytes) write_oldest();
    bytes_in_flight += bytes;
    in_flight.push_back({bytes, pool.submit([&encoders, block = std::move(block)] { return encoders.encode(block); })});
  }
  while (!in_flight.empty()) write_oldest();
  const PreprocessSummary summary = writer.finish(progress.seconds());
  progress.finish();
  return summary;
}

}  // namespace espalier::data
