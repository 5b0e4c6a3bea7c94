#include "infer/fill_masks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "models/build.h"
#include "text/finds_in_text.h"

namespace espalier::infer {
namespace {

struct Marker {
  std::string word;
  int32_t id = 0;
};

// A prompt's text between its markers, and which of them comes after each piece but the last.
struct MarkedText {
  std::vector<std::string> pieces;
  std::vector<int32_t> markers;
};

MarkedText split_at(const std::vector<Marker>& markers, const std::string& text) {
  MarkedText result{{""}, {}};
  for (size_t at = 0; at < text.size();) {
    const Marker* found = nullptr;
    for (const Marker& marker : markers)
      if (text.compare(at, marker.word.size(), marker.word) == 0) found = &marker;
    if (found == nullptr) {
      result.pieces.back() += text[at++];
      continue;
    }
    result.markers.push_back(found->id);
    result.pieces.emplace_back();
    at += found->word.size();
  }
  return result;
}

std::vector<int32_t> ids_between(const text::Tokenizer& tokenizer, const MarkedText& text) {
  std::vector<int32_t> ids;
  const std::unique_ptr<text::Encoder> encoder = tokenizer.new_encoder();
  for (size_t piece = 0; piece < text.pieces.size(); ++piece) {
    encoder->encode(text.pieces[piece], ids);
    if (piece < text.markers.size()) ids.push_back(text.markers[piece]);
  }
  return ids;
}

// A tokenizer.json may have a template that puts CLS and SEP around a text.
bool puts_ends_around(const text::Tokenizer& tokenizer, const text::NamedIds& named) {
  const std::vector<int32_t> around = tokenizer.encode("");
  return !around.empty() && around.front() == *named.cls && around.back() == *named.sep;
}

// A tokenizer that finds its special tokens gets the prompt as a whole, since its template is for a whole text.
std::vector<int32_t> ids_of(const text::Tokenizer& tokenizer, const std::string& prompt, const MarkedText& text,
                            const text::NamedIds& named) {
  std::vector<int32_t> ids =
      text::finds_in_text(tokenizer, *named.mask) ? tokenizer.encode(prompt) : ids_between(tokenizer, text);
  if (!puts_ends_around(tokenizer, named)) {
    ids.insert(ids.begin(), *named.cls);
    ids.push_back(*named.sep);
  }
  const auto masks_of = [&](const std::vector<int32_t>& found) {
    return std::count(found.begin(), found.end(), *named.mask);
  };
  if (masks_of(ids) != masks_of(text.markers))
    throw UserError(concat("the tokenizer finds ", masks_of(ids), " of the ", masks_of(text.markers), " masks of '",
                           prompt, "': put spaces around each"),
                    ExitCode::kUsage);
  return ids;
}

// A piece "##ing" continues with the word before it; others are what the tokenizer makes of them (of bytes, say).
void append_filled(std::string& text, const text::Tokenizer& tokenizer, int32_t id) {
  constexpr std::string_view kGoesOn = "##";
  const std::string piece = tokenizer.id_to_piece(id);
  if (!piece.starts_with(kGoesOn)) {
    text += tokenizer.decode({&id, 1});
    return;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += piece.substr(kGoesOn.size());
}

std::string text_of(const text::Tokenizer& tokenizer, const MarkedText& text, int32_t mask,
                    const std::vector<int32_t>& filled) {
  std::string result;
  size_t next = 0;
  for (size_t piece = 0; piece < text.pieces.size(); ++piece) {
    result += text.pieces[piece];
    if (piece == text.markers.size()) break;
    const bool is_mask = text.markers[piece] == mask;
    if (is_mask)
      append_filled(result, tokenizer, filled[next++]);
    else
      result += tokenizer.id_to_piece(text.markers[piece]);
  }
  return result;
}

}  // namespace

std::vector<FilledMasks> fill_masks(const LoadedModel& loaded, const std::vector<std::string>& prompts,
                                    const SamplingConfig& sampling) {
  const text::Tokenizer& tokenizer = *loaded.tokenizer;
  const text::NamedIds named = tokenizer.named_ids();
  if (!named.cls || !named.sep || !named.mask)
    throw UserError(
        concat("the checkpoint's tokenizer, ", tokenizer.description(), ", has no tokens CLS, SEP and MASK, ",
               "without which nothing can be filled in. Import the model again with the files of its own"),
        ExitCode::kUsage);
  const std::string mask_word = tokenizer.id_to_piece(*named.mask);
  std::vector<Marker> markers;
  for (const int32_t id : {*named.mask, *named.sep, *named.cls}) markers.push_back({tokenizer.id_to_piece(id), id});
  std::vector<MarkedText> texts;
  for (const std::string& prompt : prompts) {
    texts.push_back(split_at(markers, prompt));
    if (std::find(texts.back().markers.begin(), texts.back().markers.end(), *named.mask) == texts.back().markers.end())
      throw UserError(concat("nothing to fill in: a ", loaded.config.family->display, " puts words for ", mask_word,
                             ", and the prompt '", prompt, "' has none"),
                      ExitCode::kUsage);
  }

  std::vector<FilledMasks> results;
  for (size_t row = 0; row < prompts.size(); ++row) {
    Generated tokens{ids_of(tokenizer, prompts[row], texts[row], named), {}, {}};
    const at::Tensor logits = models::runtime_of(*loaded.config.family)
                                  .masked_logits(nn::LayerBuilder{*loaded.params, dist::single_process()},
                                                 loaded.config, at::tensor(tokens.prompt_ids, at::kLong))
                                  .contiguous();
    for (size_t at = 0; at < tokens.prompt_ids.size(); ++at) {
      if (tokens.prompt_ids[at] != *named.mask) continue;
      const SampledToken token =
          sample_token(logits.data_ptr<float>() + static_cast<int64_t>(at) * logits.size(1), tokenizer.vocab_size(),
                       sampling, static_cast<int64_t>(row), static_cast<int64_t>(at));
      tokens.generated_ids.push_back(token.id);
      tokens.logprobs.push_back(token.log_probability);
    }
    std::string text = text_of(tokenizer, texts[row], *named.mask, tokens.generated_ids);
    results.push_back({std::move(tokens), std::move(text)});
  }
  return results;
}

}  // namespace espalier::infer
