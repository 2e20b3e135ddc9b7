#!/bin/sh
# Beam's job server for Flink, at port 8099 of this host. mvn -f deploy/flink/pom.xml package gathers its jars.
#   deploy/flink/job-server.sh JOBMANAGER:8081 [--job-host NAME] [--artifacts-dir FOLDER] …
set -eu
fail() {
  echo "error: $1" >&2
  exit 2
}
[ $# -gt 0 ] || fail "give the REST address of the JobManager, HOST:8081"
command -v java >/dev/null || fail "no java on PATH: install Java 17 (Debian: openjdk-17-jre-headless)"
here=$(cd "$(dirname "$0")" && pwd -P)
jars=${JOB_SERVER_JARS:-$here/../../build/flink}
ls "$jars"/beam/beam-runners-flink-*.jar >/dev/null 2>&1 || fail "no jars of Beam in $jars: mvn -f deploy/flink/pom.xml package gathers them"
master=$1
shift
exec java "@$here/java.options" ${JAVA_OPTS:--Xmx512m -XX:+UseSerialGC} -Dorg.slf4j.simpleLogger.showDateTime=true \
  -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS -cp "$jars/beam/*:$jars/client/*" \
  org.apache.beam.runners.flink.FlinkJobServerDriver --flink-master="$master" --flink-conf-dir="$here" --expansion-port=-1 "$@"
