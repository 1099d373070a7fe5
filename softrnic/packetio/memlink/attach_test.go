package memlink

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
)

func one100() *packetio.Batch {
	b := new(packetio.Batch)
	b.Add(0, make([]byte, 100))
	return b
}

// crosses waits until a frame crosses: the far end may still have the former link for a moment.
func crosses(t *testing.T, from, to *Port) {
	t.Helper()
	eventually(t, "a frame crosses", func() bool {
		if _, err := from.Send(one100()); err != nil {
			t.Fatal(err)
		}
		return len(all(t, to)) > 0
	})
}

// A switch that ends and starts again gets its hosts back; meanwhile what they send is dropped and
// counted. What it had sent before can still be received.
func TestSwitchRestarts(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	mustSend(t, k.sw, one100(), 1)
	if err := errors.Join(k.l.Close(), k.sw.Close()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host sees the end", func() bool { return !k.host.Attached() })
	mustSend(t, k.host, one100(), 0)
	if n := len(all(t, k.host)); n != 1 || k.host.Stats().TxDropped != 1 {
		t.Errorf("%d frames, %+v", n, k.host.Stats())
	}
	_, sw := listen(t, k.path, Config{MTU: 1500})
	eventually(t, "the host is back", func() bool { return k.host.Attached() && sw.Attached() })
	crosses(t, k.host, sw)
	crosses(t, sw, k.host)
}

// A host that ends and starts again gets a new link. Counters of drops go on.
func TestHostRestarts(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	for range Slots + 5 {
		mustSend(t, k.host, one100(), 1)
	}
	if err := errors.Join(k.conn.Close(), k.host.Close()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the switch sees the end", func() bool { return !k.sw.Attached() })
	if n := len(all(t, k.sw)); n != Slots {
		t.Errorf("%d frames of a host that has ended", n)
	}
	if _, err := k.host.Recv(one100()); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv of a closed port: %v", err)
	}
	host := newPort(t, Config{MTU: 1500})
	closing(t, Connect(k.path, "cn0", host, discard))
	eventually(t, "the host is back", func() bool { return host.Attached() && k.sw.Attached() })
	crosses(t, host, k.sw)
	crosses(t, k.sw, host)
	if s := k.sw.Stats(); s.RxDropped != 5 {
		t.Errorf("%+v", s)
	}
}

// A waiter that sleeps through a restart of the other side is woken by the first frame of the new
// link.
func TestSleeperAcrossRestart(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	w, err := afpacket.NewWaiterBeside([]afpacket.Source{k.sw}, 0)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, w)
	got := make(chan error, 1)
	go func() {
		var b packetio.Batch
		for {
			if n, err := k.sw.Recv(&b); n > 0 || err != nil {
				got <- err
				return
			}
			if err := w.Wait(-1); err != nil {
				got <- err
				return
			}
		}
	}()
	if err := errors.Join(k.conn.Close(), k.host.Close()); err != nil {
		t.Fatal(err)
	}
	host := newPort(t, Config{MTU: 1500})
	closing(t, Connect(k.path, "cn0", host, discard))
	eventually(t, "the host is attached", host.Attached)
	mustSend(t, host, one100(), 1)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the sleeper was not woken")
	}
}

// descriptors counts the open descriptors of this process, mappings those of links' memory.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "rdmalab-link")
}

// What does not speak the protocol is disconnected, and costs neither descriptors nor memory; hosts
// are served as before.
func TestGarbageConnections(t *testing.T) {
	k := attached(t, Config{MTU: 1500})
	before := descriptors(t)
	pipe, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(pipe.Fd())
	good := []byte(`{"host":"cn9","slots":512,"data":8388608,"entry":32}`)
	for _, c := range []struct {
		message []byte
		fds     []int
	}{
		{nil, nil},
		{[]byte("{"), []int{fd}},
		{bytes.Repeat([]byte("x"), 2*maxMessage), []int{fd}},
		{good, nil},
		{good, []int{fd}},
		{good, []int{fd, fd}},
		{good, []int{fd, fd, fd, fd, fd}},
		{[]byte(`{"host":"cn0","slots":1,"data":8388608,"entry":32}`), []int{fd}},
	} {
		conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: k.path, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		if c.message != nil {
			var oob []byte
			if len(c.fds) > 0 {
				oob = unix.UnixRights(c.fds...)
			}
			if _, _, err := conn.WriteMsgUnix(c.message, oob, nil); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 1000)
			if n, err := conn.Read(answer); err == nil && !bytes.Contains(answer[:n], []byte("error")) {
				t.Errorf("%s was answered by %s", c.message, answer[:n])
			}
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the descriptors are closed", func() bool { return descriptors(t) <= before })
	crosses(t, k.host, k.sw)
}

// Links that were replaced are unmapped, and their descriptors closed.
func TestNothingIsLeft(t *testing.T) {
	before, maps := descriptors(t), mappings(t)
	t.Run("links", func(t *testing.T) {
		k := attached(t, Config{MTU: 1500})
		for range 20 {
			j := k.host.at.Load()
			j.fault()
			eventually(t, "a new link", func() bool { return k.host.at.Load() != j && k.host.Attached() && k.sw.Attached() })
		}
		if n := mappings(t); n != maps+2 {
			t.Errorf("%d mappings of one link", n-maps)
		}
	})
	if n, fds := mappings(t), descriptors(t); n != maps || fds > before {
		t.Errorf("%d mappings and %d descriptors are left", n-maps, fds-before)
	}
}

// Memory that its maker can still shrink would be a fault of the mapping side, later.
func TestUnsealedMemory(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.CloseFiles(fd)
	if err := unix.Ftruncate(fd, memoryLen); err != nil {
		t.Fatal(err)
	}
	if _, err := mapMemory(fd); err == nil {
		t.Error("unsealed memory was mapped")
	}
	if _, err := mapMemory(0); err == nil {
		t.Error("a file was mapped")
	}
}

func TestListenTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "links.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", st, err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if _, err := NewPort(Config{}); err == nil {
		t.Error("a port without MTU")
	}
}
