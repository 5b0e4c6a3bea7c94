#include "curate/input/wikitext.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "curate/steps/html_references.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

constexpr size_t kMostOpen = 100;

// Elements whose content is not running text.
const std::set<std::string, std::less<>> kDroppedElements = {
    "ce",   "chem",       "gallery", "graph", "hiero",  "imagemap", "includeonly",     "mapframe",     "maplink",
    "math", "references", "ref",     "score", "source", "style",    "syntaxhighlight", "templatedata", "timeline"};
// Elements that only mark the text in them. Other names in angle brackets are text.
const std::set<std::string, std::less<>> kMarkingElements = {
    "abbr",    "b",     "bdi",  "bdo",    "big",       "blockquote", "br",   "center",      "cite",
    "code",    "data",  "dd",   "del",    "dfn",       "div",        "dl",   "dt",          "em",
    "font",    "h1",    "h2",   "h3",     "h4",        "h5",         "h6",   "hr",          "i",
    "ins",     "kbd",   "li",   "mark",   "noinclude", "nowiki",     "ol",   "onlyinclude", "p",
    "poem",    "pre",   "q",    "rb",     "rp",        "rt",         "ruby", "s",           "samp",
    "section", "small", "span", "strike", "strong",    "sub",        "sup",  "table",       "templatestyles",
    "td",      "th",    "time", "tr",     "tt",        "u",          "ul",   "var",         "wbr"};
// Names of the namespaces of files and categories, lower case, in the languages with most articles: a page does not
// tell those of its wiki.
const std::set<std::string, std::less<>> kDroppedNamespaces = {
    "file",       "image",     "media",      "category",  "datei",    "bild",        "kategorie", "fichier",
    "catégorie",  "archivo",   "imagen",     "categoría", "immagine", "categoria",   "ficheiro",  "imagem",
    "arquivo",    "bestand",   "afbeelding", "categorie", "файл",     "изображение", "категория", "категорія",
    "зображення", "plik",      "grafika",    "kategoria", "fil",      "kategori",    "soubor",    "kategorie",
    "súbor",      "kategória", "fájl",       "kép",       "tiedosto", "kuva",        "luokka",    "dosya",
    "ファイル",   "画像",      "カテゴリ",   "文件",      "檔案",     "分类",        "分類",      "파일",
    "분류",       "ملف",       "صورة",       "تصنيف",     "پرونده",   "رده",         "tập tin",   "hình",
    "thể loại",   "berkas",    "gambar",     "fitxer",    "imatge",   "fișier",      "imagine",   "categorie",
    "चित्र",       "श्रेणी",      "চিত্র",       "বিষয়শ্রেণী", "קובץ",     "קטגוריה",     "αρχείο",    "κατηγορία"};

class Wikitext {
 public:
  explicit Wikitext(std::string_view source) : source_(source) {}
  bool strip(std::string& reason);
  std::string& out() { return out_; }

 private:
  enum class Kind { kTemplate, kTable, kElementTable, kLink, kExternal };
  struct Open {
    Kind kind;
    size_t begin;            // in out_
    bool has_label = false;  // of a link: a | was read
    bool is_dropped = false;
  };

  bool at(std::string_view mark) const { return source_.substr(at_).starts_with(mark); }
  bool top_is(Kind kind) const { return !open_.empty() && open_.back().kind == kind; }
  bool at_line_start() const;
  void open(Kind kind, size_t mark_bytes) {
    open_.push_back({kind, out_.size()});
    at_ += mark_bytes;
  }
  // What was opened after it was never closed: its text goes or stays with it.
  bool close_block(std::initializer_list<Kind> closing, std::initializer_list<Kind> barriers);
  size_t find_end(std::string_view mark, size_t from);
  bool read_braces();
  bool read_brackets();
  bool read_angle();
  void read_element(const std::string& name, bool is_end, bool is_empty);
  void end_target();
  void close_link();
  void end_line();
  void read_apostrophes();
  bool read_switch();

  std::string_view source_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Open> open_;
  std::set<std::string, std::less<>> absent_;  // ends that the rest of the source does not hold
};

// Only blanks, list marks and a table's indentation precede it in its line.
bool Wikitext::at_line_start() const {
  size_t before = at_;
  // Limited, so that lines of blanks cost no more than others.
  for (int num = 0; num < 64 && before > 0; ++num, --before) {
    const char c = source_[before - 1];
    if (c == '\n') return true;
    if (c != ' ' && c != '\t' && c != ':' && c != '*' && c != '#') return false;
  }
  return before == 0;
}

