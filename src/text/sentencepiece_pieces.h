// The pieces that a SentencePiece model cuts a text into, as text: encode_as_pieces() of sentencepiece 0.2.3. Ids
// (sentencepiece_tokenizer.h) do not say what an unknown character was.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::text {

class SentencePieceCutter {
 public:
  // Throws a UserError where the file is no such model.
  explicit SentencePieceCutter(const std::filesystem::path& model_file);
  ~SentencePieceCutter();

  // Of valid UTF-8. Neighbouring unknown characters are one piece, as they are after normalization; with byte
  // fallback each of their bytes is one, "<0xE4>". Any thread.
  std::vector<std::string> cut(std::string_view text) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace espalier::text
