#!/bin/sh
# A Cellmate plugin: JSON-RPC 2.0, one message per line. docs/guide/plugins.md has the protocol.
# Cellmate writes `id` as a number and `method` without escapes, so `sed` can read them. Use `jq` for the input of tools.
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),"method":.*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) result='{"protocolVersion":1}' ;;
    *'"method":"tools/call","params":{"name":"greet"'*) result='{"text":"Hello, world!"}' ;;
    *'"method":"shutdown"'*) exit 0 ;;
    *) continue ;;
  esac
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
