#!/usr/bin/env bash
# Signs one Windows program in place: packaging/sign.sh FILE
#
#   MLXCEL_SIGN_PKCS12         certificate and key in one file, or
#   MLXCEL_SIGN_CERT, _KEY     certificate chain and key in PEM form
#   MLXCEL_SIGN_PASSWORD_FILE  the key's password, where it has one
#   MLXCEL_SIGN_TIMESTAMP      address of a time stamp service (RFC 3161): without one, a signature ends with its certificate
set -euo pipefail
file=$1
args=(-h sha256 -n mlxcel)
if [ -n "${MLXCEL_SIGN_PKCS12:-}" ]; then
    args+=(-pkcs12 "$MLXCEL_SIGN_PKCS12")
elif [ -n "${MLXCEL_SIGN_CERT:-}" ] && [ -n "${MLXCEL_SIGN_KEY:-}" ]; then
    args+=(-certs "$MLXCEL_SIGN_CERT" -key "$MLXCEL_SIGN_KEY")
else
    echo "sign: no certificate: set MLXCEL_SIGN_PKCS12, or MLXCEL_SIGN_CERT and MLXCEL_SIGN_KEY" >&2
    exit 1
fi
[ -z "${MLXCEL_SIGN_PASSWORD_FILE:-}" ] || args+=(-readpass "$MLXCEL_SIGN_PASSWORD_FILE")
[ -z "${MLXCEL_SIGN_TIMESTAMP:-}" ] || args+=(-ts "$MLXCEL_SIGN_TIMESTAMP")
rm -f "$file.signed"
osslsigncode sign "${args[@]}" -in "$file" -out "$file.signed" >/dev/null
mv "$file.signed" "$file"
