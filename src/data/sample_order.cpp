#include "data/sample_order.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::data {

void OrderChain::append(std::shared_ptr<const SampleOrder> order) {
  ends_.push_back(size() + order->size());
  orders_.push_back(std::move(order));
}

int64_t OrderChain::num_epochs() const {
  int64_t epochs = 0;
  for (const auto& order : orders_) epochs += order->num_epochs();
  return epochs;
}

double OrderChain::epochs_of(int64_t num_samples) const {
  double epochs = 0;
  for (const auto& order : orders_) {
    const int64_t samples = std::min(num_samples, order->size());
    if (samples == 0) break;
    epochs +=
        static_cast<double>(order->num_epochs()) * static_cast<double>(samples) / static_cast<double>(order->size());
    num_samples -= samples;
  }
  return epochs;
}

void OrderChain::spans(int64_t sample, std::vector<DocumentSpan>& spans) const {
  ESPALIER_CHECK(sample >= 0 && sample < size(), "sample ", sample, " of ", size());
  const auto at = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
  orders_[at]->spans(sample - (at == 0 ? 0 : ends_[at - 1]), spans);
}

std::vector<Sighting> OrderChain::sightings(const DocumentRange& documents) const {
  std::vector<Sighting> all;
  for (size_t at = 0; at < orders_.size(); ++at)
    for (Sighting& one : orders_[at]->sightings(documents)) {
      one.sample += at == 0 ? 0 : ends_[at - 1];
      all.push_back(one);
    }
  return all;
}

}  // namespace espalier::data
