"""Small programs of pykafka and kafka-python, as their users write them, played with gkafka in place of the library. README.md says how one is written."""
