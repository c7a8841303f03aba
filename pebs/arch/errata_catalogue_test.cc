#include "pebs/arch/errata_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "pebs/arch/microarch.h"

namespace skidproof::arch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kDocuments[] =
    R"("documents": [{"prefix": "ZZ", "title": "A document", "models": ["06_2A"], "read": "whole"}])";

// A catalogue of one good entry, in which one piece of text is replaced.
std::string with(const std::string& piece, const std::string& instead) {
  std::string text = std::string("{") + kDocuments + R"(, "errata": [{
    "id": "ZZ1", "aliases": ["ZZ2"], "title": "a title", "symptom": null,
    "workaround": {"kind": "software", "text": "do not", "in_linux": "6.12"},
    "concerns": ["pebs"], "needs": ["hyper-threading"],
    "affected": [{"models": ["06_2A", "06_2D"], "steppings": [3, 7], "fixed_from": "0x28", "by": "code"}],
    "clauses": ["R13"], "sources": ["a document, ZZ1"],
    "reproducer": {"tests": ["A.B"], "controls": ["A.C/*"], "consequences": []}}]})";
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), instead);
}

std::string problem(const std::string& text) {
  const ErrataText file = {"one.json", text};
  const auto read = ErrataCatalogue::read({&file, 1});
  return read ? "" : read.error().message;
}

TEST(ErrataCatalogue, ReadsAnEntry) {
  const std::string text = with("ZZ1", "ZZ1");
  const ErrataText file = {"one.json", text};
  const auto catalogue = ErrataCatalogue::read({&file, 1});
  ASSERT_TRUE(catalogue) << catalogue.error().text();
  const Erratum* erratum = catalogue->find("ZZ2");
  ASSERT_NE(erratum, nullptr);
  EXPECT_EQ(erratum, catalogue->find("ZZ1"));
  EXPECT_EQ(catalogue->find("ZZ3"), nullptr);
  EXPECT_EQ(erratum->parts.size(), 2u);
  EXPECT_EQ(erratum->parts[1].model, 0x2D);
  EXPECT_EQ(erratum->parts[1].fixed_from, 0x28u);
  EXPECT_EQ(erratum->parts[1].by, Authority::kCode);
  EXPECT_FALSE(erratum->symptom);
  EXPECT_EQ(erratum->reproducer->controls, "A.C/*");
  EXPECT_TRUE(erratum->listed_for({.family = 6, .model = 0x2A, .stepping = 7, .microcode = 0x27}));
  EXPECT_FALSE(erratum->listed_for({.family = 6, .model = 0x2A, .stepping = 7, .microcode = 0x28}));
  EXPECT_FALSE(erratum->listed_for({.family = 6, .model = 0x2A, .stepping = 2}));
  EXPECT_TRUE(catalogue->knows({.family = 6, .model = 0x2A}));
  EXPECT_FALSE(catalogue->knows({.family = 6, .model = 0x2D}));
}

