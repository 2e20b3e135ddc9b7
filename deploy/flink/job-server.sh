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
beam=$(ls "$jars/beam" 2>/dev/null | sed -n 's/^beam-runners-flink-\([0-9.]*\)-.*\.jar$/\1/p')
[ -n "$beam" ] || fail "no jars of Beam in $jars: mvn -f deploy/flink/pom.xml package gathers them"
[ "$beam" = "${beam%%[!0-9.]*}" ] || fail "jars of several versions of Beam in $jars/beam: empty it, and gather them again"
master=$1
shift
# Asked only where this host has a program for it, and the JobManager is there
flink=$({ curl -fsS -m 5 "http://$master/overview" || wget -q -O - -T 5 -t 1 "http://$master/overview"; } 2>/dev/null |
  sed -n 's/.*"flink-version": *"\([^"]*\)".*/\1/p')
case $flink in "" | "$beam".*) ;; *) fail "the JobManager at $master is Flink $flink, and the jars in $jars are of Beam for Flink $beam" ;; esac
exec java "@$here/java.options" ${JAVA_OPTS:--Xmx512m -XX:+UseSerialGC} -Dorg.slf4j.simpleLogger.showDateTime=true \
  -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS -cp "$jars/beam/*:$jars/client/*" \
  org.apache.beam.runners.flink.FlinkJobServerDriver --flink-master="$master" --flink-conf-dir="$here" --expansion-port=-1 "$@"
