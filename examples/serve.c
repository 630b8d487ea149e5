/* The HTTP server inside of a program: serve [MODEL...]. It ends with the input, or at a line. */
#include <mlxcel.h>
#include <stdio.h>

int main(int argc, char **argv) {
    static const mlxcel_setting settings[] = {{"parallel", "4"}, {"ui", "false"}};
    mlxcel_server_options options;
    mlxcel_server *server;
    mlxcel_error error;
    char line[64];
    mlxcel_server_options_init(&options, sizeof options);
    options.models = (const char *const *)argv + 1;
    options.n_models = argc > 1 ? (size_t)argc - 1 : 0;
    options.settings = settings;
    options.n_settings = 2;
    if (mlxcel_server_start(&options, &server, &error)) return fprintf(stderr, "serve: %s\n", error.message), 1;
    printf("http://127.0.0.1:%d\n", (int)mlxcel_server_port(server));
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) fputs("the input has ended\n", stderr);
    mlxcel_server_stop(server);
    return 0;
}
