#include "curate/input/html_text.h"

#include <gumbo.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

// The library destroys its tree by recursion.
constexpr int64_t kMostTags = 50000;
// It looks through all open elements at every tag, so deep markup costs it a multiple of its length.
constexpr int64_t kDeepest = 500;
// A block that is not longer, and of which links are more than half, is a menu.
constexpr int64_t kMenuCharacters = 200;

bool is_left_out(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_SCRIPT:
    case GUMBO_TAG_STYLE:
    case GUMBO_TAG_NOSCRIPT:
    case GUMBO_TAG_TEMPLATE:
    case GUMBO_TAG_NAV:
    case GUMBO_TAG_HEADER:
    case GUMBO_TAG_FOOTER:
    case GUMBO_TAG_ASIDE:
    case GUMBO_TAG_FORM:
    case GUMBO_TAG_BUTTON:
    case GUMBO_TAG_SELECT:
    case GUMBO_TAG_TEXTAREA:
    case GUMBO_TAG_IFRAME:
    case GUMBO_TAG_OBJECT:
    case GUMBO_TAG_SVG:
    case GUMBO_TAG_HEAD: return true;
    default: return false;
  }
}

// 0: within a line; 1: a line of its own; 2: with an empty line around.
int block_kind(GumboTag tag) {
  switch (tag) {
    case GUMBO_TAG_P:
    case GUMBO_TAG_H1:
    case GUMBO_TAG_H2:
    case GUMBO_TAG_H3:
    case GUMBO_TAG_H4:
    case GUMBO_TAG_H5:
    case GUMBO_TAG_H6:
    case GUMBO_TAG_BLOCKQUOTE:
    case GUMBO_TAG_PRE:
    case GUMBO_TAG_UL:
    case GUMBO_TAG_OL:
    case GUMBO_TAG_DL:
    case GUMBO_TAG_TABLE:
    case GUMBO_TAG_ARTICLE:
    case GUMBO_TAG_SECTION:
    case GUMBO_TAG_MAIN: return 2;
    case GUMBO_TAG_BR:
    case GUMBO_TAG_HR:
    case GUMBO_TAG_DIV:
    case GUMBO_TAG_LI:
    case GUMBO_TAG_DT:
    case GUMBO_TAG_DD:
    case GUMBO_TAG_TR:
    case GUMBO_TAG_CAPTION:
    case GUMBO_TAG_FIGCAPTION:
    case GUMBO_TAG_BODY: return 1;
    default: return 0;
  }
}

bool is_element(const GumboNode& node) { return node.type == GUMBO_NODE_ELEMENT || node.type == GUMBO_NODE_TEMPLATE; }

// Visits the nodes below `root` in the order of the page, without recursion: enter(node) says whether to go in.
template <class Enter, class Leave>
void walk(const GumboNode& root, Enter enter, Leave leave) {
  struct Place {
    const GumboNode* node;
    unsigned next = 0;
  };
  std::vector<Place> stack;
  if (enter(root)) stack.push_back({&root});
  while (!stack.empty()) {
    Place& place = stack.back();
    const GumboVector& children = place.node->v.element.children;
    if (place.next == children.length) {
      leave(*place.node);
      stack.pop_back();
      continue;
    }
    const auto& child = *static_cast<const GumboNode*>(children.data[place.next++]);
    if (enter(child) && is_element(child)) stack.push_back({&child});
  }
}

class PageText {
 public:
  std::string of(const GumboNode& root) {
    walk(
        root,
        [this](const GumboNode& node) {
          if (is_element(node)) return enter(node.v.element.tag);
          if (node.type == GUMBO_NODE_TEXT || node.type == GUMBO_NODE_CDATA || node.type == GUMBO_NODE_WHITESPACE)
            add(node.v.text.text);
          return false;
        },
        [this](const GumboNode& node) {
          if (node.v.element.tag == GUMBO_TAG_A) --links_;
          end_line(block_kind(node.v.element.tag));
        });
    end_line(1);
    return std::string(text::python::strip(text_));
  }

 private:
  bool enter(GumboTag tag) {
    if (is_left_out(tag)) return false;
    end_line(block_kind(tag));
    if (tag == GUMBO_TAG_TD || tag == GUMBO_TAG_TH) pending_blank_ = !line_.empty();  // cells of a row are words apart
    if (tag == GUMBO_TAG_A) ++links_;
    return true;
  }

  void add(std::string_view text) {
    for (const char c : text) {
      const bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
      if (blank) {
        pending_blank_ = !line_.empty();
        continue;
      }
      if (pending_blank_) line_ += ' ';
      pending_blank_ = false;
      line_ += c;
      if (links_ > 0) ++linked_bytes_;
    }
  }

  void end_line(int kind) {
    if (kind == 0) return;
    const auto bytes = static_cast<int64_t>(line_.size());
    const bool is_menu = bytes <= kMenuCharacters && 2 * linked_bytes_ > bytes;
    if (!line_.empty() && !is_menu) {
      if (!text_.empty()) text_ += gap_ == 2 ? "\n\n" : "\n";
      text_ += line_;
      gap_ = kind;
    } else {
      gap_ = std::max(gap_, kind);
    }
    line_.clear();
    linked_bytes_ = 0;
    pending_blank_ = false;
  }

