#!/bin/sh
# PYSPARK_PYTHON for a PySpark that pip installed: what Spark runs in Python, each streaming query with its own process, starts a second sooner.
#
#     PYSPARK_PYTHON=$PWD/examples/spark_python.sh python my_job.py
#
# Spark puts pyspark.zip first in the path of these processes, often twice. A zip keeps no compiled modules, so each of them compiles PySpark anew.
# Without it Python finds the same PySpark, compiled, among the other packages of the python3 that is first in $PATH.
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) path=$path${path:+:}$entry ;;
    esac
done
export PYTHONPATH="$path"
exec python3 "$@"
