// The client against a device that is not there: what it asks of the driver, and what it makes of
// the answers.
#include "pebs/direct/direct_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/kernel.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/direct/driver/skidproof_uapi.h"
#include "pebs/session.h"

namespace skidproof::direct {
namespace {

using ::testing::HasSubstr;

// Registers in a map, memory in vectors; a run does what the test says.
class FakeDevice final : public Device {
 public:
  struct Block {
    std::vector<std::byte> bytes;
    uint64_t address = 0;
    uint32_t use = 0;
  };

  int control(unsigned long request, void* argument) override {
    switch (request) {
      case SKIDPROOF_IOC_CLAIM: {
        auto& claim = *static_cast<skidproof_claim*>(argument);
        EXPECT_EQ(claim.abi, uint32_t{SKIDPROOF_ABI});
        claimed_cpu = static_cast<int>(claim.cpu);
        claim.refusal = refusal.refusal;
        claim.detail = refusal.detail;
        claim.flags = refusal.flags;
        claim.microcode = 0x28;
        claim.ppin = 0x1234;
        return refuse_with;
      }
      case SKIDPROOF_IOC_RELEASE:
        ++releases;
        return 0;
      case SKIDPROOF_IOC_MSRS:
        return access(*static_cast<skidproof_msrs*>(argument));
      case SKIDPROOF_IOC_ALLOC: {
        auto& wanted = *static_cast<skidproof_alloc*>(argument);
        if (alloc_error != 0) return alloc_error;
        wanted.bytes = (wanted.bytes + 4095) / 4096 * 4096;
        wanted.address = next_address;
        wanted.offset = next_address & 0xFFFFFF;
        wanted.physical = wanted.use == SKIDPROOF_PEBS_BUFFER ? 0x1234000 : 0;
        next_address += wanted.bytes + 4096;
        blocks[wanted.offset] = {std::vector<std::byte>(wanted.bytes), wanted.address, wanted.use};
        return 0;
      }
      case SKIDPROOF_IOC_FREE: {
        const uint64_t address = static_cast<skidproof_free*>(argument)->address;
        return std::erase_if(blocks,
                             [&](const auto& each) { return each.second.address == address; }) == 1
                   ? 0
                   : EINVAL;
      }
      case SKIDPROOF_IOC_RUN: {
        auto& wanted = *static_cast<skidproof_run*>(argument);
        ++runs;
        last_run = wanted;
        return run ? run(wanted) : 0;
      }
      case SKIDPROOF_IOC_RDPMC: {
        auto& read = *static_cast<skidproof_rdpmc*>(argument);
        EXPECT_TRUE(read.ring == 0 || read.ring == 3);
        read.fault = read.index > 3 || (read.ring == 3 && read.cr4_pce == 0);
        read.value = 77;
        return 0;
      }
      default:
        return ENOTTY;
    }
  }

  std::byte* map(uint64_t offset, size_t bytes) override {
    auto found = blocks.find(offset);
    if (map_fails || found == blocks.end() || found->second.bytes.size() != bytes) {
      errno = ENOMEM;
      return nullptr;
    }
    ++views;
    return found->second.bytes.data();
  }
  void unmap(std::byte*, size_t) override { --views; }

  int access(skidproof_msrs& batch) {
    auto* list = reinterpret_cast<skidproof_msr*>(batch.list);
    for (; batch.done < batch.count; ++batch.done) {
      skidproof_msr& one = list[batch.done];
      if (one.msr == 0x10) return EPERM;
      if (one.msr == 0xC5) {
        one.fault = 1;
      } else if (one.write != 0) {
        registers[one.msr] = one.value;
      } else {
        one.value = registers[one.msr];
      }
    }
    return 0;
  }

