/* The enumerations of kinds.def. Ops are made with them, and CUDA's kernels switch on them: both include this file. */
#ifndef MLXCEL_BACKEND_KINDS_H
#define MLXCEL_BACKEND_KINDS_H

enum act_kind {
#define ACT(name, word) ACT_##name,
#include "backend/kinds.def"
    N_ACT_KINDS
};

enum norm_kind {
#define NORM(name) NORM_##name,
#include "backend/kinds.def"
};

enum norm_gate {
#define GATE(name) GATE_##name,
#include "backend/kinds.def"
};

enum rope_kind {
#define ROPE(name) ROPE_##name,
#include "backend/kinds.def"
};

enum route_score {
#define ROUTE(name) ROUTE_##name,
#include "backend/kinds.def"
};

#endif
