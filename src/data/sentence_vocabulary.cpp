#include "data/sentence_vocabulary.h"

#include <string>

#include "base/format.h"
#include "text/finds_in_text.h"

namespace espalier::data {
namespace {

std::vector<int32_t> sentinels_of(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  while (const auto id = tokenizer.piece_to_id(concat("<extra_id_", ids.size(), ">"))) ids.push_back(*id);
  return ids;
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
      problems.add("T5 marks what it leaves out by the tokens <extra_id_0>, <extra_id_1>, ..., and ",
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
  static constexpr std::string_view kOpening = "<extra_id_";
  std::vector<int32_t> ids;
  const auto append = [&](std::string_view piece) {
    const std::vector<int32_t> more = tokenizer.encode(piece);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  size_t done = 0;
  for (size_t at = text.find(kOpening); at != std::string_view::npos; at = text.find(kOpening, at + 1)) {
    const size_t end = text.find('>', at);
    if (end == std::string_view::npos) break;
    const auto sentinel = tokenizer.piece_to_id(text.substr(at, end + 1 - at));
    if (!sentinel || text::finds_in_text(tokenizer, *sentinel)) continue;
    append(text.substr(done, at - done));
    ids.push_back(*sentinel);
    done = end + 1;
  }
  append(text.substr(done));
  return ids;
}

}  // namespace espalier::data
