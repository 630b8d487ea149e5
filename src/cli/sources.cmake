# main.c is the program's own; everything else is in the library, where the unit tests reach it.
set(CLI_SOURCES
  src/cli/args.c
  src/cli/cmd_arch.c
  src/cli/cmd_bench.c
  src/cli/cmd_doctor.c
  src/cli/cmd_generate.c
  src/cli/cmd_help.c
  src/cli/cmd_inspect.c
  src/cli/cmd_logits.c
  src/cli/cmd_synth.c
  src/cli/cmd_tokenize.c
  src/cli/cmd_version.c
  src/cli/complete.c
  src/cli/help.c
  src/cli/output.c
  src/cli/session_args.c
)
