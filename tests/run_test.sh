#!/usr/bin/env bash
# run_test.sh <folder>: ./run's commands for readers, with a CMake that builds nothing. Each line says what must hold.
set -euo pipefail
folder="$1" root="$(cd "$(dirname "$0")/.." && pwd)"
rm -rf "$folder" && mkdir -p "$folder/bin" "$folder/mine"
build="$(realpath --relative-to="$root/build" "$folder")/build"  # where the preset of this test builds
programs="$folder/build/docs/exercises"
mkdir -p "$programs" "$folder/build/book"
printf '#!/bin/sh\n' >"$folder/bin/cmake"
for program in "$programs/exercise_3" "$programs/exercise_3_solution" "$folder"/build/book/0{1_numbers,4_tape}; do
  printf '#!/bin/sh\necho "$(basename $0)" "$@"\n' >"$program"
done
chmod +x "$folder/bin/cmake" "$programs"/* "$folder"/build/book/*
export PATH="$folder/bin:$PATH" VOXGRAD_NO_INSTALL=1 VOXGRAD_PRESET="$build" VOXGRAD_EXERCISES="$folder/mine"

expect() { [[ "$1" == "$2" ]] || { echo "run_test: expected '$2', got '$1'" >&2; exit 1; }; }
run() { "$root/run" "$@" 2>&1; }

expect "$(run book 1)" 01_numbers
expect "$(run book 04 x y)" "04_tape x y"
[[ "$(run book 99 || true)" == *"needs the number of a chapter"* ]]
expect "$(run exercise 3)" exercise_3
cmp "$folder/mine/3_engine.cpp" "$root/docs/exercises/3_engine/stub.cpp"  # it begins as a copy
echo solved >"$folder/mine/3_engine.cpp"
expect "$(run exercise 3)" exercise_3
expect "$(cat "$folder/mine/3_engine.cpp")" solved  # and is left alone
expect "$(run exercise 3 solution)" exercise_3_solution
[[ "$(run exercise 3 wrong || true)" == *"expected 'solution' or nothing"* ]]
grep -qx /my_exercises/ "$root/.gitignore"  # so that `git checkout` leaves it alone

run handout "$folder/handout" >"$folder/printed"
[[ -z "$(find "$folder/handout" -name 'solution.*' -o -name 'wrong_*')" ]]
[[ "$(wc -l <"$folder/handout/docs/book/answers.md")" == 3 ]]
[[ "$(cd "$folder/handout" && VOXGRAD_PRESET=none ./run exercise 3 solution 2>&1 || true)" == *"has no solutions"* ]]
cmp "$folder/handout/docs/exercises/3_engine/stub.cpp" "$root/docs/exercises/3_engine/stub.cpp"
[[ "$(run handout "$folder/handout" || true)" == *"exists"* ]]
echo "run_test: ok"
