// What a machine says of itself, and what of a row it replaces.
#include "pebs/capabilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/engines/model_machine.h"

namespace skidproof {
namespace {

using namespace arch;

// Answers CPUID and MSRs out of tables.
class TableMachine final : public Machine {
 public:
  explicit TableMachine(const Microarch& row) {
    identity_.microarch = &row;
    identity_.pmu = true;
    leaves[0] = {.eax = 0x23};
    leaves[1] = {.ecx = cpuid::kPdcm};
  }
  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    const auto found = leaves.find(leaf | subleaf << 16);
    return found == leaves.end() ? CpuidResult{} : found->second;
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override {
    const auto found = msrs.find(msr);
    if (found == msrs.end()) return fail(error, "no such register");
    return found->second;
  }
  Expected<void> wrmsr(uint32_t, uint64_t) override { return {}; }
  Expected<Memory> allocate(const MemoryRequest&) override {
    return fail(ErrorCode::kNoMemory, "none");
  }
  Expected<RunLog> run(const Program&, const RunPlan&) override {
    return fail(ErrorCode::kExecution, "none");
  }

  std::map<uint32_t, CpuidResult> leaves;  // by leaf | subleaf << 16
  std::map<uint32_t, uint64_t> msrs;
  ErrorCode error = ErrorCode::kGeneralProtection;

