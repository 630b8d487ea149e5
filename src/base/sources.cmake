set(BASE_SOURCES
  src/base/address.c
  src/base/arena.c
  src/base/err.c
  src/base/fmath.c
  src/base/half.c
  src/base/hash.c
  src/base/hmac.c
  src/base/json.c
  src/base/log.c
  src/base/map.c
  src/base/sha256.c
  src/base/str.c
  src/base/toml.c
  src/base/toml_number.c
  src/base/toml_text.c
  src/base/yaml_tree.c
)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND BASE_SOURCES src/base/sha256_x86.c)
  list(APPEND KERNEL_FLAGS "src/base/sha256_x86.c=-msha -msse4.1")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND BASE_SOURCES src/base/sha256_arm.c)
  list(APPEND KERNEL_FLAGS "src/base/sha256_arm.c=-march=armv8-a+crypto")
else()
  list(APPEND BASE_SOURCES src/base/sha256_none.c)
endif()
