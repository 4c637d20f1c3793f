#!/usr/bin/env bash
# The points that grade.sh gives, with programs in place of a compiler's: a file that consists of a number passes so many
# steps, and the stub, like any other file, passes 2.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)" folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{bin,build/docs/exercises,class/{half,none,spoilt,whole}}
cat >"$folder/bin/cmake" <<'CMAKE'
#!/usr/bin/env bash
set -euo pipefail
[[ "$1" == --build ]] || { echo "${2#*=}" >"$1/exercises"; exit 0; }
file="$(cat "$2/exercises")/1_sigmoid.cpp" number="$(head -1 "$(cat "$2/exercises")/1_sigmoid.cpp")"
[[ "$number" =~ ^[0-9]+$ ]] || number=2
{
  echo '#!/bin/sh'
  sed -nE 's/^STEP\("([^"]*)"\).*/echo "pass  \1$1"/p' "$EXERCISES/1_sigmoid/test.cpp" | head -n "$number"
  echo 'echo "pass  the slope at other points"'  # made up: without the token
} >"$2/docs/exercises/$4"
chmod +x "$2/docs/exercises/$4"
CMAKE
chmod +x "$folder/bin/cmake"
echo 4 >"$folder/class/half/1_sigmoid.cpp"
cp "$here/1_sigmoid/stub.cpp" "$folder/class/none/1_sigmoid.cpp"
echo 1 >"$folder/class/spoilt/1_sigmoid.cpp"
echo 6 >"$folder/class/whole/1_sigmoid.cpp"
echo "ops/matmul.cpp:1" >"$folder/class/half/10_find_the_bug.txt"

cd "$here/../.."
EXERCISES="$here" PATH="$folder/bin:$PATH" docs/exercises/grade.sh "$folder/build" "$folder/class" >"$folder/printed"
diff "$folder/printed" - <<'SCORES'
half	1_sigmoid	4	6	50
half	10_find_the_bug	0	10	0
none	1_sigmoid	2	6	0
spoilt	1_sigmoid	1	6	0
whole	1_sigmoid	6	6	100
SCORES
grep -q "4 of 6; the stub passes 2: 50 of 100 points" "$folder/class/half/report.html"
