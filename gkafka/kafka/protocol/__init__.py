"""kafka-python's messages (kafka.protocol), as far as users meet them."""
