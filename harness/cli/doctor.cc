// `doctor`: what this machine can run, and for each thing that it cannot: why, and what mends it.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/driver_checks.h"
#include "harness/cli/host.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/run/cpu_choice.h"
#include "harness/run/native_identity.h"
#include "harness/run/pinning.h"

namespace skidproof::cli {
namespace {

struct DoctorOptions {
  bool driver = false;
  bool enter = false;
  CpuWish cpu = {};
  std::string root;
  std::string json;
};

Paint paint_of(Health health) {
  if (health == Health::kGood) return Paint::kGreen;
  return health == Health::kNote ? Paint::kYellow : Paint::kRed;
}

results::Json json_of(const std::vector<Finding>& findings, bool numbered) {
  results::Json list = results::Json::array();
  for (const Finding& finding : findings) {
    results::Json one = {{"section", finding.section},
                         {"name", finding.name},
                         {"health", name_of(finding.health)},
                         {"value", finding.value}};
    if (!finding.mend.empty()) one["mend"] = finding.mend;
    if (numbered) one["number"] = list.size() + 1;
    list.push_back(std::move(one));
  }
  return {{"version", version()}, {"findings", list}};
}

// Prints findings, from one on; what a section began with stands above its own.
class Printer {
 public:
  explicit Printer(bool numbered) : numbered_(numbered) {}

  void print(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) width_ = std::max(width_, width_of(finding.name));
    for (; printed_ < findings.size(); ++printed_) print(findings[printed_]);
    std::fflush(stdout);
  }

 private:
  void print(const Finding& finding) {
    if (finding.section != section_) {
      if (!section_.empty()) text_.line();
      section_ = finding.section;
      text_.line(text_.paint(Paint::kBold, section_));
    }
    const std::string number = numbered_ ? fmt::format("{:2}  ", printed_ + 1) : "";
    const std::string health = pad_right(name_of(finding.health), 4);
    const size_t indent = number.size() + width_ + 10;
    text_.line(fmt::format("  {}{}  {}  {}", number, text_.paint(paint_of(finding.health), health),
                           pad_right(finding.name, width_), wrap(finding.value, indent)));
    if (finding.mend.empty()) return;
    text_.line(std::string(indent, ' ') +
               text_.paint(Paint::kCyan, "mend: " + wrap(finding.mend, indent + 6)));
  }

  const bool numbered_;
  const Text text_{stdout};
  std::string section_;
  size_t printed_ = 0, width_ = 0;
};

int doctor(const std::string& json) {
  const std::vector<Finding> findings = examine_host();
  if (json != "-") Printer(false).print(findings);
  if (json.empty()) return kExitHeld;
  const auto written = write_document(json, json_of(findings, false));
  return written ? kExitHeld : complain(kExitHarnessFailed, written.error());
}

// This computer; call it while pinned to that CPU.
DriverSubject this_computer(int cpu) {
  DriverSubject subject;
  subject.cpu = cpu;
  subject.who = native_identity(cpu);
  subject.cpuid = host_cpuid;
  subject.module = shipped("pebs/direct/driver/skidproof.ko");
  subject.open = direct::open_device;
  return subject;
}

int examine(const DriverSubject& subject, const DoctorOptions& options) {
  const bool prints = options.json != "-";
  Printer printer(true);
  DriverReport report = check_driver(subject);
  if (prints) printer.print(report.findings);
  // On standard error, which nothing holds back: the last line before a hang names what was tried.
  const auto next = [](const std::string& what) {
    fmt::print(stderr, "skidproof: next is {}\n", what);
  };
  try_driver(subject, options.enter, next, report);
  const std::string step = next_step(report, subject.cpu);
  if (prints) {
    printer.print(report.findings);
    fmt::print("\nnext: {}\nThe whole night, step by step: docs/first_night.md\n", step);
  }
  const int exit = report.bad() ? kExitNothingRan : kExitHeld;
  if (options.json.empty()) return exit;
  results::Json document = json_of(report.findings, true);
  document["next"] = step;
  const auto written = write_document(options.json, document);
  return written ? exit : complain(kExitHarnessFailed, written.error());
}

int doctor_of_driver(const DoctorOptions& options) {
  if (!options.root.empty()) {
    const auto subject = subject_in(options.root, options.cpu.cpu.value_or(0));
    return subject ? examine(*subject, options) : complain(subject.error());
  }
  const auto cpus = host_cpus();
  const auto cpu = cpus ? choose_cpu(*cpus, options.cpu) : tl::make_unexpected(cpus.error());
  if (!cpu) return complain(cpu.error());
  const auto pinned = PinGuard::pin(cpu->number);  // CPUID is to be its own
  if (!pinned) return complain(pinned.error());
  return examine(this_computer(cpu->number), options);
}

}  // namespace

void add_doctor(Command program, Invocation& invocation) {
  auto options = std::make_shared<DoctorOptions>();
  Command verb = program.verb("doctor", "what this machine can run, and what would mend the rest");
  verb.epilogue(
      "Examples:\n"
      "  skidproof doctor\n"
      "  skidproof doctor --json - | jq '.findings[] | select(.health == \"bad\")'\n"
      "  skidproof doctor --driver                before the driver meets a machine for the first "
      "time\n"
      "\n"
      "Exit codes: 0; with --driver 77 where something is bad, so that nothing could run.");
  const Option driver = verb.flag(
      "--driver", options->driver,
      "what can go wrong with the driver here, in order; nothing is armed and no register is "
      "written, but what a claim writes where the driver was loaded with dry_run=1, which is then "
      "asked (docs/first_night.md)");
  verb.flag("--enter", options->enter,
            "where the driver was loaded with dry_run=1, also run small programs at ring 0 and "
            "ring 3, with nothing armed")
      .needs(driver);
  verb.option("--cpu", options->cpu.cpu,
              "of --driver: which CPU would be claimed (default: as `run` chooses)")
      .named("N")
      .needs(driver);
  verb.option("--core", options->cpu.core, "the same by the type of the core")
      .one_of({"P", "E"})
      .named("P|E")
      .needs(driver);
  verb.option("--root", options->root,
              "of --driver: look at a copy of another computer's proc, sys and lib/modules in "
              "this folder, with its CPUID in cpuid.txt (as `cpuid -1 -r` prints it)")
      .named("DIR")
      .needs(driver);
  add_json(verb, options->json);
  verb.when_named([options, &invocation] {
    invocation.action = [options] {
      return options->driver ? doctor_of_driver(*options) : doctor(options->json);
    };
  });
}

}  // namespace skidproof::cli
