#include "pebs/model/legacy_mode.h"

namespace skidproof::model {
namespace {

constexpr unsigned kGprsOf32BitCode = 8;
constexpr uint64_t kUpperHalf = 0xFFFFFFFF00000000;

uint64_t widened(LegacyUpper how, uint64_t value, uint64_t left) {
  const auto low = static_cast<uint32_t>(value);
  switch (how) {
    case LegacyUpper::kZero:
      return low;
    case LegacyUpper::kLeft:
      return low | (left & kUpperHalf);
    case LegacyUpper::kSign:
      return static_cast<uint64_t>(int64_t{static_cast<int32_t>(low)});
  }
  return low;
}

}  // namespace

Registers any_registers(Random& random) {
  Registers any;
  for (uint64_t& gpr : any.gpr) gpr = random.next();
  any.flags = random.next();
  any.ip = random.next();
  return any;
}

void outside_ia32e(const Behaviour& behaviour, const Registers& left, Registers& registers,
                   RecordData& data) {
  for (unsigned n = 0; n < arch::kGprs; ++n) {
    if (n < kGprsOf32BitCode) {
      registers.gpr[n] = widened(behaviour.legacy_gpr_upper, registers.gpr[n], left.gpr[n]);
    } else {
      registers.gpr[n] = behaviour.legacy_absent_registers_zero ? 0 : left.gpr[n];
    }
  }
  registers.flags = widened(behaviour.legacy_flags_upper, registers.flags, left.flags);
  data.ip = widened(behaviour.legacy_ip_upper, data.ip, left.ip);
  data.eventing_ip = widened(behaviour.legacy_ip_upper, data.eventing_ip, left.ip);
  data.data_address = widened(behaviour.legacy_address_upper, data.data_address, left.gpr[0]);
}

}  // namespace skidproof::model
