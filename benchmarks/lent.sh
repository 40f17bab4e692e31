#!/usr/bin/env bash
# voc_bench.py on a GPU machine that is lent call by call: benchmarks/README.md says how the calls go.
#
#   lent.sh begin COMMIT [OPTION…]   the code to $LENT, and a process that compiles ahead, on random pictures
#   lent.sh keep FOLDER…             shards, labels.npz and weights that came along with this call, to $LENT
#   lent.sh start RUNS [OPTION…]     the runs that docs/results/bench has not, in a process that outlives its call
#   lent.sh wait SECONDS             for its end, at most so long; rows so far and log to $OUT
#
# OPTIONs are voc_bench.py's. What each verb did is printed last; it fails at once, and says why, where nothing could
# come of going on.
set -euo pipefail
shopt -s nullglob
LENT=${LENT:-/root/lent}
PYTHON=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH=$LENT/code/src

bench() { # LOG ARGUMENT…: voc_bench.py in a session of its own, its number in LOG.pid
  local log=$1
  shift
  ONELABEL_COMMIT=$(cat "$LENT/commit") setsid nohup "$PYTHON" "$LENT/code/benchmarks/voc_bench.py" "$@" > "$log" 2>&1 &
  echo $! > "$log.pid"
}

alive() { kill -0 "$(cat "$1.pid")" 2> /dev/null; }

case ${1:-} in
begin)
  rm -rf "$LENT"
  mkdir -p "$LENT/kept" "$LENT/code"
  cp -r --parents src benchmarks docs/results/bench "$LENT/code/"
  echo "$2" > "$LENT/commit"
  # the three shapes a step is compiled for: batches of 8 and 16, and three views
  bench "$LENT/ahead.log" --random 64 --out "$LENT/ahead" --runs "em ll-r lasd" --epochs 1 "${@:3}"
  echo "begun at $2; compiling ahead"
  ;;
keep)
  for folder in "${@:2}"; do mv "$folder"/* "$LENT/kept/"; done
  ls "$LENT/kept"
  ;;
start)
  kept=$LENT/kept
  weights=("$kept"/*.safetensors)
  alive "$LENT/ahead.log" && kill "$(cat "$LENT/ahead.log.pid")" && echo "compiling ahead was not done"
  tail -n 2 "$LENT/ahead.log"
  bench "$LENT/log" --shards "$kept" --labels "$kept/labels.npz" ${weights[0]:+--weights "${weights[0]}"} \
    --out "$LENT/bench" --done "$LENT/code/docs/results/bench" --gather "$LENT/rows.parquet" --runs "$2" "${@:3}"
  until grep -q "'test':" "$LENT/log"; do # said when all pictures are decoded
    alive "$LENT/log" || { cat "$LENT/log"; exit 1; }
    sleep 0.5
  done
  echo "started"
  ;;
wait)
  end=$((SECONDS + $2))
  while ((SECONDS < end)) && alive "$LENT/log"; do sleep 1; done
  cp "$LENT/log" "$OUT/log.txt"
  if [ -f "$LENT/rows.parquet" ]; then cp "$LENT/rows.parquet" "$OUT/"; fi
  tail -n 30 "$LENT/log"
  if alive "$LENT/log"; then echo "still at it"; else echo "done"; fi
  ;;
*)
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
