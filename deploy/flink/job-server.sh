#!/bin/sh
# Beam's job server for Flink, at port 8099 of this host. mvn -f deploy/flink/pom.xml package gathers its jars.
#   deploy/flink/job-server.sh JOBMANAGER:8081 [--job-host NAME] [--artifacts-dir FOLDER] …
set -eu
here=$(dirname "$(realpath "$0")")
jars=${JOB_SERVER_JARS:-$here/../../build/flink}
master=$1
shift
exec java "@$here/java.options" ${JAVA_OPTS:--Xmx512m -XX:+UseSerialGC} -Dorg.slf4j.simpleLogger.showDateTime=true \
  -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS -cp "$jars/beam/*:$jars/client/*" \
  org.apache.beam.runners.flink.FlinkJobServerDriver --flink-master="$master" --flink-conf-dir="$here" --expansion-port=-1 "$@"