bool Wikitext::close_block(std::initializer_list<Kind> closing, std::initializer_list<Kind> barriers) {
  for (size_t index = open_.size(); index-- > 0;) {
    const Kind kind = open_[index].kind;
    if (std::find(closing.begin(), closing.end(), kind) != closing.end()) {
      out_.resize(open_[index].begin);
      open_.resize(index);
      return true;
    }
    if (std::find(barriers.begin(), barriers.end(), kind) != barriers.end()) return false;
  }
  return false;
}

// Searches for the same end fail once only, so that all of them take one pass.
size_t Wikitext::find_end(std::string_view mark, size_t from) {
  if (absent_.contains(mark)) return std::string_view::npos;
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; };
  const auto found =
      std::search(source_.begin() + static_cast<ptrdiff_t>(from), source_.end(), mark.begin(), mark.end(), same);
  if (found != source_.end()) return static_cast<size_t>(found - source_.begin());
  absent_.emplace(mark);
  return std::string_view::npos;
}

bool Wikitext::read_braces() {
  if (at("{|") && !at("{|}") && at_line_start()) {
    open(Kind::kTable, 2);
  } else if (at("{{")) {
    open(Kind::kTemplate, 2);
  } else if ((at("|}") && at_line_start() && close_block({Kind::kTable}, {Kind::kTemplate, Kind::kElementTable})) ||
             (at("}}") && close_block({Kind::kTemplate}, {Kind::kTable, Kind::kElementTable}))) {
    at_ += 2;
  } else if (source_[at_] == '|' && top_is(Kind::kLink)) {
    end_target();
    ++at_;
  } else {
    return false;
  }
  return true;
}

// What was read so far is not a label: a |, or the end, follows.
void Wikitext::end_target() {
  Open& link = open_.back();
  if (link.has_label) {
    out_ += '|';
    return;
  }
  link.has_label = true;
  const std::string_view target = text::python::strip(std::string_view(out_).substr(link.begin));
  const size_t colon = target.find(':');
  if (colon != std::string_view::npos && colon > 0) {
    std::string space = text::python::lowercase(text::python::strip(target.substr(0, colon)));
    std::replace(space.begin(), space.end(), '_', ' ');
    link.is_dropped = kDroppedNamespaces.contains(space);
  }
  out_.resize(link.begin);
}

void Wikitext::close_link() {
  Open& link = open_.back();
  if (!link.has_label) {
    std::string target = out_.substr(link.begin);
    end_target();
    out_ += target.starts_with(':') ? target.substr(1) : target;
  }
  if (link.is_dropped) out_.resize(link.begin);
  open_.pop_back();
}

bool Wikitext::read_brackets() {
  if (at("[[") && !at("[[http://") && !at("[[https://")) {
    open(Kind::kLink, 2);
    return true;
  }
  if (source_[at_] == '[') {
    for (const char* scheme : {"[http://", "[https://", "[ftp://", "[mailto:", "[//"})
      if (at(scheme)) {
        const size_t end = std::min(source_.find_first_of(" \t\n]<", at_), source_.size());
        open(Kind::kExternal, end - at_);
        if (at(" ")) ++at_;
        return true;
      }
    return false;
  }
  if (source_[at_] == ']' && top_is(Kind::kExternal)) {
    open_.pop_back();
    ++at_;
    return true;
  }
  if (!at("]]") || !top_is(Kind::kLink)) return false;
  close_link();
  at_ += 2;
  return true;
}

bool Wikitext::read_angle() {
  if (at("<!--")) {
    const size_t end = find_end("-->", at_ + 4);
    at_ = end == std::string_view::npos ? source_.size() : end + 3;
    return true;
  }
  const bool is_end = at("</");
  size_t end = at_ + (is_end ? 2 : 1);
  std::string name;
  for (; end < source_.size() && name.size() < 20; ++end) {
    const char c = source_[end];
    if (c >= 'A' && c <= 'Z')
      name += static_cast<char>(c + ('a' - 'A'));
    else if ((c >= 'a' && c <= 'z') || (c >= '1' && c <= '6'))
      name += c;
    else
      break;
  }
  if (!kDroppedElements.contains(name) && !kMarkingElements.contains(name)) return false;
  end = source_.find_first_of("<>", end);
  if (end == std::string_view::npos || source_[end] == '<') return false;
  const bool is_empty = source_[end - 1] == '/';
  at_ = end + 1;
  read_element(name, is_end, is_empty);
  return true;
}

