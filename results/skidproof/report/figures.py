"""Draws the plots of one machine's rows, and of several runs together. Every plot carries the machine's name and provenance."""

from skidproof.report import measured_figures, proof_figures, shape_figures, test_figures
from skidproof.report.drawing import Everybody, Subject

OF_A_MACHINE = (test_figures.draw_clauses, test_figures.draw_skid, test_figures.draw_pdir, test_figures.draw_lateness,
                proof_figures.draw_limits,
                proof_figures.draw_defects, *shape_figures.OF_A_MACHINE, measured_figures.draw_fusion, measured_figures.draw_misprediction)
OF_ALL = (proof_figures.draw_machines, proof_figures.draw_catches, proof_figures.draw_errata)


def plots_of(run, machine):
    """All plots for which this machine has rows."""
    subject = Subject(run, machine)
    return [plot for draw in OF_A_MACHINE for plot in draw(subject)]


def overview(runs):
    """The plots over all runs: clause by machine, how often defects were caught, errata by machine."""
    subject = Everybody(runs)
    return [plot for draw in OF_ALL for plot in draw(subject)]
