// The journal's file, and the model machine under what a journal tells.
#include "pebs/engines/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <initializer_list>

#include "pebs/arch/msr.h"
#include "pebs/engines/model_machine.h"
#include "pebs/session.h"

namespace skidproof::lab {
namespace {

using namespace arch;
using EntryKind = JournalEntry::Kind;

constexpr uint64_t kDriverPage = 0xFFFF'FFFF'C000'0000, kBlock = 0x4000'0001'0000;

// Everywhere the same bytes.
class Nops final : public engines::CodeMemory {
 public:
  size_t code(uint64_t, std::span<std::byte> into) override {
    std::fill(into.begin(), into.end(), std::byte{0x90});
    return into.size();
  }
};

std::string journal_path() { return ::testing::TempDir() + "journal_test.journal"; }

TEST(Journal, ReadsBackWhatWasWritten) {
  const std::string path = journal_path();
  {
    auto writer = JournalWriter::create(path).value();
    Nops memory;
    writer->wrote(IA32_PEBS_ENABLE, 1);  // before any beginning: nobody's
    writer->begin(42);
    writer->wrote(IA32_PERF_GLOBAL_CTRL, 3);
    writer->watching(1000);
    writer->lvt(0x400);
    const std::array<engines::SeenAccess, 2> accesses{
        {{.address = 0x1000, .bytes = 8, .load = true},
         {.address = 0x2000, .bytes = 4, .load = true, .store = true}}};
    model::Registers after;
    after.gpr[5] = 55;
    after.ip = kDriverPage + 1;
    writer->executed({.ip = kDriverPage,
                      .next_ip = kDriverPage + 1,
                      .taken = true,
                      .repetitions = 3,
                      .accesses = accesses},
                     after, memory);
    writer->begin(43);
  }
  const std::vector<Journal> journals = read_journals(path).value();
  ASSERT_EQ(journals.size(), 2u);
  EXPECT_EQ(journals[0].seed, 42u);
  EXPECT_EQ(journals[1].seed, 43u);
  EXPECT_TRUE(journals[1].entries.empty());
  const std::vector<JournalEntry>& entries = journals[0].entries;
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].kind, EntryKind::kWrite);
  EXPECT_EQ(entries[0].msr, IA32_PERF_GLOBAL_CTRL);
  EXPECT_EQ(entries[1].kind, EntryKind::kWatching);
  EXPECT_EQ(entries[1].value, 1000u);
  EXPECT_EQ(entries[2].kind, EntryKind::kLvt);
  EXPECT_EQ(entries[3].kind, EntryKind::kInstruction);
  EXPECT_EQ(entries[3].executed.ip, kDriverPage);
  EXPECT_TRUE(entries[3].executed.taken);
  EXPECT_EQ(entries[3].executed.repetitions, 3u);
  ASSERT_EQ(entries[3].accesses.size(), 2u);
  EXPECT_EQ(entries[3].accesses[1].address, 0x2000u);
  EXPECT_TRUE(entries[3].accesses[1].store);
  EXPECT_FALSE(entries[3].accesses[0].store);
  EXPECT_EQ(entries[3].after.gpr[5], 55u);
  EXPECT_EQ(entries[3].after.ip, kDriverPage + 1);
  ASSERT_EQ(journals[0].code->count(kDriverPage), 1u);
  EXPECT_EQ(journals[0].code->at(kDriverPage)[17], std::byte{0x90});
}

TEST(Journal, AFileThatEndsInTheMiddleIsAnError) {
  const std::string path = journal_path();
  std::ofstream(path) << "no journal";
  EXPECT_EQ(read_journals(path).error().code, ErrorCode::kInvalidArgument);
  std::remove(path.c_str());
  EXPECT_EQ(read_journals(path).error().code, ErrorCode::kIo);
}

// --- Circumstances

// A driver of NOPs.
struct Driver {
  Journal journal;
  CodePages pages;

  Driver() { pages[kDriverPage].fill(std::byte{0x90}); }
  void write(uint32_t msr, uint64_t value) {
    JournalEntry entry;
    entry.kind = EntryKind::kWrite;
    entry.msr = msr;
    entry.value = value;
    journal.entries.push_back(entry);
  }
  void watching(uint64_t tsc) {
    JournalEntry entry;
    entry.kind = EntryKind::kWatching;
    entry.value = tsc;
    journal.entries.push_back(entry);
  }
  // NOPs, the last of which leads to `to`.
  void execute(uint64_t nops, uint64_t to) {
    for (uint64_t n = 0; n < nops; ++n) {
      JournalEntry entry;
      entry.kind = EntryKind::kInstruction;
      entry.executed = {.ip = kDriverPage + n, .next_ip = n + 1 < nops ? kDriverPage + n + 1 : to};
      journal.entries.push_back(entry);
    }
  }
};

