# shellcheck shell=bash
# Sourced by ./test --full: the file with what its steps came to. It is written as each step ends, so that an interrupted run leaves a
# true one, and another run goes on from it. A line is a step, its counts and seconds, and what was tested: SOURCE is the tree without
# bench/results, for the file itself may be committed. A suite of the end-to-end tests is a step. Indented lines belong to the step above.

# results_begin FILE SOURCE COMMIT SEED [OTHER LINE...]: a run begins; what the file has from others stays in it.
results_begin() {
  RESULTS=$1 RESULTS_SOURCE=$2 RESULTS_COMMIT=$3 RESULTS_SEED=$4
  shift 4
  RESULTS_ABOUT=("$@")
  mkdir -p "$(dirname "$RESULTS")"
  [ -e "$RESULTS" ] || : >"$RESULTS"
  results_state "begun $(results_now), no step has ended yet"
}

results_now() { date -u '+%Y-%m-%dT%H:%MZ'; }

# The lines of steps, without the head and without the remark on lines of another source.
results_lines() { sed -n '/^#/d; /^$/d; s/ OLDER$//; p' "$RESULTS"; }

# results_write STATE: the head, and lines from standard input. As one step, so that there is always a whole file.
results_write() {
  {
    printf '# ./test --full writes this as its steps end; ./test --full --resume goes on from it (docs/inside/testing.md).\n'
    printf '# A line that ends with OLDER is of another source than the last run; each says its own.\n'
    printf '# last run: source %s, commit %s, seed %s\n' "$RESULTS_SOURCE" "$RESULTS_COMMIT" "$RESULTS_SEED"
    [ "${#RESULTS_ABOUT[@]}" = 0 ] || printf '# %s\n' "${RESULTS_ABOUT[@]}"
    printf '# state: %s\n\n' "$1"
    awk -v source="$RESULTS_SOURCE" '/^ / { print; next } { print $0 (index($0, " source " source " ") ? "" : " OLDER") }'
  } >"$RESULTS.new" && mv -f "$RESULTS.new" "$RESULTS"
}

# results_state TEXT: what the run is at.
results_state() {
  RESULTS_STATE=$1
  results_write "$1" < <(results_lines)
}

# record STEP PASSED FAILED SKIPPED AGAIN SECONDS [DETAIL...]: a step has ended. Its line takes the place of the one before.
record() {
  local line
  line=$(printf '%-34s %5d passed %3d failed %3d skipped %3d measured again %6d s  source %s commit %s seed %s %s' \
    "$1" "$2" "$3" "$4" "$5" "$6" "$RESULTS_SOURCE" "${RESULTS_COMMIT// /-}" "$RESULTS_SEED" "$(results_now)")
  local step=$1
  shift 6
  [ $# = 0 ] || line+=$(printf '\n    %s' "$@")
  results_write "$RESULTS_STATE" < <(results_lines | LINE=$line awk -v step="$step" '
    function name(line) { line = substr(line, 1, 34); sub(/ +$/, "", line); return line }
    /^ / { if (!dropped) print; next }
    { dropped = name($0) == step; if (!dropped) print; else if (!done++) print ENVIRON["LINE"] }
    END { if (!done) print ENVIRON["LINE"] }')
}

# results_drop STEP: it has no result of its own any more.
results_drop() {
  results_write "$RESULTS_STATE" < <(results_lines | awk -v step="$1" '
    /^ / { if (!dropped) print; next }
    { name = substr($0, 1, 34); sub(/ +$/, "", name); dropped = name == step; if (!dropped) print }')
}

# passed_here STEP: it has passed, of this source. passed_ever STEP: of any. passed_before STEP: of another one.
passed_here() { [ "$RESULTS_SOURCE" != uncommitted ] && results_passed "$1" " source $RESULTS_SOURCE "; }
passed_ever() { results_passed "$1" " source "; }
passed_before() { passed_ever "$1" && ! results_passed "$1" " source $RESULTS_SOURCE "; }
results_passed() {
  results_lines | awk -v step="$1" -v part="$2" '
    /^ / { next }
    { name = substr($0, 1, 34); sub(/ +$/, "", name) }
    name == step && index($0, part) && $0 ~ / 0 failed / { found = 1 }
    END { exit !found }'
}

# results_steps PREFIX TEST: the steps that begin with PREFIX and for which TEST holds, without the prefix.
results_steps() {
  local name
  results_lines | sed -n "/^ /d; s/^\(.\{34\}\).*/\1/; s/ *$//; s/^$1//p" | while IFS= read -r name; do
    if "$2" "$1$name"; then printf '%s\n' "$name"; fi
  done
}

# results_counts: "PASSED FAILED SKIPPED AGAIN OLDER": counts of this source, and how many lines are of another one.
results_counts() {
  results_lines | awk -v source="$RESULTS_SOURCE" '
    /^ / { next }
    !index($0, " source " source " ") { older++; next }
    { split(substr($0, 35), f, " "); p += f[1]; x += f[3]; s += f[5]; a += f[7] }
    END { print p + 0, x + 0, s + 0, a + 0, older + 0 }'
}

# record_suites: passes on what the end-to-end tests print, and records each suite as it ends.
record_suites() {
  local line
  local form='^suite ([a-z0-9_]+): ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped, ([0-9]+) measured again in ([0-9]+) s$'
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ $line =~ $form ]]; then record "end to end: ${BASH_REMATCH[1]}" "${BASH_REMATCH[@]:2:5}"; fi
  done
}

# tested_source: twelve digits that stand for what is tested, or "uncommitted".
tested_source() {
  if [ -n "$(git -c safe.directory='*' status --porcelain -- . ':!bench/results' 2>/dev/null)" ]; then
    echo uncommitted
  else
    git -c safe.directory='*' ls-tree -r HEAD 2>/dev/null | grep -v $'\tbench/results/' | sha256sum | cut -c1-12
  fi
}
