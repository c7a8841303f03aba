// Any bytes for a buffer of architectural records, or of adaptive ones: records within them, or none, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "pebs/record.h"

namespace {

using namespace skidproof;

uint64_t read(const Record& record) {
  uint64_t sum = record.header() ^ record.groups() ^ record.ip() ^ record.flags() ^
                 record.eventing_ip() ^ record.tsc() ^ record.applicable_counters() ^
                 record.data_address() ^ record.data_source() ^ record.latency() ^
                 record.cache_latency() ^ record.tx_information() ^ record.retire_latency();
  for (unsigned i = 0; i < arch::kGprs; ++i) sum ^= record.gpr(static_cast<arch::Gpr>(i));
  for (unsigned n = 0; n < 16; ++n) sum ^= record.xmm(n)[0] ^ record.xmm(n)[1];
  for (unsigned i = 0; i <= record.branches(); ++i) sum ^= record.branch(i).info;
  const auto counters = record.snapshot();
  for (unsigned i = 0; counters && i <= counters->values(); ++i) sum ^= record.snapshot_value(i);
  return sum;
}

void walk(std::span<const std::byte> bytes, const arch::RecordLayout& format) {
  const Records records(bytes, &format);
  size_t seen = 0;
  for (const Record& record : records) {
    const std::span<const std::byte> own = record.bytes();
    if (own.data() < bytes.data() || own.data() + own.size() > bytes.data() + bytes.size())
      std::abort();
    static_cast<void>(read(record));
    ++seen;
  }
  if (seen != records.size() || records.remainder_bytes() > bytes.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // In a block of its own, so that a read beyond the end is one.
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(begin, begin + size);
  walk(bytes, arch::kArchitecturalRecord);
  walk(bytes, arch::kRecordFormat4);
  walk(bytes, arch::kRecordFormat6);
  return 0;
}
