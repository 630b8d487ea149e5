# HTTP/1 parser. The C files are generated upstream and published in release archives only; httptools on PyPI carries them
# unchanged (compared with Debian's libllhttp-source 9.4.3: equal), and PyPI never drops a file.
mlxcel_recipe(llhttp
  VERSION 9.4.3
  LICENCE MIT
  PLACES
    https://files.pythonhosted.org/packages/3a/ec/deed52912ab7ca6c0b12859330c571c60c61d7267b341b28951fcbf13694/httptools-0.9.0.tar.gz d484ebb7e3a3f3597b0f645fbd1b85633674ca808c1f5ba11c2caf7c66f5c8b6
    https://github.com/nodejs/llhttp/archive/refs/tags/release/v9.4.3.tar.gz 1eb813c7437b31a87496a1cd3ed79f00746720f5e7e29c79b42c02cb69f36c39
  SUBDIRS vendor/llhttp
  SOURCES src/llhttp.c src/api.c src/http.c
  INCLUDE include
)