struct JournalOutcome {
  Expected<SessionRun> run = fail(ErrorCode::kInternal, "");
  uint64_t code = 0;
};

// A hundred NOPs under instructions counted by fixed counter 0, on the machine that this driver makes.
JournalOutcome run_under(Driver driver, FixedSetup counter) {
  driver.journal.code = std::make_shared<const CodePages>(driver.pages);
  auto there = std::make_shared<engines::Circumstances>();
  there->blocks = {kBlock, kBlock + (1 << 20), kBlock + (2 << 20)};
  there->stack_top = kBlock - 64;
  there->return_address = kDriverPage + 0x100;
  there->driver = std::move(driver.journal);
  auto made =
      engines::make_model_machine(**find_microarch("sandy-bridge"),
                                  {.sibling_thread = false, .circumstances = std::move(there)});
  if (!made) return {.run = tl::make_unexpected(made.error())};
  const std::unique_ptr<Machine> machine = std::move(*made);
  const Memory code = machine->allocate({.use = MemoryUse::kCode}).value();
  Program program;
  program.kernel = "nops";
  program.code.assign(100, std::byte{0x90});
  program.code.push_back(std::byte{0xC3});
  program.code_address = program.entry = program.data_address = code.address;
  JournalOutcome outcome;
  outcome.code = code.address;
  auto session = Session::open(*machine, {.counters = {}, .fixed = {counter}});
  outcome.run = session ? session->run(program, 1) : tl::make_unexpected(session.error());
  return outcome;
}

TEST(Circumstances, TheDriversInstructionsCountAndMemoryStandsWhereItStood) {
  Driver driver;
  driver.write(IA32_PERF_GLOBAL_CTRL, bit(32));
  driver.watching(5000);
  driver.execute(4, kBlock);
  driver.execute(3, kDriverPage + 3);
  driver.write(IA32_PERF_GLOBAL_CTRL, 0);
  const JournalOutcome outcome = run_under(driver, {.counter = 0});
  EXPECT_EQ(outcome.code, kBlock);
  ASSERT_TRUE(outcome.run) << outcome.run.error().message;
  EXPECT_EQ(outcome.run->fixed.at(0), 4u + 101 + 3);
}

TEST(Circumstances, AnInterruptIsHandledAsTheDriverDidIt) {
  // The overflow comes with the 54th instruction; how far the interrupt skids is the model's to say.
  const FixedSetup counter{.counter = 0, .interrupt = true, .period = 54};
  Driver alone;
  alone.write(IA32_PERF_GLOBAL_CTRL, bit(32));
  alone.watching(5000);
  alone.execute(4, kBlock);
  const JournalOutcome refused = run_under(alone, counter);
  ASSERT_FALSE(refused.run);
  EXPECT_NE(refused.run.error().message.find("where the lab's driver was not"), std::string::npos);

  // Instructions of the handler while the counters run: 5 on the way in, 2 on the way out.
  uint64_t counted = 0;
  for (uint64_t ip = kBlock + 50; ip < kBlock + 100 && counted == 0; ++ip) {
    Driver driver = alone;
    driver.execute(5, kDriverPage + 5);
    driver.write(IA32_PERF_GLOBAL_CTRL, 0);
    driver.write(IA32_PERF_GLOBAL_OVF_CTRL, bit(32));
    driver.write(IA32_PERF_GLOBAL_CTRL, bit(32));
    driver.watching(9000);
    driver.execute(2, ip);
    driver.execute(3, kDriverPage + 3);
    driver.write(IA32_PERF_GLOBAL_CTRL, 0);
    const JournalOutcome outcome = run_under(driver, counter);
    if (!outcome.run) continue;
    ASSERT_EQ(outcome.run->log.pmis.size(), 1u);
    if (outcome.run->log.pmis[0].ip != ip) continue;
    EXPECT_EQ(outcome.run->log.pmis[0].global_status, bit(32));
    counted = outcome.run->fixed.at(0) + 54;
  }
  EXPECT_EQ(counted & 0xFFFF'FFFF'FFFF, 4u + 101 + 5 + 2 + 3);
}

}  // namespace
}  // namespace skidproof::lab
