set(ENGINE_SOURCES
  src/engine/batch.c
  src/engine/engine.c
  src/engine/kv.c
  src/engine/runner.c
  src/engine/sequence.c
)
