#!/usr/bin/env bash
# The wrong engines of exercise 10. mutants.txt has three lines for each, as tests/mutate: the file, and the gradients
# that are wrong; a line of the file, in which « and » mark what changes; and what stands there instead.
#   bug.sh make N FOLDER      copies the engine, with bug N in it, into FOLDER
#   bug.sh judge N FILE:LINE  says whether that is the place of bug N
#   bug.sh check N TABLE      fails unless TABLE, a program with bug N, prints the wrong gradients, and judge knows the place
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)" root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)"
command="$1" number="$2" target="$3"
mapfile -t bug < <(awk -v n="$number" 'BEGIN { RS = ""; FS = "\n" } NR == n { print $1; print $2; print $3 }' "$here/mutants.txt")
path="${bug[0]% | *}" wrong_gradients="${bug[0]#* | }"
before="${bug[1]%«*}" after="${bug[1]#*»}" old="${bug[1]#*«}"
right="$before${old%»*}$after"
text="$(<"$root/$path")"
head="${text%%"$right"*}" tail="${text#*"$right"}"
[[ "$head" != "$text" && "$tail" != *"$right"* ]] || { echo "bug.sh: $path must have once: $right" >&2; exit 1; }
newlines="${head//[^$'\n']/}"
place="$path:$((${#newlines} + 1))"

case "$command" in
  make)
    for file in $(grep -oE '[a-z0-9_/]+\.cpp' "$root/cmake/afternoon.cmake"); do
      mkdir -p "$(dirname "$target/$file")"
      [[ "$file" == "$path" ]] || cp "$root/$file" "$target/$file"
    done
    printf '%s\n' "$head$before${bug[2]}$after$tail" >"$target/$path"
    ;;
  judge)
    [[ "$target" == "$place" ]] || { echo "no: bug $number is not in $target"; exit 1; }
    echo "right: bug $number is in $target, which should be"
    echo "  $right"
    ;;
  check)
    printed="$({ "$target" || true; } | sed -nE 's/^WRONG +(\w+) +(\w+) .*/\1:\2/p' | xargs)"
    [[ "$printed" == "$wrong_gradients" ]] || { echo "wrong are '$printed' instead of '$wrong_gradients'"; exit 1; }
    "$0" judge "$number" "$place"
    ! "$0" judge "$number" "$path:1"
    ;;
esac
