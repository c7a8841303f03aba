"""Plots of what the suites can prove: detection limits, defects, errata; and of several machines side by side."""

import math

from matplotlib.patches import Rectangle

from skidproof import rows
from skidproof.report.drawing import (BLUE, GREEN, GREY, INK, ORANGE, STATUS_COLOURS, VERMILLION, chunks, finish, new_figure,
                                      plain,
                                      shorten)
from skidproof.report.facts import errata_order, worth_showing
from skidproof.report.parts import SIGNS, Cell, clipped, code, machines_of, number, text
from skidproof.report.test_figures import bare, by_clause, clause_order, legend_of, tile, verdict_of

MOST_MACHINES = 40
MOST_ERRATA = 60
PER_BLOCK = 30  # clauses side by side


def exact_interval(k, n):
    """Clopper and Pearson's, of 95 %."""
    from scipy.stats import beta  # half a second to load, and few pages need it
    return (float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0, float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0)


def excluded_share(compared):
    """The share of broken values that would have shown among so many with 95 % probability, were each broken by itself."""
    return 1 - 0.05 ** (1 / compared)


def draw_limits(subject):
    """How rare a broken promise may be, clause by clause, and still not have escaped this run."""
    compared, passed = {}, {}
    for test in subject.tests:
        if test["status"] in ("pass", "xpass") and rows.is_a(test.get("comparisons"), int) and test["comparisons"] > 0:
            for clause in map(str, test.get("clauses", [])):
                compared[clause] = compared.get(clause, 0) + test["comparisons"]
                passed[clause] = passed.get(clause, 0) + 1
    if len(compared) < 2:
        return []
    letters = sorted({clause_order(clause)[0] for clause in compared})[:30]
    figure = new_figure(0.34 * len(letters) + 0.75)
    axes = figure.subplots()
    for y, letter in enumerate(letters):
        found = sorted((excluded_share(n), clause) for clause, n in compared.items() if clause_order(clause)[0] == letter)
        for place, (share, _) in enumerate(found):
            axes.plot(share, y + 0.22 * math.sin(2.4 * place), marker="o", markersize=4, color=BLUE, alpha=0.7, linewidth=0)
        axes.text(1.25, y, plain(f"{shorten(found[-1][1], 8)}: {percent_words(found[-1][0])}"), va="center", fontsize=7.5)
    axes.set_xscale("log")
    axes.set_xlim(right=1.1)
    ticks = [t for t in (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1) if t >= axes.get_xlim()[0]]
    axes.set_xticks(ticks, [percent_words(t) for t in ticks])
    axes.set_yticks(range(len(letters)), [plain(shorten(letter, 10)) for letter in letters])
    axes.set_ylim(len(letters) - 0.4, -0.6)
    axes.set_xlabel("a share of broken values above this would have shown (95 %); right: the blindest clause of each letter")
    lines = [(Cell(code(clause), place), number(passed[clause]), number(n), Cell(percent_words(excluded_share(n)), excluded_share(n)))
             for place, (clause, n) in enumerate(sorted(compared.items(), key=lambda item: clause_order(item[0])))]
    return [finish(figure, subject, "limits", "Detection limits of this run",
                   "A dot for each clause of which values were compared, by how rarely it could be broken and still have shown. It "
                   "supposes that "
                   "values break independently; a defect that needs a rare circumstance hides better.",
                   (("clause", "tests that held", "values compared", "excluded above"), lines, (1, 2, 3)))]


def percent_words(share):
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def draw_defects(subject):
    """Defects caught, by clause and microarch: one cell for as many defects as share both."""
    defects = subject.run.defects
    if not defects or subject.machine != machines_of(subject.run)[0]:
        return []
    cells = {}
    for defect in defects:
        key = (str(defect.get("clause") or "no clause"), str(defect.get("microarch") or "?"))
        caught, total = cells.get(key, (0, 0))
        cells[key] = (caught + defect["caught"], total + 1)
    clauses = sorted({clause for clause, _ in cells}, key=clause_order)
    microarchs = list(dict.fromkeys(microarch for _, microarch in cells))[:24]
    plots = []
    for suffix, part in chunks(clauses, 8 * PER_BLOCK):
        plots.append(draw_defect_blocks(subject, "defects" + suffix, part, microarchs, cells))
    return plots


