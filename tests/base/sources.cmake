list(APPEND TEST_PROGRAMS "toml_json=tests/base/toml_main.c")
