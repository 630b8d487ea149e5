list(APPEND TEST_PROGRAMS "image_probe=tests/vision/image_probe.c")
list(APPEND TEST_PROGRAMS "vision_probe=tests/vision/vision_probe.c")
list(APPEND TEST_PROGRAMS "remote_probe=tests/vision/remote_probe.c")
