#!/bin/sh
# Sourced by the scripts beside it: wait for the SuperLink, write Flower's connection "hub" to it.
#
#   SUPERLINK   address of the SuperLink's HTTP API, such as superlink:8000
#   CA          file of the authority that signed its certificate; without it, plain text
if [ -n "${CA:-}" ]; then
    scheme=https
    trust="root-certificates = \"$CA\""
else
    scheme=http
    trust="insecure = true"
fi
tries=60
until HEALTH_URL="$scheme://$SUPERLINK/health" HEALTH_CA="${CA:-}" \
    python "$(dirname "$0")/health.py" 2> /dev/null; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
        echo "The SuperLink $scheme://$SUPERLINK does not answer." >&2
        exit 1
    fi
    sleep 2
done
printf '[superlink]\ndefault = "hub"\n\n[superlink.hub]\naddress = "%s"\n%s\n' \
    "$SUPERLINK" "$trust" > "$FLWR_HOME/config.toml"
