#!/bin/sh
# Read-only git tools. POSIX sh, git, sed, awk and iconv; no jq.
#
# Cellmate checks the input against the schema in the manifest before the call, so texts have no quotes, backslashes or
# control characters and `sed` can read them. Revisions and paths cannot begin with `-`.
LC_ALL=C
GIT_OPTIONAL_LOCKS=0
GIT_TERMINAL_PROMPT=0
GIT_NO_REPLACE_OBJECTS=1
export LC_ALL GIT_OPTIONAL_LOCKS GIT_TERMINAL_PROMPT GIT_NO_REPLACE_OBJECTS

# The most bytes of an answer.
MAX_BYTES=400000

tab=$(printf '\t')

# Prints a field of the input; nothing if it is missing.
text() { printf '%s' "$line" | sed -n 's/.*"input":{[^}]*"'"$1"'":"\([^"]*\)".*/\1/p'; }
number() { printf '%s' "$line" | sed -n 's/.*"input":{[^}]*"'"$1"'":\([0-9]*\).*/\1/p'; }

# A repository can configure programs that git starts: these settings leave out pagers, hooks, monitors and external diffs.
# Filters of `.git/config` remain, so this is for repositories whose `.git` folder you trust.
run() {
  git -C "$repository" --no-pager -c core.fsmonitor=false -c core.hooksPath=/dev/null -c color.ui=false \
    -c diff.external= -c log.showSignature=false -c submodule.recurse=false "$@" 2>&1
}

# Prints standard input as a JSON string: valid UTF-8, escaped, and cut.
quote() {
  printf '"'
  head -c "$MAX_BYTES" | iconv -c -f UTF-8 -t UTF-8 | tr -d '\000-\010\013-\037\177' |
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e "s/$tab/\\\\t/g" | awk '{ printf "%s%s", (NR > 1 ? "\\n" : ""), $0 }'
  printf '"'
}

call() {
  repository=$(text repository)
  revision=$(text revision)
  path=$(text path)
  limit=$(number limit)
  case "$1" in
    git_status) run status --short --branch --no-renames --ignore-submodules=all ;;
    git_log) run log --no-show-signature "--max-count=${limit:-20}" --date=iso-strict --format='%h %ad %an: %s' --end-of-options "${revision:-HEAD}" -- ;;
    git_diff)
      if [ -n "$revision" ]; then run diff --no-ext-diff --no-textconv --ignore-submodules=all --end-of-options "$revision" --
      else run diff --no-ext-diff --no-textconv --ignore-submodules=all --; fi ;;
    git_show)
      if [ -n "$path" ]; then run show --no-ext-diff --no-textconv --end-of-options "${revision:-HEAD}:$path"
      else run show --no-ext-diff --no-textconv --no-show-signature --end-of-options "${revision:-HEAD}" --; fi ;;
    git_branches) run for-each-ref --sort=-committerdate --count=200 --format='%(refname:short) %(objectname:short) %(committerdate:iso-strict) %(subject)' refs/heads refs/remotes ;;
    *) echo "unknown tool $1"; return 1 ;;
  esac
}

answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }

scratch=$(mktemp) || exit 1
trap 'rm -f "$scratch"' EXIT
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),"method":.*/\1/p')
  case "$line" in *'"method":"shutdown"'*) exit 0 ;; esac
  [ -n "$id" ] || continue
  case "$line" in
    *'"method":"initialize"'*) answer '{"protocolVersion":1}' ;;
    *'"method":"tools/call"'*)
      name=$(printf '%s' "$line" | sed -n 's/^[^{]*{"jsonrpc":"2.0","id":[0-9]*,"method":"tools\/call","params":{"name":"\([a-z_]*\)".*/\1/p')
      if call "$name" >"$scratch"; then failed=false; else failed=true; fi
      [ -s "$scratch" ] || echo '(nothing)' >"$scratch"
      answer "{\"text\":$(quote <"$scratch"),\"isError\":$failed}" ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}\n' "$id" ;;
  esac
done
