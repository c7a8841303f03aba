// Reads CPUID, /proc/cpuinfo and the topology files.
#include "harness/run/native_identity.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "harness/run/cpu_choice.h"
#include "pebs/capabilities.h"

namespace skidproof {
namespace {

using Cpuid = Machine::CpuidResult;

std::string characters(std::initializer_list<uint32_t> registers) {
  std::string text;
  for (uint32_t value : registers) {
    char bytes[4];
    std::memcpy(bytes, &value, sizeof bytes);
    text.append(bytes, sizeof bytes);
  }
  // Padded with zeros or spaces, at either end.
  std::erase(text, '\0');
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Of the basic (0) or the extended (80000000H) range. Unsigned with every compiler's cpuid.h.
uint32_t highest_leaf(uint32_t range) {
  return static_cast<uint32_t>(__get_cpuid_max(range, nullptr));
}

std::string brand_string() {
  std::string brand;
  uint32_t registers[12];
  if (highest_leaf(0x80000000) < 0x80000004) return {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Cpuid part = host_cpuid(0x80000002 + i, 0);
    registers[4 * i] = part.eax;
    registers[4 * i + 1] = part.ebx;
    registers[4 * i + 2] = part.ecx;
    registers[4 * i + 3] = part.edx;
  }
  return characters({registers[0], registers[1], registers[2], registers[3], registers[4],
                     registers[5], registers[6], registers[7], registers[8], registers[9],
                     registers[10], registers[11]});
}

// Intel SDM vol. 2A, CPUID, "Version Information": the extended fields count only for these
// families.
void set_signature(Identity& identity) {
  const uint32_t eax = host_cpuid(1, 0).eax;
  identity.stepping = eax & 0xF;
  identity.model = eax >> 4 & 0xF;
  identity.family = eax >> 8 & 0xF;
  if (identity.family == 0x6 || identity.family == 0xF) identity.model |= (eax >> 16 & 0xF) << 4;
  if (identity.family == 0xF) identity.family += eax >> 20 & 0xFF;
}

std::string hypervisor_signature() {
  if ((host_cpuid(1, 0).ecx >> 31 & 1) == 0) return {};
  const Cpuid leaf = host_cpuid(0x40000000, 0);
  const std::string signature = characters({leaf.ebx, leaf.ecx, leaf.edx});
  return signature.empty() ? "unnamed" : signature;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

uint32_t microcode_of(int cpu) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  bool ours = false;
  while (std::getline(cpuinfo, line)) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const char* value = line.c_str() + colon + 2;
    if (line.starts_with("processor")) ours = std::atoi(value) == cpu;
    if (ours && line.starts_with("microcode")) {
      return static_cast<uint32_t>(std::strtoul(value, nullptr, 0));
    }
  }
  return 0;
}

std::vector<std::string> capabilities() {
  struct Word {
    bool present;
    const char* name;
  };
  const Cpuid extended = host_cpuid(7, 0);
  const Cpuid amd = host_cpuid(0x80000001, 0);
  const Word words[] = {
      {__builtin_cpu_supports("sse4.1") != 0, "sse4.1"},
      {__builtin_cpu_supports("sse4.2") != 0, "sse4.2"},
      {__builtin_cpu_supports("avx") != 0, "avx"},
      {__builtin_cpu_supports("avx2") != 0, "avx2"},
      {__builtin_cpu_supports("bmi2") != 0, "bmi2"},
      {__builtin_cpu_supports("avx512f") != 0, "avx512f"},
      {(extended.ebx >> 9 & 1) != 0, "erms"},
      {(extended.edx >> 4 & 1) != 0, "fsrm"},
      {(extended.edx >> 15 & 1) != 0, "hybrid"},
      {(amd.edx >> 27 & 1) != 0, "rdtscp"},
      {(host_cpuid(0x80000007, 0).edx >> 8 & 1) != 0, "invariant-tsc"},
      {(host_cpuid(1, 0).edx >> 21 & 1) != 0, "ds"},
      {(host_cpuid(1, 0).ecx >> 15 & 1) != 0, "pdcm"},
  };
  std::vector<std::string> names;
  for (const Word& word : words) {
    if (word.present) names.emplace_back(word.name);
  }
  // Architectural performance monitoring, CPUID.0AH:EAX[7:0]: what CPUID claims, not what answers.
  const uint32_t perfmon = host_cpuid(0xA, 0).eax & 0xFF;
  if (perfmon != 0) names.push_back(fmt::format("perfmon-v{}", perfmon));
  return names;
}

}  // namespace

Machine::CpuidResult host_cpuid(uint32_t leaf, uint32_t subleaf) {
  Cpuid result;
  // The hypervisor's range has no maximum that __get_cpuid_max knows; absent, it mirrors another.
  const uint32_t range = leaf & 0xF0000000;
  if (range != 0x40000000 && leaf > highest_leaf(range)) return result;
  __cpuid_count(leaf, subleaf, result.eax, result.ebx, result.ecx, result.edx);
  return result;
}

Identity native_identity(int cpu) {
  Identity identity;
  identity.name = "native";
  identity.provenance = Provenance::kSilicon;
  const Cpuid vendor = host_cpuid(0, 0);
  identity.vendor = characters({vendor.ebx, vendor.edx, vendor.ecx});
  identity.brand = brand_string();
  set_signature(identity);
  identity.microcode = microcode_of(cpu);
  identity.hypervisor = hypervisor_signature();
  // An emulated PC (ci/lab) says so in leaf 40000000H: nothing measured there is silicon's.
  if (identity.hypervisor == "SkidproofLab") identity.provenance = Provenance::kVirtualLab;
  const arch::CoreType core = core_type_of(host_cpuid);
  identity.core_type = letter_of(core);
  if (identity.vendor == "GenuineIntel" && identity.family <= 0xFF) {
    identity.microarch =
        arch::identify(static_cast<uint8_t>(identity.family), static_cast<uint8_t>(identity.model),
                       static_cast<uint8_t>(identity.stepping), core);
  }
  identity.sibling_thread = sibling_of(cpu) >= 0;
  identity.capabilities = capabilities();
  return identity;
}

int sibling_in(std::string_view list, int cpu) {
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(part.size() + 1, list.size()));
    int first = -1, last = -1;
    const char* end = part.data() + part.size();
    const auto [behind, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc()) return -1;
    last = first;
    if (behind != end && *behind == '-' &&
        std::from_chars(behind + 1, end, last).ec != std::errc()) {
      return -1;
    }
    for (int n = first; n <= last; ++n) {
      if (n != cpu) return n;
    }
  }
  return -1;
}

int sibling_of(int cpu) {
  return sibling_in(
      first_line(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)),
      cpu);
}

}  // namespace skidproof
