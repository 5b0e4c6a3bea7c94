#include "infer/streamed_layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "spec/flat_layout.h"

namespace espalier::infer {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

StreamedLayers::StreamedLayers(ckpt::LoadedCheckpoint checkpoint, tensor::ParamSet& params, WeightSet set)
    : checkpoint_(std::move(checkpoint)), params_(params), set_(set) {
  checkpoint_.use_cache(store::PageCache::kAvoided);
  int64_t largest = 0, all = 0;
  const std::vector<spec::FlatSection>& sections = params_.layout().sections;
  for (size_t i = 0; i < sections.size(); ++i) {
    if (!spec::values_come_and_go(sections[i], params_.sharing())) continue;
    ESPALIER_CHECK(section_of_.emplace(sections[i].depth - 1, i).second, "two sections of depth ", sections[i].depth);
    largest = std::max(largest, sections[i].count());
    all += sections[i].count();
  }
  ESPALIER_CHECK(!section_of_.empty(), "there are no layers to be read one after another");
  const auto values = at::TensorOptions().dtype(params_.compute_type());
  used_ = at::empty({largest}, values);
  spare_ = at::empty({largest}, values);
  const auto bytes = [&](int64_t count) { return format_bytes(static_cast<double>(count * used_.element_size())); };
  log_info("the layers are read when they are needed: ", bytes(2 * largest), " for two of them in memory instead of ",
           bytes(all));
}

StreamedLayers::~StreamedLayers() {
  if (ahead_) ahead_->done.wait();
  const auto bytes = static_cast<double>(checkpoint_.bytes_read());
  log_info("layers: ", format_bytes(bytes), " read",
           read_seconds_ > 0 ? format_printf(" at %.2f GB/s; passes waited for them for %.1f s",
                                             bytes / read_seconds_ * 1e-9, waited_seconds_)
                             : "");
}

void StreamedLayers::read(int64_t layer, const at::Tensor& values) {
  const double begin = seconds();
  const spec::FlatSection& section = params_.layout().sections[section_of_.at(layer)];
  std::vector<ckpt::TensorRequest> requests;
  for (const size_t i : section.params) {
    const spec::ParamSpec& param = params_.specs()[i];
    requests.push_back({param.name,
                        values.narrow(0, params_.layout().offsets[i] - section.begin, params_.layout().counts[i]),
                        ckpt::held_part(param, params_.shard())});
  }
  load_weights_of(checkpoint_, requests, set_);
  read_seconds_ += seconds() - begin;
}

StreamedLayers::Reading StreamedLayers::start(int64_t layer, const at::Tensor& buffer) {
  return {layer, buffer, reader_.submit([this, layer, buffer] { read(layer, buffer); })};
}

// Passes run through the layers in one order; that of the first pass is not known yet.
int64_t StreamedLayers::next_of(int64_t layer) const {
  if (const auto known = followed_.find(layer); known != followed_.end()) return known->second;
  const auto next = section_of_.upper_bound(layer);
  return next == section_of_.end() ? section_of_.begin()->first : next->first;
}

void StreamedLayers::enter(int64_t layer) {
  const size_t section = section_of_.at(layer);
  ESPALIER_CHECK(!params_.section_values(section).defined(), "layer ", layer, " is in use already");
  const double begin = seconds();
  if (ahead_ && ahead_->layer != layer) {
    ahead_->done.wait();
    ahead_.reset();
  }
  if (!ahead_) ahead_ = start(layer, spare_);
  Reading reading = std::move(*ahead_);
  ahead_.reset();
  reading.done.get();
  waited_seconds_ += seconds() - begin;
  std::swap(used_, spare_);
  params_.set_section_values(section, used_.narrow(0, 0, params_.layout().sections[section].count()));
  if (last_ >= 0) followed_[last_] = layer;
  last_ = layer;
  ahead_ = start(next_of(layer), spare_);
}

void StreamedLayers::leave(int64_t layer) { params_.set_section_values(section_of_.at(layer), {}); }

}  // namespace espalier::infer
