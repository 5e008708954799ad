#!/bin/sh
# Submit one run to the SuperLink, follow it, and make its report in /results/report.
#
#   ALGO, SETTINGS   what to run, as `fedsuite run ALGO KEY=VALUE...` takes it
#   NODES            how many SuperNodes to wait for
#   SUPERLINK        address of the SuperLink's HTTP API
#   CA               file of the authority that signed its certificate; without it, plain text
set -eu

mkdir -p "$FLWR_HOME"
{
    printf '[superlink]\ndefault = "demo"\n\n[superlink.demo]\naddress = "%s"\n' "$SUPERLINK"
    if [ -n "${CA:-}" ]; then
        printf 'root-certificates = "%s"\n' "$CA"
    else
        printf 'insecure = true\n'
    fi
} > "$FLWR_HOME/config.toml"

online() {
    flwr supernode list demo --format json 2>/dev/null | grep -c '"status": "online"' || true
}

seconds=0
until [ "$(online)" -ge "$NODES" ]; do
    if [ "$seconds" -ge 120 ]; then
        echo "job: only $(online) of $NODES SuperNodes are online after two minutes" >&2
        exit 1
    fi
    sleep 2
    seconds=$((seconds + 2))
done
echo "job: $NODES SuperNodes are online"

name="$ALGO-$(date -u +%Y%m%d-%H%M%S)"
config="algo=\"$ALGO\" num-clients=$NODES results-dir=\"/results/runs\" run-name=\"$name\""
flwr run /app demo --stream --run-config "$config $SETTINGS"

python - "/results/runs/$name" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for line in (folder / "history.jsonl").read_text().splitlines():
    row = json.loads(line)
    print(f"round {row['round']}: accuracy {row['accuracy']}")
status = json.loads((folder / "summary.json").read_text())["status"]
sys.exit(0 if status in ("finished", "target reached") else f"job: the run ended as {status}")
PYTHON
fedsuite report "/results/runs/$name" -o /results/report
