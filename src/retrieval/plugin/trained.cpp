#include "retrieval/plugin/trained.h"

#include <faiss/IndexFlat.h>
#include <faiss/IndexHNSW.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/IndexIVFPQ.h>
#include <faiss/IndexPQ.h>
#include <faiss/IndexPreTransform.h>
#include <faiss/IndexScalarQuantizer.h>
#include <faiss/VectorTransform.h>
#include <faiss/impl/io.h>
#include <faiss/index_factory.h>
#include <faiss/index_io.h>
#include <faiss/invlists/OnDiskInvertedLists.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

namespace espalier::retrieval {

struct FaissIndex {
  std::unique_ptr<faiss::Index> whole;
};

namespace {

// Rows that one thread takes at once. Which library function multiplies, and how it rounds, depends on the number of
// rows: so that is fixed.
constexpr int64_t kSliceRows = 1024;

// More is a mistake: of links as many as that for each list are reserved, and a rotation is a matrix.
constexpr int kMostDimensions = 1 << 16, kMostLinks = 1024;

// Runs `work`, and says why where it throws.
template <class Work>
bool guarded(char* error, size_t error_bytes, const Work& work) {
  try {
    work();
    return true;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_bytes, "%s", failure.what());
    return false;
  }
}

// Calls work(number) for all below `count`. Within each, Faiss and BLAS use one thread.
template <class Work>
void in_threads(int64_t count, int threads, const Work& work) {
  std::exception_ptr failure;
  std::mutex mutex;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t number = 0; number < count; ++number) {
    try {
      work(number);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// How much of a training is done, in multiply-adds of k-means, which is nearly all of it.
struct TrainingWork {
  const IndexTraining& training;
  double done = 0, all = 0;

  void add(double some) {
    done += some;
    if (training.report != nullptr) training.report(training.context, std::min(1.0, done / std::max(1.0, all)));
  }
};

// Finds the nearest centroids of training rows slice by slice: the slowest part of training.
class SlicedFlat : public faiss::IndexFlat {
 public:
  SlicedFlat(int64_t dimension, faiss::MetricType metric, TrainingWork& work)
      : faiss::IndexFlat(dimension, metric), work_(work) {}

  void search(idx_t n, const float* x, idx_t k, float* distances, idx_t* labels,
              const faiss::SearchParameters* parameters) const override {
    in_threads((n + kSliceRows - 1) / kSliceRows, work_.training.threads, [&](int64_t slice) {
      const int64_t first = slice * kSliceRows, count = std::min<int64_t>(kSliceRows, n - first);
      faiss::IndexFlat::search(count, x + first * d, k, distances + first * k, labels + first * k, parameters);
    });
    work_.add(static_cast<double>(n) * static_cast<double>(ntotal) * d);
  }

 private:
  TrainingWork& work_;
};

// The parts of an index that has what this program works with.
struct Parts {
  faiss::OPQMatrix* opq = nullptr;
  faiss::Index* codes = nullptr;          // without its transform
  faiss::IndexIVF* lists = nullptr;       // `codes`, where it has lists
  faiss::IndexFlatCodes* flat = nullptr;  // else
  faiss::IndexHNSW* hnsw = nullptr;       // of the lists
  faiss::ProductQuantizer* product = nullptr;
  bool is_lossless = false;
};

template <class Type>
Type* exactly(faiss::Index* index) {
  return typeid(*index) == typeid(Type) ? static_cast<Type*>(index) : nullptr;
}

// What is not among these is refused: its rows could not be added in pieces, or the numbers of its candidates not be
// told.
Parts parts_of(faiss::Index& whole) {
  Parts parts;
  parts.codes = &whole;
  if (auto* const transformed = exactly<faiss::IndexPreTransform>(&whole)) {
    for (faiss::VectorTransform* const step : transformed->chain) {
      // As what they are read from a file, too.
      const bool rotates =
          typeid(*step) == typeid(faiss::RandomRotationMatrix) || typeid(*step) == typeid(faiss::LinearTransform);
      if (typeid(*step) == typeid(faiss::OPQMatrix))
        parts.opq = static_cast<faiss::OPQMatrix*>(step);
      else if (!rotates)
        throw std::runtime_error("it transforms vectors by something else than OPQ or RR");
      if (step->d_out > kMostDimensions)
        throw std::runtime_error("it rotates vectors into " + std::to_string(step->d_out) + " dimensions; " +
                                 std::to_string(kMostDimensions) + " are the most");
    }
    if (parts.opq != nullptr && parts.opq->d_out % parts.opq->M != 0)
      throw std::runtime_error("the number after OPQ, " + std::to_string(parts.opq->M) + ", does not divide the " +
                               std::to_string(parts.opq->d_out) + " dimensions that it rotates vectors into");
    parts.codes = transformed->index;
  }
  if (auto* const flat = exactly<faiss::IndexIVFFlat>(parts.codes)) {
    parts.lists = flat;
    parts.is_lossless = parts.codes == &whole;
  } else if (auto* const product_lists = exactly<faiss::IndexIVFPQ>(parts.codes)) {
    parts.lists = product_lists;
    parts.product = &product_lists->pq;
  } else if (auto* const scalar_lists = exactly<faiss::IndexIVFScalarQuantizer>(parts.codes)) {
    parts.lists = scalar_lists;
  } else if (auto* const product = exactly<faiss::IndexPQ>(parts.codes)) {
    parts.flat = product;
    parts.product = &product->pq;
  } else if (auto* const scalar = exactly<faiss::IndexScalarQuantizer>(parts.codes)) {
    parts.flat = scalar;
  } else {
    throw std::runtime_error("its codes are not Flat, PQ or SQ");
  }
  if (parts.lists != nullptr) {
    faiss::Index* const quantizer = parts.lists->quantizer;
    parts.hnsw = exactly<faiss::IndexHNSWFlat>(quantizer);
    const bool is_flat = typeid(*quantizer) == typeid(faiss::IndexFlat) || dynamic_cast<faiss::IndexFlat*>(quantizer);
    if (parts.hnsw == nullptr && !is_flat) throw std::runtime_error("its lists are found by neither Flat nor HNSW");
    if (parts.hnsw != nullptr) {
      const auto& ends = parts.hnsw->hnsw.cum_nneighbor_per_level;  // of one link there are no levels
      if (ends.size() < 3 || ends[2] - ends[1] > kMostLinks)
        throw std::runtime_error("an HNSW has 2 to " + std::to_string(kMostLinks) + " links of each list");
    }
  }
  return parts;
}

faiss::Index* made_by_string(const char* index_string, int64_t dimension) {
  return faiss::index_factory(static_cast<int>(dimension), index_string, faiss::METRIC_INNER_PRODUCT);
}

IndexShape shape_of(faiss::Index& whole) {
  const Parts parts = parts_of(whole);
  IndexShape shape;
  shape.num_lists = parts.lists != nullptr ? static_cast<int64_t>(parts.lists->nlist) : 0;
  shape.num_centroids = shape.num_lists;
  if (parts.product != nullptr)
    shape.num_centroids = std::max(shape.num_centroids, static_cast<int64_t>(parts.product->ksub));
  if (parts.opq != nullptr) shape.num_centroids = std::max<int64_t>(shape.num_centroids, 256);
  shape.code_bytes = static_cast<int64_t>(whole.sa_code_size());
  shape.is_lossless = parts.is_lossless;
  return shape;
}

bool describe(const char* index_string, int64_t dimension, IndexShape& shape, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    const std::unique_ptr<faiss::Index> index(made_by_string(index_string, dimension));
    shape = shape_of(*index);
  });
}

// Few rows for many centroids are the caller's to warn of; Faiss would print it.
void be_silent(faiss::ClusteringParameters& parameters) { parameters.min_points_per_centroid = 1; }

double work_of(const faiss::ClusteringParameters& parameters, int64_t rows, size_t centroids, int64_t dimension) {
  const int64_t taken =
      std::min(rows, static_cast<int64_t>(centroids) * static_cast<int64_t>(parameters.max_points_per_centroid));
  return static_cast<double>(parameters.niter) * static_cast<double>(taken) * static_cast<double>(centroids) *
         static_cast<double>(dimension);
}

// Lets k-means of everything in `parts` run in slices while it exists.
class SlicedTraining {
 public:
  SlicedTraining(const Parts& parts, const IndexTraining& training) : parts_(parts), work_{training} {
    const int64_t rows = training.num_rows;
    if (parts.lists != nullptr) {
      // Among spherical centroids, those of inner products, the nearest has the greatest product.
      const bool by_distance = parts.lists->quantizer_trains_alone == 2;
      of_lists_.emplace(parts.codes->d, by_distance ? faiss::METRIC_L2 : faiss::METRIC_INNER_PRODUCT, work_);
      parts.lists->clustering_index = &*of_lists_;
      be_silent(parts.lists->cp);
      work_.all += work_of(parts.lists->cp, rows, parts.lists->nlist, parts.codes->d);
    }
    if (parts.product != nullptr) {
      slice(*parts.product, of_product_);
      work_.all += work_of(parts.product->cp, rows, parts.product->ksub, static_cast<int64_t>(parts.product->d));
    }
    if (parts.opq != nullptr) {
      of_rotation_.emplace(static_cast<size_t>(parts.opq->d_out), static_cast<size_t>(parts.opq->M), 8);
      slice(*of_rotation_, in_rotation_);
      const double once =
          static_cast<double>(std::min<int64_t>(rows, static_cast<int64_t>(parts.opq->max_train_points))) *
          static_cast<double>(of_rotation_->ksub) * parts.opq->d_out;
      work_.all += once * (parts.opq->niter_pq_0 + (parts.opq->niter - 1) * parts.opq->niter_pq);
      parts.opq->pq = &*of_rotation_;
    }
  }
  ~SlicedTraining() {
    if (parts_.lists != nullptr) parts_.lists->clustering_index = nullptr;
    if (parts_.product != nullptr) parts_.product->assign_index = nullptr;
    if (parts_.opq != nullptr) parts_.opq->pq = nullptr;
  }
  SlicedTraining(const SlicedTraining&) = delete;
  SlicedTraining& operator=(const SlicedTraining&) = delete;

