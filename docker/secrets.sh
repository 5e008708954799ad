#!/bin/sh
# Make certificates and SuperNodes' keys once, each where only its owner mounts it.
#
#   secrets.sh certs HOST ...   the SuperLink's: /secrets/server; for others: /secrets/trust
#   secrets.sh keys N           private keys: /secrets/node-0 ...; public halves: /secrets/public
#   secrets.sh key              one SuperNode's key: /secrets/key; prints the public half
#
# The CA's key is not kept: to renew certificates, make all of them again.
set -eu
umask 077
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
what=$1
shift

case $what in
certs)
    if [ -e /secrets/server/server.key ]; then exit 0; fi
    fedsuite deploy certs --dir "$folder" --name "$@" > /dev/null
    install -m 644 "$folder/ca.crt" /secrets/trust/ca.crt
    install -m 644 "$folder/ca.crt" "$folder/server.crt" /secrets/server
    install -m 600 "$folder/server.key" /secrets/server
    echo "made a certificate for: $*"
    ;;
keys)
    if [ -e "/secrets/public/node-$(($1 - 1)).pub" ]; then exit 0; fi
    fedsuite deploy keys "$1" --dir "$folder" > /dev/null
    number=0
    while [ "$number" -lt "$1" ]; do
        install -m 600 "$folder/node-$number" "/secrets/node-$number/key"
        install -m 644 "$folder/node-$number.pub" /secrets/public
        number=$((number + 1))
    done
    echo "made keys for $1 SuperNodes"
    ;;
key)
    if [ ! -e /secrets/key/key ]; then
        fedsuite deploy keys 1 --dir "$folder" > /dev/null
        install -m 644 "$folder/node-0.pub" /secrets/key/key.pub
        install -m 600 "$folder/node-0" /secrets/key/key
    fi
    cat /secrets/key/key.pub
    ;;
*)
    echo "secrets.sh: '$what' is neither certs, keys nor key" >&2
    exit 2
    ;;
esac
