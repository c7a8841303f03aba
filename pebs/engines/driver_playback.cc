#include "pebs/engines/driver_playback.h"

#include <algorithm>
#include <cstring>

#include "pebs/arch/msr.h"

namespace skidproof::engines {

using Kind = lab::JournalEntry::Kind;

DriverPlayback::DriverPlayback(const lab::Journal& journal, model::Core& core, model::Pmu& pmu,
                               const model::CoreBehaviour& behaviour)
    : journal_(journal), core_(core), pmu_(pmu), observer_(core, behaviour, *this) {
  // What was written before the counters ran is the session's, which writes it here, too.
  bool watching = false;
  for (size_t n = 0; n < journal.entries.size(); ++n) {
    const Kind kind = journal.entries[n].kind;
    if (kind == Kind::kWatching && !watching) {
      watching = true;
      at_ = n == 0 ? 0 : n - 1;
    }
    if (kind == Kind::kInstruction) executes_ = true, last_instruction_ = n;
  }
  if (!watching) at_ = journal.entries.size();
}

size_t DriverPlayback::next_deed() const {
  size_t n = at_;
  while (n < journal_.entries.size() && journal_.entries[n].kind == Kind::kLvt) ++n;
  return n;
}

void DriverPlayback::take_up_lvt() {
  for (const size_t deed = next_deed(); at_ < deed; ++at_) {
    static_cast<void>(pmu_.wrmsr(arch::IA32_X2APIC_LVT_PMI, journal_.entries[at_].value));
  }
}

// The processor began to watch with the write before.
void DriverPlayback::take_up_time() {
  if (at_ >= journal_.entries.size() || journal_.entries[at_].kind != Kind::kWatching) return;
  clock_offset_ = journal_.entries[at_++].value - core_.tsc();
  jump();
}

std::optional<MsrWrite> DriverPlayback::next_write() {
  while (at_ < journal_.entries.size()) {
    take_up_lvt();
    if (at_ == journal_.entries.size()) break;
    const lab::JournalEntry& entry = journal_.entries[at_++];
    if (entry.kind != Kind::kWrite) continue;
    take_up_time();
    return MsrWrite{entry.msr, entry.value};
  }
  return std::nullopt;
}

bool DriverPlayback::take_write(uint32_t msr) {
  const size_t deed = next_deed();
  if (deed == journal_.entries.size() || journal_.entries[deed].kind != Kind::kWrite ||
      journal_.entries[deed].msr != msr)
    return false;
  next_write();
  return true;
}

bool DriverPlayback::has_instruction() const {
  const size_t deed = next_deed();
  return deed < journal_.entries.size() && journal_.entries[deed].kind == Kind::kInstruction;
}

// As lab::Processor does it with an instruction that the PMU sees by itself.
Expected<uint64_t> DriverPlayback::play(const model::VectorRegisters& vectors) {
  take_up_lvt();
  const lab::JournalEntry& entry = journal_.entries[at_];
  if (expected_ip_ != 0 && entry.executed.ip != expected_ip_) {
    return fail(ErrorCode::kExecution,
                fmt::format("the lab's driver went on at {:#x}, and here at {:#x}",
                            entry.executed.ip, expected_ip_));
  }
  ++at_;
  Executed executed = entry.executed;
  executed.accesses = entry.accesses;
  observer_.retire(executed, entry.after, retired_);
  retired_.tsc += clock_offset_;
  retired_.vectors = &vectors;
  executed.writes_pmu ? pmu_.retire_write(retired_) : pmu_.retire(retired_);
  const bool branch = retired_.counts[arch::index(arch::Signal::kBranches)] != 0;
  if (!branch && retired_.length != 0 && executed.next_ip != retired_.ip + retired_.length) {
    pmu_.transfer(retired_.ip, executed.next_ip);
  }
  return expected_ip_ = executed.next_ip;
}

size_t DriverPlayback::code(uint64_t address, std::span<std::byte> into) {
  constexpr uint64_t kPage = 4096;
  size_t done = 0;
  while (done < into.size()) {
    const uint64_t offset = (address + done) % kPage;
    const auto page = journal_.code->find(address + done - offset);
    if (page == journal_.code->end()) break;
    const size_t bytes = std::min<size_t>(into.size() - done, kPage - offset);
    std::memcpy(into.data() + done, page->second.data() + offset, bytes);
    done += bytes;
  }
  return done;
}

}  // namespace skidproof::engines
