// Something to do with a machine that uses all of its interface, so that a replay has something to repeat.
#ifndef SKIDPROOF_PEBS_TAPE_TESTING_EXPERIMENT_H_
#define SKIDPROOF_PEBS_TAPE_TESTING_EXPERIMENT_H_

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.h"
#include "pebs/arch/msr.h"
#include "pebs/engines/model_machine.h"
#include "pebs/machine.h"
#include "pebs/session.h"
#include "pebs/tape/recording_machine.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

// What may be done otherwise.
struct Wishes {
  std::string microarch = "sandy-bridge";
  std::string parameters = {};  // of the kernel
  uint64_t seed = 3;            // of the data
  uint64_t period = 97;
  uint64_t iterations = 2000;
  std::byte fill{0};               // of the debug store's last byte
  uint32_t asked_last = 0x38F;     // the MSR that is read at the end
  uint32_t leaf_asked_last = 0xA;  // the CPUID leaf
  bool asks_at_the_end = true;
};

// All that was seen, as text; the first error ends it.
inline std::string experiment(Machine& machine, const Wishes& wishes = {}) {
  std::string seen = machine.identity().name + "\n";
  const auto error = [&](const Error& what) { return seen + what.text() + "\n"; };
  const Kernel& kernel = **find_kernel("store_stream");
  const Params params = *Params::parse(kernel.parameters, wishes.parameters);
  auto data = machine.allocate({.bytes = kernel.data_bytes(params)});
  if (!data) return error(data.error());
  auto code = machine.allocate({.bytes = 65536, .use = MemoryUse::kCode});
  if (!code) return error(code.error());
  seen += fmt::format("{:#x} {:#x}\n", data->address, code->address);
  const Program program = *generate(
      kernel, params,
      {.code_address = code->address, .data_address = data->address, .seed = wishes.seed});
  if (!prepare_data(kernel, params, program, data->host, wishes.seed)) return seen + "no data\n";
  data->host[8] = std::byte(wishes.seed);

  const arch::Microarch& microarch = *machine.identity().microarch;
  SessionPlan plan;
  for (arch::Signal signal : {arch::Signal::kStores, arch::Signal::kInstructions}) {
    for (const arch::Event& event : microarch.events) {
      const bool plain = event.kind == arch::EventKind::kPebs && event.cmask == 0 && !event.invert;
      if (!plain || event.signal != signal || !plan.counters.empty()) continue;
      const auto counter = static_cast<unsigned>(__builtin_ctz(event.pebs_counters));
      plan.counters = {CounterSetup::of(counter, event, wishes.period)};
    }
  }
  if (plan.counters.empty()) return seen + "no precise event\n";
  plan.buffer_records = 16;
  plan.threshold_records = 8;
  plan.pmi.rewind_index = true;
  auto session = Session::open(machine, plan);
  if (!session) return error(session.error());
  auto store = machine.allocate({.bytes = 4096, .use = MemoryUse::kDebugStore});
  if (!store) return error(store.error());
  store->host.back() = wishes.fill;
  for (int i = 0; i < 2; ++i) {
    auto run = session->run(program, wishes.iterations);
    if (!run) return error(run.error());
    seen += fmt::format("{:#x} {} {} {}\n", run->global_status, run->counters.front(),
                        run->log.result, run->log.tsc);
    for (const Pmi& pmi : run->log.pmis) {
      seen += fmt::format("PMI {:#x} {:#x} {:#x}\n", pmi.ip, pmi.global_status, pmi.pebs_index);
    }
    for (Record record : session->records()) {
      for (std::byte byte : record.bytes()) seen += fmt::format("{:02x}", byte);
      seen += '\n';
    }
    for (std::byte byte : session->ds_bytes()) seen += fmt::format("{:02x}", byte);
    for (std::byte byte : data->host) seen += fmt::format("{:02x}", byte);
  }
  if (!wishes.asks_at_the_end) return seen;
  if (auto closed = session->close(); !closed) return error(closed.error());
  const auto counter = machine.rdpmc({.index = 0, .ring = Ring::kUser, .cr4_pce = false});
  seen += counter ? fmt::format("{}\n", *counter) : counter.error().text() + "\n";
  if (auto refused = machine.wrmsr(arch::IA32_PERFEVTSEL0, ~uint64_t{0}); !refused) {
    seen += refused.error().text() + "\n";
  }
  seen += fmt::format("{:#x}\n", machine.cpuid(wishes.leaf_asked_last, 0).eax);
  const auto value = machine.rdmsr(wishes.asked_last);
  return seen + (value ? fmt::format("{:#x}\n", *value) : value.error().text() + "\n");
}

inline std::shared_ptr<Machine> model(const std::string& microarch) {
  return *engines::make_model_machine(**arch::find_microarch(microarch), {});
}

// What an experiment on a model says, and what a tape keeps of it.
struct Recorded {
  std::string seen;
  Identity identity;
  Section section;
};
inline Recorded recorded(const Wishes& wishes = {}, const std::string& test = "Suite.Test") {
  Recorded all;
  const std::shared_ptr<Machine> machine = model(wishes.microarch);
  all.identity = machine->identity();
  RecordingMachine recording(machine, {.test = test}, 7, all.identity);
  all.seen = experiment(recording, wishes);
  all.section = recording.take_section();
  return all;
}

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_TESTING_EXPERIMENT_H_
