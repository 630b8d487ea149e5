// The interface in C++11, with objects that free what they hold and errors as exceptions: story [PROMPT [MODEL]]
#include <mlxcel.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

struct Failure : std::runtime_error {
    int32_t code;
    explicit Failure(const mlxcel_error &error) : std::runtime_error(error.message), code(error.code) {}
};

class Model {
    std::unique_ptr<mlxcel_model, void (*)(mlxcel_model *)> model{nullptr, mlxcel_model_close};

public:
    explicit Model(const char *name) {
        mlxcel_model_options options;
        mlxcel_model *opened;
        mlxcel_error error;
        mlxcel_model_options_init(&options, sizeof options);
        options.model = name;
        if (mlxcel_model_open(&options, &opened, &error)) throw Failure(error);
        model.reset(opened);
    }

    // Calls `say` for each piece of text.
    template <typename Say> void generate(const std::string &prompt, int max_tokens, Say say) {
        mlxcel_job_options options;
        mlxcel_event event;
        mlxcel_error error;
        mlxcel_job *submitted;
        mlxcel_job_options_init(&options, sizeof options);
        options.text = prompt.c_str();
        options.max_tokens = max_tokens;
        if (mlxcel_submit(model.get(), &options, &submitted, &error)) throw Failure(error);
        std::unique_ptr<mlxcel_job, void (*)(mlxcel_job *)> job(submitted, mlxcel_job_free); // cancelled where `say` throws
        mlxcel_event_init(&event, sizeof event);
        while (event.kind != MLXCEL_EVENT_END) {
            if (mlxcel_next(job.get(), -1, &event, &error)) throw Failure(error);
            if (event.kind == MLXCEL_EVENT_TEXT) say(std::string(event.text, event.text_bytes));
        }
    }
};

int main(int argc, char **argv) {
    try {
        Model model(argc > 2 ? argv[2] : nullptr);
        std::string prompt = argc > 1 ? argv[1] : "Once upon a time";
        std::cout << prompt;
        model.generate(prompt, 40, [](const std::string &piece) { std::cout << piece << std::flush; });
        std::cout << "\n";
        return 0;
    } catch (const Failure &failure) {
        std::cerr << "story: " << failure.what() << "\n";
        return 1;
    }
}
