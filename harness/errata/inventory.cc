#include "harness/errata/inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <functional>
#include <utility>

#include "results/json.h"

namespace skidproof::errata {
namespace {

using results::Exposure;
using results::Json;
using results::Listed;

// A longer line is no machine; nor is more of them remembered than this.
constexpr size_t kLongestLine = 64 << 10;
constexpr size_t kMostKinds = 1 << 12;
constexpr size_t kMostRevisions = 1 << 10;
constexpr size_t kMostHosts = 1 << 20;
constexpr size_t kMostBackwards = 100;

using Fields = std::map<std::string, std::string>;

// Names in one shape: "CPU family:" and "cpu-family" are cpu_family.
std::string plain(std::string_view name) {
  std::string text;
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      text += static_cast<char>(std::tolower(byte));
    } else if (!text.empty() && text.back() != '_') {
      text += '_';
    }
  }
  while (!text.empty() && text.back() == '_') text.pop_back();
  return text;
}

constexpr std::array<std::pair<const char*, const char*>, 16> kOtherNames = {{
    {"instance", "host"},
    {"hostname", "host"},
    {"name", "host"},
    {"node", "host"},
    {"nodename", "host"},
    {"machine", "host"},
    {"vendor_id", "vendor"},
    {"cpu_family", "family"},
    {"cpu_model", "model"},
    {"microcode_version", "microcode"},
    {"microcode_revision", "microcode"},
    {"thread_s_per_core", "threads_per_core"},
    {"smt", "hyper_threading"},
    {"ht", "hyper_threading"},
    {"hypervisor_vendor", "hypervisor"},
    {"core", "core_number"},  // node-exporter's, not a type
}};

// A field under its own name wins over another name's.
void put(Fields& fields, std::string_view raw_name, std::string value) {
  if (raw_name.starts_with("__")) return;  // Prometheus' own
  const std::string name = plain(raw_name);
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const auto& pair) { return name == pair.first; });
  if (other == kOtherNames.end()) {
    fields[name] = std::move(value);
  } else {
    fields.try_emplace(other->second, std::move(value));
  }
}

std::optional<uint32_t> number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> yes_or_no(std::string_view text) {
  for (std::string_view yes : {"true", "1", "yes", "on", "enabled"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"false", "0", "no", "off", "disabled", "notsupported", "forceoff"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return {};
  return value.dump();
}

constexpr unsigned kDeepest = 8;

// "lscpu": [{"field": "Model:", "data": "85", "children": […]}, …]
void take_lscpu(const Json& list, Fields& fields, unsigned depth) {
  if (!list.is_array() || depth > kDeepest) return;
  for (const Json& item : list) {
    if (!item.is_object()) continue;
    const auto field = item.find("field"), data = item.find("data");
    if (field != item.end() && field->is_string() && data != item.end()) {
      put(fields, field->get_ref<const std::string&>(), text_of(*data));
    }
    if (const auto children = item.find("children"); children != item.end()) {
      take_lscpu(*children, fields, depth + 1);
    }
  }
}

std::optional<Fields> fields_of_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return std::nullopt;
  Fields fields;
  for (const auto& [name, value] : json.items()) {
    if (name == "lscpu") {
      take_lscpu(value, fields, 0);
    } else if (name == "metric" && value.is_object()) {
      for (const auto& [label, said] : value.items()) put(fields, label, text_of(said));
    } else if (!value.is_array() && !value.is_object()) {
      put(fields, name, text_of(value));
    }
  }
  return fields;
}

// One line of CSV (RFC 4180, without line ends in fields); nullopt where a quote does not close.
std::optional<std::vector<std::string>> cells(std::string_view line) {
  std::vector<std::string> found(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      found.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  if (quoted) return std::nullopt;
  return found;
}

tl::unexpected<Error> no_machine(uint64_t line, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, what),
              "each line is one machine: family, model, stepping, and what else is known of it");
}

Expected<void> take_part(const Fields& fields, uint64_t line, Subject& subject) {
  constexpr unsigned kMost = 0xFFF;
  const auto value = [&fields](const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  };
  arch::Part part;
  for (const auto& [name, into] : {std::pair<const char*, unsigned*>{"family", &part.family},
                                   {"model", &part.model},
                                   {"stepping", &part.stepping}}) {
    const std::string text = value(name);
    if (text.empty()) return no_machine(line, fmt::format("its {} is not said", name));
    const auto read = number(text);
    if (!read || *read > kMost) {
      return no_machine(line, fmt::format("its {} is no number: {:.40}", name, text));
    }
    *into = *read;
  }
  const std::string microcode = value("microcode");
  if (!microcode.empty() && microcode != "-") {
    const auto revision = number(microcode);
    if (!revision)
      return no_machine(line, fmt::format("its microcode is no revision: {:.40}", microcode));
    part.microcode = *revision;
  }
  subject.part = part;
  return {};
}

