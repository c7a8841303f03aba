// What RDMSR and WRMSR answer where the processor raises #GP.
#ifndef SKIDPROOF_PEBS_MODEL_GENERAL_PROTECTION_H_
#define SKIDPROOF_PEBS_MODEL_GENERAL_PROTECTION_H_

#include <fmt/format.h>

#include <cstdint>

#include "base/expected.h"
#include "pebs/arch/names.h"

namespace skidproof::model {

inline tl::unexpected<Error> refused_read(uint32_t msr) {
  return fail(ErrorCode::kGeneralProtection,
              fmt::format("#GP from RDMSR of {} ({:X}H)", arch::msr_name(msr), msr));
}

inline tl::unexpected<Error> refused_write(uint32_t msr, uint64_t value) {
  return fail(ErrorCode::kGeneralProtection, fmt::format("#GP from WRMSR of {} ({:X}H) with {:#x}",
                                                         arch::msr_name(msr), msr, value));
}

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_GENERAL_PROTECTION_H_
