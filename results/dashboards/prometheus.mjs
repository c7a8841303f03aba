// The fleet as its machines' text files give it to Prometheus: no store is needed.
import { DashboardBuilder } from "@grafana/grafana-foundation-sdk/dashboard";
import { PanelBuilder as Stat } from "@grafana/grafana-foundation-sdk/stat";
import { PanelBuilder as Table } from "@grafana/grafana-foundation-sdk/table";
import { PanelBuilder as TimeSeries } from "@grafana/grafana-foundation-sdk/timeseries";
import { BigValueGraphMode } from "@grafana/grafana-foundation-sdk/common";

import { PROMETHEUS, instant, labelVariable, prometheusVariable, range } from "./sources.mjs";

const CHOSEN = 'host=~"$host",provenance=~"$provenance"';

const stat = (title, description, expression) => new Stat().title(title).description(description).datasource(PROMETHEUS).height(4).span(6)
  .graphMode(BigValueGraphMode.None).noValue("0").withTarget(instant(expression));

const figures = (title, metric, unit) => new TimeSeries().title(title).description("The last run's figures, by machine and what they were measured at.")
  .datasource(PROMETHEUS).unit(unit).height(10).span(12)
  .withTarget(range(`${metric}{${CHOSEN},name=~"$figure"}`, "{{host}} {{machine}} {{name}} {{bytes}} {{page}} {{kind}} {{pair}} {{pattern}}"));

export const prometheus = () => new DashboardBuilder("Skidproof: the fleet by Prometheus")
  .uid("skidproof-prometheus")
  .description("The last run of each machine, as `skidproof export --format prometheus` or `skidproof serve` gives it to Prometheus.")
  .tags(["skidproof"]).readonly().refresh("5m").time({ from: "now-7d", to: "now" })
  .withVariable(prometheusVariable())
  .withVariable(labelVariable("provenance", "Provenance", "label_values(skidproof_run_info, provenance)").multi(true).includeAll(true).allValue(".*"))
  .withVariable(labelVariable("host", "Host", "label_values(skidproof_run_info, host)").multi(true).includeAll(true).allValue(".*"))
  .withVariable(labelVariable("figure", "Figure", "label_values(name)").multi(true).includeAll(true).allValue(".*"))
  .withPanel(stat("Machines", "That have a run.", `count(count by (host, machine, core) (skidproof_run_info{${CHOSEN}}))`))
  .withPanel(stat("Failed tests", "In the last runs.", `sum(skidproof_tests{${CHOSEN},status=~"fail|error"})`))
  .withPanel(stat("Runs cut short", "Without an end row.", `count(skidproof_run_complete{${CHOSEN}} == 0)`))
  .withPanel(stat("Errata reproduced", "Machines and errata.", `count(skidproof_erratum_observed{${CHOSEN},verdict="reproduced"})`))
  .withPanel(new Table().title("Failed tests").datasource(PROMETHEUS).height(10).span(12).filterable(true)
    .withTarget(instant(`skidproof_test_failed{${CHOSEN}}`)))
  .withPanel(new Table().title("Machines").description("Microcode, kernel, BIOS and version of the last runs.").datasource(PROMETHEUS).height(10).span(12)
    .filterable(true).withTarget(instant(`skidproof_run_info{${CHOSEN}}`)))
  .withPanel(figures("Latencies", "skidproof_measurement_seconds", "s"))
  .withPanel(figures("Bandwidths", "skidproof_measurement_bytes_per_second", "Bps"))
  .withPanel(figures("Cycles", "skidproof_measurement_cycles", "short"))
  .withPanel(figures("Clocks", "skidproof_measurement_hertz", "hertz"))
  .withPanel(new TimeSeries().title("Age of the last run").description("A machine whose line climbs does not report.").datasource(PROMETHEUS).unit("s")
    .height(8).span(24).withTarget(range(`time() - max by (host, machine) (skidproof_run_finished_timestamp_seconds{${CHOSEN}})`, "{{host}} {{machine}}")));
