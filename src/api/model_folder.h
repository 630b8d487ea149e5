/* Opening the folder of a model for a command that needs its weights. */
#ifndef MLXCEL_API_MODEL_FOLDER_H
#define MLXCEL_API_MODEL_FOLDER_H

#include "file/checkpoint.h"

/* As checkpoint_open; where weights of a downloaded model are missing, the message ends with the command that gets them. */
int model_folder_open(const char *path, struct checkpoint *out, struct err *err);

#endif
