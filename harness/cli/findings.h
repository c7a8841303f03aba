// What `doctor` finds: each good, a note or bad, with what mends it.
#ifndef SKIDPROOF_HARNESS_CLI_FINDINGS_H_
#define SKIDPROOF_HARNESS_CLI_FINDINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace skidproof::cli {

enum class Health : uint8_t {
  kGood,
  kNote,
  kBad
};                                   // kNote: works, with a loss that `mend` takes away
const char* name_of(Health health);  // "good", "note", "bad"

struct Finding {
  std::string section;
  std::string name;
  Health health = Health::kGood;
  std::string value;
  std::string mend;  // a command or an action; empty when nothing needs mending
};

// Appends to a list, section by section.
class Findings {
 public:
  explicit Findings(std::vector<Finding>& all) : all_(all) {}
  void section(std::string name) { section_ = std::move(name); }
  void good(std::string name, std::string value) {
    add(std::move(name), Health::kGood, std::move(value), "");
  }
  void note(std::string name, std::string value, std::string mend) {
    add(std::move(name), Health::kNote, std::move(value), std::move(mend));
  }
  void bad(std::string name, std::string value, std::string mend) {
    add(std::move(name), Health::kBad, std::move(value), std::move(mend));
  }

 private:
  void add(std::string name, Health health, std::string value, std::string mend) {
    all_.push_back({section_, std::move(name), health, std::move(value), std::move(mend)});
  }

  std::vector<Finding>& all_;
  std::string section_;
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_FINDINGS_H_
