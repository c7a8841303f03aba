#include "pebs/arch/perfmon/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "pebs/arch/perfmon/published.h"

namespace skidproof::arch::perfmon {
namespace {

constexpr char kAdvice[] =
    "it should be a file of github.com/intel/perfmon as it is published there; a newer form needs "
    "a newer skidproof";

tl::unexpected<Error> refuse(std::string_view file, const std::string& what) {
  return skidproof::fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, what), kAdvice);
}

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// What a file says, for a message: short, and nothing that a terminal would obey.
std::string shown(std::string_view text) {
  constexpr size_t kShown = 40;
  std::string safe(text.substr(0, kShown));
  for (char& c : safe) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > kShown ? safe + "..." : safe;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_name(std::string_view text) {
  constexpr size_t kLongest = 96;
  return !text.empty() && text.size() <= kLongest &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_digit(c) || is_upper(c) || is_lower(c) || c == '_' || c == '.';
         });
}

// "BV98", "HSW11A"
bool is_erratum(std::string_view text) {
  constexpr size_t kMostLetters = 4, kMostDigits = 4;
  size_t letters = 0, digits = 0;
  while (letters < text.size() && is_upper(text[letters])) ++letters;
  while (letters + digits < text.size() && is_digit(text[letters + digits])) ++digits;
  const std::string_view rest = text.substr(letters + digits);
  return letters >= 2 && letters <= kMostLetters && digits >= 1 && digits <= kMostDigits &&
         (rest.empty() || (rest.size() == 1 && is_upper(rest.front())));
}

// "19", "1.40"
bool is_version(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ".");
  constexpr size_t kLongest = 3;
  return parts.size() <= 2 && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
           return !part.empty() && part.size() <= kLongest &&
                  std::all_of(part.begin(), part.end(), is_digit);
         });
}

bool is_date(std::string_view text) {
  constexpr size_t kLongest = 16;
  return text.size() <= kLongest && std::all_of(text.begin(), text.end(), [](char c) {
           return is_digit(c) || c == '/' || c == '.' || c == '-';
         });
}

std::optional<uint64_t> number_in(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, hex ? 16 : 10);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

using Texts = std::map<std::string, std::string, std::less<>>;

// The whole file, of which nothing is understood yet: two objects of texts, and a list of such.
struct Document {
  bool has_header = false, has_events = false;
  Texts header;
  std::vector<Texts> events;
};

// Takes a file in as it is parsed: what is not of the form ends that, so that size and nesting cost nothing.
class Form final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Form(Document& document) : document_(document) {}

  const std::string& wrong() const { return wrong_; }

  bool null() override { return no_text(); }
  bool boolean(bool) override { return no_text(); }
  bool number_integer(number_integer_t) override { return no_text(); }
  bool number_unsigned(number_unsigned_t) override { return no_text(); }
  bool number_float(number_float_t, const string_t&) override { return no_text(); }
  bool binary(binary_t&) override { return no_text(); }

  bool string(string_t& text) override {
    if (in_ == In::kHeader) return take(document_.header, text);
    if (in_ == In::kEvent) return take(document_.events.back(), text);
    return no_text();
  }
  bool start_object(size_t) override {
    switch (in_) {
      case In::kNothing:
        in_ = In::kRoot;
        return true;
      case In::kRoot:
        if (key_ != "Header") return stop(kNoForm);
        in_ = In::kHeader;
        return true;
      case In::kEvents:
        if (document_.events.size() == kMostEvents) {
          return stop(fmt::format("more than {} events", kMostEvents));
        }
        document_.events.emplace_back();
        in_ = In::kEvent;
        return true;
      default:
        return no_text();
    }
  }
  bool end_object() override {
    in_ = in_ == In::kEvent ? In::kEvents : in_ == In::kHeader ? In::kRoot : In::kNothing;
    return true;
  }
  bool start_array(size_t) override {
    if (in_ != In::kRoot || key_ != "Events") return no_text();
    in_ = In::kEvents;
    return true;
  }
  bool end_array() override {
    in_ = In::kRoot;
    return true;
  }
  bool key(string_t& name) override {
    if (name.size() > kLongestText) return stop(kTooLong);
    bool first = true;
    if (in_ == In::kRoot && name == "Header") {
      first = !std::exchange(document_.has_header, true);
    } else if (in_ == In::kRoot && name == "Events") {
      first = !std::exchange(document_.has_events, true);
    } else if (in_ == In::kRoot) {
      return stop(kNoForm);
    } else {
      first = (in_ == In::kHeader ? document_.header : document_.events.back())
                  .emplace(name, std::string())
                  .second;
    }
    if (!first) return stop(fmt::format("'{}' stands twice in one object", shown(name)));
    key_ = name;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) override {
    return stop(fmt::format("no JSON at byte {}", at));
  }

 private:
  enum class In { kNothing, kRoot, kHeader, kEvents, kEvent };
  static constexpr char kNoForm[] =
      "it has something else than 'Header' and 'Events': a form of list that this does not know";
  static constexpr char kTooLong[] = "a text is longer than anything that was published";

  bool stop(std::string why) {
    if (wrong_.empty()) wrong_ = std::move(why);
    return false;
  }
  bool no_text() {
    if (in_ == In::kEvents || in_ == In::kEvent) return stop("an event is no object of texts");
    if (in_ == In::kHeader) return stop("the header is no object of texts");
    return stop(kNoForm);
  }
  bool take(Texts& into, string_t& text) {
    if (text.size() > kLongestText) return stop(kTooLong);
    into[key_] = std::move(text);
    return true;
  }

  Document& document_;
  In in_ = In::kNothing;
  std::string key_, wrong_;
};