  std::map<uint32_t, uint64_t> registers;
  std::map<uint64_t, Block> blocks;
  uint64_t next_address = 0xFFFF'C900'0000'0000;
  skidproof_claim refusal{};
  int refuse_with = 0, alloc_error = 0, claimed_cpu = -1, releases = 0, runs = 0, views = 0;
  bool map_fails = false;
  skidproof_run last_run{};
  std::function<int(skidproof_run&)> run;
};

class DirectMachineTest : public ::testing::Test {
 protected:
  Expected<std::unique_ptr<Machine>> open() {
    DirectOptions options;
    options.cpu = 3;
    options.dry_run = dry_run_;
    options.who = [](const skidproof_claim&) { return "somebody holds it"; };
    options.sibling_cpu = sibling_cpu_;
    options.host = host_;
    options.cpuid = [highest = highest_leaf_, threads = threads_a_core_, words = lab_words_](
                        uint32_t leaf, uint32_t subleaf) {
      if (leaf == 0) return Machine::CpuidResult{.eax = highest};
      if (leaf == arch::cpuid::kVirtualLabWords) {
        const arch::CpuidLeaf part = arch::words_leaf(words, subleaf);
        return Machine::CpuidResult{part.eax, part.ebx, part.ecx, part.edx};
      }
      return Machine::CpuidResult{.eax = leaf + 1, .ebx = leaf == 0xB ? threads : 0};
    };
    return make_direct_machine(device_, options);
  }
  std::unique_ptr<Machine> machine() {
    host_.vendor = "GenuineIntel";
    host_.microarch = arch::find_microarch("sandy-bridge").value();
    auto opened = open();
    EXPECT_TRUE(opened) << opened.error().text();
    return std::move(*opened);
  }
  // A program of one RET in a block of the machine's.
  Program program(Machine& machine) {
    code_ = machine.allocate({.bytes = 64, .use = MemoryUse::kCode}).value();
    Program program;
    program.kernel = "return";
    program.code = {std::byte{0xC3}};
    program.code_address = program.entry = code_.address;
    return program;
  }

  Identity host_;
  uint32_t highest_leaf_ = 0xB, threads_a_core_ = 1;
  int sibling_cpu_ = -1;
  bool dry_run_ = false;
  std::string lab_words_;
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  Memory code_;
};

TEST_F(DirectMachineTest, ClaimsTheCpuAndReleasesIt) {
  {
    const auto opened = machine();
    EXPECT_EQ(device_->claimed_cpu, 3);
    const Identity& who = opened->identity();
    EXPECT_EQ(who.name, "direct");
    EXPECT_EQ(who.provenance, Provenance::kSilicon);
    EXPECT_EQ(who.microcode, 0x28u);
    EXPECT_TRUE(who.pmu);
    EXPECT_THAT(who.capabilities, ::testing::Contains("ppin=0x1234"));
    EXPECT_EQ(opened->cpuid(0xA, 0).eax, 0xBu);
    EXPECT_EQ(device_->releases, 0);
  }
  EXPECT_EQ(device_->releases, 1);
}

TEST_F(DirectMachineTest, KnowsOfASecondThread) {
  EXPECT_FALSE(machine()->identity().sibling_thread);
  threads_a_core_ = 2;
  const auto opened = machine();
  EXPECT_TRUE(opened->identity().sibling_thread);
  highest_leaf_ = 0xA;
  EXPECT_FALSE(machine()->identity().sibling_thread) << "no leaf says so";
}

TEST_F(DirectMachineTest, KeepsTheSiblingBusyWhereItIsAsked) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(static_cast<size_t>(cpu), &allowed)) ++cpu;
  const auto busy = [&](int sibling, bool asked) {
    sibling_cpu_ = sibling;
    const auto direct = machine();
    RunPlan plan;
    plan.keep_sibling_busy = asked;
    return direct->run(program(*direct), plan).value().sibling_busy;
  };
  EXPECT_TRUE(busy(cpu, true));
  EXPECT_FALSE(busy(cpu, false));
  EXPECT_FALSE(busy(-1, true)) << "there is none";
  EXPECT_FALSE(busy(CPU_SETSIZE - 1, true)) << "it is offline";
}