 private:
  void slice(faiss::ProductQuantizer& product, std::optional<SlicedFlat>& assigner) {
    assigner.emplace(static_cast<int64_t>(product.dsub), faiss::METRIC_L2, work_);
    product.assign_index = &*assigner;
    be_silent(product.cp);
  }

  Parts parts_;
  TrainingWork work_;
  std::optional<SlicedFlat> of_lists_, of_product_, in_rotation_;
  std::optional<faiss::ProductQuantizer> of_rotation_;
};

bool train(const IndexTraining& training, FaissIndex** index, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    omp_set_num_threads(1);
    std::unique_ptr<faiss::Index> whole(made_by_string(training.index_string, training.dimension));
    const Parts parts = parts_of(*whole);
    // It orders codes for a comparison by their bits, which is not used here, and takes most of the time.
    if (auto* const product = dynamic_cast<faiss::IndexPQ*>(parts.codes)) product->do_polysemous_training = false;
    if (auto* const product = dynamic_cast<faiss::IndexIVFPQ*>(parts.codes)) product->do_polysemous_training = false;
    const SlicedTraining sliced(parts, training);
    whole->train(training.num_rows, training.rows);
    *index = new FaissIndex{std::move(whole)};
  });
}

bool open(const char* path, bool maps, FaissIndex** index, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    std::unique_ptr<faiss::Index> whole(faiss::read_index(path, maps ? faiss::IO_FLAG_MMAP : 0));
    const Parts parts = parts_of(*whole);
    if (parts.lists != nullptr)
      if (auto* const mapped = dynamic_cast<faiss::OnDiskInvertedLists*>(parts.lists->invlists))
        mapped->prefetch_nthread = 0;  // each query has a thread of its own
    *index = new FaissIndex{std::move(whole)};
  });
}

