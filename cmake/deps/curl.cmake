# HTTP client of the model downloader. On Linux the system's libcurl.so.4 is opened by the first download (src/hub/curl.c): neither it nor a
# TLS library is linked or built, only the headers are needed. Our project in curl/ builds it for Windows with Schannel, and for Linux
# releases with OpenSSL; there the program looks for the system's certificates itself.
set(curl_defines CURL_STATICLIB)
set(curl_link "")
if(MLXCEL_STATIC_TLS AND NOT WIN32) # Windows has its own
  list(APPEND curl_defines HUB_FINDS_CERTIFICATES)
  set(curl_link openssl)
endif()
mlxcel_recipe(curl RUNTIME
  VERSION 8.14.1
  LICENCE curl
  PKG_CONFIG libcurl
  PACKAGE libcurl4-openssl-dev
  PLACES apt:trixie/curl_8.14.1.orig.tar.gz 6766ada7101d292b42b8b15681120acd68effa4a9660935853cf6d61f0d984d4
  PROJECT ${CMAKE_SOURCE_DIR}/cmake/deps/curl
  INCLUDE include
  LIBRARY libcurl.a
  DEFINES ${curl_defines}
  LINK ${curl_link}
  WINDOWS_LIBS ws2_32 crypt32 secur32 bcrypt advapi32 iphlpapi
)