def draw_defect_blocks(subject, name, clauses, microarchs, cells):
    blocks = [clauses[start:start + PER_BLOCK] for start in range(0, len(clauses), PER_BLOCK)]
    figure = new_figure(sum(0.19 * len(microarchs) + 0.42 for _ in blocks) + 0.2)
    panels = list(figure.subplots(len(blocks), 1, squeeze=False).flat)
    lines = []
    for axes, block in zip(panels, blocks):
        for x, clause in enumerate(block):
            for y, microarch in enumerate(microarchs):
                if (clause, microarch) not in cells:
                    continue
                caught, total = cells[clause, microarch]
                good = caught == total
                axes.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, color=GREEN if good else VERMILLION, alpha=0.85 if good else 1,
                                         linewidth=0))
                axes.text(x, y, str(total) if good else f"✗{total - caught}/{total}", ha="center", va="center", fontsize=6, color="#000000")
                lines.append((code(clipped(clause, 60)), text(clipped(microarch, 60)), number(caught), number(total),
                              number(total - caught)))
        axes.set_xlim(-0.6, PER_BLOCK - 0.4)
        axes.set_ylim(len(microarchs) - 0.4, -0.6)
        axes.set_xticks(range(len(block)), [plain(shorten(clause, 6)) for clause in block], fontsize=6.5)
        axes.set_yticks(range(len(microarchs)), [plain(shorten(m, 18)) for m in microarchs], fontsize=7)
        axes.xaxis.tick_top()
        bare(axes)
    caption = ("Each cell is a clause on a microarch: how many defects break it there, all of them caught (green); orange-red with ✗ "
               "says how many of "
               "them were missed. No cell: no such defect applies.")
    return finish(figure, subject, name, "Defects matrix", caption,
                  (("clause", "microarch", "caught", "defects", "missed"), lines, (2, 3, 4)))


# --------------------------------------------------------------------------------------------------------
# Several machines.

def draw_machines(everybody):
    """Clause by machine: a tile with the worst verdict of the clause's tests."""
    columns = {}
    for run in everybody.runs:
        for test in run.tests:
            columns.setdefault(test["machine"], []).append(test)
    if len(columns) < 2:
        return []
    names = list(columns)[:MOST_MACHINES]
    counted = {name: by_clause(columns[name]) for name in names}
    clauses = sorted(set().union(*counted.values()), key=clause_order)
    plots = []
    for suffix, part in chunks(clauses, 8 * PER_BLOCK):
        plots.append(draw_machine_blocks(everybody, "machines" + suffix, part, names, counted))
    return plots


def draw_machine_blocks(everybody, name, clauses, names, counted):
    blocks = [clauses[start:start + PER_BLOCK] for start in range(0, len(clauses), PER_BLOCK)]
    figure = new_figure(sum(0.19 * len(names) + 0.42 for _ in blocks) + 0.35)
    totals, lines = {}, []
    for axes, block in zip(figure.subplots(len(blocks), 1, squeeze=False).flat, blocks):
        for x, clause in enumerate(block):
            for y, machine in enumerate(names):
                status = verdict_of(counted[machine].get(clause, {}))
                if status:
                    tile(axes, x, y, status, SIGNS[status], 0.92, 0.88)
                    totals[status] = totals.get(status, 0) + 1
        axes.set_xlim(-0.6, PER_BLOCK - 0.4)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xticks(range(len(block)), [plain(shorten(clause, 6)) for clause in block], fontsize=6.5)
        axes.set_yticks(range(len(names)), [plain(shorten(n, 26)) for n in names], fontsize=7)
        axes.xaxis.tick_top()
        bare(axes)
    for place, clause in enumerate(clauses):
        lines.append((Cell(code(clipped(clause, 60)), place), *(text(verdict_of(counted[machine].get(clause, {}))) for machine in names)))
    legend_of(figure, totals)
    return finish(figure, everybody, name, "Clause by machine",
                  "The worst verdict of each clause's tests on each machine; a skip shows only where nothing of the clause ran.",
                  (("clause", *names), lines, ()))


def share_of(defect):
    """`skid-none@0.01` → ("skid-none", 0.01); a defect without a share shows always."""
    name, at, share = str(defect).partition("@")
    try:
        return (name, float(share)) if at else (name, 1.0)
    except ValueError:
        return str(defect), 1.0