class SinkWriter : public faiss::IOWriter {
 public:
  explicit SinkWriter(const ByteSink& sink) : sink_(sink) {}
  size_t operator()(const void* bytes, size_t size, size_t count) override {
    return sink_.take(sink_.context, bytes, size * count) ? count : 0;
  }

 private:
  ByteSink sink_;
};

bool write(const FaissIndex& index, const ByteSink& sink, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    SinkWriter writer(sink);
    faiss::write_index(index.whole.get(), &writer);
  });
}

void shape(const FaissIndex& index, IndexShape& shape, int64_t& num_rows) {
  shape = shape_of(*index.whole);
  num_rows = index.whole->ntotal;
}

bool encode(const FaissIndex& index, const float* rows, int64_t num_rows, int threads, uint8_t* codes, char* error,
            size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    omp_set_num_threads(1);
    const int64_t d = index.whole->d, bytes = static_cast<int64_t>(index.whole->sa_code_size());
    in_threads((num_rows + kSliceRows - 1) / kSliceRows, threads, [&](int64_t slice) {
      const int64_t first = slice * kSliceRows;
      index.whole->sa_encode(std::min(kSliceRows, num_rows - first), rows + first * d, codes + first * bytes);
    });
  });
}

bool append(FaissIndex& index, const uint8_t* codes, int64_t num_rows, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    const Parts parts = parts_of(*index.whole);
    const size_t bytes = index.whole->sa_code_size();
    if (parts.lists != nullptr) {
      const size_t of_list = parts.lists->coarse_code_size();
      for (int64_t row = 0; row < num_rows; ++row) {
        const uint8_t* const code = codes + static_cast<size_t>(row) * bytes;
        parts.lists->invlists->add_entry(static_cast<size_t>(parts.lists->decode_listno(code)),
                                         parts.codes->ntotal + row, code + of_list);
      }
    } else {
      parts.flat->codes.insert(parts.flat->codes.end(), codes, codes + static_cast<size_t>(num_rows) * bytes);
    }
    parts.codes->ntotal += num_rows;
    index.whole->ntotal = parts.codes->ntotal;
  });
}

