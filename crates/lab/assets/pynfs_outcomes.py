"""Turns what a pynfs run printed (with -v --showomit) into one outcome a test: pynfs_outcomes.py REPORT >JSON

pynfs's own JSON mixes skips and warnings up, so the closing table is read: the lines between the last two rows of
asterisks, each a code, a name and a verdict, with what the test had to say indented below.
"""
import json
import re
import sys

VERDICTS = {
    "PASS": "pass",
    "FAILURE": "fail",
    "WARNING": "warn",
    "UNSUPPORTED": "unsupported",
    "OMIT": "skip",
    # Left in the middle of a run that broke off.
    "RUNNING": "fail",
    "NOT RUN": "skip",
    "WAITING TO RUN": "skip",
}
CASE = re.compile(r"^(\S+)\s+(\S+)\s+: (" + "|".join(VERDICTS) + r")\s*$")
MESSAGE_CHARACTERS_MAX = 400


def closing_table(lines):
    rows = [number for number, line in enumerate(lines) if line == "*" * 50]
    if len(rows) < 2:
        raise SystemExit("the report has no closing table: the run broke off")
    return lines[rows[-2] + 1 : rows[-1]]


def outcomes(lines):
    cases = []
    for line in closing_table(lines):
        match = CASE.match(line)
        if match:
            code, name, verdict = match.groups()
            cases.append({"code": code, "name": name, "outcome": VERDICTS[verdict], "message": ""})
        elif cases and line.strip():
            said = f"{cases[-1]['message']} {line.strip()}".strip()
            cases[-1]["message"] = said[:MESSAGE_CHARACTERS_MAX]
    return cases


if __name__ == "__main__":
    with open(sys.argv[1], errors="replace") as report:
        json.dump(outcomes(report.read().split("\n")), sys.stdout, indent=1)
