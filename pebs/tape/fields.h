// The fields of all that crosses the Machine interface: one list for each type, visited to encode it, to decode it and
// to put it into words.
//
// The lists take the types apart by structured bindings, so that a field that is added to one of them does not compile
// until it crosses as well (and kVersion grows).
#ifndef SKIDPROOF_PEBS_TAPE_FIELDS_H_
#define SKIDPROOF_PEBS_TAPE_FIELDS_H_

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "base/expected.h"
#include "kernels/program.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/names.h"
#include "pebs/machine.h"
#include "pebs/tape/bytes.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

template <typename T, typename Type>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Type>;

// Numbers that people read as addresses or register contents, or by a register's name.
template <typename T>
struct Hex {
  T& value;
};
template <typename T>
Hex(T&) -> Hex<T>;
template <typename T>
struct Register {
  T& value;
};
template <typename T>
Register(T&) -> Register<T>;

// Questions of one field.
struct MsrRead {
  uint32_t msr = 0;
};
struct Leaf {
  uint32_t leaf = 0, subleaf = 0;
};
// Of a Memory, what the machine decided.
struct Placed {
  uint64_t address = 0;
  uint64_t physical = 0;
  uint64_t bytes = 0;
  bool huge_pages = false;
};
// The program by its number in the section, and the plan.
struct Errand {
  uint64_t program = 0;
  RunPlan plan;
};

// ---------------------------------------------------------------------------------------------------
// The lists.

void fields(auto&& field, MaybeConst<Identity> auto& identity) {
  auto& [name, provenance, vendor, brand, family, model, stepping, microcode, hypervisor, core_type,
         microarch, pmu, sibling_thread, instant_handler, capabilities, modes] = identity;
  field("name", name);
  field("provenance", provenance);
  field("vendor", vendor);
  field("brand", brand);
  field("family", family);
  field("model", model);
  field("stepping", stepping);
  field("microcode", microcode);
  field("hypervisor", hypervisor);
  field("core type", core_type);
  field("microarch", microarch);
  field("PMU", pmu);
  field("sibling thread", sibling_thread);
  field("instant handler", instant_handler);
  field("capability", capabilities);
  field("mode", modes);
}

void fields(auto&& field, MaybeConst<RunFacts> auto& facts) {
  auto& [version, run, started, command, seed, repeat, filter, host, os, defects, rough, all,
         errata, shape] = facts;
  field("version", version);
  field("run", run);
  field("started", started);
  field("command", command);
  field("seed", seed);
  field("repeat", repeat);
  field("filter", filter);
  field("host", host);
  field("operating system", os);
  field("defect", defects);
  field("roughness", rough);
  field("all", all);
  field("errata", errata);
  field("shape", shape);
}

void fields(auto&& field, MaybeConst<TapeHeader> auto& header) {
  auto& [identity, facts] = header;
  field("machine", identity);
  field("run", facts);
}

void fields(auto&& field, MaybeConst<SectionKey> auto& key) {
  auto& [test, repetition, attempt] = key;
  field("test", test);
  field("repetition", repetition);
  field("attempt", attempt);
}

void fields(auto&& field, MaybeConst<Leaf> auto& question) {
  auto& [leaf, subleaf] = question;
  field("leaf", Hex{leaf});
  field("subleaf", Hex{subleaf});
}

void fields(auto&& field, MaybeConst<Machine::CpuidResult> auto& result) {
  auto& [eax, ebx, ecx, edx] = result;
  field("EAX", Hex{eax});
  field("EBX", Hex{ebx});
  field("ECX", Hex{ecx});
  field("EDX", Hex{edx});
}

void fields(auto&& field, MaybeConst<MsrRead> auto& question) {
  auto& [msr] = question;
  field("MSR", Register{msr});
}

void fields(auto&& field, MaybeConst<MsrWrite> auto& write) {
  auto& [msr, value] = write;
  field("MSR", Register{msr});
  field("value", Hex{value});
}

