#include "tests/lib/log_scene.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

void scene_open(struct log_scene *s)
{
	s->f[0] = lm_open(s->m, s->m->dir, "f0");
	s->f[1] = lm_open(s->m, s->m->dir, "f1");
	s->g = lm_open(s->m, ROOT_INO, "g");
}

void scene_end(struct log_scene *s)
{
	d_close(s->m->d, s->f[0]);
	d_close(s->m->d, s->f[1]);
	d_close(s->m->d, s->g);
	lm_stop(s->m);
}

void scene_write(struct log_scene *s, uint64_t seed)
{
	for (uint32_t i = 0; i < 2 * SCENE_BLOCKS; i++)
		assert_int_equal(lm_write(s->m, s->f[i % 2],
					  i / 2 * (uint64_t)DBLOCK, SCENE_LEN,
					  seed + i), 0);
}

void scene_check(struct log_scene *s, uint64_t seed)
{
	for (uint32_t i = 0; i < 2 * SCENE_BLOCKS; i++)
		lm_check(s->m, s->f[i % 2], i / 2 * (uint64_t)DBLOCK, SCENE_LEN,
			 seed + i);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(d_size(s->m->d, s->f[i]),
				 (SCENE_BLOCKS - 1) * (uint64_t)DBLOCK +
					 SCENE_LEN);
}

struct fix_call *scene_page_start(struct log_scene *s, uint64_t seed)
{
	assert_int_equal(lm_write(s->m, s->g, 0, SCENE_LEN, seed), 0);
	return d_fsync_start(s->m->d, s->g);
}

void scene_page(struct log_scene *s, uint64_t seed)
{
	assert_int_equal(fix_call_end(scene_page_start(s, seed), NULL), 0);
}

void scene_wait_round(struct log_scene *s)
{
	wait_until(scene_log(s->m, round) == LOG_ROUND_NONE);
}

struct log_scene scene_begun_with(const struct dfix_options *o)
{
	struct log_scene s = { .m = lm_new(o, "destage=interval") };

	s.f[0] = lm_create(s.m, "f0");
	s.f[1] = lm_create(s.m, "f1");
	s.g = d_create(s.m->d, "g");
	scene_write(&s, 100);
	scene_page(&s, 1);
	scene_wait_round(&s);
	assert_int_equal(lm_count(s.m, journals), 1);
	return s;
}

struct log_scene scene_begun(void)
{
	return scene_begun_with(NULL);
}

void scene_power_cut(struct log_scene *s)
{
	lm_power_cut(s->m);
	assert_int_equal(lm_start(s->m), 0);
	scene_open(s);
}
