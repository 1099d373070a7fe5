package afpacket

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// isolated runs f in a goroutine of its own on a thread with a fresh namespace and cable; the
// thread dies with it.
func isolated(t *testing.T, mtu uint32, f func(t *testing.T)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		newCable(t, mtu)
		f(t)
	}()
	<-done
}

func open(t testing.TB, cfg Config) *Port {
	t.Helper()
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// patience bounds a wait for what must happen, but at no certain time.
const patience = 20 * time.Second

// receive waits for n frames and returns copies of them.
func receive(t testing.TB, p *Port, n int) []packetio.Frame {
	t.Helper()
	w, err := NewWaiter(0, p)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var got []packetio.Frame
	var b packetio.Batch
	for end := time.Now().Add(patience); len(got) < n && time.Now().Before(end); {
		if _, err := p.Recv(&b); err != nil {
			t.Fatal(err)
		}
		for _, f := range b.Frames {
			f.Data = bytes.Clone(f.Data)
			got = append(got, f)
		}
		if len(b.Frames) == 0 {
			if err := w.Wait(100 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}
	return got
}

// frame makes a frame of n bytes of an EtherType for experiments.
func frame(n int, tag byte) []byte {
	b := bytes.Repeat([]byte{tag}, n)
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return b
}

func TestFramesCrossInOrder(t *testing.T) {
	for name, noRing := range map[string]bool{"ring": false, "recvmmsg": true} {
		t.Run(name, func(t *testing.T) {
			isolated(t, 4200, func(t *testing.T) {
				a := open(t, Config{Ifname: endA, Mode: Switch})
				b := open(t, Config{Ifname: endB, Mode: Switch, Index: 7, NoRing: noRing})
				t.Logf("%+v", b.Info())
				var want [][]byte
				var batch packetio.Batch
				for i := range 200 {
					want = append(want, frame(60+i*20, byte(i)))
					batch.Add(0, want[i])
				}
				if n, err := a.Send(&batch); n != len(want) || err != nil {
					t.Fatalf("Send = %d, %v", n, err)
				}
				got := receive(t, b, len(want))
				if len(got) != len(want) {
					t.Fatalf("%d frames arrived, want %d", len(got), len(want))
				}
				for i, f := range got {
					if !bytes.Equal(f.Data, want[i]) || f.Port != 7 || f.CsumPartial || f.SegSize != 0 {
						t.Fatalf("frame %d differs: %d bytes, %+v", i, len(f.Data), f.Port)
					}
				}
				if tx, rx := a.Stats(), b.Stats(); tx.TxPackets != 200 || rx.RxPackets != 200 || rx.RxBytes != tx.TxBytes || rx.RxDropped != 0 {
					t.Errorf("stats tx %+v rx %+v", tx, rx)
				}
			})
		})
	}
}

// openFDs counts this process's descriptors.
func openFDs(t *testing.T) int {
	t.Helper()
	l, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

func TestCloseLeaksNothing(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		cycle := func() {
			for _, cfg := range []Config{{Ifname: endA}, {Ifname: endA, NoRing: true, NoTCX: true}, {Ifname: endA, Mode: Switch}} {
				p, err := Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				w, err := NewWaiter(0, p)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := errors.Join(p.Close(), w.Close()); err != nil {
						t.Fatal(err)
					}
				}
				var b packetio.Batch
				if _, err := p.Recv(&b); !errors.Is(err, ErrClosed) {
					t.Errorf("Recv after Close: %v", err)
				}
				if _, err := p.Send(&b); !errors.Is(err, ErrClosed) {
					t.Errorf("Send after Close: %v", err)
				}
				if err := w.Wait(0); !errors.Is(err, ErrClosed) {
					t.Errorf("Wait after Close: %v", err)
				}
				w.Wake()
			}
		}
		cycle() // the first use opens descriptors that the runtime and the BPF library keep
		before := openFDs(t)
		for range 5 {
			cycle()
		}
		if after := openFDs(t); after > before {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
}

func TestOpenErrorsSayWhy(t *testing.T) {
	isolated(t, 1500, func(t *testing.T) {
		if _, err := Open(Config{Ifname: "nosuch0"}); !errors.Is(err, ErrNoInterface) {
			t.Errorf("missing interface: %v", err)
		}
		for _, cfg := range []Config{{}, {Ifname: "a-name-that-is-too-long"}, {Ifname: endA, Mode: 9}, {Ifname: endA, Slots: -1}} {
			if _, err := Open(cfg); err == nil {
				t.Errorf("%+v was accepted", cfg)
			}
		}
	})
}

// The thread gives up its privileges, and dies with its goroutine.
func TestMissingPrivileges(t *testing.T) {
	isolated(t, 1500, func(t *testing.T) {
		const unprivileged = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unprivileged, unprivileged, unprivileged); errno != 0 { // of this thread alone
			t.Skip("cannot become another user: ", errno)
		}
		_, err := Open(Config{Ifname: endA})
		if !errors.Is(err, ErrPrivilege) || !strings.Contains(err.Error(), "root") {
			t.Errorf("without privileges: %v", err)
		}
	})
}

func TestMain(m *testing.M) {
	runtime.LockOSThread() // keeps the main thread out of the pool of threads that the tests end
	os.Exit(m.Run())
}
