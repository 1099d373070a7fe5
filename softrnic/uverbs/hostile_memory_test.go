package uverbs_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// filesEnd waits until this process has no more descriptors than before. It may have fewer: a file of an earlier
// test may have been closed late.
func filesEnd(t testing.TB, before int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors more", openFiles(t)-before)
		}
	}
}

// attachWith is a program whose memory and maps are these files.
func (h *house) attachWith(t testing.TB, files ...string) *client {
	t.Helper()
	return h.attachBy(t, 0, openAll(t, files...))
}

// openAll opens files of memory and maps.
func openAll(t testing.TB, files ...string) (fds []int) {
	t.Helper()
	for _, f := range files {
		flags := unix.O_RDONLY
		if strings.HasSuffix(f, "/mem") {
			flags = unix.O_RDWR
		}
		fd, err := unix.Open(f, flags|unix.O_CLOEXEC, 0)
		must(t, err)
		fds = append(fds, fd)
	}
	return fds
}

// stackOf is the address of a page in the stack of another process.
func stackOf(t testing.TB, pid int) uint64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	must(t, err)
	defer f.Close()
	for r := bufio.NewScanner(f); r.Scan(); {
		if line := r.Text(); strings.HasSuffix(line, "[stack]") {
			_, rest, _ := strings.Cut(line, "-")
			word, _, _ := strings.Cut(rest, " ")
			end, err := strconv.ParseUint(word, 16, 64)
			must(t, err)
			return end - 4096
		}
	}
	t.Fatal("no stack")
	return 0
}

// The memory of another process, which a program may hand over if it may open it, is that
// process's: what is registered by its maps can be reached while it lives. When it has died, work
// requests on its memory are errors at their own side, and nothing can be registered.
func TestMemoryOfAnotherProcess(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := openFiles(t)
	other := exec.Command("sleep", "600")
	must(t, other.Start())
	kill := sync.OnceFunc(func() {
		must(t, other.Process.Kill())
		_ = other.Wait() // it was killed
	})
	defer kill()
	var at uint64
	for end := time.Now().Add(20 * time.Second); at == 0; time.Sleep(time.Millisecond) { // until it has executed sleep
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", other.Process.Pid)); err == nil && string(name) == "sleep\n" {
			at = stackOf(t, other.Process.Pid)
		} else if time.Now().After(end) {
			t.Fatal("no other process")
		}
	}
	files := []string{fmt.Sprintf("/proc/%d/mem", other.Process.Pid), fmt.Sprintf("/proc/%d/maps", other.Process.Pid)}
	a, b := h.attachWith(t, files...), h.attach(t, 1).queuePair(uverbs.TypeRC)
	ownMaps := h.attachWith(t, files[0], "/proc/self/maps")
	e := a.queuePairOn(uverbs.TypeRC, at, 4096)
	e.connect(b, 1)
	b.connect(e, 0)
	b.receive(0, 4096)
	e.post(opSend, 0, 4096, 0, 0)
	e.succeeds()
	b.succeeds()
	want := make([]byte, 4096)
	f, err := os.Open(files[0])
	must(t, err)
	_, err = f.ReadAt(want, int64(at))
	must(t, err)
	must(t, f.Close())
	if string(want) != string(b.buf[:4096]) {
		t.Error("the bytes are not those of the other process")
	}
	pd := do[uverbs.Handle](ownMaps, uverbs.AllocPD).H
	mine := memory(t, 4096)
	reg := func(c *client, pd uint32, start uint64) unix.Errno {
		_, errno := c.raw(uverbs.RegMR, uverbs.NoChannel, uverbs.Encode(uverbs.RegMRArgs{Start: start, Length: 4096, VA: start, PD: pd, Access: 1}))
		return errno
	}
	if errno := reg(ownMaps, pd, addr(mine)); errno != 0 {
		t.Errorf("memory by the maps of this process: %v", errno)
	}
	kill()
	b.receive(0, 4096)
	e.post(opSend, 0, 4096, 0, 0)
	if c := e.next(); verbs.Status(c.Status) != verbs.LocProtErr {
		t.Errorf("SEND from the memory of a process that has died: %v", verbs.Status(c.Status))
	}
	if errno := reg(a, e.pd, at); errno != unix.EFAULT {
		t.Errorf("registration of memory of a process that has died: %v", errno)
	}
	a.close()
	b.close()
	ownMaps.close()
	filesEnd(t, before)
	h.works(t)
}

