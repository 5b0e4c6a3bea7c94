// The documents of an evaluation task, and its questions: the first byte chooses the task.
#include "eval/bloom_2022.h"
#include "eval/prepared_task.h"
#include "tests/fuzz/reader_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  using namespace espalier;
  if (size == 0) return 0;
  const std::vector<eval::Task>& tasks = eval::bloom_2022_tasks();
  const eval::Task& task = tasks[input[0] % tasks.size()];
  const std::string file = fuzz::written(input + 1, size - 1, "documents.jsonl");
  return fuzz::try_reader([&] { eval::prepare(task, eval::read_documents(file, task.data.fields), std::nullopt); });
}