TEST_F(DirectMachineTest, ADifferentHypervisorIsNoLab) {
  host_.hypervisor = "KVMKVMKVM";
  EXPECT_EQ(machine()->identity().provenance, Provenance::kSilicon);
  host_.hypervisor = kVirtualLab;
  const auto lab = machine();
  EXPECT_EQ(lab->identity().provenance, Provenance::kVirtualLab);
  EXPECT_EQ(lab->identity().name, "virtual-lab:sandy-bridge");
  EXPECT_EQ(lab->cpuid(7, 0).eax, arch::cpuid::kVirtualLabLeaves + 8)
      << "as the played part has it";
  EXPECT_EQ(lab->cpuid(0xA, 0).eax, 0xBu);
}

TEST_F(DirectMachineTest, TheLabSaysWhatItPlaysBesidesTheRow) {
  host_.hypervisor = kVirtualLab;
  for (const char* words : {"rough=7", "rough=1234567890", "assist_cycles=900,tagging=0.02"}) {
    lab_words_ = words;
    EXPECT_EQ(machine()->identity().name, std::string("virtual-lab:sandy-bridge~") + words);
  }
}

// The words are claim_test.cc's.
TEST_F(DirectMachineTest, ARefusalSaysWhatMendsItAndWhoHoldsIt) {
  device_->refusal.refusal = SKIDPROOF_COUNTERS_HELD;
  device_->refusal.detail = 0xC1;
  device_->refuse_with = EBUSY;
  const auto opened = open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kNotAvailable);
  EXPECT_THAT(opened.error().text(), HasSubstr("sysctl kernel.nmi_watchdog=0"));
  EXPECT_THAT(opened.error().message, HasSubstr("MSR 0xc1 is held"));
  EXPECT_THAT(opened.error().message, HasSubstr("somebody holds it"));
}

TEST_F(DirectMachineTest, ADriverThatStartsNoCountersIsNoMachineUnlessThatIsWanted) {
  device_->refusal.flags = SKIDPROOF_DRY_RUN;
  const auto refused = open();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotAvailable);
  EXPECT_THAT(refused.error().message, HasSubstr("dry_run=1"));
  EXPECT_EQ(device_->releases, 1) << "the CPU goes back at once";
  dry_run_ = true;
  EXPECT_TRUE(open());
}

TEST_F(DirectMachineTest, MsrsAnswerWithValuesFaultsAndRefusals) {
  const auto direct = machine();
  ASSERT_TRUE(direct->wrmsr(0xC1, 42));
  EXPECT_EQ(direct->rdmsr(0xC1).value(), 42u);
  EXPECT_EQ(direct->rdmsr(0xC5).error().code, ErrorCode::kGeneralProtection);
  EXPECT_EQ(direct->wrmsr(0xC5, 1).error().code, ErrorCode::kGeneralProtection);
  EXPECT_EQ(direct->rdmsr(0x10).error().code, ErrorCode::kPermission);
}

TEST_F(DirectMachineTest, RdpmcIsExecutedAtEitherRing) {
  const auto direct = machine();
  EXPECT_EQ(direct->rdpmc({.index = 0}).value(), 77u);
  EXPECT_EQ(direct->rdpmc({.index = 9}).error().code, ErrorCode::kGeneralProtection);
  EXPECT_EQ(direct->rdpmc({.index = 0, .ring = Ring::kUser}).value(), 77u);
  EXPECT_EQ(direct->rdpmc({.index = 0, .ring = Ring::kUser, .cr4_pce = false}).error().code,
            ErrorCode::kGeneralProtection);
}

TEST_F(DirectMachineTest, MemoryIsFreedWithItsLastHandle) {
  const auto direct = machine();
  {
    Memory memory = direct->allocate({.bytes = 5000, .use = MemoryUse::kDebugStore}).value();
    EXPECT_EQ(memory.host.size(), 8192u);
    EXPECT_EQ(device_->blocks.begin()->second.use, uint32_t{SKIDPROOF_DEBUG_STORE});
    const Memory copy = memory;
    memory = {};
    EXPECT_EQ(device_->blocks.size(), 1u);
  }
  EXPECT_TRUE(device_->blocks.empty());
  EXPECT_EQ(device_->views, 0);
}

