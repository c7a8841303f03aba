#include "pebs/direct/direct_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/jit/executable.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/direct/claim.h"
#include "pebs/direct/driver/skidproof_uapi.h"
#include "pebs/direct/sibling_load.h"
#include "pebs/undisturbed.h"

namespace skidproof::direct {
namespace {

using namespace arch;

constexpr int64_t kMaxDeadline = 60'000;  // ms; the driver takes no longer one
constexpr unsigned kPageFault = 14;

std::string hex(uint64_t value) { return fmt::format("{:#x}", value); }

// A failed ioctl that has no better words.
tl::unexpected<Error> failed(const char* what, int error) {
  switch (error) {
    case ESHUTDOWN:
      // Not kNotAvailable: it was there, and what follows must not pass for a property of the machine.
      return fail(ErrorCode::kIo, fmt::format("cannot {}: the claimed CPU went offline", what),
                  "bring it online and start again");
    case EDEADLK:
      return tl::make_unexpected(words_of_no_bound(what));
    case EBUSY:
      return fail(
          ErrorCode::kIo,
          fmt::format("cannot {}: perf, Intel PT or a hypervisor has begun to use the claimed CPU",
                      what),
          "end what uses perf and the guests, then start again");
    case ENOMEM:
    case ENOSPC:
      return fail(ErrorCode::kNoMemory, fmt::format("cannot {}: {}", what, std::strerror(error)),
                  "free memory, or raise the driver's parameter memory_mib");
    case EPERM:
      return fail(ErrorCode::kPermission, fmt::format("the driver refuses to {}", what));
    case EINVAL:
    case E2BIG:
    case EFAULT:
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cannot {}: {}", what, std::strerror(error)));
    default:
      return fail(ErrorCode::kIo, fmt::format("cannot {}: {}", what, std::strerror(error)));
  }
}

tl::unexpected<Error> general_protection(const char* what, uint32_t msr, uint64_t value,
                                         bool write) {
  return fail(ErrorCode::kGeneralProtection,
              write ? fmt::format("#GP on {} MSR {:#x} with {:#x}", what, msr, value)
                    : fmt::format("#GP on {} MSR {:#x}", what, msr));
}

// An exception in the manual's words (Intel SDM vol. 3A, 6.3.1, table "Protected-Mode Exceptions").
const char* exception(unsigned vector) {
  static constexpr const char* kNames[] = {"#DE divide error",
                                           "#DB debug exception",
                                           "NMI",
                                           "#BP breakpoint",
                                           "#OF overflow",
                                           "#BR bound range exceeded",
                                           "#UD invalid opcode",
                                           "#NM no math coprocessor",
                                           "#DF double fault",
                                           "exception 9",
                                           "#TS invalid TSS",
                                           "#NP segment not present",
                                           "#SS stack-segment fault",
                                           "#GP general protection",
                                           "#PF page fault",
                                           "exception 15",
                                           "#MF floating-point error",
                                           "#AC alignment check",
                                           "#MC machine check",
                                           "#XM SIMD floating-point exception",
                                           "#VE virtualization exception",
                                           "#CP control protection"};
  return vector < std::size(kNames) ? kNames[vector] : "an exception";
}

std::string place(const Program& program, uint64_t ip) {
  const uint64_t end = program.code_address + program.code.size();
  if (ip < program.code_address || ip >= end) {
    return fmt::format("{:#x}, outside its code [{:#x}, {:#x})", ip, program.code_address, end);
  }
  const Instruction* instruction = program.at(ip);
  return fmt::format("{:#x} (code + {:#x}{}{})", ip, ip - program.code_address,
                     instruction == nullptr ? "" : ": ",
                     instruction == nullptr ? "" : instruction->text);
}

// Blocks in use, shared with their handles, which may outlive the machine.
struct Blocks {
  struct Block {
    uint64_t address = 0;
    std::span<std::byte> host;
    MemoryUse use = MemoryUse::kData;
  };
  std::shared_ptr<Device> device;
  std::vector<Block> all;

