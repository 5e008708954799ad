#!/bin/sh
# Sourced by the scripts beside it: write Flower's connection "hub" to the SuperLink.
#
#   SUPERLINK   address of the SuperLink's HTTP API, such as superlink:8000
#   CA          file of the authority that signed its certificate; without it, plain text
if [ -n "${CA:-}" ]; then trust="root-certificates = \"$CA\""; else trust="insecure = true"; fi
printf '[superlink]\ndefault = "hub"\n\n[superlink.hub]\naddress = "%s"\n%s\n' \
    "$SUPERLINK" "$trust" > "$FLWR_HOME/config.toml"
