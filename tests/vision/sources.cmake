list(APPEND TEST_PROGRAMS "image_probe=tests/vision/image_probe.c")