  // The block that holds all of these bytes.
  const Block* at(uint64_t address, uint64_t bytes) const {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Block& block) {
      return address >= block.address && bytes <= block.host.size() &&
             address - block.address <= block.host.size() - bytes;
    });
    return found == all.end() ? nullptr : &*found;
  }
  void remove(uint64_t address) {
    const Block block = *at(address, 1);
    std::erase_if(all, [address](const Block& each) { return each.address == address; });
    device->unmap(block.host.data(), block.host.size());
    skidproof_free free{.address = address};
    device->control(SKIDPROOF_IOC_FREE, &free);
  }
};

std::vector<skidproof_msr> accesses(const std::vector<MsrWrite>& writes) {
  std::vector<skidproof_msr> list;
  list.reserve(writes.size());
  for (const MsrWrite& w : writes) {
    list.push_back({.msr = w.msr, .write = 1, .fault = 0, .value = w.value});
  }
  return list;
}

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// Whether a core has more than one logical processor, be they online or not. [SDM vol. 2, CPUID, leaf 0BH]
bool has_siblings(const DirectOptions& options) {
  constexpr uint32_t kTopology = 0xB;
  return options.cpuid(0, 0).eax >= kTopology && (options.cpuid(kTopology, 0).ebx & 0xFFFF) > 1;
}

// What the virtual lab plays besides the row.
std::string words_of_the_lab(const DirectOptions& options) {
  constexpr uint32_t kSubleaves = 64;
  std::string words;
  for (uint32_t subleaf = 0; subleaf < kSubleaves; ++subleaf) {
    const Machine::CpuidResult part = options.cpuid(arch::cpuid::kVirtualLabWords, subleaf);
    for (uint32_t four : {part.eax, part.ebx, part.ecx, part.edx}) {
      for (unsigned i = 0; i < 4; ++i) {
        const auto c = static_cast<char>(four >> (8 * i) & 0xFF);
        if (c == 0) return words;
        words += c;
      }
    }
  }
  return words;
}

class DirectMachine final : public Machine {
 public:
  DirectMachine(std::shared_ptr<Device> device, DirectOptions options, const skidproof_claim& claim)
      : device_(std::move(device)), options_(std::move(options)), identity_(options_.host) {
    blocks_->device = device_;
    identity_.pmu = true;
    identity_.modes = {Mode::kLong};
    identity_.sibling_thread = has_siblings(options_);
    if (claim.microcode != 0) identity_.microcode = claim.microcode;
    if (claim.core_type == 0x40) identity_.core_type = "P";
    if (claim.core_type == 0x20) identity_.core_type = "E";
    if (claim.ppin != 0) identity_.capabilities.push_back("ppin=" + hex(claim.ppin));
    identity_.capabilities.push_back("pebs");
    identity_.name = "direct";
    constexpr int64_t kGhz = 1'000'000;  // kHz
    if (claim.tsc_khz > 0 && claim.tsc_khz < kGhz)
      slower_than_1_ghz_ = kGhz / static_cast<int64_t>(claim.tsc_khz);
    if (identity_.hypervisor == kVirtualLab) {
      identity_.provenance = Provenance::kVirtualLab;
      identity_.name = fmt::format(
          "virtual-lab:{}", identity_.microarch == nullptr ? "unknown" : identity_.microarch->name);
      if (const std::string words = words_of_the_lab(options_); !words.empty()) {
        identity_.name += "~" + words;
      }
    }
  }
  ~DirectMachine() override { release(*device_); }

  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    // What the played part says of itself, and the lab's guest must not see: its libraries and its
    // kernel would use what the emulated PC does not have.
    const bool of_the_part = leaf == arch::cpuid::kCaches || leaf == arch::cpuid::kFeatures;
    if (identity_.provenance == Provenance::kVirtualLab && of_the_part) {
      return options_.cpuid(arch::cpuid::kVirtualLabLeaves + leaf, subleaf);
    }
    return options_.cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override;
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override;
  Expected<uint64_t> rdpmc(const CounterRead& read) override;
  Expected<Memory> allocate(const MemoryRequest& request) override;
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override;