void fields(auto&& field, MaybeConst<CounterRead> auto& read) {
  auto& [index, ring, cr4_pce] = read;
  field("index", Hex{index});
  field("ring", ring);
  field("CR4.PCE", cr4_pce);
}

void fields(auto&& field, MaybeConst<MemoryRequest> auto& request) {
  auto& [bytes, use, huge_pages, below_4g, across_4g, physical] = request;
  field("size", bytes);
  field("use", use);
  field("wish for huge pages", huge_pages);
  field("wish for memory below 4 GiB", below_4g);
  field("wish for memory across 4 GiB", across_4g);
  field("wish for one piece of physical memory", physical);
}

void fields(auto&& field, MaybeConst<Placed> auto& placed) {
  auto& [address, physical, bytes, huge_pages] = placed;
  field("address", Hex{address});
  field("physical address", Hex{physical});
  field("size", bytes);
  field("huge pages", huge_pages);
}

// What a machine goes by; marks and expectations are for who reads the results.
void fields(auto&& field, MaybeConst<Program> auto& program) {
  auto& [mode, kernel, parameters, code, code_address, entry, data_address, data_bytes, marks,
         instructions, per_iteration, once, needs] = program;
  field("kernel", kernel);
  field("parameters", parameters);
  field("mode of the program", mode);
  field("code's address", Hex{code_address});
  field("entry", Hex{entry});
  field("data's address", Hex{data_address});
  field("data's size", data_bytes);
  field("needed instruction set", needs);
  field("code", code);
}

void fields(auto&& field, MaybeConst<PmiPolicy> auto& policy) {
  auto& [status_msr, acknowledge, unmask, clear_status, rewind_index, rewind_branches,
         restore_global_ctrl, log_capacity] = policy;
  field("handler's status MSR", Register{status_msr});
  field("written by the handler", acknowledge);
  field("handler's unmasking", unmask);
  field("handler's clearing of the status", clear_status);
  field("handler's rewinding of the PEBS index", rewind_index);
  field("handler's rewinding of the BTS index", rewind_branches);
  field("handler's restoring of IA32_PERF_GLOBAL_CTRL", restore_global_ctrl);
  field("handler's log", log_capacity);
}

void fields(auto&& field, MaybeConst<DisturbanceAt> auto& disturbance) {
  auto& [what, after] = disturbance;
  field("disturbance", what);
  field("instructions before the disturbance", after);
}

void fields(auto&& field, MaybeConst<RunPlan> auto& plan) {
  auto& [iterations, enable, disable, read, pmi, ring, mode, disturbances, pebs_index_address,
         pebs_base_address, pebs_buffer_address, bts_index_address, bts_base_address,
         pebs_field_bytes, keep_sibling_busy, deadline] = plan;
  field("number of iterations", iterations);
  field("written before the program", enable);
  field("written after the program", disable);
  field("MSR read after the program", read);
  field("PMI", pmi);
  field("ring", ring);
  field("mode", mode);
  field("disturbances", disturbances);
  field("PEBS index's address", Hex{pebs_index_address});
  field("PEBS base's address", Hex{pebs_base_address});
  field("PEBS buffer's address", Hex{pebs_buffer_address});
  field("BTS index's address", Hex{bts_index_address});
  field("BTS base's address", Hex{bts_base_address});
  field("size of the DS area's fields", pebs_field_bytes);
  field("busy sibling", keep_sibling_busy);
  field("deadline", deadline);
}

void fields(auto&& field, MaybeConst<Errand> auto& errand) {
  auto& [program, plan] = errand;
  field("number of the program", program);
  field("plan", plan);
}

void fields(auto&& field, MaybeConst<Pmi> auto& pmi) {
  auto& [tsc, ip, global_status, global_ctrl, pebs_index, bts_index] = pmi;
  field("TSC", tsc);
  field("IP", Hex{ip});
  field("IA32_PERF_GLOBAL_STATUS", Hex{global_status});
  field("IA32_PERF_GLOBAL_CTRL", Hex{global_ctrl});
  field("PEBS index", Hex{pebs_index});
  field("BTS index", Hex{bts_index});
}