TEST_F(DirectMachineTest, MemoryThatCannotBeHadLeavesNothingBehind) {
  const auto direct = machine();
  for (const MemoryRequest& low : {MemoryRequest{.bytes = 64, .below_4g = true},
                                   MemoryRequest{.bytes = 64, .across_4g = true}}) {
    EXPECT_EQ(direct->allocate(low).error().code, ErrorCode::kNotAvailable);
  }
  device_->map_fails = true;
  EXPECT_EQ(direct->allocate({.bytes = 64}).error().code, ErrorCode::kNoMemory);
  EXPECT_TRUE(device_->blocks.empty());
  device_->alloc_error = ENOSPC;
  EXPECT_EQ(direct->allocate({.bytes = 64}).error().code, ErrorCode::kNoMemory);
}

TEST_F(DirectMachineTest, APebsBufferStandsWhereTheDriverSays) {
  const auto direct = machine();
  const Memory buffer =
      direct->allocate({.bytes = 4096, .use = MemoryUse::kDebugStore, .physical = true}).value();
  EXPECT_EQ(buffer.physical, 0x1234000u);
  EXPECT_EQ(device_->blocks.begin()->second.use, uint32_t{SKIDPROOF_PEBS_BUFFER});
  EXPECT_EQ(direct->allocate({.bytes = 64, .use = MemoryUse::kDebugStore}).value().physical, 0u);
  const Program code = program(*direct);
  RunPlan plan;
  plan.pebs_buffer_address = buffer.address;
  ASSERT_TRUE(direct->run(code, plan));
  EXPECT_EQ(device_->last_run.pebs_buffer, buffer.address);
}

TEST_F(DirectMachineTest, ARunIsHandedOverWhole) {
  const auto direct = machine();
  const Program code = program(*direct);
  device_->run = [](skidproof_run& run) {
    auto* enable = reinterpret_cast<skidproof_msr*>(run.enable);
    EXPECT_EQ(enable[1].msr, arch::IA32_PERF_GLOBAL_CTRL);
    EXPECT_EQ(enable[1].value, 1u);
    reinterpret_cast<skidproof_msr*>(run.read)[0].value = 99;
    auto* log = reinterpret_cast<skidproof_pmi*>(run.log);
    log[0] = {
        .tsc = 1, .ip = 2, .global_status = 3, .global_ctrl = 4, .pebs_index = 5, .bts_index = 6};
    run.pmis = 1;
    run.pmis_dropped = 7;
    run.result = 8;
    run.tsc = 9;
    return 0;
  };
  RunPlan plan;
  plan.iterations = 12;
  plan.enable = {{0x186, 0}, {arch::IA32_PERF_GLOBAL_CTRL, 1}};
  plan.disable = {{arch::IA32_PERF_GLOBAL_CTRL, 0}};
  plan.read = {0xC1};
  plan.pmi.rewind_index = true;
  const RunLog log = direct->run(code, plan).value();
  EXPECT_EQ(log.read, std::vector<uint64_t>{99});
  ASSERT_EQ(log.pmis.size(), 1u);
  EXPECT_EQ(log.pmis[0].ip, 2u);
  EXPECT_EQ(log.pmis[0].bts_index, 6u);
  EXPECT_EQ(log.pmis_dropped, 7u);
  EXPECT_EQ(log.result, 8u);
  EXPECT_EQ(device_->last_run.iterations, 12u);
  EXPECT_EQ(device_->last_run.pmi_flags,
            SKIDPROOF_PMI_UNMASK | SKIDPROOF_PMI_CLEAR_STATUS | SKIDPROOF_PMI_REWIND_PEBS);
  EXPECT_EQ(device_->last_run.keep_status, 0xFFu);
  EXPECT_EQ(device_->blocks.begin()->second.bytes[0], std::byte{0xC3});
}

