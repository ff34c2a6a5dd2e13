#!/bin/sh
# Records assignments.jsonl.gz anew with Kafka's own assignors. Needs a JDK (17) and mvn.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>gkafka</groupId><artifactId>golden</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.2.0</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars"
mkdir "$work/classes"
javac -encoding UTF-8 -cp "$work/jars/*" -d "$work/classes" "$here/Assignments.java"
java -cp "$work/classes:$work/jars/*" Assignments >"$work/assignments.jsonl"
gzip -9n <"$work/assignments.jsonl" >"$here/assignments.jsonl.gz"
wc -l "$work/assignments.jsonl"