// What a peer sends to or writes into memory whose descriptor only reads is an error at both sides,
// and nothing else.
func TestMemoryThatOnlyReads(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	for _, op := range []uint32{opSend, opWrite} {
		mem, err := unix.Open("/proc/self/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		a := h.attach(t, 0).queuePair(uverbs.TypeRC)
		b := h.attachBy(t, 1, append([]int{mem}, selfFiles(t, "/proc/self/maps")...)).queuePair(uverbs.TypeRC)
		a.connect(b, 1)
		b.connect(a, 0)
		want := verbs.RemAccessErr
		if op == opSend {
			b.receive(0, 100)
			want = verbs.RemOpErr
		}
		a.post(op, 0, 100, addr(b.buf), b.mr.RKey)
		if c := a.next(); verbs.Status(c.Status) != want {
			t.Errorf("operation %d: %v", op, verbs.Status(c.Status))
		}
		if op == opSend {
			if c := b.next(); verbs.Status(c.Status) != verbs.LocProtErr {
				t.Errorf("receive: %v", verbs.Status(c.Status))
			}
		}
	}
	h.works(t)
}

// tricks remaps random pages until stop is closed: behind the end of a file (the address of an
// unmapped page could be given to another mapping of this process), unreadable, discarded, or new.
// Right after that it maps them normally again.
func tricks(b []byte, seed uint64, nothing int, stop <-chan struct{}) {
	const page = 4096
	r := rand.New(rand.NewPCG(seed, 6))
	mmap := func(at, n uintptr, prot, flags, fd int) {
		// unix.Mmap knows no fixed addresses. The test also holds if a call fails.
		_, _, _ = unix.Syscall6(unix.SYS_MMAP, at, n, uintptr(prot), uintptr(unix.MAP_PRIVATE|unix.MAP_FIXED|flags), uintptr(fd), 0)
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		at, n := uintptr(addr(b))+uintptr(r.IntN(len(b)/page-4))*page, uintptr(1+r.IntN(4))*page
		switch r.IntN(4) {
		case 0:
			mmap(at, n, unix.PROT_READ|unix.PROT_WRITE, 0, nothing)
		case 1:
			mmap(at, n, unix.PROT_NONE, unix.MAP_ANON, -1)
		case 2:
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, at, n, unix.MADV_DONTNEED)
		}
		mmap(at, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON, -1)
	}
}

// Memory that is mapped again while peers read and write it gives them bytes or an error; the
// daemons go on.
func TestMemoryThatChangesMeanwhile(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	good, peer := h.linked(t, uverbs.TypeRC)
	nothing, err := unix.MemfdCreate("nothing", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(nothing)
	const tampered = 64 * 4096
	reached, failed := 0, 0
	for seed := range uint64(4) {
		a, b := h.linked(t, uverbs.TypeRC)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			tricks(b.buf[:tampered], seed, nothing, stop)
		}()
		r := rand.New(rand.NewPCG(seed, 7))
		for range 100 {
			op, at := []uint32{opWrite, opRead, opAdd}[r.IntN(3)], addr(b.buf)+uint64(r.IntN(tampered/8)*8)
			if op == opAdd {
				a.post(op, 0, 8, at, b.mr.RKey, 1)
			} else {
				a.post(op, 0, 1+r.IntN(30000), at, b.mr.RKey)
			}
			c := a.next()
			if c.Status == 0 {
				reached++
				continue
			}
			if s := verbs.Status(c.Status); s != verbs.RemAccessErr {
				t.Errorf("operation %d on memory that changes: %v", op, s)
			}
			failed++
			break // the queue pair is in the state of errors
		}
		close(stop)
		<-stopped
		a.close()
		b.close()
	}
	t.Logf("%d operations reached memory, %d did not", reached, failed)
	peer.receive(0, 100)
	good.post(opSend, 0, 100, 0, 0)
	good.succeeds()
	peer.succeeds()
	h.works(t)
}

