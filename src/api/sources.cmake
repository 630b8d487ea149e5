set(API_SOURCES
  src/api/build.c
)
