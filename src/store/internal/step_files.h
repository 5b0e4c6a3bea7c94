// How the tensors of a step are in its files, and which part of them a process writes.
#pragma once

#include <string>
#include <vector>

#include "store/step_writer.h"

namespace espalier::store {

// One safetensors file: its header, and the place of each of its tensors.
struct TensorFile {
  std::string path;  // within the step folder
  std::string header;
  std::vector<size_t> tensors;
  std::vector<int64_t> begins;  // of the tensors, from the start of the file
  int64_t bytes = 0;
};

// In the order in which the files first appear.
std::vector<TensorFile> lay_out_files(const std::vector<TensorFacts>& tensors);

// A block and where it begins in its file.
struct PlacedBlock {
  const OwnBlock* block;
  int64_t begin;
};

// What this process has to write of a file.
struct FilePart {
  const TensorFile* file;
  size_t number;                    // of the file in the list
  std::vector<PlacedBlock> blocks;  // by position
};

// One for each file, also where there is nothing to write.
std::vector<FilePart> parts_of(const std::vector<TensorFile>& files, const StepContent& content);

}  // namespace espalier::store
