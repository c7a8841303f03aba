"""Intel's lists out of the imported headers, as files in the form in which Intel publishes them: for tests that have no checkout."""
import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent.parent
LINE = re.compile(r'    \{"(.+)", 0x(\w+), 0x(\w+), 0x(\w+), (\d+), (\S+), 0x(\w+), 0x(\w+), 0x(\w+), (\w+), 0x(\w+), 0x(\w+), "(.*)"\},')
LIST = re.compile(r'List k\w+\{"intel/perfmon \S+ V([0-9.]+)", "(\S+)",')
FLAGS = {"kInvert": "Invert", "kEdge": "EdgeDetect", "kEqual": "Equal", "kAlone": "TakenAlone", "kDataAddress": "Data_LA",
         "kL1Hit": "L1_Hit_Indication", "kPreciseStore": "PRECISE_STORE"}
PEBS = {"kNotPrecise": "0", "kPrecise": "1", "kPreciseOnly": "2"}


def counters(mask):
    return ",".join(str(bit) for bit in range(48) if int(mask, 16) >> bit & 1)


def event_of(line):
    name, code, umask, umask2, cmask, flags, counted, sampled, distributed, precision, msr, value, errata = LINE.fullmatch(line).groups()
    event = {"EventName": name, "EventCode": "0x" + code, "UMask": "0x" + umask, "UMaskExt": "0x" + umask2, "CounterMask": cmask,
             "Counter": counters(counted), "PEBS": PEBS[precision], "MSRIndex": "0x" + msr, "MSRValue": "0x" + value,
             "Errata": errata.replace(" ", ",") or "null", "BriefDescription": "none comes over"}
    if int(sampled, 16):
        event["PEBScounters"] = counters(sampled)
    if int(distributed, 16):
        event["PDISTCounter"] = counters(distributed)
    return event | {FLAGS[flag]: "1" for flag in flags.split("|") if flag != "0"}


def lines_of(header):
    return [line for line in header.read_text(encoding="utf-8").splitlines() if line.startswith('    {"')]


def published():
    """{path in a checkout: (header, document)} of all that were imported."""
    lists = {}
    for header in sorted(HERE.glob("*.h")):
        found = LIST.search(header.read_text(encoding="utf-8"))
        if found:
            events = [event_of(line) for line in lines_of(header)]
            lists[found[2]] = header, {"Header": {"Version": found[1], "DatePublished": ""}, "Events": events}
    return lists


def publish(folder, changed=lambda path, document: document):
    """Writes a checkout; a document that `changed` makes None stays out."""
    paths = []
    for path, (_, document) in published().items():
        paths.append(path)
        document = changed(path, document)
        if document is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(json.dumps(document), encoding="utf-8")
    (folder / "mapfile.csv").write_text("Family-model,Version,Filename,EventType\n" + "".join(
        f"GenuineIntel-6-FF,V1,/{path},core\n" for path in paths), encoding="utf-8")