  std::string text_, line_;
  int64_t linked_bytes_ = 0;
  int links_ = 0, gap_ = 0;
  bool pending_blank_ = false;
};

// What holds the page's matter: all of <main>, else of <article>, if there is exactly one; else the body.
const GumboNode* matter_of(const GumboNode& root) {
  const GumboNode *main = nullptr, *article = nullptr;
  int num_articles = 0;
  walk(
      root,
      [&](const GumboNode& node) {
        if (!is_element(node)) return false;
        if (node.v.element.tag == GUMBO_TAG_MAIN && main == nullptr) main = &node;
        if (node.v.element.tag == GUMBO_TAG_ARTICLE && num_articles++ == 0) article = &node;
        return true;
      },
      [](const GumboNode&) {});
  if (main != nullptr) return main;
  return num_articles == 1 ? article : &root;
}

std::string title_of(const GumboNode& root) {
  std::string title;
  bool inside = false;
  walk(
      root,
      [&](const GumboNode& node) {
        if (is_element(node)) {
          inside = node.v.element.tag == GUMBO_TAG_TITLE && title.empty();
          return node.v.element.tag != GUMBO_TAG_BODY;
        }
        if (inside && node.type == GUMBO_NODE_TEXT) title = text::python::strip(node.v.text.text);
        return false;
      },
      [&](const GumboNode&) { inside = false; });
  return title;
}

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return lower;
}

// What the page itself declares: charset=... in its first bytes.
std::string charset_within(std::string_view html) {
  constexpr size_t kHeadBytes = 2048;
  const std::string head = lower_ascii(html.substr(0, kHeadBytes));
  size_t at = head.find("charset=");
  if (at == std::string::npos) return "";
  at += std::string_view("charset=").size();
  if (at < head.size() && (head[at] == '"' || head[at] == '\'')) ++at;
  const size_t end = std::min(head.find_first_of("\"'>;/ \t\r\n", at), head.size());
  return head.substr(at, end - at);
}

// windows-1252, which is what pages mean by ISO 8859-1.
std::string from_windows_1252(std::string_view bytes) {
  static constexpr char16_t kUpper[32] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                          0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                          0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                          0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text::append_utf8(byte >= 0x80 && byte < 0xA0 ? kUpper[byte - 0x80] : byte, text);
  }
  return text;
}

// Elements that have no end, or that the next of their kind ends.
bool may_stay_open(std::string_view name) {
  for (const std::string_view known :
       {"p",   "li",    "br", "hr",     "img",  "meta", "link", "input", "td",     "th",
        "tr",  "dt",    "dd", "option", "area", "base", "col",  "embed", "source", "track",
        "wbr", "param", "rp", "rt",     "html", "head", "body", "tbody", "thead",  "tfoot"})
    if (name == known) return true;
  return false;
}

// How deep the tags go, as they are written.
int64_t depth_of(std::string_view html) {
  int64_t depth = 0, deepest = 0;
  for (size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at + 1)) {
    const bool ends = html.substr(at).starts_with("</");
    const size_t begin = at + 1 + ends;
    const size_t end = std::min(html.find_first_of(" \t\r\n/><", begin), html.size());
    const std::string name = lower_ascii(html.substr(begin, std::min<size_t>(end - begin, 16)));
    if (name.empty() || name[0] < 'a' || name[0] > 'z' || may_stay_open(name)) continue;
    depth = std::max<int64_t>(0, depth + (ends ? -1 : 1));
    deepest = std::max(deepest, depth);
  }
  return deepest;
}

}  // namespace

bool read_html(std::string_view html, std::string charset, HtmlPage& page, std::string& reason) {
  if (charset.empty()) charset = charset_within(html);
  charset = lower_ascii(charset);
  std::string text;
  int64_t num_replaced = 0;
  if (charset.empty() || charset == "utf-8" || charset == "utf8" || charset == "us-ascii" || charset == "ascii") {
    std::string storage;
    text = text::repair_utf8(html, storage, num_replaced);
  } else if (charset == "iso-8859-1" || charset == "latin1" || charset == "latin-1" || charset == "windows-1252" ||
             charset == "cp1252") {
    text = from_windows_1252(html);
  } else {
    reason = "The page's encoding, " + charset + ", is not supported";
    return false;
  }
  if (std::count(text.begin(), text.end(), '<') > kMostTags) {
    reason = concat("The page has more than ", kMostTags, " tags");
    return false;
  }
  if (depth_of(text) > kDeepest) {
    reason = concat("The page's elements are nested more than ", kDeepest, " deep");
    return false;
  }
  const auto destroy = [](GumboOutput* output) { gumbo_destroy_output(&kGumboDefaultOptions, output); };
  const std::unique_ptr<GumboOutput, decltype(destroy)> output(
      gumbo_parse_with_options(&kGumboDefaultOptions, text.data(), text.size()), destroy);
  page.title = title_of(*output->root);
  page.text = PageText().of(*matter_of(*output->root));
  // The library may make U+0000 of character references; what it gives is UTF-8 again.
  std::string storage;
  page.text = std::string(text::repair_utf8(page.text, storage, num_replaced));
  return true;
}

}  // namespace espalier::curate
