"""Several processes write one SQLite database, each through its mount.

    sqlite_writers.py make FOLDER
    sqlite_writers.py write TRANSACTIONS NAME FOLDER...     (one process a folder)
    sqlite_writers.py judge TRANSACTIONS WRITERS FOLDER
    sqlite_writers.py total TRANSACTIONS FOLDER             (of all writers together)
"""
import os
import sqlite3
import sys

PATIENCE_S = 120


def connect(folder):
    return sqlite3.connect(folder + "/data.db", timeout=PATIENCE_S, isolation_level=None)


def make(folder):
    base = connect(folder)
    base.execute("CREATE TABLE entry (writer TEXT, number INTEGER, total INTEGER)")
    base.execute("CREATE TABLE counter (value INTEGER)")
    base.execute("INSERT INTO counter VALUES (0)")
    base.close()


def write_all(count, name, folders):
    children = []
    for place, folder in enumerate(folders):
        child = os.fork()
        if child == 0:
            # Leave without the interpreter's farewell, which would run the parent's as well.
            os._exit(write_one(count, f"{name}-{place}", folder))
        children.append(child)
    verdicts = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(verdicts), verdicts


def write_one(count, name, folder):
    try:
        base = connect(folder)
        for number in range(count):
            base.execute("BEGIN IMMEDIATE")
            (value,) = base.execute("SELECT value FROM counter").fetchone()
            base.execute("UPDATE counter SET value = ?", (value + 1,))
            base.execute("INSERT INTO entry VALUES (?, ?, ?)", (name, number, value + 1))
            base.execute("COMMIT")
        base.close()
        return 0
    except BaseException as error:
        print(f"{name}: {error!r} {getattr(error, 'sqlite_errorname', '')}", file=sys.stderr, flush=True)
        return 1


def judge(count, writers, folder):
    base = judge_total(count * writers, folder)
    each = base.execute("SELECT count(*) FROM entry GROUP BY writer").fetchall()
    assert each == [(count,)] * writers, each


def judge_total(total, folder):
    base = connect(folder)
    (verdict,) = base.execute("PRAGMA integrity_check").fetchone()
    assert verdict == "ok", verdict
    assert base.execute("SELECT value FROM counter").fetchone() == (total,), "an increment was lost"
    seen = base.execute("SELECT count(*), count(DISTINCT total), max(total) FROM entry").fetchone()
    assert seen == (total, total, total), seen
    return base


if __name__ == "__main__":
    job, arguments = sys.argv[1], sys.argv[2:]
    if job == "make":
        make(arguments[0])
    elif job == "write":
        write_all(int(arguments[0]), arguments[1], arguments[2:])
    elif job == "total":
        judge_total(int(arguments[0]), arguments[1])
    else:
        judge(int(arguments[0]), int(arguments[1]), arguments[2])
