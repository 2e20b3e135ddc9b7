#!/bin/sh
# Trains on all hosts of a spot TPU slice until the command ends well; makes the slice, and makes it
# again after a pre-emption: SETUP='…' train_pod.sh NAME ZONE TYPE COMMAND
set -u
test $# -eq 4 || { echo "usage: SETUP='…' $0 NAME ZONE TYPE COMMAND" >&2; exit 2; }
name=$1 zone=$2 type=$3 command=$4
version=${VERSION:-tpu-ubuntu2204-base}
seconds=${SECONDS_BETWEEN:-60}

tpu() {
    verb=$1; shift
    gcloud compute tpus tpu-vm "$verb" "$name" --zone "$zone" "$@"
}

on_all_hosts() {
    tpu ssh --worker=all --command "$1"
}

while true; do
    state=$(tpu describe --format 'value(state)' 2>/dev/null) || state=ABSENT
    case $state in
    READY)
        on_all_hosts "$command" && exit 0 ;;
    ABSENT)
        tpu create --accelerator-type "$type" --version "$version" --spot \
            && { on_all_hosts "${SETUP:-true}" || tpu delete --quiet; } && continue ;;
    PREEMPTED | TERMINATED | STOPPED)
        tpu delete --quiet && continue ;;
    esac
    sleep "$seconds"
done
