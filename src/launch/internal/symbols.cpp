#include "launch/internal/symbols.h"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"

namespace espalier::launch::internal {
namespace {

// The object at this place of the file, if the file is that long.
template <class Object>
std::optional<Object> object_at(std::string_view file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(Object)) return std::nullopt;
  Object object;
  std::memcpy(&object, file.data() + offset, sizeof object);
  return object;
}

std::string text_at(std::string_view file, uint64_t offset) {
  if (offset >= file.size()) return "";
  const std::string_view rest = file.substr(offset, 4096);
  return std::string(rest.substr(0, rest.find('\0')));
}

// Where the loader puts this place of the file, before it adds the file's base.
std::optional<uint64_t> address_of(std::string_view file, const Elf64_Ehdr& header, uint64_t offset) {
  for (uint64_t at = 0; at < header.e_phnum; ++at) {
    const auto segment = object_at<Elf64_Phdr>(file, header.e_phoff + at * header.e_phentsize);
    if (segment && segment->p_type == PT_LOAD && offset >= segment->p_offset &&
        offset - segment->p_offset < segment->p_filesz)
      return offset - segment->p_offset + segment->p_vaddr;
  }
  return std::nullopt;
}

// A function without a size reaches to the next.
std::string function_in(std::string_view file, const Elf64_Shdr& table, const Elf64_Shdr& names, uint64_t address) {
  std::optional<Elf64_Sym> best;
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
    const auto symbol = object_at<Elf64_Sym>(file, table.sh_offset + at);
    if (!symbol) break;
    const int type = ELF64_ST_TYPE(symbol->st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol->st_shndx == SHN_UNDEF || symbol->st_value > address)
      continue;
    if (symbol->st_size != 0 && address - symbol->st_value >= symbol->st_size) continue;
    if (!best || symbol->st_value > best->st_value) best = symbol;
  }
  return best ? text_at(file, names.sh_offset + best->st_name) : "";
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename(); }

}  // namespace

std::vector<Mapping> parse_mappings(std::string_view text) {
  std::vector<Mapping> mappings;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    unsigned long begin = 0, end = 0, offset = 0;
    int path_at = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &begin, &end, &offset, &path_at) != 3) continue;
    if (path_at == 0 || static_cast<size_t>(path_at) >= line.size()) continue;
    mappings.push_back({begin, end, offset, line.substr(static_cast<size_t>(path_at))});
  }
  return mappings;
}

std::vector<Mapping> read_mappings(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/maps"));
  return parse_mappings(std::string{std::istreambuf_iterator<char>(file), {}});
}

std::string mangled_function(std::string_view elf, uint64_t file_offset) {
  const auto header = object_at<Elf64_Ehdr>(elf, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
    return "";
  const std::optional<uint64_t> address = address_of(elf, *header, file_offset);
  if (!address) return "";
  for (const uint32_t kind : {SHT_SYMTAB, SHT_DYNSYM})  // the full table, unless the file was stripped of it
    for (uint64_t at = 0; at < header->e_shnum; ++at) {
      const auto table = object_at<Elf64_Shdr>(elf, header->e_shoff + at * header->e_shentsize);
      if (!table || table->sh_type != kind) continue;
      const auto names = object_at<Elf64_Shdr>(elf, header->e_shoff + uint64_t{table->sh_link} * header->e_shentsize);
      if (!names) continue;
      const std::string name = function_in(elf, *table, *names, *address);
      if (!name.empty()) return name;
    }
  return "";
}

std::string short_function(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> full(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || full == nullptr) return mangled;
  const std::string_view text = full.get();
  constexpr std::string_view kKept[] = {
      "(anonymous namespace)", "operator()", "operator<<", "operator<", "operator->", "operator>>", "operator>"};
  std::string result;
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const auto kept = std::find_if(std::begin(kKept), std::end(kKept),
                                   [&](std::string_view word) { return text.substr(at).starts_with(word); });
    if (kept != std::end(kKept)) {
      if (depth == 0) result += *kept;
      at += kept->size();
      continue;
    }
    const char letter = text[at++];
    const bool opens = letter == '<' || letter == '(', closes = letter == '>' || letter == ')';
    if (opens) ++depth;
    if (depth == 0 && !closes) result += letter;
    if (closes && depth > 0) --depth;
  }
  return strip(result);
}

std::string Symbols::name(const std::vector<Mapping>& mappings, uint64_t address) {
  const auto mapping = std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& candidate) {
    return address >= candidate.begin && address < candidate.end;
  });
  if (mapping == mappings.end()) return "(no file)";
  const uint64_t offset = address - mapping->begin + mapping->file_offset;
  std::string& name = known_[{mapping->path, offset}];
  if (!name.empty()) return name;
  std::string function;
  try {
    const MappedFile file(mapping->path);
    function = mangled_function({reinterpret_cast<const char*>(file.data()), file.size()}, offset);
  } catch (const UserError&) {  // [vdso], or a file that was replaced meanwhile
  }
  name = concat(
      function.empty() ? format_printf("0x%llx", static_cast<unsigned long long>(offset)) : short_function(function),
      " (", file_name(mapping->path), ")");
  return name;
}

}  // namespace espalier::launch::internal
