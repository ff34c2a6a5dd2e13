#!/bin/sh
# Records golden.jsonl.gz anew with Kafka's own classes. Needs a JDK (17) and mvn; kafka-clients 4.2.0 writes all versions that it has,
# 3.9.1 the older ones, which 4.0 removed (KIP-896).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for kafka in 4.2.0 3.9.1; do
    cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>gkafka</groupId><artifactId>golden</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>$kafka</version></dependency>
    <dependency><groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-databind</artifactId><version>2.16.2</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
    mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/$kafka"
    mkdir "$work/classes-$kafka"
    javac -cp "$work/$kafka/*" -d "$work/classes-$kafka" "$here/Record.java"
    java -cp "$work/classes-$kafka:$work/$kafka/*" Record "$work/golden.jsonl"
done
gzip -9n <"$work/golden.jsonl" >"$here/golden.jsonl.gz"
wc -l "$work/golden.jsonl"
