#!/usr/bin/env bash
# grade.sh BUILD FOLDER: builds and runs the exercises N_name.cpp and .cu in each folder FOLDER/STUDENT, and writes
# FOLDER/STUDENT/report.html and FOLDER/scores.tsv (student, exercise, steps that pass, steps, points). An exercise gives
# 100 points times the share of those steps that the untouched stub does not pass: 100 (passed - stub) / (steps - stub). A
# program that crashes or does not end fails its exercise only. With bubblewrap it runs in a sandbox: it can write nothing, reads neither home
# folders nor those of other students, has no network, and its processes end with it. The compiler sees neither our
# solutions nor those of other students, so nobody can include them.
set -euo pipefail
shopt -s nullglob
build="$(cd "$1" && pwd)" folder="$(cd "$2" && pwd)"
submitted=("$folder"/*/[0-9]*_*.{cpp,cu} "$folder"/*/10_find_the_bug.txt)
[[ ${#submitted[@]} != 0 ]] || { echo "grade: $folder has no STUDENT/N_name.cpp or .cu" >&2; exit 1; }
escaped() { sed 's/&/\&amp;/g; s/</\&lt;/g'; }

sandbox=(bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --die-with-parent --new-session)
for hidden in /tmp /home /root "$PWD/docs" "$folder"; do
  [[ ! -d "$hidden" ]] || sandbox+=(--tmpfs "$hidden")
done
sandbox+=(--ro-bind "$build" "$build")
"${sandbox[@]}" true 2>/dev/null ||
  { echo "grade: bwrap does not run here; the programs run with your rights" >&2; sandbox=(); }
compiling=(bwrap --dev-bind / / --die-with-parent --tmpfs "$folder")
for solution in docs/exercises/*/{solution,wrong_*}.{cpp,cu}; do
  compiling+=(--ro-bind /dev/null "$PWD/$solution")
done
output="$(mktemp)" stubs="$(mktemp -d)"
trap 'rm -rf "$output" "$stubs"' EXIT

# run_steps STUDENT FILE: sets passed and of; $output is what the compiler or the program printed.
run_steps() {
  local student="$1" exercise number token=" #$RANDOM$RANDOM$RANDOM" steps
  exercise="$(basename "${2%.*}")" number="${exercise%%_*}" number="${number//[^0-9]/}"
  steps="$(sed -nE 's/^STEP\("(.*)"\).*/pass  \1'"$token"'/p' "docs/exercises/$exercise/test.cpp" 2>/dev/null || true)"
  # Enough memory for the largest exercise and a compiler, and no endless compilation or output.
  if (ulimit -v 8000000; timeout -k 1 300 ${sandbox[0]:+"${compiling[@]}" --ro-bind "$student" "$student"} \
    cmake --build "$build" --target "exercise_$number") >"$output" 2>&1 </dev/null; then
    (ulimit -v 8000000 -f 200; timeout -k 1 200 "${sandbox[@]}" "$build/docs/exercises/exercise_$number" "$token") \
      >"$output" 2>&1 </dev/null || if [[ $? == 124 ]]; then echo "It did not end within 200 seconds." >>"$output"; fi
  fi
  # A line that does not end with the token, a program has made up.
  passed="$(grep -axF -- "$steps" "$output" | sort -u | grep -c . || true)"
  of="$(grep -c . <<<"$steps" || true)"
  sed -i "s/$token$//" "$output"
}

# score STUDENT EXERCISE: from passed, of and what the stub passes.
score() {
  local stub="${by_stub[$2]:-0}" points=0
  if ((passed > stub)); then points=$((100 * (passed - stub) / (of - stub))); fi
  echo "<p>$passed of $of; the stub passes $stub: $points of 100 points"
  printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$passed" "$of" "$points" >>"$folder/scores.tsv"
}

declare -A by_stub=()
for file in "${submitted[@]}"; do
  exercise="$(basename "${file%.*}")"
  for stub in "docs/exercises/$exercise"/stub.*; do cp "$stub" "$stubs/$exercise.${stub##*.}"; done
done
cmake "$build" -DVOXGRAD_EXERCISES="$stubs" >"$output" 2>&1 || { cat "$output" >&2; exit 1; }
for file in "$stubs"/*; do
  run_steps "$stubs" "$file"
  by_stub[$(basename "${file%.*}")]=$passed
done

rm -f "$folder/scores.tsv"  # which may be a link
for student in "$folder"/*/; do
  student="${student%/}"
  files=("$student"/[0-9]*_*.{cpp,cu})
  answers="$student/10_find_the_bug.txt"  # line N is the place of bug N
  [[ ${#files[@]} != 0 || -f "$answers" ]] ||
    { echo "grade: $student has no file N_name.cpp, N_name.cu or 10_find_the_bug.txt" >&2; continue; }
  name="$(basename "$student")"
  cmake "$build" -DVOXGRAD_EXERCISES="$student" >"$output" 2>&1 ||
    { echo "grade: CMake refuses the folder $student" >&2; tail -5 "$output" >&2; continue; }
  rm -f "$student/report.html"
  {
    echo "<!DOCTYPE html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    echo "<title>$(escaped <<<"$name")</title><h1>$(escaped <<<"$name")</h1>"
    echo "<p>An exercise gives 100 points times the share of the steps that the untouched stub does not pass."
    for file in "${files[@]}"; do
      exercise="$(basename "${file%.*}")"
      run_steps "$student" "$file"
      echo "<h2>$(escaped <<<"$exercise")</h2><pre>"
      head -c 100000 "$output" | tr -d '\0' | escaped
      echo "</pre>"
      score "$name" "$exercise"
    done
    if [[ -f "$answers" ]]; then
      mapfile -n 10 -t places < <(head -c 10000 "$answers" | tr -d '\r')
      passed=0 of=10
      echo "<h2>10_find_the_bug</h2><pre>"
      for number in "${!places[@]}"; do
        docs/exercises/10_find_the_bug/bug.sh judge $((number + 1)) "${places[number]}" | escaped && : $((++passed))
      done
      echo "</pre>"
      score "$name" 10_find_the_bug
    fi
  } >"$student/report.html"
done
cat "$folder/scores.tsv"
