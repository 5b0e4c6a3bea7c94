// In which samples a document is read: SampleIndex backwards.
#include <algorithm>

#include "data/sample_index.h"

namespace espalier::data {

std::vector<Sighting> SampleIndex::sightings(const DocumentRange& documents) const {
  std::vector<Sighting> found;
  documents_.visit([&](auto values) {
    for (size_t position = 0; position < values.size(); ++position)
      if (const int64_t document = values[position]; document >= documents.begin && document < documents.end)
        add_sightings(static_cast<int64_t>(position), found);
  });
  if (!found.empty()) renumber(found);
  std::sort(found.begin(), found.end(),
            [](const Sighting& a, const Sighting& b) { return std::pair(a.sample, a.at) < std::pair(b.sample, b.at); });
  return found;
}

// Of the document at this place of the order read, with samples by their number before they were shuffled. The places
// at which samples start rise, so the first that reaches `position` is found by halving.
void SampleIndex::add_sightings(int64_t position, std::vector<Sighting>& found) const {
  int64_t first = 0, end = size();
  while (first < end) {
    const int64_t middle = first + (end - first) / 2;
    if (starts_[2 * middle + 2] < position)
      first = middle + 1;
    else
      end = middle;
  }
  std::vector<DocumentSpan> spans;
  for (int64_t sample = first; sample < size() && starts_[2 * sample] <= position; ++sample) {
    const int64_t before = starts_[2 * sample], offset = starts_[2 * sample + 1], last = starts_[2 * sample + 2];
    const int64_t document = documents_[position];
    const int64_t begin = position == before ? offset : 0;
    const int64_t finish = position == last ? starts_[2 * sample + 3] + 1 : sizes_[document];
    if (finish <= begin) continue;
    int64_t at = 0;  // what is before it in the sample
    for (int64_t earlier = before; earlier < position; ++earlier)
      at += sizes_[documents_[earlier]] - (earlier == before ? offset : 0);
    found.push_back({sample, at, {document, begin, finish - begin}});
  }
}

// The order says for each place which sample is there; we want the inverse, for a few.
void SampleIndex::renumber(std::vector<Sighting>& found) const {
  std::vector<int64_t> wanted;
  for (const Sighting& one : found) wanted.push_back(one.sample);
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  std::vector<int64_t> places(wanted.size());
  std::vector<bool> is_wanted(static_cast<size_t>(size()));
  for (const int64_t sample : wanted) is_wanted[static_cast<size_t>(sample)] = true;
  const auto index_of = [&](int64_t sample) {
    return static_cast<size_t>(std::lower_bound(wanted.begin(), wanted.end(), sample) - wanted.begin());
  };
  order_.visit([&](auto values) {
    for (size_t place = 0; place < values.size(); ++place)
      if (is_wanted[values[place]]) places[index_of(static_cast<int64_t>(values[place]))] = static_cast<int64_t>(place);
  });
  for (Sighting& one : found) one.sample = places[index_of(one.sample)];
}

}  // namespace espalier::data
