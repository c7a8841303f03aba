// How fast the model machine executes, mode by mode, each as a ratio to the bare engine in the same run;
// and how fast records decode, as a ratio to reading the same bytes.
//
// Modes: the bare engine; the core model without a counter; one counter; four counters; one counter
// sampling every 1,000 events. Repetitions of all modes are interleaved, so that a drifting clock falls on
// all of them; the table gives medians.
//
//   model_bench [--repetitions N] [--instructions MILLIONS] [--json]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "pebs/arch/microarch.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/engines/model_machine.h"
#include "pebs/session.h"

namespace skidproof {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int repetitions = 5;
  uint64_t instructions = 20'000'000;
  bool json = false;
};

struct Workload {
  const char* title;
  const char* kernel;
  const char* parameters;
};
constexpr Workload kWorkloads[] = {
    {"pointer chase, 1 MiB", "pointer_chase", "bytes=1048576"},
    {"store stream", "store_stream", ""},
    {"ALU + fused branch", "fused_branch", "first=cmp"},
    {"straight line", "straight_line", "instructions=4000"},
};

[[noreturn]] void die(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.text());
  std::exit(2);
}
template <typename T>
T need(Expected<T> value) {
  if (!value) die(value.error());
  if constexpr (!std::is_void_v<T>) return std::move(*value);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double seconds(const std::function<void()>& work) {
  Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A kernel placed on some memory, with its data filled.
struct Placed {
  Memory code, data;
  Program program;
};
template <typename Allocate>
Placed place(const Workload& w, Allocate allocate) {
  const Kernel& kernel = *need(find_kernel(w.kernel));
  Params params = need(Params::parse(kernel.parameters, w.parameters));
  Placed p;
  p.code = need(allocate(size_t{1} << 20, MemoryUse::kCode));
  size_t bytes = kernel.data_bytes != nullptr ? kernel.data_bytes(params) : 0;
  p.data = need(allocate(std::max<size_t>(bytes, 4096), MemoryUse::kData));
  p.program = need(generate(kernel, params, {p.code.address, p.data.address, 1}));
  need(prepare_data(kernel, params, p.program, p.data.host, 1));
  return p;
}

// Iterations that make about `instructions`; a kernel without a loop runs its code again and again.
struct Work {
  uint64_t iterations, calls;
  double executed;  // instructions in all
};
Work work_for(const Program& program, uint64_t instructions) {
  uint64_t each = program.per_iteration.instructions;
  if (program.total(2).instructions == program.total(1).instructions) {
    uint64_t calls = std::max<uint64_t>(1, instructions / program.total(1).instructions);
    return {1, calls, static_cast<double>(calls * program.total(1).instructions)};
  }
  uint64_t n = std::max<uint64_t>(1, instructions / each);
  return {n, 1, static_cast<double>(program.total(n).instructions)};
}

// One way to execute a workload; the call runs it once.
struct Mode {
  std::string name;
  std::function<void()> run;
  double executed = 0;
  std::vector<double> rates = {};  // instructions each second
};

Mode bare(const Workload& w, const arch::Microarch& uarch, const Options& options) {
  struct Guest {
    std::unique_ptr<engines::GuestMemory> memory;
    Memory stack;
    std::unique_ptr<model::Core> core;
    std::unique_ptr<engines::Interpreter> interpreter;
    Placed placed;
  };
  auto guest = std::make_shared<Guest>();
  guest->memory = need(engines::GuestMemory::create());
  guest->stack = need(guest->memory->allocate(65536, MemoryUse::kData, false));
  guest->core = std::make_unique<model::Core>(uarch);
  guest->interpreter = std::make_unique<engines::Interpreter>(*guest->memory, *guest->core, uarch,
                                                              engines::Accounting::kBare);
  guest->placed =
      place(w, [&](size_t n, MemoryUse use) { return guest->memory->allocate(n, use, false); });
  need(guest->interpreter->load(guest->placed.program));
  Work work = work_for(guest->placed.program, options.instructions);
  auto run = [guest, work] {
    const Program& p = guest->placed.program;
    for (uint64_t i = 0; i < work.calls; ++i) {
      guest->interpreter->call(p.entry, work.iterations, p.data_address,
                               guest->stack.address + guest->stack.host.size());
      while (!guest->interpreter->finished()) need(guest->interpreter->run(UINT64_MAX));
    }
  };
  return {"bare engine", run, work.executed};
}

const arch::Event* precise(const arch::Microarch& uarch, arch::Signal signal) {
  for (const arch::Event& e : uarch.events) {
    bool sampled = e.kind == arch::EventKind::kPebs || e.kind == arch::EventKind::kPebsOnly;
    if (sampled && e.signal == signal && e.cmask == 0) return &e;
  }
  return nullptr;
}

Mode modelled(const Workload& w, const arch::Microarch& uarch, const Options& options,
              const char* name, unsigned counters, uint64_t period) {
  auto machine = std::shared_ptr<Machine>(need(engines::make_model_machine(uarch, {})));
  auto placed = std::make_shared<Placed>(place(
      w, [&](size_t n, MemoryUse use) { return machine->allocate({.bytes = n, .use = use}); }));
  Work work = work_for(placed->program, options.instructions);
  if (counters == 0) {
    auto run = [machine, placed, work] {
      for (uint64_t i = 0; i < work.calls; ++i) {
        need(machine->run(placed->program, {.iterations = work.iterations}));
      }
    };
    return {name, run, work.executed};
  }
  constexpr arch::Signal kSignals[] = {arch::Signal::kUops, arch::Signal::kLoads,
                                       arch::Signal::kStores, arch::Signal::kBranches};
  SessionPlan plan{.buffer_records = 1 << 16};
  for (unsigned n = 0; n < counters; ++n) {
    uint64_t events = period != 0 ? period : uint64_t{1} << 40;
    plan.counters.push_back(CounterSetup::of(n, *precise(uarch, kSignals[n]), events, period != 0));
  }
  auto session = std::make_shared<Session>(need(Session::open(*machine, plan)));
  auto run = [machine, placed, work, session] {
    for (uint64_t i = 0; i < work.calls; ++i)
      need(session->resume(placed->program, work.iterations));
    session->rewind();
  };
  need(session->run(placed->program, 1));
  return {name, run, work.executed};
}

void throughput(const Options& options) {
  const arch::Microarch& uarch = *need(arch::find_microarch("sandy-bridge"));
  if (!options.json) {
    fmt::print(
        "Execution, million instructions each second (ratio to the bare engine), medians of {}\n\n",
        options.repetitions);
    fmt::print("{:<24}{:>14}{:>18}{:>18}{:>18}{:>18}\n", "", "bare engine", "core model",
               "one counter", "four counters", "every 1,000");
  }
  for (const Workload& w : kWorkloads) {
    std::vector<Mode> modes;
    modes.push_back(bare(w, uarch, options));
    modes.push_back(modelled(w, uarch, options, "core model", 0, 0));
    modes.push_back(modelled(w, uarch, options, "one counter", 1, 0));
    modes.push_back(modelled(w, uarch, options, "four counters", 4, 0));
    modes.push_back(modelled(w, uarch, options, "every 1,000", 1, 1000));
    for (Mode& m : modes) m.run();  // warm
    for (int i = 0; i < options.repetitions; ++i) {
      for (Mode& m : modes) m.rates.push_back(m.executed / seconds(m.run));
    }
    double reference = median(modes[0].rates);
    if (!options.json) fmt::print("{:<24}", w.title);
    for (Mode& m : modes) {
      double rate = median(m.rates);
      if (options.json) {
        fmt::print(
            "{{\"benchmark\":\"execution\",\"kernel\":\"{}\",\"mode\":\"{}\",\"instructions_per_"
            "s\":{:.0f},"
            "\"ratio\":{:.4f}}}\n",
            w.title, m.name, rate, rate / reference);
      } else if (&m == &modes[0]) {
        fmt::print("{:>14.0f}", rate / 1e6);
      } else {
        fmt::print("{:>10.0f} ({:.2f})", rate / 1e6, rate / reference);
      }
    }
    if (!options.json) fmt::print("\n");
  }
}

uint64_t every_field(const Record& r) {
  uint64_t sum =
      r.flags() + r.ip() + r.global_status() + r.data_address() + r.data_source() + r.latency();
  for (unsigned i = 0; i < arch::kGprs; ++i) sum += r.gpr(static_cast<arch::Gpr>(i));
  return sum;
}

// Reads every field of every record of a full buffer, against summing the same bytes.
void decoding(const Options& options) {
  constexpr size_t kRecords = 4096;  // 704 KiB
  const arch::RecordLayout& layout = arch::kRecordFormat1;
  std::vector<std::byte> buffer(kRecords * layout.bytes);
  Random random(1);
  for (std::byte& b : buffer) b = static_cast<std::byte>(random.next());
  constexpr int kPasses = 200;
  volatile uint64_t sink = 0;
  std::vector<double> decode, read;
  for (int i = 0; i < options.repetitions; ++i) {
    decode.push_back(seconds([&] {
      uint64_t sum = 0;
      for (int pass = 0; pass < kPasses; ++pass) {
        for (Record r : Records(buffer, &layout)) sum += every_field(r);
      }
      sink = sum;
    }));
    read.push_back(seconds([&] {
      uint64_t sum = 0;
      for (int pass = 0; pass < kPasses; ++pass) {
        for (size_t at = 0; at + 8 <= buffer.size(); at += 8) {
          uint64_t word;
          std::memcpy(&word, buffer.data() + at, sizeof word);
          sum += word;
        }
      }
      sink = sum;
    }));
  }
  double records = static_cast<double>(kRecords) * kPasses / median(decode);
  double ratio = median(read) / median(decode);
  if (options.json) {
    fmt::print("{{\"benchmark\":\"decoding\",\"records_per_s\":{:.0f},\"ratio\":{:.4f}}}\n",
               records, ratio);
  } else {
    fmt::print(
        "\nDecoding: {:.0f} million records each second, {:.2f} times the speed of reading the "
        "same bytes\n",
        records / 1e6, ratio);
  }
}

}  // namespace
}  // namespace skidproof

int main(int argc, char** argv) {
  skidproof::Options options;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--json") {
      options.json = true;
    } else if (word == "--repetitions" && i + 1 < argc) {
      options.repetitions = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--instructions" && i + 1 < argc) {
      options.instructions = static_cast<uint64_t>(std::max(1, std::atoi(argv[++i]))) * 1'000'000;
    } else {
      fmt::print(stderr,
                 "usage: model_bench [--repetitions N] [--instructions MILLIONS] [--json]\n");
      return 64;
    }
  }
  skidproof::throughput(options);
  skidproof::decoding(options);
  return 0;
}
