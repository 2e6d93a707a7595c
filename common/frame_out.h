/* Frames on their way out in one piece: header, then body and data, with the
 * tags between and behind them where the connection is sealed
 * (common/seal.h). [pure]
 *
 *	p = room for frame_out_size(s, len)
 *	wire_header_encode(&h, p); body and data to p + frame_out_rest(s);
 *	frame_out_seal(s, p, len);
 *
 * @s: NULL: the connection is not sealed. Frames are sealed in the order in
 * which they are sent, each once.
 */
#ifndef COMMON_FRAME_OUT_H
#define COMMON_FRAME_OUT_H

#include "common/seal.h"
#include "common/wire.h"

/* Where body and data begin. */
static inline size_t frame_out_rest(const struct seal *s)
{
	return WIRE_HEADER_SIZE + (s ? SEAL_TAG_SIZE : 0);
}

/* Of a frame with @len bytes of body and data. */
static inline size_t frame_out_size(const struct seal *s, size_t len)
{
	return frame_out_rest(s) + len + (s && len > 0 ? SEAL_TAG_SIZE : 0);
}

static inline void frame_out_seal(struct seal *s, uint8_t *frame, size_t len)
{
	if (!s)
		return;
	seal_piece(s, frame, WIRE_HEADER_SIZE);
	if (len > 0)
		seal_piece(s, frame + frame_out_rest(s), len);
}

#endif
