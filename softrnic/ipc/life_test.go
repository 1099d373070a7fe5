package ipc_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// writerProgram WRITEs to a region of the second NIC until it is killed; its arguments are in the
// environment.
func writerProgram() error {
	sockets := socketsOfProgram()
	ctx, err := ipc.Open(ipc.Config{Socket: sockets[0], Name: "writer"})
	if err != nil {
		return err
	}
	peer, err := ipc.Open(ipc.Config{Socket: sockets[1], Name: "writer"})
	if err != nil {
		return err
	}
	shared, err := peer.Share("ledger", 1<<16, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	if err != nil {
		return err
	}
	r, err := newReader(ctx, peer)
	if err != nil {
		return err
	}
	if err := shared.MR.WriteAt([]byte("survives"), 0); err != nil {
		return err
	}
	fmt.Println(shared.MR.Addr(), shared.MR.RKey())
	r.wr[0].Op = verbs.OpWrite
	for {
		if err := r.read(); err != nil {
			return err
		}
	}
}

// A program that is killed while it WRITEs leaves nothing behind except its shared region, which
// has the same bytes, address and keys for the next program.
func TestKilledProgram(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, spin, nil)
			cmd := h.program(t, "writer")
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			must(t, err)
			var addr uint64
			var key uint32
			_, err = fmt.Sscan(line, &addr, &key)
			must(t, err)
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				if c := h.servers[0].Clients(); len(c) == 1 && c[0].Posted > 100 && c[0].QPs == 1 && c[0].PID == int32(cmd.Process.Pid) && c[0].Name == "writer" {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the program does not write: %+v", h.servers[0].Clients())
				}
			}
			must(t, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
			h.waitObjects(t, 0, 0, 0)
			h.waitObjects(t, 1, 1, 1) // the shared region and its domain
			next := h.open(t, 1)
			s, err := next.Share("ledger", 0, 0)
			must(t, err)
			var b [8]byte
			must(t, s.MR.ReadAt(b[:], 0))
			if s.Created || s.MR.Addr() != addr || s.MR.RKey() != key || string(b[:]) != "survives" {
				t.Errorf("%+v at %#x with %#x holds %q", s, s.MR.Addr(), s.MR.RKey(), b)
			}
			if open := h.servers[1].Shared(); len(open) != 1 || open[0].Open != 1 || open[0].Length != 1<<16 {
				t.Errorf("shared: %+v", open)
			}
			h.readShared(t, next, s, key, addr)
			if err := next.Unshare("ledger"); !errors.Is(err, verbs.ErrBusy) {
				t.Errorf("unshare while it is open: %v", err)
			}
			must(t, next.Close())
			last := h.open(t, 1)
			must(t, last.Unshare("ledger"))
			_, err = last.Share("ledger", 0, 0)
			if !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("a region that is gone: %v", err)
			}
			must(t, last.Close())
			h.empty(t)
		})
	}
}

// readShared READs a shared region from the other NIC with the keys that its creator had.
func (h *house) readShared(t *testing.T, owner *ipc.Context, s *ipc.Shared, key uint32, addr uint64) {
	t.Helper()
	a := h.open(t, 0)
	r, err := newReader(a, owner) // its remote queue pair is in another domain
	must(t, err)
	cq, err := owner.CreateCQ(4)
	must(t, err)
	q, err := s.PD.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	must(t, err)
	must(t, r.qp.ToReset())
	for _, x := range []struct {
		own, peer verbs.QP
		to        verbs.Context
	}{{r.qp, q, owner}, {q, r.qp, a}} {
		must(t, x.own.ToInit(verbs.ToInit{Access: verbs.RemoteRead}))
		must(t, x.own.ToRTR(verbs.ToRTR{DestQPN: x.peer.QPN(), DestGID: x.to.Device().GIDs[0], PathMTU: verbs.MTU1024}))
		must(t, x.own.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}))
	}
	r.wr[0].RemoteAddr, r.wr[0].RKey = addr, key
	must(t, r.read())
	must(t, a.Close())
}

// A shared region keeps its bytes over a crash of the NIC.
func TestSharedRegionOutlivesTheNIC(t *testing.T) {
	h := newHouse(t, 0, nil)
	c := h.open(t, 0)
	s, err := c.Share("store", 4096, verbs.LocalWrite|verbs.RemoteRead)
	must(t, err)
	must(t, s.MR.Store64(8, 77))
	if _, err := c.Share("store", 8192, verbs.LocalWrite|verbs.RemoteRead); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("another length: %v", err)
	}
	for _, name := range []string{"", "\x1b[2J", strings.Repeat("x", 65)} {
		if _, err := c.Share(name, 1, 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	h.dev[0].Down()
	h.dev[0].Up()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := s.MR.Load64(8); errors.Is(err, verbs.ErrClosed) {
			break
		} else if time.Now().After(end) {
			t.Fatal("the region does not die with its NIC")
		}
	}
	again, err := c.Share("store", 0, 0)
	must(t, err)
	if v, err := again.MR.Load64(8); v != 77 || err != nil {
		t.Errorf("%d, %v; want 77", v, err)
	}
	if err := s.MR.Dereg(); err != nil {
		t.Errorf("the old handle: %v", err)
	}
	must(t, again.MR.Dereg())
	must(t, again.PD.Dealloc())
	must(t, c.Unshare("store"))
}

// held counts the goroutines, open files and mappings of memory files of this process.
func held(t *testing.T) (goroutines, files, mappings int) {
	t.Helper()
	runtime.GC() // control pages are unmapped with their contexts
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return runtime.NumGoroutine(), len(fds), strings.Count(string(maps), "memfd:")
}

// Applications attach and end many times, with objects of every kind that they do not
// destroy, and nothing is left.
func TestNothingLeaks(t *testing.T) {
	h := newHouse(t, 0, nil)
	cycle := func(i int) {
		c, err := ipc.Open(ipc.Config{Socket: h.sockets[i%2]})
		must(t, err)
		r, err := newReader(c, c)
		must(t, err)
		must(t, r.read())
		pd, err := c.AllocPD()
		must(t, err)
		srq, err := pd.CreateSRQ(verbs.SRQInit{})
		must(t, err)
		must(t, srq.PostRecv(verbs.RecvWR{}))
		buf, err := c.Alloc(1 << 14)
		must(t, err)
		_, err = pd.RegMR(buf[4096:8192], 0, verbs.LocalWrite)
		must(t, err)
		_, err = pd.AllocMW()
		must(t, err)
		_, err = c.AllocDM(64)
		must(t, err)
		_, err = pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(ips[0])})
		must(t, err)
		m := c.Manager()
		_, err = m.Listen("here")
		must(t, err)
		must(t, c.Close())
	}
	for i := range 20 { // objects that are kept for later exist now
		cycle(i)
	}
	h.empty(t)
	goroutines, files, mappings := held(t)
	cycles := verbstest.Tries(1000, 150)
	for i := range cycles {
		cycle(i)
	}
	h.empty(t)
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		g, f, m := held(t)
		if g <= goroutines && f <= files && m <= mappings {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after %d cycles %d goroutines, %d files and %d mappings; there were %d, %d and %d", cycles, g, f, m, goroutines, files, mappings)
		}
	}
}
