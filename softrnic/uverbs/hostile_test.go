package uverbs_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// works moves bytes between two fresh programs: the daemons go on.
func (h *house) works(t testing.TB) {
	t.Helper()
	a, b := h.linked(t, uverbs.TypeRC)
	fill(a.buf[:5000], 3)
	b.receive(0, 5000)
	a.post(opSend, 0, 5000, 0, 0)
	a.succeeds()
	b.succeeds()
	if !bytes.Equal(a.buf[:5000], b.buf[:5000]) {
		t.Error("the bytes that arrived are others")
	}
}

// A program that scribbles over its rings, its indices and its bells harms no other one.
func TestScribbledRings(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	good, peer := h.linked(t, uverbs.TypeRC)
	before := openFiles(t)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		a, b := h.linked(t, []uint8{uverbs.TypeRC, uverbs.TypeUC, uverbs.TypeUD}[seed%3])
		used := 8192 + 64*1024
		for range 300 {
			switch r.IntN(4) {
			case 0:
				b.receive(r.IntN(1000), 100)
				a.post(uint32(r.IntN(32)), r.IntN(1000), r.IntN(9000), addr(b.buf)+uint64(r.IntN(1000)), b.mr.RKey)
			case 1:
				at := r.IntN(used - 8)
				for i := range 8 {
					a.area[at+i] = byte(r.Uint32())
				}
			case 2:
				a.send.SetProducer(r.Uint32())
				b.recv.SetProducer(r.Uint32())
				a.done.SetConsumer(r.Uint32())
			default:
				at := r.IntN(used-4096) &^ 7
				for i := range 512 {
					b.area[at+i] = byte(r.Uint32())
				}
			}
			a.bell(uint32(r.IntN(4096)))
			a.bell(a.qp.H)
			b.bell(b.qp.H)
		}
		a.close()
		b.close()
	}
	peer.receive(0, 100)
	good.post(opSend, 0, 100, 0, 0)
	good.succeeds()
	peer.succeeds()
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors more", openFiles(t)-before)
		}
	}
	h.works(t)
}

// Commands of random bytes, with handles that exist and others, are answered; a message that is no
// command ends the connection.
func TestRandomCommands(t *testing.T) {
	h := newHouse(t, serve.Limits{QPs: 8, CQs: 8, MRs: 8, PDs: 8, SRQs: 8, AHs: 8, Memories: 8, QueueBytes: 1 << 20})
	ops := []uverbs.Op{
		0, 1, 2, 3, 4, 5, 8, 9, 13, 17, 18, 20, 23, 24, 25, 26, 27, 32, 33, 34, 35, 63, uverbs.Repost, uverbs.ModifyCQ | uverbs.Extended,
		uverbs.CreateCQ | uverbs.Extended, uverbs.ReregMR, uverbs.AllocDM, uverbs.FreeDM, uverbs.CopyToDM, uverbs.CopyFromDM, uverbs.RegDM, uverbs.QueryDM, uverbs.QueryMR, uverbs.QueryLimits,
		uverbs.UseRing, uverbs.Doorbell, uverbs.CQNumber, uverbs.OpenXRCD, uverbs.CloseXRCD, uverbs.CreateXSRQ, uverbs.OpenQP,
	}
	before := h.objects(0)
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	files := openFiles(t)
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 5))
		e := h.attach(t, 0).queuePair(uverbs.TypeRC)
		e.xrc(t, "")
		for range 300 {
			args := make([]byte, r.IntN(160))
			for i := range args {
				if args[i] = byte(r.Uint32()); r.IntN(3) > 0 {
					args[i] &= 3
				}
				if r.IntN(4) > 0 && i%4 > 0 {
					args[i] = 0
				}
			}
			var files []int
			if r.IntN(4) == 0 {
				files = []int{fd, fd}[:1+r.IntN(2)]
			}
			e.rawWith(ops[r.IntN(len(ops))], uint32(r.IntN(4)), args, files...)
		}
		e.close()
	}
	h.empties(t, 0, before, files)
	must(t, unix.Close(fd))
	c := h.attach(t, 0)
	if _, err := c.conn.Write([]byte("none")); err != nil {
		t.Fatal(err)
	}
	if _, _, _, ok := receive(t, c.conn); ok {
		t.Error("a message that is no command was answered")
	}
	h.works(t)
}