// Every byte of the area, rings, indices and what the daemon counts there, is overwritten, with
// work in flight.
func TestEveryByteOfTheArea(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	good, peer := h.linked(t, uverbs.TypeRC)
	before := openFiles(t)
	for _, v := range []byte{0xff, 0x80, 0} {
		a, b := h.linked(t, uverbs.TypeRC)
		used := 8192 + 64*1024
		for at := range used {
			if at%512 == 0 {
				b.receive(0, 100)
				a.post(opSend, 0, 100, 0, 0)
			}
			a.area[at], b.area[at] = v, v
			if at%64 == 0 {
				a.bell(a.qp.H)
				b.bell(b.qp.H)
			}
		}
		a.close()
		b.close()
	}
	peer.receive(0, 100)
	good.post(opSend, 0, 100, 0, 0)
	good.succeeds()
	peer.succeeds()
	filesEnd(t, before)
	h.works(t)
}

// A program gets as many objects of each kind as its limit says, and another one gets as many when
// it has left.
func TestEveryObjectExhausted(t *testing.T) {
	const most = 5
	h := newHouse(t, serve.Limits{PDs: most, CQs: most, MRs: most, MWs: most, AHs: most, SRQs: most, QPs: most, Memories: most, Manager: serve.ManagerLimits{Channels: most}})
	good, peer := h.linked(t, uverbs.TypeRC)
	before := openFiles(t)
	buf := memory(t, 4096)
	for round := range 3 {
		c := h.attach(t, 0)
		pd := do[uverbs.Handle](c, uverbs.AllocPD).H
		cq := do[madeCQ](c, uverbs.CreateCQ, uverbs.CQArgs{CQE: 8, Channel: -1}).CQ.H
		to := uverbs.AHAttr{DestGID: verbs.GIDOf(ips[1]), Global: 1, Port: 1}
		for _, k := range []struct {
			name string
			op   uverbs.Op
			args any
			have int
		}{
			{"protection domains", uverbs.AllocPD, none{}, 1},
			{"completion queues", uverbs.CreateCQ, uverbs.CQArgs{CQE: 8, Channel: -1}, 1},
			{"completion channels", uverbs.CreateCompChannel, none{}, 0},
			{"regions", uverbs.RegMR, uverbs.RegMRArgs{Start: addr(buf), Length: 4096, VA: addr(buf), PD: pd, Access: allow}, 0},
			{"windows", uverbs.AllocMW, uverbs.MWArgs{PD: pd, Type: 1}, 0},
			{"address handles", uverbs.CreateAH, uverbs.AHArgs{PD: pd, Attr: to}, 0},
			{"shared receive queues", uverbs.CreateSRQ, uverbs.SRQArgs{PD: pd, MaxWR: 4, MaxSGE: 1}, 0},
			{"queue pairs", uverbs.CreateQP, uverbs.QPArgs{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSend: 4, MaxRecv: 4, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC}, 0},
		} {
			got := k.have
			var errno unix.Errno
			for errno == 0 && got <= most {
				if _, errno = c.raw(k.op, uverbs.NoChannel, uverbs.Encode(k.args)); errno == 0 {
					got++
				}
			}
			want := unix.ENOMEM
			if k.op == uverbs.CreateCompChannel {
				want = unix.EMFILE // it is a descriptor
			}
			if got != most || errno != want {
				t.Errorf("round %d: %d %s of %d, then %v", round, got, k.name, most, errno)
			}
		}
		peer.receive(0, 100) // other programs go on
		good.post(opSend, 0, 100, 0, 0)
		good.succeeds()
		peer.succeeds()
		c.close()
	}
	filesEnd(t, before)
}
