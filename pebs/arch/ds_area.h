// Layouts of the DS buffer management area.
//
// Source: SDM 18.8.1.1 "Processor Event Based Sampling (PEBS)", Figure 18-22 (64-bit, four resets).
#ifndef SKIDPROOF_PEBS_ARCH_DS_AREA_H_
#define SKIDPROOF_PEBS_ARCH_DS_AREA_H_

#include <cstddef>
#include <cstdint>

namespace skidproof::arch {

// Byte offsets of the fields from IA32_DS_AREA.
struct DsLayout {
  uint32_t field_bytes = 8;  // 4 outside IA-32e mode without DTES64
  uint32_t bts_base = 0x00;
  uint32_t bts_index = 0x08;
  uint32_t bts_maximum = 0x10;
  uint32_t bts_threshold = 0x18;
  uint32_t pebs_base = 0x20;
  uint32_t pebs_index = 0x28;
  uint32_t pebs_maximum = 0x30;
  uint32_t pebs_threshold = 0x38;
  uint32_t reset = 0x40;  // of counter 0; counter n at reset + n * reset_stride
  uint32_t reset_stride = 8;
  uint32_t resets = 4;    // how many slots are documented
  uint32_t bytes = 0x68;  // 60H documented and one reserved quadword
};

// Nehalem, Westmere, Sandy Bridge, Ivy Bridge. [Figure 18-22; Table 18-31 "Unchanged"]
inline constexpr DsLayout kDsFourResets{};

// What a session allocates whatever the layout: room for every known reset array (spec: 40H + 48
// slots).
inline constexpr size_t kDsAllocation = 0x1C0;

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_DS_AREA_H_