void fields(auto&& field, MaybeConst<Noise> auto& noise) {
  auto& [involuntary_switches, migrations, smi, steal_s, interrupted, machine_checks, foreign_nmis,
         slices, repeats] = noise;
  field("involuntary switches", involuntary_switches);
  field("migrations", migrations);
  field("SMIs", smi);
  field("stolen seconds", steal_s);
  field("interrupted", interrupted);
  field("machine checks", machine_checks);
  field("foreign NMIs", foreign_nmis);
  field("slices", slices);
  field("repeats", repeats);
}

void fields(auto&& field, MaybeConst<RunLog> auto& log) {
  auto& [read, pmis, pmis_dropped, disturbances, abandoned, result, tsc, sibling_busy, noise] = log;
  field("value read", read);
  field("PMIs", pmis);
  field("dropped PMIs", pmis_dropped);
  field("disturbances", disturbances);
  field("abandoned", abandoned);
  field("result", result);
  field("TSC", tsc);
  field("busy sibling", sibling_busy);
  field("noise", noise);
}

void fields(auto&& field, MaybeConst<Error> auto& error) {
  auto& [code, message, advice] = error;
  field("code", code);
  field("message", message);
  field("advice", advice);
}

// ---------------------------------------------------------------------------------------------------
// The last of each closed list: what lies beyond did not come from an Encoder.

constexpr Provenance last_of(Provenance) { return Provenance::kVirtualLab; }
constexpr Mode last_of(Mode) { return Mode::kReal; }
constexpr Ring last_of(Ring) { return Ring::kUser; }
constexpr MemoryUse last_of(MemoryUse) { return MemoryUse::kDebugStore; }
constexpr Disturbance last_of(Disturbance) { return Disturbance::kReset; }
constexpr Isa last_of(Isa) { return Isa::kFma; }
constexpr ErrorCode last_of(ErrorCode) { return ErrorCode::kNotRecorded; }
constexpr Call last_of(Call) { return Call::kRun; }

template <typename T>
concept ClosedList = std::is_enum_v<T>;
template <typename T>
concept Number = std::unsigned_integral<T> && !std::same_as<T, bool>;

// ---------------------------------------------------------------------------------------------------
// Writing.

struct FieldEncoder {
  Encoder& out;

  void operator()(const char*, const auto& value) { put(value); }

  void put(Number auto value) { out.number(value); }
  void put(bool value) { out.number(value ? 1 : 0); }
  void put(double value) { out.number(std::bit_cast<uint64_t>(value)); }
  void put(std::chrono::milliseconds value) { out.number(static_cast<uint64_t>(value.count())); }
  void put(ClosedList auto value) { out.number(static_cast<uint64_t>(value)); }
  void put(const std::string& value) { out.text(value); }
  void put(const arch::Microarch* value) { out.text(value == nullptr ? "" : value->name); }
  void put(const std::vector<std::byte>& value) { out.blob(value); }
  template <typename T>
  void put(const Hex<T>& field) {
    put(field.value);
  }
  template <typename T>
  void put(const Register<T>& field) {
    put(field.value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    out.number(values.size());
    for (const T& value : values) put(value);
  }
  template <typename T>
  requires std::is_class_v<T>
  void put(const T& group) { fields(*this, group); }
};

template <typename T>
void encode(Encoder& out, const T& value) {
  FieldEncoder{out}.put(value);
}

// ---------------------------------------------------------------------------------------------------
// Reading. What does not fit its type is the Decoder's mistake.

struct FieldDecoder {
  Decoder& in;

  void operator()(const char*, auto&& value) { get(value); }

