set(SERVER_SOURCES
  src/server/api_error.c
  src/server/browser.c
  src/server/chat.c
  src/server/constrain.c
  src/server/fields.c
  src/server/generate.c
  src/server/guard.c
  src/server/http.c
  src/server/http_parse.c
  src/server/http_reply.c
  src/server/messages.c
  src/server/params.c
  src/server/route.c
  src/server/route_embeddings.c
  src/server/route_health.c
  src/server/route_metrics.c
  src/server/route_models.c
  src/server/route_page.c
  src/server/server.c
  src/server/sse.c
  src/server/tools.c
  src/server/webui.S
  src/server/wire/anthropic.c
  src/server/wire/anthropic_answer.c
  src/server/wire/anthropic_request.c
  src/server/wire/openai_chat.c
  src/server/wire/openai_completions.c
  src/server/wire/wire.c
)
set_source_files_properties(src/server/webui.S PROPERTIES OBJECT_DEPENDS ${CMAKE_SOURCE_DIR}/src/server/webui/index.html)
if(MLXCEL_TLS)
  list(APPEND SERVER_SOURCES src/server/tls_openssl.c)
else()
  list(APPEND SERVER_SOURCES src/server/tls_none.c)
endif()
