"""What reading a trace costs, with traceview and with what people have.

    python3 -m venv /tmp/bench && /tmp/bench/bin/pip install -r bench/requirements.txt
    /tmp/bench/bin/python bench/run.py --requests 1000000

Generates a trace (bench/gen), runs the whole command of each contender on it,
one after the other and round after round, so that a busy spell of the machine
hits all of them, and prints medians: of the time from start to end, and of the
most memory that was resident. Ratios are to the first line of each block. What
each has written must agree before a figure is printed.

--smoke only checks that the generator and traceview work on every shape, with
nothing but Python's standard library.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = ["spans", "children", "gateway", "mixed", "log"]
COMPARED = ["spans", "children"]  # what the other contenders can read
SUMS = ["e2e_ns", "queueing_ns", "prefill_ns", "decode_ns", "prompt_tokens", "output_tokens"]


def spend(command, **more):
    """Runs a command; returns seconds and peak resident MB."""
    start = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)
    said = p.stderr.read().decode()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {p.returncode}\n{said}")
    unit = 1 if platform.system() == "Darwin" else 1024
    return time.monotonic() - start, usage.ru_maxrss * unit / 1e6


def totals(parquet):
    import duckdb

    sums = ", ".join(f"sum({c}) FILTER (outcome = 'ok')::BIGINT" for c in SUMS)
    # Sums are over what ended ok: of the others, phases are not complete.
    return duckdb.sql(f"SELECT count(*), count(*) FILTER (outcome = 'ok'), {sums}, count(DISTINCT trace_id) FROM '{parquet}'").fetchall()[0]


def check_report(file, want):
    """A report's counts and sums must be those of the tables."""
    with open(file) as f:
        r = json.load(f)
    requests, ok = want[0], want[1]
    got = r["counts"]["requests"], next(o["requests"] for o in r["counts"]["outcomes"] if o["name"] == "ok")
    if got != (requests, ok):
        sys.exit(f"the report tells of {got} requests, the tables of {(requests, ok)}")


def smoke(traceview, gen, tmp):
    for shape in SHAPES:
        file, again = os.path.join(tmp, shape), os.path.join(tmp, "again")
        for f in file, again:
            subprocess.run([gen, "-shape", shape, "-requests", "300", "-o", f], check=True)
        with open(file, "rb") as a, open(again, "rb") as b:
            if a.read() != b.read():
                sys.exit(f"{shape}: not the same bytes twice")
        out = subprocess.run([traceview, "report", "--format", "json", file], check=True, capture_output=True)
        n = json.loads(out.stdout)["counts"]["requests"]
        # Engines of some shapes tell nothing of a request that was not served.
        if not 280 <= n <= 300:
            sys.exit(f"{shape}: {n} requests of 300")
        subprocess.run([traceview, "export", "-o", file + ".parquet", file], check=True, capture_output=True)
        print(f"{shape}: {n} requests")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--requests", type=int, default=1_000_000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--shapes", default=",".join(SHAPES))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--without", default="", help="contenders to leave out: duckdb, pandas")
    p.add_argument("--traceview", help="a built command to measure (default: built from this tree)")
    p.add_argument("--tmp", help="the folder for traces (default: the system's)")
    p.add_argument("--smoke", action="store_true")
    o = p.parse_args()

    with tempfile.TemporaryDirectory(dir=o.tmp) as tmp:
        gen, traceview = os.path.join(tmp, "gen"), o.traceview or os.path.join(tmp, "traceview")
        subprocess.run(["go", "build", "-o", gen, "./bench/gen"], check=True, cwd=os.path.dirname(HERE))
        if not o.traceview:
            subprocess.run(["go", "build", "-o", traceview, "./cmd/traceview"], check=True, cwd=os.path.dirname(HERE))
        if o.smoke:
            smoke(traceview, gen, tmp)
            return
        print(f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}; {o.requests:,} requests, medians of {o.rounds}, interleaved\n")
        print("| Trace | Work | s | ratio | peak MB | ratio |\n| --- | --- | --: | --: | --: | --: |", flush=True)
        for shape in o.shapes.split(","):
            measure(o, shape, traceview, gen, tmp)


def measure(o, shape, traceview, gen, tmp):
    file = os.path.join(tmp, shape)
    subprocess.run([gen, "-shape", shape, "-requests", str(o.requests), "-seed", str(o.seed), "-o", file], check=True)
    size = os.path.getsize(file) / 1e6

    def out(name):
        return os.path.join(tmp, name)

    # The last word of each command is where it writes.
    contenders = {
        "traceview export --no-causes": [traceview, "export", "--no-causes", file, "-o", out("phases.parquet")],
        "traceview export": [traceview, "export", file, "-o", out("causes.parquet")],
        "traceview report": [traceview, "report", "--format", "json", file, "-o", out("report.json")],
    }
    if shape in COMPARED:
        for other in "duckdb", "pandas":
            if other not in o.without.split(","):
                contenders[other] = [sys.executable, os.path.join(HERE, f"with_{other}.py"), shape, file, out(other + ".parquet")]
    spent = {name: [] for name in contenders}
    for _ in range(o.rounds):
        for name, command in contenders.items():
            spent[name].append(spend(command))
    want = None
    for command in contenders.values():
        if command[-1].endswith(".parquet"):
            got = totals(command[-1])
            if want is not None and got != want:
                sys.exit(f"{shape}: {command[-1]} has {got}, not {want}")
            want = got
    check_report(out("report.json"), want)
    first = None
    for name, runs in spent.items():
        s, mb = (statistics.median(x) for x in zip(*runs))
        first = first or (s, mb)
        print(f"| {shape}, {size:,.0f} MB | {name} | {s:.2f} | {s / first[0]:.2f} | {mb:,.0f} | {mb / first[1]:.2f} |", flush=True)
    os.remove(file)


if __name__ == "__main__":
    main()
