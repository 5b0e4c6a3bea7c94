// Text that was read in the wrong encoding, and its repair, as ftfy 6.3 sees and does it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier::curate {

struct MojibakeOptions {
  bool restore_byte_a0 = true, replace_lossy_sequences = true, decode_inconsistent_utf8 = true, fix_c1_controls = true;
};

// Whether characters stand side by side that hardly do so in texts of any language.
bool is_bad(std::u32string_view text);

// Undoes wrong encodings, one over the other, until nothing changes. `is_bad` decides what is one.
std::u32string fix_encoding(std::u32string text, const MojibakeOptions& options);

// What browsers take the control characters from U+0080 to U+009F for.
void fix_c1_controls(std::u32string& text);

// Where the next run of what looks like UTF-8 read as a code page begins, from `at` on, and its end; nothing where
// there is none.
struct MojibakeRun {
  size_t begin, end;
};
std::optional<MojibakeRun> find_mojibake_run(std::u32string_view text, size_t at);

// Bytes of UTF-8 in which a blank stands for 0xA0.
bool has_lost_a0(std::string_view bytes);
void restore_byte_a0(std::string& bytes);
// Sequences of UTF-8 with a byte 0x1A or ? in the place of one that got lost become U+FFFD.
void replace_lossy_sequences(std::string& bytes);
// Strict UTF-8, but for Java's and MySQL's ways to write U+0000 and what lies beyond U+FFFF. Nothing where it is none.
std::optional<std::u32string> decode_utf8_variants(std::string_view bytes);

}  // namespace espalier::curate
