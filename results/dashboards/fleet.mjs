// The fleet out of the store: which machines were seen, what fails, what changed, which errata show.
import { DashboardBuilder } from "@grafana/grafana-foundation-sdk/dashboard";
import { PanelBuilder as Stat } from "@grafana/grafana-foundation-sdk/stat";
import { PanelBuilder as Table } from "@grafana/grafana-foundation-sdk/table";
import { PanelBuilder as TimeSeries } from "@grafana/grafana-foundation-sdk/timeseries";
import { BigValueGraphMode, StackingConfigBuilder, StackingMode } from "@grafana/grafana-foundation-sdk/common";

import { POSTGRES, series, sqlVariable, storeVariable, table } from "./sources.mjs";

// The last run of each subject that the time range holds.
const LAST = `
  SELECT DISTINCT ON (rs.subject) rs.subject, rs.run, s.host, s.machine, s.core_type, rs.provenance, rs.microarch, rs.microcode, rs.os, rs.bios,
         r.id, r.started, r.reason, r.exit, r.version
  FROM run_subjects rs JOIN runs r ON r.run = rs.run JOIN subjects s ON s.subject = rs.subject
  WHERE $__timeFilter(r.started) AND rs.provenance IN ($provenance)
  ORDER BY rs.subject, r.started DESC`;

const stat = (title, description, sql) => new Stat().title(title).description(description).datasource(POSTGRES).height(4).span(6)
  .graphMode(BigValueGraphMode.None).withTarget(table(sql));

export const fleet = () => new DashboardBuilder("Skidproof: the fleet")
  .uid("skidproof-fleet")
  .description("Verdicts on PEBS and the PMU by machine, out of Skidproof's store.")
  .tags(["skidproof"]).readonly().refresh("15m").time({ from: "now-30d", to: "now" })
  .withVariable(storeVariable())
  .withVariable(sqlVariable("provenance", "Provenance", "SELECT DISTINCT provenance FROM run_subjects").multi(true).includeAll(true))
  .withPanel(stat("Machines", "That ran in the time range.", `SELECT count(*) AS machines FROM (${LAST}) last`))
  .withPanel(stat("Machines with failures", "In their last run.", `
    SELECT count(DISTINCT v.subject) AS failing FROM (${LAST}) last
    JOIN verdicts v ON v.subject = last.subject AND v.run = last.run WHERE v.status IN ('fail', 'error')`))
  .withPanel(stat("Runs cut short", "Without an end row, or ended by something other than completion.", `
    SELECT count(*) AS cut FROM runs r WHERE $__timeFilter(r.started) AND r.reason IS DISTINCT FROM 'completed'`))
  .withPanel(stat("Errata reproduced", "Machines and errata, in their last run.", `
    SELECT count(*) AS reproduced FROM (${LAST}) last
    JOIN errata e ON e.subject = last.subject AND e.run = last.run WHERE e.observed = 'reproduced'`))
  .withPanel(new TimeSeries().title("Tests by verdict and night").description("Everything but pass and skip.").datasource(POSTGRES).height(8).span(12)
    .stacking(new StackingConfigBuilder().mode(StackingMode.Normal)).fillOpacity(40)
    .withTarget(series(`
      SELECT date_trunc('day', r.started) AS time, v.status AS metric, count(*) AS value
      FROM verdicts v JOIN runs r ON r.run = v.run JOIN run_subjects rs ON rs.run = v.run AND rs.subject = v.subject
      WHERE $__timeFilter(r.started) AND rs.provenance IN ($provenance) AND v.status NOT IN ('pass', 'skip')
      GROUP BY 1, 2 ORDER BY 1`)))
  .withPanel(new TimeSeries().title("Machines by microcode").description("How a revision spreads.").datasource(POSTGRES).height(8).span(12)
    .stacking(new StackingConfigBuilder().mode(StackingMode.Normal)).fillOpacity(40)
    .withTarget(series(`
      SELECT date_trunc('day', r.started) AS time, concat_ws(' ', nullif(rs.microarch, ''), coalesce(rs.microcode, 'not readable')) AS metric,
             count(DISTINCT rs.subject) AS value
      FROM run_subjects rs JOIN runs r ON r.run = rs.run
      WHERE $__timeFilter(r.started) AND rs.provenance IN ($provenance) GROUP BY 1, 2 ORDER BY 1`)))
  .withPanel(new Table().title("Changes").description("Change points of figures, newest first, and what changed on the machine at the same time.")
    .datasource(POSTGRES).height(10).span(24).filterable(true).withTarget(table(`
      SELECT r.started AS "first night", s.host, s.machine, rs.provenance, f.name AS figure, f.parameters, f.unit, c.before, c.after,
             100 * (c.after - c.before) / nullif(abs(c.before), 0) AS "change in %", c.p, c.attributed
      FROM change_points c JOIN runs r ON r.run = c.after_run JOIN subjects s ON s.subject = c.subject
      JOIN run_subjects rs ON rs.run = c.after_run AND rs.subject = c.subject JOIN figures f ON f.figure = c.figure
      WHERE $__timeFilter(r.started) AND rs.provenance IN ($provenance) ORDER BY r.started DESC LIMIT 500`)))
  .withPanel(new Table().title("Failures").description("Of each machine's last run.").datasource(POSTGRES).height(10).span(12).filterable(true)
    .withTarget(table(`
      SELECT last.host, last.machine, last.provenance, t.id AS test, v.status, v.k AS failed, v.n AS tried, last.microcode, last.started
      FROM (${LAST}) last JOIN verdicts v ON v.subject = last.subject AND v.run = last.run JOIN tests t ON t.test = v.test
      WHERE v.status IN ('fail', 'error') ORDER BY last.started DESC, last.host, t.id LIMIT 500`)))
  .withPanel(new Table().title("Errata").description("Reproduced, or listed as affected, in each machine's last run.").datasource(POSTGRES).height(10).span(12)
    .filterable(true).withTarget(table(`
      SELECT e.id AS erratum, e.listed, e.observed, count(*) AS machines, min(last.host) AS "for example", string_agg(DISTINCT last.provenance, ', ') AS provenance
      FROM (${LAST}) last JOIN errata e ON e.subject = last.subject AND e.run = last.run
      WHERE e.observed = 'reproduced' OR e.listed = 'affected' GROUP BY 1, 2, 3 ORDER BY e.observed = 'reproduced' DESC, machines DESC LIMIT 500`)))
  .withPanel(new Table().title("Machines").description("As their last run found them.").datasource(POSTGRES).height(10).span(24).filterable(true)
    .withTarget(table(`
      SELECT last.host, last.machine, last.core_type, last.provenance, last.microarch, last.microcode, last.os, last.bios, last.version, last.started,
             last.reason, last.exit FROM (${LAST}) last ORDER BY last.host, last.machine LIMIT 5000`)));