TEST_F(DirectMachineTest, ARunThatThisMachineCannotDoIsRefusedBeforeTheDriverSeesIt) {
  const auto direct = machine();
  Program code = program(*direct);
  RunPlan plan;
  plan.mode = Mode::kReal;
  EXPECT_EQ(direct->run(code, plan).error().code, ErrorCode::kNotAvailable);
  plan = {};
  plan.disturbances = {{}};
  EXPECT_EQ(direct->run(code, plan).error().code, ErrorCode::kNotAvailable);
  plan = {};
  code.data_bytes = 8;
  code.data_address = 0x1000;
  EXPECT_EQ(direct->run(code, plan).error().code, ErrorCode::kInvalidArgument);
  code.data_bytes = 0;
  code.entry = code.code_address + 1;
  EXPECT_EQ(direct->run(code, plan).error().code, ErrorCode::kInvalidArgument);
  code.code_address = 0x1000;
  EXPECT_EQ(direct->run(code, plan).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(device_->runs, 0);
}

TEST_F(DirectMachineTest, AProgramRunsAtTheRingOfItsPlan) {
  const auto direct = machine();
  const Program code = program(*direct);
  RunPlan plan;
  ASSERT_TRUE(direct->run(code, plan));
  EXPECT_EQ(device_->last_run.ring, 0u);
  plan.ring = Ring::kUser;
  ASSERT_TRUE(direct->run(code, plan));
  EXPECT_EQ(device_->last_run.ring, 3u);
  EXPECT_EQ(device_->last_run.entry, code.entry) << "where it stands at ring 0";
}

TEST_F(DirectMachineTest, OutcomesBecomeErrors) {
  const auto direct = machine();
  const Program code = program(*direct);
  const auto error_of = [&](uint32_t outcome) {
    device_->run = [outcome](skidproof_run& run) {
      run.outcome = outcome;
      run.fault_vector = 14;
      run.fault_address = 0xBAD;
      run.fault_ip = run.entry;
      run.fault_msr = 0x38F;
      return 0;
    };
    return direct->run(code, {}).error();
  };
  EXPECT_EQ(error_of(SKIDPROOF_FAULTED).code, ErrorCode::kExecution);
  EXPECT_THAT(error_of(SKIDPROOF_FAULTED).message, HasSubstr("#PF"));
  EXPECT_THAT(error_of(SKIDPROOF_FAULTED).message, HasSubstr("0xbad"));
  EXPECT_EQ(error_of(SKIDPROOF_TIMED_OUT).code, ErrorCode::kTimeout);
  EXPECT_EQ(error_of(SKIDPROOF_MSR_FAULT).code, ErrorCode::kGeneralProtection);
  EXPECT_EQ(error_of(SKIDPROOF_INTERRUPTED).code, ErrorCode::kTimeout);
  device_->run = [](skidproof_run&) { return ESHUTDOWN; };
  EXPECT_EQ(direct->run(code, {}).error().code, ErrorCode::kIo);
}

TEST_F(DirectMachineTest, ADisturbedRunIsRepeatedWithTheDebugStoreAsItWas) {
  const auto direct = machine();
  const Program code = program(*direct);
  const Memory store = direct->allocate({.bytes = 64, .use = MemoryUse::kDebugStore}).value();
  store.host[0] = std::byte{1};
  int disturbed = 1;
  device_->run = [&](skidproof_run& run) {
    EXPECT_EQ(store.host[0], std::byte{1});
    store.host[0] = std::byte{2};
    run.smis = disturbed-- > 0 ? 1 : 0;
    return 0;
  };
  RunPlan plan;
  plan.enable = {{arch::IA32_PERF_GLOBAL_OVF_CTRL, 1}};
  const RunLog log = direct->run(code, plan).value();
  EXPECT_EQ(device_->runs, 2);
  EXPECT_EQ(log.noise.repeats, 1u);
  EXPECT_EQ(log.noise.smi, 0u);
  EXPECT_EQ(store.host[0], std::byte{2});
}

// The plan was made before the disturbed run, which left a status of its own.
TEST_F(DirectMachineTest, ARepeatedRunClearsTheStatusThatTheDisturbedOneLeft) {
  const auto direct = machine();
  const Program code = program(*direct);
  std::vector<uint64_t> cleared;
  device_->run = [&](skidproof_run& run) {
    const auto* enable = reinterpret_cast<const skidproof_msr*>(run.enable);
    cleared.push_back(enable[0].value);
    device_->registers[arch::IA32_PERF_GLOBAL_STATUS] = arch::status::kOvfBuffer;
    run.smis = cleared.size() == 1 ? 1 : 0;
    return 0;
  };
  RunPlan plan;
  plan.enable = {{arch::IA32_PERF_GLOBAL_OVF_CTRL, 1}};
  ASSERT_TRUE(direct->run(code, plan));
  EXPECT_THAT(cleared, ::testing::ElementsAre(1, arch::status::kOvfBuffer | 1));
}

// Delivery of the PMI masked the entry (R51), and this plan's handler leaves it so.
TEST_F(DirectMachineTest, ARepeatedRunFindsTheLvtEntryThatTheFirstFound) {
  const auto direct = machine();
  const Program code = program(*direct);
  uint64_t& entry = device_->registers[arch::IA32_X2APIC_LVT_PMI];
  entry = arch::lvt::kNmi;
  std::vector<uint64_t> found;
  device_->run = [&](skidproof_run& run) {
    found.push_back(entry);
    entry |= arch::lvt::kMasked;
    run.smis = found.size() == 1 ? 1 : 0;
    return 0;
  };
  RunPlan plan;
  plan.enable = {{arch::IA32_PERF_GLOBAL_OVF_CTRL, 1}};
  plan.pmi.unmask = false;
  ASSERT_TRUE(direct->run(code, plan));
  EXPECT_THAT(found, ::testing::ElementsAre(arch::lvt::kNmi, arch::lvt::kNmi));
  EXPECT_EQ(entry, arch::lvt::kNmi | arch::lvt::kMasked);
}

TEST_F(DirectMachineTest, ARunThatCannotBeRepeatedSaysThatItWasDisturbed) {
  const auto direct = machine();
  const Program code = program(*direct);
  device_->run = [](skidproof_run& run) {
    run.foreign_nmis = 1;
    return 0;
  };
  EXPECT_EQ(direct->run(code, {}).value().noise.foreign_nmis, 1u);
  EXPECT_EQ(device_->runs, 1);
  // However often it is repeated: an end there is.
  RunPlan plan;
  plan.enable = {{arch::IA32_PERF_GLOBAL_OVF_CTRL, 1}};
  const RunLog log = direct->run(code, plan).value();
  EXPECT_EQ(device_->runs, 4);
  EXPECT_EQ(log.noise.repeats, 2u);
  EXPECT_EQ(log.noise.foreign_nmis, 1u);
}

TEST_F(DirectMachineTest, ASessionWorksThroughIt) {
  const auto direct = machine();
  const Program code = program(*direct);
  const arch::Event* event = direct->identity().microarch->event("BR_INST_RETIRED.ALL_BRANCHES");
  ASSERT_NE(event, nullptr);
  device_->registers[arch::IA32_PERF_GLOBAL_CTRL] = 0xF;
  {
    auto session = Session::open(*direct, {.counters = {CounterSetup::of(0, *event, 100)}});
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ(device_->registers[arch::IA32_PERF_GLOBAL_CTRL], 0u);
    ASSERT_TRUE(session->run(code, 5));
    EXPECT_EQ(device_->last_run.pebs_index_address, session->ds_address() + 0x28);
  }
  EXPECT_EQ(device_->registers[arch::IA32_PERF_GLOBAL_CTRL], 0xFu);
}

}  // namespace
}  // namespace skidproof::direct
