#include "pebs/arch/errata_catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "pebs/arch/clause.h"
#include "pebs/arch/near_match.h"

namespace skidproof::arch {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr size_t kLongestId = 40, kLongestTitle = 140;
constexpr std::array<std::string_view, 6> kConcerns = {"pmu", "pebs", "pmi", "bts", "lbr", "rdpmc"};
constexpr std::array<std::string_view, 13> kNeeds = {
    "hyper-threading",  "tsx",           "sgx",           "virtualization", "smm",
    "freeze-in-smm",    "freeze-on-pmi", "machine-check", "probe-mode",     "deep-c-state",
    "frequency-change", "legacy-mode",   "any-thread"};

bool is_upper_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); }

bool is_id(std::string_view text) {
  const auto is_alnum = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  return text.size() >= 2 && text.size() <= kLongestId && is_alnum(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_alnum(c) || c == '.' || c == '-'; });
}

// "06_2A"
std::optional<Part> model_of(std::string_view text) {
  constexpr size_t kLength = 5, kLine = 2;
  if (text.size() != kLength || text[kLine] != '_') return std::nullopt;
  for (size_t i = 0; i < kLength; ++i) {
    if (i != kLine && !is_upper_hex(text[i])) return std::nullopt;
  }
  const auto part = parse_part(text);
  return part ? std::optional(*part) : std::nullopt;
}

// "0x28", in lower case, of 32 bits.
std::optional<uint32_t> revision_of(std::string_view text) {
  constexpr size_t kLongest = 10;
  if (!text.starts_with("0x") || text.size() < 3 || text.size() > kLongest) return std::nullopt;
  uint32_t value = 0;
  for (char c : text.substr(2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value == 0 ? std::nullopt : std::optional(value);
}

// A pattern over test ids: what --filter takes, without its own separators.
bool is_pattern(std::string_view text) {
  constexpr std::string_view kOthers = "_*?+=./";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

// One JSON object of a file, of which every field is to be asked for.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  tl::unexpected<Error> refuse(const std::string& what) const {
    return skidproof::fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", where_, what),
                           "pebs/arch/errata/schema.json says what a catalogue's file holds");
  }
  const std::string& where() const { return where_; }
  void at(std::string where) { where_ = std::move(where); }

  const Json* find(const char* name) {
    asked_.insert(name);
    const auto found = json_.find(name);
    return found == json_.end() ? nullptr : &*found;
  }
  Expected<const Json*> need(const char* name) {
    const Json* found = find(name);
    if (found == nullptr) return refuse(fmt::format("'{}' is missing", name));
    return found;
  }

  // A string with something in it; empty where an optional one is missing.
  Expected<std::string> words(const char* name, bool required = true) {
    const Json* found = find(name);
    if (found == nullptr && !required) return std::string();
    if (found == nullptr) return refuse(fmt::format("'{}' is missing", name));
    if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
      return refuse(fmt::format("'{}' is no text", name));
    }
    return found->get<std::string>();
  }
  // Several of them.
  Expected<Words> list(const char* name, bool required = true) {
    const Json* found = find(name);
    if (found == nullptr && !required) return Words();
    if (found == nullptr) return refuse(fmt::format("'{}' is missing", name));
    if (!found->is_array()) return refuse(fmt::format("'{}' is no list", name));
    Words all;
    for (const Json& item : *found) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
        return refuse(fmt::format("'{}' holds something that is no text", name));
      }
      all.push_back(item.get<std::string>());
    }
    return all;
  }
  // One of a closed list, as its index.
  template <size_t kCount>
  Expected<size_t> choice(const char* name, const std::array<std::string_view, kCount>& known) {
    const std::string word = SKIDPROOF_TRY(words(name));
    return place_of(name, word, known);
  }
  template <size_t kCount>
  Expected<size_t> place_of(const char* name, std::string_view word,
                            const std::array<std::string_view, kCount>& known) const {
    const auto found = std::find(known.begin(), known.end(), word);
    if (found == known.end()) {
      return refuse(
          fmt::format("'{}' is '{}', which is none of: {}", name, word, fmt::join(known, ", ")));
    }
    return static_cast<size_t>(found - known.begin());
  }

  // Whatever nobody asked for is a mistake.
  Expected<void> nothing_else() const {
    for (const auto& [name, value] : json_.items()) {
      if (asked_.find(name) != asked_.end()) continue;
      const std::vector<std::string_view> known(asked_.begin(), asked_.end());
      const auto near = near_matches(name, known, 1);
      return refuse(fmt::format("there is no field '{}'{}", name,
                                near.empty() ? "" : "; did you mean '" + near.front() + "'?"));
    }
    return {};
  }

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string, std::less<>> asked_;
};

