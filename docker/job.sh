#!/bin/sh
# Submit one run, follow it to its end, and make its report in /results/report.
#
#   job.sh ALGO KEY=VALUE ...   as `fedsuite run` takes them; see connect.sh for the SuperLink
set -eu
. "$(dirname "$0")/connect.sh"

name="$1-$(date -u +%Y%m%d-%H%M%S)"
fedsuite run "$@" results-dir=/results/runs --name "$name" --superlink hub
fedsuite show "$name" --results-dir /results/runs
fedsuite report "/results/runs/$name" -o /results/report