 private:
  Expected<void> check(const Program& program, const RunPlan& plan) const;
  Expected<RunLog> run_once(const Program& program, const RunPlan& plan);
  Expected<void> access(skidproof_msr& one, const char* what);
  std::vector<std::byte> save_debug_store() const;
  void restore_debug_store(std::span<const std::byte> saved);

  const std::shared_ptr<Device> device_;
  const DirectOptions options_;
  const std::shared_ptr<Blocks> blocks_ = std::make_shared<Blocks>();
  Identity identity_;
  // An emulated PC's second has fewer cycles, and programs take so many.
  int64_t slower_than_1_ghz_ = 1;
};

Expected<void> DirectMachine::access(skidproof_msr& one, const char* what) {
  skidproof_msrs batch{.list = address_of(&one), .count = 1, .done = 0};
  const std::string described = fmt::format("{} MSR {:#x}", what, one.msr);
  if (const int error = device_->control(SKIDPROOF_IOC_MSRS, &batch); error != 0) {
    return failed(described.c_str(), error);
  }
  if (one.fault != 0)
    return general_protection(one.write != 0 ? "writing" : "reading", one.msr, one.value,
                              one.write != 0);
  return {};
}

Expected<uint64_t> DirectMachine::rdmsr(uint32_t msr) {
  skidproof_msr one{.msr = msr, .write = 0, .fault = 0, .value = 0};
  SKIDPROOF_CHECK(access(one, "read"));
  return one.value;
}

Expected<void> DirectMachine::wrmsr(uint32_t msr, uint64_t value) {
  skidproof_msr one{.msr = msr, .write = 1, .fault = 0, .value = value};
  return access(one, "write");
}

Expected<uint64_t> DirectMachine::rdpmc(const CounterRead& read) {
  skidproof_rdpmc one{};
  one.index = read.index;
  one.cr4_pce = read.cr4_pce ? 1 : 0;
  one.ring = static_cast<uint32_t>(read.ring);
  if (const int error = device_->control(SKIDPROOF_IOC_RDPMC, &one); error != 0) {
    return failed("execute RDPMC", error);
  }
  if (one.fault != 0) {
    return fail(ErrorCode::kGeneralProtection, fmt::format("#GP on RDPMC of {:#x}", read.index));
  }
  return one.value;
}

Expected<Memory> DirectMachine::allocate(const MemoryRequest& request) {
  if (request.low()) {
    return fail(ErrorCode::kNotAvailable,
                "the direct machine runs programs in 64-bit mode only, and has no memory below 4 "
                "GiB for others",
                "run the program in Mode::kLong");
  }
  skidproof_alloc block{};
  block.bytes = request.bytes;
  block.use = request.physical                        ? SKIDPROOF_PEBS_BUFFER
              : request.use == MemoryUse::kCode       ? SKIDPROOF_CODE
              : request.use == MemoryUse::kDebugStore ? SKIDPROOF_DEBUG_STORE
                                                      : SKIDPROOF_DATA;
  const std::string what = fmt::format("allocate {} bytes", request.bytes);
  if (const int error = device_->control(SKIDPROOF_IOC_ALLOC, &block); error != 0) {
    return failed(what.c_str(), error);
  }
  std::byte* view = device_->map(block.offset, block.bytes);
  if (view == nullptr) {
    const int error = errno;
    skidproof_free free{.address = block.address};
    device_->control(SKIDPROOF_IOC_FREE, &free);
    return failed("map a block of the driver's", error);
  }
  Memory memory;
  memory.host = {view, block.bytes};
  memory.address = block.address;
  memory.physical = block.physical;
  memory.keep = std::shared_ptr<void>(
      nullptr, [blocks = blocks_, address = block.address](void*) { blocks->remove(address); });
  blocks_->all.push_back({block.address, memory.host, request.use});
  return memory;
}