Expected<std::vector<Part>> models_in(Object& object) {
  std::vector<Part> models;
  for (const std::string& text : SKIDPROOF_TRY(object.list("models"))) {
    const auto model = model_of(text);
    if (!model) {
      return object.refuse(
          fmt::format("'models' holds '{}', which is no model such as 06_2A", text));
    }
    models.push_back(*model);
  }
  if (models.empty()) return object.refuse("'models' is empty");
  return models;
}

Expected<std::pair<uint8_t, uint8_t>> steppings_in(Object& object) {
  constexpr int kLast = 15;
  const Json* found = object.find("steppings");
  if (found == nullptr) return std::pair<uint8_t, uint8_t>(0, kLast);
  const auto is_stepping = [](const Json& item) {
    return item.is_number_integer() && item >= 0 && item <= kLast;
  };
  if (!found->is_array() || found->size() != 2 || !is_stepping((*found)[0]) ||
      !is_stepping((*found)[1]) || (*found)[0] > (*found)[1]) {
    return object.refuse("'steppings' is not the first and the last of 0 to 15");
  }
  return std::pair((*found)[0].get<uint8_t>(), (*found)[1].get<uint8_t>());
}

Expected<void> take_affected(Object object, std::vector<AffectedParts>& into) {
  AffectedParts affected;
  const std::vector<Part> models = SKIDPROOF_TRY(models_in(object));
  const auto [first, last] = SKIDPROOF_TRY(steppings_in(object));
  affected.first_stepping = first;
  affected.last_stepping = last;
  if (object.find("core") != nullptr) {
    constexpr std::array<std::string_view, 2> kCores = {"P", "E"};
    affected.core =
        SKIDPROOF_TRY(object.choice("core", kCores)) == 0 ? CoreType::kCore : CoreType::kAtom;
  }
  if (object.find("fixed_from") != nullptr) {
    const std::string text = SKIDPROOF_TRY(object.words("fixed_from"));
    const auto revision = revision_of(text);
    if (!revision) {
      return object.refuse(
          fmt::format("'fixed_from' is '{}', which is no revision such as 0x28", text));
    }
    affected.fixed_from = *revision;
  }
  const std::string by = SKIDPROOF_TRY(object.words("by"));
  const auto authority = parse_authority(by);
  if (!authority) return object.refuse(fmt::format("'by' is '{}', which is nobody", by));
  affected.by = *authority;
  SKIDPROOF_CHECK(object.nothing_else());
  for (const Part& model : models) {
    affected.family = static_cast<uint8_t>(model.family);
    affected.model = static_cast<uint8_t>(model.model);
    into.push_back(affected);
  }
  return {};
}

Expected<Workaround> workaround_in(Object object) {
  Workaround workaround;
  std::array<std::string_view, 6> kinds;
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = name_of(static_cast<WorkaroundKind>(i));
  workaround.kind = static_cast<WorkaroundKind>(SKIDPROOF_TRY(object.choice("kind", kinds)));
  workaround.text = SKIDPROOF_TRY(object.words("text", false));
  workaround.in_linux = SKIDPROOF_TRY(object.words("in_linux", false));
  SKIDPROOF_CHECK(object.nothing_else());
  return workaround;
}

Expected<std::string> filter_in(Object& object, const char* name) {
  std::string filter;
  for (const std::string& pattern : SKIDPROOF_TRY(object.list(name))) {
    if (!is_pattern(pattern)) {
      return object.refuse(fmt::format("'{}' holds '{}', which matches no test id", name, pattern));
    }
    filter += (filter.empty() ? "" : ":") + pattern;
  }
  return filter;
}

Expected<Reproducer> reproducer_in(Object object) {
  Reproducer reproducer;
  reproducer.tests = SKIDPROOF_TRY(filter_in(object, "tests"));
  reproducer.controls = SKIDPROOF_TRY(filter_in(object, "controls"));
  reproducer.consequences = SKIDPROOF_TRY(filter_in(object, "consequences"));
  if (reproducer.tests.empty()) return object.refuse("'tests' is empty");
  if (reproducer.controls.empty()) return object.refuse("'controls' is empty");
  SKIDPROOF_CHECK(object.nothing_else());
  return reproducer;
}

