// What samples of BERT, T5 and packed pairs are made of, against arrays that upstream's own code made
// (tests/oracle/megatron_data_oracle.py) and the token files.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "base/format.h"
#include "data/internal/test_folder.h"
#include "data/packed_dataset.h"
#include "data/sample_pieces.h"
#include "data/sentence_case_test.h"
#include "tests/support/npy.h"

namespace espalier::data {
namespace traced_samples_test {

using Ids = std::vector<int64_t>;
using Json = nlohmann::json;
using test_files::TestFolder;
namespace fs = std::filesystem;

std::vector<fs::path> cases_of(const std::string& kind) {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator("tests/data/megatron-oracle/fresh_data"))
    if (Json::parse(read_file(entry.path() / "case.json"))["kind"] == kind) folders.push_back(entry.path());
  return folders;
}

Ids array(const fs::path& folder, const std::string& name) {
  return test::read_npy(folder / (name + ".npy")).as<int64_t>();
}

// Of a row of such an array, of the first samples.
Ids row_of(const fs::path& folder, const std::string& name, int64_t number) {
  const test::Npy npy = test::read_npy(folder / (name + ".npy"));
  const Ids all = npy.as<int64_t>();
  const auto length = static_cast<int64_t>(all.size()) / npy.shape[0];
  return {all.begin() + number * length, all.begin() + (number + 1) * length};
}

int64_t num_rows_of(const fs::path& folder, const std::string& name) {
  return test::read_npy(folder / (name + ".npy")).shape[0];
}

std::unique_ptr<const SentenceDataset> open_sentences(const fs::path& folder, const Json& one) {
  const test::SentenceCase of = test::sentence_case(folder, one);
  return SentenceDataSets::open_train(of.sets, of.samples);
}

// What upstream masked in a sample of BERT, put back; without padding.
Ids unmasked_bert(const fs::path& folder, int64_t number) {
  Ids text = row_of(folder, "text", number);
  const Ids labels = row_of(folder, "labels", number), used = row_of(folder, "padding_mask", number);
  for (size_t at = 0; at < text.size(); ++at)
    if (labels[at] >= 0) text[at] = labels[at];
  text.resize(static_cast<size_t>(std::count(used.begin(), used.end(), 1)));
  return text;
}

// Upstream's encoder text with the runs of its decoder in the places of their sentinels.
Ids whole_t5(const fs::path& folder, int64_t number, const Json& vocabulary) {
  const std::vector<int64_t> sentinels = vocabulary["sentinels"];
  const auto is_sentinel = [&](int64_t id) {
    return std::find(sentinels.begin(), sentinels.end(), id) != sentinels.end();
  };
  const Ids decoder = row_of(folder, "text_dec", number);
  Ids text;
  for (const int64_t id : row_of(folder, "text_enc", number)) {
    if (id == vocabulary["pad"]) break;
    if (!is_sentinel(id)) {
      text.push_back(id);
      continue;
    }
    for (auto next = std::find(decoder.begin(), decoder.end(), id) + 1;
         next != decoder.end() && *next != vocabulary["pad"] && !is_sentinel(*next); ++next)
      text.push_back(*next);
  }
  return text;
}

// The tokens of the pieces in their places, -1 where none is; each piece is of the sentences begin to end - 1.
Ids tokens_of(const std::vector<SamplePiece>& pieces, int64_t begin, int64_t end, size_t size) {
  Ids ids(size, -1);
  for (const SamplePiece& piece : pieces) {
    EXPECT_TRUE(begin <= piece.sequence && piece.sequence < end) << piece.sequence;
    EXPECT_GT(piece.length, 0);
    EXPECT_LE(static_cast<size_t>(piece.at + piece.length), size);
    Ids tokens(static_cast<size_t>(piece.length));
    piece.store->read(piece.sequence, piece.offset, piece.length, tokens.data());
    for (size_t at = 0; at < tokens.size() && static_cast<size_t>(piece.at) + at < size; ++at) {
      int64_t& id = ids[static_cast<size_t>(piece.at) + at];
      EXPECT_EQ(id, -1) << "two pieces at " << piece.at;
      id = tokens[at];
    }
  }
  return ids;
}

TEST(TracedSamples, PiecesOfSentencesAreTheTextThatUpstreamMade) {
  int64_t num_samples = 0, num_pieces = 0, num_cut = 0;
  for (const fs::path& folder : cases_of("sentences")) {
    const Json one = Json::parse(read_file(folder / "case.json"));
    const bool is_t5 = one["model"] == "t5";
    const auto dataset = open_sentences(folder, one);
    EXPECT_EQ(dataset->shows_places(), !is_t5);
    const Ids map = array(folder, "mapping");
    for (int64_t number = 0; number < num_rows_of(folder, is_t5 ? "text_enc" : "text"); ++number) {
      const std::vector<SamplePiece> pieces = dataset->pieces(number);
      Ids text = is_t5 ? whole_t5(folder, number, one["vocabulary"]) : unmasked_bert(folder, number);
      const int64_t size = is_t5 ? pieces.back().at + pieces.back().length : static_cast<int64_t>(text.size());
      Ids found = tokens_of(pieces, map[static_cast<size_t>(3 * number)], map[static_cast<size_t>(3 * number) + 1],
                            static_cast<size_t>(size));
      // These texts of any ids hold T5's CLS and SEP, which upstream loses where they are inside of a run.
      const auto erase_specials = [&](Ids& ids) {
        for (const char* special : {"cls", "sep"}) std::erase(ids, one["vocabulary"][special].get<int64_t>());
      };
      if (is_t5) erase_specials(found), erase_specials(text);
      // What is of no document: [CLS] first, and a [SEP] after each half.
      int64_t num_others = 0;
      for (size_t at = 0; at < found.size(); ++at)
        if (found[at] < 0) {
          found[at] = one["vocabulary"][at == 0 ? "cls" : "sep"];
          ++num_others;
        }
      EXPECT_EQ(found, text) << folder << " sample " << number;
      EXPECT_LE(num_others, is_t5 ? 0 : 3) << folder << " sample " << number;
      EXPECT_EQ(num_others == 3, one["binary_head"].get<bool>()) << folder << " sample " << number;
      for (const SamplePiece& piece : pieces) num_cut += piece.length < piece.store->size(piece.sequence);
      num_pieces += static_cast<int64_t>(pieces.size());
      ++num_samples;
    }
  }
  EXPECT_GT(num_samples, 40);
  EXPECT_GT(num_pieces, 100);
  EXPECT_GT(num_cut, 5);
}

// By a loop over upstream's map: the samples whose rows hold sentences of the document, as far as these were not cut
// off, which the test above has compared.
TEST(TracedSamples, ADocumentOfSentencesIsFoundInEachOfItsSamples) {
  for (const fs::path& folder : cases_of("sentences")) {
    const auto dataset = open_sentences(folder, Json::parse(read_file(folder / "case.json")));
    const std::vector<TracedFile> files = dataset->traced_files();
    ASSERT_EQ(files.size(), 1u);
    const TokenStore& store = *files[0].store;
    EXPECT_EQ(files[0].sequences, (DocumentRange{0, store.num_sequences()}));
    const Ids map = array(folder, "mapping");
    for (int64_t document = 0; document < store.num_documents(); ++document) {
      const DocumentRange sequences{store.first_sequence(document), store.first_sequence(document + 1)};
      std::vector<std::pair<int64_t, SamplePiece>> expected, found;
      for (int64_t number = 0; 3 * number < static_cast<int64_t>(map.size()); ++number) {
        const int64_t begin = map[static_cast<size_t>(3 * number)];
        if (begin < sequences.begin || begin >= sequences.end) continue;  // rows are of one document
        for (const SamplePiece& piece : dataset->pieces(number)) expected.emplace_back(number, piece);
      }
      for (const FoundPiece& one : dataset->find(files[0], sequences)) found.emplace_back(one.number, one.piece);
      EXPECT_TRUE(found == expected) << folder << " document " << document;
    }
  }
}

TEST(TracedSamples, PairsAreWhereUpstreamLaidThem) {
  int64_t num_pieces = 0;
  for (const fs::path& folder : cases_of("packed")) {
    const Json one = Json::parse(read_file(folder / "case.json"));
    const std::string prefix = (folder / "p3").string();
    const TokenStore inputs(prefix + kInputsEnding), targets(prefix + kTargetsEnding);
    DataSetOptions options;
    options.train_weighted_split_paths = {
        concat("train: 1 0:", format_shortest(one["end"].get<double>() / static_cast<double>(inputs.num_sequences())),
               " ", prefix)};
    options.sequence_length = one["sequence_length"];
    options.train_samples = one["num_samples"];
    options.seed = one["seed"];
    options.endings = {kInputsEnding, kTargetsEnding};
    const auto dataset = PackedDataSets::open_train(options, one["pad_id"]);
    const Ids rows = array(folder, "rows"), order = array(folder, "order");
    std::map<std::pair<std::string, int64_t>, std::vector<Ids>> seen;  // file and pair: sample, at, length
    for (int64_t row = 0; 2 * row < static_cast<int64_t>(rows.size()); ++row) {
      std::vector<Ids> expected, found;  // is a target, pair, offset, length, at
      int64_t at = 0;
      for (int64_t place = rows[static_cast<size_t>(2 * row)]; place < rows[static_cast<size_t>(2 * row) + 1];
           ++place) {
        const int64_t pair = order[static_cast<size_t>(place)];
        for (const TokenStore* store : {&inputs, &targets}) {
          expected.push_back({store == &targets, pair, 0, store->size(pair), at});
          seen[{store->prefix(), pair}].push_back({row, at, store->size(pair)});
          at += store->size(pair);
        }
      }
      for (const SamplePiece& piece : dataset->pieces(row))
        found.push_back(
            {piece.store->prefix() == targets.prefix(), piece.sequence, piece.offset, piece.length, piece.at});
      EXPECT_EQ(found, expected) << folder << " row " << row;
      num_pieces += static_cast<int64_t>(found.size());
    }
    ASSERT_EQ(dataset->traced_files().size(), 2u);
    for (const TracedFile& file : dataset->traced_files()) {
      EXPECT_EQ(file.data_set, prefix);
      for (int64_t pair = 0; pair < inputs.num_sequences(); ++pair) {
        std::vector<Ids> found;
        for (const FoundPiece& piece : dataset->find(file, {pair, pair + 1}))
          found.push_back({piece.number, piece.piece.at, piece.piece.length});
        EXPECT_EQ(found, (seen[{file.store->prefix(), pair}])) << folder << " pair " << pair;
      }
    }
  }
  EXPECT_GT(num_pieces, 100);
}

// In a blend samples have other numbers than in their own map; a loop over all samples says which.
TEST(TracedSamples, InABlendEachSourceIsFoundByTheNumbersOfTheBlend) {
  const TestFolder folder;
  std::mt19937 random(5);
  std::vector<std::string> blend;
  for (const int num_documents : {11, 4}) {
    blend.insert(blend.end(), {num_documents == 11 ? "0.6" : "0.4", folder / concat("set", num_documents)});
    TokenStoreWriter writer(blend.back(), TokenType::kUint16);
    for (int document = 0; document < num_documents; ++document) {
      for (unsigned sentence = 0; sentence < 2 + random() % 5; ++sentence)
        writer.add_sequence(std::vector<int32_t>(1 + random() % 9, 7));
      writer.end_document();
    }
    writer.finish();
  }
  DataSetOptions options;
  options.data_path = blend;
  options.split = "100,0,0";
  options.sequence_length = 16;
  options.train_samples = 70;
  SentenceVocabulary vocabulary{.size = 9, .cls = 1, .sep = 2, .mask = 3, .pad = 0};
  vocabulary.continues_word.resize(9);
  const auto dataset =
      SentenceDataSets::open_train(options, {.sequence_length = 16, .vocabulary = std::move(vocabulary)});
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, SamplePiece>>> expected;  // source, document
  Sample sample;
  for (int64_t number = 0; number < dataset->size(); ++number) {
    dataset->read(number, sample);
    EXPECT_EQ(dataset->source_of(number), sample.source);
    for (const SamplePiece& piece : dataset->pieces(number))
      expected[{sample.source, document_of(*piece.store, piece.sequence)}].emplace_back(number, piece);
  }
  int64_t num_found = 0;
  for (const TracedFile& file : dataset->traced_files())
    for (int64_t document = 0; document < file.store->num_documents(); ++document) {
      std::vector<std::pair<int64_t, SamplePiece>> found;
      for (const FoundPiece& one :
           dataset->find(file, {file.store->first_sequence(document), file.store->first_sequence(document + 1)}))
        found.emplace_back(one.number, one.piece);
      EXPECT_TRUE(found == (expected[{file.source, document}])) << file.source << " " << document;
      num_found += static_cast<int64_t>(found.size());
    }
  EXPECT_GT(num_found, 140);
}

}  // namespace traced_samples_test
}  // namespace espalier::data