Expected<void> DirectMachine::check(const Program& program, const RunPlan& plan) const {
  if (plan.mode != Mode::kLong || program.mode != Mode::kLong) {
    return fail(ErrorCode::kNotAvailable,
                fmt::format("the direct machine runs programs in 64-bit mode, not in {}",
                            name_of(plan.mode == Mode::kLong ? program.mode : plan.mode)),
                "run the program in Mode::kLong");
  }
  if (!plan.disturbances.empty()) {
    return fail(ErrorCode::kNotAvailable,
                "the direct machine cannot bring about SMIs, machine checks or INIT",
                "use a machine that can, for example --machine model:sandy-bridge");
  }
  const Blocks::Block* code = blocks_->at(program.code_address, program.code.size());
  return check_executable(program, code != nullptr && code->use == MemoryUse::kCode,
                          blocks_->at(program.data_address, program.data_bytes) != nullptr);
}

// The plan clears the status that it met; a disturbed run leaves one of its own.
std::vector<std::byte> DirectMachine::save_debug_store() const {
  std::vector<std::byte> saved;
  for (const Blocks::Block& block : blocks_->all) {
    if (block.use != MemoryUse::kDebugStore) continue;
    saved.insert(saved.end(), block.host.begin(), block.host.end());
  }
  return saved;
}

void DirectMachine::restore_debug_store(std::span<const std::byte> saved) {
  for (const Blocks::Block& block : blocks_->all) {
    if (block.use != MemoryUse::kDebugStore) continue;
    std::copy_n(saved.begin(), block.host.size(), block.host.begin());
    saved = saved.subspan(block.host.size());
  }
}

Expected<RunLog> DirectMachine::run(const Program& program, const RunPlan& plan) {
  SKIDPROOF_CHECK(check(program, plan));
  const Blocks::Block* code = blocks_->at(program.code_address, program.code.size());
  std::byte* bytes = code->host.data() + (program.code_address - code->address);
  // Only when it differs: writing code empties the caches that a repeated run wants warm.
  if (std::memcmp(bytes, program.code.data(), program.code.size()) != 0) {
    std::memcpy(bytes, program.code.data(), program.code.size());
  }
  if (!restarts(plan)) return run_once(program, plan);
  const std::vector<std::byte> before = save_debug_store();
  return run_undisturbed(
      *this, plan, options_.attempts,
      [&](const RunPlan& repeated) { return run_once(program, repeated); },
      [&] { restore_debug_store(before); });
}