// An object under this name.
Expected<Object> object_in(Object& object, const char* name) {
  const Json* found = SKIDPROOF_TRY(object.need(name));
  if (!found->is_object()) return object.refuse(fmt::format("'{}' is no object", name));
  return Object(*found, fmt::format("{}: {}", object.where(), name));
}

Expected<void> take_ids(Object& object, Erratum& erratum) {
  erratum.aliases = SKIDPROOF_TRY(object.list("aliases"));
  for (const std::string& alias : erratum.aliases) {
    if (!is_id(alias)) return object.refuse(fmt::format("the alias '{}' is no id", alias));
  }
  return {};
}

template <size_t kCount>
Expected<Words> closed_list(Object& object, const char* name,
                            const std::array<std::string_view, kCount>& known) {
  const Words words = SKIDPROOF_TRY(object.list(name));
  for (const std::string& word : words) SKIDPROOF_CHECK(object.place_of(name, word, known));
  return words;
}

Expected<void> take_sources(Object& object, Erratum& erratum) {
  erratum.clauses = SKIDPROOF_TRY(object.list("clauses"));
  for (const std::string& clause : erratum.clauses) {
    if (!find_clause(clause)) {
      return object.refuse(fmt::format("'clauses' names {}, which does not exist", clause));
    }
  }
  erratum.events = SKIDPROOF_TRY(object.list("events", false));
  erratum.sources = SKIDPROOF_TRY(object.list("sources"));
  if (erratum.sources.empty()) return object.refuse("'sources' is empty");
  return {};
}

Expected<void> take_reproducer(Object& object, Erratum& erratum) {
  const bool has = object.find("reproducer") != nullptr;
  if (has == (object.find("no_reproducer") != nullptr)) {
    return object.refuse("it has to have one of 'reproducer' and 'no_reproducer'");
  }
  if (has) {
    Object under = SKIDPROOF_TRY(object_in(object, "reproducer"));
    erratum.reproducer = SKIDPROOF_TRY(reproducer_in(std::move(under)));
  } else {
    erratum.no_reproducer = SKIDPROOF_TRY(object.words("no_reproducer"));
  }
  return {};
}

Expected<Erratum> erratum_in(Object object) {
  Erratum erratum;
  erratum.id = SKIDPROOF_TRY(object.words("id"));
  if (!is_id(erratum.id)) return object.refuse(fmt::format("'{}' is no id", erratum.id));
  object.at(fmt::format("{} ({})", object.where(), erratum.id));
  SKIDPROOF_CHECK(take_ids(object, erratum));
  erratum.title = SKIDPROOF_TRY(object.words("title"));
  if (erratum.title.size() > 2 * kLongestTitle) return object.refuse("'title' is too long");
  const Json* symptom = SKIDPROOF_TRY(object.need("symptom"));
  if (!symptom->is_null()) erratum.symptom = SKIDPROOF_TRY(object.words("symptom"));
  Object around = SKIDPROOF_TRY(object_in(object, "workaround"));
  erratum.workaround = SKIDPROOF_TRY(workaround_in(std::move(around)));
  erratum.concerns = SKIDPROOF_TRY(closed_list(object, "concerns", kConcerns));
  if (erratum.concerns.empty()) return object.refuse("'concerns' is empty");
  erratum.needs = SKIDPROOF_TRY(closed_list(object, "needs", kNeeds));
  const Json* affected = SKIDPROOF_TRY(object.need("affected"));
  if (!affected->is_array() || affected->empty())
    return object.refuse("'affected' is no list of parts");
  for (const Json& group : *affected) {
    if (!group.is_object()) return object.refuse("'affected' holds something that is no object");
    SKIDPROOF_CHECK(take_affected(Object(group, object.where() + ": affected"), erratum.parts));
  }
  SKIDPROOF_CHECK(take_sources(object, erratum));
  SKIDPROOF_CHECK(take_reproducer(object, erratum));
  erratum.note = SKIDPROOF_TRY(object.words("note", false));
  SKIDPROOF_CHECK(object.nothing_else());
  return erratum;
}

Expected<ErrataDocument> document_in(Object object) {
  constexpr std::array<std::string_view, 3> kRead = {"whole", "some", "no"};
  constexpr size_t kLongestPrefix = 4;
  ErrataDocument document;
  document.prefix = SKIDPROOF_TRY(object.words("prefix"));
  object.at(fmt::format("{} ({})", object.where(), document.prefix));
  if (document.prefix.size() > kLongestPrefix || prefix_of(document.prefix + "1").empty()) {
    return object.refuse("'prefix' is not the capital letters before an id's number");
  }
  document.title = SKIDPROOF_TRY(object.words("title"));
  document.number = SKIDPROOF_TRY(object.words("number", false));
  document.models = SKIDPROOF_TRY(models_in(object));
  document.read = static_cast<ErrataDocument::Read>(SKIDPROOF_TRY(object.choice("read", kRead)));
  document.note = SKIDPROOF_TRY(object.words("note", false));
  SKIDPROOF_CHECK(object.nothing_else());
  return document;
}