  template <Number T>
  void get(T& value) {
    const uint64_t wide = in.number();
    value = static_cast<T>(wide);
    if (value != wide) in.fail();
  }
  void get(bool& value) {
    const uint64_t wide = in.number();
    value = wide == 1;
    if (wide > 1) in.fail();
  }
  void get(double& value) { value = std::bit_cast<double>(in.number()); }
  void get(std::chrono::milliseconds& value) {
    value = std::chrono::milliseconds(static_cast<int64_t>(in.number()));
  }
  template <ClosedList T>
  void get(T& value) {
    const uint64_t wide = in.number();
    value = {};
    if (wide > static_cast<uint64_t>(last_of(value))) return in.fail();
    value = static_cast<T>(wide);
  }
  void get(std::string& value) { value = in.text(); }
  // A microarch that this program does not know is a mistake too: nothing could judge such a machine.
  void get(const arch::Microarch*& value) {
    value = nullptr;
    const std::string name = in.text();
    if (name.empty()) return;
    const auto found = arch::find_microarch(name);
    if (!found) return in.fail();
    value = *found;
  }
  void get(std::vector<std::byte>& value) {
    const std::span<const std::byte> bytes = in.blob();
    value.assign(bytes.begin(), bytes.end());
  }
  template <typename T>
  void get(Hex<T>& field) {
    get(field.value);
  }
  template <typename T>
  void get(Register<T>& field) {
    get(field.value);
  }
  template <typename T>
  void get(std::vector<T>& values) {
    values.clear();
    const size_t count = in.count();
    for (size_t i = 0; i < count && in.good(); ++i) get(values.emplace_back());
  }
  template <typename T>
  requires std::is_class_v<T>
  void get(T& group) { fields(*this, group); }
};

template <typename T>
T decode(Decoder& in) {
  T value{};
  FieldDecoder{in}.get(value);
  return value;
}

// ---------------------------------------------------------------------------------------------------
// Words.

struct Fact {
  std::string name;
  std::string value;
  bool operator==(const Fact&) const = default;
};

struct FieldDescriber {
  std::vector<Fact>& facts;

  template <typename T>
  void operator()(const char* name, const T& value) {
    if constexpr (requires { text(value); }) {
      facts.push_back({name, text(value)});
    } else {
      list(name, value);
    }
  }

 private:
  static std::string text(Number auto value) { return fmt::format("{}", value); }
  static std::string text(bool value) { return value ? "yes" : "no"; }
  static std::string text(double value) { return fmt::format("{}", value); }
  static std::string text(std::chrono::milliseconds value) {
    return fmt::format("{} ms", value.count());
  }
  static std::string text(ClosedList auto value) {
    return fmt::format("{}", static_cast<unsigned>(value));
  }
  static std::string text(Mode value) { return name_of(value); }
  static std::string text(Isa value) { return name_of(value); }
  static std::string text(MemoryUse value) {
    constexpr const char* kNames[] = {"data", "code", "debug store"};
    return kNames[static_cast<size_t>(value)];
  }
  static std::string text(const std::string& value) { return value; }
  template <typename T>
  static std::string text(const Hex<T>& field) {
    return fmt::format("{:#x}", field.value);
  }
  template <typename T>
  static std::string text(const Register<T>& field) {
    return arch::msr_name(field.value);
  }

  void list(const char*, const std::vector<std::byte>&) {}  // code: compared byte by byte
  void list(const char* name, const std::vector<uint32_t>& msrs) {
    for (uint32_t msr : msrs) facts.push_back({name, arch::msr_name(msr)});
  }
  void list(const char* name, const std::vector<MsrWrite>& writes) {
    for (const MsrWrite& w : writes) {
      facts.push_back(
          {fmt::format("{}, {},", arch::msr_name(w.msr), name), fmt::format("{:#x}", w.value)});
    }
  }
  template <typename T>
  void list(const char* name, const std::vector<T>& values) {
    for (const T& value : values) (*this)(name, value);
  }
  template <typename T>
  requires std::is_class_v<T>
  void list(const char*, const T& group) { fields(*this, group); }
};

template <typename T>
std::vector<Fact> facts_of(const T& value) {
  std::vector<Fact> facts;
  fields(FieldDescriber{facts}, value);
  return facts;
}

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_FIELDS_H_
