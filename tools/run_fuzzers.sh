#!/usr/bin/env bash
# run_fuzzers.sh BUILD_FOLDER SECONDS [NAME…]: runs BUILD_FOLDER/fuzzers/* (or only those named) for
# SECONDS each, from the seeds in tests/corpus/NAME/ and from what earlier runs found. Fails where
# one crashes, hangs or eats memory, and says which input did it.
set -euo pipefail
build=$1
seconds=$2
shift 2

names=("$@")
if ((${#names[@]} == 0)) && [[ -d $build/fuzzers ]]; then
  mapfile -t names < <(find "$build/fuzzers" -maxdepth 1 -type f -executable -printf '%f\n' | sort)
fi
if ((${#names[@]} == 0)); then
  echo 'There is no fuzzer yet.'
  exit 0
fi

# One input may take 10 s and 2 GiB: a small file that costs more is a finding.
limits=(-timeout=10 -rss_limit_mb=2048 "-max_total_time=$seconds")

failed=()
for name in "${names[@]}"; do
  program=$build/fuzzers/$name
  if [[ ! -x $program ]]; then
    echo "There is no fuzzer '$name' in $build/fuzzers." >&2
    exit 2
  fi
  seeds=tests/corpus/$name
  found=$build/corpus/$name
  log=$build/fuzzers/$name.log
  mkdir -p "$found" "$build/findings"
  if [[ -d $seeds ]]; then corpora=("$found" "$seeds"); else corpora=("$found"); fi
  echo "-- $name: $seconds s from $(find "${corpora[@]}" -type f | wc -l) inputs"
  if "$program" "${limits[@]}" -print_final_stats=1 "-artifact_prefix=$build/findings/$name-" \
    "${corpora[@]}" >"$log" 2>&1; then
    grep -h -E 'number_of_executed_units|new_units_added|peak_rss_mb' "$log" || true
  else
    failed+=("$name")
    tail -n 60 "$log"
    echo "-- $name FAILED; the whole output is in $log, the input in $build/findings/"
  fi
done

if ((${#failed[@]})); then
  echo "Fuzzers that failed: ${failed[*]}" >&2
  exit 1
fi
