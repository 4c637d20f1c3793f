#!/usr/bin/env bash
# grade.sh BUILD FOLDER: builds and runs the exercises N_name.cpp in each folder FOLDER/STUDENT, and writes
# FOLDER/STUDENT/report.html and FOLDER/scores.tsv (student, exercise, steps that pass, steps). A program that crashes or
# does not end fails its exercise only. It runs with the rights of whoever grades: this is no protection against
# programs that mean harm.
set -euo pipefail
build="$1" folder="$(cd "$2" && pwd)"
[[ -n "$(find "$folder" -mindepth 2 -maxdepth 2 -name '[0-9]*_*.cpp' -print -quit)" ]] ||
  { echo "grade: $folder has no STUDENT/N_name.cpp" >&2; exit 1; }
escaped() { sed 's/&/\&amp;/g; s/</\&lt;/g'; }

: >"$folder/scores.tsv"
for student in "$folder"/*/; do
  student="${student%/}"
  files=("$student"/[0-9]*_*.cpp)
  [[ -e "${files[0]}" ]] || continue
  name="$(basename "$student")"
  cmake "$build" -DVOXGRAD_EXERCISES="$student" >/dev/null
  {
    echo "<!DOCTYPE html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    echo "<title>$(escaped <<<"$name")</title><h1>$(escaped <<<"$name")</h1>"
    for file in "${files[@]}"; do
      exercise="$(basename "$file" .cpp)" number="${exercise%%_*}" number="${number//[^0-9]/}"
      echo "<h2>$(escaped <<<"$exercise")</h2><pre>"
      # Enough memory for the largest exercise and a compiler, and no endless compilation or output.
      if log="$(ulimit -v 8000000; timeout 600 cmake --build "$build" --target "exercise_$number" 2>&1)"; then
        log="$(ulimit -v 8000000; timeout -k 1 200 "$build/docs/exercises/exercise_$number" 2>&1 | head -c 100000 || true)"
      fi
      escaped <<<"$log"
      echo "</pre>"
      # The last line that the test prints, or, if it ended early, the steps that passed before.
      read -r passed steps < <(sed -nE 's/^([0-9]+) of ([0-9]+) steps pass$/\1 \2/p' <<<"$log" | tail -n 1) ||
        { passed="$(grep -c '^pass ' <<<"$log" || true)" steps="$(grep -c '^STEP(' "docs/exercises/$exercise/test.cpp" || true)"; }
      printf '%s\t%s\t%s\t%s\n' "$name" "$exercise" "$passed" "$steps" >>"$folder/scores.tsv"
    done
  } >"$student/report.html"
done
cat "$folder/scores.tsv"
