"""JUnit XML, as GitLab, Jenkins and the reporters of GitHub read it.

GitLab shows the content of an element and not its attributes, takes `classname` for the suite, and drops a test whose class
and name were there before [GitLab, "Unit test reports"]; Jenkins takes the message of a skipped test from its attribute, and
all before the class's last dot for its package [jenkinsci/junit-plugin, issue 889 and pull request 114]. So words stand in both
places, and the class is `machine.suite`.
"""

import xml.etree.ElementTree as ElementTree

from skidproof.export import common

FAILED = {"fail": "failure", "error": "error"}
SKIPPED = ("skip", "xfail", "observed", "disturbed")  # nothing here says that a promise held, or that one was broken without excuse


def document(runs):
    """One <testsuites> with a <testsuite> for each run, machine and suite."""
    root = ElementTree.Element("testsuites", name="skidproof")
    classes = _classes(runs)
    suites = [(run, machine, outcomes) for run in runs for machine, outcomes in _suites(run)]
    for number, (run, machine, outcomes) in enumerate(suites):
        root.append(_suite(run, machine, outcomes, number, classes[id(run), machine]))
    _total(root, [one for _, _, outcomes in suites for one in outcomes])
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suites(run):
    """(machine, outcomes of one suite of it), in the order of the rows. A run without tests has one that is empty, for its properties."""
    found = {}
    for one in common.outcomes(run):
        found.setdefault((one.machine, one.suite), []).append(one)
    if not found:
        return [(machine, []) for machine in common.machine_names(run)]
    return [(machine, outcomes) for (machine, _), outcomes in found.items()]


def _classes(runs):
    """What stands before the suite in a test's class: the machine, with its host and its run where the machine alone is ambiguous."""
    places = {(id(run), machine): common.about(run, machine) for run in runs for machine in common.machine_names(run)}
    machines = [facts["machine"] for facts in places.values()]
    hosts = [(facts["machine"], facts["host"]) for facts in places.values()]
    named, taken = {}, set()
    for place, facts in places.items():
        words = facts["machine"]
        if machines.count(words) > 1:
            words += f"@{facts['host']}"
        if hosts.count((facts["machine"], facts["host"])) > 1:
            words += f"/{facts['run']}"
        while words in taken:
            words += "'"
        taken.add(words)
        named[place] = words
    return named


def _suite(run, machine, outcomes, number, place):
    facts = common.about(run, machine)
    name = outcomes[0].suite if outcomes else ""
    suite = ElementTree.Element("testsuite", name=_line(name) or "skidproof", id=str(number), hostname=_line(facts["host"]))
    if facts["started"]:  # without fraction and zone, as Ant writes it
        suite.set("timestamp", _line(facts["started"].partition(".")[0].rstrip("Z")))
    _total(suite, outcomes)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts.items():
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=_line(value))
    for one in outcomes:
        suite.append(_case(one, place, facts))
    return suite


def _case(one, place, facts):
    place = f"{place}.{one.suite}" if one.suite else place
    case = ElementTree.Element("testcase", classname=_line(place), name=_line(one.name), time=f"{one.duration_s:.6f}")
    if one.status in FAILED:
        ElementTree.SubElement(case, FAILED[one.status], type=one.status, message=_line(one.words)).text = _text(_whole_story(one, facts))
    elif one.status in SKIPPED:
        ElementTree.SubElement(case, "skipped", type=one.status, message=_line(one.words)).text = _text(one.words)
    if one.status in ("xfail", "xpass", "observed", "disturbed"):
        ElementTree.SubElement(case, "system-out").text = _text(_whole_story(one, facts))
    return case


def _whole_story(one, facts):
    lines = [*one.story, f"machine: {one.machine} ({facts['provenance']})", f"clauses: {' '.join(one.clauses)}",
             f"seed: {common.text(one.row.get('seed', ''))}"]
    return "\n".join([*lines, *(f"{name}: {common.text(value)}" for name, value in common.figures(one.evidence))])


def _total(element, outcomes):
    statuses = [one.status for one in outcomes]
    counts = {"tests": len(statuses), "failures": statuses.count("fail"), "errors": statuses.count("error"),
              "skipped": sum(map(statuses.count, SKIPPED))}
    for name, count in counts.items():
        element.set(name, str(count))
    element.set("time", f"{sum(one.duration_s for one in outcomes):.6f}")


def _line(words):
    return common.visible(words)


def _text(words):
    return common.visible(words, keep="\n\t")