// One event, its fields checked as they are asked for.
class Entry {
 public:
  Entry(std::string_view file, const Texts& fields) : file_(file), fields_(fields) {
    if (const auto found = fields.find("EventName"); found != fields.end()) name_ = found->second;
  }

  // nullopt: it is left out.
  Expected<std::optional<Published>> published(std::deque<std::string>& texts) const {
    if (SKIDPROOF_TRY(left_out())) return std::nullopt;
    return SKIDPROOF_TRY(row(texts));
  }

 private:
  tl::unexpected<Error> refuse_field(const char* field, const std::string& why) const {
    const auto found = fields_.find(std::string_view(field));
    const std::string value =
        found == fields_.end() ? "not there" : fmt::format("'{}'", shown(found->second));
    return refuse(file_, fmt::format("{}: {} is {}: {}", shown(name_), field, value, why));
  }

  // nullptr where the event has no such field.
  Expected<const std::string*> text(const char* field) const {
    const auto found = fields_.find(std::string_view(field));
    if (found == fields_.end()) return nullptr;
    const std::string& value = found->second;
    if (!std::all_of(value.begin(), value.end(), is_ascii)) {
      return refuse_field(field, "more than plain text");
    }
    return &value;
  }

  Expected<uint64_t> number(const char* field, uint64_t largest,
                            std::optional<uint64_t> absent = std::nullopt) const {
    const std::string* value = SKIDPROOF_TRY(text(field));
    if (value == nullptr && absent) return *absent;
    if (value == nullptr) return refuse_field(field, "missing");
    // Of several event selects for one event, the first; of several MSRs none is an event's own.
    const auto found = number_in(trimmed(split(*value, ",").front()));
    if (!found) return refuse_field(field, "not a number");
    if (*found > largest) return refuse_field(field, fmt::format("not between 0 and {}", largest));
    return *found;
  }

  Expected<bool> flag(const char* field) const { return SKIDPROOF_TRY(number(field, 3, 0)) != 0; }

  // A mask; nullopt where the list has no such field.
  Expected<std::optional<uint64_t>> counters(const char* field) const {
    constexpr uint64_t kFirstFixed = 32, kLast = 47;
    const std::string* value = SKIDPROOF_TRY(text(field));
    if (value == nullptr) return std::nullopt;
    const std::string all = lowered(trimmed(*value));
    if (all.empty() || all == "na" || all == "null") return std::optional<uint64_t>(0);
    uint64_t mask = 0;
    for (std::string_view part : split(*value, ",")) {
      part = trimmed(part);
      constexpr std::string_view kFixed = "ixed counter ";
      const bool fixed = part.size() == kFixed.size() + 2 &&
                         (part.front() == 'F' || part.front() == 'f') &&
                         part.substr(1).starts_with(kFixed) && is_digit(part.back());
      if (fixed) {
        mask |= uint64_t{1} << (kFirstFixed + static_cast<uint64_t>(part.back() - '0'));
        continue;
      }
      const bool digits =
          !part.empty() && part.size() <= 2 && std::all_of(part.begin(), part.end(), is_digit);
      const uint64_t counter = digits ? *number_in(part) : kLast + 1;
      if (counter > kLast) return refuse_field(field, "neither a counter nor a fixed one");
      mask |= uint64_t{1} << counter;
    }
    return std::optional(mask);
  }