 private:
  Identity identity_;
};

Capabilities read(Machine& machine) { return read_capabilities(machine).value(); }

TEST(CapabilitiesTest, EveryModelSaysWhatItsRowDoes) {
  for (const Microarch* row : microarchs()) {
    SCOPED_TRACE(std::string(row->name));
    const auto machine = engines::make_model_machine(*row, {});
    ASSERT_TRUE(machine);
    const Capabilities found = read(**machine);
    EXPECT_THAT(differences(found, *row), testing::IsEmpty());
    const Microarch same = as_enumerated(*row, found).value();
    EXPECT_EQ(same.record, row->record);
    EXPECT_EQ(same.ds.bytes, row->ds.bytes);
    EXPECT_EQ(same.perfevtsel_defined, row->perfevtsel_defined);
    EXPECT_EQ(same.tsx, row->tsx);
    EXPECT_EQ(same.sgx, row->sgx);
    EXPECT_EQ(same.processor_trace, row->processor_trace);
    ASSERT_EQ(found.caches.size(), 3u);
    EXPECT_EQ(found.cache(1)->bytes, row->caches.l1_bytes);
    EXPECT_EQ(found.cache(2)->bytes, row->caches.l2_bytes);
    EXPECT_EQ(found.last_level_cache()->bytes, row->caches.l3_bytes);
    EXPECT_EQ(found.last_level_cache()->line_bytes, 64u);
    EXPECT_EQ(found.cache(4), nullptr);
    EXPECT_EQ(found.core_type, row->hybrid ? row->core : CoreType::kUnstated);
    EXPECT_EQ(found.perf_capabilities.has_value(), row->architectural_perfmon());
  }
}

TEST(CapabilitiesTest, RegistersAreReadWhereTheyExist) {
  TableMachine machine(kSkylake);
  EXPECT_FALSE(read(machine).perf_capabilities) << "#GP";
  machine.msrs[IA32_PERF_CAPABILITIES] = perf_capabilities(kSkylake);
  machine.msrs[IA32_MISC_ENABLE] = misc_enable::kPebsUnavailable;
  Capabilities found = read(machine);
  EXPECT_EQ(found.pebs_format, 3u);
  EXPECT_EQ(found.lbr_format, 5u);
  EXPECT_TRUE(found.pebs_trap && found.full_width_writes && found.smm_freeze);
  EXPECT_EQ(found.pebs_available, false);
  EXPECT_EQ(found.bts_available, true);
  machine.leaves[1] = {};
  EXPECT_FALSE(read(machine).perf_capabilities) << "CPUID does not announce it";
}

TEST(CapabilitiesTest, AnErrorOfTheMachineIsOne) {
  TableMachine machine(kSkylake);
  machine.error = ErrorCode::kIo;
  EXPECT_EQ(read_capabilities(machine).error().code, ErrorCode::kIo);
  machine.leaves[7] = {.ebx = cpuid::kRtm};
  EXPECT_TRUE(capabilities_of(machine).tsx) << "CPUID answers all the same";
}

// Cascade Lake without SGX, and with TSX switched off.
TEST(CapabilitiesTest, CpuidDecidesOfTransactionsSgxAndTrace) {
  TableMachine machine(kSkylake);
  machine.leaves[7] = {.ebx = cpuid::kProcessorTrace, .ecx = cpuid::kLa57};
  const Capabilities found = read(machine);
  const Microarch m = as_enumerated(kSkylake, found).value();
  EXPECT_FALSE(m.tsx);
  EXPECT_FALSE(m.sgx);
  EXPECT_TRUE(m.processor_trace);
  EXPECT_TRUE(m.la57);
  EXPECT_EQ(m.perfevtsel_defined & evtsel::kInTx, 0u);
  EXPECT_EQ(clearable_status(m, 4) & status::kAsci, 0u);
  EXPECT_THAT(differences(found, kSkylake),
              testing::IsSupersetOf(
                  {"tsx=false, row: true", "sgx=false, row: true", "la57=true, row: false"}));
  machine.leaves[7] = {.ebx = cpuid::kRtm};
  const Microarch other = as_enumerated(kAlderLakeP, read(machine)).value();
  EXPECT_TRUE(other.tsx);
  EXPECT_NE(other.perfevtsel_defined & evtsel::kInTx, 0u);
}

TEST(CapabilitiesTest, TheReportedFormatHasItsOwnLayouts) {
  TableMachine machine(kSapphireRapids);
  const uint64_t golden = perf_capabilities(kSapphireRapids);
  const auto with_format = [&](uint64_t format, uint64_t more) {
    machine.msrs[IA32_PERF_CAPABILITIES] =
        (golden & ~capabilities::kFormat) | format << capabilities::kFormatShift | more;
    return as_enumerated(kSapphireRapids, read(machine));
  };
  const Microarch five = with_format(5, capabilities::kPebsTimingInfo).value();
  EXPECT_EQ(five.record, &kRecordFormat5);
  EXPECT_EQ(five.ds.fixed_counter_reset(0), 0x140u);
  EXPECT_TRUE(five.pebs_timing_info);
  EXPECT_THAT(
      differences(read(machine), kSapphireRapids),
      testing::IsSupersetOf({"pebs-format=5, row: 4", "pebs-timing-info=true, row: false"}));
  const Microarch four = with_format(4, 0).value();
  EXPECT_EQ(four.record, &kRecordFormat4Split);
  EXPECT_EQ(four.ds.fixed_counter_reset(0), 0x80u);
  const Microarch three = with_format(3, 0).value();
  EXPECT_EQ(three.record, &kRecordFormat3);
  EXPECT_EQ(three.ds.fixed_resets, 0u);
  EXPECT_EQ(with_format(6, capabilities::kPebsTimingInfo).value().record, &kRecordFormat6);
  const auto seven = with_format(7, 0);
  ASSERT_FALSE(seven);
  EXPECT_EQ(seven.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(seven.error().message, testing::HasSubstr("format 7"));
}

class ExtendedLeafTest : public testing::Test {
 protected:
  ExtendedLeafTest() {
    // As a Lunar Lake P-core says it.
    machine.leaves[7] = {.eax = 1};
    machine.leaves[7 | 1 << 16] = {.eax = cpuid::kArchPerfmonExt};
    machine.leaves[0xA] = {.eax = 0x0C30'0806, .ecx = 7, .edx = 0x603};
    machine.leaves[0x23] = {.eax = 0xB, .ebx = 3, .ecx = 8};
    machine.leaves[0x23 | 1 << 16] = {.eax = 0x3FF, .ebx = 0xF};
    machine.leaves[0x23 | 3 << 16] = {.eax = 0xFFF};
  }
  TableMachine machine{kLunarLakeP};
};

TEST_F(ExtendedLeafTest, IsReadBySubleaf) {
  const Capabilities found = read(machine);
  EXPECT_EQ(found.extended, kLunarLakeP.extended);
  EXPECT_EQ(found.gp_counters, 8u);
  EXPECT_EQ(found.fixed_mask, 7u);
  EXPECT_THAT(contradictions(found), testing::IsEmpty());
  machine.leaves[0x23].eax = 3;
  EXPECT_EQ(read(machine).extended.events, 0u) << "subleaf 3 is not named";
  machine.leaves[7 | 1 << 16] = {};
  EXPECT_EQ(read(machine).extended, ExtendedPerfmon{}) << "not announced";
  machine.leaves[7 | 1 << 16] = {.eax = cpuid::kArchPerfmonExt};
  machine.leaves[7] = {};
  EXPECT_EQ(read(machine).extended, ExtendedPerfmon{}) << "07H has no subleaf 1";
  machine.leaves[7] = {.eax = 1};
  machine.leaves[0].eax = 0x22;
  EXPECT_EQ(read(machine).extended, ExtendedPerfmon{}) << "no leaf so high";
}

TEST_F(ExtendedLeafTest, HasAutoReloadWhereItIsNamed) {
  machine.leaves[0x23 | 2 << 16] = {.eax = 0xFC, .ebx = 3, .ecx = 0xF0, .edx = 1};
  EXPECT_FALSE(read(machine).extended.auto_reload()) << "subleaf 2 is not named";
  machine.leaves[0x23].eax = 0xF;
  const ExtendedPerfmon found = read(machine).extended;
  EXPECT_TRUE(found.auto_reload());
  EXPECT_EQ(found.reloaded_gp, 0xFCu);
  EXPECT_EQ(found.reloaded_fixed, 3u);
  EXPECT_EQ(found.reloading_gp, 0xF0u);
  EXPECT_EQ(found.reloading_fixed, 1u);
}

TEST_F(ExtendedLeafTest, DecidesOfCountersAndSelects) {
  machine.leaves[0x23 | 1 << 16] = {.eax = 0x0FF, .ebx = 0x77};
  machine.leaves[0x23].ebx = 2;
  const Microarch m = as_enumerated(kLunarLakeP, read(machine)).value();
  EXPECT_EQ(gp_bits(m, 8), 0xFFu);
  EXPECT_EQ(fixed_bits(m), 0x77u);
  EXPECT_EQ(m.perfevtsel_defined & evtsel::kUmask2, 0u);
  EXPECT_NE(m.perfevtsel_defined & evtsel::kEqual, 0u);
  EXPECT_THAT(
      differences(read(machine), kLunarLakeP),
      testing::IsSupersetOf({"extended-counters=0xff, row: 0x3ff",
                             "extended-fixed-counters=0x77, row: 0xf", "umask2=false, row: true"}));
}

TEST_F(ExtendedLeafTest, AgainstLeaf0Ah) {
  machine.leaves[0x23 | 1 << 16] = {.eax = 0x3F8, .ebx = 0xD};
  EXPECT_THAT(
      contradictions(read(machine)),
      testing::ElementsAre("CPUID.23H lists 7 general-purpose counters, and CPUID.0AH counts 8",
                           "CPUID.23H lacks fixed counter 1, which CPUID.0AH has"));
  EXPECT_THAT(differences(read(machine), kLunarLakeP),
              testing::Contains("CPUID.23H lacks fixed counter 1, which CPUID.0AH has"));
  machine.leaves[0x23 | 1 << 16] = {.eax = 0x3FC, .ebx = 0x7};
  EXPECT_THAT(contradictions(read(machine)), testing::IsEmpty())
      << "eight, though not the lowest: a hypervisor may keep those";
  // 0AH:ECX says of fixed counters what EDX does not.
  machine.leaves[0xA].ecx = 0x17;
  EXPECT_THAT(contradictions(read(machine)),
              testing::ElementsAre("CPUID.23H lacks fixed counter 4, which CPUID.0AH has"));
  machine.leaves[7 | 1 << 16] = {};
  EXPECT_THAT(contradictions(read(machine)),
              testing::ElementsAre(testing::HasSubstr("came with version 6, does not exist")));
  machine.leaves[0xA].eax = 0x0830'0805;
  EXPECT_THAT(contradictions(read(machine)), testing::IsEmpty()) << "version 5 needs none";
}

class ArchPebsLeafTest : public ExtendedLeafTest {
 protected:
  ArchPebsLeafTest() {
    machine.leaves[1].ecx = cpuid::kPdcm;
    machine.msrs[IA32_PERF_CAPABILITIES] = perf_capabilities(kPantherLakeP);
    machine.leaves[0x23].eax = 0x3B;
    machine.leaves[0x23 | 4 << 16] = {.ebx = 0x6006'0378};
    machine.leaves[0x23 | 5 << 16] = {.eax = 0x3FF, .ebx = 0x3, .ecx = 0xF, .edx = 0x1};
  }
};

TEST_F(ArchPebsLeafTest, SaysWhichCountersHavePebsAndWhatRecordsHold) {
  const Capabilities found = read(machine);
  EXPECT_EQ(found.pebs_format, kArchitecturalFormat);
  EXPECT_EQ(found.extended, kPantherLakeP.extended);
  EXPECT_THAT(contradictions(found), testing::IsEmpty());
  machine.leaves[0x23 | 5 << 16] = {.eax = 0xF0, .ebx = 0x10, .ecx = 0x3, .edx = 0x2};
  const Microarch m = as_enumerated(kPantherLakeP, read(machine)).value();
  EXPECT_EQ(m.pebs_counters, 0xF0);
  EXPECT_EQ(m.pdist_counters, 0x10);
  EXPECT_EQ(m.pebs_fixed_counters, 0x3);
  EXPECT_EQ(m.pdir_fixed_counter, 0x2);
  EXPECT_THAT(differences(read(machine), kPantherLakeP),
              testing::Contains(testing::StartsWith("architectural-pebs=0xf0/0x3")));
}

TEST_F(ArchPebsLeafTest, AgainstTheCountersAndTheFormat) {
  machine.leaves[0x23 | 5 << 16] = {.eax = 0x7FF, .ebx = 0x800, .ecx = 0x1F, .edx = 0x40};
  EXPECT_THAT(contradictions(read(machine)),
              testing::ElementsAre(
                  "CPUID.23H.05H lists general-purpose counter 10, which CPUID.23H.01H lacks",
                  "CPUID.23H.05H lists fixed counter 4, which CPUID.23H.01H lacks",
                  "CPUID.23H.05H:EBX/EDX lists general-purpose counter 11, which has no PEBS there",
                  "CPUID.23H.05H:EBX/EDX lists fixed counter 6, which has no PEBS there"));
  for (uint32_t subleaves : {0x0Bu, 0x1Bu, 0x2Bu}) {
    machine.leaves[0x23].eax = subleaves;
    EXPECT_THAT(contradictions(read(machine)),
                testing::Contains(testing::HasSubstr("architectural PEBS is not there")));
    EXPECT_EQ(as_enumerated(kPantherLakeP, read(machine)).error().code, ErrorCode::kUnsupported);
  }
  machine.leaves[0x23].eax = 0x3B;
  machine.msrs[IA32_PERF_CAPABILITIES] &= ~uint64_t{0x900};
  EXPECT_THAT(contradictions(read(machine)),
              testing::Contains(testing::HasSubstr("format 6, and CPUID.23H.00H:EAX[5:4] says")));
  EXPECT_EQ(as_enumerated(kPantherLakeP, read(machine)).error().code, ErrorCode::kUnsupported);
}

TEST_F(ExtendedLeafTest, WithoutAnyCounterIsAnError) {
  machine.leaves[0x23 | 1 << 16] = {};
  const auto none = as_enumerated(kLunarLakeP, read(machine));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(none.error().message, testing::HasSubstr("CPUID.23H.01H:EAX"));
  EXPECT_TRUE(as_enumerated(kSapphireRapids, read(machine))) << "a row that does not need the leaf";
}

TEST(CapabilitiesTest, TheCoreTypeIsToldOnHybridPartsAlone) {
  TableMachine machine(kAlderLakeP);
  machine.leaves[0x1A] = {.eax = 0x2000'0001};
  EXPECT_EQ(read(machine).core_type, CoreType::kUnstated);
  machine.leaves[7] = {.edx = cpuid::kHybrid};
  EXPECT_EQ(read(machine).core_type, CoreType::kAtom);
  machine.leaves[0x1A] = {.eax = 0x4000'0001};
  EXPECT_EQ(read(machine).core_type, CoreType::kCore);
  machine.leaves[0].eax = 0x19;
  EXPECT_EQ(read(machine).core_type, CoreType::kUnstated) << "there is no such leaf";
}

}  // namespace
}  // namespace skidproof
