package ipc_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/remote"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client READs and WRITEs the memory of a server and adds to it, also at the ends of the memory.
func TestRemoteMemory(t *testing.T) {
	const size = 1 << 20
	h := newHouse(t, 20*time.Microsecond, nil)
	b := h.open(t, 1)
	srv, err := memservice.New(b, b.Manager(), memservice.Config{Region: size})
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	mem, err := remote.DialBy(ipc.Config{Socket: h.sockets[0]}, ips[1].String())
	must(t, err)
	if mem.Size() != size {
		t.Errorf("%d bytes", mem.Size())
	}

	want := make([]byte, 200_001) // several pieces, the last one odd
	for i := range want {
		want[i] = byte(i * i >> 3)
	}
	got := make([]byte, len(want))
	if n, err := mem.WriteAt(want, 77); n != len(want) || err != nil {
		t.Fatal(n, err)
	}
	if n, err := mem.ReadAt(got, 77); n != len(got) || err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	_, err = mem.WriteAt([]byte("end"), size-3)
	must(t, err)
	if n, err := mem.ReadAt(got[:10], size-3); n != 3 || !errors.Is(err, io.EOF) || string(got[:3]) != "end" {
		t.Errorf("at the end: %d, %v", n, err)
	}
	for _, off := range []int64{-1, size + 1, size - 1} {
		if _, err := mem.WriteAt(want[:2], off); !errors.Is(err, remote.ErrRange) {
			t.Errorf("a write at %d: %v", off, err)
		}
	}
	for _, off := range []int64{-8, 4, size, size - 4} {
		if _, err := mem.FetchAdd(off, 1); !errors.Is(err, remote.ErrRange) {
			t.Errorf("an atomic at %d: %v", off, err)
		}
	}

	const word = 512 << 10
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if _, err := mem.FetchAdd(word, 3); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if was, err := mem.CompareSwap(word, 600, 7); was != 600 || err != nil {
		t.Errorf("swap: %d, %v", was, err)
	}
	if was, err := mem.CompareSwap(word, 600, 8); was != 7 || err != nil {
		t.Errorf("swap of another value: %d, %v", was, err)
	}

	must(t, mem.Close())
	if _, err := mem.ReadAt(got[:1], 0); err == nil {
		t.Error("a read of what was closed")
	}
	must(t, srv.Close())
	if err := <-served; err != nil && !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("server: %v", err)
	}
	b.Runtime().Wait()
	must(t, b.Close())
	h.empty(t)
}

// A server that cannot be reached is reported as an error.
func TestRemoteMemoryRefused(t *testing.T) {
	h := newHouse(t, 20*time.Microsecond, nil)
	if _, err := remote.Dial("no address"); err == nil {
		t.Error("no address")
	}
	if _, err := remote.DialBy(ipc.Config{Socket: h.sockets[0] + "x"}, ips[1].String()); err == nil {
		t.Error("no NIC")
	}
	if _, err := remote.DialBy(ipc.Config{Socket: h.sockets[0]}, ips[1].String()); err == nil {
		t.Error("no server")
	}
	h.empty(t)
}
