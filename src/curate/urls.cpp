#include "curate/urls.h"

#include <libpsl.h>

#include <algorithm>

#include "base/error.h"
#include "text/python_text.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

bool is_ascii_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_ascii_alphanumeric(char byte) {
  return is_ascii_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

std::vector<std::string_view> labels_of(std::string_view host) {
  std::vector<std::string_view> labels;
  for (size_t begin = 0; begin <= host.size();) {
    const size_t end = std::min(host.find('.', begin), host.size());
    labels.push_back(host.substr(begin, end - begin));
    begin = end + 1;
  }
  return labels;
}

bool is_address(const std::vector<std::string_view>& labels) {
  return labels.size() == 4 && std::all_of(labels.begin(), labels.end(), [](std::string_view label) {
           return !label.empty() && label.size() <= 3 && std::all_of(label.begin(), label.end(), is_ascii_digit);
         });
}

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(), [](char byte) { return byte == '-' || is_ascii_alphanumeric(byte); });
}

bool is_well_formed_host(std::string_view host) {
  std::vector<std::string_view> labels = labels_of(host);
  if (is_address(labels)) return true;
  if (labels.back().empty()) labels.pop_back();  // one final dot
  if (labels.size() < 2) return false;
  const std::string_view last = labels.back();
  labels.pop_back();
  return last.size() >= 2 &&
         std::all_of(last.begin(), last.end(), [](char byte) { return byte == '-' || is_ascii_alphanumeric(byte); }) &&
         std::all_of(labels.begin(), labels.end(), is_label);
}

bool has_blank(std::string_view text) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const text::CodePoint point = text::decode_utf8(at);
    // What str.isspace() of Python has beyond Unicode's property.
    if (text::is_white_space(point.code) || (point.code >= 0x1C && point.code <= 0x1F)) return true;
    at += point.num_bytes;
  }
  return false;
}

bool takes_scheme(std::string_view& url) {
  const std::string start = text::python::lowercase(url.substr(0, std::min<size_t>(8, url.size())));
  for (const std::string_view scheme : {"http://", "https://"})
    if (start.starts_with(scheme)) {
      url.remove_prefix(scheme.size());
      return true;
    }
  return false;
}

const psl_ctx_t* context_of(const std::shared_ptr<void>& list) { return static_cast<const psl_ctx_t*>(list.get()); }

}  // namespace

PublicSuffixes::PublicSuffixes(const std::string& path) {
  psl_ctx_t* const list = path.empty() ? psl_latest(nullptr) : psl_load_file(path.c_str());
  if (list == nullptr)
    throw UserError(path.empty() ? "libpsl has no public suffix list; install the package publicsuffix"
                                 : concat(path, ": cannot be read as a public suffix list"),
                    ExitCode::kBadData);
  list_ = std::shared_ptr<void>(list, [](void* pointer) { psl_free(static_cast<psl_ctx_t*>(pointer)); });
}

std::string PublicSuffixes::registered_domain(const std::string& host) const {
  const std::vector<std::string_view> labels = labels_of(host);
  if (labels.size() < 2 || is_address(labels)) return host;
  // From the whole host on, the first that is a suffix is the longest; the label in front of it belongs to the domain.
  size_t begin = 0, before = std::string::npos;
  for (;;) {
    const std::string rest = host.substr(begin);
    if (psl_is_public_suffix2(context_of(list_), rest.c_str(), PSL_TYPE_ICANN | PSL_TYPE_NO_STAR_RULE)) break;
    const size_t dot = host.find('.', begin);
    if (dot == std::string::npos) return rest;  // no suffix is known: the last label
    before = begin;
    begin = dot + 1;
  }
  return before == std::string::npos ? "" : host.substr(before);
}

std::string host_of(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (url.find('@') != std::string_view::npos) url.remove_prefix(url.rfind('@') + 1);
  url = url.substr(0, url.find(':'));
  if (url.ends_with('.')) url.remove_suffix(1);
  return text::python::lowercase(url);
}

bool is_well_formed_url(std::string_view url) {
  if (!takes_scheme(url)) return false;
  const size_t host_end = std::min(url.find_first_of(":/?"), url.size());
  if (!is_well_formed_host(url.substr(0, host_end))) return false;
  url.remove_prefix(host_end);
  if (url.starts_with(':')) {
    size_t digits = 1;
    while (digits < url.size() && is_ascii_digit(url[digits])) ++digits;
    if (digits == 1) return false;
    url.remove_prefix(digits);
  }
  if (url.empty() || url == "/") return true;
  return (url[0] == '/' || url[0] == '?') && url.size() > 1 && !has_blank(url);
}

const char* why_not_url(std::string_view url, const UrlRules& rules, const PublicSuffixes& suffixes) {
  const std::string host = host_of(url);
  if (!rules.domains.empty()) {
    const std::string registered = suffixes.registered_domain(host);
    if (rules.domains.contains(registered.substr(0, registered.find('.'))) && !registered.empty()) return "domain";
    for (size_t begin = 0; begin != std::string::npos && host.find('.', begin) != std::string::npos;) {
      if (rules.domains.contains(host.substr(begin))) return "domain";
      begin = host.find('.', begin);
      if (begin != std::string::npos) ++begin;
    }
  }
  const std::string path = text::python::lowercase(url.substr(0, url.find('?')));
  for (const std::string& extension : rules.extensions)
    if (path.ends_with(extension)) return "extension";
  if (text::python::num_characters(url) <= rules.most_short) return "short";
  return is_well_formed_url(url) ? nullptr : "malformed";
}

}  // namespace espalier::curate
