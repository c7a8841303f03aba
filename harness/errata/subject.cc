#include "harness/errata/subject.h"

namespace skidproof::errata {

std::string lacks(const arch::Erratum& erratum, const Subject& subject) {
  const bool shared = erratum.needs_one("hyper-threading");
  return shared && subject.hyper_threading == false ? "it needs hyper-threading, which is off" : "";
}

std::string core_word(arch::CoreType core) {
  if (core == arch::CoreType::kCore) return "P";
  return core == arch::CoreType::kAtom ? "E" : "";
}

arch::CoreType core_of(std::string_view word) {
  if (word == "P") return arch::CoreType::kCore;
  return word == "E" ? arch::CoreType::kAtom : arch::CoreType::kUnstated;
}

Subject subject_of(const results::MachineRow& row) {
  Subject subject;
  subject.played = row.provenance != results::RowProvenance::kSilicon;
  if (!subject.played) {
    subject.vendor = row.vendor;
    subject.hypervisor = row.hypervisor;
    constexpr std::string_view kLinux = "Linux ";
    if (row.os.starts_with(kLinux)) subject.linux_release = row.os.substr(kLinux.size());
  }
  if (row.family != 0) {
    subject.part = arch::Part{.family = row.family,
                              .model = row.model,
                              .stepping = row.stepping,
                              .microcode = row.microcode.value_or(0)};
  }
  subject.core = core_of(row.core_type);
  subject.hyper_threading = row.sibling_thread;
  return subject;
}

}  // namespace skidproof::errata
