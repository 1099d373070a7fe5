package uverbs_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// A completion queue is as deep as on hardware, takes memory only for what is in it, and counts
// whole against the quota. A program that fills its quota with such queues leaves others theirs.
func TestDeepCompletionQueues(t *testing.T) {
	const deepest, page = 1<<22 - 1, 4096
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	if most := do[uverbs.Device](a.client, uverbs.QueryDevice).MaxCQE; most != deepest {
		t.Fatalf("the device offers %d entries, want %d", most, deepest)
	}
	area := func() int64 {
		t.Helper()
		var st unix.Stat_t
		must(t, unix.Fstat(a.fds[uverbs.WelcomeArea], &st))
		return st.Blocks * 512
	}
	before := area()
	var queues []uint32
	for {
		data, errno := a.raw(uverbs.CreateCQ, uverbs.NoChannel, uverbs.Encode(uverbs.CQArgs{CQE: deepest, Channel: -1}))
		if errno == unix.ENOMEM {
			break
		}
		if errno != 0 || len(queues) > 100 {
			t.Fatalf("queue %d: %v", len(queues), errno)
		}
		queues = append(queues, binary.NativeEndian.Uint32(data))
	}
	if used := h.used()["queueMemory"]; len(queues) < 4 || used < int64(len(queues))*deepest*64 {
		t.Errorf("%d queues count %d bytes", len(queues), used)
	}
	if more := area() - before; more > int64(len(queues))*4*page {
		t.Errorf("%d empty queues take %d bytes", len(queues), more)
	}
	b.receive(0, 64)
	a.post(opSend, 0, 64, 0, 0)
	a.succeeds()
	b.succeeds()
	other := h.attach(t, 0)
	do[uverbs.CQ](other, uverbs.CreateCQ, uverbs.CQArgs{CQE: deepest, Channel: -1})
	for _, q := range queues {
		a.end(uverbs.DestroyCQ, q, 0)
	}
	if left := h.used()["queueMemory"]; area()-before > page || left > 1<<30 {
		t.Errorf("ended queues leave %d bytes in the area; %d are counted", area()-before, left)
	}
}

// A program has as many completion channels and event channels as files: thousands. A channel ends
// when the program has closed its side, soon after it makes further ones.
func TestThousandsOfChannels(t *testing.T) {
	var files unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	many := min(1500, int(files.Cur/16)) // each has two ends here, and there are two kinds
	h := newHouse(t, serve.Limits{})
	c, m := h.attach(t, 0), h.manages(t, 0)
	before, kept := openFiles(t), len(c.fds)
	closeAll := func() {
		for _, fd := range c.fds[kept:] {
			must(t, unix.Close(fd))
		}
		c.fds = c.fds[:kept]
		for n, fd := range m.fds {
			must(t, unix.Close(fd))
			delete(m.fds, n)
		}
	}
	open := func(n int) {
		for range n {
			do[uverbs.Handle](c, uverbs.CreateCompChannel)
			m.open()
		}
	}
	for round := range 3 {
		open(many)
		if n := h.used()["channels"]; n < int64(2*many) || n > int64(4*many) {
			t.Errorf("round %d: %d channels count, %d are open", round, n, 2*many)
		}
		closeAll()
	}
	open(2 * many) // more than are left of the third round
	closeAll()
	if open(1); h.used()["channels"] > int64(4*many+3) {
		t.Errorf("%d channels count", h.used()["channels"])
	}
	if n := openFiles(t); n > before+4*many+10 {
		t.Errorf("%d descriptors are open, before there were %d", n, before)
	}
}