  Expected<std::string> errata() const {
    const std::string* value = SKIDPROOF_TRY(text("Errata"));
    if (value == nullptr) return std::string();
    const std::string all = lowered(trimmed(*value));
    constexpr std::array<std::string_view, 5> kNone = {"null", "0", "na", "none", ""};
    if (std::find(kNone.begin(), kNone.end(), all) != kNone.end()) return std::string();
    std::string joined;
    for (std::string_view part : split(*value, ",;/")) {
      std::string tag(trimmed(part));
      for (char& c : tag) {
        if (is_lower(c)) c = static_cast<char>(c - 'a' + 'A');
      }
      if (tag.empty()) continue;
      if (!is_erratum(tag)) return refuse_field("Errata", "no erratum's id");
      joined += (joined.empty() ? "" : " ") + tag;
    }
    return joined;
  }

  Expected<Precision> precision() const {
    if (fields_.find("Precise") != fields_.end()) {
      return SKIDPROOF_TRY(flag("Precise")) ? kPrecise : kNotPrecise;
    }
    constexpr std::array kByPebs = {kNotPrecise, kPrecise, kPreciseOnly, kPrecise};
    return kByPebs[SKIDPROOF_TRY(number("PEBS", kByPebs.size() - 1, 0))];
  }

  Expected<bool> left_out() const {
    if (SKIDPROOF_TRY(precision()) == kNotPrecise && !counts(name_)) return true;
    for (const char* field : {"Deprecated", "Offcore", "AnyThread", "Offmodule"}) {
      if (SKIDPROOF_TRY(flag(field))) return true;
    }
    return false;
  }

  // Whether signals.inc gives it a meaning in the model.
  static bool counts(std::string_view name) {
    return std::any_of(std::begin(kMeanings), std::end(kMeanings),
                       [&](const Meaning& meaning) { return meaning.name == name; });
  }

  Expected<Published> row(std::deque<std::string>& texts) const {
    if (!is_name(name_)) {
      return refuse(file_, fmt::format("'{}' is no event's name", shown(name_)));
    }
    Published entry;
    const uint64_t with_threads = SKIDPROOF_TRY(counters("Counter")).value_or(0);
    entry.counters = with_threads | SKIDPROOF_TRY(counters("CounterHTOff")).value_or(0);
    if (entry.counters == 0) return refuse_field("Counter", "no counter");
    entry.pebs_counters = SKIDPROOF_TRY(counters("PEBScounters")).value_or(0);
    entry.pdist_counters = SKIDPROOF_TRY(counters("PDISTCounter")).value_or(0);
    entry.pdist_counters |= SKIDPROOF_TRY(counters("PDIR_COUNTER")).value_or(0);
    constexpr std::array<std::pair<const char*, Flag>, 7> kFlags = {
        {{"Invert", kInvert},
         {"EdgeDetect", kEdge},
         {"Equal", kEqual},
         {"TakenAlone", kAlone},
         {"Data_LA", kDataAddress},
         {"L1_Hit_Indication", kL1Hit},
         {"PRECISE_STORE", kPreciseStore}}};
    for (const auto& [field, bit] : kFlags) {
      if (SKIDPROOF_TRY(flag(field))) entry.flags |= bit;
    }
    entry.msr = static_cast<uint32_t>(SKIDPROOF_TRY(number("MSRIndex", 0xFFFF, 0)));
    if (entry.msr != 0) entry.msr_value = SKIDPROOF_TRY(number("MSRValue", UINT64_MAX, 0));
    entry.code = static_cast<uint8_t>(SKIDPROOF_TRY(number("EventCode", 0xFF)));
    entry.umask = static_cast<uint8_t>(SKIDPROOF_TRY(number("UMask", 0xFF)));
    entry.umask2 = static_cast<uint8_t>(SKIDPROOF_TRY(number("UMaskExt", 0xFF, 0)));
    entry.cmask = static_cast<uint8_t>(SKIDPROOF_TRY(number("CounterMask", 0xFF)));
    entry.precision = SKIDPROOF_TRY(precision());
    entry.errata = texts.emplace_back(SKIDPROOF_TRY(errata()));
    entry.name = texts.emplace_back(name_);
    return entry;
  }

  std::string_view file_;
  const Texts& fields_;
  std::string name_;
};

std::string flags_text(const Published& entry) {
  constexpr std::array<std::pair<Flag, std::string_view>, 7> kWords = {
      {{kInvert, "kInvert"},
       {kEdge, "kEdge"},
       {kEqual, "kEqual"},
       {kAlone, "kAlone"},
       {kDataAddress, "kDataAddress"},
       {kL1Hit, "kL1Hit"},
       {kPreciseStore, "kPreciseStore"}}};
  std::string text;
  for (const auto& [flag, word] : kWords) {
    if (!entry.is(flag)) continue;
    if (!text.empty()) text += '|';
    text += word;
  }
  return text.empty() ? "0" : text;
}