// Each entry of a list that a file may have.
template <typename Take>
Expected<void> each(Object& file, const char* name, const char* singular, const Take& take) {
  const Json* list = file.find(name);
  if (list == nullptr) return {};
  if (!list->is_array()) return file.refuse(fmt::format("'{}' is no list", name));
  size_t number = 0;
  for (const Json& item : *list) {
    const std::string where = fmt::format("{}: {} {}", file.where(), singular, ++number);
    if (!item.is_object()) {
      return skidproof::fail(ErrorCode::kInvalidArgument, where + " is no object",
                             "pebs/arch/errata/schema.json says what a catalogue's file holds");
    }
    SKIDPROOF_CHECK(take(Object(item, where)));
  }
  return {};
}

}  // namespace

Expected<ErrataCatalogue> ErrataCatalogue::read(std::span<const ErrataText> files) {
  ErrataCatalogue catalogue;
  std::vector<std::string> places;  // of the errata
  for (const ErrataText& file : files) {
    const Json json = Json::parse(file.text, nullptr, false);
    Object top(json, std::string(file.name));
    if (json.is_discarded() || !json.is_object()) {
      return top.refuse(json.is_discarded() ? "it is no JSON" : "it is no JSON object");
    }
    top.find("$schema");
    const auto documents =
        each(top, "documents", "document", [&](const Object& object) -> Expected<void> {
          ErrataDocument document = SKIDPROOF_TRY(document_in(object));
          if (catalogue.document(document.prefix) != nullptr) {
            return object.refuse(fmt::format("{} is described twice", document.prefix));
          }
          catalogue.documents_.push_back(std::move(document));
          return {};
        });
    if (!documents) return tl::make_unexpected(documents.error());
    const auto entries =
        each(top, "errata", "erratum", [&](const Object& object) -> Expected<void> {
          Erratum erratum = SKIDPROOF_TRY(erratum_in(object));
          Words ids = erratum.aliases;
          ids.push_back(erratum.id);
          for (const std::string& id : ids) {
            const auto [place, is_new] = catalogue.by_id_.try_emplace(id, catalogue.errata_.size());
            if (is_new) continue;
            const bool own = place->second == catalogue.errata_.size();
            return object.refuse(
                fmt::format("{} has the id {}, and so has {}", erratum.id, id,
                            own ? "it a second time" : catalogue.errata_[place->second].id));
          }
          places.push_back(object.where());
          catalogue.errata_.push_back(std::move(erratum));
          return {};
        });
    if (!entries) return tl::make_unexpected(entries.error());
    SKIDPROOF_CHECK(top.nothing_else());
  }
  for (const auto& [id, index] : catalogue.by_id_) {
    const std::string_view prefix = prefix_of(id);
    if (prefix.empty() || catalogue.document(prefix) != nullptr) continue;
    return skidproof::fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} ({}): no document with the prefix {} is described, whose id {} is",
                    places[index], catalogue.errata_[index].id, prefix, id),
        "add it to 'documents'");
  }
  return catalogue;
}

const ErrataCatalogue& ErrataCatalogue::built_in() {
  static const ErrataCatalogue catalogue = [] {
    auto read = ErrataCatalogue::read(built_in_errata_files());
    if (!read) {
      fmt::print(stderr, "skidproof: the errata catalogue that it was built with is damaged: {}\n",
                 read.error().text());
      std::abort();
    }
    return std::move(*read);
  }();
  return catalogue;
}

const Erratum* ErrataCatalogue::find(std::string_view id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &errata_[found->second];
}

const ErrataDocument* ErrataCatalogue::document(std::string_view prefix) const {
  const auto found =
      std::find_if(documents_.begin(), documents_.end(),
                   [&](const ErrataDocument& document) { return document.prefix == prefix; });
  return found == documents_.end() ? nullptr : &*found;
}

bool ErrataCatalogue::knows(const Part& part) const {
  return std::any_of(documents_.begin(), documents_.end(), [&](const ErrataDocument& document) {
    return document.read == ErrataDocument::Read::kWhole && document.is_about(part);
  });
}

}  // namespace skidproof::arch
