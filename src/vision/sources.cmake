set(VISION_SOURCES
  src/vision/processor.c
  src/vision/tower.c
  src/vision/towers.c
  src/vision/vision.c
)
