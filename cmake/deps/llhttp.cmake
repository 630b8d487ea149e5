# HTTP/1 parser. The C files are generated upstream and published in release archives only; httptools on PyPI carries them
# unchanged (compared with Debian's libllhttp-source 9.4.3: equal), and PyPI never drops a file.
mlxcel_recipe(llhttp
  VERSION 9.4.3
  LICENCE MIT
  PLACES pip:httptools-0.9.0.tar.gz d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6
  SUBDIRS vendor/llhttp
  SOURCES src/llhttp.c src/api.c src/http.c
  INCLUDE include
)
if(WIN32) # its header exports everything, out of mlxcel.dll as well; an attribute without an effect in that one's place
  target_compile_definitions(llhttp PRIVATE dllexport=used)
endif()