TEST(ErrataCatalogue, NamesFileEntryAndFieldOfWhatIsWrong) {
  const auto complains = [](const char* piece, const char* instead, const char* of) {
    EXPECT_THAT(problem(with(piece, instead)),
                AllOf(HasSubstr("one.json: erratum 1"), HasSubstr(of)))
        << instead;
  };
  complains("\"id\": \"ZZ1\"", "\"id\": \"Z Z\"", "no id");
  complains("\"id\": \"ZZ1\"", "\"id\": 7", "'id'");
  complains("[\"ZZ2\"]", "\"ZZ2\"", "'aliases' is no list");
  complains("[\"ZZ2\"]", "[\"ZZ1\"]", "ZZ1 has the id ZZ1, and so has it a second time");
  complains("\"title\": \"a title\",", "", "(ZZ1): 'title' is missing");
  complains("null", "7", "'symptom'");
  complains("\"software\"", "\"prayer\"", "'kind' is 'prayer', which is none of: none, unknown");
  complains("\"text\"", "\"txt\"", "there is no field 'txt'; did you mean 'text'?");
  complains("[\"pebs\"]", "[\"gpu\"]", "'concerns' is 'gpu'");
  complains("\"06_2D\"", "\"06_2d\"", "'06_2d', which is no model");
  complains("[3, 7]", "[7, 3]", "'steppings'");
  complains("[3, 7]", "[3, 77]", "'steppings'");
  complains("\"0x28\"", "\"28\"", "'fixed_from' is '28'");
  complains("\"0x28\"", "\"0x123456789\"", "'fixed_from'");
  complains("\"by\": \"code\"", "\"by\": \"hearsay\"", "'by' is 'hearsay'");
  complains("[\"R13\"]", "[\"R999\"]", "names R999, which does not exist");
  complains("[\"a document, ZZ1\"]", "[]", "'sources' is empty");
  complains("[\"A.B\"]", "[]", "'tests' is empty");
  complains("[\"A.B\"]", "[\"A.B-C.D\"]", "matches no test id");
  complains("[\"A.C/*\"]", "[]", "'controls' is empty");
  complains("\"reproducer\"", "\"no_reproducer\": \"x\", \"reproducer\"", "one of 'reproducer'");
  EXPECT_THAT(problem("{"), HasSubstr("one.json: it is no JSON"));
  EXPECT_THAT(problem("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(problem(R"({"errata": [7]})"), HasSubstr("erratum 1 is no object"));
  EXPECT_THAT(problem(R"({"erata": []})"), HasSubstr("no field 'erata'"));
  EXPECT_THAT(problem(with("\"prefix\": \"ZZ\"", "\"prefix\": \"YY\"")),
              HasSubstr("no document with the prefix ZZ is described"));
}

TEST(ErrataCatalogue, RefusesAnAliasThatTwoEntriesHave) {
  const std::string one = with("ZZ1", "ZZ1");
  std::string other = with("\"id\": \"ZZ1\"", "\"id\": \"ZZ3\"");
  other.replace(other.find(kDocuments), std::string(kDocuments).size(), "\"documents\": []");
  const ErrataText files[] = {{"one.json", one}, {"other.json", other}};
  const auto read = ErrataCatalogue::read(files);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message,
              AllOf(HasSubstr("other.json"), HasSubstr("ZZ3 has the id ZZ2, and so has ZZ1")));
}

TEST(ErrataCatalogue, KnowsItsOwnEntriesByEachOfTheirIds) {
  const ErrataCatalogue& catalogue = ErrataCatalogue::built_in();
  EXPECT_GT(catalogue.errata().size(), 100u);
  size_t ids = 0;
  for (const Erratum& erratum : catalogue.errata()) {
    ids += 1 + erratum.aliases.size();
    EXPECT_EQ(find_erratum(erratum.id), &erratum);
    for (const std::string& alias : erratum.aliases)
      EXPECT_EQ(find_erratum(alias), &erratum) << alias;
  }
  EXPECT_GT(ids, 155u);
}

TEST(Errata, ARowHasThoseOfThePartsThatItCovers) {
  const auto row = [](const char* name) -> const Microarch& { return **find_microarch(name); };
  EXPECT_TRUE(has_erratum(row("sandy-bridge"), "BJ103"));
  EXPECT_TRUE(has_erratum(row("haswell"), "HSD11")) << "an alias";
  EXPECT_FALSE(has_erratum(row("skylake"), "BJ103"));
  EXPECT_FALSE(has_erratum(row("skylake"), "no such id"));
  const auto part = part_with(row("haswell"), *find_erratum("HSD143"));
  ASSERT_TRUE(part);
  EXPECT_TRUE(find_erratum("HSD143")->listed_for(*part));
  EXPECT_FALSE(part_with(row("skylake"), *find_erratum("HSD143")));
}

TEST(Errata, AnIdsDocumentIsItsCapitalLetters) {
  EXPECT_EQ(prefix_of("BJ103"), "BJ");
  EXPECT_EQ(prefix_of("linux-tfa"), "");
  EXPECT_EQ(prefix_of("TFA"), "");
  EXPECT_EQ(prefix_of("103"), "");
  EXPECT_EQ(prefix_of(""), "");
}

}  // namespace
}  // namespace skidproof::arch