// Descriptors that are not the program's memory are refused, and closed.
func TestWrongMemory(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	file := filepath.Join(t.TempDir(), "mem")
	must(t, os.WriteFile(file, make([]byte, 100), 0o600))
	before := openFiles(t)
	const mem, maps = "/proc/self/mem", "/proc/self/maps"
	for name, files := range map[string][]string{
		"none": {}, "one": {mem}, "swapped": {maps, mem}, "three": {mem, maps, maps}, "many": {mem, maps, mem, maps, mem, maps, mem, maps, mem},
		"a file of this name": {file, maps}, "a device": {"/dev/zero", maps}, "no maps": {mem, "/proc/self/status"},
	} {
		conn, errno, fds, ok := hello(t, h.sockets[0], magic, selfFiles(t, files...))
		if ok && errno == 0 || len(fds) > 0 {
			t.Errorf("%s: error %d, %d descriptors", name, errno, len(fds))
		}
		must(t, conn.Close())
	}
	conn, _, _, ok := hello(t, h.sockets[0], "rxeshim1"+magic[8:], selfFiles(t, mem, maps))
	if ok {
		t.Error("another version of the library was answered")
	}
	must(t, conn.Close())
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors more", openFiles(t)-before)
		}
	}
	h.works(t)
}

// A program can have as much as the limits say, and has room again for what it has given back.
func TestLimits(t *testing.T) {
	h := newHouse(t, serve.Limits{QPs: 3, CQs: 2, MRs: 4, QueueBytes: 1 << 18})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	qp := uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 4, MaxRecv: 4, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC}
	for range 50 {
		first, second := do[made](e.client, uverbs.CreateQP, qp), do[made](e.client, uverbs.CreateQP, qp)
		if _, errno := e.raw(uverbs.CreateQP, uverbs.NoChannel, uverbs.Encode(qp)); errno != unix.ENOMEM {
			t.Fatalf("one more: %v", errno)
		}
		do[none](e.client, uverbs.DestroyQP, uverbs.Handle{H: second.QP.H}, uint32(0))
		do[none](e.client, uverbs.DestroyQP, uverbs.Handle{H: first.QP.H}, uint32(0))
	}
	large := qp
	large.MaxSend = 8000
	if _, errno := e.raw(uverbs.CreateQP, uverbs.NoChannel, uverbs.Encode(large)); errno != unix.ENOMEM {
		t.Errorf("queues of more than the limit: %v", errno)
	}
	for name, change := range map[string]func(*uverbs.QPArgs){
		"inline": func(a *uverbs.QPArgs) { a.MaxInline = 1 << 30 }, "pieces": func(a *uverbs.QPArgs) { a.MaxSGE = 1 << 31 },
		"receives": func(a *uverbs.QPArgs) { a.MaxRecv = ^uint32(0) }, "domain": func(a *uverbs.QPArgs) { a.PD = 77 },
		"queue": func(a *uverbs.QPArgs) { a.SendCQ = 77 }, "shared queue": func(a *uverbs.QPArgs) { a.HasSRQ, a.SRQ = 1, 9 },
	} {
		a := qp
		change(&a)
		if _, errno := e.raw(uverbs.CreateQP, uverbs.NoChannel, uverbs.Encode(a)); errno != unix.EINVAL {
			t.Errorf("%s: %v", name, errno)
		}
	}
	if _, errno := e.raw(uverbs.DestroyCQ, uverbs.NoChannel, uverbs.Encode(uverbs.Handle{H: e.cq}, uint32(0))); errno != unix.EBUSY {
		t.Errorf("a queue in use: %v", errno)
	}
}
