#include "harness/cross/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace skidproof::cross {
namespace {

// Without what `fill` leaves over at the end.
std::string hex(std::span<const std::byte> bytes, std::byte fill) {
  while (!bytes.empty() && bytes.back() == fill) bytes = bytes.first(bytes.size() - 1);
  std::string text;
  text.reserve(2 * bytes.size());
  for (std::byte b : bytes) fmt::format_to(std::back_inserter(text), "{:02x}", b);
  return text;
}

std::span<const std::byte> whole_buffer(std::span<const std::byte> behind, uint64_t before) {
  return {behind.data() - before, behind.size() + before};
}

// FNV-1a: 128 KiB of data need not travel.
uint64_t hash(std::span<const std::byte> bytes) {
  uint64_t value = 0xCBF29CE484222325;
  for (std::byte b : bytes) value = (value ^ std::to_integer<uint64_t>(b)) * 0x100000001B3;
  return value;
}

Json error_of(const Error& error) {
  return {{"error", static_cast<int>(error.code)}, {"message", error.message}};
}

// The 8 bytes of a hexadecimal text around a position, lowest address last.
std::string word_at(const std::string& text, size_t byte) {
  std::string word;
  for (size_t n = 8; n-- > 0;) {
    const size_t at = 2 * (byte / 8 * 8 + n);
    word += at + 2 <= text.size() ? text.substr(at, 2) : "..";
  }
  return word;
}

std::string difference_of_bytes(const std::string& lab, const std::string& in_process,
                                size_t unit) {
  size_t at = 0;
  while (at < std::min(lab.size(), in_process.size()) && lab[at] == in_process[at]) ++at;
  const size_t byte = at / 2;
  return fmt::format(
      "of {} and {} bytes the first that differs is {} (number {}, offset {:#x}): {} in the lab, "
      "{} in process",
      lab.size() / 2, in_process.size() / 2, byte, byte / unit, byte % unit / 8 * 8,
      word_at(lab, byte), word_at(in_process, byte));
}

}  // namespace

Json outcome_of(Machine& machine, const Case& c) {
  auto session = Session::open(machine, c.plan);
  if (!session) return error_of(session.error());
  auto run = session->run(c.program, c.iterations);
  if (!run) return error_of(run.error());
  const RunLog& log = run->log;
  Json o;
  o["disturbed"] = log.noise.repeats + log.noise.foreign_nmis + log.noise.slices + log.noise.smi +
                   log.noise.machine_checks;
  o["counters"] = run->counters;
  o["fixed"] = run->fixed;
  o["global_status"] = run->global_status;
  o["result"] = log.result;
  o["pmis"] = Json::array();
  for (const Pmi& pmi : log.pmis) {
    o["pmis"].push_back({{"ip", pmi.ip},
                         {"global_status", pmi.global_status},
                         {"global_ctrl", pmi.global_ctrl},
                         {"pebs_index", pmi.pebs_index},
                         {"bts_index", pmi.bts_index}});
  }
  o["pmis_dropped"] = log.pmis_dropped;
  o["ds"] = hex(session->ds_bytes(), std::byte{0});
  o["records"] =
      hex(whole_buffer(session->after_index(), session->index() - session->base()), Session::kFill);
  o["branches"] = "";
  if (c.plan.branches) {
    o["branches"] = hex(whole_buffer(session->after_branch_index(),
                                     session->branch_index() - session->branch_base()),
                        Session::kFill);
  }
  o["data"] = hash(c.data.host);
  return o;
}

std::string difference(const Json& lab, const Json& in_process, size_t record_bytes) {
  if (lab.contains("error") || in_process.contains("error")) {
    if (lab.value("error", -1) == in_process.value("error", -1)) return {};
    return fmt::format("in the lab {}\n  in process {}\n", lab.dump(), in_process.dump());
  }
  std::string text;
  for (const auto& [name, value] : lab.items()) {
    const Json& other = in_process[name];
    if (value == other) continue;
    text += fmt::format("  {}: ", name);
    if (value.is_string()) {
      const size_t unit = name == "records" ? record_bytes : name == "branches" ? 24 : 8;
      text += difference_of_bytes(value.get<std::string>(), other.get<std::string>(), unit);
    } else if (value.is_array() && value.size() == other.size()) {
      const auto [x, y] = std::mismatch(value.begin(), value.end(), other.begin());
      text += fmt::format("number {}: {} in the lab, {} in process", x - value.begin(), x->dump(),
                          y->dump());
    } else {
      text += fmt::format("{} in the lab, {} in process", value.dump(), other.dump());
    }
    text += '\n';
  }
  return text;
}

void Tally::add(const Json& outcome, size_t record_bytes, size_t branch_bytes) {
  ++cases;
  if (outcome.contains("error")) {
    ++errors;
    return;
  }
  auto items = [&](const char* name, size_t bytes) {
    return outcome[name].get_ref<const std::string&>().size() / (2 * bytes);
  };
  const uint64_t of_pebs = items("records", record_bytes), of_bts = items("branches", branch_bytes);
  const uint64_t pmis = outcome["pmis"].size();
  records += of_pebs, branches += of_bts, interrupts += pmis;
  with_records += of_pebs > 0, with_branches += of_bts > 0, with_interrupts += pmis > 0;
}

}  // namespace skidproof::cross