// The importer's order: by encoding, then by name, then by everything else as it is written.
auto place_of(const Published& e) {
  return std::tuple(e.code, e.umask, e.umask2, e.cmask, e.name, flags_text(e), e.counters,
                    e.pebs_counters, e.pdist_counters, e.precision, e.msr, e.msr_value, e.errata);
}

}  // namespace

Expected<ReadList> ReadList::read(std::string_view file, std::string_view path,
                                  std::string_view json) {
  if (json.size() > kLargestFile) {
    return refuse(file, fmt::format("it has more than {} MiB", kLargestFile >> 20));
  }
  // The parser takes a zero for the end.
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos) {
    return refuse(file, fmt::format("no JSON at byte {}", zero));
  }
  Document document;
  Form form(document);
  if (!nlohmann::json::sax_parse(json, &form)) return refuse(file, form.wrong());
  if (!document.has_header || !document.has_events) {
    return refuse(file, "neither a header nor events: a form of list that this does not know");
  }
  const std::string& version = document.header["Version"];
  if (!is_version(version)) {
    return refuse(file, fmt::format("its version is '{}': a form of list that this does not know",
                                    shown(version)));
  }
  if (const std::string& date = document.header["DatePublished"]; !is_date(date)) {
    return refuse(file, fmt::format("'{}' is no date", shown(date)));
  }
  ReadList list;
  list.source_ = fmt::format("intel/perfmon {} V{}", path.substr(0, path.find('/')), version);
  list.path_ = path;
  for (const Texts& fields : document.events) {
    const auto entry = SKIDPROOF_TRY(Entry(file, fields).published(list.texts_));
    if (entry) list.events_.push_back(*entry);
  }
  if (list.events_.empty()) return refuse(file, "no event is left");
  std::sort(list.events_.begin(), list.events_.end(),
            [](const Published& a, const Published& b) { return place_of(a) < place_of(b); });
  list.events_.erase(std::unique(list.events_.begin(), list.events_.end(),
                                 [](const Published& a, const Published& b) {
                                   return place_of(a) == place_of(b);
                                 }),
                     list.events_.end());
  return list;
}

Expected<std::set<std::string, std::less<>>> mapped_lists(std::string_view file,
                                                          std::string_view csv) {
  constexpr size_t kLargestMap = size_t{1} << 20;
  if (csv.size() > kLargestMap) return refuse(file, "it has more than 1 MiB");
  if (csv.starts_with("\xEF\xBB\xBF")) csv.remove_prefix(3);
  std::optional<size_t> filename, type;
  size_t columns = 0, line_number = 0;
  std::set<std::string, std::less<>> paths;
  for (std::string_view line : split(csv, "\n")) {
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const bool plain = std::all_of(line.begin(), line.end(),
                                   [](char c) { return c >= ' ' && c <= '~' && c != '"'; });
    const std::vector<std::string_view> cells = split(line, ",");
    if (columns == 0) {
      columns = cells.size();
      for (size_t i = 0; i < cells.size(); ++i) {
        if (cells[i] == "Filename") filename = i;
        if (cells[i] == "EventType") type = i;
      }
    }
    if (!plain || !filename || !type || cells.size() != columns) {
      return refuse(file, fmt::format("line {} is of a form that this does not know", line_number));
    }
    if (cells[*type] != "core" && cells[*type] != "hybridcore") continue;
    std::string_view path = cells[*filename];
    while (path.starts_with('/')) path.remove_prefix(1);
    paths.emplace(path);
  }
  if (!filename) return refuse(file, "it is empty");
  return paths;
}

std::string line_of(const Published& entry) {
  constexpr std::array<std::string_view, 3> kPrecisions = {"kNotPrecise", "kPrecise",
                                                           "kPreciseOnly"};
  return fmt::format(
      R"({{"{}", 0x{:02X}, 0x{:02X}, 0x{:02X}, {}, {}, 0x{:X}, 0x{:X}, 0x{:X}, {}, 0x{:X}, 0x{:X}, "{}"}},)",
      entry.name, entry.code, entry.umask, entry.umask2, entry.cmask, flags_text(entry),
      entry.counters, entry.pebs_counters, entry.pdist_counters, kPrecisions[entry.precision],
      entry.msr, entry.msr_value, entry.errata);
}

}  // namespace skidproof::arch::perfmon
