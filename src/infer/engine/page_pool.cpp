#include "infer/engine/page_pool.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace espalier::infer {

size_t PagePool::HashOfKey::operator()(const Key& key) const {
  return hash64(key.ids.data(), key.ids.size() * sizeof(int32_t), key.before);
}

PagePool::PagePool(int64_t num_pages, int64_t page_tokens)
    : page_tokens_(page_tokens), pages_(static_cast<size_t>(num_pages)) {
  for (int64_t page = num_pages; page-- > 0;) free_.push_back(static_cast<int32_t>(page));
}

FoundPrefix PagePool::take_prefix(PrefixId prefix, std::span<const int32_t> ids) {
  FoundPrefix found{.pages = {}, .prefix = prefix};
  const size_t size = static_cast<size_t>(page_tokens_);
  for (size_t begin = 0; begin + size <= ids.size(); begin += size) {
    const auto block = ids.subspan(begin, size);
    const auto entry = index_.find({found.prefix, {block.begin(), block.end()}});
    if (entry == index_.end()) break;
    hold(entry->second.page);
    found.pages.push_back(entry->second.page);
    found.prefix = entry->second.prefix;
  }
  return found;
}

bool PagePool::take(int64_t count, std::vector<int32_t>& pages) {
  if (count > num_available()) return false;
  for (; count > 0; --count) {
    int32_t page;
    if (free_.empty()) {
      page = evict();
    } else {
      page = free_.back();
      free_.pop_back();
    }
    pages_[static_cast<size_t>(page)].num_holders = 1;
    pages.push_back(page);
  }
  return true;
}

PagePool::Published PagePool::publish(PrefixId prefix, std::span<const int32_t> ids, int32_t page) {
  Page& own = pages_[static_cast<size_t>(page)];
  ESPALIER_CHECK(own.num_holders > 0 && own.key == nullptr && static_cast<int64_t>(ids.size()) == page_tokens_, "page ",
                 page);
  const auto [entry, is_new] = index_.try_emplace({prefix, {ids.begin(), ids.end()}}, Entry{page, last_prefix_ + 1});
  if (is_new) {
    ++last_prefix_;
    own.key = &entry->first;
  } else {
    hold(entry->second.page);
    let_go(page);
  }
  return {entry->second.page, entry->second.prefix};
}

void PagePool::release(std::span<const int32_t> pages) {
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) let_go(*page);
}

void PagePool::hold(int32_t number) {
  Page& page = pages_[static_cast<size_t>(number)];
  if (page.num_holders++ == 0) unused_.erase(page.unused);
}

void PagePool::let_go(int32_t number) {
  Page& page = pages_[static_cast<size_t>(number)];
  ESPALIER_CHECK(page.num_holders > 0, "page ", number, " is held by nobody");
  if (--page.num_holders > 0) return;
  if (page.key == nullptr)
    free_.push_back(number);
  else
    page.unused = unused_.insert(unused_.end(), number);
}

int32_t PagePool::evict() {
  const int32_t number = unused_.front();
  unused_.pop_front();
  Page& page = pages_[static_cast<size_t>(number)];
  index_.erase(index_.find(*page.key));
  page.key = nullptr;
  ++num_evictions_;
  return number;
}

}  // namespace espalier::infer
