// An inventory of machines, for errata without running anything on them.
//
// JSON Lines, one object a machine, or CSV with a header. Fields, by these names or by those in brackets: host
// [instance, hostname, name, node], vendor [vendor_id], family [cpu_family], model, stepping, microcode,
// threads_per_core, hyper_threading [smt], hypervisor [hypervisor_vendor], core_type. Numbers are decimal, or
// hexadecimal with 0x. Two shapes more are understood: a document of `lscpu --json` in one line, with a `host`
// beside its `lscpu`, and a result of Prometheus with its labels under `metric`, as node-exporter's node_cpu_info
// has them.
#ifndef SKIDPROOF_HARNESS_ERRATA_INVENTORY_H_
#define SKIDPROOF_HARNESS_ERRATA_INVENTORY_H_

#include <array>
#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "harness/errata/listing.h"
#include "harness/errata/subject.h"
#include "pebs/arch/errata_catalogue.h"
#include "results/row.h"

namespace skidproof::errata {

struct InventoryItem {
  uint64_t line = 0;
  std::string host;
  Subject subject;
};

// Reads one machine after the other, and holds one at a time.
class InventoryReader {
 public:
  // Errors: kInvalidArgument for a CSV header without family or model.
  static Expected<InventoryReader> open(std::istream& stream);

  // The next machine, or why its line is none (kInvalidArgument with the line; the next call goes on); nullopt at
  // the end. Empty lines are passed over.
  std::optional<Expected<InventoryItem>> next();

 private:
  explicit InventoryReader(std::istream& stream) : stream_(stream) {}
  bool read_line();

  std::istream& stream_;
  std::string text_;
  uint64_t line_ = 0;
  bool pending_ = false;  // text_ holds a line that nobody took
  bool too_long_ = false;
  std::vector<std::string> columns_;  // of CSV; empty: JSON Lines
};

// Judges machine after machine; what is the same processor is judged once.
class InventoryJudge {
 public:
  // `least`: listings that stand on less are left out.
  InventoryJudge(const arch::ErrataCatalogue& catalogue, arch::Authority least)
      : catalogue_(catalogue), least_(least) {}

  // nullopt: that machine was judged already, the same in all that matters, as node-exporter lists each CPU.
  std::optional<results::InventoryRow> judge(const InventoryItem& item);

  // By erratum and microcode, of all so far. Of one erratum the first 1,024 revisions have rows of their own;
  // what comes beyond is counted as of none.
  std::vector<results::ErrataSummaryRow> summary();
  // Machines by verdict, 0 to 3.
  const std::array<uint64_t, 4>& by_verdict() const { return by_verdict_; }
  // Machines that came twice with another, older microcode the second time: "rack7: 0x28, then 0x20".
  const std::vector<std::string>& backwards() const { return backwards_; }

 private:
  // What the machines that nothing tells apart have in common.
  struct Kind {
    results::InventoryRow row;
    std::map<uint32_t, uint64_t> machines;  // by microcode; 0: not said
  };
  struct Machine {
    uint64_t kind = 0;  // hash of what of it matters
    uint32_t microcode = 0;
  };

  std::string key_of(const Subject& subject);
  results::InventoryRow verdict_on(const Subject& subject) const;
  Kind& kind_of(const Subject& subject, const std::string& key);
  bool is_new(const InventoryItem& item, uint64_t kind);
  void add_up();

  const arch::ErrataCatalogue& catalogue_;
  const arch::Authority least_;
  std::unordered_map<std::string, Kind> kinds_;
  std::map<std::array<unsigned, 3>, std::vector<uint32_t>> thresholds_;  // of microcode, by part
  std::map<std::string, std::map<uint32_t, results::ErrataSummaryRow>>
      sums_;  // by id and microcode
  std::array<uint64_t, 4> by_verdict_ = {};
  std::unordered_map<uint64_t, Machine> seen_;  // by hash of the host
  std::vector<std::string> backwards_;
};

}  // namespace skidproof::errata

#endif  // SKIDPROOF_HARNESS_ERRATA_INVENTORY_H_
