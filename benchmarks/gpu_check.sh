#!/bin/sh
# Does this machine's GPU keep kvchat's promises? Builds llama.cpp for CUDA, makes a model with random weights in the
# shape of Llama 3.1 8B (4.2 GiB), and checks exact resume, cache types, transcoding and speed: under ten minutes.
#
#   benchmarks/gpu_check.sh [--resume-only] [--cpu] [--tiny] [--python PYTHON] [--keep FOLDER]
#
#   --resume-only    the five-minute form: exact resume with an f16 cache, and nothing else
#   --cpu --tiny     without a GPU and with a tiny model: whether the check itself works
#   --python PYTHON  an interpreter that has kvchat with a llama.cpp built for this GPU: nothing is built
#   --keep FOLDER    where the model is made, and stays for the next time
#
# Without a network: pip takes what it needs from a folder with PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER.
# Ends with 0 when all promises hold.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
limit=540 # seconds of the check itself; building takes the rest of ten minutes
python="" cpu="" given=""

fail() {
	echo "error: $1" >&2
	echo "hint: $2" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case $1 in
	--python | --keep)
		[ $# -gt 1 ] || fail "$1 names nothing" "$1 PATH"
		if [ "$1" = --python ]; then python=$2; else keep=$2; fi
		shift
		;;
	--cpu) cpu=yes given="$given --cpu" ;;
	--tiny) given="$given --tiny" ;;
	--resume-only) limit=240 given="$given --resume-only" ;;
	-h | --help)
		sed -n '2,14s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	*) fail "$1 is no flag of this script" "$0 --help" ;;
	esac
	shift
done

if [ -z "$python" ]; then
	python=$root/.venv/bin/python
	if [ -n "$cpu" ]; then
		[ -x "$python" ] || make -C "$root" .venv/installed-run
	else
		command -v nvidia-smi >/dev/null || fail "there is no NVIDIA driver here" "without a GPU: $0 --cpu --tiny"
		began=$(date +%s)
		make -C "$root" cuda
		echo "built in $(($(date +%s) - began)) s"
	fi
fi

# shellcheck disable=SC2086  # the flags are ours, without spaces
exec timeout "$limit" "$python" "$here/gpu_check.py" $given ${keep:+--keep "$keep"}
