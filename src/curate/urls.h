// Which URLs are accepted: the rules of the OpenWebText pipeline's blacklist_urls.py, in its order; the first that
// applies names the reason.
//
//   domain      the label in front of the public suffix (libpsl; `co.uk` and the like) is in the list, or, where an
//               entry has a dot, the host is that name or ends in it
//   extension   what precedes `?`, lower-cased, ends in one of the list
//   short       at most 8 characters
//   malformed   not an http or https URL of a host with labels (or four numbers), a port, a path or query without
//   blanks
//
// Hosts are compared in lower case. The step `exact` handles equal URLs. O(length); any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace espalier::curate {

class PublicSuffixes {
 public:
  // The list of the given file; with an empty name the newest of the system's and libpsl's own. UserError.
  explicit PublicSuffixes(const std::string& path = "");
  // "www.example.co.uk" -> "example.co.uk"; the host itself where it is an address or has one label; empty where it is
  // a suffix. Only suffixes of registries count, not those of private owners (github.io).
  std::string registered_domain(const std::string& host) const;

 private:
  std::shared_ptr<void> list_;
};

// Lower-cased, without user, port and final dot; empty where there is none.
std::string host_of(std::string_view url);

bool is_well_formed_url(std::string_view url);

struct UrlRules {
  std::unordered_set<std::string> domains;  // lower case
  std::vector<std::string> extensions;      // ".pdf", lower case
  int64_t most_short = 8;                   // characters
};

// The reason why the URL is rejected; null if it is accepted.
const char* why_not_url(std::string_view url, const UrlRules& rules, const PublicSuffixes& suffixes);

}  // namespace espalier::curate