Expected<InventoryItem> item_of(const Fields& fields, uint64_t line) {
  const auto value = [&fields](const char* name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  };
  InventoryItem item{.line = line, .host = value("host"), .subject = {}};
  if (item.host.empty()) item.host = fmt::format("line {}", line);
  SKIDPROOF_CHECK(take_part(fields, line, item.subject));
  item.subject.vendor = value("vendor");
  item.subject.hypervisor = value("hypervisor");
  if (item.subject.hypervisor == "none") item.subject.hypervisor.clear();
  item.subject.core = core_of(value("core_type"));
  item.subject.linux_release = value("linux");
  const std::string threads = value("threads_per_core"), on = plain(value("hyper_threading"));
  if (const auto said = yes_or_no(on); said) {
    item.subject.hyper_threading = said;
  } else if (!on.empty()) {
    return no_machine(line,
                      fmt::format("its hyper_threading is neither true nor false: {:.40}", on));
  } else if (const auto count = number(threads); count) {
    item.subject.hyper_threading = *count > 1;
  }
  return item;
}

}  // namespace

bool InventoryReader::read_line() {
  if (pending_) {
    pending_ = false;
    return true;
  }
  text_.clear();
  too_long_ = false;
  bool any = false;
  for (int c = stream_.get(); c != std::char_traits<char>::eof(); c = stream_.get()) {
    any = true;
    if (c == '\n') break;
    if (text_.size() < kLongestLine) {
      text_ += static_cast<char>(c);
    } else {
      too_long_ = true;
    }
  }
  if (!any) return false;
  ++line_;
  if (!text_.empty() && text_.back() == '\r') text_.pop_back();
  return true;
}

Expected<InventoryReader> InventoryReader::open(std::istream& stream) {
  InventoryReader reader(stream);
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of UTF-8
  bool first = true;
  while (reader.read_line()) {
    if (std::exchange(first, false) && reader.text_.starts_with(kMark)) {
      reader.text_.erase(0, kMark.size());
    }
    const size_t begin = reader.text_.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    if (reader.text_[begin] == '{') {
      reader.pending_ = true;
      return reader;
    }
    auto header = cells(reader.text_);
    Fields names;
    for (std::string& cell : header.value_or(std::vector<std::string>())) {
      put(names, cell, "");
      reader.columns_.push_back(std::move(cell));
    }
    if (names.contains("family") && names.contains("model")) return reader;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("line {} is neither a JSON object nor a header of CSV with family and "
                            "model: {:.60}",
                            reader.line_, reader.text_),
                "JSON Lines, one object a machine, or CSV with host, vendor, family, model, "
                "stepping, microcode, hyper_threading");
  }
  return reader;
}

std::optional<Expected<InventoryItem>> InventoryReader::next() {
  while (read_line()) {
    if (text_.find_first_not_of(" \t") == std::string::npos) continue;
    if (too_long_) return no_machine(line_, "it is too long");
    if (columns_.empty()) {
      const auto fields = fields_of_json(text_);
      if (!fields) return no_machine(line_, fmt::format("it is no JSON object: {:.60}", text_));
      return item_of(*fields, line_);
    }
    const auto row = cells(text_);
    if (!row || row->size() != columns_.size()) {
      return no_machine(line_, row ? fmt::format("it has {} cells, and the header {}", row->size(),
                                                 columns_.size())
                                   : std::string("a quote does not close"));
    }
    Fields fields;
    for (size_t i = 0; i < row->size(); ++i) put(fields, columns_[i], (*row)[i]);
    return item_of(fields, line_);
  }
  return std::nullopt;
}

// All of a subject that a listing depends on: of the microcode, only which of the revisions that mend something on
// this part it has reached.
std::string InventoryJudge::key_of(const Subject& subject) {
  constexpr int kNotSaid = 2;
  const arch::Part& part = *subject.part;
  if (thresholds_.size() >= kMostKinds) thresholds_.clear();
  const auto [place, is_new] = thresholds_.try_emplace({part.family, part.model, part.stepping});
  std::vector<uint32_t>& revisions = place->second;
  if (is_new) {
    for (const arch::Erratum& erratum : catalogue_.errata()) {
      for (const arch::AffectedParts& affected : erratum.parts) {
        if (affected.fixed_from != 0 && affected.covers(part))
          revisions.push_back(affected.fixed_from);
      }
    }
    std::sort(revisions.begin(), revisions.end());
  }
  const auto reached =
      std::upper_bound(revisions.begin(), revisions.end(), part.microcode) - revisions.begin();
  return fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", subject.vendor, subject.hypervisor, part.family, part.model,
      part.stepping, part.microcode != 0, reached, static_cast<int>(subject.core),
      subject.hyper_threading ? static_cast<int>(*subject.hyper_threading) : kNotSaid,
      subject.linux_release);
}

