// cross_engine: the same random cases on two engines. `record` runs them in the virtual lab's guest, through the driver;
// `compare` runs them in process, under what the lab's journal says of the driver, and compares.
#include <fmt/format.h>
#include <sys/io.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/command.h"
#include "harness/cross/case.h"
#include "harness/cross/outcome.h"
#include "harness/run/native_identity.h"
#include "harness/run/pinning.h"
#include "pebs/direct/device.h"
#include "pebs/direct/direct_machine.h"
#include "pebs/engines/model_machine.h"

namespace skidproof::cross {
namespace {

constexpr int kDiffer = 1, kHarnessFailed = 2, kBadUsage = 64;
// Port of the lab: 32 bits with which every processor's models begin again.
constexpr unsigned short kNewModels = 0x5E4;

// Notes where another machine's blocks stand.
class Surveyor final : public Machine {
 public:
  explicit Surveyor(Machine& machine) : machine_(machine) {}
  const Identity& identity() const override { return machine_.identity(); }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    return machine_.cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override { return machine_.rdmsr(msr); }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override { return machine_.wrmsr(msr, value); }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    Memory memory = SKIDPROOF_TRY(machine_.allocate(request));
    blocks.push_back(memory.address);
    return memory;
  }
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    return machine_.run(program, plan);
  }

  std::vector<uint64_t> blocks;

 private:
  Machine& machine_;
};

// ---- In the guest

Expected<std::unique_ptr<Machine>> open_lab(int cpu) {
  direct::DirectOptions options;
  options.cpu = cpu;
  options.host = native_identity(cpu);
  options.cpuid = host_cpuid;
  options.attempts = 1;  // a case begins from power-on, and so once
  auto device = SKIDPROOF_TRY(direct::open_device());
  auto machine = SKIDPROOF_TRY(direct::make_direct_machine(std::move(device), options));
  if (machine->identity().provenance != Provenance::kVirtualLab) {
    return fail(ErrorCode::kNotAvailable, "this is not the virtual lab, whose journal is needed",
                "run: ci/lab corpus");
  }
  return machine;
}

Extensions host_extensions() {
  Extensions found{.popcnt = (host_cpuid(1, 0).ecx >> 23 & 1) != 0};
  for (Isa isa : {Isa::kSse41, Isa::kAvx, Isa::kAvx2, Isa::kBmi2}) {
    if (host_supports(isa)) found.isas.push_back(isa);
  }
  return found;
}

// Where the driver has programs return to, and their stack.
struct Entry {
  uint64_t stack_top = 0, return_address = 0;
};

Expected<uint64_t> answer(Machine& machine, const SessionPlan& plan, const Memory& code,
                          std::initializer_list<uint8_t> bytes) {
  Program program;
  program.kernel = "probe";
  for (uint8_t byte : bytes) program.code.push_back(std::byte{byte});
  program.code_address = program.entry = program.data_address = code.address;
  auto session = SKIDPROOF_TRY(Session::open(machine, plan));
  return SKIDPROOF_TRY(session.run(program, 1)).log.result;
}

Expected<Entry> find_entry(Machine& machine, bool traced) {
  const Memory code = SKIDPROOF_TRY(machine.allocate({.use = MemoryUse::kCode}));
  SessionPlan plan;
  if (traced) plan.branches = BranchTraceSetup{.interrupt = false};
  const uint64_t rsp = SKIDPROOF_TRY(answer(machine, plan, code, {0x48, 0x89, 0xE0, 0xC3}));
  Entry entry{.stack_top = rsp + 8};
  entry.return_address = SKIDPROOF_TRY(answer(machine, plan, code, {0x48, 0x8B, 0x04, 0x24, 0xC3}));
  return entry;
}

Expected<void> record(uint64_t first, uint64_t cases, uint64_t corpus, const std::string& path) {
  if (ioperm(kNewModels, 4, 1) != 0) {
    return fail(ErrorCode::kPermission,
                fmt::format("no access to port {:#x}: {}", kNewModels, std::strerror(errno)),
                "run it as root");
  }
  std::ofstream out(path);
  const int cpu = SKIDPROOF_TRY(allowed_cpus()).back();
  const PinGuard pinned = SKIDPROOF_TRY(PinGuard::pin(cpu));
  const auto machine = SKIDPROOF_TRY(open_lab(cpu));
  const Entry plain = SKIDPROOF_TRY(find_entry(*machine, false));
  const Entry traced = SKIDPROOF_TRY(find_entry(*machine, true));
  const Extensions extensions = host_extensions();
  Json header{{"microarch", machine->identity().microarch->name},
              {"extensions", Json::array()},
              {"popcnt", extensions.popcnt}};
  for (Isa isa : extensions.isas) header["extensions"].push_back(static_cast<int>(isa));
  out << header.dump() << '\n';
  for (uint64_t n = first; n < first + cases; ++n) {
    const uint32_t seed = seed_of(corpus, n);
    outl(seed, kNewModels);
    Surveyor surveyor(*machine);
    const Case c = SKIDPROOF_TRY(make_case(surveyor, seed, extensions));
    const Json outcome = outcome_of(surveyor, c);
    const Entry& entry = c.plan.branches ? traced : plain;
    const Json line{{"case", n},
                    {"seed", seed},
                    {"blocks", surveyor.blocks},
                    {"stack_top", entry.stack_top},
                    {"return_address", entry.return_address},
                    {"outcome", outcome}};
    out << line.dump() << '\n';
  }
  if (!out.flush()) {
    return fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  return {};
}

// ---- On the host

// One line of what `record` wrote.
struct Recorded {
  uint64_t number = 0, seed = 0;
  std::vector<uint64_t> blocks;
  Entry entry;
  Json outcome;
};

struct Dump {
  const arch::Microarch* row = nullptr;
  Extensions extensions;
  std::vector<Recorded> cases;
};

Expected<Dump> read_dump(const std::string& path) {
  std::ifstream in(path);
  Dump dump;
  try {
    for (std::string text; std::getline(in, text);) {
      const Json line = Json::parse(text);
      if (dump.row == nullptr) {
        dump.row = SKIDPROOF_TRY(arch::find_microarch(line.at("microarch").get<std::string>()));
        for (int isa : line.at("extensions")) {
          dump.extensions.isas.push_back(static_cast<Isa>(isa));
        }
        dump.extensions.popcnt = line.at("popcnt");
        continue;
      }
      dump.cases.push_back({.number = line.at("case"),
                            .seed = line.at("seed"),
                            .blocks = line.at("blocks").get<std::vector<uint64_t>>(),
                            .entry = {.stack_top = line.at("stack_top"),
                                      .return_address = line.at("return_address")},
                            .outcome = line.at("outcome")});
    }
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, error.what()),
                "it should be what `cross_engine record` wrote in the lab's guest");
  }
  if (dump.row == nullptr) {
    return fail(ErrorCode::kIo, fmt::format("there is nothing in {}", path));
  }
  return dump;
}

