#include "harness/cli/machine_options.h"

#include "harness/cli/command.h"

namespace skidproof::cli {

void add_model_and_cpu(Command verb, MachineOptions& machine, const std::string& cpu) {
  verb.option("--defect", machine.defects,
              "break the model on purpose, ID@0.01 in a share of the overflows; may be given "
              "again (skidproof list defects)")
      .named("ID")
      .many();
  verb.option("--rough", machine.rough,
              "make the model as untidy as silicon: a seed that draws everything which nothing "
              "promises, or FIELD=VALUE,… (skidproof list rough)")
      .named("SEED|FIELDS");
  verb.option("--cpu", machine.cpu.cpu,
              !cpu.empty() ? cpu
                           : "which CPU of this computer `direct` claims (default: the highest, on "
                             "a hybrid part of the P-cores)")
      .named("N")
      .not_negative();
  verb.option("--core", machine.cpu.core, "the same by the type of the core")
      .one_of({"P", "E"})
      .named("P|E");
  verb.option("--part", machine.part,
              "which processor of its row the model is: FAMILY_MODEL_STEPPING in hexadecimal, "
              "such as 06_2D_7 (skidproof explain <microarch>)")
      .named("PART");
  verb.option("--microcode", machine.microcode,
              "the model's microcode revision, such as 0x28; 0: it cannot be read")
      .named("HEX");
  verb.flag("--sibling,!--no-sibling", machine.sibling_thread,
            "whether a second thread shares the model's core (default: yes)");
}

void add_perfmon(Command verb, std::string& folder) {
  verb.option("--perfmon", folder,
              "take Intel's event list from this checkout of github.com/intel/perfmon, or folder "
              "with its mapfile.csv and "
              "the list's file, in place of the built-in one")
      .named("DIR");
}

}  // namespace skidproof::cli
