#include "harness/errata/subject.h"

namespace skidproof::errata {

std::string core_word(arch::CoreType core) {
  if (core == arch::CoreType::kCore) return "P";
  return core == arch::CoreType::kAtom ? "E" : "";
}

arch::CoreType core_of(std::string_view word) {
  if (word == "P") return arch::CoreType::kCore;
  return word == "E" ? arch::CoreType::kAtom : arch::CoreType::kUnstated;
}

Subject subject_of(const Identity& who) {
  Subject subject;
  subject.played = who.provenance != Provenance::kSilicon;
  subject.vendor = subject.played ? std::string() : who.vendor;
  if (who.family != 0) {
    subject.part = arch::Part{.family = who.family,
                              .model = who.model,
                              .stepping = who.stepping,
                              .microcode = who.microcode};
  }
  subject.core = core_of(who.core_type);
  subject.hypervisor = subject.played ? std::string() : who.hypervisor;
  subject.hyper_threading = who.sibling_thread;
  return subject;
}

}  // namespace skidproof::errata