Expected<RunLog> DirectMachine::run_once(const Program& program, const RunPlan& plan) {
  std::vector<skidproof_msr> enable = accesses(plan.enable), disable = accesses(plan.disable),
                             acknowledge = accesses(plan.pmi.acknowledge), read;
  for (uint32_t msr : plan.read) read.push_back({.msr = msr, .write = 0, .fault = 0, .value = 0});
  std::vector<skidproof_pmi> log(
      std::min<size_t>(plan.pmi.log_capacity, size_t{SKIDPROOF_MAX_PMIS}));

  skidproof_run run{};
  run.entry = program.entry;
  run.iterations = plan.iterations;
  run.data = program.data_address;
  run.ring = static_cast<uint32_t>(plan.ring);
  run.enable = address_of(enable.data());
  run.enable_count = static_cast<uint32_t>(enable.size());
  run.disable = address_of(disable.data());
  run.disable_count = static_cast<uint32_t>(disable.size());
  run.read = address_of(read.data());
  run.read_count = static_cast<uint32_t>(read.size());
  run.acknowledge = address_of(acknowledge.data());
  run.acknowledge_count = static_cast<uint32_t>(acknowledge.size());
  run.log = address_of(log.data());
  run.log_capacity = static_cast<uint32_t>(log.size());
  run.pmi_flags = (plan.pmi.unmask ? SKIDPROOF_PMI_UNMASK : 0) |
                  (plan.pmi.clear_status ? SKIDPROOF_PMI_CLEAR_STATUS : 0) |
                  (plan.pmi.rewind_index ? SKIDPROOF_PMI_REWIND_PEBS : 0) |
                  (plan.pmi.rewind_branches ? SKIDPROOF_PMI_REWIND_BTS : 0) |
                  (plan.pmi.restore_global_ctrl ? SKIDPROOF_PMI_RESTORE_CTRL : 0);
  run.status_msr = plan.pmi.status_msr;
  run.field_bytes = plan.pebs_field_bytes;
  run.pebs_index_address = plan.pebs_index_address;
  run.pebs_base_address = plan.pebs_base_address;
  run.pebs_buffer = plan.pebs_buffer_address;
  run.bts_index_address = plan.bts_index_address;
  run.bts_base_address = plan.bts_base_address;
  const uint64_t fixed =
      identity_.microarch == nullptr ? 0 : identity_.microarch->pebs_fixed_counters;
  const uint64_t counters = identity_.microarch == nullptr ? 0 : identity_.microarch->pebs_counters;
  run.keep_status = 0xFF | counters | fixed << pebs_enable::kFixedShift;
  run.deadline_ms = static_cast<uint32_t>(
      std::clamp<int64_t>(plan.deadline.count() * slower_than_1_ghz_, 1, kMaxDeadline));

  std::optional<SiblingLoad> sibling;
  if (plan.keep_sibling_busy && options_.sibling_cpu >= 0) sibling.emplace(options_.sibling_cpu);

  const std::string what = "run " + program.id();
  if (const int error = device_->control(SKIDPROOF_IOC_RUN, &run); error != 0) {
    return failed(what.c_str(), error);
  }
  switch (run.outcome) {
    case SKIDPROOF_RETURNED:
      break;
    case SKIDPROOF_FAULTED: {
      std::string message = fmt::format("{} ended with {} at {}", program.id(),
                                        exception(run.fault_vector), place(program, run.fault_ip));
      if (run.fault_vector == kPageFault) message += ", accessing " + hex(run.fault_address);
      return fail(ErrorCode::kExecution, message,
                  fmt::format("its data block is [{:#x}, {:#x})", program.data_address,
                              program.data_address + program.data_bytes));
    }
    case SKIDPROOF_TIMED_OUT:
      return fail(ErrorCode::kTimeout,
                  fmt::format("{} was still running after {} ms, at {}", program.id(),
                              run.deadline_ms, place(program, run.fault_ip)),
                  "run fewer iterations, or raise the deadline");
    case SKIDPROOF_MSR_FAULT:
      return general_protection("the plan's access to", run.fault_msr, run.fault_value, true);
    default:
      return fail(ErrorCode::kTimeout, program.id() + " was ended by a signal");
  }
  RunLog result;
  for (const skidproof_msr& one : read) result.read.push_back(one.value);
  for (uint32_t i = 0; i < run.pmis; ++i) {
    const skidproof_pmi& pmi = log[i];
    result.pmis.push_back({.tsc = pmi.tsc,
                           .ip = pmi.ip,
                           .global_status = pmi.global_status,
                           .global_ctrl = pmi.global_ctrl,
                           .pebs_index = pmi.pebs_index,
                           .bts_index = pmi.bts_index});
  }
  result.pmis_dropped = run.pmis_dropped;
  result.result = run.result;
  result.tsc = run.tsc;
  result.sibling_busy = sibling && sibling->running();
  result.noise.smi = run.smis;
  result.noise.machine_checks = run.machine_checks;
  result.noise.foreign_nmis = run.foreign_nmis;
  result.noise.slices = run.slices;
  return result;
}

}  // namespace

Expected<std::unique_ptr<Machine>> make_direct_machine(std::shared_ptr<Device> device,
                                                       const DirectOptions& options) {
  const skidproof_claim claimed = SKIDPROOF_TRY(claim(*device, options.cpu, options.who));
  if ((claimed.flags & SKIDPROOF_DRY_RUN) != 0 && !options.dry_run) {
    release(*device);
    return fail(ErrorCode::kNotAvailable, "the driver was loaded with dry_run=1: nothing counts",
                "rmmod skidproof, and load it without");
  }
  return std::make_unique<DirectMachine>(std::move(device), options, claimed);
}

}  // namespace skidproof::direct
