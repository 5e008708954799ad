#!/bin/sh
# Let SuperNodes in: register every public key of a folder; those known already stay as they are.
#
#   register.sh FOLDER   see connect.sh for the SuperLink
set -eu
. "$(dirname "$0")/connect.sh"

for key in "$1"/*.pub; do
    if [ ! -e "$key" ]; then
        echo "register.sh: there is no public key (*.pub) in $1" >&2
        exit 1
    fi
    if said=$(flwr supernode register "$key" hub --format json 2>&1); then
        echo "$(basename "$key") is registered"
    elif echo "$said" | grep -q "already in use"; then
        echo "$(basename "$key") was registered already"
    else
        echo "register.sh: $key is not registered. Flower said: $said" >&2
        exit 1
    fi
done