def draw_catches(everybody):
    """Of runs of defects that show now and then: how many runs caught them, by the share of overflows in which they show."""
    seen = {}
    for run in everybody.runs:
        for name in machines_of(run):
            broken = run.machine_row(name).get("defects") or []
            if isinstance(broken, list) and len(broken) == 1 and "@" in str(broken[0]):
                defect, share = share_of(broken[0])
                counts = seen.setdefault((defect, share), [0, 0])
                counts[0] += any(t["status"] == "fail" and t["machine"] == name for t in run.tests)
                counts[1] += 1
    if not seen:
        return []
    shares = sorted({share for _, share in seen}, reverse=True)[:12]
    figure = new_figure(0.36 * len(shares) + 0.8)
    axes = figure.subplots()
    for y, share in enumerate(shares):
        k, n = (sum(counts[i] for (_, s), counts in seen.items() if s == share) for i in (0, 1))
        low, high = exact_interval(k, n)
        axes.barh(y, 100 * k / n, color=BLUE, height=0.6, xerr=[[100 * (k / n - low)], [100 * (high - k / n)]],
                  error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 2})
        axes.text(103, y, f"{k} of {n} runs", va="center", fontsize=8)
    axes.set_yticks(range(len(shares)), [f"in {share:g} of the overflows" for share in shares])
    axes.set_ylim(len(shares) - 0.4, -0.6)
    axes.set_xlim(0, 118)
    axes.set_xlabel("% of the runs in which a test failed, with the 95 % interval")
    axes.grid(axis="y", visible=False)
    lines = [(code(clipped(defect, 200)), number(share), number(k), number(n)) for (defect, share), (k, n) in sorted(seen.items())]
    return [finish(figure, everybody, "detection", "Detection of defects that show now and then",
                   "Runs of machines that are broken on purpose in a share of the overflows.",
                   (("defect", "share", "caught", "runs"), lines, (1, 2, 3)))]


ERRATA_LOOK = {"reproduced": (VERMILLION, "✗"), "not-reproduced": (GREEN, "✓"), "error": (STATUS_COLOURS["error"], "!"),
               "not-run": (GREY, "–")}


def draw_errata(everybody):
    """Errata by machine: listed and observed."""
    found = {}
    for run in everybody.runs:
        for row in run.errata:
            if worth_showing(row):
                found.setdefault(row["id"], {}).setdefault(row["machine"], row)
    if not found:
        return []
    names = list(dict.fromkeys(machine for by_machine in found.values() for machine in by_machine))[:MOST_MACHINES]
    order = sorted(found, key=lambda e: min(errata_order(row) for row in found[e].values()))
    plots = []
    for suffix, part in chunks(order, MOST_ERRATA):
        plots.append(draw_errata_part(everybody, "errata" + suffix, part, names, found))
    return plots


def draw_errata_part(everybody, name, part, names, found):
    across = 20
    blocks = [part[start:start + across] for start in range(0, len(part), across)]
    figure = new_figure(sum(0.22 * len(names) + 0.55 for _ in blocks) + 0.2)
    lines = []
    for axes, block in zip(figure.subplots(len(blocks), 1, squeeze=False).flat, blocks):
        for x, erratum in enumerate(block):
            for y, machine in enumerate(names):
                row = found[erratum].get(machine)
                if row is None:
                    continue
                colour, sign = ERRATA_LOOK.get(row["observed"], (GREY, "?"))
                words = sign + (" L" if row["listed"] == "affected" else " m" if row["listed"] == "fixed-by-microcode" else "")
                axes.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, facecolor=colour, linewidth=2 if row.get("contradiction") else 0,
                                         edgecolor=ORANGE if row.get("contradiction") else colour))
                axes.text(x, y, words + (" !" if row.get("contradiction") else ""), ha="center", va="center", fontsize=6.5, color="#000000")
                lines.append((code(clipped(erratum, 60)), text(clipped(machine, 100)), text(row["listed"]), text(row["observed"]),
                              "contradiction" if row.get("contradiction") else ""))
        axes.set_xlim(-0.6, across - 0.4)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xticks(range(len(block)), [plain(shorten(e, 9)) for e in block], fontsize=6.5, rotation=30, ha="left")
        axes.set_yticks(range(len(names)), [plain(shorten(n, 30)) for n in names], fontsize=7)
        axes.xaxis.tick_top()
        bare(axes)
    return finish(figure, everybody, name, "Errata by machine",
                  "✗ reproduced, ✓ tried and not reproduced, – not tried; L listed as affecting it, m listed as mended by microcode, ! "
                  "what was "
                  "observed contradicts what is listed.", (("erratum", "machine", "listed", "observed", ""), lines, ()))
