#include "plan/time/machine.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/toml_text.h"
#include "plan/time/internal/builtin_machines.h"

namespace espalier::plan {
namespace {

struct ProgramField {
  const char* key;
  bool Program::*value;
};
constexpr ProgramField kProgramTruths[] = {
    {"fused_attention", &Program::fused_attention}, {"overlaps_tensor", &Program::overlaps_tensor},
    {"overlaps_data", &Program::overlaps_data},     {"blocks_on_stages", &Program::blocks_on_stages},
    {"divides_stages", &Program::divides_stages},   {"sums_whole", &Program::sums_whole},
};
struct ProgramBytes {
  const char* key;
  double Program::*value;
};
constexpr ProgramBytes kProgramBytes[] = {{"gradient_bytes", &Program::gradient_bytes},
                                          {"loss_bytes", &Program::loss_bytes}};

// A file whose base is a file, and so on: at most this many.
constexpr int kMostBases = 8;

Machine read_text(const std::string& toml, const std::string& where, int depth);

class MachineReader {
 public:
  MachineReader(const std::string& where, int depth, Problems& problems)
      : where_(where), depth_(depth), problems_(problems) {}

  Machine read(const toml::table& table) {
    Machine machine;
    if (const auto* base = table["base"].as_string()) machine = base_machine(base->get());
    machine.name.clear();
    std::vector<std::string> known = {"base", "name", "currency", "program", "sources"};
    for (const MachineField& field : machine_fields()) known.emplace_back(field.key);
    for (const auto& [key, node] : table) {
      machine.sources.erase(std::string(key.str()));  // the base's, of another number
      read_key(std::string(key.str()), node, known, machine);
    }
    if (const toml::table* sources = table["sources"].as_table()) read_sources(*sources, machine);
    for (const MachineField& field : machine_fields())
      if (std::isnan(machine.*field.value) || machine.*field.value < field.least || machine.*field.value > field.most)
        problems_.add(where_, ": ", field.key, " is ", machine.*field.value, "; it is ", field.meaning, ", from ",
                      field.least, " to ", field.most);
    return machine;
  }

 private:
  Machine base_machine(const std::string& name) {
    for (const auto& [builtin, toml] : internal::builtin_machines())
      if (builtin == name) return read_text(toml, name, depth_ + 1);
    const std::filesystem::path file = std::filesystem::path(where_).parent_path() / name;
    if (depth_ >= kMostBases)
      problems_.add(where_, ": more than ", kMostBases, " files, each the base of the one before");
    else if (name.ends_with(".toml") && std::filesystem::exists(file))
      return read_text(read_file(file), file, depth_ + 1);
    else
      problems_.add(where_, ": base = \"", name, "\" is neither built in (", join(machine_names(), ", "),
                    ") nor a file next to this one");
    return {};
  }

  std::string at(const toml::node& node) const { return concat(where_, ":", node.source().begin.line); }

  void read_key(const std::string& key, const toml::node& node, const std::vector<std::string>& known,
                Machine& machine) {
    for (const MachineField& field : machine_fields())
      if (key == field.key) return read_number(key, node, machine.*field.value);
    if (key == "base" || key == "name" || key == "currency") {
      if (!node.is_string()) problems_.add(at(node), ": ", key, " is a text");
      if (node.is_string() && key == "name") machine.name = node.as_string()->get();
      if (node.is_string() && key == "currency") machine.currency = node.as_string()->get();
      return;
    }
    const toml::table* inner = node.as_table();
    if (inner != nullptr && key == "program") return read_program(*inner, machine.program);
    if (inner == nullptr || key != "sources") unknown(key, node, known);
  }

  void read_sources(const toml::table& table, Machine& machine) {
    for (const auto& [key, text] : table) {
      if (text.is_string())
        machine.sources[std::string(key.str())] = text.as_string()->get();
      else
        problems_.add(at(text), ": the source of ", std::string(key.str()), " is a text");
    }
  }