results::InventoryRow InventoryJudge::verdict_on(const Subject& subject) const {
  results::InventoryRow row;
  row.reason = unknowable(catalogue_, subject);
  if (row.reason.empty()) {
    for (const arch::Erratum& erratum : catalogue_.errata()) {
      const Listing listing = listing_of(catalogue_, erratum, subject);
      if (listing.by && *listing.by > least_) continue;
      if (listing.exposure == Exposure::kExposed) row.exposed.push_back(erratum.id);
      if (listing.exposure == Exposure::kInPlace) row.in_place.push_back(erratum.id);
      if (listing.verdict == Listed::kFixedByMicrocode) row.fixed.push_back(erratum.id);
      if (listing.verdict == Listed::kUnknown) row.unknown.push_back(erratum.id);
    }
  }
  constexpr int kNone = 0, kInPlace = 1, kExposed = 2, kUnknown = 3;
  row.verdict = !row.exposed.empty()                          ? kExposed
                : !row.unknown.empty() || !row.reason.empty() ? kUnknown
                : !row.in_place.empty()                       ? kInPlace
                                                              : kNone;
  return row;
}

InventoryJudge::Kind& InventoryJudge::kind_of(const Subject& subject, const std::string& key) {
  if (kinds_.size() >= kMostKinds) add_up();
  const auto [place, is_new] = kinds_.try_emplace(key);
  if (is_new) place->second.row = verdict_on(subject);
  return place->second;
}

// Takes the machines that were counted by kind into the sums, and forgets the kinds.
void InventoryJudge::add_up() {
  using results::ErrataSummaryRow;
  for (const auto& named : kinds_) {
    const Kind& kind = named.second;
    const auto count = [&](const std::vector<std::string>& ids, uint64_t ErrataSummaryRow::*into) {
      for (const std::string& id : ids) {
        auto& sums = sums_[id];
        for (const auto& [microcode, machines] : kind.machines) {
          const bool full = sums.size() >= kMostRevisions && !sums.contains(microcode);
          ErrataSummaryRow& sum = sums[full ? 0 : microcode];
          sum.machine = "inventory";
          sum.id = id;
          if (microcode != 0 && !full) sum.microcode = microcode;
          sum.*into += machines;
        }
      }
    };
    count(kind.row.exposed, &ErrataSummaryRow::exposed);
    count(kind.row.in_place, &ErrataSummaryRow::in_place);
    count(kind.row.fixed, &ErrataSummaryRow::fixed);
    count(kind.row.unknown, &ErrataSummaryRow::unknown);
  }
  kinds_.clear();
}

bool InventoryJudge::is_new(const InventoryItem& item, uint64_t kind) {
  const uint32_t microcode = item.subject.part->microcode;
  const uint64_t host = std::hash<std::string>()(item.host);
  const auto found = seen_.find(host);
  if (found == seen_.end()) {
    if (seen_.size() < kMostHosts) seen_.emplace(host, Machine{kind, microcode});
    return true;
  }
  const Machine before = std::exchange(found->second, {kind, microcode});
  if (microcode != 0 && microcode < before.microcode && backwards_.size() < kMostBackwards) {
    backwards_.push_back(fmt::format("{}: {:#x}, then {:#x} in line {}", item.host,
                                     before.microcode, microcode, item.line));
  }
  return before.kind != kind || before.microcode != microcode;
}

std::optional<results::InventoryRow> InventoryJudge::judge(const InventoryItem& item) {
  const std::string key = key_of(item.subject);
  if (!is_new(item, std::hash<std::string>()(key))) return std::nullopt;
  const arch::Part& part = *item.subject.part;
  Kind& kind = kind_of(item.subject, key);
  results::InventoryRow row = kind.row;
  ++by_verdict_[static_cast<size_t>(row.verdict)];
  // Of revisions beyond so many only the sum is kept.
  const bool known =
      kind.machines.size() < kMostRevisions || kind.machines.contains(part.microcode);
  ++kind.machines[known ? part.microcode : 0];
  row.machine = item.host;
  row.line = item.line;
  row.vendor = item.subject.vendor;
  row.family = part.family;
  row.model = part.model;
  row.stepping = part.stepping;
  if (part.microcode != 0) row.microcode = part.microcode;
  row.core_type = core_word(item.subject.core);
  row.hyper_threading = item.subject.hyper_threading;
  row.hypervisor = item.subject.hypervisor;
  return row;
}

std::vector<results::ErrataSummaryRow> InventoryJudge::summary() {
  add_up();
  std::vector<results::ErrataSummaryRow> rows;
  for (const auto& [id, sums] : sums_) {
    for (const auto& [microcode, row] : sums) rows.push_back(row);
  }
  return rows;
}

}  // namespace skidproof::errata