struct InProcess {
  std::string what;
  Json outcome;
  size_t record_bytes = 1;
};

Expected<InProcess> in_process(const Dump& dump, bool sibling, const Recorded& recorded,
                               lab::Journal journal) {
  auto there = std::make_shared<engines::Circumstances>();
  there->blocks = recorded.blocks;
  there->stack_top = recorded.entry.stack_top;
  there->return_address = recorded.entry.return_address;
  there->driver = std::move(journal);
  const auto machine = SKIDPROOF_TRY(engines::make_model_machine(
      *dump.row,
      {.sibling_thread = sibling, .seed = recorded.seed, .circumstances = std::move(there)}));
  const Case c = SKIDPROOF_TRY(make_case(*machine, recorded.seed, dump.extensions));
  return InProcess{.what = describe(c),
                   .outcome = outcome_of(*machine, c),
                   .record_bytes = c.plan.record_bytes(*dump.row)};
}

Expected<int> compare(const std::string& path, const std::string& journal_path, bool sibling,
                      bool all) {
  const Dump dump = SKIDPROOF_TRY(read_dump(path));
  std::vector<lab::Journal> journals = SKIDPROOF_TRY(lab::read_journals(journal_path));
  Tally tally;
  size_t at = 0;
  for (const Recorded& recorded : dump.cases) {
    while (at < journals.size() && journals[at].seed != recorded.seed) ++at;
    if (at == journals.size()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} says nothing of case {}", journal_path, recorded.number));
    }
    const InProcess here =
        SKIDPROOF_TRY(in_process(dump, sibling, recorded, std::move(journals[at++])));
    tally.add(recorded.outcome, here.record_bytes, dump.row->branch_trace.record->bytes);
    const std::string found = difference(recorded.outcome, here.outcome, here.record_bytes);
    tally.same += found.empty();
    if (!found.empty() && (all || tally.cases - tally.same == 1)) {
      fmt::print("case {} (seed {}) differs\n  {}\n{}", recorded.number, recorded.seed, here.what,
                 found);
    }
  }
  fmt::print(
      "{}: {} of {} cases the same; {} records in {} cases, {} PMIs in {}, {} branch records in "
      "{}\n",
      dump.row->name, tally.same, tally.cases, tally.records, tally.with_records, tally.interrupts,
      tally.with_interrupts, tally.branches, tally.with_branches);
  if (tally.errors > 0)
    fmt::print("{} cases ended with an error: nothing was compared\n", tally.errors);
  const bool compared = tally.records > 0 && tally.errors == 0;
  return compared && tally.same == tally.cases ? 0 : kDiffer;
}

int finish(const Expected<int>& outcome) {
  if (outcome) return *outcome;
  fmt::print(stderr, "error: {}\n", outcome.error().text());
  return kHarnessFailed;
}

int main_of(int argc, char** argv) {
  cli::CommandLine program("cross_engine",
                           "The same random cases in the virtual lab and in process.");
  program.needs_verb();
  uint64_t cases = 500, seed = 1, first = 0;
  std::string out = "cases.jsonl", journal;
  bool all = false, sibling = false;
  cli::Command recording = program.verb("record", "in the lab's guest: runs cases");
  recording.option("--cases", cases, "how many");
  recording.option("--first", first, "number of the first");
  recording.option("--seed", seed, "of the corpus");
  recording.option("--out", out, "file to write");
  cli::Command comparing = program.verb("compare", "runs them in process, and compares");
  comparing.option("cases", out, "what `record` wrote").required();
  comparing.option("journal", journal, "the lab's journal").required();
  comparing.flag("--all", all, "shows every case that differs, not the first alone");
  comparing.flag("--sibling", sibling, "another thread shares the core, as in the lab");
  const auto parsed = program.parse({argv + 1, argv + argc});
  if (!parsed) {
    fmt::print(stderr, "error: {}\n", parsed.error().text());
    return kBadUsage;
  }
  if (*parsed) return 0;
  if (program.verb_named() == "compare") return finish(compare(out, journal, sibling, all));
  return finish(record(first, cases, seed, out).map([] { return 0; }));
}

}  // namespace
}  // namespace skidproof::cross

int main(int argc, char** argv) {
  try {
    return skidproof::cross::main_of(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "internal error: %s\n", exception.what());
    return 2;
  }
}
