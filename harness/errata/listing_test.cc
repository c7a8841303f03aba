#include "harness/errata/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace skidproof::errata {
namespace {

using arch::CoreType;
using results::Exposure;
using results::Listed;
using ::testing::HasSubstr;

constexpr char kCatalogue[] = R"({
  "documents": [{"prefix": "ZZ", "title": "A document", "models": ["06_2A", "06_BA"], "read": "whole"},
                {"prefix": "YY", "title": "Another", "models": ["06_2D"], "read": "some"}],
  "errata": [
    {"id": "ZZ1", "aliases": [], "title": "mended", "symptom": null, "workaround": {"kind": "none"},
     "concerns": ["pebs"], "needs": [], "clauses": [], "sources": ["x"], "no_reproducer": "none",
     "affected": [{"models": ["06_2A"], "steppings": [7, 7], "fixed_from": "0x28", "by": "specification-update"}]},
    {"id": "ZZ2", "aliases": [], "title": "with a sibling", "symptom": null,
     "workaround": {"kind": "configuration", "in_linux": "4.1"},
     "concerns": ["pmu"], "needs": ["hyper-threading"], "clauses": [], "sources": ["x"], "no_reproducer": "none",
     "affected": [{"models": ["06_2A"], "by": "code"}]},
    {"id": "ZZ3", "aliases": [], "title": "of E-cores", "symptom": null, "workaround": {"kind": "none"},
     "concerns": ["pmu"], "needs": [], "clauses": [], "sources": ["x"], "no_reproducer": "none",
     "affected": [{"models": ["06_BA"], "core": "E", "by": "event-list"}]}]})";

const arch::ErrataCatalogue& catalogue() {
  static const arch::ErrataCatalogue read = [] {
    const arch::ErrataText file = {"test.json", kCatalogue};
    auto result = arch::ErrataCatalogue::read({&file, 1});
    EXPECT_TRUE(result) << result.error().text();
    return *result;
  }();
  return read;
}

Subject sandy_bridge(unsigned stepping = 7, uint32_t microcode = 0x20) {
  return {
      .vendor = "GenuineIntel",
      .part = arch::Part{.family = 6, .model = 0x2A, .stepping = stepping, .microcode = microcode}};
}

Listing of(const char* id, const Subject& subject) {
  return listing_of(catalogue(), *catalogue().find(id), subject);
}

TEST(Listing, AMicrocodePastTheFixMendsIt) {
  EXPECT_EQ(of("ZZ1", sandy_bridge()).verdict, Listed::kAffected);
  EXPECT_EQ(of("ZZ1", sandy_bridge()).exposure, Exposure::kExposed);
  const Listing mended = of("ZZ1", sandy_bridge(7, 0x28));
  EXPECT_EQ(mended.verdict, Listed::kFixedByMicrocode);
  EXPECT_EQ(mended.exposure, Exposure::kNone);
  EXPECT_EQ(mended.fixed_from, 0x28u);
  const Listing unread = of("ZZ1", sandy_bridge(7, 0));
  EXPECT_EQ(unread.verdict, Listed::kUnknown);
  EXPECT_THAT(unread.why, HasSubstr("the revision here is not known"));
}

TEST(Listing, OtherSteppingsAreNotAffected) {
  const Listing other = of("ZZ1", sandy_bridge(6));
  EXPECT_EQ(other.verdict, Listed::kNotAffected);
  EXPECT_THAT(other.why, HasSubstr("other steppings"));
}

TEST(Listing, NotListedMeansNotAffectedOnlyWhereADocumentWasReadWhole) {
  EXPECT_EQ(of("ZZ3", sandy_bridge()).verdict, Listed::kNotAffected);
  Subject server = sandy_bridge();
  server.part->model = 0x2D;
  EXPECT_EQ(of("ZZ3", server).verdict, Listed::kUnknown);
  EXPECT_THAT(of("ZZ3", server).why, HasSubstr("06_2D"));
}

TEST(Listing, NothingIsSaidOfWhoCannotBeKnown) {
  Subject guest = sandy_bridge();
  guest.hypervisor = "KVMKVMKVM";
  EXPECT_EQ(of("ZZ1", guest).verdict, Listed::kUnknown);
  EXPECT_EQ(of("ZZ1", guest).exposure, Exposure::kUnknown);
  EXPECT_THAT(of("ZZ1", guest).why, HasSubstr("KVMKVMKVM"));
  Subject other = sandy_bridge();
  other.vendor = "AuthenticAMD";
  EXPECT_THAT(unknowable(catalogue(), other), HasSubstr("AuthenticAMD"));
  Subject strange = sandy_bridge();
  strange.part->model = 0xFE;
  EXPECT_THAT(unknowable(catalogue(), strange), HasSubstr("06_FE"));
  strange.part.reset();
  EXPECT_THAT(unknowable(catalogue(), strange), HasSubstr("not known"));
  EXPECT_EQ(unknowable(catalogue(), sandy_bridge()), "");
}

TEST(Listing, AWorkaroundIsInPlaceWithoutWhatItNeedsOrWithALinuxThatAppliesIt) {
  Subject subject = sandy_bridge();
  EXPECT_EQ(of("ZZ2", subject).exposure, Exposure::kExposed);
  subject.hyper_threading = true;
  EXPECT_EQ(of("ZZ2", subject).exposure, Exposure::kExposed);
  subject.hyper_threading = false;
  EXPECT_EQ(of("ZZ2", subject).exposure, Exposure::kInPlace);
  subject.hyper_threading = true;
  subject.linux_release = "4.0.9";
  EXPECT_EQ(of("ZZ2", subject).exposure, Exposure::kExposed);
  subject.linux_release = "4.10.1-generic";
  EXPECT_EQ(of("ZZ2", subject).exposure, Exposure::kInPlace);
  EXPECT_EQ(of("ZZ2", subject).verdict, Listed::kAffected);
}

TEST(Listing, TellsTheCoresOfAHybridPartApart) {
  Subject subject = sandy_bridge();
  subject.part->model = 0xBA;
  EXPECT_EQ(of("ZZ3", subject).verdict, Listed::kUnknown);
  subject.core = CoreType::kAtom;
  EXPECT_EQ(of("ZZ3", subject).verdict, Listed::kAffected);
  EXPECT_EQ(of("ZZ3", subject).by, arch::Authority::kEventList);
  subject.core = CoreType::kCore;
  EXPECT_EQ(of("ZZ3", subject).verdict, Listed::kNotAffected);
}

TEST(Subject, WhatAModelPlaysIsWhatItIs) {
  results::MachineRow row;
  row.machine = "virtual-lab:haswell";
  row.provenance = results::RowProvenance::kVirtualLab;
  row.vendor = "AuthenticAMD";
  row.hypervisor = "SkidproofLab";
  row.os = "Linux 6.1.0-56-cloud-amd64";
  row.family = 6;
  row.model = 0x3C;
  row.sibling_thread = true;
  const Subject subject = subject_of(row);
  EXPECT_EQ(subject.vendor, "");
  EXPECT_EQ(subject.hypervisor, "");
  EXPECT_EQ(subject.linux_release, "");
  EXPECT_EQ(subject.part->model, 0x3Cu);
  row.provenance = results::RowProvenance::kSilicon;
  EXPECT_EQ(subject_of(row).hypervisor, "SkidproofLab");
  EXPECT_EQ(subject_of(row).linux_release, "6.1.0-56-cloud-amd64");
}

}  // namespace
}  // namespace skidproof::errata
