/* Submissions to an io_uring that take their time: preloaded into a program
 * (LD_PRELOAD), what liburing does with the submission queue between reading
 * and moving its tail takes 50 us. Two threads that submit to one ring without
 * a lock then meet there, which otherwise needs a preemption.
 */
#include <liburing.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned flush(struct io_uring_sq *sq)
{
	unsigned head = sq->sqe_head, tail = sq->sqe_tail;

	if (head == tail)
		return tail - __atomic_load_n(sq->khead, __ATOMIC_ACQUIRE);
	nanosleep(&(struct timespec){ 0, 50000 }, NULL);
	for (unsigned i = head; i != tail; i++)
		sq->array[i & sq->ring_mask] = i & sq->ring_mask;
	sq->sqe_head = tail;
	__atomic_store_n(sq->ktail, tail, __ATOMIC_RELEASE);
	return tail - __atomic_load_n(sq->khead, __ATOMIC_ACQUIRE);
}

static int enter(struct io_uring *ring, unsigned wait_nr, unsigned flags)
{
	unsigned count = flush(&ring->sq);

	if (count == 0 && wait_nr == 0)
		return 0;
	return (int)syscall(SYS_io_uring_enter, ring->ring_fd, count, wait_nr,
			    flags, NULL, _NSIG / 8);
}

int io_uring_submit(struct io_uring *ring)
{
	return enter(ring, 0, 0);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait_nr)
{
	return enter(ring, wait_nr, IORING_ENTER_GETEVENTS);
}
