// PEBS record formats as tables of byte offsets.
#ifndef SKIDPROOF_PEBS_ARCH_RECORD_LAYOUT_H_
#define SKIDPROOF_PEBS_ARCH_RECORD_LAYOUT_H_

#include <array>
#include <cstdint>

namespace skidproof::arch {

// General registers by the number that instructions encode: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI,
// R8….
enum class Gpr : uint8_t {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRsp,
  kRbp,
  kRsi,
  kRdi,
  kR8,
  kR9,
  kR10,
  kR11,
  kR12,
  kR13,
  kR14,
  kR15,
};
inline constexpr unsigned kGprs = 16;

inline constexpr int16_t kAbsent = -1;

// Byte offset of each field in a fixed-layout record; kAbsent where the format has no such field.
struct RecordLayout {
  uint8_t format = 0;  // IA32_PERF_CAPABILITIES[11:8]
  uint16_t bytes = 0;  // of one record
  int16_t flags = kAbsent;
  int16_t ip = kAbsent;
  std::array<int16_t, kGprs> gpr{};  // indexed by Gpr
  int16_t global_status = kAbsent;   // IA32_PERF_GLOBAL_STATUS before the assist
  int16_t data_address = kAbsent;
  int16_t data_source = kAbsent;  // data source encoding, or store status
  int16_t latency = kAbsent;
  int16_t eventing_ip = kAbsent;
  int16_t tx_information = kAbsent;
  int16_t tsc = kAbsent;
  int16_t applicable_counters = kAbsent;
};

namespace internal {
// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8–R15 in the order AX, BX, CX, DX, SI, DI, BP, SP of the
// record.
inline constexpr std::array<int16_t, kGprs> kGprOffsets64 = {
    0x10, 0x20, 0x28, 0x18, 0x48, 0x40, 0x30, 0x38, 0x50, 0x58, 0x60, 0x68, 0x70, 0x78, 0x80, 0x88};
}  // namespace internal

// Format 1. [SDM Table 18-23 "PEBS Record Format for Intel Core i7 Processor Family"]
inline constexpr RecordLayout kRecordFormat1{.format = 1,
                                             .bytes = 0xB0,
                                             .flags = 0x00,
                                             .ip = 0x08,
                                             .gpr = internal::kGprOffsets64,
                                             .global_status = 0x90,
                                             .data_address = 0x98,
                                             .data_source = 0xA0,
                                             .latency = 0xA8};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_RECORD_LAYOUT_H_
