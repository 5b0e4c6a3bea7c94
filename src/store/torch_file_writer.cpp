#include "store/torch_file_writer.h"

#include "store/internal/new_file.h"
#include "store/internal/pickle_writer.h"
#include "store/internal/zip_writer.h"

namespace espalier::store {

void write_torch_file(const std::filesystem::path& path, const TorchValue& root) {
  const Pickled pickled = pickle(root);
  const std::string archive = path.stem().empty() ? "archive/" : path.stem().string() + "/";
  NewFile file(path);
  ZipWriter zip(file.output());
  zip.add(archive + "data.pkl", pickled.pickle);
  zip.add(archive + "byteorder", "little");
  for (size_t number = 0; number < pickled.tensors.size(); ++number) {
    const TensorSource source = pickled.tensors[number].source();
    zip.add(archive + "data/" + std::to_string(number), source.num_bytes(),
            [&](const ByteSink& sink) { produce_all(source, sink); });
  }
  zip.add(archive + "version", "3\n");
  zip.finish();
  file.commit();
}

}  // namespace espalier::store