void set_probes(FaissIndex& index, int64_t nprobe, int64_t ef_search) {
  const Parts parts = parts_of(*index.whole);
  if (parts.lists != nullptr) parts.lists->nprobe = static_cast<size_t>(nprobe);
  if (parts.hnsw != nullptr) parts.hnsw->hnsw.efSearch = static_cast<int>(ef_search);
}

// One query at a time on one thread: what is found for it does not depend on others.
bool search(const FaissIndex& index, const float* queries, int64_t num_queries, int64_t count, int threads,
            int64_t* numbers, char* error, size_t error_bytes) {
  return guarded(error, error_bytes, [&] {
    omp_set_num_threads(1);
    in_threads(num_queries, threads, [&](int64_t query) {
      std::vector<float> scores(static_cast<size_t>(count));
      index.whole->search(1, queries + query * index.whole->d, count, scores.data(), numbers + query * count);
    });
  });
}

void close(FaissIndex* index) { delete index; }

}  // namespace

void add_trained(SearchTable& table) {
  table.describe = describe;
  table.train = train;
  table.open = open;
  table.write = write;
  table.shape = shape;
  table.encode = encode;
  table.append = append;
  table.set_probes = set_probes;
  table.search = search;
  table.close = close;
}

}  // namespace espalier::retrieval
