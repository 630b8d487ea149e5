/* The drafter of a head; for draft_head.c and its tests. */
#ifndef MLXCEL_ENGINE_DRAFT_HEAD_H
#define MLXCEL_ENGINE_DRAFT_HEAD_H

#include "engine/engine_internal.h"

struct head_drafter {
    struct drafter base;
    struct runner runner; /* behind a proposal, its logits are those of the last guess */
    const struct draft_head *head;
    struct draft_ask **asks;    /* [seqs] those whose rows are in the step */
    struct step_chosen *chosen; /* [seqs] */
};

#endif