  void read_program(const toml::table& table, Program& program) {
    std::vector<std::string> known;
    for (const ProgramField& field : kProgramTruths) known.emplace_back(field.key);
    for (const ProgramBytes& field : kProgramBytes) known.emplace_back(field.key);
    for (const auto& [key, node] : table) {
      bool found = false;
      for (const ProgramField& field : kProgramTruths) {
        if (key.str() != field.key) continue;
        found = true;
        if (node.is_boolean())
          program.*field.value = node.as_boolean()->get();
        else
          problems_.add(at(node), ": ", field.key, " is true or false");
      }
      for (const ProgramBytes& field : kProgramBytes) {
        if (key.str() != field.key) continue;
        found = true;
        read_number(field.key, node, program.*field.value);
      }
      if (!found) unknown(std::string(key.str()), node, known);
    }
  }

  void read_number(const std::string& key, const toml::node& node, double& value) {
    if (const auto number = node.value<double>(); number && !node.is_boolean())
      value = *number;
    else
      problems_.add(at(node), ": ", key, " is a number");
  }

  void unknown(const std::string& key, const toml::node& node, const std::vector<std::string>& known) {
    const std::vector<std::string> near = nearest_names(key, known, 3, 1);
    problems_.add(at(node), ": a machine has no '", key, "'",
                  near.empty() ? concat("; there are ", join(known, ", ")) : concat("; did you mean ", near[0], "?"));
  }

  const std::string& where_;
  const int depth_;
  Problems& problems_;
};

Machine read_text(const std::string& toml, const std::string& where, int depth) {
  Problems problems;
  Machine machine;
  try {
    machine = MachineReader(where, depth, problems).read(parse_toml_text(toml, where));
  } catch (const toml::parse_error& error) {
    problems.add(where, ":", error.source().begin.line, ": not TOML: ", std::string(error.description()));
  }
  problems.raise();
  if (machine.name.empty()) machine.name = where;
  return machine;
}

constexpr double kMany = 1e30;

}  // namespace

const std::vector<MachineField>& machine_fields() {
  static const std::vector<MachineField> fields = {
      {"peak_flops", &Machine::peak_flops, 1, kMany, "FLOP/s of a device, dense, bf16"},
      {"peak_flops_fp32", &Machine::peak_flops_fp32, 1, kMany, "FLOP/s of a device, fp32"},
      {"matrix_share", &Machine::matrix_share, 1e-3, 1, "share of the peak that matrix products reach in a step"},
      {"attention_share", &Machine::attention_share, 1e-3, 1, "share of the peak that fused attention reaches"},
      {"memory_bandwidth", &Machine::memory_bandwidth, 1, kMany, "bytes a second that a kernel moves"},
      {"memory_bytes", &Machine::memory_bytes, 1, kMany, "memory of a device"},
      {"device_watts", &Machine::device_watts, 0, kMany, "what a device draws under load"},
      {"devices_per_node", &Machine::devices_per_node, 1, 1e6, "devices of a node"},
      {"node_watts", &Machine::node_watts, 0, kMany, "what a node draws in addition to its devices"},
      {"link_bandwidth", &Machine::link_bandwidth, 1, kMany, "bytes a second that a device sends in a ring of a node"},
      {"link_latency", &Machine::link_latency, 0, 1, "seconds of a ring's step in a node"},
      {"start_latency", &Machine::start_latency, 0, 1, "seconds that any collective takes"},
      {"network_bandwidth", &Machine::network_bandwidth, 1, kMany, "bytes a second that leave a node"},
      {"network_latency", &Machine::network_latency, 0, 1, "seconds of a ring's step between nodes"},
      {"ring_bandwidth", &Machine::ring_bandwidth, 0, kMany, "bytes a second of one ring between nodes, 0: no limit"},
      {"power_overhead", &Machine::power_overhead, 1, 10, "energy of the site for that of its nodes"},
      {"device_hour_price", &Machine::device_hour_price, 0, kMany, "price of a device per hour, 0: not known"},
  };
  return fields;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, toml] : internal::builtin_machines()) names.push_back(name);
  return names;
}

Machine read_machine(const std::string& toml, const std::string& where) { return read_text(toml, where, 0); }

Machine find_machine(const std::string& name_or_file) {
  for (const auto& [name, toml] : internal::builtin_machines())
    if (name == name_or_file) return read_machine(toml, name);
  if (!std::filesystem::exists(name_or_file))
    throw UserError(
        concat("--machine ", name_or_file, ": no machine of that name is built in (there are ",
               join(machine_names(), " and "), "), and there is no such file; recipes/machines/ has examples of files"),
        ExitCode::kUsage);
  return read_machine(read_file(name_or_file), name_or_file);
}

}  // namespace espalier::plan
