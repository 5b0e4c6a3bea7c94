#include "data/sentence_vocabulary.h"

#include <string>

#include "base/format.h"
#include "text/finds_in_text.h"

namespace espalier::data {
namespace {

constexpr std::string_view kOpening = "<extra_id_";

std::vector<int32_t> sentinels_of(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  while (const auto id = tokenizer.piece_to_id(concat("<extra_id_", ids.size(), ">"))) ids.push_back(*id);
  return ids;
}

// Written like a sentinel, but with a number that the vocabulary does not have.
void check_sentinel(const text::Tokenizer& tokenizer, std::string_view word) {
  const std::string_view number = word.substr(kOpening.size(), word.size() - kOpening.size() - 1);
  const size_t count = sentinels_of(tokenizer).size();
  if (count == 0 || number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) return;
  throw UserError(concat("the model has no token ", word, ": its last one is ", kOpening, count - 1, ">"),
                  ExitCode::kUsage);
}

}  // namespace

SentenceVocabulary SentenceVocabulary::make(const text::Tokenizer& tokenizer, SentenceModel model, Problems& problems) {
  const text::NamedIds ids = tokenizer.named_ids();
  SentenceVocabulary vocabulary;
  vocabulary.size = tokenizer.vocab_size();
  vocabulary.cls = ids.cls.value_or(kNone);
  vocabulary.sep = ids.sep.value_or(kNone);
  vocabulary.mask = ids.mask.value_or(kNone);
  vocabulary.pad = ids.pad.value_or(kNone);
  vocabulary.bos = ids.bos ? *ids.bos : vocabulary.pad;
  vocabulary.eos = ids.text_end ? *ids.text_end : ids.eos.value_or(kNone);
  vocabulary.sentinels = sentinels_of(tokenizer);
  vocabulary.continues_word.resize(static_cast<size_t>(vocabulary.size));
  for (int64_t id = 0; id < vocabulary.size; ++id)
    vocabulary.continues_word[static_cast<size_t>(id)] =
        tokenizer.id_to_piece(static_cast<int32_t>(id)).starts_with("##");

  std::vector<std::string> missing;
  const auto need = [&](const char* name, int32_t id) {
    if (id == kNone) missing.push_back(name);
  };
  if (model == SentenceModel::kBert) {
    need("CLS", vocabulary.cls);
    need("SEP", vocabulary.sep);
    need("MASK", vocabulary.mask);
    need("PAD", vocabulary.pad);
  } else {
    need("PAD", vocabulary.pad);
    need("EOS", vocabulary.eos);
    if (vocabulary.sentinels.empty())
      problems.add("T5 marks what it leaves out by the tokens <extra_id_0>, <extra_id_1>, ..., but ",
                   tokenizer.description(), " has none. Give --vocab-extra-ids 100 with BertWordPiece*, ",
                   "SentencePieceTokenizer or PretrainedFromHF.");
  }
  if (!missing.empty())
    problems.add(name_of(model), " needs the special tokens ", join(missing, ", "), ", which ", tokenizer.description(),
                 " does not have. Use BertWordPieceLowerCase, BertWordPieceCase, SentencePieceTokenizer, or a ",
                 "PretrainedFromHF whose tokenizer_config.json names them.");
  return vocabulary;
}

std::vector<int32_t> encode_with_sentinels(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  const auto append = [&](std::string_view piece) {
    const std::vector<int32_t> more = tokenizer.encode(piece);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  size_t done = 0;
  for (size_t at = text.find(kOpening); at != std::string_view::npos; at = text.find(kOpening, at + 1)) {
    const size_t end = text.find('>', at);
    if (end == std::string_view::npos) break;
    const std::string_view word = text.substr(at, end + 1 - at);
    const auto sentinel = tokenizer.piece_to_id(word);
    if (!sentinel) check_sentinel(tokenizer, word);
    if (!sentinel || text::finds_in_text(tokenizer, *sentinel)) continue;
    append(text.substr(done, at - done));
    ids.push_back(*sentinel);
    done = end + 1;
  }
  append(text.substr(done));
  return ids;
}

}  // namespace espalier::data
