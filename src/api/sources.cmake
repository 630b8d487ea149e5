set(API_SOURCES
  src/api/build.c
  src/api/doctor.c
  src/api/inspect.c
)
