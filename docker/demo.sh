#!/bin/sh
# Build and run the demo with the engine that is here, leave its report in a folder, clean up.
#
#   demo.sh OUTPUT   TLS=1 adds TLS and SuperNode authentication
set -eu
output=$1
here=$(dirname "$0")

say() { echo "docker-demo: $*"; }

if docker compose version > /dev/null 2>&1; then
    compose="docker compose"
    if ! docker info > /dev/null 2>&1; then
        say "'docker compose' is installed, but Docker's engine does not answer."
        say "Start it, or see that you may use it ('docker info' says more)."
        exit 1
    fi
elif command -v podman-compose > /dev/null 2>&1 && command -v podman > /dev/null 2>&1; then
    compose=podman-compose
else
    say "this needs Docker with its compose plugin ('docker compose version'),"
    say "or Podman with podman-compose. Neither is installed."
    say "'make demo' needs neither: it simulates in this machine's own Python."
    exit 1
fi

files="-f $here/compose.yml"
safety="in plain text"
if [ "${TLS:-}" = 1 ]; then
    files="$files -f $here/compose.tls.yml"
    safety="with TLS and SuperNode authentication"
    if [ "$compose" = podman-compose ]; then
        say "TLS=1 is known to work with Docker; with Podman 4.3 it did not."
    fi
fi
project="$compose -p fedsuite-demo $files"

clean_up() {
    status=$?
    trap - EXIT INT TERM
    if [ "$status" -ne 0 ]; then $project logs --tail 30 || true; fi
    $project down -v > /dev/null 2>&1 || true
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say "building the image with $compose (several minutes the first time)"
$project build superlink
say "a SuperLink, four SuperNodes and a run, $safety"
$project run --rm -T job
mkdir -p "$output"
$project run --rm --no-deps -T job tar -C /results -cf - report runs \
    | tar -xf - --no-same-owner -C "$output"
say "the report is $output/report/index.html, the run's folder is in $output/runs"