void Wikitext::read_element(const std::string& name, bool is_end, bool is_empty) {
  if (name == "br" || name == "hr" || name == "p" || name == "li") {
    out_ += '\n';
  } else if (name == "table") {
    if (is_end)
      close_block({Kind::kElementTable}, {Kind::kTemplate, Kind::kTable});
    else
      open(Kind::kElementTable, 0);
  } else if (!is_end && !is_empty && (name == "nowiki" || kDroppedElements.contains(name))) {
    // An element that never ends leaves out nothing but its tag.
    const std::string mark = "</" + name;
    const size_t end = find_end(mark, at_);
    if (end == std::string_view::npos) return;
    if (name == "nowiki") out_ += source_.substr(at_, end - at_);
    const size_t close = source_.find('>', end);
    at_ = close == std::string_view::npos ? source_.size() : close + 1;
  }
}

// Targets and external links do not go over lines.
void Wikitext::end_line() {
  while (!open_.empty() &&
         (open_.back().kind == Kind::kExternal || (open_.back().kind == Kind::kLink && !open_.back().has_label)))
    open_.pop_back();
  out_ += '\n';
  ++at_;
}

// Two are italics, three bold, five both; what is more is text.
void Wikitext::read_apostrophes() {
  const size_t num = std::min(source_.find_first_not_of('\'', at_), source_.size()) - at_;
  at_ += num;
  if (num == 1 || num == 4) out_ += '\'';
  if (num > 5) out_.append(num - 5, '\'');
}

// __NOTOC__ and the like.
bool Wikitext::read_switch() {
  if (!at("__")) return false;
  size_t end = at_ + 2;
  while (end < source_.size() && end < at_ + 30 && source_[end] >= 'A' && source_[end] <= 'Z') ++end;
  if (end == at_ + 2 || !source_.substr(end).starts_with("__")) return false;
  at_ = end + 2;
  return true;
}

bool Wikitext::strip(std::string& reason) {
  while (at_ < source_.size()) {
    const char c = source_[at_];
    bool read = false;
    if (c == '{' || c == '}' || c == '|') read = read_braces();
    if (c == '[' || c == ']') read = read_brackets();
    if (c == '<') read = read_angle();
    if (c == '_') read = read_switch();
    if (c == '\n' || c == '\'') {
      c == '\n' ? end_line() : read_apostrophes();
      read = true;
    }
    if (!read) out_ += source_[at_++];
    if (open_.size() > kMostOpen) {
      reason = concat("The page's templates, tables and links are nested more than ", kMostOpen, " deep");
      return false;
    }
  }
  // A table that never ends is one up to the end of the page; of anything else the text stays.
  for (const Open& unclosed : open_)
    if (unclosed.kind == Kind::kTable || unclosed.kind == Kind::kElementTable) {
      out_.resize(unclosed.begin);
      break;
    }
  return true;
}

// "== Title ==" without its marks; the marks of lists and indents too. `is_title` for the former.
std::string_view without_line_marks(std::string_view line, bool& is_title) {
  line = text::python::strip(line);
  is_title = line.size() > 2 && line.front() == '=' && line.back() == '=' &&
             line.find_first_not_of('=') != std::string_view::npos;
  if (is_title) {
    line.remove_prefix(line.find_first_not_of('='));
    line = line.substr(0, line.find_last_not_of('=') + 1);
  } else if (line.starts_with("----")) {
    line.remove_prefix(std::min(line.find_first_not_of('-'), line.size()));
  } else {
    line.remove_prefix(std::min(line.find_first_not_of("*#:;"), line.size()));
  }
  return text::python::strip(line);
}

}  // namespace

bool strip_wikitext(std::string_view source, std::string& text, std::string& reason) {
  Wikitext wikitext(source);
  if (!wikitext.strip(reason)) return false;
  text.clear();
  bool parted = false, is_title = false;
  for (const std::string& raw : split(wikitext.out(), '\n')) {
    const bool after_title = is_title;
    const std::string_view line = without_line_marks(raw, is_title);
    if (line.empty()) {
      is_title = after_title;
      parted = true;
      continue;
    }
    if (!text.empty()) text += parted || is_title || after_title ? "\n\n" : "\n";
    text += line;
    parted = false;
  }
  const std::u32string plain = unescape_html(text::to_utf32(text));
  text.clear();
  for (const char32_t code : plain) text::append_utf8(code, text);
  return true;
}

}  // namespace espalier::curate
