#include "harness/fuzz/violation.h"

namespace skidproof::fuzz {

std::string_view name_of(Check check) {
  switch (check) {
    case Check::kAccess:
      return "access";
    case Check::kRegisters:
      return "registers";
    case Check::kMemory:
      return "memory";
    case Check::kIndex:
      return "index";
    case Check::kPlace:
      return "place";
    case Check::kRecord:
      return "record";
    case Check::kExtra:
      return "extra record";
    case Check::kContents:
      return "record contents";
    case Check::kCount:
      return "count";
    case Check::kStatus:
      return "status";
    case Check::kInterrupts:
      return "interrupts";
  }
  return "";
}

}  // namespace skidproof::fuzz
