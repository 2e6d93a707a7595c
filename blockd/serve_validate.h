/* Every check of a request, made once before any handler runs. [pure]
 * Handlers may rely on (and assert) what this let through.
 */
#ifndef BLOCKD_SERVE_VALIDATE_H
#define BLOCKD_SERVE_VALIDATE_H

#include "common/wire_blk.h"

/* Bounds of one answer. */
#define SERVE_MAP_COUNT_MAX 4096u
#define SERVE_LIST_COUNT_MAX 8192u
/* Bytes of one entry in the answers to BLK_MAP and BLK_LIST, at most. */
#define SERVE_MAP_ENTRY_MAX (8u + BLOCK_UNITS_MAX / 8u)
#define SERVE_LIST_ENTRY_MAX 33u

_Static_assert(SERVE_MAP_COUNT_MAX * SERVE_MAP_ENTRY_MAX + 64 <
		       FRAME_BODY_MAX, "a full map answer is one body");
_Static_assert(SERVE_LIST_COUNT_MAX * SERVE_LIST_ENTRY_MAX + 64 <
		       FRAME_BODY_MAX, "a full list answer is one body");

/* Who asks: what its HELLO said. */
struct serve_who {
	uint64_t cluster_id; /* ours */
	uint8_t role; /* enum wire_role; 0 before HELLO */
	uint64_t session; /* of a WIRE_ROLE_CLIENT */
};

/* A request in host form. Strings and blobs point into the body. */
struct serve_msg {
	uint16_t op; /* enum wire_op: which member is set */
	union {
		struct hello hello;
		struct blk_write write;
		struct blk_read read;
		struct blk_sync sync;
		struct blk_cut cut;
		struct blk_alloc alloc;
		struct blk_map map; /* count_max within its bound */
		struct blk_end end;
		struct blk_purge purge; /* whole u64s, at least one */
		struct blk_list list; /* count_max within its bound */
		struct blk_fence fence;
	} u;
};

/* @data: h->data_len bytes. Returns 0 and sets @m, or
 *   -EBADMSG     not our protocol, or damaged: count it and close
 *   -EXDEV       another cluster: answer and close
 *   -EPERM       not for this role        } answer
 *   -EOPNOTSUPP  an operation of the future }
 *   -EINVAL      a value out of range     }
 *   -EFBIG       beyond the largest file  } */
int serve_validate(const struct serve_who *who, const struct wire_header *h,
		   const uint8_t *body, const uint8_t *data,
		   struct serve_msg *m) must_check;

#endif
