#include "harness/cli/command.h"

#include <gmock/gmock.h>

#include "results/json.h"

namespace skidproof::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Given {
  Given() {
    Command verb = line.verb("measure", "measures");
    verb.option("--size", size, "of it").named("N").within(1u, 9u).shows_default();
    verb.option("--name", names, "may be given again").named("NAME").many();
    verb.option("--time", seconds, "how long").in_seconds();
    verb.flag("--quick,!--slow", quick, "less of it");
    const Option resume = verb.option("--resume", resumed, "an earlier one");
    verb.option(
        "--part",
        [](const std::string& text) -> Expected<void> {
          if (text == "1/2") return {};
          return fail(ErrorCode::kInvalidArgument, "no part '" + text + "'", "try 1/2");
        },
        "a part");
    verb.excludes_all_but(resume, {"--quick"});
    verb.when_named([this] { ++called; });
    line.hidden_verb("inner", "of its own");
    line.foreign_verb("other", "another program's",
                      [this](const std::vector<std::string>& arguments) { passed = arguments; });
    line.needs_verb();
  }
  // What is wrong, or nothing.
  std::string refused(std::vector<std::string> arguments) {
    const auto parsed = line.parse(std::move(arguments));
    return parsed ? "" : parsed.error().message;
  }

  CommandLine line{"program", "about"};
  unsigned size = 5;
  std::vector<std::string> names, passed;
  double seconds = 0;
  bool quick = false;
  std::string resumed;
  unsigned called = 0;
};

TEST(CommandLine, SetsVariablesAndCallsTheVerb) {
  Given given;
  ASSERT_EQ(given.refused({"measure", "--size", "9", "--name", "a", "--name", "b", "--time", "2m",
                           "--quick"}),
            "");
  EXPECT_EQ(given.size, 9u);
  EXPECT_THAT(given.names, ElementsAre("a", "b"));
  EXPECT_EQ(given.seconds, 120);
  EXPECT_TRUE(given.quick);
  EXPECT_EQ(given.called, 1u);
  EXPECT_EQ(given.line.verb_named(), "measure");
}

TEST(CommandLine, SaysWhatIsWrong) {
  EXPECT_THAT(Given().refused({"measure", "--size", "10"}), HasSubstr("--size"));
  EXPECT_THAT(Given().refused({"measure", "--size", "many"}), HasSubstr("many"));
  EXPECT_THAT(Given().refused({"measure", "--time", "2x"}), HasSubstr("x"));
  EXPECT_THAT(Given().refused({"measure", "--part", "3/2"}), HasSubstr("no part '3/2': try 1/2"));
  EXPECT_THAT(Given().refused({"measure", "--resume", "x", "--size", "2"}), HasSubstr("--resume"));
  EXPECT_THAT(Given().refused({"measure", "--nothing"}), HasSubstr("--nothing"));
  EXPECT_NE(Given().refused({}), "") << "a verb is needed";
  EXPECT_EQ(Given().refused({"measure", "--resume", "x", "--quick"}), "");
  EXPECT_EQ(Given().refused({"measure", "--part", "1/2"}), "");
}

TEST(CommandLine, PassesOnWhatAnotherProgramReads) {
  Given given;
  ASSERT_EQ(given.refused({"other", "--help", "file", "--size"}), "");
  EXPECT_THAT(given.passed, ElementsAre("--help", "file", "--size"));
}

TEST(CommandLine, DescribesItself) {
  const Given given;
  EXPECT_THAT(given.line.verbs(), ElementsAre("measure", "other")) << "not the hidden one";
  EXPECT_TRUE(given.line.has_verb("inner"));
  const results::Json all = given.line.describe();
  ASSERT_EQ(all["verbs"].size(), 2u);
  EXPECT_EQ(all["verbs"][1]["elsewhere"], true);
  for (const results::Json& option : all["verbs"][0]["options"]) {
    if (option["names"] != results::Json::array({"--size"})) continue;
    EXPECT_EQ(option["value"], "N");
    EXPECT_EQ(option["default"], "5");
    return;
  }
  FAIL() << all;
}

}  // namespace
}  // namespace skidproof::cli
